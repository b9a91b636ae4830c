"""The processor time of single function calls.

The slow log has the time between the start and the end of a call. On a busy machine this includes the time in which the
server waited for a processor. Here the server notes both times of each call, in a measured form of the library. It asks
for its processor time before each call, which takes some microseconds. So the measured form is loaded only while no
cost of the server is measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from glidemq_async.functions import loader
from glidemq_async.storage.redis.library import shipped
from glidemq_async.storage.redis.wire import Wire, as_list, as_text

from .meter import Rows
from .server import ask

MEASURED: Final = "measured calls: "
"""The prefix of the rows of this module."""
LEAST: Final = 1_000
"""The microseconds from which a call is noted."""
_REPORT: Final = loader.function_name("benchmarkTimes")

_REGISTERS: Final = "local register_function = redis.register_function\n"
_MEASURES: Final = f"""
local register_unmeasured, noted = redis.register_function, {{}}
local function processor_us()
  local total = 0
  for time in string.gmatch(redis.call('INFO', 'cpu'), 'used_cpu_%a+_main_thread:([%d.]+)') do total = total + time end
  return total * 1000000
end
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
local function note(name, wall, processor)
  local row = noted[name] or {{0, 0, 0}}
  noted[name] = row
  if wall > row[1] then row[1], row[2] = wall, processor end
  if processor > row[3] then row[3] = processor end
end
local function register_function(given)
  local call, name = given.callback, given.function_name
  given.callback = function(keys, args)
    local began, processor = now_us(), processor_us()
    local reply = call(keys, args)
    if now_us() - began >= {LEAST} then
      processor = processor_us() - processor
      note(name, now_us() - began, processor)
    end
    return reply
  end
  register_unmeasured(given)
end
register_unmeasured{{function_name = '{_REPORT}', flags = {{'no-writes'}}, callback = function()
  local found = {{}}
  for name, row in pairs(noted) do
    found[#found + 1] = string.format('%s %.0f %.0f %.0f', name, row[1], row[2], row[3])
  end
  return found
end}}
"""


def measured_text() -> str:
    """Return the library with its measurements. It has the stamp of the shipped library, so clients keep it."""
    text = shipped().stamped
    if text.count(_REGISTERS) != 1:
        raise RuntimeError("the library does not register its functions in the way that the measurement expects")
    return text.replace(_REGISTERS, _MEASURES)


@contextlib.asynccontextmanager
async def processor_times(wire: Wire, name: str) -> AsyncGenerator[Rows]:
    """Note a row for each function with a long call. The rows are available after the block.

    wall_us: the longest call; processor_us: the processor time of the server's thread during this call;
    most_processor_us: the longest processor time of a call that was noted. A server that stops its clock during a
    call notes none.
    """
    rows: Rows = {}
    await ask(wire, "FUNCTION", "LOAD", "REPLACE", measured_text())
    try:
        yield rows
        for line in as_list(await ask(wire, "FCALL_RO", _REPORT, 0)) or []:
            function, wall, processor, most = as_text(line).split()
            rows[f"{MEASURED}{function}, {name}"] = {
                "wall_us": float(wall),
                "processor_us": float(processor),
                "most_processor_us": float(most),
            }
    finally:
        await ask(wire, "FUNCTION", "LOAD", "REPLACE", shipped().stamped)
