-- order: sequence numbers for jobs that wait outside of the stream, and for the turns of keys.
--   sequence  string  the number of blocks of numbers that calls have received
-- Numbers are texts of 16 digits, so they sort equally as texts and as scores. They are exact below 2^53. One INCR
-- serves a whole call.

local order = {}
local PER_CALL = 1000            -- numbers of a block: the last three digits of a number
local FIRST = 1e12               -- the first 13 digits of a number are the number of its block, plus FIRST

-- Return a number above every earlier one.
function order.next(base, call)
  local nth = call.nth
  if not nth or nth == PER_CALL then
    call.block, nth = digits(FIRST + redis.call('INCR', base .. ':sequence')), 0
  end
  call.nth = nth + 1
  return call.block .. three_digits(nth)
end

-- Return the next n numbers. n: at most PER_CALL.
function order.several(base, call, n)
  local nth = call.nth
  if not nth or nth + n > PER_CALL then
    call.block, nth = digits(FIRST + redis.call('INCR', base .. ':sequence')), 0
  end
  call.nth = nth + n
  local first = call.block * PER_CALL + nth
  return whole_numbers(first, first + n - 1)
end
