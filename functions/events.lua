-- events: what happened, as a capped stream that readers can resume and count their losses on.
--   events  stream  one entry per call: seq (number of its first event), n, t (ms), e (the events).
--     e: a line per kind, in the order of KINDS: kind SEP id SEP id …
--        kinds with a detail: kind SEP id SEP detail SEP …
--   meta    hash    `events`: how many events were ever written.
-- Ids and details hold no control characters. Trimmed from the head only, by number of events and by bytes, never by
-- XDEL: readers count what they missed.

local events = {}
local MAX_EVENTS = 100000
local MAX_BYTES = 16 * 1024 * 1024
local CHECK_EVENTS = 1024          -- how often the caps are looked at, in events
local LARGE = 65536                -- and after each entry of so many bytes

-- The catalogue; true: the kind has a detail. What a job can only do after another thing stands after it.
local DETAIL = {added = true, failed = true, ['dead-lettered'] = true, retrying = true, stalled = true, waiting = true,
  removed = true, dropped = true, limited = true, changed = true, duplicate = true, ['key-paused'] = true,
  ['key-resumed'] = true, drained = true, cleaned = true, obliterated = true, skipped = true}
local KINDS = {'paused', 'resumed', 'key-paused', 'key-resumed', 'skipped', 'added', 'duplicate', 'delayed', 'stalled',
  'waiting', 'completed', 'failed', 'dead-lettered', 'retrying', 'returned', 'limited', 'revoking', 'changed', 'active',
  'progress', 'updated', 'removed', 'dropped', 'drained', 'cleaned', 'obliterated'}

-- Note one event; `lines` is the collection of one call, by kind.
function events.note(lines, kind, id, detail)
  local line = lines[kind]
  if not line then
    line = {kind}
    lines[kind] = line
  end
  local n = #line
  line[n + 1] = id
  if DETAIL[kind] then line[n + 2] = detail or '' end
end

local function trim(key, total)
  local oldest = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
  if not oldest then return end
  local over = math.max((total - oldest[2][2]) / MAX_EVENTS, redis.call('MEMORY', 'USAGE', key) / MAX_BYTES)
  if over > 1 then
    redis.call('XTRIM', key, 'MAXLEN', math.max(1, math.floor(redis.call('XLEN', key) / over)))
  end
end

local function joined(lines)
  local kind = next(lines)
  if next(lines, kind) == nil then
    return table.concat(lines[kind], SEP), (#lines[kind] - 1) / (DETAIL[kind] and 2 or 1)
  end
  local texts, n = {}, 0
  for _, kind in ipairs(KINDS) do
    local line = lines[kind]
    if line then
      texts[#texts + 1] = table.concat(line, SEP)
      n = n + (#line - 1) / (DETAIL[kind] and 2 or 1)
    end
  end
  return table.concat(texts, '\n'), n
end

-- Append what one call noted as one entry.
function events.write(base, lines, now)
  if not next(lines) then return end
  local text, n = joined(lines)
  local key = base .. ':events'
  local total = redis.call('HINCRBY', base .. ':meta', 'events', n)
  redis.call('XADD', key, '*', 'seq', total - n, 'n', n, 't', now, 'e', text)
  if total % CHECK_EVENTS < n or #text > LARGE then trim(key, total) end
end

-- Write a single event.
function events.one(base, kind, id, detail, now)
  local lines = {}
  events.note(lines, kind, id, detail)
  events.write(base, lines, now)
end
