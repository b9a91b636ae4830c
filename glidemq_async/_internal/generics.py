"""The types a queue is generic in: what its jobs carry, and what they return.

Both may be left out, `Job[dict]` or plain `Job`: they are Any then.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar

Data = TypeVar("Data", default=Any)
Result = TypeVar("Result", default=Any)
