-- claimed_rows: reads claimed jobs, and appends them to the reply of a claim. claim.lua decides which jobs start.
-- The reply is a list of four values for a plain job and eight for a job with a record. The list also has their number
-- `n` and their `tokens`, see claim_tokens.lua.

local claimed_rows = {}
-- Positions in a history. Both values may be as large as the data.
local PROGRESS, HAND_OVER = 4, 7

-- The readers of a claimed job, by read hint (see record.lua). A reader returns name, data, opts, fence, and the job's
-- history; read.h and read.w also return the job's last claim. A reader returns nothing if the record is missing.
-- Several results cost less than a table. A history is false, a list, or a text for a job that never ran: the route of
-- a keyed job, otherwise the creation time and the route. A text costs less than a list, because the server looks up
-- seven names in each list of a reply.
local read = {}

function read.i(key)
  local job = redis.pcall('HMGET', key, 'name', 'data')
  local name, data = job[1], job[2]
  if name and data then return name, data, false, '1', false end
end

function read.o(key)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts')
  local name, data = job[1], job[2]
  if name and data then return name, data, job[3], '1', false end
end

function read.h(key)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts', 'claim', 'failures', 'stalls', 'added', 'progress',
    'route', 'letter')
  if not (job[1] and job[2]) then return nil end
  local before = job[4]
  local fence = before and digits(string.match(before, '^%d+') + 1) or '1'
  return job[1], job[2], job[3], fence, {job[5], job[6], job[7], job[8], job[9], job[10]}, before
end

-- The same fields as read.h for a job that waited outside of the stream: usually it never ran and has no history.
function read.w(key)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts', 'claim', 'added', 'route', 'letter')
  if not (job[1] and job[2]) then return nil end
  if job[4] and job[4] ~= '0 0 0' then return read.h(key) end
  local added, route = job[5], job[6]
  if job[7] or not (added and route) then
    return job[1], job[2], job[3], '1', {false, false, added, false, route, job[7]}
  end
  return job[1], job[2], job[3], '1', added .. ' ' .. route
end

-- A keyed job that never ran: the same as read.i and read.o, and its route as the history.
function read.fi(key)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'route')
  if not (job[1] and job[2]) then return nil end
  return job[1], job[2], false, '1', job[3]
end

function read.fo(key)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts', 'route')
  if not (job[1] and job[2]) then return nil end
  return job[1], job[2], job[3], '1', job[4]
end

-- Return the lease that the job has in its options, or nil. call.shortest is the shortest one of the claim.
local function own_lease(opts, call)
  local own = plain.own_lease(opts)
  if own and own < call.shortest then call.shortest = own end
  return own
end

-- Append a job with a record to the claimed ones.
local function put(out, id, entry, name, data, opts, fence, history)
  local at = #out
  out.n = out.n + 1
  out.tokens[#out.tokens + 1] = claim_tokens.of(entry, id)
  out[at + 1], out[at + 2], out[at + 3], out[at + 4] = entry, name, data, 1
  out[at + 5], out[at + 6], out[at + 7], out[at + 8] = id, opts, fence, history
end

-- Append a compact job that starts for the first time. run: the rest of the text of its run, "<started ms> <lease ms>"
-- after a blank, if it has no lease of its own. Return its bytes and the text of its run.
local function put_compact(out, id, entry, line, run, call)
  local head, name, data, opts = compact.parts(line)
  put(out, id, entry, name, data, opts, '1', compact.history_of(head))
  local own = opts and own_lease(opts, call)
  if own then run = string.match(run, '^ %d+ ') .. digits(own) end
  return #data, entry .. run
end

-- Append compact jobs that start for the first time, as their texts. token: the beginning of their tokens, which end
-- with three digits, from 000 on; names: their ids, separated by blanks.
local function put_lines(out, token, names, lines)
  local at = #out
  out[at + 1], out[at + 2], out[at + 3], out[at + 4] = '', token, '', 1
  out[at + 5], out[at + 6], out[at + 7], out[at + 8] = names, '', '', lines
end

-- Append a plain job. Return its bytes.
local function put_plain(out, row)
  local fields, at = row[2], #out
  out.n = out.n + 1
  out.tokens[#out.tokens + 1] = 'p' .. row[1]
  out[at + 1], out[at + 2], out[at + 3], out[at + 4] = row[1], fields[1], fields[2], fields[3] or false
  return #fields[2]
end

-- Append the plain jobs at the start of the rows, up to the first job with a record. Return the position of that row,
-- and the bytes of the plain jobs. Their tokens are kept as one text: a text for each would cost more than the rest of
-- this loop.
local function put_plain_rows(out, rows, call)
  local raws, n, at, bytes = {}, 0, #out, 0
  local line, last = nil, 0
  for i = 1, #rows do
    local raw, fields = rows[i][1], rows[i][2]
    local name, data, opts = fields[1], fields[2], fields[3]
    if name == '' then break end
    if n == 0 then
      line = events.line(call.lines, 'active')
      last = #line
    end
    n = n + 1
    raws[n], line[last + n] = raw, string.sub(raw, 1, plain.END_OF_ID)
    out[at + 1], out[at + 2], out[at + 3], out[at + 4] = raw, name, data, opts or false
    at, bytes = at + 4, bytes + #data
    if opts then own_lease(opts, call) end
  end
  if n > 0 then
    out.n, out.tokens[#out.tokens + 1] = out.n + n, 'p' .. table.concat(raws, ' p')
  end
  return n + 1, bytes
end

-- Add the hand-over of signals.lua to the last claimed job. Return its bytes.
local function put_hand_over(out, packed)
  local history = out[#out]
  if not packed or not history then return 0 end
  if type(history) == 'string' then
    local added, route = string.match(history, '^(%d*) ?(.*)$')
    history = {false, false, added ~= '' and added, false, route}
    out[#out] = history
  end
  history[HAND_OVER] = packed
  return #packed
end

claimed_rows.PROGRESS, claimed_rows.read, claimed_rows.own_lease = PROGRESS, read, own_lease
claimed_rows.put, claimed_rows.put_plain, claimed_rows.put_plain_rows = put, put_plain, put_plain_rows
claimed_rows.put_hand_over, claimed_rows.put_compact, claimed_rows.put_lines = put_hand_over, put_compact, put_lines
