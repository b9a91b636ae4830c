-- key_lines: the line of each ordering key, which are its waiting jobs in the order in which they start. An item of a
-- line is "<16 digits of sequence><read hint><id>". "<priority inside the key>:" comes before it unless the priority is
-- 0. Read hint: see record.lua. Items are ordered by priority, then by sequence.
--   key_lines  hash  key -> the first items of its line, separated by RS. A letter before them says what a command that
--                    appends an item or takes the last one must know: "l" a list is behind them, "m" a list and then
--                    a zset, "r" a zset, "p" an item may have a priority, "q" the same and a zset. Without a letter,
--                    none of this is the case.
--   keyq:{k}, keyz:{k}  the items behind them, see line_rests.lua
-- One command reads or writes the lines of all keys of a call, and most lines fit into their text. A zset for each line
-- would take a command for each key, and the server would create and delete it for the only job of a key.
--
-- The invariants of a line:
--   A line with jobs has a text, and the text has at least one item.
--   Each item in the text comes before each one behind it.
-- Earlier builds of layout 2, and queues that were migrated from layout 1, have whole lines in zsets. While a queue may
-- have such lines (queue_flags.may_have_old_lines), the functions also look for lines without a text.

-- most_bytes: the size of a text that a new item may enter. Each claim copies the texts of its keys. A field of a table
-- so that a test build can change it.
local key_lines = {most_bytes = 110}
local SHORTEST_TWO = 37          -- the length of the shortest text with two items
local HINT = 17                  -- where the read hint is in a member
local ANY_LETTER, LIST, BOTH, ZSET = line_texts.ANY_LETTER, line_texts.LIST, line_texts.BOTH, line_texts.ZSET

local item_of, member_of, priority_of = line_texts.item_of, line_texts.member_of, line_texts.priority_of
local comes_before, letter_of, split = line_texts.comes_before, line_texts.letter_of, line_texts.split
local rest_of, with_rest = line_texts.rest_of, line_texts.with_rest
local items_of, text_of, position_of = line_texts.items_of, line_texts.text_of, line_texts.position_of

-- Return the texts of these keys, by position, false for each key without one.
local function texts_of(base, keys)
  local name, n = base .. ':key_lines', #keys
  if n <= CHUNK then return n > 0 and redis.call('HMGET', name, unpack(keys)) or {} end
  local texts = {}
  for from = 1, n, CHUNK do
    local last = math.min(from + CHUNK - 1, n)
    local found = redis.call('HMGET', name, unpack(keys, from, last))
    for i = 1, #found do texts[from + i - 1] = found[i] end
  end
  return texts
end

-- Write texts: { key text }…, and remove the texts of keys whose lines are empty.
function key_lines.store(base, changed, emptied)
  local name = base .. ':key_lines'
  in_chunks('HSET', name, nil, changed)
  in_chunks('HDEL', name, nil, emptied)
end

-- The same as texts_of, for calls that change the lines. Lines without a text get one. `keys` may name a key twice.
function key_lines.read(base, keys)
  local texts = texts_of(base, keys)
  if not queue_flags.may_have_old_lines(base) then return texts end
  local missing, new = {}, {}
  for i, key in ipairs(keys) do
    if not texts[i] and new[key] == nil then missing[#missing + 1], new[key] = key, false end
  end
  for i, is_old in ipairs(line_rests.exist(base, missing)) do
    local key = missing[i]
    if is_old then
      new[key] = line_rests.take(base, key, line_rests.kind(base, key))
      redis.call('HSET', base .. ':key_lines', key, new[key])
    end
  end
  for i, key in ipairs(keys) do texts[i] = texts[i] or new[key] end
  return texts
end

-- Return the text of a key that is in `ready` but has none. It is old, and the flag of the queue was wrong.
function key_lines.find_old(base, key)
  if not line_rests.exist(base, {key})[1] then return false end
  queue_flags.note_old_lines(base)
  return key_lines.read(base, {key})[1]
end

-- Return a true value for each of these keys if a job of it waits, by position.
function key_lines.waiting(base, keys)
  local texts = texts_of(base, keys)
  if not queue_flags.may_have_old_lines(base) then return texts end
  for i, is_old in ipairs(line_rests.exist(base, keys)) do texts[i] = texts[i] or is_old end
  return texts
end

-- Note that a job enters its line. The caller ends with key_lines.write. priority: false for a job without a priority
-- that is new, so that it is behind all others.
function key_lines.join(call, key, priority, member)
  local joined = call.joined
  if not joined then
    joined = {}
    call.joined = joined
  end
  local n = #joined
  joined[n + 1], joined[n + 2], joined[n + 3] = key, priority, member
end

do
  local note_in_list, note_in_zset = line_rests.note_in_list, line_rests.note_in_zset

  -- Insert an item into a text. Items inside of a text may make it twice as long as a new item at its end.
  local function insert_at(base, key, letter, items, at, item, bytes, behind)
    local rest = rest_of(letter)
    table.insert(items, at, item)
    if bytes < 2 * key_lines.most_bytes then return text_of(items, rest) end
    while bytes >= key_lines.most_bytes and items[2] do
      local last = table.remove(items)
      rest, bytes = line_rests.put_before(base, behind, key, rest, last), bytes - #last - 1
    end
    return text_of(items, rest)
  end

  -- Return the text of a line with one more item, which may come before others. Note in `behind` what is not in it.
  local function insert(base, key, text, item, behind)
    local letter, body = split(text)
    local items = items_of(body)
    local at, bytes = #items + 1, #text + #item
    while at > 1 and comes_before(item, items[at - 1]) do at = at - 1 end
    if at <= #items or rest_of(letter) == '' and bytes < key_lines.most_bytes then
      return insert_at(base, key, letter, items, at, item, bytes, behind)
    end
    return text_of(items, line_rests.note_after(base, behind, key, rest_of(letter), item))
  end

  -- Return the text of a line with one more job. Note in `behind` what is not in it. priority: see key_lines.join
  local function joined_to(base, key, text, priority, member, behind)
    if not priority then
      local letter = letter_of(text)
      if letter == '' and #text + #member < key_lines.most_bytes then return text .. RS .. member end
      if letter == '' or letter == LIST then
        note_in_list(behind, key, member)
        return letter == LIST and text or LIST .. text
      elseif letter == BOTH or letter == ZSET then
        note_in_zset(behind, key, letter, '0', member)
        return text
      end
    end
    return insert(base, key, text, item_of(priority or '0', member), behind)
  end

  -- Change the texts of lines whose lists are long, so that the next items go into a zset.
  local function note_long(base, keys)
    local changed, n = {}, 0
    for i, text in ipairs(texts_of(base, keys)) do
      changed[n + 1], changed[n + 2], n = keys[i], BOTH .. string.sub(text, 2), n + 2
    end
    in_chunks('HSET', base .. ':key_lines', nil, changed)
  end

  -- Write texts, and the items behind them. Return the number of keys that had no line.
  local function store_joined(base, changed, behind)
    local name, n = base .. ':key_lines', #changed
    local widen = n >= 2 * MANY
    if widen then changed[n + 1], changed[n + 2] = WIDENER, '' end
    local created = in_chunks('HSET', name, nil, changed)
    if widen then redis.call('HDEL', name, WIDENER) end
    local long = line_rests.write(base, behind)
    if long[1] then note_long(base, long) end
    return widen and created - 1 or created
  end

  -- Return the keys in a list of `joined`, and their positions by key.
  local function keys_in(joined)
    local keys, position, n = {}, {}, 0
    for i = 1, #joined, 3 do
      local key = joined[i]
      if not position[key] then
        n = n + 1
        keys[n], position[key] = key, n
      end
    end
    return keys, position
  end

  -- Write the lines of the jobs that key_lines.join has noted.
  function key_lines.write(base, call)
    local joined = call.joined
    if not joined then return end
    call.joined = nil
    local keys, position = keys_in(joined)
    local before, texts, changed, n = key_lines.read(base, keys), {}, {}, 0
    local behind = line_rests.collection()
    for i = 1, #joined, 3 do
      local key, priority, member = joined[i], joined[i + 1], joined[i + 2]
      local at = position[key]
      local text = texts[at] or before[at]
      texts[at] = text and joined_to(base, key, text, priority, member, behind)
        or text_of({item_of(priority or '0', member)}, '')
    end
    for i = 1, #keys do
      if texts[i] ~= before[i] then changed[n + 1], changed[n + 2], n = keys[i], texts[i], n + 2 end
    end
    store_joined(base, changed, behind)
  end

  -- Write the lines of keys that had none, some of which are named several times. texts: what was read.
  local function merge_new(base, keys, lines, texts)
    local merged, changed, behind = {}, {}, line_rests.collection()
    for i = 1, #keys do
      local key, member = keys[i], lines[2 * i]
      if not texts[i] then
        merged[key] = merged[key] and joined_to(base, key, merged[key], false, member, behind) or member
      end
    end
    for key, text in pairs(merged) do
      local n = #changed
      changed[n + 1], changed[n + 2] = key, text
    end
    store_joined(base, changed, behind)
  end

  -- Return the pairs of a list { key text }… whose text is not false.
  local function changed_of(lines)
    local changed, n = {}, 0
    for i = 1, #lines, 2 do
      if lines[i + 1] then changed[n + 1], changed[n + 2], n = lines[i], lines[i + 1], n + 2 end
    end
    return changed
  end

  -- Write the lines of many new jobs without a priority: { key member }…; keys: their keys. Return the number of
  -- different keys, and by position true for a job that is certainly not the first one in its line.
  --
  -- A table of the keys would find a key that is named twice, and filling it would cost a tenth of the add. Most calls
  -- name keys without a line, each once. HSET then creates a field for each of them.
  function key_lines.append(base, keys, lines)
    local texts, current, missing, others = key_lines.read(base, keys), {}, 0, 0
    local unchanged, behind, not_first = 0, line_rests.collection(), {}
    for i = 1, #keys do
      local key, at = keys[i], 2 * i
      local known, text, new = current[key], texts[i], nil
      if text then
        if not known then others = others + 1 end
        text = known or text
        not_first[i] = text < 'p' or text > 'r'
        if text < ANY_LETTER and #text + #lines[at] < key_lines.most_bytes then
          new = text .. RS .. lines[at]
        else
          new = joined_to(base, key, text, false, lines[at], behind)
        end
        current[key] = new
        if new == text and not known then
          lines[at], unchanged = false, unchanged + 1
        else
          lines[at] = new
        end
      else
        missing = missing + 1
      end
    end
    local created = store_joined(base, unchanged > 0 and changed_of(lines) or lines, behind)
    if created ~= missing then merge_new(base, keys, lines, texts) end
    return created + others, not_first
  end
end

-- Take the first item off a text. Return it, and the text without it, false if it is empty.
local function cut_first(base, key, text)
  local letter = letter_of(text)
  local from = #letter + 1
  local at = string.find(text, RS, from, true)
  if at then return string.sub(text, from, at - 1), letter .. string.sub(text, at + 1) end
  return string.sub(text, from), line_rests.take(base, key, rest_of(letter))
end

-- Take the first job of each of these keys out of its line. Return the members by position, false for each key without
-- a line. texts: of the keys, nil if these are not known; replaced by the members
function key_lines.pop(base, keys, texts)
  local members, changed, emptied, n, e = texts or key_lines.read(base, keys), {}, {}, 0, 0
  local find, sub = string.find, string.sub
  for i = 1, #keys do
    local text, key, left = members[i], keys[i], nil
    if text and text < ANY_LETTER then
      -- The items have no priorities. The only item of a short text is the member.
      local at = #text >= SHORTEST_TWO and find(text, RS, 1, true)
      if at then members[i], left = sub(text, 1, at - 1), sub(text, at + 1) end
    elseif text and text < 'p' then
      local at, letter = find(text, RS, 2, true), text < BOTH and LIST or BOTH
      members[i] = at and sub(text, 2, at - 1) or sub(text, 2)
      left = at and letter .. sub(text, at + 1) or not at and line_rests.from_list(base, key, letter)
    else
      text = text or key_lines.find_old(base, key)
      if text then
        text, left = cut_first(base, key, text)
        members[i] = member_of(text)
      end
    end
    if left then
      changed[n + 1], changed[n + 2], n = key, left, n + 2
    else
      e = e + 1
      emptied[e] = key
    end
  end
  key_lines.store(base, changed, emptied)
  return members
end

-- Take up to n items off a text. Return them, and the text without them, false if it is empty.
function key_lines.cut(base, key, text, n)
  local taken = {}
  while text and #taken < n do taken[#taken + 1], text = cut_first(base, key, text) end
  return taken, text
end

-- Return a text with the items from a position on before it.
function key_lines.uncut(items, from, text)
  if not items[from] then return text end
  local letter, body = '', nil
  if text then letter, body = split(text) end
  local all = {unpack(items, from)}
  for _, item in ipairs(body and items_of(body) or {}) do all[#all + 1] = item end
  return text_of(all, rest_of(letter))
end

-- Remove a job from its line.
function key_lines.remove(base, key, member)
  local text = key_lines.read(base, {key})[1]
  if not text then return end
  local letter, body = split(text)
  local first, last = position_of(body, member)
  local left = text
  if not first then
    left = with_rest(letter, line_rests.remove(base, key, rest_of(letter), member)) .. body
  elseif first > 1 then
    left = letter .. string.sub(body, 1, first - 2) .. string.sub(body, last + 1)
  elseif last < #body then
    left = letter .. string.sub(body, last + 2)
  else
    left = line_rests.take(base, key, rest_of(letter))
  end
  if left == text then return end
  if left then
    redis.call('HSET', base .. ':key_lines', key, left)
  else
    redis.call('HDEL', base .. ':key_lines', key)
  end
end

-- The following functions only read.

-- Return the members in the text of a key, and what is behind it.
local function read_line(base, key)
  local text = redis.call('HGET', base .. ':key_lines', key)
  if not text then return {}, line_rests.kind(base, key) end
  local letter, body = split(text)
  local members = items_of(body)
  if letter ~= '' then
    for i, item in ipairs(members) do members[i] = member_of(item) end
  end
  return members, rest_of(letter)
end

-- Return the members of a line from a position on, at most n. The first position is 0.
function key_lines.range(base, key, from, n)
  local all, rest = read_line(base, key)
  local members = {unpack(all, from + 1, math.min(from + n, #all))}
  for _, member in ipairs(line_rests.range(base, key, rest, math.max(0, from - #all), n - #members)) do
    members[#members + 1] = member
  end
  return members
end

-- Return the number of jobs in a line.
function key_lines.length(base, key)
  local members, rest = read_line(base, key)
  return #members + line_rests.length(base, key, rest)
end

-- Return true if a job is in its line.
function key_lines.has(base, key, member)
  local text = redis.call('HGET', base .. ':key_lines', key)
  local letter, body = split(text or '')
  if position_of(body, member) then return true end
  return line_rests.rank(base, key, text and rest_of(letter) or line_rests.kind(base, key), member) ~= nil
end

-- Return the ids of the jobs in a text.
function key_lines.ids_in(text)
  local ids = items_of(select(2, split(text)))
  for i, item in ipairs(ids) do ids[i] = string.sub(member_of(item), HINT + 1) end
  return ids
end

-- Return the position of a job in its line, nil if it is not there.
function key_lines.rank(base, key, member)
  local members, rest = read_line(base, key)
  for i, each in ipairs(members) do
    if each == member then return i - 1 end
  end
  local rank = line_rests.rank(base, key, rest, member)
  return rank and rank + #members or nil
end

-- Return the faults of a text: the two invariants, its letter, and the order of its items.
function key_lines.faults_of(base, key, text)
  local letter, body = split(text)
  local items, faults = items_of(body), {}
  for i = 2, #items do
    if not comes_before(items[i - 1], items[i]) then faults[#faults + 1] = 'its line is not in order' end
  end
  if not items[1] then faults[#faults + 1] = 'its line is empty' end
  for _, item in ipairs(items) do
    if priority_of(item) > 0 and letter ~= 'p' and letter ~= 'q' then
      faults[#faults + 1] = 'its line hides a priority'
      break
    end
  end
  local rest, kind = rest_of(letter), line_rests.kind(base, key)
  local first, is_mixed = line_rests.first(base, key, kind)
  -- The server deletes a list with its last item. The zset behind a list may be missing too.
  local agrees = rest == kind or rest == LIST and kind == '' or rest == BOTH and kind ~= ZSET
  if not agrees then
    faults[#faults + 1] = 'its line and keyq do not agree'
  elseif first and items[1] and not comes_before(items[#items], first) then
    faults[#faults + 1] = 'a job in keyq comes before its line'
  end
  if is_mixed then faults[#faults + 1] = 'its list is not in order' end
  return faults
end

-- Return true if a key has a line without a text, although the queue has no old lines.
function key_lines.is_lost(base, key)
  return not queue_flags.may_have_old_lines(base) and line_rests.kind(base, key) ~= ''
    and redis.call('HEXISTS', base .. ':key_lines', key) == 0
end
