-- event_content: the names of the jobs and the sizes of the results in the events of a queue that asks for them.
--   events  stream  an entry has the field `c` then: cmsgpack { id -> { name, key[, size[, result]] } } of the jobs
--           that completed, failed or retry in its call. name, key: '' if the job has no record or no key
-- "size" asks for the size of each stored result in bytes, and "value" for the results of up to LARGEST bytes too.

local event_content = {}
event_content.LARGEST = 1024     -- size in bytes of a result that an event contains
local MOST = 65536               -- size in bytes of all results in one entry
-- The name of a plain job is in its entry, together with its data. So a call reads only a few large entries in a step.
local LARGE_AT_ONCE = 4

-- Return the ordering key in the route of a record, '' for a job without one.
function event_content.key_of(route)
  return route and string.sub(route, 1, 1) == 'k' and keyed.parse(route).key or ''
end

-- Return the rules of a queue whose events of this kind have a content, otherwise nil.
local function asked(base, kind, call)
  local rules = event_rules.of(base, call.seen)
  return rules and rules.content and event_rules.is_on(rules, kind) and rules or nil
end

local function note(rules, id, name, key, result, call)
  local contents = call.contents
  if not contents then
    contents = {}
    call.contents, call.content_bytes = contents, 0
  end
  local content = {name or '', key, result and #result}
  if result and rules.content == 'value' and #result <= event_content.LARGEST
    and call.content_bytes + #result <= MOST then
    call.content_bytes = call.content_bytes + #result
    content[4] = result
  end
  contents[id] = content
end

-- Note the content of an event of a job with a record. result: the payload of a completed run.
function event_content.note(base, kind, id, result, call)
  if not call.seen.event_rules then return end
  local rules = asked(base, kind, call)
  if not rules then return end
  local job = redis.call('HMGET', base .. ':job:' .. id, 'name', 'route')
  note(rules, id, job[1], event_content.key_of(job[2]), result, call)
end

-- Note the content of the event `completed` of a plain job without a record. The caller has not deleted its entry yet.
function event_content.note_plain(base, raw, result, call)
  local rules = asked(base, 'completed', call)
  if not rules then return end
  local found = redis.call('XRANGE', base .. ':fifo', raw, raw)[1]
  note(rules, plain.id_of(raw), found and found[2][1], '', result, call)
end

-- Return where a step ends that completes the plain jobs of the entries args[from] to args[to]. oldest: the lowest
-- number among them. All entries after the last special one are small.
function event_content.step_end(base, oldest, from, to, call)
  local special = math.max(call.seen.special or 0, call.special or 0)
  if oldest > special or not asked(base, 'completed', call) then return to end
  return math.min(to, from + LARGE_AT_ONCE - 1)
end
