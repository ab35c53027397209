"""`keras-vit serve`."""

__all__ = ["serve"]


def serve(parser):
    """Serve a model over HTTP, with a page to try it."""
    parser.set_defaults(run=_serve)
    add = parser.add_argument
    add(
        "model",
        help="weights by name (ViT_B16/imagenet), a run folder or a file",
    )
    add("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    add("--port", type=int, default=8000, help="0 for a free one (8000)")
    add("--image_size", type=int, help="pixels; that of the weights by default")
    for name, (kind, told) in LIMITS.items():
        add(f"--{name}", type=kind, help=told)


# Fields of `ServingLimits`, which has the defaults.
LIMITS = {
    "batch": (int, "images per step of the model (8)"),
    "wait_ms": (float, "how long an image waits for others to join it (5)"),
    "queue": (int, "images in work at a time; others get 503 (256)"),
    "timeout": (float, "seconds before a request gets 504 (30)"),
    "body_mb": (float, "MiB of a request; larger ones get 413 (16)"),
    "megapixels": (float, "of an image; larger ones get 413 (50)"),
}


def _serve(arguments):
    # Help and wrong arguments need no model.
    from keras_vit.serving import ServingLimits, serve

    given = {
        name: value
        for name in LIMITS
        if (value := getattr(arguments, name)) is not None
    }
    code = serve(
        arguments.model,
        host=arguments.host,
        port=arguments.port,
        limits=ServingLimits(**given),
        image_size=arguments.image_size,
    )
    if code:
        raise SystemExit(code)
