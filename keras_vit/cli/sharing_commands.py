"""`keras-vit push`: shares a model on the Hugging Face Hub or on Kaggle."""

__all__ = ["push"]


def push(parser):
    """Share a model or a run on the Hugging Face Hub or on Kaggle."""
    add = parser.add_argument
    add("model", help="run folder, file or folder of weights, or their name")
    add("name", help="user/name, or kaggle://user/model/framework/variation")
    add(
        "--format",
        choices=("hugging_face", "timm", "keras"),
        help="of the weights; by default the first that can hold the model",
    )
    add("--private", action="store_true", help="make a private repository")
    add("--revision", help="branch to upload to, made if need be")
    add("--message", help="of the commit")
    add("--license", help="of the model, such as apache-2.0")
    add(
        "--overwrite",
        action="store_true",
        help="replace files that keras-vit did not upload",
    )
    add(
        "--dry_run",
        metavar="DIR",
        help="write and check the folder, and upload nothing",
    )
    parser.set_defaults(run=_push)


def _push(arguments):
    from keras_vit.sharing import push_to_hub

    print(
        push_to_hub(
            arguments.model,
            arguments.name,
            format=arguments.format,
            private=arguments.private or None,
            revision=arguments.revision,
            commit_message=arguments.message,
            license=arguments.license,
            overwrite=arguments.overwrite,
            dry_run=arguments.dry_run,
        )
    )
