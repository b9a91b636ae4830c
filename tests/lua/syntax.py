"""A parser of Lua 5.1 for the checks of `functions/*.lua`: source text to a tree of statements and expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias


@dataclass(frozen=True)
class Name:
    """A variable."""

    text: str


@dataclass(frozen=True)
class Constant:
    """A number, string, `nil`, `true`, `false` or `...`; only the value of strings is kept."""

    text: str | None


@dataclass(frozen=True)
class Index:
    """`of.key` or `of[key]`."""

    of: Expression
    key: Expression


@dataclass(frozen=True)
class Call:
    """A call of a function, or of the method `method`."""

    function: Expression
    arguments: tuple[Expression, ...]
    line: int
    method: str | None = None


@dataclass(frozen=True)
class Function:
    """A function's parameters and body."""

    parameters: tuple[str, ...]
    body: tuple[Statement, ...]
    line: int


@dataclass(frozen=True)
class Table:
    """A table constructor: keys (None for a list's items) and values."""

    items: tuple[tuple[Expression | None, Expression], ...]


@dataclass(frozen=True)
class Operation:
    """Operands of an operator, in order."""

    operator: str
    operands: tuple[Expression, ...]


Expression: TypeAlias = Name | Constant | Index | Call | Function | Table | Operation


@dataclass(frozen=True)
class Assign:
    """An assignment, or the declaration of local variables."""

    targets: tuple[Expression, ...]
    values: tuple[Expression, ...]
    line: int
    is_local: bool = False


@dataclass(frozen=True)
class Evaluate:
    """A call as a statement."""

    call: Expression


@dataclass(frozen=True)
class If:
    """Conditions with their blocks; the last block is the `else` block, empty without one."""

    branches: tuple[tuple[Expression, tuple[Statement, ...]], ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """Any loop: the expressions evaluated before it and in each turn, and its variables."""

    before: tuple[Expression, ...]
    each: tuple[Expression, ...]
    body: tuple[Statement, ...]
    variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """`do … end`."""

    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Return:
    """`return`, with its values."""

    values: tuple[Expression, ...]


@dataclass(frozen=True)
class Break:
    """`break`."""


Statement: TypeAlias = Assign | Evaluate | If | Loop | Block | Return | Break

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--\[\[.*?\]\]|--[^\n]*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)
    |(?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\[\[.*?\]\])
    |(?P<sign>\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^\#<>=(){}\[\];:,.])""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS: Final = (
    "and break do else elseif end false for function if in local nil not or repeat return then true until while"
)
_WORDS: Final = frozenset(_KEYWORDS.split())
_BINARY: Final = {
    "or": 1, "and": 2, "<": 3, ">": 3, "<=": 3, ">=": 3, "~=": 3, "==": 3, "..": 4, "+": 5, "-": 5, "*": 6, "/": 6,
    "%": 6, "^": 8,
}  # fmt: skip
_UNARY: Final = 7


@dataclass
class Parser:
    """A recursive descent over the tokens of one text."""

    text: str
    tokens: list[tuple[str, str, int]] = field(default_factory=list)
    at: int = 0

    def parse(self) -> tuple[Statement, ...]:
        """Return the statements of the text; raises SyntaxError."""
        position, line = 0, 1
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise SyntaxError(f"line {line}: {self.text[position : position + 20]!r}")
            if match.lastgroup != "space":
                self.tokens.append((str(match.lastgroup), match[0], line))
            line += match[0].count("\n")
            position = match.end()
        self.tokens.append(("end", "", line))
        block = self._block()
        if self.tokens[self.at][0] != "end":
            raise self._unexpected()
        return block

    # -- tokens ---------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> str:
        kind, text, _ = self.tokens[self.at]
        return "" if kind == "string" else text

    @property
    def _line(self) -> int:
        return self.tokens[self.at][2]

    def _take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][1]

    def _accept(self, text: str) -> bool:
        if self._next != text:
            return False
        self.at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected()

    def _name(self) -> str:
        kind, text, _ = self.tokens[self.at]
        if kind != "word" or text in _WORDS:
            raise self._unexpected()
        return self._take()

    def _unexpected(self) -> SyntaxError:
        return SyntaxError(f"line {self._line}: unexpected {self.tokens[self.at][1]!r}")

    # -- statements -----------------------------------------------------------------------------------------------

    def _block(self) -> tuple[Statement, ...]:
        found: list[Statement] = []
        while self._next not in ("end", "else", "elseif", "until") and self.tokens[self.at][0] != "end":
            if self._accept(";"):
                continue
            found.append(self._statement())
        return tuple(found)

    def _statement(self) -> Statement:
        kinds: dict[str, Callable[[], Statement]] = {
            "if": self._if, "while": self._while, "for": self._for, "repeat": self._repeat, "do": self._do,
            "function": self._function, "local": self._local, "return": self._return, "break": self._break,
        }  # fmt: skip
        parse = kinds.get(self._next)
        return self._plain() if parse is None else parse()

    def _if(self) -> Statement:
        branches: list[tuple[Expression, tuple[Statement, ...]]] = []
        otherwise: tuple[Statement, ...] = ()
        self._take()
        while True:
            condition = self._expression()
            self._expect("then")
            branches.append((condition, self._block()))
            if self._accept("elseif"):
                continue
            if self._accept("else"):
                otherwise = self._block()
            self._expect("end")
            return If(tuple(branches), otherwise)

    def _while(self) -> Statement:
        self._take()
        condition = self._expression()
        self._expect("do")
        body = self._block()
        self._expect("end")
        return Loop((), (condition,), body)

    def _for(self) -> Statement:
        self._take()
        names = [self._name()]
        while self._accept(","):
            names.append(self._name())
        if not self._accept("in"):
            self._expect("=")
        values = self._expressions()
        self._expect("do")
        body = self._block()
        self._expect("end")
        return Loop(values, (), body, tuple(names))

    def _repeat(self) -> Statement:
        self._take()
        body = self._block()
        self._expect("until")
        return Loop((), (self._expression(),), body)

    def _do(self) -> Statement:
        self._take()
        body = self._block()
        self._expect("end")
        return Block(body)

    def _function(self) -> Statement:
        line = self._line
        self._take()
        target: Expression = Name(self._name())
        while self._accept("."):
            target = Index(target, Constant(self._name()))
        return Assign((target,), (self._function_body(),), line)

    def _local(self) -> Statement:
        line = self._line
        self._take()
        if self._accept("function"):
            name = self._name()
            return Assign((Name(name),), (self._function_body(),), line, is_local=True)
        names = [self._name()]
        while self._accept(","):
            names.append(self._name())
        values = self._expressions() if self._accept("=") else ()
        return Assign(tuple(Name(name) for name in names), values, line, is_local=True)

    def _return(self) -> Statement:
        self._take()
        is_bare = self._next in ("end", "else", "elseif", "until", ";") or self.tokens[self.at][0] == "end"
        values = () if is_bare else self._expressions()
        self._accept(";")
        return Return(values)

    def _break(self) -> Statement:
        self._take()
        return Break()

    def _plain(self) -> Statement:
        line = self._line
        first = self._suffixed()
        if isinstance(first, Call) and self._next not in ("=", ","):
            return Evaluate(first)
        targets = [first]
        while self._accept(","):
            targets.append(self._suffixed())
        self._expect("=")
        return Assign(tuple(targets), self._expressions(), line)

    # -- expressions ----------------------------------------------------------------------------------------------

    def _expressions(self) -> tuple[Expression, ...]:
        found = [self._expression()]
        while self._accept(","):
            found.append(self._expression())
        return tuple(found)

    def _expression(self, limit: int = 0) -> Expression:
        if self._next in ("not", "-", "#"):
            operator = self._take()
            left: Expression = Operation(operator, (self._expression(_UNARY),))
        else:
            left = self._simple()
        while (power := _BINARY.get(self._next, 0)) > limit:
            operator = self._take()
            # Concatenation and powers are right-associative.
            right = self._expression(power - 1 if operator in ("..", "^") else power)
            left = Operation(operator, (left, right))
        return left

    def _simple(self) -> Expression:
        kind, text, _ = self.tokens[self.at]
        if kind == "string":
            self._take()
            return Constant(text[1:-1])
        if kind == "number" or text in ("nil", "true", "false", "..."):
            self._take()
            return Constant(None)
        if text == "{":
            return self._table()
        if self._accept("function"):
            return self._function_body()
        return self._suffixed()

    def _suffixed(self) -> Expression:
        if self._accept("("):
            found = self._expression()
            self._expect(")")
        else:
            found = Name(self._name())
        while True:
            kind, text, line = self.tokens[self.at]
            if kind == "string" or text in ("(", "{"):
                found = Call(found, self._arguments(), line)
            elif self._accept("."):
                found = Index(found, Constant(self._name()))
            elif self._accept("["):
                found = Index(found, self._expression())
                self._expect("]")
            elif self._accept(":"):
                method = self._name()
                found = Call(found, self._arguments(), line, method)
            else:
                return found

    def _arguments(self) -> tuple[Expression, ...]:
        if not self._accept("("):
            return (self._simple(),)
        arguments: Sequence[Expression] = () if self._next == ")" else self._expressions()
        self._expect(")")
        return tuple(arguments)

    def _table(self) -> Expression:
        self._expect("{")
        items: list[tuple[Expression | None, Expression]] = []
        while not self._accept("}"):
            items.append(self._item())
            if not (self._accept(",") or self._accept(";")) and self._next != "}":
                raise self._unexpected()
        return Table(tuple(items))

    def _item(self) -> tuple[Expression | None, Expression]:
        if self._accept("["):
            key = self._expression()
            self._expect("]")
            self._expect("=")
            return key, self._expression()
        if self.tokens[self.at][0] == "word" and self.tokens[self.at + 1][1] == "=" and self._next not in _WORDS:
            name = self._name()
            self._expect("=")
            return Constant(name), self._expression()
        return None, self._expression()

    def _function_body(self) -> Function:
        line = self._line
        self._expect("(")
        parameters: list[str] = []
        while not self._accept(")"):
            parameters.append(self._take())
            self._accept(",")
        body = self._block()
        self._expect("end")
        return Function(tuple(parameters), body, line)


@cache
def parse(text: str) -> tuple[Statement, ...]:
    """Parse a Lua text; raises SyntaxError with the line."""
    return Parser(text).parse()
