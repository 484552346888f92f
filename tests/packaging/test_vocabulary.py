"""House rules about names: a name says what it holds, and a class name has one meaning in the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.support.kubernetes import ROOT
from tests.support.syntax import parse

SOURCES = sorted((ROOT / "src" / "torchyard").rglob("*.py"))
FILLERS = frozenset(["asked", "found", "given", "kept", "made", "one", "said", "them", "there", "told", "what", "who"])
PUBLIC_TWINS = {"Job", "JobFailed"}  # of the training runtime and of the SDK, which are never used together


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def test_no_name_is_a_filler_word_and_no_class_name_has_two_meanings() -> None:
    fillers, modules = [], defaultdict(list)
    for path in SOURCES:
        tree = parse(path)
        fillers += [f"{path.relative_to(ROOT)}:{line}: {name}" for name, line in bound_names(tree) if name in FILLERS]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(str(path.relative_to(ROOT)))
    assert fillers == []
    assert {name: paths for name, paths in modules.items() if len(paths) > 1 and name not in PUBLIC_TWINS} == {}
