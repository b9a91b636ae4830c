"""The decorators of an app that declare tasks, and their options."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar, Unpack, cast, overload

from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.protocol import Executor
from glidemq_async.executors.registry import check_executor, check_permissions
from glidemq_async.options.job_options import JobOptions, JobOptionsDict, explicit, merge
from glidemq_async.options.retry_rules import ErrorTypes, RetryRules
from glidemq_async.options.validation import refuse_unknown
from glidemq_async.queues.rates import RateLimit, TokenBucket
from glidemq_async.schedules.schedule import Schedule, ScheduleOptionsDict
from glidemq_async.stored.names import check_name
from glidemq_async.tasks.core import AppCore, CronTask
from glidemq_async.tasks.declared_limits import EVERY_KEY, LIMITS, limits_of_task
from glidemq_async.tasks.definition import TaskDefinition, TaskSettings
from glidemq_async.tasks.key_functions import KeyFunction
from glidemq_async.tasks.registry import job_name
from glidemq_async.tasks.signals import declare_signal
from glidemq_async.tasks.steps import Step, StepDecorator, StepOptionsDict, step_of
from glidemq_async.tasks.subscriptions import SubscribeOptionsDict, listener_of, subscribed
from glidemq_async.tasks.task import AnyTask, AsyncTask, P, PlainTask, R
from glidemq_async.tasks.workflows import NewCode, Workflow, WorkflowDecorator, body_of, is_pinned
from glidemq_async.topics.reader import TopicListener
from glidemq_async.topics.subjects import check_patterns, stored_start
from glidemq_async.workflows.fingerprint import fingerprint_of
from glidemq_async.workflows.run import OnDivergence

Kind = TypeVar("Kind")

__all__ = ["CronOptionsDict", "Declaring", "TaskDecorator", "TaskOptionsDict", "WorkflowOptionsDict"]


class TaskOptionsDict(JobOptionsDict, total=False):
    """The keywords of `mq.task`: the options of the task, and the defaults of its jobs."""

    name: str | None
    queue: str | None
    executor: str | Executor | None
    permissions: Permissions | None
    aliases: Sequence[str]
    version: int | None
    retry_on: ErrorTypes | None
    give_up_on: ErrorTypes | None
    key: str | KeyFunction | None  # type: ignore[misc]  # pyright: ignore[reportIncompatibleVariableOverride]
    concurrency: int | None
    rate_limit: RateLimit | None
    token_bucket: TokenBucket | None


class CronOptionsDict(TaskOptionsDict, ScheduleOptionsDict, total=False):
    """The keywords of `mq.cron`: the options of the schedule, and the keywords of `mq.task`."""


class WorkflowOptionsDict(JobOptionsDict, total=False):
    """The keywords of `mq.workflow`: the options of the workflow, and the defaults of its jobs."""

    name: str | None
    queue: str | None
    aliases: Sequence[str]
    version: int | None
    retry_on: ErrorTypes | None
    give_up_on: ErrorTypes | None
    on_divergence: OnDivergence
    new_code: NewCode
    key: str | KeyFunction | None  # type: ignore[misc]  # pyright: ignore[reportIncompatibleVariableOverride]
    concurrency: int | None
    rate_limit: RateLimit | None
    token_bucket: TokenBucket | None


class TaskDecorator(Protocol):
    """Turns a function into a task and keeps its signature."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first that fits is meant
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


_OWN: Final = ("name", "queue", "executor", "permissions", "aliases", "version", "retry_on", "give_up_on", *LIMITS)
_NOT_OF_TASKS: Final = ("job_id", "at")


class Declaring:
    """The decorators of an app."""

    def __init__(self, core: AppCore, queue: str) -> None:
        self._core = core
        self._default_queue = check_name("queue name", queue)

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """All tasks by their names and by their aliases."""
        return self._core.tasks

    @property
    def queues(self) -> frozenset[str]:
        """The names of the queues of all tasks."""
        return self._core.tasks.queues()

    @overload
    def task(  # type: ignore[overload-overlap]  # the first that fits is meant
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(self, function: None = None, /, **options: Unpack[TaskOptionsDict]) -> TaskDecorator: ...

    def task(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptionsDict]) -> Any:
        """Turn a function into a task: `@mq.task`, or `@mq.task(...)` with options.

        - `name`: the name of its jobs, by default the function's name. A job finds its task only by this name, so keep
          the old name of a renamed task in `aliases`.
        - `aliases`: further job names that the task runs.
        - `version`: becomes part of the name ("resize@2"). Use it when the signature changes while jobs of the old one
          wait, and declare both until those jobs are done.
        - `queue`: the queue of its jobs, by default the app's.
        - `executor`: "inline" (the default for coroutine functions), "thread" (the default for plain functions),
          "subprocess", the name of a registered executor, or an Executor.
        - `permissions`: the permissions of a run in a subprocess. Without `executor` they select the subprocess
          executor.
        - `retry_on`: exception types that are retried while attempts are left; all other types fail the job without
          another attempt. `give_up_on`: exception types that fail the job without another attempt, even if `retry_on`
          includes them. If one of them is set, both options of the worker are ignored for this task.
        - `key`: the ordering key of its jobs, or a function that returns the key of each job, a str or None:
          `key=lambda tenant, **_: tenant`. Each add calls it with all arguments by name, with their defaults, unless
          the job has another `key`.
        - `concurrency`, `rate_limit`, `token_bucket`: the limits of the keys of its jobs, as in `queue.set_key_limits`.
          With a fixed `key` they apply to this key, and with a function to each key of the queue that has no limits of
          its own, also to keys of other tasks. Workers store them when they start. The limits of an operator apply
          instead.
        - the options of JobOptions: defaults for its jobs, which override the defaults of the app. `job_id` and `at`
          are not allowed, because they belong to a single job.

        Raises TypeError or ValueError for bad options, for a function whose dependencies cannot be provided, for a key
        function that cannot take the arguments, for limits without a key, and when the app already has a task of this
        name or a task with other limits for the same key.
        """
        given = cast("dict[str, Any]", options)
        if function is not None:
            return self._declare(function, given)
        refuse_unknown(given, TaskOptionsDict.__annotations__, "task")

        def declare(found: Callable[..., Any]) -> AnyTask:
            return self._declare(found, given)

        return declare

    def cron(self, expression: str | Schedule, /, **options: Unpack[CronOptionsDict]) -> TaskDecorator:
        """Turn a function into a task with a schedule: a cron expression in the time zone `tz`, or a Schedule.

        A job scheduler with the task's name is upserted when the app is opened and when one of its workers starts. Each
        fire time adds one job, however many processes take part. The other keywords are the fields of Schedule
        (`start`, `end`, `limit`, `missed`, `catch_up`, `overlap`, `jitter`) and of `mq.task`. The function must be
        callable without arguments. A cron that is deleted from the code stays in the store; to remove it call
        `await mq.queue(...).remove_job_scheduler(name)`.

        Raises the errors of `task`, and TypeError or ValueError for a bad schedule.
        """
        given = cast("dict[str, Any]", options)
        refuse_unknown(given, CronOptionsDict.__annotations__, "cron")
        fields = {name: given.pop(name) for name in _SCHEDULE if name in given}
        if isinstance(expression, Schedule):
            if fields:
                raise ValueError(
                    f"{', '.join(fields)} cannot be combined with a Schedule object; set it in {expression!r}"
                )
            schedule = expression
        else:
            schedule = Schedule(cron=expression, **fields)

        def declare(function: Callable[..., Any]) -> Any:
            # The jobs of a schedule are made on the server from a template, without a call of Python code that could
            # compute arguments.
            _check_callable_alone(function)
            task = self._declare(function, given)
            self._core.crons.append(CronTask(task, schedule))
            return task

        return cast("TaskDecorator", declare)

    @overload
    def subscribe(
        self, topic: str, /, *patterns: str, ephemeral: Literal[True]
    ) -> Callable[[Callable[..., Any]], TopicListener]: ...
    @overload
    def subscribe(
        self, topic: str, /, *patterns: str, ephemeral: Literal[False] = False, **options: Unpack[SubscribeOptionsDict]
    ) -> TaskDecorator: ...

    def subscribe(self, topic: str, /, *patterns: str, ephemeral: bool = False, **options: Any) -> Any:
        """Turn a function into a subscription: `@mq.subscribe("orders", "order.paid.*", name="invoices")`.

        Each message of the topic whose subject fits becomes one job of the task, whose only argument is the data of the
        message. The jobs are in the queue `<topic>.<name>`, with their own retries, limits, pause and dead letters. The
        workers of the app move the messages there. The headers of the job (`current_job().headers`) have the `topic`,
        the `subject` and the `message_id`. The key of a message is the ordering key of its job.

        - `patterns`: `*` fits one token of a subject, a final `>` one or more, and a pattern with `!` in front excludes
          subjects. Without patterns, every message fits.
        - `name`: the name of the subscription, by default the function's name. Its position is stored under it.
        - `start`: where a new subscription begins: "now", which is when the app is first opened, "beginning", an
          instant with a time zone, or the id of a message.
        - `backlog`: the number of waiting jobs above which messages stay in the topic (default: 1,000).
        - `executor`, `permissions`, `retry_on`, `give_up_on` and the options of JobOptions: as for `task`.
        - `ephemeral`: call the function for each message in every process that has opened the app, without a queue,
          at most once and one after another. It has no other options. The result is a TopicListener.

        Raises the errors of `task`, TypeError or ValueError for a bad pattern or start.
        """
        given = options
        if ephemeral:
            refuse_unknown(given, (), "subscribe(..., ephemeral=True)")
            return partial(self._listen, topic, check_patterns(patterns))
        refuse_unknown(given, SubscribeOptionsDict.__annotations__, "subscribe")
        check_patterns(patterns)
        stored_start(given.get("start", "now"))

        def declare(function: Callable[..., Any]) -> AnyTask:
            made = subscribed(topic, patterns, given, function, self._declare)
            self._core.subscriptions.append(made)
            return made.task

        return declare

    def _listen(self, topic: str, patterns: tuple[str, ...], function: Callable[..., Any]) -> TopicListener:
        listener = listener_of(topic, patterns, function)
        self._core.listeners.append(listener)
        return listener

    @overload
    def signal(self, kind: type[Kind], /) -> type[Kind]: ...
    @overload
    def signal(self, kind: None = None, /, *, name: str | None = None) -> Callable[[type[Kind]], type[Kind]]: ...

    def signal(self, kind: type[Any] | None = None, /, *, name: str | None = None) -> Any:
        """Register a class whose instances can be sent as signals: `@mq.signal`, or `@mq.signal(name="approved")`.

        The class is a dataclass, a NamedTuple or a pydantic model. `name` is the name of the signal, by default the
        name of the class. `job.send` and `queue.send` send an instance, `job.suspend(signals=[...])` waits for the
        class, and `job.received` returns the instances.

        Raises TypeError for any other class, ValueError for a bad name.
        """
        if kind is not None:
            return declare_signal(kind, None)

        def declare(found: type[Any]) -> type[Any]:
            return declare_signal(found, name)

        return declare

    @overload
    def workflow(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def workflow(self, function: None = None, /, **options: Unpack[WorkflowOptionsDict]) -> WorkflowDecorator: ...

    def workflow(self, function: Callable[..., Any] | None = None, /, **options: Unpack[WorkflowOptionsDict]) -> Any:
        """Turn a coroutine function into a workflow: its steps are executed once for each run.

        - `on_divergence`: what happens when the code of the workflow has changed, a job of the old code runs again, and
          the new code does not ask for a recorded step. "park": the job fails with the cause "diverged" and can be
          retried. "fail": it fails as unrecoverable. "warn": a warning is logged, and the job continues.
        - `new_code`: which workers continue a run whose code has changed since it was started. "continue": all workers
          of the workflow. "pin": only workers with the earlier code, because the name of the jobs contains the
          fingerprint of the function, or its `version`. Without such a worker the run waits.
        - `name`, `queue`, `aliases`, `version`, `retry_on`, `give_up_on`, the limits of its keys and the options of
          JobOptions: as for `task`.

        Raises the errors of `task`.
        """
        given = cast("dict[str, Any]", options)
        refuse_unknown(given, WorkflowOptionsDict.__annotations__, "workflow")

        def declare(found: Callable[..., Any]) -> Workflow[..., Any]:
            if not inspect.iscoroutinefunction(found):
                raise TypeError(f"a workflow must be a coroutine function (async def), not {found!r}")
            of_task = {name: value for name, value in given.items() if name not in {"on_divergence", "new_code"}}
            if is_pinned(given.get("new_code", "continue")) and given.get("version") is None:
                of_task["name"] = f"{given.get('name') or found.__name__}@{fingerprint_of(found)}"
            body = body_of(found, given.get("on_divergence", "park"))
            # Inline: the process of a subprocess executor would import the workflow by its name and find no task.
            return Workflow(self._declare(body, {**of_task, "executor": "inline"}), found)

        return declare if function is None else declare(function)

    @overload
    def step(self, function: Callable[P, Awaitable[R]], /) -> Step[P, R]: ...
    @overload
    def step(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def step(self, function: None = None, /, **options: Unpack[StepOptionsDict]) -> StepDecorator: ...

    def step(self, function: Callable[..., Any] | None = None, /, **options: Unpack[StepOptionsDict]) -> Any:
        """Turn a function into a step of workflows, whose result is recorded.

        - `name`: the name of the step, by default the function's name. It identifies recorded calls, so keep the old
          name of a renamed function.
        - `attempts`: how often a call is tried. The failure of the last attempt is recorded, and raised as StepFailed
          in this and in later runs. Without this option a failure is not recorded, and raised as it is.
        - `backoff`: the wait between two attempts, in which the run keeps its slot.
        - `timeout`: the time of one attempt in seconds. Then it is cancelled and raises TimeoutError.

        Raises TypeError or ValueError for bad options.
        """
        given = cast("dict[str, Any]", options)
        refuse_unknown(given, StepOptionsDict.__annotations__, "step")

        def declare(found: Callable[..., Any]) -> Step[..., Any]:
            return step_of(found, given)

        return declare if function is None else declare(function)

    def _declare(self, function: Callable[..., Any], given: Mapping[str, Any]) -> AnyTask:
        # Mistakes are refused when the module is imported, except those in annotations, which may name a class further
        # down. A mistake that only a job shows would be found in production.
        settings = self._settings(function, given)
        _check_executor(function, settings)
        definition = TaskDefinition(function, settings)
        if not definition.runs_here and definition.dependencies:
            raise TypeError(
                f"task {definition.name!r}: {', '.join(definition.dependencies)} would be created in the worker's "
                f"process, but executor={definition.executor!r} runs the function in another process; create it inside "
                "the function"
            )
        # Two classes only for type checkers: a call of the one returns a coroutine, a call of the other the value.
        kind = AsyncTask[..., Any] if definition.is_async else PlainTask[..., Any]
        task = kind(self._core, definition)
        limits = limits_of_task(definition.name, definition.queue, given, self._limited_key(settings))
        self._core.limits.check_task(definition.name, definition.queue, limits)
        self._core.tasks.add(task)
        self._core.limits.add_task(definition.name, definition.queue, limits)
        return task

    def _limited_key(self, settings: TaskSettings) -> str | None:
        """Return the key that the limits of a task apply to, "" for each key, None if its jobs have no key."""
        is_keyed = self._core.settings.shared.get("mode") == "keyed"
        if settings.key_function is not None:
            return EVERY_KEY
        return settings.options.key or (EVERY_KEY if is_keyed else None)

    def _settings(self, function: Callable[..., Any], given: Mapping[str, Any]) -> TaskSettings:
        _check_function(function)
        _check_options(given)
        own = {name: given[name] for name in _OWN if given.get(name) is not None}
        of_jobs = {name: given[name] for name in given if name not in _OWN}
        defaults = self._core.settings.default_options
        key = given.get("key")
        if callable(key):
            defaults, of_jobs = _without_key(defaults), {name: of_jobs[name] for name in of_jobs if name != "key"}
        version = own.get("version")
        return TaskSettings(
            name=job_name(own.get("name", function.__name__), version),
            queue=check_name("queue name", own.get("queue", self._default_queue)),
            executor=own.get("executor"),
            permissions=own.get("permissions"),
            aliases=_names(own.get("aliases", ())),
            version=version,
            retry_rules=RetryRules.checked(own.get("retry_on"), own.get("give_up_on")),
            options=merge(defaults, of_jobs),
            key_function=cast("KeyFunction", key) if callable(key) else None,
        )


_SCHEDULE: Final = tuple(CronOptionsDict.__annotations__.keys() - TaskOptionsDict.__annotations__.keys())


def _without_key(options: JobOptions) -> JobOptions:
    given = explicit(options)
    given.pop("key", None)
    return JobOptions(**given)


def _names(aliases: object) -> tuple[str, ...]:
    if isinstance(aliases, str) or not isinstance(aliases, Sequence):
        raise TypeError(f"aliases must be a list of names, got {aliases!r}")
    return tuple(job_name(name, None) for name in cast("Sequence[str]", aliases))


def _check_callable_alone(function: Callable[..., Any]) -> None:
    for parameter in inspect.signature(function).parameters.values():
        variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not variable:
            raise TypeError(
                f"{function.__name__} cannot run by a schedule, because its argument {parameter.name!r} has no default"
            )


def _check_executor(function: Callable[..., Any], settings: TaskSettings) -> None:
    spec = settings.executor
    check_executor(spec)
    is_async = inspect.iscoroutinefunction(function)
    if spec == "inline" and not is_async:
        raise TypeError(f"{settings.name}: a plain function would block the event loop; use executor='thread'")
    if spec == "thread" and is_async:
        raise TypeError(f"{settings.name}: threads run only plain functions; use executor='inline'")
    if spec is not None:  # permissions without an executor select the subprocess
        check_permissions(spec, settings.permissions)


def _check_options(given: Mapping[str, Any]) -> None:
    for option in _NOT_OF_TASKS:
        if given.get(option) is not None:
            raise ValueError(f"{option}={given[option]!r} applies to a single job; use task.options({option}=...)")


def _check_function(function: Callable[..., Any]) -> None:
    """Raise TypeError for an object that cannot be a task."""
    if not inspect.isroutine(function):
        raise TypeError(f"a task must be a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__name__} is a generator function, but a job has one result; return a list")
