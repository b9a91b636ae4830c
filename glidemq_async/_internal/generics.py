"""The type variables of queues: the payload of their jobs, and the result.

Both may be omitted (`Job[dict]`, `Job`) and are Any then.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar

Data = TypeVar("Data", default=Any)
Result = TypeVar("Result", default=Any)
