#!lua name=glidemq_bench_naive
-- A queue library as one writes it first: batches of jobs, but every command for each job by itself. The reference for
-- server time: the same records, events and kept results as the real library, on whatever machine this runs.
--   add       data…            complete   { id entry result }…       claim   count -> { id entry name data }…

local function event(base, name, id)
  redis.call('XADD', base .. ':events', 'MAXLEN', '~', 100000, '*', 'event', name, 'id', id)
end

local function add(keys, args)
  local base, ids = keys[1], {}
  for i, data in ipairs(args) do
    local id = redis.call('INCR', base .. ':id')
    local t = redis.call('TIME')
    redis.call('HSET', base .. ':job:' .. id, 'name', 'job', 'data', data, 'added', t[1] .. t[2], 'state', 'waiting')
    redis.call('XADD', base .. ':stream', '*', 'i', id)
    event(base, 'added', id)
    ids[i] = id
  end
  return ids
end

local function claim(keys, args)
  local base, out = keys[1], {}
  local reply = redis.call('XREADGROUP', 'GROUP', 'workers', 'one', 'COUNT', args[1], 'STREAMS', base .. ':stream', '>')
  for i, entry in ipairs(reply and reply[1][2] or {}) do
    local id = entry[2][2]
    local job = redis.call('HMGET', base .. ':job:' .. id, 'name', 'data')
    redis.call('HSET', base .. ':job:' .. id, 'state', 'active', 'entry', entry[1])
    event(base, 'active', id)
    out[i] = {id, entry[1], job[1], job[2]}
  end
  return out
end

local function complete(keys, args)
  local base = keys[1]
  for i = 1, #args, 3 do
    local id, entry, key = args[i], args[i + 1], base .. ':job:' .. args[i]
    if redis.call('HGET', key, 'entry') == entry then
      local t = redis.call('TIME')
      redis.call('XACK', base .. ':stream', 'workers', entry)
      redis.call('XDEL', base .. ':stream', entry)
      redis.call('HSET', key, 'state', 'completed', 'result', args[i + 2], 'ended', t[1] .. t[2])
      redis.call('ZADD', base .. ':completed', t[1], id)
      event(base, 'completed', id)
    end
  end
  return #args / 3
end

redis.register_function('glidemq_bench_add', add)
redis.register_function('glidemq_bench_claim', claim)
redis.register_function('glidemq_bench_complete', complete)
