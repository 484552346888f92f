"""The packages that a script names."""

from __future__ import annotations

import pytest

from torchyard.api.errors import YardError
from torchyard.core.run.requirements import (
    accepts_python,
    file_requirements,
    inline_python,
    inline_requirements,
    project_python,
    project_requirements,
)

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


def test_the_version_of_python_is_that_of_the_script_or_its_project() -> None:
    script = "# /// script\n# requires-python = '>=3.12'\n# ///\n"
    assert inline_python(script, "a.py") == ">=3.12"
    assert inline_python(SCRIPT, "a.py") == ">=3.11"
    assert inline_python("import os\n", "a.py") == ""
    assert project_python("[project]\nrequires-python = '>=3.9,<3.12'\n") == "<3.12,>=3.9"
    assert accepts_python(">=3.9,<3.12", "3.11.7") and not accepts_python(">=3.12", "3.11.7")
    for value in ("'3.x'", "3", "['>=3']"):
        with pytest.raises(YardError, match=r"requires-python of a\.py is .* not a version specifier"):
            inline_python(script.replace("'>=3.12'", value), "a.py")
