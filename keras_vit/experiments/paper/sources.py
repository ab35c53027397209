"""The paper's pre-trained models: public weights, or what makes them.

A name in the paper, "ViT-L/16", is a folder "ViT-L16", which all of its runs
are in, so that tables share what they have in common.
"""

import dataclasses

from keras_vit.experiments.paper.command import Command

__all__ = ["Source", "pre_trained"]

# Sizes of the hybrid and of those whose config is another model's.
VIT_B = (
    ("model.hidden_dim", "768"),
    ("model.num_layers", "12"),
    ("model.mlp_dim", "3072"),
    ("model.num_heads", "12"),
    ("model.representation_dim", "768"),
)
# Model to its config in recipes/configs/paper and what differs from it.
JFT = {
    "ViT-B/16": ("table3_jft300m_vit_b", ()),
    "ViT-B/32": ("table3_jft300m_vit_b", (("model.name", "ViT_B32"),)),
    "ViT-L/16": ("table3_jft300m_vit_l16", ()),
    "ViT-L/32": ("table3_jft300m_vit_l32", ()),
    "ViT-H/14": ("table3_jft300m_vit_h14", ()),
    "R50x1": ("table3_jft300m_r50", ()),
    "R101x1": ("table3_jft300m_r101", ()),
    "R152x2": ("table3_jft300m_r152", ()),
    "R50x1+ViT-B/16": ("table3_jft300m_r50_vit_b", ()),
    "R50x1+ViT-B/32": (
        "table3_jft300m_r50_vit_b",
        (("model.name", "ViT_R50_L32"), *VIT_B),
    ),
    "R50x1+ViT-L/16": ("table3_jft300m_r50_vit_l16", ()),
    "R50x1+ViT-L/32": ("table3_jft300m_r50_vit_l32", ()),
}
WIDTHS = {"B": "768", "L": "1024", "H": "1280"}
EPOCHS = {"ViT-L/16": 14, "ViT-H/14": 14}  # On JFT; 7 of all others.


@dataclasses.dataclass(frozen=True)
class Source:
    """A pre-trained model that is transferred.

    Args:
        folder: of its runs.
        model: name of the application; "null" where the weights say it.
        weights: name of public weights, or "@run".
        commands: what makes the weights.
        note: why there are none, or "".
    """

    folder: str
    model: str = "null"
    weights: str = ""
    commands: tuple[Command, ...] = ()
    note: str = ""

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """The model as options of a recipe."""
        return (("model.name", self.model), ("model.weights", self.weights))


def pre_trained(
    dataset: str,
    model: str,
    epochs: int | None = None,
    *,
    variant: str = "",
    options: tuple[tuple[str, str], ...] = (),
) -> Source:
    """A model of the paper, pre-trained.

    Args:
        dataset: "ImageNet", "ImageNet-21k" or "JFT-300M".
        model: as the paper names it, "ViT-L/16".
        epochs: int; None for the model's own.
        variant: name of what `options` change, for the folder.
        options: further options of the pre-training.

    Returns:
        A `Source`.
    """
    name = model.replace("/", "")
    application = name.replace("-", "_").replace("R50x1+ViT", "ViT_R50")
    if dataset == "ImageNet-21k":
        return Source(f"imagenet21k/{name}", application, "imagenet21k")
    if dataset == "ImageNet":
        folder, config, base = (
            f"imagenet/{name}",
            "table3_imagenet_vit",
            (
                ("model.name", application),
                ("model.representation_dim", WIDTHS[model[4]]),
            ),
        )
    elif model not in JFT:
        note = f"keras_vit has no application of the size of {model}"
        return Source(f"jft300m/{name}", note=note)
    else:
        epochs = epochs or EPOCHS.get(model, 7)
        folder = f"jft300m/{name}_{epochs}ep{variant and f'_{variant}'}"
        config, base = JFT[model]
        base = (*base, ("training.epochs", str(epochs)))
    run = f"{folder}/pretraining"
    command = Command(
        run,
        "pretrain",
        f"paper/{config}",
        (*base, *options),
        hardware="cluster",
    )
    return Source(folder, weights=f"@{run}", commands=(command,))
