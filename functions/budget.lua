-- budget: limits the work of one call. A function that walks through many items checks its budget between two of them.
-- When the budget is spent, it returns the position it has reached, and the client calls again.

local budget = {}
-- Seconds after which a budget is spent.
local ENOUGH = 0.002
-- Seconds after which a call settles no more runs, claims no more jobs, and adds no more jobs. The limits are low
-- because each of these calls has more work afterwards, for example its events.
local SETTLED, CLAIMED, ADDED = 0.001, 0.002, 0.002
-- The smallest step of an add or a claim. The commands of a smaller one would cost more than its jobs.
local LEAST = 16
-- How many times longer the add of a job takes while the tables of the server grow, because the server allocates a
-- larger table and moves some entries into it with each command. An add of keyed jobs writes into four tables, which
-- grow together.
local GROWTH = 6
-- Limits in bytes. The clock alone is not enough: the server frees and sends memory after the function has read it.
local HEAVY = 8388608
local ANSWER = 524288
budget.CLAIMED_BYTES = 1048576

do
  local asked_for_clock, processor_time

  -- Return seconds since an unknown instant. Most servers have os.clock, and freeze TIME inside a function. The servers
  -- without os.clock do not freeze TIME.
  local function seconds()
    if not asked_for_clock then
      asked_for_clock = true
      local there, found = pcall(function() return os.clock end)
      processor_time = there and found
    end
    if processor_time then return processor_time() end
    local t = redis.call('TIME')
    return t[1] + t[2] / 1000000
  end

  -- Return a new budget. The caller adds to its field `bytes`. most: the limit of bytes (default: HEAVY).
  function budget.new(most)
    return {began = seconds(), bytes = 0, most = most or HEAVY}
  end

  -- Return the budget of a call that settles and claims. is_small: the call has work for one or two steps. Its time
  -- then begins at the first look at the clock, and most small calls never read the clock.
  function budget.of_claim(is_small)
    return {began = not is_small and seconds() or nil, bytes = 0, most = budget.CLAIMED_BYTES}
  end

  -- Note the time before the first step of a claim, so that budget.fitting_claim knows how long the step takes. Return
  -- how many seconds the claim has left.
  function budget.begin_claim(call_budget)
    if not call_budget.began then return CLAIMED end
    call_budget.looked = seconds()
    return CLAIMED - (call_budget.looked - call_budget.began)
  end

  -- Note how long the step took that ends now, and return true if the call has lasted for `limit`.
  local function has_lasted(call_budget, limit)
    local now = seconds()
    local began = call_budget.began or now
    call_budget.began, call_budget.took, call_budget.looked = began, now - (call_budget.looked or began), now
    return now - began >= limit
  end

  -- Return the budget of a function that returns payloads. Each byte costs time again when it is sent.
  function budget.of_answer()
    return budget.new(ANSWER)
  end

  function budget.is_spent(call_budget)
    return call_budget.bytes >= call_budget.most or seconds() - call_budget.began >= ENOUGH
  end

  -- Return true if a call should add no more jobs.
  function budget.has_added_enough(call_budget)
    return has_lasted(call_budget, ADDED)
  end

  -- Return how many jobs a call should add in its next step: at most `most`, and fewer if the rest of the time does not
  -- suffice for them. n: the number of jobs that it has added. A step during which tables of the server grow takes up
  -- to twice the time of a call.
  function budget.fitting(call_budget, n, most)
    local lasted = seconds() - call_budget.began
    local fit = math.floor(math.min(ADDED - lasted, (2 * ADDED - lasted) / GROWTH) / lasted * n)
    return fit >= most and most or math.min(most, math.max(fit, LEAST))
  end

  -- Return true if a call should settle no more runs, because it has to claim jobs too.
  function budget.has_settled_enough(call_budget)
    return has_lasted(call_budget, SETTLED)
  end

  -- Return true if a call should claim no more jobs, and note it in `spent`.
  function budget.has_claimed_enough(call_budget)
    call_budget.spent = call_budget.spent or call_budget.bytes >= call_budget.most or has_lasted(call_budget, CLAIMED)
    return call_budget.spent
  end

  -- Return how many jobs a claim should take in its next step: at most `most`, and fewer if the rest of the time does
  -- not suffice for them. n: the number of jobs of its last step, which has_claimed_enough has followed.
  function budget.fitting_claim(call_budget, n, most)
    local took = call_budget.took
    if took <= 0 then return most end
    local fit = math.floor((CLAIMED - (call_budget.looked - call_budget.began)) / took * n)
    return fit >= most and most or math.min(most, math.max(fit, LEAST))
  end

  -- Count the values of a flat record.
  function budget.count_record(call_budget, flat)
    local bytes = call_budget.bytes
    for i = 2, #flat, 2 do bytes = bytes + #flat[i] end
    call_budget.bytes = bytes
  end
end
