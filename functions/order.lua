-- order: the order of arrival of jobs that wait outside of the stream, and the turns of keys.
--   sequence  string  how many blocks of numbers have been given to calls
-- Numbers are texts of 16 digits, so that they sort as texts and as scores alike; exact below 2^53. One INCR serves a
-- call.

local order = {}
local PER_CALL = 1000            -- the last three digits
local FIRST = 1e12               -- the first 13 of the numbers from here on

-- A number above every one given before.
function order.next(base, call)
  local nth = call.nth
  if not nth or nth == PER_CALL then
    call.block, nth = digits(FIRST + redis.call('INCR', base .. ':sequence')), 0
  end
  call.nth = nth + 1
  return call.block .. three_digits(nth)
end
