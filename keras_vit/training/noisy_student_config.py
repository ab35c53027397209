"""Who teaches whom in a Noisy Student training, and what with."""

import dataclasses

from keras_vit.checks import check_choice, check_positive

__all__ = ["NoisyStudentConfig"]

LABELS = ("soft", "hard")


@dataclasses.dataclass(frozen=True)
class NoisyStudentConfig:
    """What recipes/noisy_student.py does; the other recipes do not read it.

    "Self-training with Noisy Student improves ImageNet classification"
    (arXiv:1911.04252).
    """

    networks: tuple[dict, ...] = (
        {},
        {"hidden_dim": 96, "mlp_dim": 192},
        {"hidden_dim": 128, "mlp_dim": 256},
    )
    """The first teacher, then the students, each of which teaches the next:
    the fields of `model` in which it differs, as {name: ViT_S16}; or an
    EfficientNet of B0 to B7, L2, V2B0 to V2B3, V2S, V2M, V2L, as {name:
    EfficientNetB0, image_size: 224, channels: 3, dropout_rate: 0.5}."""

    unlabelled: str | None = None
    """Images without labels: a folder with images anywhere below it, or a name
    as data.name has it, of which the training images are taken; null takes
    some of the training images themselves and forgets their labels."""

    held_back_fraction: float = 0.5
    """Share of the training images whose labels are forgotten, where there
    are no others without labels."""

    labels: str = "soft"
    """What the teacher says of an image: the probability of each class
    ("soft"), or the most probable one ("hard")."""

    min_confidence: float = 0.0
    """Images whose most probable class is less probable are left out; the
    paper has 0.3."""

    images_per_class: int | None = None
    """Images that each class gets: of more the most confident, of fewer the
    same ones again; null takes them as they are. The paper has 130000."""

    def __post_init__(self):
        check_choice("labels", self.labels, LABELS)
        check_positive(self, "images_per_class")
        if len(self.networks) < 2:
            raise ValueError(
                "There must be a teacher and a student at least. Received: "
                f"networks={self.networks!r}."
            )
        if not 0 < self.held_back_fraction < 1:
            raise ValueError(
                "held_back_fraction must be above 0 and below 1. Received: "
                f"held_back_fraction={self.held_back_fraction!r}."
            )
        if not 0 <= self.min_confidence < 1:
            raise ValueError(
                "min_confidence is a probability below 1. Received: "
                f"min_confidence={self.min_confidence!r}."
            )
