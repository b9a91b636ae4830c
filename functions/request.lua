-- request: executes a repeated call only once.
--
-- A client whose connection breaks does not know if the server executed its last call. It therefore sends the same call
-- again, with the same number. A request channel has one call in flight and numbers its calls upwards, so it is enough
-- to keep the number and the reply of its last call:
--   same number     the call was executed and its reply was lost: return the stored reply.
--   next number     a new call: execute it.
--   higher number   a new call, but the server lacks the call before it: a failover lost writes. See settle.lua.
--   lower number    a delayed copy of an old call: refuse it, because its effect may be outdated.
-- The reply is stored by the same function that makes the change, so no crash can separate the two.
--   call:<channel>  string  "<number> <cmsgpack reply>". In the string of a worker, the jobs that were pushed to it
--                   follow, see push.lua.
-- The string of a client expires ten minutes after its last call, because clients repeat a call for seconds only. The
-- string of a worker expires after a week. A worker repeats a claim until it gets a reply, even after an outage of
-- days, and an outage does not count against the leases of the claimed jobs. If the server had forgotten the call, it
-- would claim other jobs, and refuse the outcomes that it has already stored. When a worker signs off, its reply
-- remains for ten minutes, because a delayed copy of its last call may still arrive. Each channel has its own string,
-- because fields of a hash do not expire on Redis 7, and the replies of disconnected clients must not remain.

local request = {}
local KEEP_MS = '600000'         -- text, so that calls need not format a number
request.WEEK_MS = '604800000'    -- longer than the longest lease, which is a day
-- The expiry of a reply that later ones keep. The first bytes of a packed time are equal for 65 seconds, and the first
-- digits of one for 100 seconds.
local LONG_KEEP_MS = '700000'
request.LONG_WEEK_MS = '604900000'

-- Return the stored reply if this call has been executed before. Otherwise return nil, true if the server knows the
-- previous call of the channel, what is stored of that call, and the store key. Raises REPLAY for a number older than
-- the last one. n: the number of the call as a number.
function request.replay(base, channel, number, n)
  local key = base .. ':call:' .. channel
  local kept = redis.call('GET', key)
  if not kept then return nil, number == '1', nil, key end
  local last = string.match(kept, '^%d+')
  if last == number then return (cmsgpack.unpack(string.sub(kept, #last + 2))) end
  local ahead = n - last
  if ahead < 0 then
    fail('REPLAY', 'call ' .. number .. ' of request channel ' .. channel .. ' is older than its last call ' .. last)
  end
  return nil, ahead == 1, kept, key
end

-- Store the reply of a call. keep_ms: how long to keep it, as text (default: ten minutes, and the time for which
-- request.remember_packed may keep the expiry).
function request.remember(base, channel, number, answer, keep_ms)
  redis.call('SET', base .. ':call:' .. channel, number .. ' ' .. cmsgpack.pack(answer), 'PX',
    keep_ms or LONG_KEEP_MS)
  return answer
end

-- The same for a reply that the caller has packed. Setting an expiry costs as much as the rest of the command. So the
-- reply keeps the expiry of the reply before it if both have the same form, and times with the same first digits.
-- key: the store key; text: what to store, the number, a blank and the packed reply; n_equal: the number of first bytes
-- of the packed reply that are then equal; kept: what is stored of the previous call, nil if nothing is; keep_ms: how
-- long to keep the reply, as text (default: ten minutes, and the time in which first digits are equal).
function request.remember_packed(key, number, text, n_equal, kept, keep_ms)
  -- If the number of the previous call has fewer digits, these bytes differ, and the expiry is set once more.
  local first = #number + 2
  local last = #number + 1 + n_equal
  if kept and string.sub(kept, first, last) == string.sub(text, first, last) then
    redis.call('SET', key, text, 'KEEPTTL')
  else
    redis.call('SET', key, text, 'PX', keep_ms or LONG_KEEP_MS)
  end
end

-- Let the reply expire soon, because the owner of the channel makes no further call.
function request.leave(base, channel)
  redis.call('PEXPIRE', base .. ':call:' .. channel, KEEP_MS)
end

local function unchanged(_, _, reply) return reply end

-- Register a function whose reply is stored: callback(base, args) runs at most once per channel and number. It returns
-- the reply, or the reply, and `text` and `n_equal` of request.remember_packed. completed(base, args, reply): returns
-- the whole reply of a repeated call, if the packed one lacks its large parts.
function request.register(name, callback, flags, completed)
  local complete = completed or unchanged
  register(name, function(base, args)
    local channel, number = args[1], args[2]
    local reply, _, kept, key = request.replay(base, channel, number, integer('request number', number))
    if reply ~= nil then return complete(base, args, reply) end
    local answer, text, n_equal = callback(base, args)
    if not text then return request.remember(base, channel, number, answer) end
    request.remember_packed(key, number, text, n_equal, kept)
    return answer
  end, flags)
end
