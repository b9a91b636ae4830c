"""The decision about a failed call: send it again or not, on which connection, and after which pause.

`server` contains the loop that sends it again.
"""

# Sending a call again is safe only because of its number. A lost connection does not show if the server has executed
# the call. Every call that changes something carries a request channel and a number, and the function stores the last
# number and its reply. If the server executed the first attempt and only the reply was lost, the second attempt finds
# its number and gets the stored reply. It has no second effect. Three rules follow:
#
# 1. A retry sends the same bytes. A call that is built again would have a new number, and would be executed twice.
# 2. The next call of a channel is sent after the reply to the current one, because a channel stores only its last
#    reply.
# 3. No other layer may retry. redis-py is therefore used without retries: it would repeat commands without numbers.
#
# A call that gave up may or may not have been executed, and its error says so. A `job_id` makes the next add safe.

from __future__ import annotations

import enum
import random
import re
from dataclasses import dataclass, field
from typing import Final

from glidemq_async.errors import GlideMQError, QueueFull, StorageUnavailable
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.storage.redis.access import GUIDE, CallRefused, missing_rule, refused

FIRST_PAUSE: Final = 0.005
LONGEST_PAUSE: Final = 0.5
TRY_SECONDS: Final = 5.0
"""Seconds without progress after which a connection is given up and its calls are sent again."""


class Verdict(enum.Enum):
    """The next step after a failed attempt."""

    AGAIN = "again"
    """Wait, then send the same request on the same connection."""
    ELSEWHERE = "elsewhere"
    """The node may have another role now: drop the connection, find the responsible node, and send again."""
    LOAD = "load"
    """The function library is missing: load it, then send again."""
    FAIL = "fail"
    """Another attempt cannot succeed."""


_ELSEWHERE: Final = frozenset({"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "UNBLOCKED"})
# UNBLOCKED ends a blocking read when its server becomes a replica.
# ASK is not followed but waited out: while a cluster slot moves key by key, the other node has a part of the queue.
_AGAIN: Final = frozenset({"TRYAGAIN", "ASK", "BUSY", "NOREPLICAS", "MISCONF"})


# The order of the tests matters. A GlideMQError was raised by our own code, which has already decided that another
# attempt cannot succeed. LoginRefused, for example, must not be retried as if the server were down: many refused logins
# can lock the user.
#
# A lost connection and a timeout give ELSEWHERE, because both may be the first signs of a failover. The storage then
# looks for the node again instead of connecting to the same address for the whole timeout.
def judge(problem: Exception) -> Verdict:
    """Return the next step after an error reply or a lost connection."""
    if isinstance(problem, GlideMQError):
        return Verdict.FAIL
    if isinstance(problem, OSError | TimeoutError):
        return Verdict.ELSEWHERE
    text = str(problem)
    code = text.split(" ", 1)[0]
    if code in _ELSEWHERE:
        return Verdict.ELSEWHERE
    if code in _AGAIN:
        return Verdict.AGAIN
    if text.startswith("ERR Function not found"):
        return Verdict.LOAD
    return Verdict.FAIL


# The position in the library at which an error was raised. Some servers append it.
_WHERE: Final = re.compile(r" script: (?:\S+, )?on \S+$")


def failure(problem: Exception, function: str, where: str) -> GlideMQError:
    """Return the exception for an error reply that is final."""
    if isinstance(problem, GlideMQError):
        return problem
    text = str(problem).rstrip(".")  # a sentence follows it
    code, _, rest = text.partition(" ")
    if code == "GLIDEMQ":
        own_code, _, message = rest.partition(" ")
        message = _WHERE.sub("", message)
        if own_code == "FULL":
            return QueueFull(f"the queue takes no more jobs: {message}. Nothing was stored. Try again later.")
        return refused(where, message) if own_code == "ACCESS" else FunctionError(own_code, message)
    if code == "OOM":
        return QueueFull(
            f"{where} has reached its maxmemory and refused {function}. Nothing was stored. Raise maxmemory, "
            "shorten the retention of ended jobs, or let the workers catch up, then try again."
        )
    if code == "NOPERM":
        rule = missing_rule(text)
        return CallRefused(
            f"{where} does not allow {function}: {text}. Add to the user: {rule}; `glidemq acl` prints all rules that "
            f"it needs, see {GUIDE}.",
            rule,
        )
    # A server that waits for a login refuses a call with many arguments before it reads them, with a protocol error.
    if code in ("NOAUTH", "WRONGPASS") or "unauthenticated" in text:
        return StorageUnavailable(f"{where} does not allow {function}: {text}. Check the user and the password.")
    return FunctionError(code, rest)


def gave_up(problem: Exception, function: str, where: str, seconds: float) -> StorageUnavailable:
    """Return the error of a call that was tried for this long without success."""
    reason = str(problem).rstrip(".") or "no connection was opened in time"
    if function in {"connect", "find_keys"}:
        return StorageUnavailable(
            f"cannot reach {where} (tried for {seconds:.1f} s): {reason}. Start the server, or correct the URL or "
            "$GLIDEMQ_URL."
        )
    if reason.startswith("MISCONF"):
        return _unavailable(
            f"{where} refuses writes because it cannot store them, so {function} failed (tried for {seconds:.1f} s): "
            f"{reason}. Make room on the server's disk, or correct what its log names",
            ", then call again.",
        )
    return _unavailable(
        f"{function} got no reply from {where} (tried for {seconds:.1f} s); the last failure was: {reason}",
        ". It may or may not have been executed. Check that the server runs and can be reached, then call again.",
    )


def _unavailable(problem: str, caller_advice: str) -> StorageUnavailable:
    error = StorageUnavailable(problem + caller_advice)
    error.caller_advice = caller_advice
    return error


@dataclass(slots=True)
class RetryPauses:
    """Pauses in seconds that double from `first` to `longest`, each between half and all of its length."""

    first: float = FIRST_PAUSE
    longest: float = LONGEST_PAUSE
    _pause: float = field(default=0.0, init=False)

    def next(self) -> float:
        """Return the next pause in seconds."""
        # The random part spreads the clients of a server that restarts. Without it they would all connect in the same
        # milliseconds.
        self._pause = min(self._pause * 2 or self.first, self.longest)
        return self._pause * random.uniform(0.5, 1.0)
