"""What the catalogue says of a file."""

import dataclasses

__all__ = ["HUB", "Entry", "Preprocessing"]

HUB = "https://huggingface.co"


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How the published accuracy of a file was measured.

    Attributes:
        resize: str, "squash" to image_size x image_size whatever the aspect
            ratio was, or "shorter_side" to image_size / crop_fraction and then
            the central crop.
        interpolation: str, "bilinear", "bicubic" or "area".
        antialias: bool, whether a smaller image is low-pass filtered.
        crop_fraction: float, of the resized image.
        value_range: (float, float), what [0, 255] becomes.
        mean: None, or the mean of each channel, 1 for white, that is
            subtracted instead.
        std: None, or the deviation of each channel that divides then.

    Example:
        >>> Preprocessing("squash", "bilinear").describe(384)
        'resize to 384x384 (bilinear), [0, 255] to [-1, 1]'
    """

    resize: str
    interpolation: str
    antialias: bool = False
    crop_fraction: float = 1.0
    value_range: tuple[float, float] = (-1.0, 1.0)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def describe(self, image_size: int | None) -> str:
        """One line for a person; image_size is None where any will do."""
        how = self.interpolation + (", antialiased" if self.antialias else "")
        low, high = self.value_range
        scaling = f"[0, 255] to [{low:g}, {high:g}]"
        if self.mean and self.std:
            mean, std = (
                ", ".join(f"{x:.3f}" for x in values)
                for values in (self.mean, self.std)
            )
            scaling = f"mean ({mean}), deviation ({std})"
        if image_size is None:
            return f"any size ({how}), {scaling}"
        if self.resize == "squash":
            return f"resize to {image_size}x{image_size} ({how}), {scaling}"
        shorter = int(image_size / self.crop_fraction)
        crop = f"central {image_size}x{image_size}"
        return f"shorter side to {shorter} ({how}), {crop}, {scaling}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One public file, or one repository with a config and its tensors.

    Attributes:
        model: str, the application, such as "ViT_B16".
        name: str, what `weights=` takes.
        url: str, https address of the file, or of the repository's page.
        classes: int, of the classification layer in the file, 0 for none.
        labels: str, order of the classes: "imagenet", "imagenet21k", or None.
        image_size: int, pixels, or None where there is no one size (BiT).
        preprocessing: Preprocessing of the published accuracy.
        top1: float, published accuracy on ImageNet in per cent, or None.
        top1_source: str, who published it.
        licence: str, SPDX.
        num_bytes: int, exact size, or None.
        mebibytes: float, size as printed by the publisher, or None.
        sha256: str, 64 hexadecimal digits, or None.
        head_is_zero: bool, the classification layer was set to zero before
            publication, so that its logits tell nothing.
        same_weights_as: str, name of the original file of these weights.
        architecture: str, timm's name of the model, or None.
        address_verified: bool, False where the address follows a documented
            rule but nobody was seen to load it.
        aliases: tuple of str, other names.

    Example:
        >>> catalog.find("ViT_B16", "imagenet").top1
        85.49
    """

    model: str
    name: str
    url: str
    classes: int
    labels: str | None
    image_size: int | None
    preprocessing: Preprocessing
    top1: float | None = None
    top1_source: str | None = None
    licence: str = "Apache-2.0"
    num_bytes: int | None = None
    mebibytes: float | None = None
    sha256: str | None = None
    head_is_zero: bool = False
    same_weights_as: str | None = None
    architecture: str | None = None
    address_verified: bool = True
    aliases: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name that tells the model too, such as "ViT_B16/imagenet21k"."""
        return self.name if "/" in self.name else f"{self.model}/{self.name}"

    @property
    def is_repository(self) -> bool:
        """Whether `url` is a repository on huggingface.co."""
        return self.url.startswith(HUB)

    @property
    def file_name(self) -> str:
        """Name in the cache: unlike the files' own, no two are the same."""
        return f"{self.model}_{self.name.replace('/', '_')}.npz"

    @property
    def approximate_mebibytes(self) -> float | None:
        """Size in MiB, from `num_bytes` where it is known."""
        if self.num_bytes is None:
            return self.mebibytes
        return self.num_bytes / 2**20
