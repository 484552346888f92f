"""The packages that a script needs: inline metadata, a lock file, requirements.txt or pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from torchyard.api.errors import YardError

# As PEP 723 defines it.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def inline_requirements(script: str, name: str) -> list[str] | None:
    """The dependencies of a script's inline metadata (PEP 723); None if it has none."""
    blocks = [match for match in _BLOCK.finditer(script) if match["type"] == "script"]
    if len(blocks) > 1:
        raise YardError(
            f"{name} has {len(blocks)} blocks of metadata", hint="keep one `# /// script`", code="BadScript"
        )
    if not blocks:
        return None
    lines = blocks[0]["content"].splitlines(keepends=True)
    text = "".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
    return _strings(_toml(text, f"the metadata of {name}").get("dependencies"), f"dependencies of {name}")


def project_requirements(pyproject: str) -> list[str]:
    """The dependencies of pyproject.toml."""
    project = _toml(pyproject, "pyproject.toml").get("project") or {}
    return _strings(project.get("dependencies"), "project.dependencies of pyproject.toml")


def file_requirements(text: str) -> list[str]:
    """The lines of a requirements file, without comments."""
    lines = [re.sub(r"(^|\s)#.*$", "", line).strip() for line in text.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line]


def _toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise YardError(f"{name} is not valid TOML: {error}", code="BadScript") from None


def _strings(value: Any, name: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise YardError(f"{name} is not a list of strings", code="BadScript")
    return value
