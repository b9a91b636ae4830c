-- line_texts: the text that holds the first jobs of a line, see key_lines.lua. Nothing here reads or writes the store.

local line_texts = {}
local HINT, LETTER = 17, 97      -- where the read hint is in an item without a priority; 'a'
local LAST, COLON = 30, 58       -- RS and ':'
-- A text with a letter is greater than this text, and one without is smaller.
line_texts.ANY_LETTER = 'a'
-- The letters of a text without priorities, by what is behind it. They are in the order of the alphabet.
line_texts.LIST, line_texts.BOTH, line_texts.ZSET = 'l', 'm', 'r'
local ANY_LETTER, LIST, BOTH, ZSET = line_texts.ANY_LETTER, line_texts.LIST, line_texts.BOTH, line_texts.ZSET

-- Return the item of a member.
local function item_of(priority, member)
  return priority == '0' and member or priority .. ':' .. member
end

-- Return an item without its priority.
local function member_of(item)
  if string.byte(item, HINT) >= LETTER then return item end
  return string.sub(item, string.find(item, ':', 1, true) + 1)
end

-- Return the priority of an item.
local function priority_of(item)
  return string.byte(item, HINT) >= LETTER and 0 or tonumber(string.match(item, '^%d+'))
end

-- Return true if the first one of two items comes before the other one.
local function comes_before(a, b)
  local first, second = priority_of(a), priority_of(b)
  if first ~= second then return first < second end
  return string.sub(member_of(a), 1, HINT - 1) < string.sub(member_of(b), 1, HINT - 1)
end

-- Return the letter of a text, '' without one.
local function letter_of(text)
  if text < ANY_LETTER then return '' end
  return text < BOTH and LIST or text < 'p' and BOTH or text < 'q' and 'p' or text < 'r' and 'q' or ZSET
end

-- Return the letter of a text, and its items as one text.
local function split(text)
  local letter = letter_of(text)
  return letter, letter == '' and text or string.sub(text, 2)
end

-- Return what is behind the text with a letter: '' nothing, LIST a list, BOTH a list and a zset, ZSET a zset.
local function rest_of(letter)
  return letter == 'q' and ZSET or letter == 'p' and '' or letter
end

-- Return the letter of a text after what is behind it has changed to `rest`.
local function with_rest(letter, rest)
  if letter ~= 'p' and letter ~= 'q' then return rest end
  return rest == '' and 'p' or 'q'
end

-- Return the items of a text without its letter.
local function items_of(body)
  local items, n = {}, 0
  for item in string.gmatch(body, '[^' .. RS .. ']+') do
    n = n + 1
    items[n] = item
  end
  return items
end

-- Return the text of these items, false without any. rest: see rest_of. A list is never behind items with priorities.
local function text_of(items, rest)
  if not items[1] then return false end
  local has_priority = false
  for _, item in ipairs(items) do has_priority = has_priority or string.byte(item, HINT) < LETTER end
  local letter = has_priority and (rest == '' and 'p' or 'q') or rest
  return letter .. table.concat(items, RS)
end

-- Return where the item of a member begins and ends in the items of a text, nil if it is not there.
local function position_of(body, member)
  local at = 1
  while true do
    local first, last = string.find(body, member, at, true)
    if not first then return nil end
    -- An id may contain the text of another member.
    local before, after = string.byte(body, first - 1), string.byte(body, last + 1)
    if (not after or after == LAST) and (first == 1 or before == LAST or before == COLON) then
      local start = before == COLON and string.find(string.sub(body, 1, first - 1), '%d+:$') or first
      if start == 1 or (start and string.byte(body, start - 1) == LAST) then return start, last end
    end
    at = first + 1
  end
end

line_texts.item_of, line_texts.member_of, line_texts.priority_of = item_of, member_of, priority_of
line_texts.comes_before, line_texts.letter_of, line_texts.split = comes_before, letter_of, split
line_texts.rest_of, line_texts.with_rest, line_texts.items_of = rest_of, with_rest, items_of
line_texts.text_of, line_texts.position_of = text_of, position_of
