"""Image competitions: their lists of labels, and submissions to them."""
