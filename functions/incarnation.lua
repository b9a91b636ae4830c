-- incarnation: detects that a queue was deleted with its keys and created again while clients have it open. The
-- settings that those clients made when they opened it (mode, dead-letter queue of a worker) are gone, and the clients
-- do not know.
--   meta2  incarnation  an identity chosen by the client that opened this queue first
-- openQueue returns it. Calls that add or claim send the incarnation that their client knows as the last argument. If
-- it differs, the call is refused before any write, and the client opens the queue again. '' or no argument: the caller
-- has no settings to lose. '*': the caller has not opened the queue, and accepts any queue that is open. It opens the
-- queue when it is refused. So a new queue and a queue of layout 1 are opened before jobs are added to them.

local incarnation = {}

function incarnation.check(known, found)
  if not known or known == '' or known == found or (known == '*' and found) then return end
  fail('UNDECLARED', 'this queue is not the one that the caller opened')
end
