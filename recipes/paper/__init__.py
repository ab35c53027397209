"""The tables and figures of the ViT paper, and the commands they take."""
