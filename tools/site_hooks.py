"""What mkdocs changes while it makes the site: see mkdocs.yml.

README.md becomes the first page, and links to files outside of docs/ become
addresses in the repository, where REPOSITORY_URL names it.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
# The text of a link or picture, and its target: no address and no #part.
LINK = re.compile(r"(!?\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")
PAGES = re.compile(r"docs/(.+\.md(?:#.*)?|images/.+)")


def on_files(files, config):
    from mkdocs.structure import (  # pyright: ignore[reportMissingImports]
        files as mkdocs_files,
    )

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(
        mkdocs_files.File.generated(
            config, "index.md", content=as_index(readme)
        )
    )
    return files


def on_page_markdown(markdown, page, config, files):
    return with_addresses(markdown, config.repo_url)


def as_index(readme: str) -> str:
    """README.md as if it stood in docs/.

    Example:
        >>> as_index("[a](docs/a.md) [b](recipes)")
        '[a](a.md) [b](../recipes)'
    """

    def moved(link):
        page = PAGES.fullmatch(link[2])
        return f"{link[1]}({page[1] if page else '../' + link[2]})"

    return LINK.sub(moved, readme)


def with_addresses(markdown: str, repository: str | None) -> str:
    """A page whose links out of docs/ are addresses; their text without one.

    Example:
        >>> with_addresses("[b](../recipes)", "https://github.com/me/vit")
        '[b](https://github.com/me/vit/blob/main/recipes)'
    """

    def addressed(link):
        text, target = link.groups()
        if not target.startswith("../"):
            return link[0]
        if not repository:
            return text.strip("![]")
        kind = "raw" if text.startswith("!") else "blob"
        return f"{text}({repository.rstrip('/')}/{kind}/main/{target[3:]})"

    return LINK.sub(addressed, markdown)
