-- incarnation: a queue can go, with its keys, and begin again while clients have it open. What they declared when they
-- opened it (its mode, a worker's dead-letter queue) is gone then, and they do not know.
--   meta  incarnation  a mark that the client made which opened this queue first
-- openQueue answers it. Calls that add or claim bring the one their client knows as their last argument; with another
-- one they are refused, nothing is written, and the client opens the queue again. '' or no argument: a caller that
-- declares nothing.

local incarnation = {}

function incarnation.check(known, found)
  if known and known ~= '' and known ~= found then
    fail('UNDECLARED', 'this queue is not the one that the caller opened')
  end
end
