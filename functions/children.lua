-- children: reads the children of jobs, and adds children to running jobs. plans.lua describes how they are stored.
--   getChildren   flow stamp node cursor -> { cursor | '', flat { base key, id, name, policy, ending, value }, ends }
--     The children of a node, in their order. ending: '' (not ended), "c" (value: its result), "f" (value: the reason).
--     stamp '': the children that runs of the job with the id `flow` have added. ends: how many of them have ended as
--     children.watch counts them; -1 if they belong to runs before the job ended
--   addChildren   channel number id entry consumer stamp first total children page… -> { status, … }
--     Give a running job children, in a separate plan, and begin to make them. entry, consumer: of the run.
--     stamp     for a new plan
--     first     the number of the first new node, 1 for a new plan; the pages have this and higher numbers
--     total     the number of new nodes
--     children  cmsgpack { { number; base key SEP id, '' = derived from the flow } … }: the new nodes whose parent is
--               the job itself
--     status    "added": { now, flow, first, rest } follow
--               "known": { position … } follows: the positions of the children whose ids earlier children have
--               "next": the number that `first` must be follows        "full": the job has too many children
--               "missing", "stale": the run has lost the job. Only "added" writes.
-- A job that adds children while it runs gets a plan in its own queue, in which it is node 0. So the children can be in
-- any queue, and all policies apply. If the job belongs to a flow, it has a node in the plan of the flow too.

local children = {}
local MOST_CHILDREN, MOST_NODES = 10000, 1000
local STEP_ROWS = 200

local key_of, push_work, node_of, has_ended, unpacked = plans.key_of, plans.push_work, plans.node_of, plans.has_ended,
  plans.unpacked
local children_of, parse_edge, parts_of, own_edge = plans.children_of, plans.parse_edge, plans.parts_of, plans.own_edge

-- Return the number of children of a node that have not ended.
local function count_open(key, number)
  local open = 0
  for _, child in ipairs(children_of(key, number)) do
    if not has_ended(key, child) then open = open + 1 end
  end
  return open
end

-- Return a parsed edge, and the store key of its plan if that is in this queue.
local function plan_of(base, text)
  local edge = parse_edge(text)
  local key = key_of(base, edge.flow)
  return edge, edge.home == '' and redis.call('HGET', key, 'stamp') == edge.stamp and key or nil
end

-- Return why an edge of a job in this state is wrong, nil if it is right.
local function fault_of_edge(base, id, text, state)
  local edge, key = plan_of(base, text)
  if edge.home ~= '' then return nil end
  local node = key and node_of(key, edge.node)
  if not node or node[2] ~= id then return 'no plan of a flow contains this job' end
  if has_ended(key, edge.node) then return 'its flow knows that it has ended, but it is ' .. state end
end

-- Return why the mark of a job in `flowed` is wrong, nil if it is right. For checking_marks.lua.
function children.fault_of_mark(base, id, text)
  local state = record.location(base, id)
  if not state then return 'in flowed but has no record' end
  if locations.is_final(state) then return 'in flowed but ' .. state end
  local first, own = parts_of(text)
  return (first ~= '' and fault_of_edge(base, id, first, state))
    or (own ~= '' and fault_of_edge(base, id, own_edge(own), state)) or nil
end

local MOST_COUNTED = 500

-- Return why a parent that waits is wrong, nil if it is right. For checking_marks.lua.
function children.fault_of_parent(base, id)
  local text = redis.call('HGET', base .. ':flowed', id)
  if not text then return 'waits for its children, but is not in flowed' end
  local first, own = parts_of(text)
  -- A job that has added children waits for these. Its children in the flow ended before it started.
  local edge, key = plan_of(base, own ~= '' and own_edge(own) or first)
  -- Work that is left may be about this parent.
  if not key or exists(base .. ':flow_work') then return nil end
  local waits = tonumber(redis.call('HGET', key, 'w' .. digits(edge.node)) or 0)
  if waits <= 0 then return 'waits for its children, but all of them have ended' end
  local open = waits <= MOST_COUNTED and count_open(key, edge.node) or waits
  if open == waits then return nil end
  return 'waits for ' .. digits(waits) .. ' children, but ' .. digits(open) .. ' have not ended'
end

-- Return the plan of the children that the runs of a job have added, nil without one.
local function own_plan(base, id)
  local _, own = parts_of(redis.call('HGET', base .. ':flowed', id) or '')
  if own == '' then return nil end
  local edge = parse_edge(own_edge(own))
  local key = key_of(base, edge.flow)
  return redis.call('HGET', key, 'stamp') == edge.stamp and key or nil, edge
end

-- Cancel the children that the runs of a job have added, because the job is revoked while it runs. This does not wait
-- for the handler, which may take long to stop. The children that it adds from now on never start.
function record.revoke_children(base, id, call)
  local key, edge = own_plan(base, id)
  if not key then return end
  redis.call('HSET', key, plans.REVOKED, '1')
  plans.cancel_children(base, key, edge.flow, 0, call)
end

-- Let the end of a child resume a job that is being suspended. If a child has failed, the job fails now. known: the
-- number of ends that its run knows. Return false if the job must not be suspended, because another child has ended.
function children.watch(base, id, known, call)
  local key, edge = own_plan(base, id)
  if key and redis.call('HGET', key, plans.RUNS) == 'f' then
    push_work(base, 'f', 0, 0, edge.flow, call)
    return true
  end
  if not key or tonumber(redis.call('HGET', key, plans.ENDED) or 0) > known then return false end
  redis.call('HSET', key, plans.RUNS, plans.SUSPENDED)
  return true
end

-- Return true if the end of a child will resume a suspended job, or may be doing that. For checking_marks.lua.
function children.is_watched(base, id)
  local key = own_plan(base, id)
  if exists(base .. ':flow_work') then return true end
  return key and redis.call('HGET', key, plans.RUNS) == plans.SUSPENDED or false
end

-- Let a job wait for the children that its runs have added. The caller has taken the job out of its location.
--
-- While the job runs, the plan only notes how its children end (plans.RUNS), and releases nothing. A release during the
-- run would be lost, because the job does not wait yet. If it were left as work, it could release the job when that
-- already waits for other children. So this call looks for the children that have ended.
function children.wait(base, id, call)
  local job = base .. ':job:' .. id
  local key, edge = own_plan(base, id)
  redis.call('HDEL', job, 'after')    -- a delay counts before the first run only
  if not key then
    redis.call('HSET', job, 'place', routes.enter_again(base, id, call))
    events.note(call.lines, 'waiting', id, 'children')
    return
  end
  redis.call('ZADD', queue_flags.create(base, 'parents', call.seen), digits(call.now), id)
  redis.call('HSET', job, 'place', 'waiting-children w')
  events.note(call.lines, 'waiting-children', id)
  local runs, left = redis.call('HGET', key, plans.RUNS), tonumber(redis.call('HGET', key, 'w0') or 0)
  redis.call('HDEL', key, plans.RUNS)
  if runs == 'f' or left <= 0 then push_work(base, 'r', 0, 0, edge.flow, call) end
end

-- Return why a run may not give its job children, nil if it may.
local function refusal_of(base, id, entry, consumer)
  local state, at = plain.location(base, id)
  if not state then return 'missing' end
  if not entries.fenced then return nil end
  if state ~= 'active' or at ~= entry then return 'stale' end
  if consumer ~= '' and runs.consumer_of(base, id, entry) ~= consumer then return 'stale' end
end

-- Return the stored field for a child with a `job_id`.
local function field_of(child)
  return 'i' .. child[2]
end

-- Return the positions of the children whose ids the plan contains.
local function known_among(key, wanted)
  local found = {}
  for position, child in ipairs(wanted) do
    if child[2] ~= '' and redis.call('HEXISTS', key, field_of(child)) == 1 then found[#found + 1] = position end
  end
  return found
end

-- Make a plan for the children of a job. Return its id.
local function adopt(base, id, stamp, mark, call)
  local flow = add.number(base)
  local key, own = key_of(base, flow), stamp .. ' ' .. flow
  redis.call('UNLINK', key)
  redis.call('HSET', key, 'stamp', stamp, 'live', '1', 'nodes', '1', '0', cmsgpack.pack({'', id, '', 'f', {}}))
  redis.call('HSET', base .. ':job:' .. id, 'adopted', own)
  redis.call('HSET', queue_flags.create(base, 'flowed', call.seen), id, mark .. RS .. own)
  return flow
end

-- Write new nodes and pages of a plan. Return the number of the first page.
local function append(key, total, added, args, from)
  local page, list = tonumber(redis.call('HGET', key, 'pages') or 0) + 1, children_of(key, 0)
  local write = {plans.RUNS, redis.call('HGET', key, plans.RUNS) or '1', 'pages', digits(page + #args - from)}
  for i = from, #args do write[#write + 1], write[#write + 2] = 'p' .. digits(page + i - from), args[i] end
  for _, child in ipairs(added) do
    list[#list + 1] = child[1]
    if child[2] ~= '' then write[#write + 1], write[#write + 2] = field_of(child), digits(child[1]) end
  end
  write[#write + 1], write[#write + 2] = 'k0', cmsgpack.pack(list)
  in_chunks('HSET', key, nil, write)
  redis.call('HINCRBY', key, 'w0', #added)
  redis.call('HINCRBY', key, 'live', total)
  redis.call('HINCRBY', key, 'nodes', total)
  return page
end

request.register('addChildren', function(base, args)
  local id, first, total = args[3], integer('first', args[7]), integer('total', args[8])
  local added = unpacked(args[9])
  if not added or not added[1] or total < #added or total > MOST_NODES or #args < 10 then
    fail('ARGUMENT', 'the argument list does not hold children')
  end
  local refusal = refusal_of(base, id, args[4], args[5])
  if refusal then return {refusal} end
  local edge, own = parts_of(redis.call('HGET', base .. ':flowed', id) or '')
  local flow = own ~= '' and parse_edge(own_edge(own)).flow
  local key = flow and key_of(base, flow)
  local known = key and known_among(key, added) or {}
  if known[1] then return {'known', known} end
  local nodes = tonumber(key and redis.call('HGET', key, 'nodes') or 1)
  if nodes ~= first then return {'next', nodes} end
  if key and #children_of(key, 0) + #added > MOST_CHILDREN then return {'full'} end
  local call = queue_flags.call(base)
  plain.open(base, id, call.seen)
  flow = flow or adopt(base, id, args[6], edge, call)
  local is_revoked = call.seen.revoking and redis.call('SISMEMBER', base .. ':revoking', id) == 1
  if is_revoked then redis.call('HSET', key_of(base, flow), plans.REVOKED, '1') end
  push_work(base, 'm', append(key_of(base, flow), total, added, args, 10), 0, flow, call)
  wakeup.finish(base, call)
  return {'added', call.now, flow, first, (call.seen.flow_work or call.seen.posted) and 1 or 0}
end)

-- Return the store key of the plan that a reader names, its stamp, and the number of the node.
local function named(base, flow, stamp, number)
  if stamp ~= '' then return key_of(base, flow), stamp, number end
  local own = redis.call('HGET', base .. ':job:' .. flow, 'adopted')
  if not own then return nil end
  local edge = parse_edge(own_edge(own))
  return key_of(base, edge.flow), edge.stamp, 0
end

register('getChildren', function(base, args)
  local call_budget = budget.of_answer()
  local key, stamp, number = named(base, args[1], args[2], integer('node', args[3]))
  local from, rows = integer('cursor', args[4]), {}
  if not key then return {'', rows, -1} end
  if redis.call('HGET', key, 'stamp') ~= stamp then return {'gone', rows} end
  local found = children_of(key, number)
  local ends = has_ended(key, number) and -1 or tonumber(redis.call('HGET', key, plans.ENDED) or 0)
  local last = math.min(from + STEP_ROWS, #found)
  for i = from + 1, last do
    if i > from + 1 and budget.is_spent(call_budget) then return {digits(i - 1), rows, ends} end
    local n = digits(found[i])
    local node = node_of(key, n)
    local how = redis.call('HGET', key, 'e' .. n) or ''
    call_budget.bytes = call_budget.bytes + #how
    if node then
      for _, value in ipairs({node[1] == '' and base or node[1], node[2], node[3], node[4], string.sub(how, 1, 1),
        string.sub(how, 2)}) do rows[#rows + 1] = value end
    end
  end
  return {last < #found and digits(last) or '', rows, ends}
end, {'no-writes'})
