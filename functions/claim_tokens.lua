-- claim_tokens: the tokens of the jobs of one claim, in the form in which the reply of the call is stored.
--   "p<entry>", "l<entry>", "k<entry>"  one job, by the stream of its entry: fifo, lane, lane of a keyed job
--   "<token> <token> …"                 several plain jobs, or several compact jobs of a direct claim
--   "p<number>..<number>"               the plain jobs of a direct claim that have these numbers

local claim_tokens = {}

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

-- Return the tokens of a claim one by one. tokens: as stored, a list in which some texts have several tokens, separated
-- by spaces, and one may have a range of tokens.
function claim_tokens.each(base, consumer, tokens)
  local list = {}
  for _, text in ipairs(tokens) do
    if string.find(text, ' ', 1, true) then
      for token in string.gmatch(text, '[^ ]+') do list[#list + 1] = token end
    elseif string.find(text, '..', 1, true) then
      append_range(base, consumer, text, list)
    else
      list[#list + 1] = text
    end
  end
  return list
end

-- Return true if a token is among the stored ones.
function claim_tokens.has(tokens, token)
  for _, text in ipairs(tokens) do
    if text == token or string.find(' ' .. text .. ' ', ' ' .. token .. ' ', 1, true) then return true end
    local first, last = string.match(text, '^p(%d+)%.%.(%d+)$')
    local number = first and tonumber(string.match(token, '^p(%d+)') or nil)
    if number and number >= tonumber(first) and number <= tonumber(last) then return true end
  end
  return false
end
