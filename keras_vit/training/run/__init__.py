"""The run folder: its files, its owner, its store, and how a run resumes."""
