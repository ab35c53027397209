"""Lets griffe, which reads the docstrings for the site, know "Example:"."""

import griffe  # pyright: ignore[reportMissingImports]


class Examples(griffe.Extension):
    """Its own name for the section is "Examples:"."""

    def on_instance(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring:
            text = obj.docstring.value
            obj.docstring.value = text.replace("Example:\n", "Examples:\n")
