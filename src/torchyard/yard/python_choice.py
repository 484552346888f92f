"""The interpreter of well-known images: the last `yard up --python` chose it, until another one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.api.errors import YardError
from torchyard.yard.settings import PlaneSettings

if TYPE_CHECKING:
    from torchyard.node.images.python import Python

# The value of --python that goes back to the active environment.
AUTO = "auto"


def chosen(settings: PlaneSettings) -> str:
    """The path of the interpreter; empty for the active environment."""
    if settings.python:
        return "" if settings.python == AUTO else settings.python
    file = settings.python_choice
    return file.read_text().strip() if file.exists() else ""


def find_chosen(settings: PlaneSettings) -> Python:
    """The interpreter of well-known images. An earlier choice that no longer works is an error, not another one."""
    from torchyard.node.images import python  # a plane serves before it loads its node

    path = chosen(settings)
    try:
        return python.find(path)
    except YardError as error:
        if settings.python or not path:
            raise
        raise YardError(
            f"{error.message}; an earlier `yard up --python` chose it",
            hint=f"choose another with `yard up --python PATH`, or the active environment with `--python {AUTO}`",
            code=error.code,
        ) from error


def remember(settings: PlaneSettings) -> None:
    """Keep the choice of this start for later ones and for `yard image`. Its path is absolute then."""
    from torchyard.node.images import python

    if settings.python == AUTO:
        settings.python_choice.unlink(missing_ok=True)
    elif settings.python:
        settings.python_choice.write_text(f"{python.find(settings.python).executable}\n")
