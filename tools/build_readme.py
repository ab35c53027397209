"""Gives the README of a build the addresses that the Python index needs.

The index shows the README without the files beside it: in the metadata of the
wheel and the sdist, links and pictures of the project are addresses in the
repository that `[project.urls]` names, at the tag of the version. The README
itself keeps its links. Hatchling calls `Addresses`, see pyproject.toml.
"""

import pathlib
import re

from hatchling.metadata.plugin.interface import MetadataHookInterface

# ![text](path), [text](path) and [text](path#part), not https:// or #part.
# A picture stands in the text of its link: [![text](path)](path).
LINK = re.compile(r"(!?)(\[(?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*\])\(([^)\s]+)\)")
ADDRESS = re.compile(r"[a-z]+:|#")


class Addresses(MetadataHookInterface):
    """Sets `readme`, which pyproject.toml says is dynamic."""

    def update(self, metadata: dict) -> None:
        text = pathlib.Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata["urls"]["Repository"]
        tag = f"v{metadata['version']}"
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_addresses(text, repository, tag),
        }


def with_addresses(text: str, repository: str, tag: str) -> str:
    """A Markdown text whose relative links are addresses.

    Args:
        text: the Markdown, its links relative to the root of the repository.
        repository: address of the repository on GitHub.
        tag: the version of the files that the addresses name.

    Example:
        >>> with_addresses("[a](docs/a.md)", "https://github.com/me/vit", "v1")
        '[a](https://github.com/me/vit/blob/v1/docs/a.md)'
    """
    raw = repository.replace("//github.com/", "//raw.githubusercontent.com/")
    places = {"": f"{repository}/blob/{tag}", "!": f"{raw}/{tag}"}

    def addressed(link):
        mark, shown, target = link.groups()
        shown = LINK.sub(addressed, shown) if not mark else shown
        if not ADDRESS.match(target):
            target = f"{places[mark]}/{target}"
        return f"{mark}{shown}({target})"

    return LINK.sub(addressed, text)
