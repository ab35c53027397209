"""Files and folders as named tensors, read one by one."""
