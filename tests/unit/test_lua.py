"""The text of the server's functions: nothing that can fail follows the first write, and each command is declared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from glidemq_async.functions import loader
from tests.lua import writers
from tests.lua.effects import Fault, Library
from tests.lua.syntax import parse
from tests.support.shared_result import shared_result

# The analysis takes 20 s, and a process that needs it waits for the one that began it.
pytestmark = pytest.mark.timeout(240)
FUNCTIONS = Path(loader.__file__).resolve().parent

# Steps that can fail after a write according to the text, with the reason why they do not.
ALLOWED = {
    ("XADD", "add.lua"): "entries.reserve returns numbers above the last one of `fifo`",
    ("XADD", "entries.lua"): "entries.reserve returns a number above the last one of `fifo`",
    ("XADD", "grouped_adds.lua"): "entries.reserve returns numbers above the last one of `fifo`",
    ("XADD", "one_plain.lua"): "entries.reserve returns a number above the last one of `fifo`",
    ("XADD", "outbox.lua"): "first_entry returns an id above `outbox_last`, and the stream does not exist",
    ("XADD", "topics.lua"): "the first one of the call has succeeded with the same milliseconds",
    ("XADD", "migration.lua"): "the numbers in `fifo` are not above `id`, which begin has lifted",
    ("XPENDING", "lease.lua"): "the group has just answered the same command for more entries",
    ("XPENDING", "results.lua"): "the group has just answered the same command for one entry",
    ("XREADGROUP", "claim.lua"): "the line before created the group",
    ("XGROUP", "push.lua"): "the call has just read entries of the group",
    ("XINFO", "outbox.lua"): "let_go has checked that the stream exists",
}
# Calls of names that the text does not define.
FOREIGN = {
    ("budget.lua", "processor_time"): "os.clock, on servers that have it",
    ("key_lines.lua", "find"): "string.find, for a loop over the keys of a claim",
    ("key_lines.lua", "sub"): "string.sub, for the same loop",
    ("keyed_claim.lua", "sub"): "string.sub, for a loop over the jobs of a claim",
}


def texts() -> dict[str, str]:
    return {name: (FUNCTIONS / f"{name}.lua").read_text(encoding="utf-8") for name in loader.FILES}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The analysis of the complete library."""
    return shared_result(tmp_path_factory, "lua_effects", lambda: Library(texts().items()))


def changed(file: str, old: str, new: str, function: str) -> Library:
    """Return one function of the library with one change."""
    found = texts()
    assert found[file].count(old) == 1, f"{file}.lua no longer contains this text exactly once: {old}"
    return Library({**found, file: found[file].replace(old, new)}.items(), only=frozenset({function}))


def named(fault: Fault) -> tuple[str, str]:
    location = re.search(r"(\w+\.lua):\d+$", fault.step)
    assert location is not None
    return fault.step.split(" ", 1)[0], location[1]


def unexpected(checked: Library) -> list[str]:
    return sorted(str(fault) for fault in checked.faults if named(fault) not in ALLOWED)


def test_nothing_that_can_fail_follows_the_first_write(library: Library) -> None:
    assert not unexpected(library)


def test_each_exception_is_used(library: Library) -> None:
    assert {named(fault) for fault in library.faults} == set(ALLOWED)


def test_every_call_is_resolved(library: Library) -> None:
    found = {tuple(re.sub(r":\d+", "", one).split(" ", 1)) for one in library.unresolved}
    assert found == set(FOREIGN)


def test_every_function_is_analysed_and_readers_write_nothing(library: Library) -> None:
    text = "\n".join(texts().values())
    assert set(library.functions) == set(re.findall(r"register\('(\w+)'", text))
    assert len(library.functions) > 70
    assert not {name for name, readonly in library.functions.items() if readonly and name in library.writing}
    assert "settleAndClaim" in library.writing


def test_each_command_is_declared_for_the_permission_check(library: Library) -> None:
    listed = re.search(r"local COMMANDS = \{(.*?)\n\}", texts()["access"], re.DOTALL)
    assert listed is not None
    lines = [line.split() for line in re.findall(r"'([^']*)'", listed[1])]
    containers = {"MEMORY", "XGROUP", "XINFO"}
    asked = {" ".join(words[:2]) if words[0] in containers else words[0] for words in lines}
    # These may be missing: wake-ups have a separate check, an add without PUBSUB wakes a worker instead of pushing to
    # it, and INFO only lets a sweep detect a restart.
    assert asked == library.commands - {"SPUBLISH", "PUBSUB SHARDNUMSUB", "INFO"}


# Commands that may create a key and do not name it by queue_flags.create, although it may be a structure with a flag.
# ":" is a key whose last part is not a constant, "?" is a key of which nothing is known, and "unpack" is an item of a
# list.
MOVED = "changes scores of existing members"
UNFLAGGED = {
    ("HSET", ":limits", "set_back"): "the hash has the field `gate`, which the command replaces",
    ("HSET", ":running", "keyed"): "the hash has the count that the command lowers",
    ("HSET", ":timer", "wakeup"): "the hash has a first holder, and the command adds the second",
    ("HSET", ":waiters", "finish"): "the hash has the list of channels that the command replaces",
    ("HSET", ":waiters", "jobs"): "abandonJob replaces a list of channels in the hash",
    ("HSET", ":waiters", "job_waiters"): "forgetReply replaces a list of channels in the hash",
    ("ZADD", ":", "base"): "`completed` and `failed`",
    ("ZADD", ":", "cleaning"): "the next command but one removes the only member",
    ("ZADD", ":", "finish"): "`completed` and `failed`",
    ("ZADD", ":scheduled", "cleaning"): "the next command but one removes the only member",
    ("ZADD", ":expiry", "set_back"): MOVED,
    ("ZADD", ":held", "set_back"): MOVED,
    ("ZADD", ":pauses", "set_back"): MOVED,
    ("ZADD", ":sleeping", "set_back"): MOVED,
    ("ZADD", ":suspended", "set_back"): MOVED,
    ("ZADD", ":returned", "base"): "migrateQueue changes scores of existing members",
    ("APPEND", "?", "push"): "the last reply of a request channel; the caller has its key",
    ("SET", "?", "request"): "the last reply of a request channel; the caller has its key",
    ("HINCRBY", "?", "plans"): "the plan of a flow",
    ("HINCRBY", "?", "children"): "the plan of a flow",
    ("HSET", "?", "children"): "the plan of a flow",
    ("HINCRBY", "?", "metrics"): "a key of metrics",
    ("HSET", "?", "plans"): "the plan of a flow",
    ("HSET", "?", "flow_jobs"): "the plan of a flow",
    ("HSET", ":flowed", "flow_jobs"): "the hash has the field that the command replaces",
    ("HSETNX", "?", "plans"): "the plan of a flow",
    ("HSET", "?", "base"): "the plan of a flow",
    ("HSET", "?", "schedulers"): "a job scheduler",
    ("HSET", "unpack", "add"): "a record",
    ("HSET", "unpack", "base"): "in_chunks gets the key of `results` or `started` from queue_flags.create",
    ("RPUSH", "unpack", "base"): "the mailbox of a job",
    ("SADD", "?", "base"): "the ledger of a write",
    ("SADD", "unpack", "base"): "in_chunks gets no key only for UNLINK",
    ("ZADD", "unpack", "base"): "in_chunks gets no key only for UNLINK",
}


def unflagged(checked: Library) -> set[tuple[str, str, str]]:
    listed = re.search(r"local STRUCTURES = \{(.*?)\}", texts()["queue_flags"], re.DOTALL)
    assert listed is not None
    keys = {":", "?", *(f":{name}" for name in re.findall(r"'(\w+)'", listed[1]))}
    return {each for each in checked.created if each[1] in keys or each[1] == "unpack"}


def test_every_command_that_creates_a_structure_sets_its_flag(library: Library) -> None:
    assert unflagged(library) == set(UNFLAGGED)


def test_each_structure_is_changed_only_by_the_files_that_the_documents_list(library: Library) -> None:
    found = writers.writers_of(library)
    assert writers.written_table() == writers.table_of(found), "run `python -m tests.lua.writers`, and check the change"
    # The client itself writes `confirm`.
    assert writers.documented_structures() - {"confirm"} <= set(found)


def test_the_header_and_the_documents_list_the_same_fields_of_a_record() -> None:
    listed = re.findall(r"^--     ([a-z_]+(?:, [a-z_]+)*)(?:  |$)", texts()["record"], re.MULTILINE)
    fields = {field for line in listed for field in line.split(", ")}
    assert fields == writers.documented_fields()


def test_the_documents_name_each_function() -> None:
    page = writers.PAGE.read_text(encoding="utf-8")
    registered = {
        name
        for text in texts().values()
        for name in re.findall(r"^\s*(?:request\.)?register\('(\w+)'", text, re.MULTILINE)
    }
    assert {name for name in registered if f"`{name}`" not in page} == set()


def test_a_write_through_a_helper_belongs_to_the_file_that_calls_it() -> None:
    seeded = """register('seeded', function(base, args)
  in_chunks('SADD', base .. ':revoking', nil, args)
end)
"""
    file = texts()["metrics"]
    assert "revoking" not in file
    changed_files = {**texts(), "metrics": f"{file}\n{seeded}"}
    found = writers.writers_of(Library(changed_files.items(), only=frozenset({"seeded"})))
    assert "metrics" in found["revoking"]


def test_each_structure_has_a_letter() -> None:
    text = texts()["queue_flags"]
    names = re.findall(r"'(\w+)'", text.partition("local STRUCTURES = {")[2].partition("}")[0])
    # The letters from "a" to "~", and then from "A" on.
    letters = "".join(map(chr, [*range(ord("a"), ord("~") + 1), *range(ord("A"), ord("Z") + 1)]))[: len(names)]
    assert f"local ALL = '{letters}'" in text
    created = set(re.findall(r"queue_flags\.create\(base, '(\w+)'", "".join(texts().values())))
    assert created == set(names)


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        (
            "dedup",
            "queue_flags.create(base, 'deduped', call.seen)",
            "base .. ':deduped'",
            ("HSET", ":deduped", "dedup"),
        ),
        (
            "finish",
            "local key = queue_flags.create(base, 'held', seen)",
            "local key = base .. ':held'",
            ("ZADD", ":held", "base"),
        ),
        (
            "outbox",
            "queue_flags.create(base, 'outbox', seen)",
            "base .. ':out' .. 'box'",
            ("XADD", ":outbox", "outbox"),
        ),
    ],
    ids=["directly", "through a variable and a function", "from parts"],
)
def test_a_structure_without_its_flag_is_detected(file: str, old: str, new: str, found: tuple[str, str, str]) -> None:
    # This function ends a job, so it reaches all three places.
    assert found in unflagged(changed(file, old, new, "removeJob")) - set(UNFLAGGED)


# A function added to the functions of a file, before the first `register`.
LOOP = """register('seeded', function(base, args)
  for i = 1, 2 do
    integer('x', args[i])
    redis.call('SET', base, args[i])
  end
end)
"""
CALLBACK = """local function each(f) f() f() end
register('seeded', function(base, args)
  each(function() integer('x', args[1]) redis.call('DEL', base) end)
end)
"""
DAMAGED = """register('seeded', function(base)
  redis.call('DEL', base)
  return cmsgpack.unpack(redis.call('GET', base))
end)
"""
PLACED = "  redis.call('HSET', base .. ':job:' .. id, 'place', routes.enter_again(base, id, call))\n"
APPLIED = "function apply.b(base, _, call, _, id, entry)\n"


@pytest.mark.parametrize(
    ("file", "old", "new", "function", "step"),
    [
        (
            "wakeup",
            "local heard = redis.pcall('SPUBLISH'",
            "local heard = redis.call('SPUBLISH'",
            "setPaused",
            "SPUBLISH",
        ),
        ("jobs", PLACED, PLACED + "  if args[4] then integer('delay', args[4]) end\n", "promoteJob", "an error"),
        (
            "outcomes",
            APPLIED,
            APPLIED + "  incarnation.check('', call.seen.incarnation)\n",
            "settleAndClaim",
            "an error",
        ),
        ("updates", "", LOOP, "seeded", "an error"),
        ("updates", "", CALLBACK, "seeded", "an error"),
        ("updates", "", DAMAGED, "seeded", "cmsgpack.unpack"),
    ],
    ids=[
        "through an alias",
        "after a write in another function",
        "through a table",
        "second turn",
        "callback",
        "damaged data",
    ],
)
def test_a_seeded_fault_is_detected(file: str, old: str, new: str, function: str, step: str) -> None:
    if not old:
        old = re.findall(r"^(?:request\.)?register\('\w+'", texts()[file], re.MULTILINE)[0]
        new += old
    found = unexpected(changed(file, old, new, function))
    assert found
    assert all(step in one for one in found)


def test_a_check_before_the_write_or_a_caught_error_is_not_a_fault() -> None:
    seeded = """
    local function f(base, args)
      if args[1] == 'x' then
        redis.call('SET', base, '1')
        return 'ok'
      end
      if not args[2] then error('missing') end
      redis.call('DEL', base)
      redis.pcall('SPUBLISH', base, 'x')
      local readable = pcall(cmsgpack.unpack, args[3])
      return readable
    end
    redis.register_function{function_name = 'f', callback = function(keys, args) return f(keys[1], args) end}
    """
    checked = Library([("base", seeded)])
    assert not checked.faults
    assert not checked.unresolved
    assert checked.functions == {"f": False}


def test_a_reader_that_writes_is_detected() -> None:
    seeded = """
    local function f(keys) redis.call('DEL', keys[1]) end
    redis.register_function{function_name = 'f', callback = f, flags = {'no-writes'}}
    """
    checked = Library([("base", seeded)])
    assert (checked.functions, list(checked.writing)) == ({"f": True}, ["f"])


@pytest.mark.parametrize("text", ["local x = = 1", "if x then", "f(", "x = 'open", "return 1 end"])
def test_the_parser_refuses_invalid_lua(text: str) -> None:
    with pytest.raises(SyntaxError, match="line 1"):
        parse(text)
