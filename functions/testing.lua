-- testing: switches that only a test build of the library has. Never part of the shipped source.
--   testControl  name value -> "ok"    clock_shift: ms added to the server's time; unfenced: "1" switches fencing off
--   <base>:test  hash  the switches of one queue

local real_now = clock.now
local switches = {clock_shift = 0}

function clock.now()
  return real_now() + switches.clock_shift
end

register('testControl', function(base, args)
  redis.call('HSET', base .. ':test', args[1], args[2])
  if args[1] == 'clock_shift' then switches.clock_shift = integer('clock_shift', args[2]) end
  if args[1] == 'unfenced' then settle.fenced = args[2] ~= '1' end
  return 'ok'
end)
