-- order: the order of arrival of jobs that wait outside of the stream, and the turns of keys.
--   sequence  string  how many calls have asked for numbers
-- One INCR serves a call; numbers are exact below 2^53 and 16 digits wide as text, so that they sort as text too.

local order = {}
local PER_CALL = 1024

-- A number above every one given before.
function order.next(base, call)
  local n = call.sequence and call.sequence + 1
  if not n or n % PER_CALL == 0 then n = redis.call('INCR', base .. ':sequence') * PER_CALL end
  call.sequence = n
  return n
end

function order.text(n)
  return string.format('%016d', n)
end
