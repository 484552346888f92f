"""The packages that a script names."""

from __future__ import annotations

import pytest

from torchyard.api.errors import YardError
from torchyard.core.run.requirements import file_requirements, inline_requirements, project_requirements

SCRIPT = """#!/usr/bin/env python
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "requests<3",
#
#   "rich",
# ]
# ///
import requests
"""


def test_inline_metadata_is_read() -> None:
    assert inline_requirements(SCRIPT, "a.py") == ["requests<3", "rich"]
    assert inline_requirements("# /// script\n# ///\nprint()\n", "a.py") is None
    assert inline_requirements("# /// script\n#\n# ///\nprint()\n", "a.py") == []
    assert inline_requirements("import os\n", "a.py") is None
    with pytest.raises(YardError, match="2 blocks of metadata"):
        inline_requirements(SCRIPT + SCRIPT, "a.py")
    with pytest.raises(YardError, match="not valid TOML"):
        inline_requirements("# /// script\n# dependencies = [\n# ///\n", "a.py")
    with pytest.raises(YardError, match="not a list of strings"):
        inline_requirements("# /// script\n# dependencies = 1\n# ///\n", "a.py")


def test_requirements_files_and_projects_are_read() -> None:
    assert file_requirements("# all\na==1 # one\n\n-r other.txt\nb \\\n  ; python_version > '3'\n") == [
        "a==1",
        "-r other.txt",
        "b    ; python_version > '3'",
    ]
    assert project_requirements('[project]\ndependencies = ["a", "b>1"]\n') == ["a", "b>1"]
    assert project_requirements("[tool.x]\n") == []
