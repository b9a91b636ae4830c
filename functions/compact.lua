-- compact: LIFO, prioritized and keyed jobs without a record. Such a job has a generated id, and no other option that
-- decides how it waits. It is in the same structures as other jobs of its kind, but one text contains its fields:
--   compact       hash  id -> "<head>" SEP "<name>" SEP "<data>", with options "<head>" SEP "<name>" RS "<number of
--                       bytes of opts>" SEP "<opts><data>". The head is
--                         "<added ms> l"                                  of a LIFO job
--                         "<added ms> p <priority>"               of a prioritized job. Earlier builds wrote the 16
--                                                                 digits of prioritized.lua and a blank before it.
--                         its route, see keyed.lua                        of a keyed job
--   compact_runs  hash  id -> "<token> <started ms> <lease ms>" while the job runs, and
--                             "c<first letter of the token> <started ms> 0 <ended ms> <result>" when it has completed
-- One command reads or writes the texts of all jobs of a call. A record takes one command for each job.
-- A compact job gets a record as soon as something else must be stored for it, for the same reasons as a plain job, see
-- plain.lua. compact.open writes the record, and the job is then like any other job.

local compact = {}
local COST = 1000                -- a keyed job with another cost has a record
local FIRST_READ = 8             -- texts that are read before their sizes are known
local COMPLETED, KEYED = 99, 107    -- 'c' and 'k'
local BLANK = 32
compact.COST = COST

-- Return the text of a job.
function compact.line(head, name, data, opts)
  if opts == '' then return head .. SEP .. name .. SEP .. data end
  return head .. SEP .. name .. RS .. digits(#opts) .. SEP .. opts .. data
end

-- Return head, name, data and options (false without any) of a text.
function compact.parts(line)
  local first = string.find(line, SEP, 1, true)
  local second = string.find(line, SEP, first + 1, true)
  local head, name = string.sub(line, 1, first - 1), string.sub(line, first + 1, second - 1)
  local at = string.find(name, RS, 1, true)
  if not at then return head, name, string.sub(line, second + 1), false end
  local last = second + string.sub(name, at + 1)
  return head, string.sub(name, 1, at - 1), string.sub(line, last + 1), string.sub(line, second + 1, last)
end

-- Return the head of a text.
function compact.head_of(line)
  return string.sub(line, 1, string.find(line, SEP, 1, true) - 1)
end

-- Return the texts of these jobs, false for each job without one. Return nil if no job of the queue has one.
function compact.lines(base, ids, seen)
  return seen.compact and ids[1] and redis.call('HMGET', base .. ':compact', unpack(ids)) or nil
end

-- Return the texts of the first jobs of a list as compact.lines does, and the number of these jobs. They are fewer than
-- all if their bytes exceed `most`. The sizes of texts are not known before they are read, so this reads few of them
-- first. It reads those in any case, because a claim must be able to start a job.
function compact.lines_within(base, ids, most, seen)
  if not (seen.compact and ids[1]) then return nil, #ids end
  local lines, n, bytes, step = {}, 0, 0, FIRST_READ
  repeat
    local last = math.min(n + step, #ids)
    local found = redis.call('HMGET', base .. ':compact', unpack(ids, n + 1, last))
    for i = 1, last - n do
      local line = found[i]
      lines[n + i], bytes = line, bytes + (line and #line or 0)
    end
    n, step = last, step * 4
  until n == #ids or bytes >= most
  return lines, n
end

-- Return the text of a job, false if it has none.
function compact.line_of(base, id)
  return redis.call('HGET', base .. ':compact', id)
end

-- Return the texts of the runs of these jobs, false for each job that has none. Return nil if the queue has no compact
-- job.
function compact.runs(base, ids, seen)
  return seen.compact and ids[1] and redis.call('HMGET', base .. ':compact_runs', unpack(ids)) or nil
end

-- Return the text of a compact job and the text of its run. Return nil if no compact job has this id.
local function find(base, id)
  local line = redis.call('HGET', base .. ':compact', id)
  if line then return line, redis.call('HGET', base .. ':compact_runs', id) or nil end
end

-- Return the history of a job that never ran, in the form that claimed_rows.lua describes, from the head of its text.
function compact.history_of(head)
  return string.match(head, '^%d+ (%d+ p.*)$') or head
end

-- Return the route, and when a job of the head was added, as texts.
local function route_of(head)
  if string.byte(head) == KEYED then return head, string.match(head, '^k %d+ %d+ %d+ (%d+) ') end
  local added, route = string.match(head, '(%d+) ([lp].*)$')
  return route, added
end

-- Return true if the text of a run belongs to the run with this token.
function compact.is_run(run, token)
  return run and string.byte(run, #token + 1) == BLANK and string.sub(run, 1, #token) == token
end

-- Store the runs of compact jobs: { id text }…
function compact.start(base, runs, seen)
  local key = base .. ':compact_runs'
  local widen = #runs >= 2 * MANY and not seen.widened and not exists(key)
  seen.widened = true
  if widen then redis.call('HSET', key, WIDENER, '') end
  redis.call('HSET', key, unpack(runs))
  if widen then redis.call('HDEL', key, WIDENER) end
end

-- Return the text of a completed run. prefix: the first letter of its token; started, now: when it began and ended, ms
-- as texts. The runs of a call often have the same text, so it does not contain the token.
function compact.ended(prefix, started, now, result)
  return 'c' .. prefix .. ' ' .. started .. ' 0 ' .. now .. ' ' .. result
end

-- Return when a run began, ms as text, from its text.
function compact.start_of(run)
  return string.match(run, ' (%d+) %d+$')
end

-- Return the location of a compact job, as in a record.
local function location_of(line, run)
  if run then
    local token = string.match(run, '^%S+')
    if string.byte(run) == COMPLETED then return 'completed', string.sub(token, 2) end
    return 'active', token
  end
  local head = compact.head_of(line)
  if string.byte(head) == KEYED then return 'key-waiting', 'c' end
  if string.sub(head, -1) == 'l' then return 'waiting', 'i' end
  return 'prioritized', string.match(head, '^(%d+) %d+ p') or ''
end

-- Return the state and the entry of a compact job, nil if there is none with this id.
function compact.location(base, id)
  local line, run = find(base, id)
  if line then return location_of(line, run) end
end

function compact.has(base, id)
  return redis.call('HEXISTS', base .. ':compact', id) == 1
end

-- Return the flat record of a compact job, as if it had one; nil if there is none with this id.
function compact.view(base, id)
  local line, run = find(base, id)
  if not line then return nil end
  local head, name, data, opts = compact.parts(line)
  local route, added = route_of(head)
  local state, entry = location_of(line, run)
  local flat = {'name', name, 'data', data, 'place', state .. ' ' .. entry, 'route', route}
  local function put(field, value) flat[#flat + 1], flat[#flat + 2] = field, value end
  if string.byte(route) ~= KEYED then put('added', added) end
  if opts then put('opts', opts) end
  if state == 'active' then
    put('claim', '1 ' .. string.match(run, ' (%d+ %d+)$'))
  elseif state == 'completed' then
    local claim, ended, result = compact.outcome_of(run)
    put('claim', '1 ' .. claim)
    put('ended', ended)
    put('result', result)
  end
  return flat
end

-- Return "<started ms> <lease ms>" of a completed job, when it ended, as text, and its result. run: the text of its
-- run.
function compact.outcome_of(run)
  local claim, ended, from = string.match(run, '^%S+ (%d+ %d+) (%d+) ()')
  return claim, ended, from and string.sub(run, from)    -- faster than matching a large result
end

-- Return the state of a compact job, and the result and the end (ms, as text) of a completed one. Return nil if there
-- is none with this id.
function compact.outcome(base, id)
  local line, run = find(base, id)
  if not line then return nil end
  local state = location_of(line, run)
  if state ~= 'completed' then return state end
  local _, ended, result = compact.outcome_of(run)
  return state, result, ended
end

-- Return the name of a compact job, and when it was added, ms; nil if there is none with this id.
function compact.name_of(base, id)
  local line = find(base, id)
  if not line then return nil end
  local head, name = compact.parts(line)
  local _, added = route_of(head)
  return name, tonumber(added)
end

-- Return the route of a compact job, nil if there is none with this id.
function compact.route_of(base, id)
  local line = find(base, id)
  if line then return (route_of(compact.head_of(line))) end
end

-- Give a compact job a record. Return its state and its entry, nil if there is none with this id. Nothing here can
-- fail, so a call that has written may call this.
function compact.open(base, id)
  local flat = compact.view(base, id)
  if not flat then return nil end
  redis.call('HSET', base .. ':job:' .. id, unpack(flat))
  redis.call('HDEL', base .. ':compact', id)
  redis.call('HDEL', base .. ':compact_runs', id)
  return record.parts_of(flat[6])
end

-- Give the compact job of a run a record, if the run has this token. Return true if it did.
function compact.open_run(base, id, token)
  if not compact.is_run(redis.call('HGET', base .. ':compact_runs', id), token) then return false end
  compact.open(base, id)
  return true
end

-- Return when the run with this token began, and its lease; both in ms. Return nil if no compact job has the run.
function compact.claim_of(base, id, token)
  local run = redis.call('HGET', base .. ':compact_runs', id)
  if not compact.is_run(run, token) then return nil end
  local started, lease = string.match(run, ' (%d+) (%d+)$')
  return tonumber(started), tonumber(lease)
end

-- Return when a running compact job began, ms; nil if there is none with this id.
function compact.started_at(base, id)
  local run = redis.call('HGET', base .. ':compact_runs', id)
  return run and tonumber(compact.start_of(run) or nil)
end

-- Remove the compact jobs among these. Return their number.
function record.remove_compact(base, ids)
  in_chunks('HDEL', base .. ':compact_runs', nil, ids)
  return in_chunks('HDEL', base .. ':compact', nil, ids)
end
