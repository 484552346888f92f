"""MkDocs hooks: the site also shows pages of the repository that are not in docs/.

README.md is the front page. The changelog, the contributing guide and the examples' README files are pages, too.
Links keep the form that works in the repository; the hooks translate them to the site's paths.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "LICENSE": "LICENSE",
    "bench/elastic/RESULTS.md": "bench/elastic.md",
    **{
        f"examples/{path.parent.name}/README.md": f"examples/{path.parent.name}.md"
        for path in ROOT.glob("examples/*/README.md")
    },
}
# Files that pages link to; the site serves them as they are.
ASSETS = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("examples/*/*.py", "examples/*/*.yaml", "examples/*/Dockerfile*")
    for path in ROOT.glob(pattern)
]
SOURCES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def on_config(config: Any) -> Any:
    """Add every design note to the last section of the navigation."""
    (pages,) = config["nav"][-1].values()
    pages += [f"design/{path.name}" for path in sorted((ROOT / "docs" / "design").glob("*.md"))]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that are outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for asset in ASSETS:
        files.append(File.generated(config, asset, content=(ROOT / asset).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Translate links from paths in the repository to paths in the site."""
    here = page.file.src_uri
    source = SOURCES.get(here, f"docs/{here}")
    return LINK.sub(lambda link: link[1] + _site_link(link[2], source, here) + link[3], markdown)


def _site_link(link: str, source: str, page: str) -> str:
    if re.match(r"[a-z]+:", link):
        return link
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if f"{target}/README.md" in PAGES:
        target = f"{target}/README.md"
    target = PAGES.get(target, target.removeprefix("docs/"))
    return posixpath.relpath(target, posixpath.dirname(page) or ".")
