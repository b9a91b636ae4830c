"""The server writes whole numbers as texts, and packs some replies itself, as Lua's and cmsgpack's functions do."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

from tests.support.stores import RunningStore

BASE: Final = files("glidemq_async.functions").joinpath("base.lua").read_text(encoding="utf-8")
HELPERS: Final = re.split(r"^-- Some servers refuse `unpack`", BASE, flags=re.MULTILINE)[0]

CHECK: Final = """
local wrong = {}
local function compare(n)
  if digits(n) ~= string.format('%d', n) then wrong[#wrong + 1] = string.format('%.17g', n) end
end
for _, from in ipairs({0, 900, 1795849565000, 9007199254739000, 999000, 1e12}) do
  for step = 1, 3 do
    for i = 0, 1990, 7 do compare(from + i * step) end
  end
end
for i = 1, 200 do compare(i * 1234567) end
for i = 0, 3000, 13 do compare(-i) end
for _, n in ipairs({1500.5, 0.5, 1500, 1500.5, 999.9, 1000, '5', '5', '1795849565893', '77000', 77000}) do
  compare(n)
end
return wrong
"""

PACKS: Final = """
local wrong = {}
for _, n in ipairs({0, 1, 127, 128, 30000, 1795849565893, 1795849565893, 604800000}) do
  if packed_number(n) ~= cmsgpack.pack(n) then wrong[#wrong + 1] = 'number ' .. n end
end
for size = 0, 31 do
  local text = string.rep('p', size)
  if packed_text(text) ~= cmsgpack.pack(text) then wrong[#wrong + 1] = 'text of ' .. size end
end
for _, text in ipairs({'600000', '0', '600000', 'x', ''}) do
  if number_of(text) ~= tonumber(text) then wrong[#wrong + 1] = 'number of ' .. text end
end
if number_of(false) ~= nil then wrong[#wrong + 1] = 'no text' end
return wrong
"""


async def test_whole_numbers_are_formatted_exactly(store: RunningStore) -> None:
    """Far more thousands than the function keeps, the same number in a row, negative numbers, fractions, and texts."""
    assert await store.ask("EVAL", HELPERS + CHECK, 0) == []


async def test_parts_are_packed_as_cmsgpack_packs_them(store: RunningStore) -> None:
    assert await store.ask("EVAL", HELPERS + PACKS, 0) == []
