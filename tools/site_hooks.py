"""What mkdocs changes while it makes the site: see mkdocs.yml.

README.md and CONTRIBUTING.md become pages. Links to files outside of docs/
become addresses in the repository that pyproject.toml names, and pictures
outside of docs/ become files of the site.
"""

import pathlib
import posixpath
import re
import tomllib

ROOT = pathlib.Path(__file__).parents[1]
# The text of a link or picture, and its target: no address and no #part.
LINK = re.compile(r"(!?\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
PICTURES = "benchmarks/results"
# Where a notebook of the repository opens: the name of the place, its badge,
# and what stands before the address of the notebook.
PLACES = (
    (
        "Colab",
        "https://colab.research.google.com/assets/colab-badge.svg",
        "https://colab.research.google.com/github/",
    ),
    (
        "Kaggle",
        "https://kaggle.com/static/images/open-in-kaggle.svg",
        "https://kaggle.com/kernels/welcome?src=https://github.com/",
    ),
)
# Of a page of docs/tutorials.
NOTEBOOK = re.compile(
    r"\[Run it as a notebook\]\(\.\./(notebooks/\w+\.ipynb)\)"
)
# Pages that need the width for two blocks of code.
BESIDE = "from-"
# Of the home page, beside which there is nothing to navigate.
HOME = "---\nhide: [navigation]\n---\n"


def on_config(config):
    urls = project_urls()
    config.repo_url = urls["Repository"]
    config.site_url = urls["Documentation"]
    return config


def project_urls() -> dict[str, str]:
    """The addresses of the project, by their names."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]["urls"]


def on_files(files, config):
    from mkdocs.structure.files import (  # pyright: ignore[reportMissingImports]
        File,
    )

    for name, page in PAGES.items():
        text = as_page((ROOT / name).read_text(encoding="utf-8"))
        text = HOME + text if page == "index.md" else text
        files.append(File.generated(config, page, content=text))
    for path in sorted((ROOT / PICTURES).glob("*.png")):
        name = f"{PICTURES}/{path.name}"
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri.startswith(BESIDE):
        page.meta["hide"] = ["toc"]
    markdown = NOTEBOOK.sub(
        lambda found: f"{found[0]} {links_to(f'docs/{found[1]}')}", markdown
    )
    return with_addresses(markdown, page.file.src_uri, config.repo_url)


def on_post_page(output, page, config):
    # By this the script of mkdocs-material finds where to show the stars that
    # it asks GitHub for.
    return output.replace(' data-md-component="source"', "")


def opened_in(path: str) -> list[tuple[str, str, str]]:
    """Where a notebook opens by one click.

    Args:
        path: the notebook, from the root of the project.

    Returns:
        For each place its name, the address of its badge, and the address that
        opens the notebook there.
    """
    repository = project_urls()["Repository"].split("/", 3)[3]
    address = f"{repository}/blob/main/{path}"
    return [(name, badge, f"{start}{address}") for name, badge, start in PLACES]


def links_to(path: str) -> str:
    """Links that open a notebook, without pictures from other servers."""
    links = [f"[open it in {x}]({there})" for x, _, there in opened_in(path)]
    return "".join(f"· {link} " for link in links).rstrip()


def as_page(text: str) -> str:
    """A file of the project's folder as if it stood in docs/.

    Example:
        >>> as_page("[a](docs/a.md) [b](recipes) [c](CONTRIBUTING.md)")
        '[a](a.md) [b](../recipes) [c](contributing.md)'
    """

    def moved(link):
        inside = link[2].removeprefix("docs/")
        outside = inside == link[2]
        target = PAGES.get(inside, f"../{inside}" if outside else inside)
        return f"{link[1]}({target})"

    return LINK.sub(moved, text)


def with_addresses(text: str, page: str, repository: str | None) -> str:
    """A page whose links out of docs/ are addresses; their text without one.

    Args:
        text: the Markdown of the page.
        page: its path below docs/.
        repository: address of the repository, None where there is none.

    Example:
        >>> with_addresses("[b](../recipes)", "a.md", "https://github.com/me/vit")
        '[b](https://github.com/me/vit/blob/main/recipes)'
    """

    def addressed(link):
        shown, target = link.groups()
        below_docs = posixpath.join(posixpath.dirname(page), target)
        outside = posixpath.normpath(below_docs)
        if not outside.startswith("../"):
            return link[0]
        name = outside.removeprefix("../")
        if shown.startswith("!") and posixpath.dirname(name) == PICTURES:
            here = posixpath.dirname(page) or "."
            return f"{shown}({posixpath.relpath(name, here)})"
        if not repository:
            return shown.strip("![]")
        return f"{shown}({repository.rstrip('/')}/blob/main/{name})"

    return LINK.sub(addressed, text)
