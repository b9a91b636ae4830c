"""What one worker process is told. A supervisor hands it on as one JSON line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]
LoopKind: TypeAlias = Literal["auto", "uvloop", "asyncio"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `glidemq worker` that concern each process. `shutdown_timeout` is in seconds."""

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
    """How many there are of them."""
    number: int | None = None
    """Which of the supervised processes this is, from 1; None for one that runs alone."""

    def to_line(self) -> bytes:
        """Return the form that travels to a worker process."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Settings:
        """Return what `to_line` wrote."""
        fields: dict[str, Any] = json.loads(line)
        fields["queues"] = tuple(fields["queues"])
        return cls(**fields)
