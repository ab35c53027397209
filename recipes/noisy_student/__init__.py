"""Noisy Student: a teacher labels images, a larger student learns from them.

"Self-training with Noisy Student improves ImageNet classification"
(arXiv:1911.04252), algorithm 1.
"""

from noisy_student.iterations import check_networks, iterate

__all__ = ["check_networks", "iterate"]
