"""Tasks that receive the messages of a topic."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Final, cast

from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.protocol import Executor
from glidemq_async.functions.topics import Message
from glidemq_async.options.job_options import JobOptionsDict
from glidemq_async.options.retry_rules import ErrorTypes
from glidemq_async.options.validation import whole_number
from glidemq_async.tasks.arguments import Arguments
from glidemq_async.tasks.dependencies import injected
from glidemq_async.tasks.models import is_named_tuple, is_pydantic_model
from glidemq_async.tasks.task import AnyTask
from glidemq_async.tasks.values import converter_of
from glidemq_async.topics.feeding import DEFAULT_BACKLOG
from glidemq_async.topics.reader import TopicListener
from glidemq_async.topics.subjects import Start, check_patterns, stored_start, subscription_queue, topic_queue
from glidemq_async.topics.topic import Topic, decode_message

__all__ = ["SubscribeOptionsDict", "SubscribedTask"]


class SubscribeOptionsDict(JobOptionsDict, total=False):
    """The keywords of `mq.subscribe`: the options of the subscription, and the defaults of its jobs."""

    name: str | None
    start: Start
    backlog: int
    executor: str | Executor | None
    permissions: Permissions | None
    retry_on: ErrorTypes | None
    give_up_on: ErrorTypes | None


OWN: Final = ("name", "start", "backlog")


@dataclass(frozen=True, slots=True)
class SubscribedTask:
    """A task whose jobs are the messages of a topic."""

    task: AnyTask
    topic: str
    name: str
    patterns: tuple[str, ...]
    start: str
    backlog: int


def subscribed(
    topic: str,
    patterns: Sequence[str],
    given: Mapping[str, Any],
    function: Callable[..., Any],
    declare: Callable[[Callable[..., Any], Mapping[str, Any]], AnyTask],
) -> SubscribedTask:
    """Declare the task of a subscription. Raises TypeError or ValueError for bad options."""
    _check_one_argument(function)
    if callable(given.get("key")):
        raise TypeError("key= of a subscription must be a str: publish messages with key=, which their jobs keep")
    name = cast("str", given.get("name") or function.__name__)
    queue = subscription_queue(topic, name)
    checked = check_patterns(patterns)
    start = stored_start(given.get("start", "now"))
    backlog = whole_number("backlog", given.get("backlog", DEFAULT_BACKLOG), least=1)
    of_task = {option: value for option, value in given.items() if option not in OWN}
    task = declare(function, {**of_task, "name": queue, "queue": queue})
    return SubscribedTask(task, topic, name, checked, start, backlog)


def listener_of(topic: str, patterns: tuple[str, ...], function: Callable[..., Any]) -> TopicListener:
    """Return the listener of a function. Raises TypeError or ValueError."""
    _check_one_argument(function)
    topic_queue(topic)
    return TopicListener(function, topic, patterns)


def call_of(value: object) -> object:
    """Return the data of the job of a message: a call whose only argument is the data of the message."""
    return {"a": [value], "k": {}}


def stored_value(data: Any) -> object:
    """Return the data of a message in its stored form. Raises TypeError if a value of its class cannot be stored."""
    kind: type[Any] = data.__class__
    if is_dataclass(kind) or is_named_tuple(kind) or is_pydantic_model(kind):
        converter = converter_of(kind)
        return data if converter is None else converter.encode(data)
    return data


def decoder_of(listener: TopicListener, topic: Topic) -> Callable[[Message], object]:
    """Return a function that reads the data of a message as the annotation of the listener says."""
    function = listener.function
    arguments = Arguments(function.__name__, function, frozenset())

    def decode(message: Message) -> object:
        values, _ = arguments.read(call_of(decode_message(topic, message)))
        return values[0]

    return decode


def _check_one_argument(function: Callable[..., Any]) -> None:
    if not inspect.isroutine(function):
        raise TypeError(f"a subscription needs a function, not {function!r}")
    provided = injected(function)
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name not in provided]
    try:
        inspect.Signature(parameters).bind(None)
    except TypeError:
        raise TypeError(
            f"{function.__name__} must take the data of a message as its only required argument, by position"
        ) from None
