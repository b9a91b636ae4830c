-- flow_jobs: adds, releases, fails and cancels the jobs of flows, and reports their ends to their plans.
-- A plan may be in another queue: then both send messages through the outbox. plans.lua describes what is stored.

local flow_jobs = {}

local key_of, edge_of, parse_edge, parts_of = plans.key_of, plans.edge_of, plans.parse_edge, plans.parts_of
local own_edge, has_edge, node_of, is_needless = plans.own_edge, plans.has_edge, plans.node_of, plans.is_needless
local note_end, ended = plans.note_end, plans.ended

-- Send a message about a job of a flow to another queue: { kind, id, edge, … }.
local function post(base, to, message, call)
  outbox.push(base, {to, message[2], '', '', '', cmsgpack.pack({message = message}), ''}, call)
end

-- Report the end of a job to its plan, wherever that is.
local function report(base, id, text, ending, value, call)
  local edge = parse_edge(text)
  if edge.home == '' then return ended(base, edge, ending, value, call) end
  call.reported_to = edge.home
  post(base, edge.home, {'e', id, text, ending, value}, call)
end

-- Return how a job has ended: "c" and its result, or "f" and the reason.
local function ending_of(base, id)
  local job = redis.call('HMGET', base .. ':job:' .. id, 'place', 'result', 'reason')
  local state = string.match(job[1] or '', '^%S+')
  if state == 'completed' then return 'c', job[2] or '' end
  if state == 'failed' then return 'f', job[3] or 'failed' end
  return 'f', 'removed'
end

-- Report the end of jobs, or their removal, to their plans. ids may contain jobs without a flow.
function record.resolve(base, ids, call)
  local marks, found = base .. ':flowed', {}
  for from = 1, #ids, CHUNK do
    local last = math.min(from + CHUNK - 1, #ids)
    for i, edge in ipairs(redis.call('HMGET', marks, unpack(ids, from, last))) do
      if edge then found[#found + 1] = {ids[from + i - 1], edge} end
    end
  end
  -- Every mark is removed before the first end is reported, because a report must not change jobs that end in this
  -- call.
  for _, one in ipairs(found) do redis.call('HDEL', marks, one[1]) end
  for _, one in ipairs(found) do
    local ending, value = ending_of(base, one[1])
    local edge, own = parts_of(one[2])
    if own ~= '' then ended(base, parse_edge(own_edge(own)), ending, '', call) end
    if edge ~= '' then report(base, one[1], edge, ending, value, call) end
  end
end

-- Return packed options with F, see plans.lua. The options are a map with fewer than 15 fields, or ''.
local function with_flow(opts, job)
  local packed = cmsgpack.pack({job.home, job.flow, job.stamp, job.node, job.parents})
  local fields = opts == '' and 0 or string.byte(opts) - 128
  return string.char(129 + fields) .. string.sub(opts, 2) .. '\161F' .. packed
end

-- Write a parent that waits for its children.
local function store_parent(base, job, opts, extra, call)
  local id, added, key = job.id, digits(call.now), base .. ':job:' .. job.id
  redis.call('ZADD', queue_flags.create(base, 'parents', call.seen), added, id)
  if extra.ttl then
    redis.call('ZADD', queue_flags.create(base, 'expiry', call.seen), digits(call.now + extra.ttl), id)
  end
  redis.call('HSET', key, 'name', job.name, 'data', job.data, 'opts', opts, 'place', 'waiting-children w', 'claim',
    '0 0 0', 'added', added)
  local route = routes.of(extra, added)
  if route then redis.call('HSET', key, 'route', route) end
  local after = (extra.at and '@' .. digits(extra.at)) or (extra.delay and '+' .. digits(extra.delay))
  if after then redis.call('HSET', key, 'after', after) end
  events.note(call.lines, 'added', id, extra.key and job.name .. RS .. extra.key or job.name)
  events.note(call.lines, 'waiting-children', id)
end

-- Add a job of a flow to this queue: { id, name, data, opts, extra, home, flow, stamp, node, parents, is_parent }.
-- Return why it cannot be added, or nil.
local function enter(base, job, call)
  local extra, id = job.extra, job.id
  local mode = redis.call('HGET', base .. ':meta2', 'mode')
  if mode and (mode == 'keyed') ~= (extra.key ~= nil) then return 'refused: the queue is of mode ' .. mode end
  local opts = with_flow(job.opts, job)
  if job.is_parent then
    if add.is_taken(base, id) then return 'duplicate: a job with this id exists' end
    store_parent(base, job, opts, extra, call)
  else
    local _, status = add.one(base, {id = id, name = job.name, data = job.data, opts = opts, extra = extra}, call)
    if status ~= 'added' then return 'duplicate: a job with this id exists' end
  end
  local edge = edge_of(job.home, job.flow, job.stamp, job.node)
  redis.call('HSET', queue_flags.create(base, 'flowed', call.seen), id, edge)
end

local function queue_of(base)
  return string.match(base, '{(.*)}$')
end

local function id_of(base, flow, number, row)
  if number == 0 then return flow end
  if row[2] ~= '' then return row[2] end
  return (row[1] == '' and '' or queue_of(base) .. '/') .. flow .. '/' .. digits(number)
end

-- Return { queue, id } of each parent of a node. known: nodes that were read before, by number.
local function names_of(base, key, parents, known)
  local list = {}
  for _, number in ipairs(parents) do
    local parent = known[number] or node_of(key, number)
    known[number] = parent
    if parent then list[#list + 1] = {queue_of(parent[1] == '' and base or parent[1]), parent[2]} end
  end
  return list
end

-- Return the options of an add as a table.
local function extra_of(text)
  local readable, extra = pcall(add.extra, text)
  extra = readable and extra or {}
  extra.alone = nil
  return extra
end

-- Make the job of one node.
local function make(base, key, flow, stamp, number, row, known, call)
  local id, parents, children, n = id_of(base, flow, number, row), row[8], row[9], digits(number)
  local node = {row[1], id, row[3], row[7], parents}
  known[number] = node
  redis.call('HSET', key, n, cmsgpack.pack(node))
  if children[1] then redis.call('HSET', key, 'w' .. n, digits(#children), 'k' .. n, cmsgpack.pack(children)) end
  if is_needless(key, parents, {}) then
    note_end(key, number, 'f', 'not started')
    return
  end
  local job = {id = id, name = row[3], data = row[4], opts = row[5], extra = extra_of(row[6]), flow = flow,
    stamp = stamp, node = number, parents = names_of(base, key, parents, known), is_parent = children[1] ~= nil}
  if row[1] ~= '' then
    job.extra.flow = {base, flow, stamp, number, job.parents, job.is_parent}
    outbox.push(base, {row[1], id, job.name, job.data, job.opts, cmsgpack.pack(job.extra), ''}, call)
    return
  end
  job.home = ''
  local refused = enter(base, job, call)
  if refused then ended(base, {flow = flow, stamp = stamp, node = number}, 'f', refused, call) end
end

-- Take a parent out of its location for a release or a failure. Return its entry, or nil if it does not wait any more.
local function leave(base, id, call)
  if record.location(base, id) ~= 'waiting-children' then return nil end
  return locations.leave(base, id, call)
end

-- Let a parent of this queue start. Return false if it does not wait any more.
local function release(base, id, call)
  if not leave(base, id, call) then return false end
  local key = base .. ':job:' .. id
  local sign, ms = string.match(redis.call('HGET', key, 'after') or '+0', '^([+@])(%d+)$')
  local due = tonumber(ms) + (sign == '+' and call.now or 0)
  if due > call.now then
    redis.call('HSET', key, 'place', scheduled.push(base, id, due, call))
    events.note(call.lines, 'delayed', id)
  else
    redis.call('HSET', key, 'place', routes.enter_again(base, id, call))
    events.note(call.lines, 'waiting', id, 'children')
  end
  return true
end

local function fail_parent(base, id, reason, call)
  local entry = leave(base, id, call) or (flow_jobs.is_suspended(base, id) and locations.leave(base, id, call))
  if not entry then return false end
  finish.fail(base, id, entry, 'child_failed', call, nil, reason)
  return true
end

-- Stop a job of this queue that no parent needs any more: a running one is revoked, any other one is removed. Append
-- the id of a removed job to `removed`. The caller strips these jobs together.
local function stop(base, id, removed, call)
  local state, entry = record.location(base, id)
  if state == 'active' then
    redis.call('HSET', base .. ':job:' .. id, 'revoked', 'no parent needs it')
    removal.revoke_run(base, id, entry, call)
  elseif state == 'suspended' then
    redis.call('HSET', base .. ':job:' .. id, 'revoked', 'no parent needs it')
    finish.fail(base, id, locations.leave(base, id, call), 'revoked', call)
  elseif locations.is_unstarted(state) then
    locations.leave(base, id, call)
    removed[#removed + 1] = id
    events.note(call.lines, 'removed', id, 'flow')
  end
end

-- Forget the edges of jobs to their flow, which does not wait for their ends any more. The edge to the plan of the
-- children that a job has added stays.
local function forget_edges(base, ids, marks)
  local gone = {}
  for i, id in ipairs(ids) do
    local _, own = parts_of(marks[i])
    if own == '' then
      gone[#gone + 1] = id
    else
      redis.call('HSET', base .. ':flowed', id, RS .. own)
    end
  end
  if gone[1] then redis.call('HDEL', base .. ':flowed', unpack(gone)) end
end

-- Stop jobs of this queue that no parent needs any more, if they are still the jobs of these edges. Count the removed
-- ones in call.cancelled, if the call has this field.
local function cancel(base, ids, edges, call)
  local same, own, removed = {}, {}, {}
  for i, mark in ipairs(redis.call('HMGET', base .. ':flowed', unpack(ids))) do
    if has_edge(mark, edges[i]) then same[#same + 1], own[#own + 1] = ids[i], mark end
  end
  forget_edges(base, same, own)
  for _, id in ipairs(same) do stop(base, id, removed, call) end
  if removed[1] then removal.strip(base, removed, call) end
  if call.cancelled then call.cancelled = call.cancelled + #removed end
end

-- Carry out a message about a job of this queue, if it is still the job of that flow.
local function carry_out(base, message, call)
  local kind, id, edge, value = message[1], message[2], message[3], message[4]
  if kind == 'x' then return cancel(base, {id}, {edge}, call) end
  local is_same = has_edge(redis.call('HGET', base .. ':flowed', id), edge)
  local done = false
  if is_same and kind == 'r' then done = release(base, id, call) end
  if is_same and kind == 'f' then done = fail_parent(base, id, value, call) end
  if done or (is_same and record.location(base, id)) then return end
  -- The plan waits for the end of this job. Only this call can report a job whose record was lost.
  if is_same then record.resolve(base, {id}, call) else report(base, id, edge, 'f', 'removed', call) end
end

-- Send a message to the job of a node, in whichever queue it is.
local function tell(base, flow, stamp, number, node, kind, value, call)
  local home = node[1] == '' and '' or base
  local message = {kind, node[2], edge_of(home, flow, stamp, number), value}
  if node[1] == '' then carry_out(base, message, call) else post(base, node[1], message, call) end
end

-- Stop the jobs of nodes that no parent needs any more, in whichever queues they are. list: { number, node }…
function flow_jobs.cancel(base, flow, stamp, list, call)
  local ids, edges = {}, {}
  for _, one in ipairs(list) do
    local number, node = one[1], one[2]
    if node[1] == '' then
      ids[#ids + 1], edges[#edges + 1] = node[2], edge_of('', flow, stamp, number)
    else
      tell(base, flow, stamp, number, node, 'x', '', call)
    end
  end
  if ids[1] then cancel(base, ids, edges, call) end
end

flow_jobs.report, flow_jobs.enter, flow_jobs.id_of = report, enter, id_of
flow_jobs.make, flow_jobs.carry_out, flow_jobs.tell = make, carry_out, tell
