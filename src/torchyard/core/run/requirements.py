"""The packages and the Python that a script needs: inline metadata, a lock file, requirements.txt or pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from typing import Any

from torchyard.api.errors import YardError

# As PEP 723 defines it.
_FIELDS = ("dependencies", "requires-python", "tool")
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def inline_requirements(script: str, name: str) -> list[str] | None:
    """The dependencies of a script's inline metadata (PEP 723); None if it has none."""
    metadata = _inline_metadata(script, name)
    return None if metadata is None else _strings(metadata.get("dependencies"), f"dependencies of {name}")


def inline_python(script: str, name: str) -> str:
    """The versions of Python that a script's inline metadata requires, such as `>=3.12`; empty if it says nothing."""
    return _specifier((_inline_metadata(script, name) or {}).get("requires-python"), f"requires-python of {name}")


def project_python(pyproject: str) -> str:
    """The versions of Python that pyproject.toml requires; empty if it says nothing."""
    project = _toml(pyproject, "pyproject.toml").get("project") or {}
    return _specifier(project.get("requires-python"), "project.requires-python of pyproject.toml")


def accepts_python(specifier: str, version: str) -> bool:
    """Whether a version of Python is one of those that are required."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifier).contains(version, prereleases=True)


def _specifier(value: Any, name: str) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if value is None:
        return ""
    try:
        if not isinstance(value, str):
            raise InvalidSpecifier
        return str(SpecifierSet(value))
    except InvalidSpecifier:
        raise YardError(
            f"{name} is {value!r}, which is not a version specifier", hint="write for example >=3.11", code="BadScript"
        ) from None


def _inline_metadata(script: str, name: str) -> dict[str, Any] | None:
    blocks = [match for match in _BLOCK.finditer(script) if match["type"] == "script"]
    if len(blocks) > 1:
        raise YardError(
            f"{name} has {len(blocks)} blocks of metadata", hint="keep one `# /// script`", code="BadScript"
        )
    if not blocks:
        return None
    lines = blocks[0]["content"].splitlines(keepends=True)
    text = "".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
    metadata = _toml(text, f"the metadata of {name}")
    for field in metadata:
        if field not in _FIELDS and (meant := get_close_matches(field, _FIELDS, n=1, cutoff=0.75)):
            raise YardError(
                f"the metadata of {name} has the unknown field {field}",
                hint=f"did you mean {meant[0]}?",
                code="BadScript",
            )
    return metadata


def is_package(pyproject: str) -> bool:
    """Whether pyproject.toml describes a package, and not only the settings of tools."""
    content = _toml(pyproject, "pyproject.toml")
    return "build-system" in content or "project" in content


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
