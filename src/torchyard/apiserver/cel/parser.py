"""The parser: from an expression's text to its tree."""

from __future__ import annotations

from torchyard.apiserver.cel.ast import CallExpr, Expr, IdentExpr, ListExpr, LiteralExpr, MapExpr, SelectExpr
from torchyard.apiserver.cel.errors import CompileError, Issue
from torchyard.apiserver.cel.lexer import CelToken, tokens
from torchyard.apiserver.cel.macros import MacroError, expand
from torchyard.apiserver.cel.values import INT_RANGE, UINT_RANGE, Uint

# cel-go's limits on nesting and length.
MAX_DEPTH = 250
MAX_SIZE = 100_000
_TOO_DEEP = f"expression recursion limit exceeded: {MAX_DEPTH}"

_RELATIONS = {"<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "==": "_==_", "!=": "_!=_", "in": "@in"}
_ADDITIONS = {"+": "_+_", "-": "_-_"}
_PRODUCTS = {"*": "_*_", "/": "_/_", "%": "_%_"}
RESERVED = frozenset(
    ("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package")
) | frozenset(("namespace", "return", "var", "void", "while", "in", "true", "false", "null"))
_EXPECTED = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)


def parse(source: str) -> Expr:
    """The expression tree, with macros expanded. Raises CompileError."""
    if len(source) > MAX_SIZE:
        message = f"expression code point size exceeds limit: size: {len(source)}, limit {MAX_SIZE}"
        raise CompileError(source, [Issue(0, message)])
    parser = _CelParser(source)
    try:
        node = parser.expression()
    except RecursionError:
        raise CompileError(source, [Issue(0, _TOO_DEEP)]) from None
    parser.expect_end()
    return node


class _CelParser:
    """A recursive descent parser, with one method per precedence level."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._tokens = tokens(source)
        self._position = 0
        self._depth = 0

    @property
    def token(self) -> CelToken:
        return self._tokens[self._position]

    def _next(self) -> CelToken:
        token = self.token
        self._position += 1
        return token

    def _accept(self, kind: str) -> bool:
        if self.token.kind == kind:
            self._position += 1
            return True
        return False

    def _syntax_error(self, message: str, offset: int | None = None) -> CompileError:
        return CompileError(self.source, [Issue(self.token.offset if offset is None else offset, message)])

    def _expect(self, kind: str) -> None:
        if not self._accept(kind):
            token = self.token
            if token.kind == "end":
                raise self._syntax_error(f"Syntax error: missing '{kind}' at '{token.text}'")
            raise self._syntax_error(f"Syntax error: mismatched input '{token.text}' expecting '{kind}'")

    def expect_end(self) -> None:
        if self.token.kind != "end":
            raise self._syntax_error(f"Syntax error: mismatched input '{self.token.text}' expecting <EOF>")

    def expression(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._syntax_error(_TOO_DEEP)
        node = self._or()
        if self.token.kind == "?":
            offset = self._next().offset
            then = self._or()
            self._expect(":")
            node = CallExpr(offset, "_?_:_", [node, then, self.expression()])
        self._depth -= 1
        return node

    def _or(self) -> Expr:
        node = self._and()
        while self.token.kind == "||":
            node = CallExpr(self._next().offset, "_||_", [node, self._and()])
        return node

    def _and(self) -> Expr:
        node = self._relation()
        while self.token.kind == "&&":
            node = CallExpr(self._next().offset, "_&&_", [node, self._relation()])
        return node

    def _relation(self) -> Expr:
        node = self._addition()
        while (function := _RELATIONS.get(self.token.text)) and self.token.kind in (*_RELATIONS, "ident"):
            node = CallExpr(self._next().offset, function, [node, self._addition()])
        return node

    def _addition(self) -> Expr:
        node = self._product()
        while function := _ADDITIONS.get(self.token.kind):
            node = CallExpr(self._next().offset, function, [node, self._product()])
        return node

    def _product(self) -> Expr:
        node = self._unary()
        while function := _PRODUCTS.get(self.token.kind):
            node = CallExpr(self._next().offset, function, [node, self._unary()])
        return node

    def _unary(self) -> Expr:
        operator, offset, count = self.token.kind, self.token.offset, 0
        if operator in ("!", "-"):
            while self._accept(operator):
                count += 1
        if operator == "-" and count and self.token.kind in ("int", "float"):
            literal = self._negative(offset)
            count -= 1
            node = self._members(literal)
        else:
            node = self._member()
        return CallExpr(offset, f"{operator}_", [node]) if count % 2 else node

    def _negative(self, offset: int) -> Expr:
        token = self._next()
        assert isinstance(token.value, (int, float))
        return self._number(-token.value, offset)

    def _number(self, value: int | float, offset: int) -> Expr:
        if isinstance(value, int) and value not in INT_RANGE:
            raise self._syntax_error("Syntax error: invalid int literal", offset)
        return LiteralExpr(offset, value)

    def _member(self) -> Expr:
        return self._members(self._primary())

    def _members(self, node: Expr) -> Expr:
        while True:
            if self.token.kind == ".":
                node = self._select(node)
            elif self.token.kind == "[":
                offset = self._next().offset
                optional = self._accept("?")
                index = self.expression()
                self._expect("]")
                node = CallExpr(offset, "_[?_]" if optional else "_[_]", [node, index])
            elif self.token.kind == "{" and (name := qualified(node)):
                raise self._syntax_error(f"undeclared reference to '{name}' (in container '')", node.offset)
            else:
                return node

    def _select(self, node: Expr) -> Expr:
        dot = self._next()
        optional = self._accept("?")
        name = self._next()
        if name.kind == "quoted-ident":
            return SelectExpr(dot.offset, node, str(name.value), optional=optional)
        if name.kind != "ident":
            self._position -= 1
            raise self._syntax_error(f"Syntax error: no viable alternative at input '{self.source[: name.offset + 1]}'")
        if name.text in ("true", "false", "null"):
            raise self._syntax_error(f"Syntax error: mismatched input '{name.text}' expecting IDENTIFIER", name.offset)
        if name.text == "in":
            raise self._syntax_error("Syntax error: no viable alternative at input '.in'", name.offset)
        if self.token.kind == "(" and not optional:
            call = self._next()
            return self._macro(call.offset, name.text, self._arguments(), node)
        return SelectExpr(dot.offset, node, name.text, optional=optional)

    def _arguments(self) -> list[Expr]:
        args: list[Expr] = []
        if self._accept(")"):
            return args
        while True:
            args.append(self.expression())
            if not self._accept(","):
                break
        self._expect(")")
        return args

    def _macro(self, offset: int, name: str, args: list[Expr], target: Expr | None) -> Expr:
        try:
            expanded = expand(offset, name, args, target)
        except MacroError as error:
            raise self._syntax_error(error.message, error.offset) from None
        return expanded or CallExpr(offset, name, args, target)

    def _primary(self) -> Expr:
        token = self._next()
        match token.kind:
            case "int":
                assert isinstance(token.value, int)
                return self._number(token.value, token.offset)
            case "uint":
                assert isinstance(token.value, int)
                if token.value not in UINT_RANGE:
                    raise self._syntax_error("Syntax error: invalid uint literal", token.offset)
                return LiteralExpr(token.offset, Uint(token.value))
            case "float" | "string" | "bytes":
                return LiteralExpr(token.offset, token.value)
            case "(":
                node = self.expression()
                self._expect(")")
                return node
            case "[":
                return self._list(token.offset)
            case "{":
                return self._map(token.offset)
            case ".":
                return self._ident(self._next(), leading=True)
            case "ident":
                return self._ident(token)
        self._position -= 1
        raise self._syntax_error(f"Syntax error: mismatched input '{token.text}' expecting {_EXPECTED}")

    def _ident(self, token: CelToken, *, leading: bool = False) -> Expr:
        if token.kind == "ident" and not leading and token.text in ("true", "false", "null"):
            return LiteralExpr(token.offset, {"true": True, "false": False, "null": None}[token.text])
        if token.kind != "ident" or token.text in RESERVED:
            if token.text in RESERVED and token.text != "in":
                raise self._syntax_error(f"reserved identifier: {token.text}", token.offset)
            raise self._syntax_error(
                f"Syntax error: mismatched input '{token.text}' expecting {_EXPECTED}", token.offset
            )
        if self.token.kind == "(":
            call = self._next()
            return self._macro(call.offset, token.text, self._arguments(), None)
        return IdentExpr(token.offset, token.text)

    def _list(self, offset: int) -> Expr:
        items: list[Expr] = []
        optional: set[int] = set()
        while self.token.kind != "]":
            if self._accept("?"):
                optional.add(len(items))
            items.append(self.expression())
            if not self._accept(","):
                break
        self._expect("]")
        return ListExpr(offset, items, optional)

    def _map(self, offset: int) -> Expr:
        keys: list[Expr] = []
        values: list[Expr] = []
        optional: set[int] = set()
        while self.token.kind != "}":
            if self._accept("?"):
                optional.add(len(keys))
            keys.append(self.expression())
            self._expect(":")
            values.append(self.expression())
            if not self._accept(","):
                break
        self._expect("}")
        return MapExpr(offset, keys, values, optional)


def qualified(node: Expr) -> str:
    """`a.b.c` as text, or an empty text for any other node."""
    if isinstance(node, IdentExpr):
        return node.name
    if isinstance(node, SelectExpr) and not node.test and not node.optional and (head := qualified(node.operand)):
        return f"{head}.{node.field}"
    return ""
