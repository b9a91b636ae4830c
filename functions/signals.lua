-- signals: jobs that wait without a slot (state suspended), and the signals that wake them.
--   sendSignal  channel number id name data ttl once question -> status    "resumed", "buffered", "full", "missing",
--               "duplicate", or "state <state>": the job has ended. ttl: ms for which the signal can be received, 0 =
--               without limit. once: a text; the job accepts one signal with it. '' = none. question: the key of the
--               reply for which the sender waits, '' = none; see steps.lua
--   resumeJob   channel number id -> status     suspended -> waiting now
--   getMailbox  id -> { name, data, sent ms, expires ms or 0, question }…     the buffered signals of a job in order
-- A run suspends its job with the outcome `s`, see settle.lua.
--
--   suspended  zset  id -> deadline, ms; NEVER without one
--   job:<id>   waits  of a suspended job: "a" (any signal) or "n" (the named ones), its reason, and each name after
--              SEP. "A" and "N": the resume takes only the oldest of the signals. The name CHILD: the job also waits
--              for the end of any child that its runs have added, see children.watch
--   job:<id>   warm  see warm_runs.lua
--   signals:<id>  list  the mailbox: the signals that no run has got, "<sent ms> <expires ms, or 0> <name>" SEP <data>
--              A question follows the name after ASKS.
--   signalled  hash  "m" and the id -> "<number> <bytes>" of the mailbox, which is never empty
--              "o" and the id -> the last texts `once` of signals to the job, joined by SEP
--              "w" and the id -> the hand-over, cmsgpack { how, step, signal… }: the values that the runs of the job
--              get. how: "signal", "timeout", "children" or "operator" after a resume, otherwise ''. step: see the
--              outcome `d`
--
-- A signal is never lost. Either the job is suspended and waits for it: then the call that stores the signal also makes
-- the job ready. Or the signal goes to the mailbox, and the call that suspends the job looks there first. Therefore the
-- mailbox of a suspended job has no signal that the job waits for.
-- A job receives each signal once. The call that makes the job ready moves its signals from the mailbox to the
-- hand-over. All runs of the job get them, also after a failure or a lost lease, until one suspends the job again or
-- ends it. A running workflow takes a signal out of its mailbox in the call that records it, see receiveSignal.

local signals = {}
local NEVER = clock.NEVER
-- The number of signals in a mailbox, and their bytes.
local MOST = 256
local MOST_BYTES = 262144
local STEP_BYTES = 131072        -- of the mailboxes that one step of a call that settles may take signals from
local MOST_ONCE = 32768          -- bytes of the texts `once` of a job
local PIECE = 25
local PROMOTE_STEP = 200
local CHILD = '\29'
local ASKS = '\30'

-- Return the names for which a job waits, as a set; nil if it waits for any signal.
local function names_in(waits)
  if string.find(waits, '^[aA]') then return nil end
  local names = {}
  for name in string.gmatch(waits, SEP .. '([^' .. SEP .. ']*)') do names[name] = true end
  return names
end

local function contains(names, name)
  return not names or names[name]
end

-- Return when a signal was sent, when it expires (0: never), its name, its question, and where its data begin. The data
-- are not copied, because Redis hashes each text that Lua gets, and a mailbox may be large.
local function parse(signal)
  local sent, expires, head, from = string.match(signal, '^(%d+) (%d+) ([^' .. SEP .. ']*)' .. SEP .. '()')
  if not head then return nil end
  local name, question = string.match(head, '^([^' .. ASKS .. ']*)' .. ASKS .. '?(.*)$')
  return sent, expires, name, question, from
end

local function counts_of(base, id, seen)
  local kept = seen.signalled and redis.call('HGET', base .. ':signalled', 'm' .. id)
  local number, bytes = string.match(kept or '0 0', '^(%d+) (%d+)$')
  return tonumber(number or 0), tonumber(bytes or 0)
end

local function note_counts(base, id, number, bytes, seen)
  redis.call('HSET', queue_flags.create(base, 'signalled', seen), 'm' .. id, digits(number) .. ' ' .. digits(bytes))
end

-- Take up to `most` signals with these names (nil: all) out of the mailbox, in their order, and forget expired ones.
local function take(base, id, names, most, call)
  local number = counts_of(base, id, call.seen)
  if number == 0 then return {} end
  local key, taken, rest, bytes = base .. ':signals:' .. id, {}, {}, 0
  for _, signal in ipairs(redis.call('LRANGE', key, '0', '-1')) do
    local _, expires, name = parse(signal)
    if name and (expires == '0' or tonumber(expires) > call.now) then
      local list = #taken < most and contains(names, name) and taken or rest
      list[#list + 1] = signal
      if list == rest then bytes = bytes + #signal end
    end
  end
  if #rest == number then return taken end
  redis.call('UNLINK', key)
  if rest[1] then
    in_chunks('RPUSH', key, nil, rest)
    note_counts(base, id, #rest, bytes, call.seen)
  else
    redis.call('HDEL', base .. ':signalled', 'm' .. id)
  end
  return taken
end

-- Return the hand-over of a job.
local function hand_over_of(base, id, seen)
  local kept = seen.signalled and redis.call('HGET', base .. ':signalled', 'w' .. id)
  local readable, found = pcall(cmsgpack.unpack, kept or '')
  return readable and type(found) == 'table' and found or {'', ''}
end

-- Store a hand-over. Return it packed.
local function store_hand_over(base, id, values, seen)
  local packed = cmsgpack.pack(values)
  redis.call('HSET', queue_flags.create(base, 'signalled', seen), 'w' .. id, packed)
  return packed
end

-- Change the step of a job. Its runs keep their signals.
function signals.set_step(base, id, step, call)
  local values = hand_over_of(base, id, call.seen)
  values[2] = step
  store_hand_over(base, id, values, call.seen)
end

-- Let a job wait for its next run, which gets these signals. It has left its location. warm: the field `warm`, nil or
-- false without one.
local function resume(base, id, how, step, given, call, warm)
  local values = {how, step}
  for _, signal in ipairs(given) do values[#values + 1] = signal end
  local packed = store_hand_over(base, id, values, call.seen)
  events.note(call.lines, 'waiting', id, how)
  if warm_runs.start(base, id, warm, packed, call) then return end
  redis.call('HSET', base .. ':job:' .. id, 'place', routes.enter_again(base, id, call))
end

-- Return the state of a job with a record; then, of a suspended one, the fields `waits` and `warm`.
local function look(base, id)
  local job = redis.call('HMGET', base .. ':job:' .. id, 'place', 'waits', 'warm')
  local state = record.parts_of(job[1])
  return state, job[2], job[3]
end

-- Resume a job that is in `suspended`. warm: the field `warm`.
local function wake(base, id, how, given, call, warm)
  locations.leave_state(base, id, 'suspended', 's', call)
  resume(base, id, how, hand_over_of(base, id, call.seen)[2], given, call, warm)
end

-- Return true if a job is suspended until one of its children ends.
-- The second value is the field `warm`.
function flow_jobs.is_suspended(base, id)
  local state, waits, warm = look(base, id)
  return state == 'suspended' and string.find(waits or '', SEP .. CHILD, 1, true) ~= nil, warm
end

-- Resume a job if it is suspended until one of its children ends. One has ended.
function flow_jobs.resume(base, id, call)
  local is_suspended, warm = flow_jobs.is_suspended(base, id)
  if is_suspended then wake(base, id, 'children', {}, call, warm) end
end

-- Check the option and the payload of the outcome `s`.
function signals.check(option, payload)
  integer('timeout', string.match(option, '^(%-?%d+)'))
  if not string.find(payload, '^[anAN]') then fail('ARGUMENT', 'not a wait for signals: ' .. payload) end
  if string.find(payload, '^[nN][^' .. SEP .. ']*$') and string.find(option, '^%-') then
    fail('ARGUMENT', 'a job without signals to wait for needs a timeout')
  end
end

-- Return how many of these jobs, which are about to be suspended, may take the signals of their mailboxes in one step.
-- These are as many as have STEP_BYTES in them, and at least one.
function signals.fitting(base, ids)
  local fields, bytes = {}, 0
  for i, id in ipairs(ids) do fields[i] = 'm' .. id end
  for i, counts in ipairs(redis.call('HMGET', base .. ':signalled', unpack(fields))) do
    bytes = bytes + tonumber(string.match(counts or '', ' (%d+)$') or 0)
    if i > 1 and bytes > STEP_BYTES then return i - 1 end
  end
  return #ids
end

-- Return the signals of a hand-over to the front of the mailbox.
local function give_back(base, id, call)
  local got, key = hand_over_of(base, id, call.seen), base .. ':signals:' .. id
  local number, bytes = counts_of(base, id, call.seen)
  for i = #got, 3, -1 do
    redis.call('LPUSH', key, got[i])
    number, bytes = number + 1, bytes + #got[i]
  end
  if #got > 2 then note_counts(base, id, number, bytes, call.seen) end
end

-- Suspend a job whose run has ended, unless its mailbox has a signal that it waits for.
function signals.suspend(base, id, waits, option, call)
  local timeout, unused, kept, known, step = string.match(option, '^(%-?%d+)(r?)(k?)c?(%d*) ?(.*)$')
  if unused == 'r' then give_back(base, id, call) end
  local most = string.find(waits, '^[AN]') and 1 or MOST
  local given, values = take(base, id, names_in(waits), most, call), hand_over_of(base, id, call.seen)
  if step == '' then step = values[2] end
  events.note(call.lines, 'suspended', id)
  if given[1] then return resume(base, id, 'signal', step, given, call) end
  if known ~= '' and not children.watch(base, id, tonumber(known), call) then
    return resume(base, id, 'children', step, {}, call)
  end
  local deadline = string.sub(timeout, 1, 1) == '-' and NEVER or math.min(call.now + timeout, NEVER)
  redis.call('ZADD', queue_flags.create(base, 'suspended', call.seen), digits(deadline), id)
  local key = base .. ':job:' .. id
  if kept == 'k' then
    redis.call('HSET', key, 'place', 'suspended s', 'waits', waits, 'warm', failure_groups.runner_of(base, call))
  else
    redis.call('HSET', key, 'place', 'suspended s', 'waits', waits)
  end
  if step ~= '' then
    store_hand_over(base, id, {'', step}, call.seen)
  elseif values[1] ~= '' then
    redis.call('HDEL', base .. ':signalled', 'w' .. id)
  end
end

-- Resume the jobs whose deadline has come, as many as the budget permits. Return true if there may be more of them.
function scheduled.resume_due(base, call)
  local key, left = base .. ':suspended', PROMOTE_STEP
  repeat
    local wanted = math.min(left, PIECE)
    local due = redis.call('ZRANGEBYSCORE', key, '-inf', digits(call.now), 'LIMIT', '0', digits(wanted))
    for _, id in ipairs(due) do
      local state, _, warm = look(base, id)
      if state == 'suspended' then
        wake(base, id, 'timeout', {}, call, warm)
      else    -- its record was deleted by hand
        redis.call('ZREM', key, id)
        record.lost(base, id, call)
        events.note(call.lines, 'dropped', id, 'missing')
      end
    end
    if #due < wanted then return false end
    left = left - wanted
    keyed.review(base, call)
  until left == 0 or budget.has_settled_enough(call.budget)
  return true
end

-- Return the packed hand-overs of these jobs by position, false for a job without one.
function record.hand_overs(base, ids)
  local fields = {}
  for i, id in ipairs(ids) do fields[i] = 'w' .. id end
  return redis.call('HMGET', base .. ':signalled', unpack(fields))
end

-- Forget the signals of jobs that have ended or are removed.
function record.forget_signals(base, ids)
  local fields, keys = {}, {}
  for i, id in ipairs(ids) do
    fields[3 * i - 2], fields[3 * i - 1], fields[3 * i] = 'm' .. id, 'w' .. id, 'o' .. id
    keys[i] = base .. ':signals:' .. id
  end
  in_chunks('HDEL', base .. ':signalled', nil, fields)
  in_chunks('UNLINK', nil, nil, keys)
end

-- Return true if a mailbox has this signal, as it is stored.
function signals.has(base, id, signal, seen)
  if not seen.signalled then return false end
  for _, kept in ipairs(redis.call('LRANGE', base .. ':signals:' .. id, '0', '-1')) do
    if kept == signal then return true end
  end
  return false
end

-- Take a signal, which it has, out of a mailbox.
function signals.remove(base, id, signal, seen)
  local number, bytes = counts_of(base, id, seen)
  redis.call('LREM', base .. ':signals:' .. id, '1', signal)
  if number <= 1 then
    redis.call('HDEL', base .. ':signalled', 'm' .. id)
  else
    note_counts(base, id, number - 1, bytes - #signal, seen)
  end
end

-- Return the deadline of a suspended job in ms, nil without one.
function signals.deadline(base, id)
  local deadline = tonumber(redis.call('ZSCORE', base .. ':suspended', id) or nil)
  return deadline and deadline < NEVER and deadline or nil
end

-- Return why a suspended job will never be resumed, or should have been; nil if it is right. For checking_marks.lua.
function signals.fault_of_suspended(base, id)
  local waits = redis.call('HGET', base .. ':job:' .. id, 'waits')
  if not waits then return 'suspended, but does not say for what' end
  if string.find(waits, '^[nN][^' .. SEP .. ']*$') and not signals.deadline(base, id) then
    return 'waits for no signal and has no deadline'
  end
  if string.find(waits, SEP .. CHILD, 1, true) and not children.is_watched(base, id) then
    return 'waits for the end of a child, but its plan does not wake it'
  end
  local names, now = names_in(waits), clock.now()
  for _, signal in ipairs(redis.call('LRANGE', base .. ':signals:' .. id, '0', '-1')) do
    local _, expires, name = parse(signal)
    if name and contains(names, name) and (expires == '0' or tonumber(expires) > now) then
      return 'suspended, but its mailbox has the signal ' .. name
    end
  end
end

-- Return why a field of `signalled` is wrong, nil if it is right. For checking_marks.lua.
function signals.fault_of_field(base, field, value)
  local id = string.sub(field, 2)
  local state = record.location(base, id)
  if not state then return 'in signalled but has no record' end
  if locations.is_final(state) then return 'in signalled but ' .. state end
  if string.sub(field, 1, 1) ~= 'm' then return nil end
  local count = redis.call('LLEN', base .. ':signals:' .. id)
  local noted = string.match(value, '^(%d+) ')
  if count > 0 and digits(count) == noted then return nil end
  return 'its mailbox has ' .. count .. ' signals, but ' .. tostring(noted) .. ' are counted'
end

-- Return the texts `once` that a job knows, with SEP around each; '' without any.
local function known_texts(base, id, seen)
  return seen.signalled and redis.call('HGET', base .. ':signalled', 'o' .. id) or ''
end

-- Let a job know one more of these texts. The oldest ones are forgotten if they are too long together.
local function note_text(base, id, known, once, seen)
  local texts = (known == '' and SEP or known) .. once .. SEP
  while #texts > MOST_ONCE do texts = string.sub(texts, (string.find(texts, SEP, 2, true))) end
  redis.call('HSET', queue_flags.create(base, 'signalled', seen), 'o' .. id, texts)
end

-- Return the number of signals in a mailbox that has room for this one, and their bytes; nil if it is full.
local function counts_with_room(base, id, signal, call)
  local number, bytes = counts_of(base, id, call.seen)
  if number >= MOST or bytes + #signal > MOST_BYTES then
    take(base, id, {}, MOST, call)    -- only expired signals leave
    number, bytes = counts_of(base, id, call.seen)
    if number >= MOST or bytes + #signal > MOST_BYTES then return nil end
  end
  return number, bytes
end

request.register('sendSignal', function(base, args)
  local id, name, ttl = args[3], args[4], integer('ttl', args[6])
  local call = queue_flags.call(base)
  local recorded, waits, warm = look(base, id)
  local state = recorded or plain.outcome(base, id)
  if not state then return 'missing' end
  if locations.is_final(state) then return 'state ' .. state end
  local once = args[7] or ''
  local known = once ~= '' and known_texts(base, id, call.seen)
  if known and string.find(known, SEP .. once .. SEP, 1, true) then return 'duplicate' end
  local expires = ttl > 0 and digits(call.now + ttl) or '0'
  local asks = (args[8] or '') ~= '' and ASKS .. args[8] or ''
  local signal = digits(call.now) .. ' ' .. expires .. ' ' .. name .. asks .. SEP .. args[5]
  if #signal > MOST_BYTES then fail('ARGUMENT', 'a signal has at most ' .. MOST_BYTES .. ' bytes') end
  if not recorded then plain.open(base, id, call.seen) end
  local resumes = state == 'suspended' and waits and contains(names_in(waits), name)
  local number, bytes = nil, nil
  if not resumes then
    number, bytes = counts_with_room(base, id, signal, call)
    if not number then return 'full' end
  end
  if known then note_text(base, id, known, once, call.seen) end
  events.note(call.lines, 'signalled', id, name)
  if resumes then
    wake(base, id, 'signal', {signal}, call, warm)
  else
    redis.call('RPUSH', base .. ':signals:' .. id, signal)
    note_counts(base, id, number + 1, bytes + #signal, call.seen)
  end
  wakeup.finish(base, call)
  return resumes and 'resumed' or 'buffered'
end)

request.register('resumeJob', function(base, args)
  local id, call = args[3], queue_flags.call(base)
  local state, _, warm = look(base, id)
  state = state or plain.outcome(base, id)
  if not state then return 'missing' end
  if state ~= 'suspended' then return 'state ' .. state end
  wake(base, id, 'operator', {}, call, warm)
  wakeup.finish(base, call)
  return 'ok'
end)

register('getMailbox', function(base, args)
  local rows, now = {}, clock.now()
  for _, signal in ipairs(redis.call('LRANGE', base .. ':signals:' .. args[1], '0', '-1')) do
    local sent, expires, name, question, from = parse(signal)
    if name and (expires == '0' or tonumber(expires) > now) then
      rows[#rows + 1] = {name, string.sub(signal, from), tonumber(sent), tonumber(expires), question}
    end
  end
  return rows
end, {'no-writes'})
