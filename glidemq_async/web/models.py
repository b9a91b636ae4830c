"""The models of requests: the fields of bodies and queries, checked before anything is sent to the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, cast, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from glidemq_async.queues.event_rules import MAX_EVENTS, SWITCHED_KINDS, EventContent
from glidemq_async.stored.names import MAX_ID_BYTES

_NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]+$"
Text = Annotated[str, Field(min_length=1, max_length=MAX_ID_BYTES, pattern=_NO_CONTROLS)]
Note = Annotated[str, Field(max_length=500)]
Seconds = Annotated[float, Field(gt=0, le=3_153_600_000, allow_inf_nan=False)]


def _digits(value: object) -> object:
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        raise ValueError("must be a whole number")
    return value


def _number(value: object) -> object:
    if isinstance(value, str) and not value.isascii():
        raise ValueError("must be a number")
    return value


# The validators take texts. The document shows the type of the value, and its bounds.
_Limit = Annotated[int, Field(ge=1, le=200)]
_Wait = Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)]
Limit = Annotated[_Limit, BeforeValidator(_digits, json_schema_input_type=_Limit)]
_Few = Annotated[int, Field(ge=1, le=100)]
Few = Annotated[_Few, BeforeValidator(_digits, json_schema_input_type=_Few)]
Wait = Annotated[_Wait, BeforeValidator(_number, json_schema_input_type=_Wait)]


def _has_int(annotation: object) -> bool:
    return annotation is int or any(_has_int(part) for part in get_args(annotation))


class Strict(BaseModel):
    """Base class of the models. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _with_whole_numbers(cls, given: object) -> object:
        """Return the fields with 3 in place of 3.0. JSON has one type for both."""
        if not isinstance(given, dict):
            return given
        fields = cast("dict[str, object]", given)
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() and cls._is_whole(name) else value
            for name, value in fields.items()
        }

    @classmethod
    def _is_whole(cls, name: str) -> bool:
        return name in cls.model_fields and _has_int(cls.model_fields[name].annotation)


_FILTER: Final = (
    "Terms such as `queue:mail* state:failed,delayed -name:resize key:7 attempts:>=3 added:<1h data.to:ada@x.org "
    "group:<fingerprint>`. A job matches if it meets all of them."
)


class JobQuery(Strict):
    """The query of a list of jobs."""

    filter: Annotated[str, Field(max_length=2_000, description=_FILTER)] = ""
    cursor: Annotated[str | None, Field(max_length=2_000, description="The cursor of the previous page.")] = None
    limit: Annotated[Limit, Field(description="Maximum number of jobs.")] = 50


class ListQuery(Strict):
    """The query of a list that has one page."""

    limit: Annotated[Limit, Field(description="Maximum number of rows.")] = 50


class AuditQuery(ListQuery):
    """The query of the audit lines."""

    cursor: Annotated[
        str | None, Field(pattern=r"^[0-9]{1,18}(-[0-9]{1,18})?$", description="The cursor of the previous page.")
    ] = None


class FailureQuery(Strict):
    """The query of a list of failure groups."""

    queue: Annotated[Text | None, Field(description="Only groups of this queue.")] = None
    limit: Annotated[Limit, Field(description="Maximum number of groups.")] = 50


def _truth(value: object) -> object:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


class EpisodeQuery(Strict):
    """The query of a list of episodes."""

    open: Annotated[bool, BeforeValidator(_truth), Field(description="Only episodes that are open.", strict=True)] = (
        False
    )
    limit: Annotated[Few, Field(description="Maximum number of episodes.")] = 50


class ResultQuery(Strict):
    """The query of a result."""

    wait: Annotated[Wait, Field(description="Seconds to wait for the end of the job.")] = 0.0


class EventQuery(Strict):
    """The query of a stream of live documents."""

    topics: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2_000,
            description="Topics, separated by commas: overview, queues, workers, schedules, `queue:<name>`.",
        ),
    ] = "overview"


class KeepModel(Strict):
    """The retention of ended jobs."""

    age: Seconds | None = None
    count: Annotated[int, Field(ge=0)] | None = None


class BackoffModel(Strict):
    """The time between attempts, in seconds."""

    kind: Literal["fixed", "exponential"] = "exponential"
    delay: Seconds
    max: Seconds | None = None
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.0


class DeduplicationModel(Strict):
    """Store one job for several adds with the same id; see docs/order-and-limits.md."""

    id: Text
    mode: Literal["simple", "throttle", "debounce"] = "simple"
    ttl: Seconds | None = None


class OptionsModel(Strict):
    """The options of a job, as in JobOptions. Durations are seconds."""

    job_id: Text | None = None
    delay: Seconds | None = None
    priority: Annotated[int, Field(ge=0, le=2_097_151)] | None = None
    lifo: bool | None = None
    attempts: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    backoff: BackoffModel | None = None
    timeout: Seconds | None = None
    ttl: Seconds | None = None
    key: Text | None = None
    cost: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    deduplication: DeduplicationModel | None = None
    keep_completed: bool | Annotated[int, Field(ge=0)] | KeepModel | None = None
    keep_failed: bool | Annotated[int, Field(ge=0)] | KeepModel | None = None
    headers: dict[str, str] | None = None


class NewJob(Strict):
    """A job to add. For a task, give `args` and `kwargs` as for the function, instead of `data`.

    The queue must be able to store the values. The default serializer stores integers of up to 64 bits.
    """

    name: Text
    data: Any = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    options: OptionsModel = OptionsModel()


class NewAwaitedJob(NewJob):
    """A job to add, whose result is awaited."""

    wait: Annotated[float, Field(gt=0, le=60, description="Seconds to wait for the result.")] = 30.0


class SignalBody(Strict):
    """The data of a signal."""

    data: Any = None
    once: Text | None = None
    ttl: Seconds | None = None


class NoBody(Strict):
    """An empty object."""


class PauseBody(Strict):
    """A pause of a queue. It ends after `seconds`, or by a resume."""

    note: Note = ""
    seconds: Seconds | None = None

    def end(self) -> datetime | None:
        """Return the end of the pause."""
        return None if self.seconds is None else datetime.now(UTC) + timedelta(seconds=self.seconds)


class NotedBody(Strict):
    """A note that other operators see."""

    note: Note = ""


class ReleaseBody(Strict):
    """The ordering key of a limit of keys, "" for all keys, or the id of a paused schedule."""

    key: Annotated[str, Field(max_length=256)] | None = None


class KeyPauseBody(Strict):
    """A pause of an ordering key."""

    seconds: Seconds


class RateModel(Strict):
    """At most `max` starts in each window of `duration` seconds."""

    max: Annotated[int, Field(ge=1, le=1_000_000_000)]
    duration: Annotated[float, Field(ge=0.001, le=3_153_600_000, allow_inf_nan=False)]


class LimitsBody(Strict):
    """Limits of a queue, at least one. null removes a limit."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": [name]} for name in ("concurrency", "rate_limit", "max_waiting")]}
    )
    concurrency: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    rate_limit: RateModel | None = None
    max_waiting: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    note: Note = ""


class RetentionBody(Strict):
    """The ended jobs to keep: all or none, a count, or both bounds. What is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
                for name in ("completed", "failed")
            ]
        }
    )
    completed: bool | Annotated[int, Field(ge=0)] | KeepModel | None = None
    failed: bool | Annotated[int, Field(ge=0)] | KeepModel | None = None
    note: Note = ""


def _known(kind: str) -> str:
    if kind not in SWITCHED_KINDS:
        raise ValueError(f"there is no event {kind!r} that can be switched off")
    return kind


SwitchedKind = Annotated[
    str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": sorted(SWITCHED_KINDS)})
]


class EventRulesBody(Strict):
    """Rules of the events of a queue, at least one. null removes a rule. `progress_interval` is in seconds."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [name]} for name in ("max_events", "off", "progress_interval", "content")]
        }
    )
    max_events: Annotated[int, Field(ge=1, le=MAX_EVENTS)] | None = None
    off: Literal["all"] | list[SwitchedKind] | None = None
    progress_interval: Annotated[float, Field(ge=0.001, le=86_400, allow_inf_nan=False)] | None = None
    content: EventContent | None = None
    note: Note = ""


class DrainBody(Strict):
    """The jobs to remove: with `delayed` the delayed and suspended ones too."""

    delayed: bool = False


class CleanBody(Strict):
    """Old jobs to remove. `grace` is their least age in seconds."""

    state: Literal["completed", "failed"] = "completed"
    grace: Annotated[float, Field(ge=0, le=3_153_600_000, allow_inf_nan=False)] = 0.0
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1_000


class ObliterateBody(Strict):
    """The ticket of the preview. With `force` running jobs are removed too."""

    ticket: Text
    force: bool = False


class RetryBody(Strict):
    """The options of a retry."""

    force: bool = False


class DelayBody(Strict):
    """The new delay of a job, in seconds from now."""

    delay: Annotated[float, Field(ge=0, le=3_153_600_000, allow_inf_nan=False)]


class PriorityBody(Strict):
    """The new priority of a job; 0 is the most urgent."""

    priority: Annotated[int, Field(ge=0, le=2_097_151)]


class MoveBody(Strict):
    """The queue to which a job moves."""

    to: Text


class EditBody(Strict):
    """Changes of a job. `data` names arguments of a task or items of a mapping; the others stay."""

    data: Any = None
    options: dict[str, Any] | None = None
    force: bool = False


class NewOperation(Strict):
    """A bulk operation."""

    action: Literal["retry", "cancel", "promote", "delay", "move", "delete", "edit"]
    filter: Annotated[str, Field(min_length=1, max_length=2_000, description=_FILTER)]
    arguments: Annotated[
        dict[Literal["delay", "to", "data", "options", "force"], Any],
        Field(description="They depend on the action: `delay` in seconds, `to`, `data`, `options`, `force`."),
    ] = {}
    reason: Note = ""


class StartBody(Strict):
    """The start of a previewed operation. `rate` is in jobs a second."""

    ticket: Text
    rate: Annotated[
        Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None, Field(description="Jobs per second.")
    ] = None
    stop_if_failing: Annotated[
        Annotated[float, Field(gt=0, le=1)] | None,
        Field(description="The share of failures among the retried jobs above which it stops."),
    ] = 0.5


class AlertBody(Strict):
    """An alert rule. Webhooks, secret and format that are left out stay as they are."""

    condition: Annotated[str, Field(min_length=1, max_length=200)]
    queues: Annotated[list[Text], Field(min_length=1, max_length=50)] = ["*"]
    webhooks: Annotated[list[Annotated[str, Field(max_length=2_000)]], Field(max_length=5)] | None = None
    secret: Annotated[str, Field(max_length=200)] | None = None
    format: Literal["json", "slack"] | None = None
    note: Note = ""
