-- order: the order of arrival of jobs that wait outside of the stream, and the turns of keys.
--   sequence  string  how many blocks of numbers have been given to calls
-- Numbers are texts of 16 digits, so that they sort as texts and as scores alike; exact below 2^53. One INCR serves a
-- call.

local order = {}
local PER_CALL = 1000
local FIRST = 1e15               -- every number has 16 digits from here on

-- A number above every one given before.
function order.next(base, call)
  local nth = call.nth
  if not nth or nth == PER_CALL then
    call.block, nth = FIRST + redis.call('INCR', base .. ':sequence') * PER_CALL, 0
    call.number = call.number or counting()
  end
  call.nth = nth + 1
  return call.number(call.block + nth)
end
