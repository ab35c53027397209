"""Noisy Student: a teacher labels images, a larger student learns from them."""
