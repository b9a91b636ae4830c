"""The exception tree: base classes, messages, and pickling."""

import copy
import pickle
from datetime import timedelta

import pytest

from glidemq_async import errors

SAMPLES: list[Exception] = [
    errors.PayloadTooLarge("the payload", 11, 10, "payload_limit"),
    errors.SerializationError("no", "$.a"),
    errors.JobFailed("ValueError", "no", "Traceback …"),
    errors.HandlerError("ValueError", "no", "Traceback …"),
    errors.ExecutorError("the process is gone", exit_status=-9),
    errors.JobStateError("retry job 1", "completed", "add it again"),
    errors.QueueBusy("emails", 3),
    errors.JournalFull("1", "pay", "it has 3 steps", "max_steps"),
    errors.StepFailed("pay", "ValueError", "no", "Traceback …"),
    errors.WorkflowDiverged("checkout", ("pay(1)",), ("pay(2)",)),
    errors.WorkflowExists("checkout", "order-1", "active"),
    errors.RetryLater(2.5),
    errors.RateLimited(timedelta(minutes=1)),
    errors.UnrecoverableError("never"),
    errors.StorageUnavailable("gone"),
]


@pytest.mark.smoke
def test_every_exported_error_derives_from_the_root() -> None:
    assert sorted(errors.__all__) == errors.__all__
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.GlideMQError)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.StorageUnavailable, ConnectionError),
        (errors.EmbeddedServerMissing, errors.StorageUnavailable),
        (errors.PayloadTooLarge, ValueError),
        (errors.SerializationError, TypeError),
        (errors.SerializationError, ValueError),
        (errors.JobNotFound, LookupError),
        (errors.ResultTimeout, TimeoutError),
        (errors.CycleError, ValueError),
    ],
)
def test_errors_derive_from_the_expected_builtin_classes(error: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickle_and_copy(error: Exception) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_messages_state_the_action_the_state_and_the_remedy() -> None:
    assert str(errors.JobStateError("retry job 7", "active", "wait for it to end")) == (
        "cannot retry job 7: the job is active; wait for it to end"
    )
    too_large = str(errors.PayloadTooLarge("the payload", 2000, 1000))
    assert "2000" in too_large
    assert "1000" in too_large
    assert "the payload" in too_large


def test_only_a_limit_that_can_be_raised_is_advised() -> None:
    assert "raise" not in str(errors.PayloadTooLarge("headers", 70_000, 65_536))
    raisable = errors.PayloadTooLarge("data", 11, 10, "payload_limit")
    assert str(raisable).endswith("or raise payload_limit")


def test_a_failed_job_error_has_type_and_message() -> None:
    assert str(errors.JobFailed("ValueError", "bad")) == "ValueError: bad"
    assert str(errors.JobFailed("KeyboardInterrupt", "")) == "KeyboardInterrupt"


def test_delays_are_seconds_and_checked() -> None:
    assert errors.RetryLater(timedelta(seconds=90)).delay == 90
    assert errors.RateLimited(0.25).delay_ms == 250
    with pytest.raises(ValueError, match="delay must not be negative, got -1"):
        errors.RetryLater(-1)
