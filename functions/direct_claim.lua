-- direct_claim: a claim in which the worker reads the entries itself. A function that reads entries converts each of
-- them to values of Lua and back, although it needs only their numbers. The worker sends one transaction:
--   FCALL settleAndClaim …          with the flag "d": settle, and open the gate if a direct claim is allowed
--   XREADGROUP … COUNT <count> STREAMS <fifo> <direct> > >
--   FCALL finishClaim …             close the gate, and finish the claim
--
-- The gate is the stream `direct`, which has the group of the workers and no entry. XREADGROUP reads nothing if one of
-- its streams does not exist. So the function decides whether the worker may read. An error, a repeated call and a
-- delayed copy of a call open no gate. The gate exists only within the transaction, and no other client ever meets it.
-- Both functions run in one transaction, so the state of the call stays in Lua between them.
--
-- The gate opens only if the claim may start nothing but the next entries of `fifo`, and if these are small plain jobs
-- with the lease of the worker, which need no work of the function. Each entry above `special` (entries.lua) is such a
-- job.

local direct_claim = {}
local WAITED = 112               -- the byte "p", the first of a token of `fifo`
-- The structures whose jobs start before the entries of `fifo` or after them, or change what their claim has to do.
local CONCERNS = {'returned', 'lifo', 'ready', 'prioritized', 'limits', 'recorded', 'expiry', 'regrouped'}

local function is_allowed(base, call)
  if call.behind or call.ends_jobs or keyed.has_review(call) or not queue_flags.is_compared(base) then return false end
  local seen = call.seen
  for i = 1, #CONCERNS do
    if seen[CONCERNS[i]] then return false end
  end
  return true
end

local function number_of(id)
  return tonumber(string.match(id, '^%d+'))
end

-- Open the gate if the caller may read the next entries of `fifo`. Return the state of the group before the read, false
-- if the function has to claim.
function direct_claim.open(base, call)
  if not is_allowed(base, call) then return false end
  local group = entries.group_of(base .. ':fifo')
  if not group.pending then return false end
  local last = number_of(group['last-delivered-id'])
  if last < math.max(call.seen.special or 0, call.special or 0) then return false end
  redis.pcall('XGROUP', 'CREATE', base .. ':direct', GROUP, '$', 'MKSTREAM')
  return {last = last, pending = group.pending}
end

-- Append the numbers of the entries that the consumer has just read to a list. The numbers have gaps.
local function append_read(base, consumer, first, last, n, list)
  local rows = redis.pcall('XPENDING', base .. ':fifo', GROUP, digits(first), digits(last), digits(n), consumer)
  for i = 1, rows.err and 0 or #rows do list[#list + 1] = plain.id_of(rows[i][1]) end
end

-- Close the gate. Note the starts of the jobs that the caller has read, and return their number and their tokens as
-- claim_tokens.each reads them. before: of direct_claim.open.
function direct_claim.close(base, consumer, before, call)
  redis.call('UNLINK', base .. ':direct')
  local group = entries.group_of(base .. ':fifo')
  local n = (group.pending or 0) - before.pending
  if n <= 0 then return 0, {} end
  local first, last, line = before.last + 1, number_of(group['last-delivered-id']), events.line(call.lines, 'active')
  if last - first + 1 == n then
    local numbers, at = whole_numbers(first, last), #line
    for i = 1, n do line[at + i] = numbers[i] end
  else
    append_read(base, consumer, first, last, n, line)
  end
  claim.note_small()
  return n, {claim_tokens.range(first, last)}
end
