-- claim_tokens: the tokens of the jobs of one claim, in the form in which the reply of the call is stored.
--   "p<entry>"                        one job that waited in `fifo`
--   "<token>" SEP "<id>"              one job that waited elsewhere, see runs.lua
--   "<token> <token> …"               several plain jobs
--   RS "<head>" SEP "<id> <id> …"     several compact jobs. Their tokens are the head and three digits, from 000 on.
--   "p<number>..<number>"             the plain jobs of a direct claim that have these numbers

local claim_tokens = {}
local SERIES = 30                -- the byte of RS

-- Return the text for the token of one job.
function claim_tokens.of(token, id)
  return string.sub(token, 1, 1) == 'p' and token or token .. SEP .. id
end

-- Return the text for compact jobs that start together. head: the beginning of their tokens; names: their ids with
-- blanks between them.
function claim_tokens.series(head, names)
  return RS .. head .. SEP .. names
end

-- Return the text for the tokens of a direct claim of plain jobs: the entries of `fifo` with the numbers from `first`
-- to `last`.
function claim_tokens.range(first, last)
  return 'p' .. digits(first) .. '..' .. digits(last)
end

-- Append the tokens of a direct claim of plain jobs whose entries are still pending.
local function append_range(base, consumer, text, list)
  local first, last = string.match(text, '^p(%d+)%.%.(%d+)$')
  if not first then return end
  local most = digits(last - first + 1)
  local rows = redis.pcall('XPENDING', base .. ':fifo', GROUP, first, last, most, consumer)
  for i = 1, rows.err and 0 or #rows do list[#list + 1] = 'p' .. rows[i][1] end
end

-- Append the tokens and the jobs of a text with a job that waited outside of `fifo`.
local function append_runs(text, list, ids)
  local token, names = string.match(text, '^' .. RS .. '?([^' .. SEP .. ']*)' .. SEP .. '(.*)$')
  if string.byte(text) ~= SERIES then
    list[#list + 1], ids[#list + 1] = token, names
    return
  end
  local nth = 0
  for id in string.gmatch(names, '[^ ]+') do
    list[#list + 1], ids[#list + 1] = token .. three_digits(nth), id
    nth = nth + 1
  end
end

-- Return the tokens of a claim one by one, and by position the ids of jobs that waited outside of `fifo`. tokens: as
-- stored.
function claim_tokens.each(base, consumer, tokens)
  local list, ids = {}, {}
  for _, text in ipairs(tokens) do
    if string.find(text, SEP, 1, true) then
      append_runs(text, list, ids)
    elseif string.find(text, ' ', 1, true) then
      for token in string.gmatch(text, '[^ ]+') do list[#list + 1] = token end
    elseif string.find(text, '..', 1, true) then
      append_range(base, consumer, text, list)
    else
      list[#list + 1] = text
    end
  end
  return list, ids
end

-- Return true if the token of a plain job is among the stored ones.
function claim_tokens.has(tokens, token)
  for _, text in ipairs(tokens) do
    if text == token or string.find(' ' .. text .. ' ', ' ' .. token .. ' ', 1, true) then return true end
    local first, last = string.match(text, '^p(%d+)%.%.(%d+)$')
    local number = first and tonumber(string.match(token, '^p(%d+)') or nil)
    if number and number >= tonumber(first) and number <= tonumber(last) then return true end
  end
  return false
end
