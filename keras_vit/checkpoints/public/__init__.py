"""The public files: what there is, and how it gets onto this machine."""
