-- push: starts added jobs on idle workers without a claim call. warm_runs.lua does the same with resumed jobs.
-- An add that finds an idle worker claims the jobs for that worker in the same call, and publishes them on the channel
-- of the worker. The handler then starts after one hop instead of three.
--   message  "p<number> <ms> <cmsgpack>": the number of the worker's last call; the time of the claim; the jobs, as a
--            settle call returns them
--            "j<number> <ms> <entry> <length of name> <name><data>": the same with one plain job without options
--   call:<consumer>  after the reply, { time of the claim, ms; tokens, see claim_tokens.lua } and a nil, both cmsgpack
-- A push is a claim whose reply may be lost, because a message is delivered once or never. So the tokens are stored
-- with the reply to the worker's last call, which also states the lease of the runs. A lost push counts as undelivered,
-- as a lost reply does (stalled.lua). A worker gets at most one push between two calls, because a push removes it from
-- `idle`. Its next call has the flag "g" if it has received the push. If it has not, the call returns the jobs. The
-- message may still arrive later. The worker then ignores it, because it names an older call.
--
-- Only jobs that this call has added are pushed: jobs of `fifo`, or one compact job, see compact_pushes.lua. The server
-- replicates the writes of a call together, and a failover may lose the last calls. A failover that loses the push then
-- loses the jobs too, and the outcome of the run is refused. If a push claimed an older entry, that entry could wait
-- again after the failover, and another worker could claim it under the same token.

local push = {}
-- An add with more arguments or bytes wakes workers instead. They claim in larger batches, and the time that a push
-- saves is small for them.
local MOST_ARGUMENTS = 100
local MOST_BYTES = 65536
-- The last byte of a stored reply, in msgpack: `true` if the worker accepts a push, nil after a push.
local ACCEPTS, PUSHED = 195, 192
-- the structures that a push has to look at
local CONCERNS = {returned = true, lifo = true, ready = true, limits = true, timer = true, expiry = true}
-- No entry has a later time, so this id comes after all entries of its number.
local LATEST = '-9999999999999'

-- Return true if the jobs of an add may be pushed: they are few and small. args: the arguments of the add.
local function is_small(args)
  if #args > MOST_ARGUMENTS then return false end
  local bytes = 0
  for i = 1, #args do bytes = bytes + #args[i] end
  return bytes <= MOST_BYTES
end

-- Return the number of a worker's last call, its reply, and the pushed tokens or `true`, from the stored text. Return
-- nothing if the text is damaged.
local function unpacked(reply)
  local number, packed = string.match(reply, '^(%d+) (.*)$')
  -- The string may have been damaged by hand.
  local readable, answer, tokens = pcall(cmsgpack.unpack, packed or '')
  if readable and type(answer) == 'table' then return number, answer, tokens end
end

do
  -- The leases of workers, by the part of an idle reply before its time. Unpacking a reply costs 7,000 instructions.
  local leases, n_leases = {}, 0
  local MOST_LEASES, MOST_BYTES_BEFORE = 256, 16
  -- An idle reply ends with its time, which has nine bytes, and ACCEPTS.
  local BEFORE_TIME, TIME = -11, 207
  local NOTHING_CLAIMED = '^\152\144\144'

  -- Return the number of the last call of a worker that accepts a push, its lease, and the store key of the reply to
  -- that call; otherwise nil.
  function push.accepting(base, consumer)
    local key = base .. ':call:' .. consumer
    local reply = redis.pcall('GET', key)
    if type(reply) ~= 'string' or string.byte(reply, -1) ~= ACCEPTS then return nil end
    local number = string.match(reply, '^%d+')
    if not number then return nil end
    local before = string.sub(reply, #number + 2, BEFORE_TIME)
    local is_idle = string.byte(reply, BEFORE_TIME + 1) == TIME
    if is_idle and leases[before] then return number, leases[before], key end
    local _, answer = unpacked(reply)
    local lease = answer and tonumber(answer[5])
    if lease and is_idle and #before < MOST_BYTES_BEFORE and string.find(before, NOTHING_CLAIMED) then
      if n_leases == MOST_LEASES then leases, n_leases = {}, 0 end
      leases[before], n_leases = lease, n_leases + 1
    end
    return number, lease, key
  end
end

-- Return true if the worker holds a timer. It must call then, because it may have no free slot after a push.
function push.holds_timer(base, consumer, seen)
  local holders = seen.timer and redis.call('HMGET', base .. ':timer', 'first', 'second')
  return holders and (holders[1] == consumer or holders[2] == consumer)
end

-- Return true if the next job of the queue is the next entry of `fifo`, and the worker may start it.
local function may_push(base, consumer, seen)
  if seen.returned or seen.lifo or seen.ready or seen.limits then return false end
  return not push.holds_timer(base, consumer, seen)
end

-- Return true if the worker with this channel listens on this server. SPUBLISH also reaches receivers on replicas, but
-- does not count them. So a worker that has not followed a failover yet would start jobs that another worker gets too.
-- An add pushes nothing if its user has no permission for PUBSUB.
function push.is_near(channel)
  local n = redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)[2]
  return n == 1 or (tonumber(n or nil) or 0) > 0
end

-- Return the entries that are waiting in `fifo`, up to n of them, and make them pending for the consumer. nil: none.
-- The second value is true if the group of the workers is missing.
function push.read_new(base, consumer, n)
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', digits(n), 'STREAMS', keys_of(base).fifo,
    '>')
  if not reply then return nil, false end
  if reply.err then return nil, true end
  return reply[1][2]
end

-- Append the job of an entry to `jobs`. Return its id if it has a record, otherwise ''. Return nil for a job that must
-- not be pushed: a job that ran before, or that sets its own lease.
local function put(base, row, jobs)
  local raw, name, data, opts, at = row[1], row[2][1], row[2][2], row[2][3], #jobs
  local id = ''
  if name == '' then
    local hint = string.sub(data, 1, 1)
    if hint ~= 'i' and hint ~= 'o' then return nil end
    id = string.sub(data, 2)
    local job = redis.pcall('HMGET', base .. ':job:' .. id, 'name', 'data', 'opts')
    name, data, opts = job[1], job[2], job[3]
    if not (name and data) then return nil end
  end
  if plain.own_lease(opts) then return nil end
  jobs[at + 1], jobs[at + 2], jobs[at + 3], jobs[at + 4] = raw, name, data, opts or false
  if id ~= '' then
    jobs[at + 1], jobs[at + 4] = 'p' .. raw, 1
    jobs[at + 5], jobs[at + 6], jobs[at + 7], jobs[at + 8] = id, opts or false, '1', false
  end
  return id
end

-- Return the jobs of entries as a settle call returns them, and their ids in the order of the entries; nil if one of
-- them is not pushed.
local function jobs_of(base, rows, first)
  if tonumber(string.match(rows[1][1], '^%d+')) < first then return nil end
  local jobs, ids = {}, {}
  for i, row in ipairs(rows) do
    ids[i] = put(base, row, jobs)
    if not ids[i] then return nil end
  end
  return jobs, ids
end

-- Let the entries wait again, as if they had never been read.
function push.undo(base, rows)
  local raw = {}
  for i, row in ipairs(rows) do raw[i] = row[1] end
  entries.acknowledge(base .. ':fifo', raw)
  local before = tonumber(string.match(raw[1], '^%d+')) - 1
  redis.call('XGROUP', 'SETID', base .. ':fifo', GROUP, digits(before) .. LATEST)
end

-- Claim the only job of this call, a plain one, for an idle worker. Return the message of the push, the worker's lease,
-- and the store key of the reply to its last call. Return nil if the worker should be woken instead. channel: of the
-- worker; entry: of the job; call: see push.prepare. The caller has found that the queue has none of the structures
-- that a push has to look at.
function push.claim_one(base, consumer, channel, entry, name, data, call)
  local number, lock, key = push.accepting(base, consumer)
  if not (lock and push.is_near(channel)) then return nil end
  local rows = push.read_new(base, consumer, 1)
  if not rows then return nil end
  if rows[1][1] ~= entry then
    push.undo(base, rows)
    return nil
  end
  return 'j' .. number .. ' ' .. digits(call.now) .. ' ' .. entry .. ' ' .. digits(#name) .. ' ' .. name .. data, lock,
    key
end

-- Claim jobs of this call for an idle worker. Return the push; nil if the worker should be woken instead. The caller
-- publishes the `message` of the push, and then calls push.confirm or push.undo. call: the call of an add, with `args`,
-- its arguments; `first`, the lowest number of its jobs, if some of them are in `fifo`; and `alone`, see
-- compact_adds.write. n: the number of jobs that may start.
function push.prepare(base, consumer, n, call)
  if not (call.first or call.alone) or not is_small(call.args) then return nil end
  local number, lock = push.accepting(base, consumer)
  if not lock then return nil end
  local seen = queue_flags.some(base, call.seen.features, CONCERNS)
  if call.alone and call.startable == 1 then return push.prepare_compact(base, consumer, number, lock, seen, call) end
  if not (call.first and may_push(base, consumer, seen)) then return nil end
  if not push.is_near(base .. ':wake:' .. consumer) then return nil end
  local rows = push.read_new(base, consumer, n)
  if not rows then return nil end
  local jobs, ids = jobs_of(base, rows, call.first)
  if not jobs then
    push.undo(base, rows)
    return nil
  end
  local message = 'p' .. number .. ' ' .. digits(call.now) .. ' ' .. cmsgpack.pack(jobs)
  return {message = message, rows = rows, ids = ids, lock = lock, may_expire = seen.expiry}
end

-- Note the shortest lease in the queue. Sweeps then skip the runs whose lease cannot have expired yet.
function push.note_lease(base, lease, call)
  if lease >= (call.seen.shortest_lease or math.huge) then return end
  redis.call('HSET', base .. ':meta2', 'shortest_lease', digits(lease))
  call.seen.shortest_lease = lease
end

-- Store the tokens of a push that was published, with the reply to the last call of its worker. lock: the worker's
-- lease, ms.
function push.note(base, consumer, tokens, lock, call)
  redis.call('APPEND', base .. ':call:' .. consumer, cmsgpack.pack({call.now, tokens}) .. string.char(PUSHED))
  push.note_lease(base, lock, call)
end

-- The same for one plain job. key: of push.claim_one; entry: of the job.
function push.note_one(base, key, entry, lock, call)
  -- The token is `p` and the entry.
  redis.call('APPEND', key,
    '\146' .. packed_number(call.now) .. '\145' .. string.char(161 + #entry) .. 'p' .. entry .. '\192')
  push.note_lease(base, lock, call)
end

-- Store a push that was published: its tokens, the claims of jobs with a record, and its events.
function push.confirm(base, consumer, pushed, call)
  if pushed.batch then return push.confirm_compact(base, consumer, pushed, call) end
  local tokens, started, line = {}, {}, events.line(call.lines, 'active')
  local claimed = '1 ' .. digits(call.now) .. ' ' .. digits(pushed.lock)
  for i, row in ipairs(pushed.rows) do
    local id = pushed.ids[i]
    tokens[i] = 'p' .. row[1]
    if id ~= '' then
      redis.call('HSET', base .. ':job:' .. id, 'place', 'active ' .. tokens[i], 'claim', claimed)
    end
    started[i] = id ~= '' and id or plain.id_of(row[1])
    line[#line + 1] = started[i]
  end
  if pushed.may_expire then redis.call('ZREM', base .. ':expiry', unpack(started)) end
  push.note(base, consumer, tokens, pushed.lock, call)
end

-- Return true if jobs were pushed to a worker since its last call. reply: its stored last reply, nil if there is none.
function push.has_pushed(reply)
  return reply and string.byte(reply, -1) == PUSHED
end

-- Return the tokens that were pushed to a worker since its last call, and the time of the push in ms; nil if none were.
-- reply: its stored last reply.
function push.tokens_in(reply)
  if not push.has_pushed(reply) then return nil end
  local _, _, pushed = unpacked(reply)
  if type(pushed) == 'table' and type(pushed[2]) == 'table' then return pushed[2], pushed[1] end
end
