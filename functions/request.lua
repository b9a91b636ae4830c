-- request: a call that is sent twice happens once.
--
-- A caller lane has one call in flight and numbers its calls upwards. The key "call:<lane>" keeps the number and the
-- answer of the last call, so the same call sent again (its reply was lost) is answered from there.
--   call:<lane>  string  "<number> <cmsgpack answer>", collected ten minutes after the lane's last call,
--                       that of a claim not before the longest of its leases has ended: a worker repeats a claim until
--                       it is answered, and is answered with its jobs as long as they can be its own.

local request = {}
local KEEP_MS, LEAST_MS = '600000', 600000     -- as text: a number would be formatted by every call

-- The kept answer if this call has been made before, else nil and whether the server knows the lane's call before it.
-- It does not after a failover that lost writes. Raises REPLAY for a number older than the last one.
function request.replay(base, lane, number)
  local kept = redis.call('GET', base .. ':call:' .. lane)
  if not kept then return nil, number == '1' end
  local at = string.find(kept, ' ', 1, true)
  local last = string.sub(kept, 1, at - 1)
  if last == number then return cmsgpack.unpack(string.sub(kept, at + 1)) end
  local ahead = number - last
  if ahead < 0 then
    fail('REPLAY', 'call ' .. number .. ' of lane ' .. lane .. ' is older than its last call ' .. last)
  end
  return nil, ahead == 1
end

-- For how long to keep an answer that matters for so many ms: ten minutes at least. As text.
function request.keep_ms(ms)
  return ms > LEAST_MS and digits(ms) or KEEP_MS
end

-- keep_ms: for how long, as text; nil: ten minutes.
function request.remember(base, lane, number, answer, keep_ms)
  redis.call('SET', base .. ':call:' .. lane, number .. ' ' .. cmsgpack.pack(answer), 'PX', keep_ms or KEEP_MS)
  return answer
end

-- Register a function whose whole answer is kept: callback(base, args) runs at most once per (lane, number).
function request.register(name, callback, flags)
  register(name, function(base, args)
    local lane, number = args[1], args[2]
    integer('request number', number)
    local kept = request.replay(base, lane, number)
    if kept ~= nil then return kept end
    return request.remember(base, lane, number, callback(base, args))
  end, flags)
end
