"""Each part of the queue has one purpose: no class grows into a scheduler of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import torchyard.core.queue

_MAX_METHODS, _MAX_CONTAINERS = 15, 10
_CONTAINERS = ("dict", "list", "set", "deque", "defaultdict", "OrderedDict")


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for path in sorted(Path(torchyard.core.queue.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield f"{path.stem}.{node.name}", node


def _containers(node: ast.ClassDef) -> set[str]:
    """The attributes that are set to an empty or filled container."""
    found: set[str] = set()
    for part in ast.walk(node):
        targets = (
            part.targets if isinstance(part, ast.Assign) else [part.target] if isinstance(part, ast.AnnAssign) else []
        )
        value = getattr(part, "value", None)
        called = value.func if isinstance(value, ast.Call) else None
        is_container = isinstance(value, ast.Dict | ast.List | ast.Set) or getattr(called, "id", "") in _CONTAINERS
        found.update(target.attr for target in targets if is_container and isinstance(target, ast.Attribute))
    return found


def test_classes_of_the_queue_stay_small() -> None:
    classes = dict(_classes())
    assert classes
    sizes = {
        name: (sum(isinstance(part, ast.FunctionDef) for part in node.body), len(_containers(node)))
        for name, node in classes.items()
    }
    too_large = {name: size for name, size in sizes.items() if size[0] > _MAX_METHODS or size[1] > _MAX_CONTAINERS}
    assert not too_large, "(methods, mutable containers)"
