"""What mkdocs needs besides docs/: pages from the top of the repository, and links that leave docs/.

README.md is the first page of the site. A link to a file that is no page (source, results, examples) becomes plain
text, because the site works offline, without the repository.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def relinked(text: str, page: str, place: str) -> str:
    """Return Markdown whose links fit the site; `page` is its path in the repository, `place` its page in docs/."""

    def change(link: re.Match[str]) -> str:
        bang, label, target, anchor = link.groups(default="")
        found = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if found in PAGES:
            found = PAGES[found]
        elif found.startswith("docs/"):
            found = found.removeprefix("docs/")
        else:
            return label
        return f"{bang}[{label}]({posixpath.relpath(found, posixpath.dirname(place) or '.')}{anchor})"

    return LINK.sub(change, text)


def on_config(config: Any) -> Any:
    """List the pages of the algorithms, so that a new one needs no line in mkdocs.yml."""
    pages = sorted((REPOSITORY / "docs" / "algorithms").glob("*.md"), key=lambda path: (path.name != "README.md", path))
    reference = next(part["Reference"] for part in config.nav if "Reference" in part)
    next(part for part in reference if "Algorithms" in part)["Algorithms"] = [
        f"algorithms/{path.name}" for path in pages
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from the top of the repository."""
    for page, place in PAGES.items():
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=relinked(text, page, place)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links of the pages in docs/ that leave it."""
    place = page.file.src_uri
    return markdown if place in PAGES.values() else relinked(markdown, f"docs/{place}", place)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that would load something from a network."""
    if found := re.search(
        r"<(?:script|img|iframe)[^>]* src=[\"']?https?:[^>]*>|<link[^>]*stylesheet[^>]*https?:[^>]*>", output
    ):
        raise PluginError(f"{page.file.src_uri}: must not load anything from a network (got {found[0]})")
    return output
