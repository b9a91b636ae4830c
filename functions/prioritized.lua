-- prioritized: the members of `prioritized`, the zset of ready jobs with a priority. The lowest score starts first.
--   prioritized  zset  member -> "<priority>.<two digits: the number of digits of the number>"
--     "<id>"           a compact job. Its id is its number.
--     "<number>:<id>"  a job with a record. It gets a new number whenever it enters.
-- Numbers are from the counter of generated ids, so jobs of one priority start in the order in which they entered:
-- numbers with fewer digits first, and members with the same score sort as texts. A compact job needs no new text
-- for its member or its score.
-- The entry of a job is the part of its member before the id: '' or "<number>:".
-- Earlier builds wrote "<16 digits of sequence><id>" -> priority. Such a member comes before all others of its
-- priority, and its entry has the 16 digits.

local prioritized = {}
local OLD_DIGITS = 16            -- a number never has as many digits
local COLON = 58

-- Return the score of a job. priority, number: as texts.
function prioritized.score(priority, number)
  local size = #number
  return priority .. (size < 10 and '.0' or '.') .. digits(size)
end

-- Return the entry and the id in a member.
function prioritized.parts_of(member)
  local _, last = string.find(member, '^%d+')
  if last and last >= OLD_DIGITS and #member > OLD_DIGITS then
    return string.sub(member, 1, OLD_DIGITS), string.sub(member, OLD_DIGITS + 1)
  end
  if last and string.byte(member, last + 1) == COLON then
    return string.sub(member, 1, last + 1), string.sub(member, last + 2)
  end
  return '', member
end

-- Remove the n jobs that start first, and fewer if their texts have more than `most` bytes. Return their ids, and the
-- texts of the compact jobs as compact.lines does.
function prioritized.take(base, n, most, seen)
  local key = base .. ':prioritized'
  local members = redis.call('ZRANGE', key, '0', digits(n - 1))
  local lines, fit = compact.lines_within(base, members, most, seen)
  if fit < #members then members = {unpack(members, 1, fit)} end
  if fit > 0 then redis.call('ZREMRANGEBYRANK', key, '0', digits(fit - 1)) end
  local are_compact = true
  for i = 1, fit do are_compact = are_compact and lines and lines[i] end
  if are_compact then return members, lines end
  local ids = {}
  for i, member in ipairs(members) do ids[i] = select(2, prioritized.parts_of(member)) end
  return ids, compact.lines(base, ids, seen)
end
