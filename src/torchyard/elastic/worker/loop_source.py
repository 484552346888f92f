"""What a variable of a program's loop decides, from the source of the loop.

A variable that is carried from one step to the next is a log, unless something depends on it: whether the loop ends,
what changes the model, the optimizer or another object of the state, or which model is saved. The value itself or a
branch may depend on it, also through other variables. A variable here is a name, or an attribute of `self`.
"""

from __future__ import annotations

import ast
import dis
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from torchyard.elastic.worker.program_source import DEFINITIONS, scope_of

READ_ONLY_METHODS = frozenset(
    {
        *("state_dict", "parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules"),
        *("children", "named_children", "get_last_lr", "eval", "train", "get_scale", "items", "values", "keys"),
    }
)
"""What does not change an object of the state; `eval` without `train` is found in the model itself."""
READ_ONLY_WORDS = (
    *("eval", "valid", "test", "predict", "sample", "generat", "print", "log", "acc", "score", "metric", "infer"),
    *("show", "plot", "summ", "count", "norm", "watch", "graph", "hist", "visual", "report", "measure", "check"),
    *("debug", "profile", "loss", "isinstance", "len", "id", "repr", "str", "type", "next", "iter", "zip", "enumerate"),
    "deepcopy",
)
"""In the names of functions that get the model and are not assumed to change it."""
SAVING_WORDS = ("save", "dump", "checkpoint")
PARTS_METHODS = READ_ONLY_METHODS - {"get_last_lr", "eval", "train", "get_scale"}
"""What returns parts of an object of the state."""
Objects = Callable[[str], Any]
"""The value of a variable of the loop, by its name; None if it has none."""


class LoopSource:
    """The statements of a loop.

    Args:
        loop: the loop that the job drives; for a loop over batches in one over epochs, the outer one.
        state: whether a value is an object of the state, or leads to one.
        objects: the values of the variables.
        self_name: how the function calls its object; None if it is not a method.
        of_function: whether the statements are those of a function that the loop calls: its result is a decision too.
    """

    def __init__(
        self,
        loop: ast.For,
        *,
        state: Callable[[Any], bool],
        objects: Objects,
        self_name: str | None = None,
        of_function: bool = False,
    ) -> None:
        self.of_function = of_function
        self._loop = loop
        self._state = state
        self._objects = objects
        self._self = self_name
        self._carried: set[str] | None = None
        self._read: set[str] | None = None

    def key(self, path: str) -> str:
        """Return the variable to which a value with this path belongs, such as `self.losses` for `len(self.losses)`."""
        inner = path.removeprefix("len(").rstrip(")'")
        names = inner.replace("[", ".").split(".")
        return ".".join(names[:2]) if names[0] == self._self and len(names) > 1 else names[0]

    def carries(self, key: str) -> bool:
        """Return whether the body may read a value of the variable that an earlier pass has left."""
        if self._carried is None:
            reads: set[str] = set()
            assigned = set(self._targets(self._loop.target)) - set(self._counters())
            self._read_first(self._loop.body, assigned, reads)
            self._carried = reads
        return "." in key or key in self._carried

    def _counters(self) -> Iterator[str]:
        """Yield the variable with which `enumerate` counts the passes of this process."""
        counted = isinstance(self._loop.iter, ast.Call) and getattr(self._loop.iter.func, "id", None) == "enumerate"
        if counted and isinstance(self._loop.target, ast.Tuple):
            yield from self._targets(self._loop.target.elts[0])

    def reads(self, key: str) -> bool:
        """Return whether the body reads a variable at all."""
        if self._read is None:
            self._read = {name for statement in self._loop.body for name in self.keys_of(statement)}
        return key in self._read

    def assigns(self, key: str) -> bool:
        """Return whether the body assigns a variable."""
        return any(key in self._targets(statement) for statement in self._loop.body)

    def decision(self, key: str) -> str | None:
        """Return what depends on a variable, as the end of a sentence; None if nothing does."""
        tainted = {key}
        while True:
            search = _Search(self, tainted)
            search.block(self._loop.body, guarded=False, driven=True)
            if search.decision is not None or search.tainted == tainted:
                return search.decision
            tainted = search.tainted

    def keys_of(self, node: ast.AST) -> Iterator[str]:
        """Yield the variables that an expression reads. A method of `self` reads what its code does."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == self._self:
                method = self._method(inner.attr)
                yield from self._attributes(method, "LOAD_ATTR") if method else (f"{self._self}.{inner.attr}",)
            elif isinstance(inner, ast.Name) and inner.id != self._self:
                yield inner.id

    def stored_by(self, node: ast.AST) -> Iterator[str]:
        """Yield the variables that the methods of `self` that are called in an expression assign."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == self._self:
                method = self._method(inner.attr)
                if method:
                    yield from self._attributes(method, "STORE_ATTR")

    def _method(self, name: str) -> types.CodeType | None:
        owner = self._objects(self._self) if self._self else None
        code = getattr(getattr(type(owner), name, None), "__code__", None)
        return code if isinstance(code, types.CodeType) else None

    def _attributes(self, code: types.CodeType, operation: str) -> set[str]:
        names, seen, waiting = set(), {code}, [code]
        while waiting:
            for instruction in dis.get_instructions(waiting.pop()):
                if instruction.opname in (operation, "LOAD_METHOD", "LOAD_ATTR"):
                    inner = self._method(str(instruction.argval))
                    if inner is not None and inner not in seen:
                        seen.add(inner)
                        waiting.append(inner)
                if instruction.opname == operation:
                    names.add(f"{self._self}.{instruction.argval}")
        return names

    def is_state(self, node: ast.AST | None, aliases: set[str]) -> bool:
        """Return whether an expression is an object of the state, or a part of one."""
        path, base = [], node
        while isinstance(base, ast.Attribute | ast.Subscript | ast.Call):
            if isinstance(base, ast.Call) and getattr(base.func, "attr", None) not in PARTS_METHODS:
                return False  # what a model computes is not a part of it
            path.append(base.attr if isinstance(base, ast.Attribute) else "")
            base = base.func if isinstance(base, ast.Call) else base.value
        if not isinstance(base, ast.Name):
            return False
        if base.id in aliases:
            return True
        value = self._objects(base.id)
        for name in [None, *reversed(path)]:
            value = value if name is None else attribute(value, name) if name else None
            if value is None:
                return False
            if self._state(value):
                return True
        return False

    def _targets(self, node: ast.AST) -> Iterator[str]:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id

    def _read_first(self, body: list[ast.stmt], assigned: set[str], reads: set[str]) -> None:
        """Collect the names that a block reads before it has certainly assigned them; extend `assigned`."""
        for statement in body:
            if isinstance(statement, ast.If):
                self._reads(statement.test, assigned, reads)
                assigned |= self._assigned_by_branches((statement.body, statement.orelse), assigned, reads)
            elif isinstance(statement, ast.With):
                for item in statement.items:
                    self._reads(item.context_expr, assigned, reads)
                    assigned |= set(self._targets(item))
                self._read_first(statement.body, assigned, reads)
            elif isinstance(statement, ast.For | ast.While | ast.Try | ast.Match):
                # Its blocks may not run, so they assign nothing for certain.
                head = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]
                for expression in head:
                    self._reads(expression, assigned, reads)
                own = {name for expression in head for name in self._targets(expression)}
                for block in _blocks(statement):
                    self._read_first(block, assigned | own, reads)
            elif not isinstance(statement, DEFINITIONS):
                self._reads(statement, assigned, reads)
                assigned |= set(self._targets(statement))

    def _assigned_by_branches(
        self, branches: Iterable[list[ast.stmt]], assigned: set[str], reads: set[str]
    ) -> set[str]:
        """Return the names that have a value after any of the branches, except those that leave the block."""
        ends = []
        for branch in branches:
            own = set(assigned)
            self._read_first(branch, own, reads)
            if not branch or not isinstance(branch[-1], ast.Break | ast.Continue | ast.Return | ast.Raise):
                ends.append(own)
        return set.intersection(*ends) if ends else set()

    def _reads(self, node: ast.AST, assigned: set[str], reads: set[str]) -> None:
        inside = {
            name for part in ast.walk(node) if isinstance(part, ast.comprehension) for name in self._targets(part)
        }
        for inner in ast.walk(node):
            read = isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
            updated = isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Name)
            name = inner.id if read else inner.target.id if updated else None  # type: ignore[attr-defined]
            if name is not None and name not in assigned and name not in inside:
                reads.add(name)


class _Search:
    """One pass over the body of a loop: which variables depend on some, and the first decision that does.

    Attributes:
        tainted: the variables that depend on them.
        decision: the first one, as the end of a sentence; None if there is none yet.
    """

    def __init__(self, source: LoopSource, tainted: set[str]) -> None:
        self._source = source
        self._aliases: set[str] = set()
        self.tainted = set(tainted)
        self.decision: str | None = None

    def _depends(self, node: ast.AST | None) -> bool:
        return node is not None and any(key in self.tainted for key in self._source.keys_of(node))

    def block(self, body: list[ast.stmt], *, guarded: bool, driven: bool) -> None:
        """Search a block.

        Args:
            body: its statements.
            guarded: whether it runs or not depending on a variable.
            driven: whether `break` leaves the loop of the job.
        """
        for statement in body:
            self._statement(statement, guarded=guarded, driven=driven)
            if isinstance(statement, ast.If) and (guarded or self._depends(statement.test)):
                guarded |= any(isinstance(inner, ast.Continue) for inner in ast.walk(statement))

    def _statement(self, statement: ast.stmt, *, guarded: bool, driven: bool) -> None:
        if isinstance(statement, DEFINITIONS):
            return
        if isinstance(statement, ast.Return) and self._source.of_function:
            if statement.value is not None and (guarded or self._depends(statement.value)):
                self._find("what a function returns")
        elif guarded and (
            isinstance(statement, ast.Return | ast.Raise) or (driven and isinstance(statement, ast.Break))
        ):
            self._find("when the loop ends")
        condition: Any = getattr(statement, "test", None) or getattr(statement, "subject", None)
        inner_guarded = guarded or self._depends(condition)
        own = [node for node in ast.iter_child_nodes(statement) if not isinstance(node, ast.stmt | ast.excepthandler)]
        if isinstance(statement, ast.For):
            inner_guarded |= self._depends(statement.iter)
            if self._source.is_state(statement.iter, self._aliases):
                self._aliases |= set(self._source._targets(statement.target))
            driven = driven and self._is_driven(statement)
        elif isinstance(statement, ast.While):
            driven = False
        for node in own:
            self._expression(node, guarded=guarded)
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
            self._assignment(statement, guarded=guarded)
        for block in _blocks(statement):
            self.block(block, guarded=inner_guarded, driven=driven)

    def _is_driven(self, loop: ast.For) -> bool:
        """Return whether a loop within the one over epochs is that over their batches."""
        targets = set(self._source._targets(self._source._loop.target))
        return any(isinstance(node, ast.Name) and node.id in targets for node in ast.walk(loop.iter))

    def _assignment(self, statement: ast.Assign | ast.AugAssign | ast.AnnAssign, *, guarded: bool) -> None:
        depends = guarded or self._depends(statement.value)
        for target in statement.targets if isinstance(statement, ast.Assign) else (statement.target,):
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            for part in parts:
                if isinstance(part, ast.Attribute | ast.Subscript) and self._source.is_state(part.value, self._aliases):
                    if depends:
                        self._find(f"what changes {ast.unparse(part)}")
                elif depends:
                    # Of a container or an object, all of it depends on the value.
                    self.tainted |= set(self._source.keys_of(part))
                elif isinstance(part, ast.Name) and self._source.is_state(statement.value, self._aliases):
                    self._aliases.add(part.id)

    def _expression(self, node: ast.AST, *, guarded: bool) -> None:
        for call in [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]:
            conditional = guarded or any(
                self._depends(inner.test)
                for inner in ast.walk(node)
                if isinstance(inner, ast.IfExp) and call in ast.walk(inner)
            )
            self._call(call, guarded=conditional)

    def _call(self, call: ast.Call, *, guarded: bool) -> None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        depends = guarded or any(self._depends(argument) for argument in arguments)
        if depends or self._depends(call.func):
            self.tainted |= set(self._source.stored_by(call.func))
            if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
                value = self._source._objects(call.func.value.id)
                if isinstance(value, list | dict | set) or hasattr(value, "appendleft"):
                    self.tainted.add(call.func.value.id)
        if guarded and name in ("exit", "quit", "_exit"):
            self._find("when the loop ends")
        on_state = isinstance(call.func, ast.Attribute) and self._source.is_state(call.func.value, self._aliases)
        gets_state = any(self._source.is_state(argument, self._aliases) for argument in arguments)
        of_self = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", None) == self._source._self
        if any(word in name.lower() for word in SAVING_WORDS):
            holds = any(self._source.is_state(inner, self._aliases) for each in arguments for inner in ast.walk(each))
            if guarded and (holds or on_state or not arguments or (of_self and self._source._self is not None)):
                self._find(f"which model {ast.unparse(call.func)} saves")
        elif on_state and depends and name not in READ_ONLY_METHODS:
            self._find(f"when or how {ast.unparse(call.func)} is called")
        elif gets_state and depends and not any(word in name.lower() for word in READ_ONLY_WORDS):
            self._find(f"what {ast.unparse(call.func)} does")

    def _find(self, decision: str) -> None:
        if self.decision is None:
            self.decision = decision


def attribute(value: Any, name: str) -> Any:
    """Return an attribute without running code of the program; a module has its modules in a dict."""
    try:
        own = vars(value)
    except (TypeError, ReferenceError, RuntimeError):  # it has none, or is a proxy whose object is gone
        return None
    return own[name] if name in own else own.get("_modules", {}).get(name)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a compound statement."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(statement, field, None)
        if block and isinstance(block, list):
            yield block
    for inner in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield inner.body


def function_source(function: types.FunctionType, state: Callable[[Any], bool]) -> LoopSource | None:
    """Return the statements of a function that a loop calls; None if there is no source."""
    code = function.__code__
    scope = scope_of(code, function.__globals__)
    if not isinstance(scope, ast.FunctionDef):
        return None
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))

    def value_of(name: str) -> Any:
        with suppress(ValueError):  # not assigned yet
            return cells[name].cell_contents if name in cells else function.__globals__.get(name)
        return None

    once = ast.For(target=ast.Name("_", ast.Store()), iter=ast.Tuple([], ast.Load()), body=scope.body, orelse=[])
    return LoopSource(once, state=state, objects=value_of, of_function=True)
