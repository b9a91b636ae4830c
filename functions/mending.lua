-- mending: lets the run of a workflow start again in another way than retryJob does.
--   restartRun   channel number id -> status     completed or failed -> waiting, with fresh attempts and no journal
--   acceptRun    channel number id identity value -> status     failed -> waiting, with fresh attempts. The journal
--                gets this step, which says that the workflow need not ask for the steps before it.
--   restoreSteps  id count { identity value }*count -> status     add steps to the journal of a delayed job, which is a
--                fork of another one. At most MOST_STEPS. A repeated call has no second effect.
-- status: "ok", "missing", or "state <state>" when the operation does not fit the state of the job.

local MOST_STEPS = 250

-- Open a job that has ended. Return its state, or nil and the status.
local function open_ended(base, id, call)
  local state = plain.open(base, id, call.seen)
  if not state then return nil, 'missing' end
  if not locations.is_final(state) then return nil, 'state ' .. state end
  if finish.remove_over(base, id) then return nil, 'missing' end
  return state
end

request.register('restartRun', function(base, args)
  local id, call = args[3], queue_flags.call(base)
  local state, status = open_ended(base, id, call)
  if not state then return status end
  if call.seen.stepped then journals.remove(base, {id}) end
  removal.start_anew(base, id, 'retried', call)
  wakeup.finish(base, call)
  return 'ok'
end)

request.register('acceptRun', function(base, args)
  local id, call = args[3], queue_flags.call(base)
  local state, status = open_ended(base, id, call)
  if not state then return status end
  if state ~= 'failed' then return 'state ' .. state end
  journals.add(base, id, args, 4, 5, call.seen)
  removal.start_anew(base, id, 'retried', call)
  wakeup.finish(base, call)
  return 'ok'
end)

register('restoreSteps', function(base, args)
  local id, count, call = args[1], integer('count', args[2]), queue_flags.call(base)
  if count < 1 or count > MOST_STEPS or #args ~= 2 + 2 * count then
    fail('ARGUMENT', 'the argument list does not hold its steps')
  end
  local state = plain.open(base, id, call.seen)
  if not state then return 'missing' end
  if state ~= 'delayed' then return 'state ' .. state end
  journals.add(base, id, args, 3, #args, call.seen)
  return 'ok'
end)
