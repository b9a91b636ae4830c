-- retention: lets an operator hold how many ended jobs a queue keeps, whatever policies its jobs have.
--   setRetention  channel number { name policy }* -> "ok"
--     name    keep_completed or keep_failed; or `by`, the author, see settings.lua
--     policy  "<count> <age ms>", see finish.lua; '' releases the hold
-- A held policy has the mark finish.HELD in `meta2`. A job that ends then applies it instead of its own policy. Jobs
-- with their own time to live keep it.

local NAMES = {keep_completed = true, keep_failed = true}

-- Return the named policies { name policy }…, and the author. Raises an error if a name or a policy is wrong.
local function parse_retention(args)
  local named, by = {}, nil
  for i = 3, #args, 2 do
    local name, policy = args[i], args[i + 1]
    if name == 'by' then
      by = settings.author(policy)
    elseif not NAMES[name] then
      fail('ARGUMENT', 'unknown retention ' .. name)
    else
      finish.check_held(policy)
      named[#named + 1] = {name, policy}
    end
  end
  return named, by
end

request.register('setRetention', function(base, args)
  local named, by = parse_retention(args)
  queue_flags.require(base)
  for _, pair in ipairs(named) do
    local name, policy = pair[1], pair[2]
    settings.note_hold(base, name, policy, by, clock.now())
    local before = redis.call('HGET', base .. ':meta2', name) or ''
    -- After a release, the last policy stays until the next job ends. The default could remove what the jobs keep.
    local after = policy ~= '' and finish.HELD .. policy or string.gsub(before, '^' .. finish.HELD, '')
    if after ~= before then redis.call('HSET', base .. ':meta2', name, after) end
  end
  return 'ok'
end, {'allow-oom'})
