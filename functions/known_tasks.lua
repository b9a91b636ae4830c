-- known_tasks: the tasks that workers of the queue have declared, so that tools can name the arguments of their jobs.
--   describeTasks  { task parameters }… -> number of stored tasks    a later description replaces an earlier one
--   listTasks      -> { task parameters }…
--   store:
--     tasks  hash  name of a task -> msgpack of the names of its positional parameters

do
  local MOST_TASKS, MOST_BYTES = 500, 2000

  register('describeTasks', function(base, args)
    local key = base .. ':tasks'
    local free, stored = MOST_TASKS - redis.call('HLEN', key), 0
    for i = 1, math.min(#args, 2 * MOST_TASKS) - 1, 2 do
      local name, parameters = args[i], args[i + 1]
      local known = redis.call('HEXISTS', key, name) == 1
      if (known or free > 0) and #name + #parameters <= MOST_BYTES then
        redis.call('HSET', key, name, parameters)
        stored = stored + 1
        if not known then free = free - 1 end
      end
    end
    return stored
  end)

  register('listTasks', function(base)
    local flat, rows = redis.call('HGETALL', base .. ':tasks'), {}
    for i = 1, #flat, 2 do rows[#rows + 1] = {flat[i], flat[i + 1]} end
    return rows
  end, {'no-writes'})
end
