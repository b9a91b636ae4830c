-- testing: switches of a test build of the library. Servers for users never load this file.
--   testControl  name value -> "ok"    clock_shift: ms added to the server's time; unfenced: "1" switches fencing off
--   testAdvance  ms -> { ms left, base… }    move the clock forward, up to the next fire time of a job scheduler.
--                ms left: the rest of the time; base: the queues with a fire time now. Wakes all idle workers.
--   testNow -> ms
--   <base>:test  hash  the switches of one queue

local real_now = clock.now
local switches = {clock_shift = 0}
entries.few = 1                  -- tests end few runs in a call

function clock.now()
  return real_now() + switches.clock_shift
end

register('testControl', function(base, args)
  redis.call('HSET', base .. ':test', args[1], args[2])
  if args[1] == 'clock_shift' then switches.clock_shift = integer('clock_shift', args[2]) end
  if args[1] == 'unfenced' then entries.fenced = args[2] ~= '1' end
  return 'ok'
end)

-- Stream entries have the real time, which must not count as the creation time of a job. A job that a later add of the
-- same call replaced has no record any more.
local finish_call = wakeup.finish

function wakeup.finish(base, call)
  local added = switches.clock_shift ~= 0 and call.lines.added or {}
  for i = 2, #added, 2 do
    local key = base .. ':job:' .. added[i]
    if exists(key) then redis.call('HSETNX', key, 'added', digits(call.now)) end
    redis.call('HSET', base .. ':meta2', 'touched', '1')
  end
  finish_call(base, call)
end

register('testNow', function() return (clock.now()) end)

-- A test has its own server, so all queues can be found by the one structure that each of them has.
local function queues()
  local bases = {}
  for _, key in ipairs(redis.call('KEYS', '*:meta2')) do bases[#bases + 1] = string.sub(key, 1, -7) end
  return bases
end

register('testAdvance', function(_, args)
  local now, bases, fire_times = clock.now(), queues(), {}
  local target = now + integer('ms', args[1])
  local at = target
  for _, base in ipairs(bases) do
    local fire_time = schedulers.next(base)
    fire_times[base] = fire_time
    if fire_time then at = math.min(at, math.max(fire_time, now)) end
  end
  switches.clock_shift = switches.clock_shift + at - now
  local answer = {target - at}
  for _, base in ipairs(bases) do
    if fire_times[base] and fire_times[base] <= at then answer[#answer + 1] = base end
    wakeup.wake(base, 1e9)
  end
  return answer
end)
