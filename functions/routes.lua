-- routes: the structure in which a ready job waits for its claim. Every path that makes a job ready (an add, its due
-- time, a retry, a promotion) calls routes.enter.
--   record's route   absent          `fifo`, first in, first out
--                    "p <priority>"  `prioritized`, see prioritized.lua; the lowest first, and only while no plain,
--                                    LIFO or keyed job can start
--                    "l"             `lifo` zset: id -> sequence; the last one first
--                    "k …"           the line of its key, see keyed.lua
-- Plain, LIFO and keyed jobs take turns.

local routes = {}

-- Return the route for the options of an add, nil for a plain job.
function routes.of(extra, added)
  if extra.key then return keyed.first_route(extra, '0', added) end
  if extra.lifo then return 'l' end
  if extra.priority and extra.priority > 0 then return 'p ' .. digits(extra.priority) end
  return nil
end

-- Return the options of an add that lead to this route, nil for a plain job.
function routes.extra_of(route)
  local kind = string.sub(route, 1, 1)
  if kind == 'k' then
    local wanted = keyed.parse(route)
    return {key = wanted.key, cost = tonumber(wanted.cost), priority = tonumber(wanted.priority)}
  end
  if kind == 'l' then return {lifo = true} end
  return kind == 'p' and {priority = tonumber(string.sub(route, 3))} or nil
end

local enter = {}

function enter.p(base, id, route, call)
  local number = entries.next_number(base, call)
  local score, entry = prioritized.score(string.sub(route, 3), number), number .. ':'
  redis.call('ZADD', queue_flags.create(base, 'prioritized', call.seen), score, entry .. id)
  call.startable = call.startable + 1
  return 'prioritized ' .. entry
end

function enter.l(base, id, _, call)
  redis.call('ZADD', queue_flags.create(base, 'lifo', call.seen), order.next(base, call), id)
  call.startable = call.startable + 1
  return 'waiting i'
end

function enter.k(base, id, text, call, hint)
  local route = keyed.parse(text)
  if keyed.arrive(base, route, call) then redis.call('HSET', base .. ':job:' .. id, 'route', keyed.format(route)) end
  return keyed.enter(id, route, call, hint)
end

-- Put a ready job into the structure of its route. Return its location, which the caller writes. route: nil for `fifo`;
-- hint: the read hint of a job of `fifo` or of a key, see record.lua (default: "h").
function routes.enter(base, id, route, call, hint)
  if route then return enter[string.sub(route, 1, 1)](base, id, route, call, hint or 'h') end
  call.startable = call.startable + 1
  return 'waiting p' .. entries.append(base, id, hint or 'h', call)
end

-- The same for a job that is being added, before its record exists. Return its location and its route.
function routes.enter_first(base, id, extra, added, call, hint)
  if extra.key then return keyed.enter_first(base, id, extra, added, call, hint) end
  local route = routes.of(extra, added)
  return routes.enter(base, id, route, call, hint), route
end

-- The same for a job whose record exists.
function routes.enter_again(base, id, call)
  return routes.enter(base, id, redis.call('HGET', base .. ':job:' .. id, 'route'), call)
end

-- Let a keyed job lose its position in the line, because a delay was set for it. A job that waits for its next attempt
-- keeps its position, so its caller does not call this.
function routes.forget_turn(base, id)
  local key = base .. ':job:' .. id
  local route = redis.call('HGET', key, 'route')
  if not route or string.sub(route, 1, 1) ~= 'k' then return end
  local parsed = keyed.parse(route)
  parsed.sequence = '0'
  redis.call('HSET', key, 'route', keyed.format(parsed))
end
