-- routes: how a job that is ready waits for its claim. Whatever makes a job ready (an add, its due time, a retry, a
-- promotion) calls routes.enter, so that each kind is written once.
--   record's route   absent          plain: `stream`, first in, first out
--                    "p <priority>"  `prioritized` zset: <16 digits of sequence><id> -> priority; the lowest first,
--                                    and only while no plain, LIFO or keyed job can start
--                    "l"             `lifo` zset: id -> sequence; the last one first
--                    "k …"           its key's line, see keyed.lua
-- Plain, LIFO and keyed jobs take turns.

local routes = {}

-- The route that options of an add ask for, nil for a plain job. A keyed job first gets its sequence when it waits.
function routes.of(extra)
  if extra.key then return keyed.format({priority = extra.priority or 0, sequence = 0, cost = extra.cost or 1000,
    key = extra.key}) end
  if extra.lifo then return 'l' end
  if extra.priority and extra.priority > 0 then return 'p ' .. digits(extra.priority) end
  return nil
end

-- The options of an add that ask for this route, nil for a plain job's.
function routes.extra_of(route)
  local kind = string.sub(route, 1, 1)
  if kind == 'k' then
    local wanted = keyed.parse(route)
    return {key = wanted.key, cost = wanted.cost, priority = tonumber(wanted.priority)}
  end
  if kind == 'l' then return {lifo = true} end
  return kind == 'p' and {priority = tonumber(string.sub(route, 3))} or nil
end

local enter = {}

function enter.p(base, id, route, call)
  local sequence = order.text(order.next(base, call))
  redis.call('ZADD', base .. ':prioritized', string.sub(route, 3), sequence .. id)
  call.seen.prioritized = true
  call.startable = call.startable + 1
  return 'prioritized ' .. sequence
end

function enter.l(base, id, _, call)
  redis.call('ZADD', base .. ':lifo', digits(order.next(base, call)), id)
  call.seen.lifo = true
  call.startable = call.startable + 1
  return 'waiting i'
end

function enter.k(base, id, route, call)
  return keyed.enter(base, id, keyed.parse(route), call)
end

-- Let a job wait that is ready. Answers its place, for the caller to write. what: the name of a plain job's stream
-- field, see record.lua.
function routes.enter(base, id, route, call, what)
  if route then return enter[string.sub(route, 1, 1)](base, id, route, call) end
  call.startable = call.startable + 1
  return 'waiting s' .. redis.call('XADD', base .. ':stream', '*', what or 'h', id)
end

-- The same for a job whose record exists.
function routes.enter_again(base, id, call)
  return routes.enter(base, id, redis.call('HGET', base .. ':job:' .. id, 'route'), call)
end
