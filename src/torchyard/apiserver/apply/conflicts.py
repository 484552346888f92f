"""The error for an apply that would change fields of other managers."""

from __future__ import annotations

from typing import NamedTuple

from torchyard.api.errors import StatusError
from torchyard.api.go_format import format_q
from torchyard.apiserver.apply.fieldset import FieldPath, FieldSet, members
from torchyard.apiserver.apply.managers import UPDATE, Manager
from torchyard.apiserver.apply.path_elements import format_path, step_order


class Conflict(NamedTuple):
    manager: Manager
    path: FieldPath


def list_conflicts(taken: dict[Manager, FieldSet]) -> list[Conflict]:
    return [
        Conflict(manager, path)
        for manager in sorted(taken, key=lambda manager: manager.sort_key)
        for path in members(taken[manager], step_order)
    ]


def conflict_error(conflicts: list[Conflict]) -> StatusError:
    """409 with one cause for each field; the messages are upstream's."""
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_format_manager(manager)}",
            "field": format_path(path),
        }
        for manager, path in conflicts
    ]
    return StatusError(409, "Conflict", _message(conflicts), details={"causes": causes})


def _message(conflicts: list[Conflict]) -> str:
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {_format_manager(manager)}: {format_path(path)}"
    lines: list[str] = []
    for index, (manager, path) in enumerate(conflicts):
        if index == 0 or conflicts[index - 1].manager != manager:
            lines.append(f"conflicts with {_format_manager(manager)}:")
        lines.append(f"- {format_path(path)}")
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _format_manager(manager: Manager) -> str:
    text = format_q(manager.name)
    if manager.subresource:
        text += f" with subresource {format_q(manager.subresource)}"
    if manager.operation == UPDATE:
        text += f" using {manager.api_version}"
    return text
