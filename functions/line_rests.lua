-- line_rests: the items of a line behind its text, see key_lines.lua.
--   keyq:{k}  list  the items, none of which has a priority. The letter of the text is "l". The server deletes the list
--                   with its last item, and the letter stays.
--             zset  the items without their priorities -> priority, if there are many or one has a priority. The letter
--                   is "r" or "q".
-- Most lines are short. Their jobs enter and leave a list for less than half of what a zset costs. The server finds an
-- item in the middle of a list by walking it, so a list must not become long.

-- most: the length of a list above which it is replaced with a zset. at_once: the number of such lists that one write
-- replaces. The server takes 60 us for a list of 64 items, and all keys of an add may have lists of the same length. A
-- list that is not replaced grows until a later write finds it too long. refill: the number of items that move into an
-- empty text. Fields of a table so that a test build can change them.
local line_rests = {most = 64, at_once = 16, refill = 8}
local AT_ONCE = 16
local LIST, ZSET = line_texts.LIST, line_texts.ZSET

local item_of, text_of, comes_before = line_texts.item_of, line_texts.text_of, line_texts.comes_before

local function name_of(base, key)
  return base .. ':keyq:' .. key
end

-- Take the first items out of the list of a key. Return them as a text, false if there are none.
function line_rests.from_list(base, key)
  local most = line_rests.refill
  local items = redis.call('LPOP', name_of(base, key), digits(most))
  if not items then return false end
  return (items[most] and LIST or '') .. table.concat(items, RS)
end

-- Do the same with the zset of a key.
function line_rests.from_zset(base, key)
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

-- Do the same with what is there. rest: see line_texts.rest_of
function line_rests.take(base, key, rest)
  if rest == '' then return false end
  return (rest == LIST and line_rests.from_list or line_rests.from_zset)(base, key)
end

do
  -- Return items without priorities as { priority item }…
  local function unprioritized(items)
    local flat = {}
    for i = 1, #items do flat[2 * i - 1], flat[2 * i] = '0', items[i] end
    return flat
  end

  -- Remove the list of a key. Return { priority item }… for its items, and then for those of `more`.
  local function take_list(base, key, more)
    local name = name_of(base, key)
    local items = redis.call('LRANGE', name, '0', '-1')
    if items[1] then redis.call('UNLINK', name) end
    for i = 1, #more do items[#items + 1] = more[i] end
    return unprioritized(items)
  end

  -- A collection has the items of one call that go behind texts:
  --   lists  key -> { item }…             for the end of its list
  --   zsets  key -> { priority item }…    for its zset
  function line_rests.collection()
    return {lists = {}, zsets = {}}
  end

  function line_rests.note_in_list(behind, key, item)
    local items = behind.lists[key]
    if not items then
      items = {}
      behind.lists[key] = items
    end
    items[#items + 1] = item
  end

  function line_rests.note_in_zset(behind, key, priority, item)
    local flat = behind.zsets[key]
    if not flat then
      flat = {}
      behind.zsets[key] = flat
    end
    local n = #flat
    flat[n + 1], flat[n + 2] = priority, item
  end

  -- Return true if an item without a priority comes after all items of a list. A job that returns to its line may come
  -- between the text and the list, because jobs can be removed from the text.
  function line_rests.is_last(base, behind, key, item)
    local noted = behind.lists[key]
    local last = noted and noted[#noted] or redis.call('LINDEX', name_of(base, key), '-1')
    return not last or comes_before(last, item)
  end

  -- Replace the list of a key with a zset.
  function line_rests.replace_list(base, behind, key)
    behind.zsets[key], behind.lists[key] = take_list(base, key, behind.lists[key] or {}), nil
  end

  local function add_to_zset(base, key, flat)
    local name, widen = base .. ':keyq:' .. key, #flat >= 2 * MANY
    if widen then redis.call('ZADD', name, '0', WIDENER) end
    in_chunks('ZADD', name, nil, flat)
    if widen then redis.call('ZREM', name, WIDENER) end
  end

  -- Write a collection. Return the keys whose lists it has replaced with zsets because they became too long.
  function line_rests.write(base, behind)
    local long, most = {}, line_rests.most
    for key, items in pairs(behind.lists) do
      if #items > most then
        behind.zsets[key], long[#long + 1] = take_list(base, key, items), key
      elseif redis.call('RPUSH', base .. ':keyq:' .. key, unpack(items)) > most and #long < line_rests.at_once then
        behind.zsets[key], long[#long + 1] = take_list(base, key, {}), key
      end
    end
    for key, flat in pairs(behind.zsets) do add_to_zset(base, key, flat) end
    return long
  end
end

-- Return for each of these keys if it has a list or a zset. Usually all of them do or none does. One EXISTS then finds
-- that for many keys.
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
  return kind == 'list' and LIST or kind == 'zset' and ZSET or ''
end

-- Remove an item.
function line_rests.remove(base, key, rest, member)
  if rest == LIST then
    redis.call('LREM', name_of(base, key), '1', member)
  elseif rest == ZSET then
    redis.call('ZREM', name_of(base, key), member)
  end
end

-- The following functions only read. rest: see line_texts.rest_of

-- Return the items from a position on, at most n, without their priorities. The first position is 0.
function line_rests.range(base, key, rest, from, n)
  if rest == '' or n < 1 then return {} end
  return redis.call(rest == LIST and 'LRANGE' or 'ZRANGE', name_of(base, key), digits(from), digits(from + n - 1))
end

function line_rests.length(base, key, rest)
  if rest == '' then return 0 end
  return redis.call(rest == LIST and 'LLEN' or 'ZCARD', name_of(base, key))
end

-- Return the position of an item, nil if it is not there.
function line_rests.rank(base, key, rest, member)
  if rest == '' then return nil end
  return redis.call(rest == LIST and 'LPOS' or 'ZRANK', name_of(base, key), member) or nil
end

-- Return the first item with its priority, nil without any, and true if the items of a list are not in order.
function line_rests.first(base, key, rest)
  if rest == ZSET then
    local first = redis.call('ZRANGE', name_of(base, key), '0', '0', 'WITHSCORES')
    return first[1] and item_of(digits(tonumber(first[2])), first[1]), false
  end
  local items, is_mixed = line_rests.range(base, key, rest, 0, 2 * line_rests.most), false
  for i = 2, #items do is_mixed = is_mixed or not comes_before(items[i - 1], items[i]) end
  return items[1], is_mixed
end
