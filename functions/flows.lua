-- flows: jobs that depend on other jobs. A parent starts after all of its children have ended.
--   stageFlow  stamp number page…     Keep pages of a large plan, from this number on, for the addFlow of this stamp.
--             They are forgotten after ten minutes. A repeated call does no harm.
--   addFlow   channel number incarnation root stamp total staged n id*n page… -> { now, id, status, rest }
--     Store the plan of a flow in the queue of node 0, its home, and begin to make its jobs.
--     root    the id of node 0, '' for a generated one; it is also the id of the flow
--     stamp   a unique text of this flow; a message of an earlier flow with the same id is ignored
--     total   the number of nodes; parents have lower numbers than their children
--     staged  the number of pages that stageFlow keeps; their numbers follow the pages of this call
--     id      the other ids of this queue that the flow gives; none of them may exist
--     page    cmsgpack { number of its first node, { { base key, '' = this queue; id, '' = derived from the flow; name;
--             data; opts; extra as for addJob; policy; parents; children } … } }
--     status  "added"; "duplicate" or "completed": node 0 exists; "taken": another node exists, with its id;
--             "forgotten": not all staged pages are there. The last four write nothing.
--     rest    1: work or outbox entries are left, and the caller relays the outbox
--   advanceFlows  -> 0 | 1     Do a step of the work below. Return 1 while some is left. A repeated call does no harm.
-- Policies: what the end of a child without a result does to its parent.
--   f  fail: the parent fails immediately          w  wait: the parent fails when all of its children have ended
--   c  collect, i ignore, r remove: the parent starts when all of its children have ended; readers tell them apart
--
--   flow:<stamp>  hash  p<n>: staged pages whose jobs are not made
--   flow:<id>  hash  the plan. stamp; live: the number of nodes that have not ended; p<n>: pages whose jobs are not
--              made; for node n of a made page:
--                <n>   cmsgpack { base key, id, name, policy, parents }
--                k<n>  of a parent: cmsgpack { children }       w<n>  the number of children that it waits for
--                d<n>  why it fails: its first failed child
--              nodes: how many; pages: the same, i<base key> SEP <id>: the number of a child with a `job_id`, and
--              s0: node 0 runs and does not wait; "f" if a failed child will end it, "s" if it is suspended until a
--              child ends; x0: how many of its children have ended while it had s0; y0: node 0 runs and is revoked, so
--              none of its children starts. Only in a plan of added children
--                e<n>  how it ended: "c" and the result, or "f" and the reason
--              It expires a day after its last node has ended.
--   flow_work  list  work that is left, done from its end: "m <page> 0 <flow>" make the jobs of a page, which comes
--              last; "r <node> 0 <flow>" release a parent; "f <node> 0 <flow>" fail it; "c <node> <at> <flow>" cancel
--              its children but the last `at`; "p <node> <at> <flow>" resolve the parents of a node that has ended;
--              "s 0 0 <flow>" resume node 0, which is suspended until a child ends
--   parents    zset  id -> added ms: parents that wait for their children (state waiting-children)
--   flowed     hash  id -> "<node> <stamp> <flow>" SEP <home>: jobs of a flow that have not ended; home '' = this
--              queue. RS "<stamp> <flow>" follows if runs of the job have added children: their plan, in this queue
--   job:<id>   opts  contain F = { home, flow, stamp, node, { { queue, id } of each parent } }
--              adopted  "<stamp> <flow>": the plan of the children that its runs have added
--
-- The plan decides, and it is in one queue. A job of another queue is sent there through the outbox, and its end comes
-- back the same way, as a message (extra.flow of an outbox entry). Entries for one queue arrive in order, so a parent
-- exists there before the message that releases it.
-- The end of a job reaches its plan from record.forget_marks and record.lost, through which every end and every removal
-- passes. There, other jobs of the same call are half settled. So the end is only noted, and the jobs that follow from
-- it are work, which the call does when it ends (wakeup.finish, settle.lua). If its time is spent, the rest stays in
-- `flow_work`: the worker that relays the outbox does it.

local flows = {}
local MAKE = 'm'
local KEEP_MS = '86400000'
flows.RUNS, flows.ENDED, flows.REVOKED, flows.SUSPENDED = 's0', 'x0', 'y0', 's'    -- fields of a plan, and a value
local CANCEL_STEP, PARENTS_STEP = 32, 32
local PARENTS_CHECKED = 16      -- which cost as much as the cancellation of a child
local FEW_PARENTS = 8           -- an end resolves itself, more of them are work
local POSTED_BYTES = 1048576
local LONGEST_REASON = 480

local function key_of(base, flow)
  return base .. ':flow:' .. flow
end

local function edge_of(home, flow, stamp, node)
  return digits(node) .. ' ' .. stamp .. ' ' .. flow .. SEP .. home
end

local function parse_edge(edge)
  local node, stamp, flow, home = string.match(edge, '^(%d+) (%S+) ([^\31]*)\31(.*)$')
  return {node = tonumber(node), stamp = stamp, flow = flow, home = home}
end

-- Return the edge in a mark of `flowed`, '' without one, and the plan of the added children, '' without one.
local function parts_of(mark)
  return string.match(mark, '^([^\30]*)\30?(.*)$')
end

-- Return the edge of a job to the plan of the children that its runs have added. own: of parts_of.
local function own_edge(own)
  return '0 ' .. own .. SEP
end

-- Return true if a job has this edge. mark: the job's field of `flowed`.
local function has_edge(mark, edge)
  if not mark then return false end
  local first, own = parts_of(mark)
  return first == edge or (own ~= '' and own_edge(own) == edge)
end

local function push_work(base, op, node, at, flow, call)
  redis.call(op == MAKE and 'LPUSH' or 'RPUSH', queue_flags.create(base, 'flow_work', call.seen),
    op .. ' ' .. digits(node) .. ' ' .. digits(at) .. ' ' .. flow)
end

-- Return a packed table, nil if somebody has damaged it. Calls that unpack a plan may have written before.
local function unpacked(packed)
  local readable, found = pcall(cmsgpack.unpack, packed or '')
  return readable and type(found) == 'table' and found or nil
end

-- Return a node of a made page: { base key, id, name, policy, parents }.
local function node_of(key, number)
  return unpacked(redis.call('HGET', key, digits(number)))
end

-- Return the numbers of the children of a node.
local function children_of(key, number)
  return unpacked(redis.call('HGET', key, 'k' .. digits(number))) or {}
end

local function has_ended(key, number)
  return redis.call('HEXISTS', key, 'e' .. digits(number)) == 1
end

-- Return true if no parent of a node needs it any more. Node 0 and the other ends of a graph have no parents.
local function is_needless(key, parents)
  if not parents[1] then return false end
  for _, parent in ipairs(parents) do
    if not has_ended(key, parent) and not (parent == 0 and redis.call('HEXISTS', key, flows.REVOKED) == 1) then
      return false
    end
  end
  return true
end

-- Return the path of a failure: the job, then the job that caused its failure.
local function path_of(name, id, reason)
  local deeper = string.match(reason, '^child_failed: (.*)$')
  if not deeper then return name .. ' ' .. id .. ': ' .. reason end
  local path = name .. ' ' .. id .. ' > ' .. deeper
  return #path > LONGEST_REASON and deeper or path
end

-- Note how a node ended. Return false if it has ended before.
local function note_end(key, number, ending, value)
  if redis.call('HSETNX', key, 'e' .. digits(number), ending .. value) == 0 then return false end
  if redis.call('HINCRBY', key, 'live', -1) == 0 then redis.call('PEXPIRE', key, KEEP_MS) end
  return true
end

-- A node has ended: cancel its children, unless all of them have ended.
local function cancel_children(base, key, flow, number, call)
  local left = tonumber(redis.call('HGET', key, 'w' .. digits(number)) or 0)
  if left > 0 then push_work(base, 'c', number, 0, flow, call) end
end

local PATIENT = {w = true, c = true, i = true, r = true}

-- A child of node 0 has ended, and node 0 does not wait for all of its children. Wake it if it waits for any of them.
local function count_end(base, key, flow, call)
  redis.call('HINCRBY', key, flows.ENDED, 1)
  if redis.call('HGET', key, flows.RUNS) ~= flows.SUSPENDED then return end
  redis.call('HSET', key, flows.RUNS, '1')
  push_work(base, 's', 0, 0, flow, call)
end

-- A child of `parent` has ended.
local function resolve_parent(base, key, flow, parent, node, ending, path, call)
  if has_ended(key, parent) then return end
  local number = digits(parent)
  if ending == 'f' and (node[4] == 'f' or node[4] == 'w') then redis.call('HSETNX', key, 'd' .. number, path) end
  local runs = parent == 0 and redis.call('HGET', key, flows.RUNS)    -- see children.wait
  if ending == 'f' and not PATIENT[node[4]] then
    if runs then redis.call('HSET', key, flows.RUNS, 'f') end
    if runs and runs ~= flows.SUSPENDED then return end
    return push_work(base, 'f', parent, 0, flow, call)
  end
  local left = redis.call('HINCRBY', key, 'w' .. number, -1)
  if runs then return count_end(base, key, flow, call) end
  if left == 0 then push_work(base, 'r', parent, 0, flow, call) end
end

-- A node has ended, as its field e<n> says. Resolve its parents at these positions of its list.
local function resolve_parents(base, key, flow, node, how, from, last, call)
  local ending, value = string.sub(how, 1, 1), string.sub(how, 2)
  local path = ending == 'f' and path_of(node[3], node[2], value) or ''
  for i = from, last do resolve_parent(base, key, flow, node[5][i], node, ending, path, call) end
end

-- A node of a plan in this queue has ended. ending: "c" and its result, or "f" and the reason. An end that the plan
-- knows already has no effect.
local function ended(base, edge, ending, value, call)
  local flow, key = edge.flow, key_of(base, edge.flow)
  if redis.call('HGET', key, 'stamp') ~= edge.stamp then return end
  local node = node_of(key, edge.node)
  if not node or not note_end(key, edge.node, ending, value) then return end
  if #node[5] > FEW_PARENTS then
    push_work(base, 'p', edge.node, 0, flow, call)
  else
    resolve_parents(base, key, flow, node, ending .. value, 1, #node[5], call)
  end
  cancel_children(base, key, flow, edge.node, call)
end

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

-- Some jobs have ended or are being removed. Those of flows report that to their plans.
function record.resolve(base, ids, call)
  local marks, found = base .. ':flowed', {}
  for from = 1, #ids, CHUNK do
    local last = math.min(from + CHUNK - 1, #ids)
    for i, edge in ipairs(redis.call('HMGET', marks, unpack(ids, from, last))) do
      if edge then found[#found + 1] = {ids[from + i - 1], edge} end
    end
  end
  -- Every mark is removed before the first end is reported: the report must not meet jobs that end with this one.
  for _, one in ipairs(found) do redis.call('HDEL', marks, one[1]) end
  for _, one in ipairs(found) do
    local ending, value = ending_of(base, one[1])
    local edge, own = parts_of(one[2])
    if own ~= '' then ended(base, parse_edge(own_edge(own)), ending, '', call) end
    if edge ~= '' then report(base, one[1], edge, ending, value, call) end
  end
end

-- Return packed options with F, see above. The options are a map with fewer than 15 fields, or ''.
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
  if is_needless(key, parents) then
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
  local entry = leave(base, id, call) or (flows.is_suspended(base, id) and locations.leave(base, id, call))
  if not entry then return false end
  finish.fail(base, id, entry, 'child_failed', call, nil, reason)
  return true
end

-- Stop a job of this queue that no parent needs any more: a running one is revoked, any other one is removed.
local function cancel(base, id, call)
  local state, entry = record.location(base, id)
  if state == 'active' then
    redis.call('HSET', base .. ':job:' .. id, 'revoked', 'no parent needs it')
    removal.revoke_run(base, id, entry, call)
  elseif state == 'suspended' then
    redis.call('HSET', base .. ':job:' .. id, 'revoked', 'no parent needs it')
    finish.fail(base, id, locations.leave(base, id, call), 'revoked', call)
  elseif locations.is_unstarted(state) then
    removal.remove(base, id, 'flow', call)
  end
end

-- The plan of a job does not wait for its end any more. The plan of the children that it has added does.
local function forget_edge(base, id, mark)
  local _, own = parts_of(mark)
  if own == '' then
    redis.call('HDEL', base .. ':flowed', id)
  else
    redis.call('HSET', base .. ':flowed', id, RS .. own)
  end
end

-- Carry out a message about a job of this queue, if it is still the job of that flow.
local function carry_out(base, message, call)
  local kind, id, edge, value = message[1], message[2], message[3], message[4]
  local mark = redis.call('HGET', base .. ':flowed', id)
  local is_same = has_edge(mark, edge)
  if kind == 'x' then
    if not is_same then return end
    forget_edge(base, id, mark)
    return cancel(base, id, call)
  end
  local done = false
  if is_same and kind == 'r' then done = release(base, id, call) end
  if is_same and kind == 'f' then done = fail_parent(base, id, value, call) end
  if done or (is_same and record.location(base, id)) then return end
  -- The plan waits for the end of this job. If its record was lost, nobody else reports that.
  if is_same then record.resolve(base, {id}, call) else report(base, id, edge, 'f', 'removed', call) end
end

-- Send a message to the job of a node, in whichever queue it is.
local function tell(base, flow, stamp, number, node, kind, value, call)
  local home = node[1] == '' and '' or base
  local message = {kind, node[2], edge_of(home, flow, stamp, number), value}
  if node[1] == '' then carry_out(base, message, call) else post(base, node[1], message, call) end
end

local work = {}

function work.m(base, key, flow, stamp, page, _, call)
  local field, next_field, staged = 'p' .. digits(page), 'p' .. digits(page + 1), key_of(base, stamp)
  local packed = redis.call('HGET', key, field) or redis.call('HGET', staged, field)
  if not packed then return end
  redis.call('HDEL', key, field)
  redis.call('HDEL', staged, field)
  if redis.call('HEXISTS', key, next_field) + redis.call('HEXISTS', staged, next_field) > 0 then
    push_work(base, 'm', page + 1, 0, flow, call)
  end
  local rows, known = unpacked(packed) or {0, {}}, {}
  for i, row in ipairs(rows[2]) do make(base, key, flow, stamp, rows[1] + i - 1, row, known, call) end
end

function work.r(base, key, flow, stamp, number, _, call)
  if has_ended(key, number) then return end
  local doomed, node = redis.call('HGET', key, 'd' .. digits(number)), node_of(key, number)
  if not node then return end
  local reason = doomed and 'child_failed: ' .. doomed or ''
  tell(base, flow, stamp, number, node, doomed and 'f' or 'r', reason, call)
end

work.f = work.r

function work.s(base, key, flow, stamp, _, _, call)
  local node = node_of(key, 0)
  local mark = node and redis.call('HGET', base .. ':flowed', node[2])
  if has_edge(mark, edge_of('', flow, stamp, 0)) then flows.resume(base, node[2], call) end
end

function work.p(base, key, flow, _, number, at, call)
  local node, how = node_of(key, number), redis.call('HGET', key, 'e' .. digits(number))
  if not node or not how then return end
  local last = math.min(at + PARENTS_STEP, #node[5])
  if last < #node[5] then push_work(base, 'p', number, last, flow, call) end
  resolve_parents(base, key, flow, node, how, at + 1, last, call)
end

-- Return the live children of a node for one step, { number, node }, and the position where the next step begins.
-- Positions count from the end. The first children of a node usually run, and their slots become free when they are
-- revoked. If they came first, another queue would start the next ones before the messages about these arrive.
local function live_children(key, children, at)
  local found, cost = {}, 0
  while at < #children and cost < CANCEL_STEP do
    local child = children[#children - at]
    at = at + 1
    local node = not has_ended(key, child) and node_of(key, child)    -- nil: work.m will see that it is needless
    if node then found[#found + 1] = {child, node} end
    cost = cost + 1 + (node and #node[5] / PARENTS_CHECKED or 0)
  end
  return found, at
end

function work.c(base, key, flow, stamp, number, at, call)
  local children = children_of(key, number)
  local found, last = live_children(key, children, at)
  -- The rest comes before the work that this step adds, and is done after it: depth first.
  if last < #children then push_work(base, 'c', number, last, flow, call) end
  for _, one in ipairs(found) do
    local child, node = one[1], one[2]
    if is_needless(key, node[5]) and note_end(key, child, 'f', 'cancelled') then
      cancel_children(base, key, flow, child, call)
      tell(base, flow, stamp, child, node, 'x', '', call)
    end
  end
end

-- Return true if a call should leave the rest of the work to another call.
local function is_enough(it, call)
  return budget.has_settled_enough(it) or (call.seen.posted or 0) > POSTED_BYTES or keyed.has_touched_many(call)
end

-- Return true if there is work that can be done. Jobs of other queues are not made while the outbox is full. All other
-- work is done: it ends jobs that exist, so their number limits it.
function wakeup.can_advance(base, seen)
  local top = redis.call('LINDEX', base .. ':flow_work', -1)
  if not top then return false end
  return string.sub(top, 1, 1) ~= MAKE or not outbox.full(base, seen)
end

-- Do the work that is left, until a millisecond has passed. Sets call.ends_jobs if jobs that nobody needs are left: a
-- call then claims nothing, so none of them starts after the call that has cancelled them.
function wakeup.advance_flows(base, call)
  local key, it = base .. ':flow_work', budget.new()
  repeat
    local item = wakeup.can_advance(base, call.seen) and redis.call('RPOP', key)
    if not item then break end
    local op, number, at, flow = string.match(item, '^(%a) (%d+) (%d+) (.*)$')
    local plan = key_of(base, flow)
    local stamp = redis.call('HGET', plan, 'stamp')
    if stamp then work[op](base, plan, flow, stamp, tonumber(number), tonumber(at), call) end
    local top = redis.call('LINDEX', key, -1)
    call.seen.flow_work = top and true or nil
    call.ends_jobs = top and string.sub(top, 1, 1) ~= MAKE
  until not top or is_enough(it, call)
end

-- Receive the outbox entry of another queue that belongs to a flow. job: as in inbox.lua.
function flows.receive(base, job, call)
  local message = job.extra.message
  if message then
    if message[1] ~= 'e' then return carry_out(base, message, call) end
    local edge = parse_edge(message[3])
    return ended(base, edge, message[4], message[5], call)
  end
  local given = job.extra.flow
  job.extra.flow = nil
  job.home, job.flow, job.stamp, job.node, job.parents, job.is_parent = unpack(given)
  local refused = enter(base, job, call)
  if refused then
    report(base, job.id, edge_of(job.home, job.flow, job.stamp, job.node), 'f', refused, call)
  end
end

-- Return true if an outbox entry belongs to a flow.
function flows.is_of_flow(extra)
  return extra and (extra.message or extra.flow) and true or false
end

-- Return the first of these ids that is in use.
local function taken_among(base, args, from, last)
  for i = from, last do
    if plain.location(base, args[i]) then return args[i] end
  end
end

-- Return why node 0 cannot be added, or nil.
local function status_of_root(base, id)
  if id == '' then return nil end
  local status = add.is_taken(base, id)
  if status then return status end
  local live = redis.call('HGET', key_of(base, id), 'live')
  return live and tonumber(live) > 0 and 'duplicate' or nil
end

local MOST_CHECKED, MOST_PAGES = 1000, 10000
local STAGED_MS = '600000'

register('stageFlow', function(base, args)
  local key, first, write = key_of(base, args[1]), integer('number', args[2]), {}
  for i = 3, #args do
    write[#write + 1], write[#write + 2] = 'p' .. digits(first + i - 3), args[i]
  end
  in_chunks('HSET', key, nil, write)
  redis.call('PEXPIRE', key, STAGED_MS)
  return 1
end)

request.register('addFlow', function(base, args)
  local root, stamp, total = args[4], args[5], integer('total', args[6])
  local staged, n = integer('staged', args[7]), integer('count', args[8])
  local pages = #args - 8 - n
  if n < 0 or n > MOST_CHECKED or pages < 1 or pages > MOST_PAGES or total < 1 then
    fail('ARGUMENT', 'the argument list does not hold ' .. n .. ' ids and a plan')
  end
  incarnation.check(args[3], redis.call('HGET', base .. ':meta2', 'incarnation'))
  local first = cmsgpack.unpack(args[9 + n])[2][1]
  add.check_mode(redis.call('HGET', base .. ':meta2', 'mode'), 1, {add.extra(first[6]) or {}})
  local call = queue_flags.call(base)
  local status = status_of_root(base, root)
  if status then return {call.now, root, status} end
  local taken = taken_among(base, args, 9, 8 + n)
  if taken then return {call.now, taken, 'taken'} end
  if staged > 0 then
    if redis.call('HLEN', key_of(base, stamp)) ~= staged then return {call.now, root, 'forgotten'} end
    redis.call('PERSIST', key_of(base, stamp))
  end
  local flow = root ~= '' and root or add.number(base)
  local key, write = key_of(base, flow), {'stamp', stamp, 'live', digits(total), 'nodes', digits(total)}
  redis.call('UNLINK', key)
  for i = 1, pages do
    write[#write + 1], write[#write + 2] = 'p' .. digits(i), args[8 + n + i]
  end
  in_chunks('HSET', key, nil, write)
  push_work(base, 'm', 1, 0, flow, call)
  wakeup.finish(base, call)
  return {call.now, flow, 'added', (call.seen.flow_work or call.seen.posted) and 1 or 0}
end)

register('advanceFlows', function(base)
  local call = queue_flags.call(base)
  if not call.seen.flow_work then return 0 end
  wakeup.finish(base, call)
  return wakeup.can_advance(base, call.seen) and 1 or 0
end, {'allow-oom'})

-- For children.lua.
flows.key_of, flows.push_work, flows.node_of, flows.has_ended, flows.unpacked = key_of, push_work, node_of, has_ended,
  unpacked
flows.children_of, flows.parse_edge, flows.parts_of, flows.own_edge = children_of, parse_edge, parts_of, own_edge
flows.cancel_children, flows.id_of = cancel_children, id_of
