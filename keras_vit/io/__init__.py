"""Files, stores, tables, and checks of values; nothing of models."""
