-- removal: a job goes, with all that belongs to it.

local removal = {}

-- Remove an existing job in any state. detail: for the event. A run must have been told to stop before.
function removal.remove(base, id, detail, call)
  places.leave(base, id, call)
  record.forget_marks(base, {id}, call.seen)
  if call.seen.held then redis.call('ZREM', base .. ':held', id) end
  finish.answer_waiters(base, 'removed', {id}, {''}, call.seen)
  record.unlink(base, {id})
  events.note(call.lines, 'removed', id, detail)
end
