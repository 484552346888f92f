"""The documentation as a whole: its links, its generated page, and the site that `make docs` builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"
LINK = re.compile(r"\]\(([^)#\s]+)")


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if not re.match(r"[a-z]+:", link)]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_path_on_the_architecture_page_exists() -> None:
    """Paths are below src/torchyard; those of the request and of the pod are below apiserver and node."""
    source = ROOT / "src" / "torchyard"
    paths = re.findall(r"`([\w.]+/[\w/.]*)`", (ROOT / "docs" / "architecture.md").read_text())
    roots = (ROOT, source, source / "apiserver", source / "node")
    assert len(paths) > 50
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []


def test_the_cli_reference_is_current(tmp_path: Path) -> None:
    generated = tmp_path / "cli.md"
    command = [sys.executable, str(ROOT / "tools" / "generate_cli_reference.py"), str(generated)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True, timeout=120)
    assert generated.read_text() == (ROOT / "docs" / "reference" / "cli.md").read_text(), "run `make reference`"


def test_every_mentioned_command_exists() -> None:
    """A page that names a `yard` command names one of the reference."""
    headings = re.findall(r"^#+ yard (.+)$", (ROOT / "docs" / "reference" / "cli.md").read_text(), re.MULTILINE)
    groups = {heading.split()[0] for heading in headings if " " in heading}
    unknown = set()
    for page in PAGES:
        for command, subcommand in re.findall(r"\byard ([a-z]+(?:-[a-z]+)*)(?: ([a-z]+)\b)?", _code(page.read_text())):
            name = f"{command} {subcommand}" if command in groups and subcommand else command
            if name not in headings:
                unknown.add((page.name, name))
    assert unknown == set()


def _code(text: str) -> str:
    """Return the inline code and the code blocks of a page."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))])


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    if not MKDOCS.exists():
        pytest.skip("mkdocs is not installed: `make docs` installs it")
    command = [str(MKDOCS), "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    pages = "".join(page.read_text() for page in (tmp_path / "site").rglob("*.html"))
    resources = re.findall(r'<(?:script|img|iframe)[^>]*src="(https?:[^"]+)"', pages)
    stylesheets = re.findall(r'<link[^>]*rel="?(?:stylesheet|preconnect)[^>]*href="(https?:[^"]+)"', pages)
    assert resources + stylesheets == []
