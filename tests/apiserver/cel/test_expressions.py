"""CEL beyond what the comparison with a real server covers: what it would call too costly, and what would hang it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.errors import CompileError, CostLimitExceeded, EvaluationError
from torchyard.apiserver.cel.library import kubernetes_library
from torchyard.apiserver.cel.program import compile_expression
from torchyard.apiserver.cel.types import BOOL, DYN, INT, STRING, CelType, list_of, map_of
from torchyard.apiserver.cel.values import NONE, MapList, Optional, SetList, Uint, equal


def run(source: str, *, steps: int = 1_000_000, types: dict[str, CelType] | None = None, **variables: Any) -> Any:
    kinds = dict.fromkeys(variables, DYN) | (types or {})
    return compile_expression(source, kinds, kubernetes_library()).evaluate(variables, CostBudget(steps))


@pytest.mark.parametrize(
    "truth",
    [
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && [].join('-') == ''",
        "'a-b-c'.split('-') == ['a', 'b', 'c'] && 'a-b-c'.split('-', 2) == ['a', 'b-c'] && 'a'.split('-', 0) == []",
        "'abc'.split('') == ['a', 'b', 'c'] && 'abc'.split('', 2) == ['a', 'bc'] && 'abc'.split('x') == ['abc']",
        "[1, 2, 2].isSorted() && !['b', 'a'].isSorted() && [].isSorted()",
        "[1, 2].sum() == 3 && [1.5, 2.0].sum() == 3.5 && [duration('1h'), duration('1m')].sum() == duration('61m')",
        "[2, 1].min() == 1 && [2, 1].max() == 2 && ['b', 'a'].max() == 'b'",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
        "optional.of(1).hasValue() && !optional.none().hasValue() && optional.of(1).value() == 1",
        "optional.of(1).or(optional.of(2)).value() == 1 && optional.none().orValue(3) == 3",
        "optional.ofNonZeroValue('') == optional.none() && optional.ofNonZeroValue([]) == optional.none()",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && [].first() == optional.none()",
        "optional.of({'a': 1})[?'a'].value() == 1 && optional.of([1])[0].value() == 1",
        "dyn({'a': {'b': 1}}).?a.?c.orValue(5) == 5 && has(dyn({'a': 1}).a)",
        "dyn('abc').indexOf('c') == 2 && dyn([1, 2]).indexOf(2) == 1",
    ],
)
def test_expressions_are_true(truth: str) -> None:
    assert run(truth) is True


def test_a_variable_can_have_a_declared_type() -> None:
    types = {"self": map_of(STRING, list_of(INT))}
    assert run("self.a.sum() > 2 && 'b' in self", types=types, self={"a": [1, 2], "b": []}) is True
    with pytest.raises(CompileError, match="applied to 'list\\(int\\)\\.\\(string\\)'"):
        run("self.a.indexOf('x')", types=types, self={})


def test_a_program_has_its_type_and_the_variables_it_uses() -> None:
    program = compile_expression("x.all(y, y > 0)", {"x": DYN, "y": INT, "z": INT}, kubernetes_library())
    assert program.type == BOOL
    assert program.uses == {"x"}


def test_a_comprehension_variable_shadows_an_outer_one() -> None:
    assert run("[1, 2].map(x, x + 1) == [2, 3] && x == 'outer'", x="outer") is True


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (1, Uint(1), True),
        (True, 1, False),
        (None, None, True),
        (None, 0, False),
        ("1", 1, False),
        ([1, [2.0]], [1.0, [2]], True),
        ({"a": True}, {"a": 1}, False),
        (SetList(["a", "b"]), ["b", "a"], True),
        (SetList(["a", "b"]), ["b", "c"], False),
        (MapList([{"k": 1, "v": 1}, {"k": 2}], ("k",)), [{"k": 2}, {"k": 1, "v": 1}], True),
        (MapList([{"k": 1, "v": 1}], ("k",)), [{"k": 1, "v": 2}], False),
        (Optional(1), Optional(1.0), True),
        (Optional(None), NONE, False),
    ],
)
def test_only_numbers_are_equal_across_types(left: object, right: object, same: bool) -> None:
    assert equal(left, right) is same
    assert equal(right, left) is same


@pytest.mark.parametrize(
    ("source", "offset", "message"),
    [
        ("", 0, "Syntax error: mismatched input '<EOF>' expecting"),
        ("1 +", 3, "Syntax error: mismatched input '<EOF>' expecting"),
        ("(1", 2, "Syntax error: missing ')' at '<EOF>'"),
        ("[1, 2", 5, "Syntax error: missing ']' at '<EOF>'"),
        ("a 1", 2, "Syntax error: mismatched input '1' expecting <EOF>"),
        ("'abc", 0, "Syntax error: token recognition error at: ''abc'"),
        ("a # b", 2, "Syntax error: token recognition error at: '#'"),
        ("9223372036854775808", 0, "Syntax error: invalid int literal"),
        ("'\\q'", 0, "Syntax error: invalid escape sequence"),
        ("a.1", 1, "Syntax error: mismatched input '.1' expecting <EOF>"),
        ("package == 1", 0, "reserved identifier: package"),
        ("Foo{a: 1}", 0, "undeclared reference to 'Foo'"),
        ("(" * 300 + "1" + ")" * 300, None, "expression recursion limit exceeded: 250"),
        ("a" * 100_001, 0, "expression code point size exceeds limit"),
    ],
)
def test_compile_errors_point_at_the_source(source: str, offset: int | None, message: str) -> None:
    with pytest.raises(CompileError) as excinfo:
        compile_expression(source, {"a": DYN}, kubernetes_library())
    (issue,) = excinfo.value.issues
    assert issue.message.startswith(message)
    assert offset is None or issue.offset == offset


def test_a_compile_error_shows_its_line() -> None:
    with pytest.raises(CompileError) as excinfo:
        compile_expression("1 == 1 &&\n  foo == 2", {}, kubernetes_library())
    message = "ERROR: <input>:2:3: undeclared reference to 'foo' (in container '')\n |   foo == 2\n | ..^"
    assert excinfo.value.message == message


MANY = list(range(2000))
LONG = "a" * 1_000_000


@pytest.mark.parametrize(
    "source",
    [
        "l.all(x, l.all(y, l.all(z, x + y + z >= 0)))",
        "l.map(x, l.map(y, l)).size() > 0",
        "l.all(x, l == l)",
        "l.all(x, s.contains('b') || true)",
        "l.all(x, s == t)",
        "l.all(x, s <= t)",
        "s.replace('a', s).size() > 0",
        "l.map(x, s).join('').size() > 0",
        "l.all(x, s.matches('b*c') || true)",
        "l.all(x, s.split('').size() > 0)",
        "l.all(x, s.lowerAscii() != '')",
        "l.all(x, sets.contains(l, l))",
        "l.all(x, x in l && l.indexOf(x) >= 0 && l.max() > 0 && l.isSorted())",
        "l.all(x, '%s'.format([s]) != '')",
        "l.all(x, (s + t) != '')",
        "l.all(x, s.substring(1) != '')",
        "l.map(x, {'a': l}).all(y, y == {'a': l})",
    ],
)
def test_an_expensive_expression_exceeds_the_cost_limit(source: str) -> None:
    # without a budget these would take minutes, or gigabytes
    with pytest.raises(CostLimitExceeded):
        run(source, steps=200_000, l=MANY, s=LONG, t="".join(["a"] * 1_000_000))


def test_a_deeply_nested_value_does_not_crash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises((EvaluationError, CostLimitExceeded)):
        run("x == y", x=deep, y=deep)


@given(st.text(alphabet="abx.?()[]{}'\"\\0123456789+-*/%<>=!&|,: \n_e", max_size=40))
@settings(max_examples=400, deadline=None)
def test_any_text_compiles_or_raises_a_compile_error(source: str) -> None:
    with contextlib.suppress(CompileError, EvaluationError, CostLimitExceeded):
        run(source, steps=10_000, a=1, b=[1], x={"a": "b"})


@given(
    st.recursive(
        st.sampled_from(["a", "1", "2.5", "'x'", "true", "null", "[1]", "{'k': 1}", "b'z'", "3u"]),
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "<", "==", "in", "&&"]), inner),
            st.builds("({} ? {} : {})".format, inner, inner, inner),
            st.builds("{}.map(v, {})".format, inner, inner),
            st.builds("{}.all(v, {})".format, inner, inner),
            st.builds("{}[{}]".format, inner, inner),
            st.builds("size({})".format, inner),
            st.builds("string({})".format, inner),
            st.builds("dyn({})".format, inner),
            st.builds("{}.k".format, inner),
        ),
        max_leaves=8,
    )
)
@example("(null + null)")
@example("(null - null)")
@example("(null < null)")
@example("duration('1s') + null")
@settings(max_examples=400, deadline=None)
def test_any_expression_evaluates_or_raises_an_error(source: str) -> None:
    with contextlib.suppress(CompileError, EvaluationError, CostLimitExceeded):
        run(source, steps=100_000, a=5, v="outer")


@pytest.mark.parametrize(
    "source",
    [
        "timestamp('2020-01-01T00:00:00Z').getHours('99:00')",
        "timestamp('2020-01-01T00:00:00Z').getHours('+23:99')",
        "timestamp('9999-12-31T23:59:59Z').getHours('+10:00')",
        "timestamp('0001-01-01T00:00:00Z').getHours('-10:00')",
        "timestamp('9999-12-31T23:59:59Z').getHours('Asia/Tokyo')",
        "dyn([1])[double('NaN')]",
        "dyn([1])[double('-Infinity')]",
    ],
)
def test_values_beyond_those_of_python_fail_as_an_expression_does(source: str) -> None:
    with pytest.raises(EvaluationError):
        run(source)


def test_a_quantity_beyond_a_double_is_infinite() -> None:
    assert run("quantity('1e400').asApproximateFloat() == double('Infinity')") is True
