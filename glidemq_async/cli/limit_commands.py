"""The command limits: show and set the limits of a queue and of its ordering keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, OneQueue, Reason, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.queues.limits import KeyLimits
    from glidemq_async.queues.queue import Queue
    from glidemq_async.queues.rates import RateLimit

_NONE: Final = "none"
_PARAMETERS: Final = {
    "concurrency": "concurrency",
    "rate": "rate_limit",
    "bucket": "token_bucket",
    "max_waiting": "max_waiting",
}
"""The parameter of the operations core of each option."""
_EXAMPLES: Final = {"concurrency": "20", "rate": "100/60", "bucket": "10/2", "max_waiting": "1000"}

OneKey = Annotated[str | None, typer.Option("--key", metavar="KEY", help="The limits of this ordering key.")]
EveryKey = Annotated[bool, typer.Option("--every-key", help="The limits of keys that have none of their own.")]
Concurrency = Annotated[
    str | None,
    typer.Option("--concurrency", metavar="N|none", help="Maximum number of jobs that run at the same time."),
]
Rate = Annotated[
    str | None, typer.Option("--rate", metavar="N/SECONDS|none", help="Maximum number of starts in a window: 100/60.")
]
Bucket = Annotated[
    str | None,
    typer.Option("--bucket", metavar="TOKENS/RATE|none", help="A token bucket of keys: its capacity, tokens a second."),
]
MaxWaiting = Annotated[
    str | None,
    typer.Option(
        "--max-waiting", metavar="N|none", help="Maximum number of waiting jobs. The queue refuses further adds."
    ),
]


@with_target
def limits(
    target: CommandTarget,
    queue: OneQueue = None,
    key: OneKey = None,
    every_key: EveryKey = False,
    concurrency: Concurrency = None,
    rate: Rate = None,
    bucket: Bucket = None,
    max_waiting: MaxWaiting = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Show the limits of queues, or set the limits of a queue, of --key, or of --every-key. `none` removes a limit."""
    from glidemq_async.cli import targets

    texts = {"concurrency": concurrency, "rate": rate, "bucket": bucket, "max_waiting": max_waiting}
    given = {name: text for name, text in texts.items() if text is not None}
    of_keys = key is not None or every_key
    _check(queue, key, every_key, given)
    values = _values(given)

    async def do() -> Document:
        if queue is None:
            async with targets.open_ops(target) as ops:
                names = await ops.queue_names()
                return {"limits": [await _of_queue(await ops.queue(name)) for name in names]}
        async with targets.open_change(queue, target) as (ops, opened):
            if values:
                if of_keys:
                    await ops.set_key_limits(queue, key, **values, note=reason)
                else:
                    await ops.set_limits(queue, **values, note=reason)
            shown = await _of_queue(opened)
            return {"limits": [shown, await _of_key(opened, key)] if key is not None else [shown]}

    answer(do(), _show, as_json=as_json)


def _check(queue: str | None, key: str | None, every_key: bool, given: dict[str, str]) -> None:
    if queue is None and (given or key is not None or every_key):
        raise typer.BadParameter("name the queue whose limits it sets", param_hint="QUEUE")
    if key is not None and every_key:
        raise typer.BadParameter("it cannot be combined with --every-key", param_hint="--key")
    if "bucket" in given and key is None and not every_key:
        raise typer.BadParameter("only keys have token buckets; use --key or --every-key", param_hint="--bucket")
    if "max_waiting" in given and (key is not None or every_key):
        raise typer.BadParameter("it limits the whole queue; leave out the key", param_hint="--max-waiting")


def _values(given: dict[str, str]) -> dict[str, Any]:
    from glidemq_async.queues.rates import RateLimit, TokenBucket

    values: dict[str, Any] = {}
    for name, text in given.items():
        if text == _NONE:
            values[_PARAMETERS[name]] = None
            continue
        first, second = _numbers(name, text)
        try:
            if name == "rate":
                values["rate_limit"] = RateLimit(int(first), second)
            elif name == "bucket":
                values["token_bucket"] = TokenBucket(first, second)
            else:
                values[name] = int(first)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=_option(name)) from None
    return values


def _numbers(name: str, text: str) -> tuple[float, float]:
    """Return the numbers in the text of an option. The second one is 0 if the option takes only one."""
    first, slash, second = text.partition("/")
    example = _EXAMPLES[name]
    try:
        if bool(slash) != ("/" in example):
            raise ValueError
        return (float(first) if name == "bucket" else int(first)), float(second or 0)
    except ValueError:
        said = f"it is {text!r}; write {_option(name)} {example}, or none"
        raise typer.BadParameter(said, param_hint=_option(name)) from None


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


async def _of_queue(queue: Queue[Any, Any]) -> Document:
    return {
        "queue": queue.name,
        "key": None,
        "concurrency": await queue.get_global_concurrency(),
        "rate_limit": _rate(await queue.get_global_rate_limit()),
        "max_waiting": await queue.get_max_waiting(),
        "every_key": _key_document(await queue.get_key_limits(None)),
    }


async def _of_key(queue: Queue[Any, Any], key: str) -> Document:
    found = await queue.get_key_limits(key)
    return {"queue": queue.name, "key": key, **_key_document(found), "paused_until": found.paused_until}


def _key_document(found: KeyLimits) -> Document:
    bucket = found.token_bucket
    return {
        "concurrency": found.concurrency,
        "rate_limit": _rate(found.rate_limit),
        "token_bucket": bucket and {"capacity": bucket.capacity, "refill_rate": bucket.refill_rate},
    }


def _rate(found: RateLimit | None) -> Document | None:
    return None if found is None else {"max": found.max, "duration": found.duration}


def _show(document: Document) -> None:
    from glidemq_async.cli import tables

    rows: list[list[object]] = []
    for one in document["limits"]:
        rows.append(_row(one["queue"], one["key"], one))
        every = one.get("every_key")
        if every and any(every.values()):
            rows.append(_row(one["queue"], "(every key)", every))
    kept = tables.Column("concurrency", kept=True)
    tables.print_table(["queue", "key", kept, "rate", "bucket", "waiting", "paused until"], rows, empty="no queues")


def _row(queue: str, key: str | None, one: Document) -> list[object]:
    rate, bucket = one["rate_limit"], one.get("token_bucket")
    return [
        queue,
        key,
        "no limit" if one["concurrency"] is None and key is None else one["concurrency"],
        rate and f"{rate['max']}/{rate['duration']:g} s",
        bucket and f"{bucket['capacity']:g}, {bucket['refill_rate']:g}/s",
        one.get("max_waiting"),
        one.get("paused_until"),
    ]
