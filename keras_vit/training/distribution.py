"""Where a run computes; the one place that asks a backend by its name."""

import keras

__all__ = ["devices"]


def devices() -> list[str]:
    """Names the devices that the backend computes on.

    Returns:
        For example ["cpu:0"], or ["gpu:0", "gpu:1"].

    Example:
        >>> devices()
        ['cpu:0']
    """
    if keras.backend.backend() == "torch":
        return _torch_devices()
    return keras.distribution.list_devices()


def _torch_devices():
    # Keras 3.15 has no keras.distribution for torch.
    import torch

    if not torch.accelerator.is_available():
        return ["cpu:0"]
    kind = torch.accelerator.current_accelerator()
    return [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]
