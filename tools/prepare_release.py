"""Gives README.md and pyproject.toml the address of the repository.

    python tools/prepare_release.py OWNER/NAME TAG

The Python index shows the README without the files beside it: links and
pictures of the project become addresses on GitHub, at the tag. What is changed
is for the build of a release and is not committed.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]
# ![text](path), [text](path) and [text](path#part), not https:// or #part.
LINK = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")
URLS = """
[project.urls]
Repository = "https://github.com/{repository}"
Documentation = "https://github.com/{repository}/tree/{tag}/docs"
Changelog = "https://github.com/{repository}/blob/{tag}/docs/changelog.md"
Issues = "https://github.com/{repository}/issues"
"""


def with_addresses(text: str, repository: str, tag: str) -> str:
    """A Markdown text whose relative links are addresses.

    Example:
        >>> with_addresses("[a](docs/a.md)", "me/vit", "v1")
        '[a](https://github.com/me/vit/blob/v1/docs/a.md)'
    """
    places = {
        "": f"https://github.com/{repository}/blob/{tag}",
        "!": f"https://raw.githubusercontent.com/{repository}/{tag}",
    }
    return LINK.sub(lambda x: f"{x[1]}{x[2]}({places[x[1]]}/{x[3]})", text)


def with_urls(project: str, repository: str, tag: str) -> str:
    """The text of pyproject.toml with the addresses of the project."""
    return project + URLS.format(repository=repository, tag=tag)


def main(repository: str, tag: str) -> None:
    for name, change in {
        "README.md": with_addresses,
        "pyproject.toml": with_urls,
    }.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        path.write_text(change(text, repository, tag), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
