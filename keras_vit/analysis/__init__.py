"""Analysis: what a model did, in pictures."""
