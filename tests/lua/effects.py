"""Which commands a function of the library runs, in which order, by reading its Lua text.

The text is executed abstractly: every branch is taken, loops twice, and calls of the library's own functions are
followed, through tables of functions, aliases and callbacks too. The state is where the first write happened. A step
that can fail while there was a write before it is a `Fault`: a failure there would leave half of a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

from tests.lua.syntax import (
    Assign,
    Block,
    Break,
    Call,
    Constant,
    Evaluate,
    Expression,
    Function,
    If,
    Index,
    Loop,
    Name,
    Operation,
    Return,
    Statement,
    Table,
    parse,
)

_READS: Final = """
    EXISTS GET HEXISTS HGET HGETALL HMGET HSTRLEN HVALS KEYS LINDEX LLEN LPOS LRANGE MEMORY SISMEMBER SMISMEMBER
    SRANDMEMBER TIME TYPE XINFO XLEN XPENDING XRANGE XREVRANGE ZCARD ZCOUNT ZMSCORE ZRANGE ZRANGEBYSCORE ZREVRANGE ZSCAN
    ZSCORE SCARD SPUBLISH HLEN HSCAN SSCAN STRLEN ZRANK ZREVRANK ZREVRANGEBYSCORE MGET PTTL HKEYS SMEMBERS ZLEXCOUNT
    ZRANGEBYLEX INFO PUBSUB"""
READS: Final = frozenset(_READS.split())
"""Commands that change no key. Every other command counts as a write."""
_REMOVES: Final = """
    DEL UNLINK HDEL SREM ZREM ZPOPMIN ZPOPMAX ZREMRANGEBYRANK ZREMRANGEBYSCORE XDEL XTRIM XACK XCLAIM XREADGROUP LTRIM
    LPOP LREM RPOP PEXPIRE PERSIST"""
REMOVES: Final = frozenset(_REMOVES.split())
"""Commands that create no key. Every other write may create its key."""
KEYS_OF: Final = "keys_of"
"""The function of `base` that returns the store keys of a queue by their names."""
FLAGGED: Final = "flagged:"
"""The beginning of a key that `queue_flags.create` returned."""
FALLIBLE: Final = frozenset({"SPUBLISH", "PUBSUB", "XREADGROUP", "XPENDING", "XCLAIM", "XAUTOCLAIM", "XGROUP", "XINFO"})
"""Commands that can fail on sound data: the user has no channels, or the stream or its group is gone."""
CONTAINERS: Final = frozenset({"MEMORY", "PUBSUB", "XGROUP", "XINFO"})
"""Commands whose second word is a subcommand."""
_BUILT_IN: Final = """
    ipairs pairs tonumber tostring type select unpack next math string table cmsgpack cjson redis error pcall assert
    setmetatable rawget"""
BUILT_IN: Final = frozenset(_BUILT_IN.split())


@dataclass(frozen=True)
class Fault:
    """A step that can fail after a write, and one of the registered functions that reach it."""

    function: str
    step: str
    write: str

    def __str__(self) -> str:
        return f"{self.function}: {self.step} can fail after {self.write}"


class Scope:
    """The variables of a block. An unknown name is looked up in the enclosing block."""

    def __init__(self, outer: Scope | None, file: str) -> None:
        self.outer = outer
        self.file = file
        self.values: dict[str, Value] = {}

    def find(self, name: str) -> Scope | None:
        """Return the scope that declares a name."""
        return self if name in self.values else self.outer.find(name) if self.outer else None

    def get(self, name: str) -> Value:
        """Return the known facts about a variable."""
        scope = self.find(name)
        return scope.values[name] if scope else UNKNOWN


@dataclass(frozen=True)
class Closure:
    """A function with the scope in which it was created."""

    code: Function
    scope: Scope

    def __hash__(self) -> int:
        return hash((id(self.code), id(self.scope)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Closure) and self.code is other.code and self.scope is other.scope


@dataclass
class Value:
    """The known facts about a value: its possible functions, its possible texts, and the fields of a table."""

    functions: tuple[Closure, ...] = ()
    texts: tuple[str, ...] = ()
    is_open: bool = True
    """Return whether it may also be an unknown value."""
    fields: dict[str, Value] | None = None

    def joined(self, other: Value) -> Value:
        """Return a value that is either of both."""
        return Value(
            tuple(dict.fromkeys(self.functions + other.functions)),
            tuple(dict.fromkeys(self.texts + other.texts)),
            self.is_open or other.is_open,
            {**(self.fields or {}), **(other.fields or {})} if self.fields or other.fields else None,
        )

    @property
    def text(self) -> str | None:
        """Return its text if only one is possible."""
        return self.texts[0] if len(self.texts) == 1 and not self.is_open else None

    def any_field(self) -> Value:
        """Return the possible values of all fields."""
        found = UNKNOWN
        for value in (self.fields or {}).values():
            found = found.joined(value)
        return found


def _described(value: Value, inside: tuple[int, ...] = ()) -> object:
    """Return all known facts about a value, for comparisons."""
    if not value.fields or id(value.fields) in inside:
        return value.functions, value.texts, value.is_open
    inside = (*inside, id(value.fields))
    # Most fields are not tables and are described here: a call for each of them makes the analysis a tenth slower.
    fields = tuple(
        [
            (name, _described(field, inside) if field.fields else (field.functions, field.texts, field.is_open))
            for name, field in value.fields.items()
        ]
    )
    return value.functions, value.texts, value.is_open, fields


UNKNOWN: Final = Value()


class StoreKeys(dict[str, Value]):
    """The fields of the table that `keys_of` returns: the key of each structure by its name."""

    def get(self, name: str, default: Value = UNKNOWN) -> Value:  # type: ignore[override]
        """Return the key of a structure."""
        return Value(texts=(f":{name}",), is_open=False)


_parsed: Final = cache(parse)
_WHOLE: Final = 1_000_000
"""Deeper than any call, so nothing was cut off."""
State: TypeAlias = str | None
"""The location of the first write, empty before it; None where the execution does not arrive."""


def _either(one: State, other: State) -> State:
    if one is None:
        return other
    return one if other is None else one or other


@dataclass
class Frame:
    """One execution of a function: the states at its returns, and at the exits of its loops."""

    returns: list[State] = field(default_factory=list)
    breaks: list[State] = field(default_factory=list)
    result: Value = field(default_factory=Value)


class Library:
    """The abstract execution of Lua files, joined in the given order."""

    def __init__(
        self, files: Iterable[tuple[str, str]], common: str = "base", only: frozenset[str] | None = None
    ) -> None:
        """Execute the files, each with its name, and then every registered function, or `only` these.

        What `common` declares is seen by all others.
        """
        self.faults: set[Fault] = set()
        self.unresolved: set[str] = set()
        self.commands: set[str] = set()
        self.functions: dict[str, bool] = {}
        """The registered functions, and whether each is declared to write nothing."""
        self.writing: dict[str, str] = {}
        """The registered functions that write, and the location of the first write."""
        self.created: set[tuple[str, str, str]] = set()
        """The commands that may create a key, the known part of the key ("?": none; "unpack": an item of a
        list), and the file. A key of `queue_flags.create` is not among them."""
        self.writers: set[tuple[str, str]] = set()
        """The known part of each key that a command changes ("?": none), and the file. A command in a helper of
        `common` belongs to the file that calls the helper."""
        self._common = common
        self._running: list[tuple[Closure, bool]] = []
        self._cut = _WHOLE
        """The outermost running call that contains a recursive call which was not followed."""
        self._root = ""
        self._known: dict[tuple[object, ...], tuple[State, Value]] = {}
        self._caught = 0
        self._declared: list[Value] = []
        everywhere = Scope(None, common)
        for name, text in files:
            scope = everywhere if name == common else Scope(everywhere, name)
            if name != common:
                everywhere.values[name] = Value(fields={})
            self._block(_parsed(text), scope, "", Frame())
        # Only now, because a function may use definitions of later files.
        self._known.clear()
        for declared in self._declared:
            self._enter(declared, only)

    def __getstate__(self) -> dict[str, object]:
        """Return the facts without the state of the execution, which has deep cycles."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    # -- statements -----------------------------------------------------------------------------------------------

    def _block(self, statements: Sequence[Statement], scope: Scope, state: State, frame: Frame) -> State:
        for statement in statements:
            if state is None:
                return None
            state = self._statement(statement, scope, state, frame)
        return state

    def _statement(self, statement: Statement, scope: Scope, state: State, frame: Frame) -> State:
        match statement:
            case Assign():
                return self._assign(statement, scope, state)
            case Evaluate(call):
                return self._evaluate(call, scope, state)[0]
            case If():
                return self._if(statement, scope, state, frame)
            case Loop():
                return self._loop(statement, scope, state, frame)
            case Block(body):
                return self._block(body, Scope(scope, scope.file), state, frame)
            case Return(values):
                for value in values:
                    state, result = self._evaluate(value, scope, state)
                    frame.result = frame.result.joined(result)
                frame.returns.append(state)
                return None
            case Break():
                frame.breaks.append(state)
                return None

    def _assign(self, statement: Assign, scope: Scope, state: State) -> State:
        found: list[Value] = []
        targets = statement.targets
        if statement.is_local and statement.values and isinstance(statement.values[0], Function):
            # A local function can refer to itself.
            self._declare(targets[0], Value(), scope)
        for value in statement.values:
            state, result = self._evaluate(value, scope, state)
            found.append(result)
        found += [UNKNOWN] * (len(targets) - len(found))
        for target, known in zip(targets, found, strict=False):
            if statement.is_local:
                self._declare(target, known, scope)
            else:
                self._set(target, known, scope)
        return state

    @staticmethod
    def _declare(target: Expression, value: Value, scope: Scope) -> None:
        assert isinstance(target, Name)
        if scope.outer is not None and scope.outer.outer is None and target.text == scope.file:
            # Later files can use the table with the file's name.
            scope.outer.values[target.text] = value
        else:
            scope.values[target.text] = value

    def _set(self, target: Expression, value: Value, scope: Scope) -> None:
        if isinstance(target, Name):
            owner = scope.find(target.text)
            if owner is not None and (value.functions or value.fields or value.texts):
                owner.values[target.text] = owner.values[target.text].joined(value)
        elif isinstance(target, Index):
            table = self._look(target.of, scope)
            if table.fields is not None and (value.functions or value.fields or value.texts):
                key = target.key.text if isinstance(target.key, Constant) and target.key.text else "?"
                table.fields[key] = table.fields.get(key, UNKNOWN).joined(value)

    def _if(self, statement: If, scope: Scope, state: State, frame: Frame) -> State:
        after: State = None
        for condition, body in statement.branches:
            state, _ = self._evaluate(condition, scope, state)
            after = _either(after, self._block(body, Scope(scope, scope.file), state, frame))
        return _either(after, self._block(statement.otherwise, Scope(scope, scope.file), state, frame))

    def _loop(self, statement: Loop, scope: Scope, state: State, frame: Frame) -> State:
        for value in statement.before:
            state, _ = self._evaluate(value, scope, state)
        outer, frame.breaks = frame.breaks, []
        for _ in range(2):
            inner = Scope(scope, scope.file)
            inner.values = {name: Value() for name in statement.variables}
            turn = state
            for value in statement.each:
                turn, _ = self._evaluate(value, inner, turn)
            state = _either(state, self._block(statement.body, inner, turn, frame))
        for left in frame.breaks:
            state = _either(state, left)
        frame.breaks = outer
        return state

    # -- expressions ----------------------------------------------------------------------------------------------

    def _look(self, expression: Expression, scope: Scope) -> Value:
        """Return the known facts about an expression without executing it."""
        match expression:
            case Name(name):
                return scope.get(name)
            case Constant(text):
                return Value(texts=(text,) if text is not None else (), is_open=text is None)
            case Index(of, key):
                table = self._look(of, scope)
                if isinstance(key, Constant) and key.text:
                    fields = table.fields or {}
                    found = fields.get(key.text, UNKNOWN)
                    return found.joined(fields["?"]) if "?" in fields else found
                return table.any_field()
            case Call(Name(name)) if name == KEYS_OF:
                return Value(fields=StoreKeys(keys=UNKNOWN))
            case Operation("and", (_, right)):
                return self._look(right, scope)
            case Operation("or", (left, right)):
                return self._look(left, scope).joined(self._look(right, scope))
            case Operation("..", operands):
                joined = "".join(self._look(operand, scope).text or "" for operand in operands)
                return Value(texts=(joined,) if joined else (), is_open=not joined)
            case _:
                return UNKNOWN

    def _evaluate(self, expression: Expression, scope: Scope, state: State) -> tuple[State, Value]:
        if _is_plain(expression):
            return state, self._look(expression, scope)
        match expression:
            case Function():
                return state, Value((Closure(expression, scope),))
            case Table(items):
                fields: dict[str, Value] = {}
                for position, (key, item) in enumerate(items, 1):
                    state, value = self._evaluate(item, scope, state)
                    name = key.text if isinstance(key, Constant) and key.text else str(position) if key is None else "?"
                    fields[name] = value
                return state, Value(fields=fields)
            case Index(of, key):
                state, _ = self._evaluate(of, scope, state)
                state, _ = self._evaluate(key, scope, state)
            case Operation("or" | "and", (left, right)):
                state, _ = self._evaluate(left, scope, state)
                # A value that is false or true needs no right side.
                state = _either(state, self._evaluate(right, scope, state)[0])
            case Operation(_, operands):
                for operand in operands:
                    state, _ = self._evaluate(operand, scope, state)
            case Call():
                return self._call(expression, scope, state)
            case _:
                pass
        return state, self._look(expression, scope)

    # -- calls ----------------------------------------------------------------------------------------------------

    def _call(self, call: Call, scope: Scope, state: State) -> tuple[State, Value]:
        values: list[Value] = []
        if not isinstance(call.function, Name):
            state, _ = self._evaluate(call.function, scope, state)
        for argument in call.arguments:
            state, value = self._evaluate(argument, scope, state)
            values.append(value)
        if state is None:
            return None, UNKNOWN
        name = _dotted(call.function)
        where = f"{scope.file}.lua:{call.line}"
        head = name.partition(".")[0]
        if head in BUILT_IN and scope.find(head) is None:
            return self._built_in(name, call, values, where, scope, state)
        if name == KEYS_OF:
            return state, self._look(call, scope)
        functions = self._look(call.function, scope).functions
        if name == "queue_flags.create":
            state, _ = self._run(functions[0], values, state)
            return state, Value(texts=(f"{FLAGGED}{values[1].text}",), is_open=False)
        if not functions:
            self.unresolved.add(f"{where} {name}")
        after: State = None
        result = UNKNOWN
        for function in functions:
            end, value = self._run(function, values, state)
            after, result = _either(after, end), result.joined(value)
        return (after if functions else state), result

    def _run(self, function: Closure, values: Sequence[Value], state: str) -> tuple[State, Value]:
        key = (function, bool(state))
        if key in self._running:
            # A recursion is not followed, so no call below it has a complete result.
            self._cut = min(self._cut, self._running.index(key))
            return state, UNKNOWN
        # The writes of a helper of `common` are noted for the file that calls it.
        known = (*key, self._caught > 0, self._calling_file() if function.scope.file == self._common else "")
        before = (*map(_described, values),)
        if (known, before) in self._known:
            return self._known[known, before]
        scope = Scope(function.scope, function.scope.file)
        parameters = function.code.parameters
        scope.values = dict(zip(parameters, [*values, *[UNKNOWN] * len(parameters)], strict=False))
        frame = Frame()
        depth, outer_cut = len(self._running), self._cut
        self._cut = _WHOLE
        self._running.append(key)
        end = self._block(function.code.body, scope, state, frame)
        self._running.pop()
        is_whole = self._cut >= depth
        self._cut = min(outer_cut, _WHOLE if is_whole else self._cut)
        for left in frame.returns:
            end = _either(end, left)
        # Another call with equal values has the same result, unless this one changed a table of its caller.
        given = any(value.fields is not None and value.fields is frame.result.fields for value in values)
        if is_whole and not given and before == (*map(_described, values),):
            self._known[known, before] = end, frame.result
        return end, frame.result

    def _built_in(
        self, name: str, call: Call, values: list[Value], where: str, scope: Scope, state: str
    ) -> tuple[State, Value]:
        match name:
            case "redis.call" | "redis.pcall":
                return self._command(name, call, values, where, scope, state), UNKNOWN
            case "redis.register_function":
                self._declared.append(values[0])
            case "error" | "assert":
                self._can_fail("an error", where, state)
                return (None if name == "error" else state), UNKNOWN
            case "cmsgpack.unpack" | "cjson.decode" | "redis.acl_check_cmd":
                self._can_fail(name, where, state)
            case "table.insert" if len(values) > 1 and values[0].fields is not None:
                values[0].fields["?"] = values[0].fields.get("?", UNKNOWN).joined(values[-1])
            case "pcall":
                return self._caught_call(values, state), UNKNOWN
            case _:
                pass
        return state, UNKNOWN

    def _caught_call(self, values: list[Value], state: str) -> State:
        """Execute a function whose errors are caught."""
        after: State = state
        self._caught += 1
        for function in values[0].functions:
            after = _either(after, self._run(function, values[1:], state)[0])
        self._caught -= 1
        return after

    def _command(self, how: str, call: Call, values: list[Value], where: str, scope: Scope, state: str) -> State:
        words = [value.text for value in values]
        listed = self._listed(call, values, scope)
        names = () if listed[0].is_open else listed[0].texts
        if not names:
            self.unresolved.add(f"{where} {how} of a command that is not a constant")
        writes = ""
        for command in names:
            second = words[1] if len(words) > 1 else None
            self.commands.add(f"{command} {second}" if command in CONTAINERS else command)
            # A generated id must be above the last one. Without options the id is the third argument.
            explicit_id = command == "XADD" and "*" not in words[2:6]
            if how == "redis.call" and (command in FALLIBLE or explicit_id):
                self._can_fail(f"{command} by redis.call", where, state)
            if command not in READS:
                writes = f"{command} at {where}"
                self._note_writer(command, listed)
            if command not in READS | REMOVES:
                self._note_created(command, call, values, scope.file)
        return state or writes

    def _note_created(self, command: str, call: Call, values: list[Value], file: str) -> None:
        given = call.arguments[min(1, len(values) - 1)]
        if isinstance(given, Call) and _dotted(given.function) == "unpack":
            self.created.add((command, "unpack", file))
            return
        texts = (*values[1].texts, "?") if values[1].is_open else values[1].texts
        self.created.update((command, text, file) for text in texts if not text.startswith(FLAGGED))

    def _listed(self, call: Call, values: list[Value], scope: Scope) -> list[Value]:
        """Return the known words of a command, also of one whose command and arguments are one list."""
        first = call.arguments[0]
        if isinstance(first, Call) and _dotted(first.function) == "unpack":
            fields = self._look(first.arguments[0], scope).fields or {}
            return [fields.get(str(number), UNKNOWN) for number in range(1, max(2, len(fields)) + 1)]
        return values

    def _note_writer(self, command: str, values: list[Value]) -> None:
        position = 2 if command in CONTAINERS else 1
        if command == "XREADGROUP":
            position = [value.text for value in values].index("STREAMS") + 1
        key = values[min(position, len(values) - 1)]
        texts = (*key.texts, "?") if key.is_open else key.texts
        file = self._calling_file()
        self.writers.update((text.removeprefix(FLAGGED), file) for text in texts if file)

    def _calling_file(self) -> str:
        """Return the file of the innermost running function that is not a helper of `common`."""
        files = (closure.scope.file for closure, _ in reversed(self._running))
        return next((file for file in files if file != self._common), "")

    def _can_fail(self, step: str, where: str, state: str) -> None:
        if state and not self._caught:
            self.faults.add(Fault(self._root, f"{step} at {where}", state))

    def _enter(self, declared: Value, only: frozenset[str] | None) -> None:
        fields = declared.fields or {}
        name = (fields["function_name"].text or "?").removeprefix("glidemq_async_v2_")
        flags = fields.get("flags", UNKNOWN).fields or {}
        self.functions[name] = any(flag.text == "no-writes" for flag in flags.values())
        if only is not None and name not in only:
            return
        outer, self._root = self._root, name
        for function in fields["callback"].functions:
            end, _ = self._run(function, (), "")
            if end:
                self.writing[name] = end
        self._root = outer


_plain: Final[dict[int, bool]] = {}
"""Whether each expression is plain, by its identity. `_parsed` keeps all expressions."""


def _is_plain(expression: Expression) -> bool:
    """Return whether an expression calls nothing and creates nothing."""
    known = _plain.get(id(expression))
    if known is None:
        known = _plain[id(expression)] = _calls_nothing(expression)
    return known


def _calls_nothing(expression: Expression) -> bool:
    match expression:
        case Name() | Constant():
            return True
        case Index(of, key):
            return _is_plain(of) and _is_plain(key)
        case Operation(_, operands):
            return all(map(_is_plain, operands))
        case _:
            return False


def _dotted(expression: Expression) -> str:
    match expression:
        case Name(name):
            return name
        case Index(of, Constant(text)) if text:
            return f"{_dotted(of)}.{text}"
        case Index(of, _):
            return f"{_dotted(of)}[]"
        case _:
            return "?"
