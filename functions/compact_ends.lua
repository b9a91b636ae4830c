-- compact_ends: ends runs of jobs that did not wait in `fifo`. Their worker sends the completed ones in groups, see
-- settle.lua. Most of these jobs are compact jobs, see compact.lua. A completed job stays a compact job while the
-- retention policy keeps it, and gets a record if it has its own time to live. A run with another outcome also gets a
-- record.

local compact_ends = {}

-- Give the compact jobs of these runs their records: ids and tokens by position.
function compact_ends.open(base, ids, tokens, call)
  local runs = compact.runs(base, ids, call.seen)
  for i, run in ipairs(runs or {}) do
    if compact.is_run(run, tokens[i]) then compact.open(base, ids[i]) end
  end
end

-- Return the members of `runs`, the ids and (nil for a group without keys) the keys of the runs `from` to `to` of a
-- group.
local function read(args, group, from, to)
  local first, count = group.first - 1, group.count
  local members = {unpack(args, first + from, first + to)}
  local ids = {unpack(args, first + count + from, first + count + to)}
  return members, ids, group.width == 3 and {unpack(args, first + 2 * count + from, first + 2 * count + to)} or nil
end

local function tokens_in(members)
  local tokens = {}
  for i, member in ipairs(members) do tokens[i] = runs.token_in(member) end
  return tokens
end

-- Replace the members that another consumer owns with one that is in no queue.
local function disown(base, members, ids, consumer)
  for i, token in ipairs(tokens_in(members)) do
    local holder = token ~= '' and runs.consumer_of(base, ids[i], token)
    if holder and holder ~= consumer then members[i] = '0-0' end
  end
end

-- End these runs, and release their keys. Return true if every run held its lease.
local function release(base, members, ids, keys, call)
  local found = runs.remove_members(base, members, call.seen)
  local valid = found == #members
  if keys and not valid then keys = runs.held_keys(base, ids, tokens_in(members), keys, found) end
  if keys and keys[1] then keyed.release_completed(base, keys, call) end
  return valid
end

-- Return why a run is refused; nil if its lease was valid. named: the tokens so far.
local function refusal(base, id, token, named)
  local state, at = plain.location(base, id)
  local first = not named[token]
  named[token] = true
  if state == 'active' and at == token and first then return nil end
  return state and 'stale' or 'missing'
end

-- Return true if completed jobs of this policy may stay compact jobs until finish.store. A client may wait for a job
-- that is not kept. Such a job needs a record, and so does one with a time to live.
local function keeps(policy, seen)
  if seen.event_rules then return false end
  local count, _, ttl = finish.kept_by(policy, seen)
  return not ttl and (count ~= 0 or not seen.waiters)
end

-- Return the result of the i-th run of a group.
local function result_of(args, group, i)
  return args[group.results + (group.many and i or 1)]
end

-- Note that all jobs of a step have completed. from: the position of the first one in the group.
local function note(args, group, ids, from, done, call)
  local line, results = events.line(call.lines, 'completed'), {}
  local at = #line
  for i = 1, #ids do line[at + i] = ids[i] end
  if call.seen.waiters then
    for i = 1, #ids do results[i] = result_of(args, group, from + i - 1) end
  end
  finish.note_completed(done, group.policy, ids, results)
end

-- Write the ends of runs that began at the same time, as if all of them were runs of compact jobs. Return how many of
-- the jobs had no text in `compact_runs`: they are not compact jobs.
local function write_ends(base, args, group, ids, from, now)
  local prefix, since, flat, n = group.prefix, group.since, {}, 0
  local text = compact.ended(prefix, since, now, args[group.results + 1])
  for i = 1, #ids do
    if group.many then text = compact.ended(prefix, since, now, args[group.results + from + i - 1]) end
    flat[n + 1], flat[n + 2], n = ids[i], text, n + 2
  end
  return in_chunks('HSET', base .. ':compact_runs', nil, flat)
end

-- Remove the texts that write_ends has created, `made` in number. Return which of the jobs are compact, by position.
local function undo_others(base, ids, made)
  local are_compact, others = {}, {}
  for i, id in ipairs(ids) do
    are_compact[i] = made < #ids and compact.has(base, id)
    if not are_compact[i] then others[#others + 1] = id end
  end
  in_chunks('HDEL', base .. ':compact_runs', nil, others)
  return are_compact
end

-- Return the texts of the runs with these tokens, by position, false for a run of a job that is not compact.
local function runs_of(base, ids, tokens, seen)
  local runs = compact.runs(base, ids, seen) or {}
  for i, run in ipairs(runs) do
    if not compact.is_run(run, tokens[i]) then runs[i] = false end
  end
  return runs
end

-- Complete runs one by one. step: see compact_ends.step; ended: which jobs have their end already, by position.
local function complete_each(base, step, ended, done, answer, call, complete)
  local args, group, ids, now, named, flat = step.args, step.group, step.ids, digits(call.now), {}, {}
  local runs = ended or runs_of(base, ids, step.tokens, call.seen)
  for i = 1, #ids do
    local id, token, result, run = ids[i], step.tokens[i], result_of(args, group, step.from + i - 1), runs[i]
    local why = not step.valid and refusal(base, id, token, named)
    if run and step.keeps and not why then
      events.note(call.lines, 'completed', id)
      finish.note(done, 'completed', group.policy, id, result)
      if not ended then
        flat[#flat + 1], flat[#flat + 2] = id, compact.ended(group.prefix, compact.start_of(run), now, result)
      end
    elseif not why then
      if run then compact.open(base, id) end
      why = complete(base, now, call, done, id, token, result, group.policy)
    end
    if why then
      if why == 'missing' then record.lost(base, id, call) end
      answer[#answer + 1], answer[#answer + 2] = step.position + i - 1, why
      -- If the job was removed, this outcome proves that the run has ended.
      stopping.finish(base, args[3], {token}, call)
    end
  end
  in_chunks('HSET', base .. ':compact_runs', nil, flat)
end

-- Complete the runs `from` to `to` of a group. position: the position of the first one among the runs of the call.
-- Refused runs are added to `answer`. complete: outcomes.apply.c.
function compact_ends.step(base, args, group, from, to, position, done, answer, call, complete)
  local seen, ended = call.seen, nil
  local members, ids, keys = read(args, group, from, to)
  if call.verify then disown(base, members, ids, args[3]) end
  local valid, keeps_compact = release(base, members, ids, keys, call), keeps(group.policy, seen)
  valid = valid or not entries.fenced
  if group.since and valid and keeps_compact and seen.compact then
    local made = write_ends(base, args, group, ids, from, digits(call.now))
    if made == 0 then
      note(args, group, ids, from, done, call)
      return
    end
    ended = undo_others(base, ids, made)
  end
  local step = {args = args, group = group, ids = ids, tokens = tokens_in(members), from = from,
    position = position, valid = valid, keeps = keeps_compact}
  complete_each(base, step, ended, done, answer, call, complete)
end
