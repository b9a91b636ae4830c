-- graphs: reads whole flows, so that they can be drawn. plans.lua describes how they are stored.
--   readFlow      flow stamp cursor -> { next cursor | '' | 'gone', stamp,
--                 { { number, base key, id, name, policy, ending, reason, children } … } }
--     The nodes of a plan by their numbers, also those whose jobs are not made. stamp '': any plan with this id.
--     cursor    '0 1' starts: the number of the next node, and of the first page that may contain it
--     ending    '' (not ended), "c", or "f" with the reason      children: cmsgpack { number … } or ''
--   readFlowJobs  id… -> flat { state | '', "<stamp> <flow>" | '' }     of each job: its state, and the plan of the
--                 children that its runs have added. At most 500 ids
-- Both are `no-writes`.

local READ_STEP, JOBS_STEP, PROBED_PAGES = 200, 500, 200

-- Return the row of a node whose job is made, nil if it is not made.
local function made_row(base, key, number)
  local n = digits(number)
  local found = redis.call('HMGET', key, n, 'e' .. n, 'k' .. n)
  local node = found[1] and plans.unpacked(found[1])
  if not node then return nil end
  local how = found[2] or ''
  local ending = string.sub(how, 1, 1)
  return {number, node[1] == '' and base or node[1], node[2], node[3], node[4], ending,
    ending == 'f' and string.sub(how, 2) or '', found[3] or ''}
end

-- Return the next packed page whose jobs are not made, and its number. If there is none among the next pages, return
-- nil and the number of the page with which the next step continues.
local function next_page(key, stamp, page)
  local staged = plans.key_of(stamp.base, stamp.text)
  for number = page, page + PROBED_PAGES do
    local field = 'p' .. digits(number)
    local packed = redis.call('HGET', key, field) or redis.call('HGET', staged, field)
    if packed then return packed, number end
  end
  return nil, page + PROBED_PAGES + 1
end

-- Add the rows of the nodes of a page from this number on. Return the number after the last one.
local function page_rows(base, flow, packed, from, rows)
  local page = plans.unpacked(packed) or {from, {}}
  for i, row in ipairs(page[2]) do
    local number = page[1] + i - 1
    if number >= from then
      rows[#rows + 1] = {number, row[1] == '' and base or row[1], flow_jobs.id_of(base, flow, number, row), row[3],
        row[7], '', '', row[9][1] and cmsgpack.pack(row[9]) or ''}
    end
  end
  return math.max(from, page[1] + #page[2])
end

-- Return true if the plan has no node with this number or a higher one.
local function is_complete(key, number)
  local nodes = redis.call('HGET', key, 'nodes')
  return not nodes or number >= tonumber(nodes)
end

register('readFlow', function(base, args)
  local call_budget, flow, key, rows = budget.of_answer(), args[1], plans.key_of(base, args[1]), {}
  local number, page = string.match(args[3], '^(%d+) (%d+)$')
  if not number then fail('ARGUMENT', 'cursor must be two numbers, found ' .. args[3]) end
  number, page = tonumber(number), tonumber(page)
  local stamp = redis.call('HGET', key, 'stamp')
  if not stamp or (args[2] ~= '' and args[2] ~= stamp) then return {'gone', '', rows} end
  while #rows < READ_STEP do
    local row = made_row(base, key, number)
    if row then
      rows[#rows + 1] = row
      call_budget.bytes = call_budget.bytes + #row[8] + #row[7]
      number = number + 1
    elseif is_complete(key, number) then
      return {'', stamp, rows}
    else
      local packed
      packed, page = next_page(key, {base = base, text = stamp}, page)
      if packed then
        call_budget.bytes = call_budget.bytes + #packed
        number = page_rows(base, flow, packed, number, rows)
        page = page + 1
      end
    end
    if budget.is_spent(call_budget) then break end
  end
  return {digits(number) .. ' ' .. digits(page), stamp, rows}
end, {'no-writes'})

register('readFlowJobs', function(base, args)
  if #args > JOBS_STEP then fail('ARGUMENT', 'at most ' .. JOBS_STEP .. ' ids, found ' .. #args) end
  local found = {}
  for _, id in ipairs(args) do
    found[#found + 1] = plain.location(base, id) or ''
    found[#found + 1] = redis.call('HGET', base .. ':job:' .. id, 'adopted') or ''
  end
  return found
end, {'no-writes'})
