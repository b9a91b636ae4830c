"""The settings of one worker process. A supervisor passes them as one JSON line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]
LoopKind: TypeAlias = Literal["auto", "uvloop", "asyncio"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `glidemq worker` for each process. `shutdown_timeout` is in seconds."""

    app: str
    directory: str
    queues: tuple[str, ...] = ()
    concurrency: int | None = None
    shutdown_timeout: float | None = None
    health_port: int | None = None
    until_empty: bool = False
    loop: LoopKind = "auto"
    log_level: str = "info"
    log_format: LogFormat = "text"
    processes: int = 1
    """The number of worker processes."""
    number: int | None = None
    """The number of this supervised process, starting at 1; None without a supervisor."""

    def to_line(self) -> bytes:
        """Return the JSON line for a worker process."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Settings:
        """Return the settings that `to_line` wrote."""
        fields: dict[str, Any] = json.loads(line)
        fields["queues"] = tuple(fields["queues"])
        return cls(**fields)
