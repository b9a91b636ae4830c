-- settle_groups: settles the groups of completed jobs of a call, step by step until its time is spent. settle.lua
-- describes the groups. completing.lua ends plain jobs, and compact_ends.lua ends the other jobs.

local settle_groups = {}
-- The number of runs that a call settles between two looks at the clock. A worker with 100 slots settles its completed
-- runs in one step. Runs whose keys are costly to review, and runs with another outcome, cost several times as much.
local STEP, KEYED_STEP, COSTLY_STEP = 128, 64, 16
local MOST_OF_FLOWS = 48         -- runs that a call settles while the queue has jobs of flows

-- Return how many runs a step settles.
function settle_groups.usual_step(has_keys, is_costly, seen)
  if is_costly then return COSTLY_STEP end
  return has_keys and keyed.is_costly(seen) and KEYED_STEP or STEP
end

-- Return true if a call has settled enough runs for a queue with jobs of flows.
function settle_groups.is_enough_of_flows(settled, seen)
  return seen.flowed and settled >= MOST_OF_FLOWS
end

-- Complete the jobs of a group outside of `fifo` until the time is spent. settled: how many runs of the call were
-- settled before. Return how many are settled now, and true if the time is spent.
local function settle_active(base, args, group, settled, done, answer, call)
  local seen = call.seen
  local is_costly = seen.streamed or seen.flowed or seen.stepped
  local from, step = 1, claim.usual_step(settle_groups.usual_step(group.prefix == 'k', is_costly, seen))
  while from <= group.count do
    local to = math.min(from + step - 1, group.count)
    compact_ends.step(base, args, group, from, to, settled + 1, done, answer, call, outcomes.apply.c)
    settled, from = settled + to - from + 1, to + 1
    if from <= group.count then keyed.review(base, call) end    -- its time counts too
    local is_enough = settled >= step and budget.has_settled_enough(call.budget)
    if is_enough or settle_groups.is_enough_of_flows(settled, seen) then return settled, true end
  end
  return settled, false
end

-- Complete the jobs of the groups until the time is spent. Return how many runs are settled, and true if all are.
function settle_groups.run(base, args, done, answer, call)
  local settled, step = 0, claim.usual_step(STEP)
  for _, group in ipairs(args.groups) do
    local from, is_enough = group.first, false
    if group.width then
      settled, is_enough = settle_active(base, args, group, settled, done, answer, call)
      from = group.last + 1
    end
    while from <= group.last and not is_enough do
      local last = math.min(from + step - 1, group.last)
      local to, is_costly = completing.step_end(base, args, group, from, last, call)
      completing.step(base, args, group, from, to, settled + 1, done, answer, call, outcomes.apply.c)
      settled, from = settled + to - from + 1, to + 1
      is_enough = (settled >= step or to < last or is_costly) and budget.has_settled_enough(call.budget)
    end
    completing.finish(base, group, call)
    if is_enough then return settled, false end
  end
  return settled, true
end
