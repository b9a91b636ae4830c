-- direct_active: a claim whose worker reads its entries of the active stream itself, as direct_claim.lua describes for
-- plain jobs. The transaction reads `lane` instead of `fifo`:
--   FCALL settleAndClaim …          with the flag "D": settle, claim, and append the entries of the claimed jobs
--   XREADGROUP … COUNT <slots> STREAMS <lane> <direct> > >
--   FCALL finishClaim …             close the gate, and finish the claim
-- The entry of a compact job has its id and its text, see entries.lua. A batch that has a job with a record, with a
-- large text or with its own lease is in the reply of finishClaim instead, and its entries have no texts. XREADGROUP
-- makes the entries of all batches pending.
--
-- The first function takes the jobs from their structures before their entries are pending. If the command is missing
-- or fails, finishClaim makes the entries pending and returns the jobs. If finishClaim is missing too, the field
-- `lane_lost` remains, and the next sweep returns the jobs to the queue (stalled.lua).

local direct_active = {}

-- Return true if the caller reads the entries that this call appends to `lane`. Before the first one, let the group
-- continue at the end of `lane`.
function direct_active.takes(base, call)
  if not call.reads_active then return false end
  if not call.appended and redis.pcall('XGROUP', 'SETID', base .. ':lane', GROUP, '$').err then
    call.reads_active = false
    return false
  end
  return true
end

-- Return the bytes of the jobs of a batch if the worker can read all of them from their entries, otherwise nil. It can
-- if all are compact jobs whose texts are small and set no lease. Options with a lease contain the packed name "l". In
-- a queue with signals a job may have a hand-over, which no text contains.
function direct_active.size_of(batch, call)
  local lines, small = batch.lines, entries.SMALL
  if not lines or call.seen.signalled then return nil end
  for i = 1, #batch.ids do
    local line = lines[i]
    if not line or #line > small then return nil end
  end
  local text = table.concat(lines)
  return not string.find(text, '\161l', 1, true) and #text or nil
end

-- Start the jobs of a batch for which direct_active.size_of returns a number.
function direct_active.start(base, batch, call, out)
  local stream, ids, lines, raws, runs, at = base .. ':lane', batch.ids, batch.lines, {}, {}, 0
  local prefix, rest = batch.keys and 'k' or 'l', ' ' .. digits(call.now) .. ' ' .. digits(call.lock)
  local line = events.line(call.lines, 'active')
  local noted, n = #line, #ids
  for i = 1, n do
    local id = ids[i]
    local raw = redis.call('XADD', stream, '*', id, lines[i])
    raws[i], line[noted + i] = raw, id
    runs[at + 1], runs[at + 2], at = id, prefix .. raw .. rest, at + 2
  end
  compact.start(base, runs, call.seen)
  claimed_rows.put_read(out, n)
  out.n, out.tokens[#out.tokens + 1] = out.n + n, prefix .. table.concat(raws, ' ' .. prefix)
  call.appended = raws[n]
end

-- Append the entries of a batch whose jobs are in the reply. Return their tokens.
function direct_active.append(base, batch, call)
  local made, raws = entries.enter(base, batch.ids, batch.keys)
  call.appended = raws[#raws]
  return made
end

-- Open the gate of direct_claim.lua.
function direct_active.open_gate(base)
  redis.pcall('XGROUP', 'CREATE', base .. ':direct', GROUP, '$', 'MKSTREAM')
end

function direct_active.close_gate(base)
  redis.call('UNLINK', base .. ':direct')
end

-- Let the worker read the appended entries. Until finishClaim, a sweep would return the jobs.
function direct_active.open(base, call)
  redis.call('HSET', base .. ':meta2', 'lane_lost', call.appended)
  direct_active.open_gate(base)
end
