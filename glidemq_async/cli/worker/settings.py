"""The settings of one worker process. A supervisor passes them as one JSON line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]
LoopKind: TypeAlias = Literal["auto", "uvloop", "asyncio"]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The options of `glidemq worker` for each process."""

    app: str
    directory: str
    queues: tuple[str, ...] = ()
    options: Mapping[str, float | str] = field(default_factory=dict[str, float | str])
    """The options of the app's worker that were given; see WorkerOptions."""
    until_empty: bool = False
    server_timeout: float = 60.0
    """Seconds for which a start waits for a server that cannot be reached."""
    loop: LoopKind = "auto"
    log_level: str = "info"
    log_format: LogFormat = "text"
    processes: int = 1
    """The number of worker processes."""
    number: int | None = None
    """The number of this supervised process, starting at 1; None without a supervisor."""

    @property
    def health_port(self) -> int | None:
        """The port for health probes, None without one."""
        port = self.options.get("health_port")
        return None if port is None else int(port)

    def to_line(self) -> bytes:
        """Return the JSON line for a worker process."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> WorkerSettings:
        """Return the settings that `to_line` wrote."""
        fields: dict[str, Any] = json.loads(line)
        fields["queues"] = tuple(fields["queues"])
        return cls(**fields)
