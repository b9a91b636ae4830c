-- line_rests: the items of a line behind its text, see key_lines.lua.
--   keyq:{k}  list  items without priorities. The server deletes the list with its last item, and the letter of the
--                   text stays.
--             zset  the items without their priorities -> priority, if the first one behind the text had a priority, or
--                   if the line is from an earlier build
--   keyz:{k}  zset  the items behind a list that is long, and those with priorities. When the list is empty, the zset
--                   becomes keyq:{k}.
-- A job enters and leaves a list for less than half of what a zset costs. The server finds an item in the middle of a
-- list by walking it, so a list must not become very long. It never becomes a zset, because a call may change the lines
-- of many keys, and each change of a long list would take a millisecond.
--   letter of the text   keyq               keyz
--   l                    a list, or none
--   m                    a list, or none    a zset, or none
--   q, r                 a zset

-- most: the length from which a list gets no more items at its end. refill: the number of items that move into an empty
-- text. Fields of a table so that a test build can change them.
local line_rests = {most = 1000, refill = 8}
local AT_ONCE = 16
local CHECKED = 128              -- the items of a list whose order a check looks at
local LIST, BOTH, ZSET = line_texts.LIST, line_texts.BOTH, line_texts.ZSET

local item_of, text_of, member_of = line_texts.item_of, line_texts.text_of, line_texts.member_of
local priority_of, comes_before = line_texts.priority_of, line_texts.comes_before

local function name_of(base, key)
  return base .. ':keyq:' .. key
end

-- Return the name of the zset behind a list.
local function later_of(base, key)
  return base .. ':keyz:' .. key
end

-- Take the first items out of a zset. Return them as a text, false if there are none.
local function from_zset(base, key)
  local name, most = name_of(base, key), line_rests.refill
  -- Most members have the priority 0. The server formats each score as a double, which takes 4,000 instructions.
  local items = redis.call('ZRANGEBYSCORE', name, '0', '0', 'LIMIT', '0', digits(most + 1))
  if items[most + 1] then
    items[most + 1] = nil
    redis.call('ZREMRANGEBYRANK', name, '0', digits(most - 1))
    return ZSET .. table.concat(items, RS)
  end
  if not items[1] then
    local rows = redis.call('ZRANGE', name, '0', digits(most - 1), 'WITHSCORES')
    for i = 1, #rows, 2 do items[#items + 1] = item_of(digits(tonumber(rows[i + 1])), rows[i]) end
  end
  if items[1] then redis.call('ZREMRANGEBYRANK', name, '0', digits(#items - 1)) end
  return text_of(items, items[1] and exists(name) and ZSET or '')
end

-- Do the same with a list, and with the zset behind it. rest: LIST or BOTH
function line_rests.from_list(base, key, rest)
  local most = line_rests.refill
  local items = redis.call('LPOP', name_of(base, key), digits(most))
  if items and items[most] then return rest .. table.concat(items, RS) end
  if rest == LIST or not exists(later_of(base, key)) then return items and table.concat(items, RS) or false end
  redis.call('RENAME', base .. ':keyz:' .. key, base .. ':keyq:' .. key)
  return items and ZSET .. table.concat(items, RS) or from_zset(base, key)
end

-- Do the same with what is there. rest: see line_texts.rest_of
function line_rests.take(base, key, rest)
  if rest == '' then return false end
  if rest == ZSET then return from_zset(base, key) end
  return line_rests.from_list(base, key, rest)
end

-- A collection has the items of one call that go behind texts:
--   lists  key -> { item }…             for the end of its list
--   zsets  key -> { priority item }…    for its zset
--   later  key -> { priority item }…    for the zset behind its list
function line_rests.collection()
  return {lists = {}, zsets = {}, later = {}}
end

do
  -- Return a table inside of another one. It is created when it is first needed.
  local function inside(tables, key)
    local found = tables[key]
    if not found then
      found = {}
      tables[key] = found
    end
    return found
  end

  function line_rests.note_in_list(behind, key, item)
    local items = inside(behind.lists, key)
    items[#items + 1] = item
  end

  -- rest: what is behind the text, with this item
  function line_rests.note_in_zset(behind, key, rest, priority, member)
    local flat = inside(rest == ZSET and behind.zsets or behind.later, key)
    local n = #flat
    flat[n + 1], flat[n + 2] = priority, member
  end

  -- Move the last items of a list that has become too long into the zset behind it. Return what is behind the text
  -- then. The server takes 170 us to insert an item into the middle of a list of 10,000 items.
  local function shorten(base, behind, key, rest, length)
    if length <= line_rests.most or behind.lists[key] then return rest end
    local items = redis.call('RPOP', name_of(base, key), digits(line_rests.refill))
    for i = 1, #items do line_rests.note_in_zset(behind, key, BOTH, '0', items[i]) end
    return BOTH
  end

  -- Put the last item of a text before those behind it. Return what is behind the text then.
  function line_rests.put_before(base, behind, key, rest, item)
    local priority = priority_of(item)
    if priority > 0 or rest == ZSET then
      line_rests.note_in_zset(behind, key, ZSET, digits(priority), member_of(item))
      return ZSET
    end
    local length = redis.call('LPUSH', base .. ':keyq:' .. key, item)
    return shorten(base, behind, key, rest == '' and LIST or rest, length)
  end

  -- Insert an item into a list that has a later one. Return the length of the list.
  local function insert_in_list(base, key, item)
    local name = base .. ':keyq:' .. key
    local low, high = 0, redis.call('LLEN', name) - 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      if comes_before(item, redis.call('LINDEX', name, digits(middle))) then high = middle else low = middle + 1 end
    end
    return redis.call('LINSERT', name, 'BEFORE', redis.call('LINDEX', name, digits(low)), item)
  end

  -- Insert an item without a priority that comes before an item of the list. Return what is behind the text then, nil
  -- if it comes after all of them. A job that returns to its line may come between the text and the list, because jobs
  -- can be removed from the text.
  local function insert_before(base, behind, key, rest, item)
    local noted = behind.lists[key] or {}
    local at = #noted + 1
    while at > 1 and comes_before(item, noted[at - 1]) do at = at - 1 end
    if at == 1 then
      local last = redis.call('LINDEX', name_of(base, key), '-1')
      if last and comes_before(item, last) then
        return shorten(base, behind, key, rest, insert_in_list(base, key, item))
      end
    end
    if at > #noted then return nil end
    table.insert(noted, at, item)
    return rest
  end

  -- Note an item that comes after the text. Return what is behind the text then.
  function line_rests.note_after(base, behind, key, rest, item)
    local priority = priority_of(item)
    if priority > 0 or rest == ZSET then
      rest = rest == '' and ZSET or rest == LIST and BOTH or rest
      line_rests.note_in_zset(behind, key, rest, digits(priority), member_of(item))
      return rest
    end
    local found = rest ~= '' and insert_before(base, behind, key, rest, item)
    if found then return found end
    if rest == BOTH then
      line_rests.note_in_zset(behind, key, rest, '0', item)
      return rest
    end
    line_rests.note_in_list(behind, key, item)
    return LIST
  end
end

do
  -- Append items to a list. Return its length.
  local function append(base, key, items)
    local name, n = base .. ':keyq:' .. key, #items
    if n <= CHUNK then return redis.call('RPUSH', name, unpack(items)) end
    in_chunks('RPUSH', name, nil, items)
    return redis.call('LLEN', name)
  end

  local function add_to_zset(name, flat)
    local widen = #flat >= 2 * MANY
    if widen then redis.call('ZADD', name, '0', WIDENER) end
    in_chunks('ZADD', name, nil, flat)
    if widen then redis.call('ZREM', name, WIDENER) end
  end

  -- Write a collection. Return the keys whose lists get no more items at their end.
  function line_rests.write(base, behind)
    local long, most = {}, line_rests.most
    for key, items in pairs(behind.lists) do
      if append(base, key, items) > most then long[#long + 1] = key end
    end
    for key, flat in pairs(behind.zsets) do add_to_zset(base .. ':keyq:' .. key, flat) end
    for key, flat in pairs(behind.later) do add_to_zset(base .. ':keyz:' .. key, flat) end
    return long
  end
end

-- Return by position, for each of these keys, true if it has a `keyq`. Usually all of them do or none does. One EXISTS
-- then finds that for many keys.
function line_rests.exist(base, keys)
  local found = {}
  for from = 1, #keys, AT_ONCE do
    local last, names = math.min(from + AT_ONCE - 1, #keys), {}
    for i = from, last do names[i - from + 1] = name_of(base, keys[i]) end
    local count = redis.call('EXISTS', unpack(names))
    for i = from, last do found[i] = count == #names or (count > 0 and exists(names[i - from + 1])) end
  end
  return found
end

-- Return what a key has, as line_texts.rest_of does. For callers that have no text.
function line_rests.kind(base, key)
  local kind = redis.call('TYPE', name_of(base, key)).ok
  if kind == 'zset' then return ZSET end
  return exists(later_of(base, key)) and BOTH or kind == 'list' and LIST or ''
end

-- Remove an item. Return what is behind the text then.
function line_rests.remove(base, key, rest, member)
  if rest == '' then return rest end
  local name = name_of(base, key)
  if rest == ZSET then
    redis.call('ZREM', name, member)
  elseif redis.call('LREM', name, '1', member) == 0 and rest == BOTH then
    redis.call('ZREM', later_of(base, key), member)
  end
  if rest == BOTH and exists(later_of(base, key)) then return BOTH end
  return exists(name) and (rest == ZSET and ZSET or LIST) or ''
end

-- The following functions only read. rest: see line_texts.rest_of

-- Return the length of the list.
local function list_length(base, key)
  return redis.call('LLEN', name_of(base, key))
end

-- Return the items from a position on, at most n, without their priorities. The first position is 0.
function line_rests.range(base, key, rest, from, n)
  if rest == '' or n < 1 then return {} end
  local first, last = digits(from), digits(from + n - 1)
  if rest == ZSET then return redis.call('ZRANGE', name_of(base, key), first, last) end
  local items = redis.call('LRANGE', name_of(base, key), first, last)
  if rest == LIST or #items == n then return items end
  local at = from + #items - list_length(base, key)
  local others = redis.call('ZRANGE', later_of(base, key), digits(at), digits(at + n - #items - 1))
  for i = 1, #others do items[#items + 1] = others[i] end
  return items
end

function line_rests.length(base, key, rest)
  if rest == '' then return 0 end
  if rest == ZSET then return redis.call('ZCARD', name_of(base, key)) end
  return list_length(base, key) + (rest == BOTH and redis.call('ZCARD', later_of(base, key)) or 0)
end

-- Return the position of an item, nil if it is not there.
function line_rests.rank(base, key, rest, member)
  if rest == '' then return nil end
  if rest == ZSET then return redis.call('ZRANK', name_of(base, key), member) or nil end
  local rank = redis.call('LPOS', name_of(base, key), member)
  if rank or rest == LIST then return rank or nil end
  rank = redis.call('ZRANK', later_of(base, key), member)
  return rank and rank + list_length(base, key) or nil
end

-- Return the first item of a zset with its priority, nil without any.
local function first_of_zset(name)
  local first = redis.call('ZRANGE', name, '0', '0', 'WITHSCORES')
  return first[1] and item_of(digits(tonumber(first[2])), first[1])
end

-- Return the first item with its priority, nil without any, and true if the items of a list are not in order, or an
-- item behind the list comes before its last one.
function line_rests.first(base, key, rest)
  if rest == ZSET then return first_of_zset(name_of(base, key)), false end
  local items = line_rests.range(base, key, LIST, 0, CHECKED)
  local is_mixed, later = false, rest == BOTH and first_of_zset(later_of(base, key)) or nil
  for i = 2, #items do is_mixed = is_mixed or not comes_before(items[i - 1], items[i]) end
  if later and items[1] then
    is_mixed = is_mixed or not comes_before(redis.call('LINDEX', name_of(base, key), '-1'), later)
  end
  return items[1] or later, is_mixed
end
