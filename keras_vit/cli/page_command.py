"""`keras-vit page`."""

__all__ = ["page"]


def page(parser):
    """Write a page that classifies pictures in the browser."""
    parser.set_defaults(run=_page)
    add = parser.add_argument
    add("model", help="ONNX file, which keras-vit export wrote")
    add("path", nargs="?", help="page to write; vit.html of vit.onnx if left")
    add(
        "--runtime",
        help="address of a folder with the files of onnxruntime-web, such as "
        "onnxruntime-web/dist beside the page; a public network by default",
    )


def _page(arguments):
    # Help and wrong arguments need no model.
    from keras_vit.exporting.browser_page import RUNTIME, write_page

    path = write_page(
        arguments.model, arguments.path, runtime=arguments.runtime or RUNTIME
    )
    print(path)
