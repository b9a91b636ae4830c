"""`--app`: reading and adding to the queues of an app with its storage, prefix, codecs and tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import Encryption, GlideMQ
from tests.cli.shell import Shell
from tests.support.servers import Server, standalone

KEY = b"k" * 32
APP = f"""
from datetime import datetime

from pydantic import BaseModel

from glidemq_async import Encryption, GlideMQ

mq = GlideMQ({{url!r}}, prefix="shop", codecs=[Encryption({{{{"k": {KEY!r}}}}})])


@mq.task(queue="mail", attempts=4)
async def send(to: str, at: datetime, *, copies: int = 1) -> str:
    return f"{{{{to}}}} {{{{at.year}}}} {{{{copies}}}}"


class Order(BaseModel):
    id: int
    lines: list[int]


@mq.task(queue="shop")
async def buy(order: Order) -> None: ...


def make() -> GlideMQ:
    return mq


other = 7
"""


@pytest.fixture
def app(server: Server, tmp_path: Path) -> Iterator[str]:
    """The directory of an app on the server."""
    (tmp_path / "shop_of_test.py").write_text(APP.format(url=server.url))
    yield str(tmp_path)
    sys.modules.pop("shop_of_test", None)
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Set an environment that contradicts the app about the storage."""
    return Shell("redis://127.0.0.1:1", tmp_path / "t")


def options(app: str) -> tuple[str, ...]:
    """Return the option that names the app."""
    return ("--app", "shop_of_test:mq", "--app-dir", app)


CALL = ("--args", '["ada"]', "--kwargs", '{"at": "2030-01-31T12:00:00+00:00"}')


async def test_a_sealed_job_is_added_and_read_with_its_app(shell: Shell, server: Server, app: str) -> None:
    added = await shell.json("add", "mail", "send", *CALL, *options(app))
    [job] = (await shell.json("jobs", "mail", *options(app)))["jobs"]
    assert (job["id"], job["sealed"], job["unreadable"]) == (added["id"], [], {})
    assert job["data"] == {"to": "ada", "at": "2030-01-31T12:00:00+00:00"}
    assert job["options"]["attempts"] == 4, "the defaults of the task must apply"
    connection = ("--url", server.url, "--prefix", "shop")
    [plain] = (await shell.json("jobs", "mail", *connection))["jobs"]
    assert (plain["data"], plain["sealed"]) == (None, ["data"])
    shown = await shell.run("job", "mail", job["id"], *connection)
    assert "(sealed)" in shown.stdout
    assert "--app module:name" in shown.stderr
    assert [one["name"] for one in (await shell.json("queues", *options(app)))["queues"]] == ["mail"]


async def test_the_result_of_a_task_is_printed(shell: Shell, server: Server, app: str) -> None:
    mq = GlideMQ[Any](server.url, prefix="shop", codecs=[Encryption({"k": KEY})])

    @mq.task(queue="mail")
    async def send(to: str, at: str, *, copies: int = 1) -> str:
        return f"{to} {copies}"

    async with mq.worker():
        done = await shell.run("add", "mail", "send", *CALL, "--wait", "10", *options(app))
    assert (done.returncode, done.stdout) == (0, '"ada 1"\n')


async def test_the_environment_can_name_the_app(
    shell: Shell, app: str, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setenv("GLIDEMQ_APP", "shop_of_test:make")
    assert (await shell.run("add", "mail", "send", *CALL, "--app-dir", app)).returncode == 0
    assert (await shell.run("pause", "mail", "--app-dir", app)).stdout == "mail is paused\n"
    found = await shell.json("queues", "--app", "", "--url", server.url)
    assert found == {"queues": []}, "the prefix must differ"


NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mail", "send", "--args", "[7]", "--kwargs", '{"at": "2030-01-31"}'), "argument 'to' must be str, got 7"),
        (("mail", "send", "--args", '["ada"]'), "missing a required argument: 'at' (give its arguments"),
        (("mail", "send", "--args", '["ada", "soon"]'), "argument 'at' of task 'send' cannot be read"),
        (("mail", "send", *CALL[:3], '{"at": "2030-01-31", "cc": 1}'), "unexpected argument 'cc'"),
        (("mail", "send", '{"to": "ada"}'), "missing a required argument: 'at'"),
        (("mail", "send", '{"a": "ada"}'), "must be a call"),
        (
            ("shop", "buy", "--args", '[{"id": "x", "lines": [1, "y"]}]'),
            f"'shop_of_test.Order'>: ValueError: id: {NO_INTEGER}; lines.1: {NO_INTEGER} (give its arguments",
        ),
        (("mail", "sent", *CALL), "did you mean 'send'?"),
        (("mail", "zzz", *CALL), "its tasks are send"),
    ],
)
async def test_arguments_that_no_task_accepts_are_refused_before_anything_is_sent(
    shell: Shell, server: Server, app: str, arguments: tuple[str, ...], says: str
) -> None:
    code, said = await shell.fails("add", *arguments, *options(app))
    assert (code, said.count("\n")) == (2, 0)
    assert says in said
    assert await server.command("DBSIZE") == 0


async def test_another_queue_of_the_app_accepts_any_data(shell: Shell, server: Server, app: str) -> None:
    assert (await shell.run("add", "raw", "anything", "[1]", *options(app))).returncode == 0
    async with GlideMQ[Any](server.url, prefix="shop", codecs=[Encryption({"k": KEY})]) as mq:
        [job] = await mq.queue("raw").get_jobs("waiting")
        assert job.data == [1]


async def test_a_url_on_the_command_line_overrides_the_app(
    shell: Shell, server: Server, app: str, tmp_path: Path
) -> None:
    async with standalone(unix=True) as other:
        await shell.json("add", "mail", "send", *CALL, *options(app), "--url", other.url)
        assert await server.command("DBSIZE") == 0
        assert (await shell.json("jobs", "mail", *options(app), "--url", other.url))["jobs"] != []


async def test_an_object_that_is_not_an_app_is_refused(shell: Shell, app: str) -> None:
    code, said = await shell.fails("queues", "--app", "shop_of_test:other", "--app-dir", app)
    assert (code, "it is of type int; use a GlideMQ app" in said) == (2, True)
    code, said = await shell.fails("queues", "--app", "nowhere_at_all:mq", "--app-dir", app)
    assert (code, "module 'nowhere_at_all' was not found" in said) == (2, True)
    code, said = await shell.fails("queues", *options(app), "--prefix", "mine")
    assert (code, "--prefix" in said) == (2, True)


async def test_reading_upserts_no_crons(shell: Shell, server: Server, app: str) -> None:
    with (Path(app) / "shop_of_test.py").open("a") as source:
        source.write('\n\n@mq.cron("0 3 * * *", queue="nightly")\ndef total() -> None: ...\n')
    await shell.json("queues", *options(app))
    await shell.json("add", "mail", "send", *CALL, *options(app))
    assert [one["name"] for one in (await shell.json("queues", *options(app)))["queues"]] == ["mail"]
