"""The config of a model that differs from the file's."""

from keras_vit.checkpoints.formats.configured import Configured

__all__ = ["adapted_fields"]


def adapted_fields(
    configured: Configured,
    family: str,
    *,
    classes: int | None,
    input_shape: tuple | None,
    include_top: bool,
    keep_representation: bool,
    overrides: dict,
) -> dict:
    """Fields of the config that a user wants of a file.

    Args:
        configured: what the file says.
        family: "vit", "mixer", "bit" or "variant".
        classes: int or None, see `load_checkpoint`, as the rest.
        input_shape: (height, width, channels) or None.
        include_top: bool.
        keep_representation: bool.
        overrides: dict, other fields; they come last.

    Returns:
        dict of fields for the config of the family.

    Raises:
        ValueError: for an input_shape that is none, or classes that are no
            number.
    """
    fields = dict(configured.fields)
    if input_shape is not None:
        fields |= input_fields(input_shape, family)
    if classes is not None:
        fields |= head_fields(fields, classes, keep_representation)
    if not include_top:
        fields |= {"num_classes": 0, "pooling": "none"}
        if "representation_dim" in fields:
            fields["representation_dim"] = 0
    if overrides.get("pooling") == "avg":
        overrides = {**overrides, "pooling": "mean"}
    if fields.get("pooling") == "token" and overrides.get("pooling") in (
        "mean",
        "max",
    ):
        # As the original does it: what pools patches has no class token.
        fields["class_token"] = False
    if overrides.get("pooling") == "token":
        fields["class_token"] = True
        fields["norm_after_pooling"] = False
    return fields | overrides


def input_fields(input_shape, family) -> dict:
    shape = tuple(input_shape)
    sizes = shape[2:] if family == "bit" else shape
    if len(shape) != 3 or not all(type(x) is int and x > 0 for x in sizes):
        raise ValueError(
            "input_shape must be (height, width, channels), channels last. "
            f"Received: input_shape={input_shape!r}. Give for example "
            "input_shape=(384, 384, 3)."
        )
    return {"image_size": shape[:2], "channels": shape[2]}


def head_fields(fields, classes, keep_representation) -> dict:
    if type(classes) is not int or classes < 0:
        raise ValueError(
            "classes must be the number of classes, or 0 for features. "
            f"Received: classes={classes!r}."
        )
    dropped = classes != fields["num_classes"] and not keep_representation
    if dropped and fields.get("representation_dim"):
        return {"num_classes": classes, "representation_dim": 0}
    return {"num_classes": classes}
