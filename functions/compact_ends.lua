-- compact_ends: ends runs of jobs in the active stream. Their worker sends the completed ones in groups, see
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

-- Return the entries, the ids and (nil for a group without keys) the keys of the runs `from` to `to` of a group.
local function read(args, group, from, to)
  local width, raws, ids = group.width, {}, {}
  local keys = width == 3 and {} or nil
  local at = group.first + (from - 1) * width
  for i = 1, to - from + 1 do
    raws[i], ids[i] = args[at], args[at + 1]
    if keys then keys[i] = args[at + 2] end
    at = at + width
  end
  return raws, ids, keys
end

-- Replace the entries that another consumer owns with an id that no entry has.
local function disown(base, prefix, raws, consumer)
  for i, raw in ipairs(raws) do
    local holder = entries.consumer_of(base, prefix .. raw)
    if holder and holder ~= consumer then raws[i] = '0-0' end
  end
end

-- Acknowledge and delete these entries, and release their keys. Return true if every entry was still pending.
local function release(base, raws, keys, call)
  local lane = base .. ':lane'
  local valid = entries.acknowledge(lane, raws) == #raws
  -- The keys that the caller sent are trusted only if every run holds its lease.
  if keys and not valid then keys = entries.keys_of(lane, raws) end
  entries.delete_acknowledged(lane, raws, not valid or call.seen.lane_lost)
  if keys and keys[1] then keyed.release(base, keys, call) end
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

-- Return true if completed jobs of this policy may stay compact jobs. A policy with a time to live keeps 0 jobs.
local function keeps(policy, seen)
  return not seen.event_rules and finish.kept_by(policy, seen) ~= 0
end

-- Complete the runs `from` to `to` of a group. position: the position of the first one among the runs of the call.
-- Refused runs are added to `answer`. complete: outcomes.apply.c.
function compact_ends.step(base, args, group, from, to, position, done, answer, call, complete)
  local seen, now, prefix = call.seen, digits(call.now), group.started
  local raws, ids, keys = read(args, group, from, to)
  if call.verify then disown(base, prefix, raws, args[3]) end
  local valid = release(base, raws, keys, call) or not entries.fenced
  local runs = compact.runs(base, ids, seen)
  local flat, n, line, kept, named = {}, 0, nil, keeps(group.policy, seen), {}
  local result = args[group.results + 1]
  local tail = compact.tail(now, result)
  local collected
  for i = 1, #ids do
    local id, token = ids[i], prefix .. raws[i]
    if group.many then
      result = args[group.results + from + i - 1]
      tail = compact.tail(now, result)
    end
    local run = runs and compact.is_run(runs[i], token) and runs[i]
    local why = not valid and refusal(base, id, token, named)
    if run and kept and not why then
      line = line or events.line(call.lines, 'completed')
      line[#line + 1] = id
      flat[n + 1], flat[n + 2], n = id, compact.ended(run, tail), n + 2
      collected = collected or finish.group_of(done, 'completed', group.policy)
      local k = #collected.ids + 1
      collected.ids[k], collected.payloads[k] = id, result
    elseif not why then
      if run then compact.open(base, id) end
      why = complete(base, now, call, done, id, token, result, group.policy)
    end
    if why then
      if why == 'missing' then record.lost(base, id, call) end
      answer[#answer + 1], answer[#answer + 2] = position + i - 1, why
      -- If the job was removed, this outcome proves that the run has ended.
      stopping.finish(base, args[3], {token}, call)
    end
  end
  if n > 0 then in_chunks('HSET', base .. ':compact_runs', nil, flat) end
end
