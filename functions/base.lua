-- base: constants and helpers that all other files of the library use.
--
-- Calling contract of all functions
--   KEYS[1]    the queue's base key, "<prefix>:{<queue>}". Every other store key derives from it and has its cluster
--              slot.
--   ARGV[1,2]  request channel and request number (see request.lua), for functions that change something and are not
--              idempotent. The headers call them `channel number`. All further arguments are flat and positional.
--   errors     "GLIDEMQ <CODE> <text>", raised before the first write.
-- A `status` in a header is a short reply code such as "ok", "missing" or "stale".
-- Rules: parse and check, then read, then write. No fallible command after the first write. Bounded work per call.

local GROUP = 'workers'          -- the one consumer group of `fifo`
local SEP = '\31'                -- unit separator: ids and names never hold control characters
local RS = '\30'                 -- record separator, between the parts of one detail

local function fail(code, text)
  return error({err = 'GLIDEMQ ' .. code .. ' ' .. text})
end

-- Milliseconds since the epoch by the server's clock, and the microseconds beyond them. A field of a table so that a
-- test build can shift it.
local clock = {}
do
  local last, last_ms    -- many calls follow within a second, and reading a number costs 900 instructions

  function clock.now()
    local t = redis.call('TIME')
    local seconds, us = t[1], t[2] + 0
    if seconds ~= last then last, last_ms = seconds, seconds * 1000 end
    local past = us % 1000
    return last_ms + (us - past) / 1000, past
  end
end

-- Return true if a stored "now" is in the future. An administrator can set the server's clock back, and the clock of a
-- replica that takes over can be behind. A feature that waits for such an instant would wait too long. So each file
-- that stores an instant calls this function before it uses the instant, and treats an instant in the future as
-- unknown.
-- docs/internals/stored-data.md lists every stored instant.
clock.SLACK_MS = 1000
clock.NEVER = 253402300799000    -- the last second of the year 9999
function clock.is_ahead(instant, now)
  return instant > now + clock.SLACK_MS
end

local function integer(name, text)
  local n = tonumber(text)
  if not n or n % 1 ~= 0 then
    fail('ARGUMENT', name .. ' must be an integer, found ' .. tostring(text))
  end
  return n
end

local digits, counting, three_digits, whole_numbers

do
  local small, tails = {}, {}    -- texts of the numbers 0 to 999, each stored when it is first used
  local heads, n_heads = {}, 0   -- texts of some multiples of 1000, without their last three digits
  -- The last two other numbers. Most calls write their time several times, and other numbers between.
  local last, last_text, older, older_text
  local MOST_HEADS = 64

  -- Format a whole number, and keep its parts for the numbers with the same thousands.
  local function format(n, low)
    local text = string.format('%d', n)
    n = n + 0    -- a caller may have read it as a text
    if n < 1000 then
      if #text < 4 then small[n] = text end
    elseif low == math.floor(low) then
      if n_heads == MOST_HEADS then heads, n_heads = {}, 0 end
      if not heads[n - low] then heads[n - low], n_heads = string.sub(text, 1, -4), n_heads + 1 end
      tails[low] = string.sub(text, -3)
    end
    return text
  end

  -- Return a whole number as text, exact below 2^53. Pass numbers to commands as texts: the server formats a number as
  -- a double, which costs 2,000 instructions. Formatting a number here costs 1,500, and joining two short texts 400.
  function digits(n)
    local text = small[n]
    if text then return text end
    if n == last then return last_text end
    if n == older then return older_text end
    local low = n % 1000
    local head, tail = heads[n - low], tails[low]
    text = head and tail and head .. tail or format(n, low)
    older, older_text, last, last_text = last, last_text, n, text
    return text
  end

  -- Return a number below 1000 as text with three digits.
  function three_digits(n)
    local tail = tails[n]
    if not tail then
      tail = string.format('%03d', n)
      tails[n] = tail
    end
    return tail
  end

  -- Return a function that formats whole numbers, fast for consecutive ones: it formats the thousands once and joins
  -- them with the last three digits. Joining two texts takes a fraction of the time of formatting.
  function counting()
    local high, head
    return function(n)
      if n < 1000 then return digits(n) end
      local low = n % 1000
      local wanted = n - low
      if wanted ~= high then high, head = wanted, digits(wanted / 1000) end
      return head .. three_digits(low)
    end
  end

  -- Return the whole numbers from `first` to `last` as texts.
  function whole_numbers(first, last)
    local texts, n = {}, 0
    while first <= last do
      local low = first % 1000
      local head = first > low and digits((first - low) / 1000)
      local high = math.min(999, low + last - first)
      for i = low, high do
        n = n + 1
        texts[n] = head and head .. (tails[i] or three_digits(i)) or digits(i)
      end
      first = first + high - low + 1
    end
    return texts
  end
end

local number_of, packed_number, packed_text

do
  local MOST = 256
  local numbers, n_numbers = {}, 0
  local last, last_packed        -- most calls pack their time

  -- Return the number in a text, as tonumber does; nil for no text. For texts that many calls contain, such as leases:
  -- reading a number costs 900 instructions.
  function number_of(text)
    if not text then return nil end
    local n = numbers[text]
    if not n then
      n = tonumber(text)
      if n_numbers == MOST then numbers, n_numbers = {}, 0 end
      numbers[text], n_numbers = n, n_numbers + 1
    end
    return n
  end

  -- Return a number as cmsgpack packs it. cmsgpack needs 5,000 instructions for a small table, so calls that are made
  -- for each job join packed parts instead.
  function packed_number(n)
    if n ~= last then last, last_packed = n, cmsgpack.pack(n) end
    return last_packed
  end

  -- Return a text of fewer than 32 bytes as cmsgpack packs it.
  function packed_text(text)
    return string.char(160 + #text) .. text
  end
end

-- Some servers refuse `unpack` of more than about a thousand values, so long argument lists are sent in pieces.
local CHUNK = 900

-- Call `command key [head] values…` in pieces. Return the sum of the integer replies.
local function in_chunks(command, key, head, values)
  local total, n = 0, #values
  for from = 1, n, CHUNK do
    local last = math.min(from + CHUNK - 1, n)
    local reply
    if head then
      reply = redis.call(command, key, head, unpack(values, from, last))
    elseif key then
      reply = redis.call(command, key, unpack(values, from, last))
    else
      reply = redis.call(command, unpack(values, from, last))
    end
    total = total + reply
  end
  return total
end

-- A member that converts a small zset or hash from a list to a table. The server stores a small one as a list and walks
-- it for each member that a command names, so a call that adds n members takes O(n²) steps. This name is longer than a
-- list may hold. The table stays a table after the member is removed. Ids and keys contain no control characters, so
-- this name never equals one.
local WIDENER = SEP .. '--------------------------------------------------------------------------------'
local MANY = 8                   -- from this many members on, converting costs less than walking the list

-- Remove the n lowest members of a zset. Return them. ZPOPMIN would return their scores too, and formatting a score
-- takes as long as the rest of the work for a member.
local function take_lowest(key, n)
  local members = redis.call('ZRANGE', key, '0', digits(n - 1))
  if members[1] then redis.call('ZREMRANGEBYRANK', key, '0', digits(#members - 1)) end
  return members
end

local keys_of

do
  local MOST = 64
  local known, n = {}, 0
  local lazily = {__index = function(keys, name)
    local key = keys[1] .. ':' .. name
    keys[name] = key
    return key
  end}

  -- Return the store keys of a queue by their names, for example keys_of(base).fifo. Only for the names of structures.
  -- For calls that are made for each job: joining two texts costs as much as the search for five keys.
  function keys_of(base)
    local keys = known[base]
    if keys then return keys end
    if n == MOST then known, n = {}, 0 end
    keys = setmetatable({base}, lazily)
    known[base], n = keys, n + 1
    return keys
  end
end

local function exists(key)
  return redis.call('EXISTS', key) == 1
end

local function register(name, callback, flags)
  redis.register_function{
    function_name = 'glidemq_async_v2_' .. name,
    callback = function(keys, args) return callback(keys[1], args) end,
    flags = flags or {},
  }
end
