-- plans: the stored plan of a flow, and the ends of its nodes. flows.lua does the work that follows from these ends.
-- Policies: the effect that the failure of a child has on its parent.
--   f  fail: the parent fails immediately          w  wait: the parent fails when all of its children have ended
--   c  collect, i ignore, r remove: the parent starts when all of its children have ended. The three
--      differ only for readers of the results of the children
--
--   flow:<stamp>  hash  p<n>: staged pages whose jobs are not made
--   flow:<id>  hash  the plan. stamp; live: the number of nodes that have not ended; p<n>: pages whose jobs are not
--              made; for node n of a made page:
--                <n>   cmsgpack { base key, id, name, policy, parents }
--                k<n>  of a parent: cmsgpack { children }       w<n>  the number of children that it waits for
--                d<n>  why it fails: its first failed child
--                e<n>  how it ended: "c" and the result, or "f" and the reason
--              nodes: the number of nodes. Only a plan of added children has these:
--                pages  the number of pages      i<base key> SEP <id>  the number of a child with a `job_id`
--                s0     node 0 runs or is suspended, and does not wait: "1"; "f" if a failed child will end it; "s" if
--                       it is suspended until a child ends
--                x0     the number of its children that have ended while it had s0
--                y0     node 0 runs and is revoked, so none of its children starts
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
-- The plan is in one queue, and that queue decides when a job of the flow starts. A job of another queue is sent there
-- through the outbox. Its end returns as a message, through the outbox of the other queue (extra.message of an entry).
-- Entries for one queue arrive in order, so a parent exists there before the message that releases it.
-- Every end and every removal of a job calls record.forget_marks or record.lost, which report the end to the plan. At
-- that time, other jobs of the same call are half settled. So the report only notes the end, and appends the changes of
-- other jobs to `flow_work`. The call makes these changes when it ends (wakeup.finish, settle.lua). If its time is
-- spent, the worker that relays the outbox makes the rest.

local plans = {}
local MAKE = 'm'
local KEEP_MS = '86400000'
plans.RUNS, plans.ENDED, plans.REVOKED, plans.SUSPENDED = 's0', 'x0', 'y0', 's'    -- fields of a plan, and a value
local FEW_PARENTS = 8           -- the end of a node resolves so few parents itself; more of them are work
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

-- Return the table of a packed text, nil if the text is damaged. An error would come after the first writes of a call.
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

-- Return true if a parent needs its children no longer.
local function needs_none(key, parent)
  return has_ended(key, parent) or (parent == 0 and redis.call('HEXISTS', key, plans.REVOKED) == 1)
end

-- Return true if no parent of a node needs it any more. Node 0 and the other ends of a graph have no parents. known: a
-- table by the number of a parent, true if this parent needs no children. The function adds the parents that it reads.
local function is_needless(key, parents, known)
  if not parents[1] then return false end
  for _, parent in ipairs(parents) do
    if known[parent] == nil then known[parent] = needs_none(key, parent) end
    if not known[parent] then return false end
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

-- Note that these nodes, which have not ended, end in the same way.
local function note_ends(key, numbers, how)
  local write = {}
  for i, number in ipairs(numbers) do write[2 * i - 1], write[2 * i] = 'e' .. digits(number), how end
  redis.call('HSET', key, unpack(write))
  if redis.call('HINCRBY', key, 'live', -#numbers) == 0 then redis.call('PEXPIRE', key, KEEP_MS) end
end

-- Cancel the children of a node that has ended, unless all of them have ended.
local function cancel_children(base, key, flow, number, call)
  local left = tonumber(redis.call('HGET', key, 'w' .. digits(number)) or 0)
  if left > 0 then push_work(base, 'c', number, 0, flow, call) end
end

local PATIENT = {w = true, c = true, i = true, r = true}

-- Count the end of a child of node 0, which does not wait for all of its children. Resume it if it is suspended until
-- any child ends.
local function count_end(base, key, flow, call)
  redis.call('HINCRBY', key, plans.ENDED, 1)
  if redis.call('HGET', key, plans.RUNS) ~= plans.SUSPENDED then return end
  redis.call('HSET', key, plans.RUNS, '1')
  push_work(base, 's', 0, 0, flow, call)
end

-- Let the end of a node take effect on one of its parents. path: the path of the failure, '' without one.
local function resolve_parent(base, key, flow, parent, node, ending, path, call)
  if has_ended(key, parent) then return end
  local number = digits(parent)
  if ending == 'f' and (node[4] == 'f' or node[4] == 'w') then redis.call('HSETNX', key, 'd' .. number, path) end
  local runs = parent == 0 and redis.call('HGET', key, plans.RUNS)    -- see children.wait
  if ending == 'f' and not PATIENT[node[4]] then
    if runs then redis.call('HSET', key, plans.RUNS, 'f') end
    if runs and runs ~= plans.SUSPENDED then return end
    return push_work(base, 'f', parent, 0, flow, call)
  end
  local left = redis.call('HINCRBY', key, 'w' .. number, -1)
  if runs then return count_end(base, key, flow, call) end
  if left == 0 then push_work(base, 'r', parent, 0, flow, call) end
end

-- Resolve the parents of an ended node at these positions of its list. how: its field e<n>.
local function resolve_parents(base, key, flow, node, how, from, last, call)
  local ending, value = string.sub(how, 1, 1), string.sub(how, 2)
  local path = ending == 'f' and path_of(node[3], node[2], value) or ''
  for i = from, last do resolve_parent(base, key, flow, node[5][i], node, ending, path, call) end
end

-- Note the end of a node in a plan of this queue. ending, value: "c" and its result, or "f" and the reason. An end that
-- the plan knows already has no effect.
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

plans.key_of, plans.edge_of, plans.parse_edge = key_of, edge_of, parse_edge
plans.parts_of, plans.own_edge, plans.has_edge = parts_of, own_edge, has_edge
plans.push_work, plans.unpacked, plans.node_of, plans.children_of = push_work, unpacked, node_of, children_of
plans.has_ended, plans.is_needless, plans.ended = has_ended, is_needless, ended
plans.note_end, plans.note_ends = note_end, note_ends
plans.cancel_children, plans.resolve_parents = cancel_children, resolve_parents
