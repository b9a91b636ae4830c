-- compact_claims: starts the compact jobs of a batch together, see compact.lua. A few commands write all of their runs,
-- and the reply contains their texts as they are stored.

local compact_claims = {}

-- Return the bytes of the jobs of a batch if they start together, otherwise nil. They do if all of them are compact and
-- set no lease. A compact job has neither a time to live nor signals, because these give it a record.
function compact_claims.size_of(batch, call)
  local lines, bytes = batch.lines, 0
  if not lines or call.seen.own_leases then return nil end
  for i = 1, #batch.ids do
    local line = lines[i]
    if not line then return nil end
    bytes = bytes + #line
  end
  return bytes
end

-- Return the beginning of the tokens of a batch, which end with three digits, from 000 on.
function compact_claims.token_of(base, keys, call)
  return (keys and 'k' or 'l') .. digits(call.now) .. '-' .. runs.block(base)
end

-- Write the runs of a batch. token: of compact_claims.token_of; lock: the lease of the worker, ms
function compact_claims.write(base, consumer, batch, token, lock, call)
  local ids, keys = batch.ids, batch.keys
  local worker, n, head = runs.number_of(base, consumer, call), #ids, string.sub(token, 2)
  local rest = ' ' .. digits(call.now) .. ' ' .. digits(lock)
  local started, texts, at, line = {}, {}, 0, events.line(call.lines, 'active')
  local noted = #line
  for i = 1, n do
    local id, nth = ids[i], three_digits(i - 1)
    texts[at + 1], texts[at + 2] = id, token .. nth .. rest
    started[at + 1] = worker
    started[at + 2] = keys and head .. nth .. 'k ' .. id .. SEP .. keys[i] or head .. nth .. 'l ' .. id
    line[noted + i], at = id, at + 2
  end
  runs.add(base, started)
  compact.start(base, texts, call.seen)
end

-- Start the jobs of a batch for which compact_claims.size_of returns a number.
function compact_claims.start(base, consumer, batch, call, out)
  local ids, token = batch.ids, compact_claims.token_of(base, batch.keys, call)
  compact_claims.write(base, consumer, batch, token, call.lock, call)
  local n, names = #ids, table.concat(ids, ' ')
  claimed_rows.put_lines(out, token, names, batch.lines)
  out.n, out.tokens[#out.tokens + 1] = out.n + n, claim_tokens.series(token, names)
end
