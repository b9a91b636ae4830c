-- chunks: the chunks that the runs of a job have streamed, and the end of such a stream. streaming.lua has the calls.
--   chunks:<id>  stream  one entry per chunk, with the id "<number of the chunk>-<run>"; its only value is the payload.
--                Numbers begin with 1 and have no gap. So a reader can count what was trimmed. The last entry of a job
--                that has ended has the fields of ENDED.
--   streamed     hash  id -> "<chunks> <bytes> <ttl ms> <marks>": jobs that have a stream and have not ended. bytes:
--                the size of all chunks; marks: "<number>:<size of all chunks before it>" of some chunks
--   meta2        logs: jobs of this queue may have log lines, chunks or journals
-- The call that ends a job also ends its stream, so no reader waits for a chunk that never comes. The server forgets an
-- ended stream after its ttl. A queue without streams has no `streamed`, and pays nothing.

local chunks = {}
local ENDED, REMOVED, CHANGED = 'end', 'removed', 'changed'
local MARKS = 16                 -- number of parts in which a stream is trimmed
local MOST_ERROR = 65536         -- bytes of an error that the end of a stream repeats
local KEPT_REMOVED_MS = '60000'  -- how long the end of a removed job's stream remains for its readers
local LAST = '9007199254740991'  -- after every run

function chunks.new_stream()
  return {number = 0, bytes = 0, marks = {}}
end

-- Return { number, bytes, ttl, marks } of the open stream of a job, nil if it has none.
function chunks.open_of(base, id)
  local kept = redis.call('HGET', base .. ':streamed', id)
  if not kept then return nil end
  local number, bytes, ttl, marks = string.match(kept, '^(%d+) (%d+) (%d+) (.*)$')
  local stream = {number = tonumber(number or 0), bytes = tonumber(bytes or 0), ttl = ttl or '1', marks = {}}
  for first, before in string.gmatch(marks or '', '(%d+):(%d+)') do
    stream.marks[#stream.marks + 1] = {first = tonumber(first), before = tonumber(before)}
  end
  return stream
end

function chunks.packed(stream)
  local marks = {}
  for i, mark in ipairs(stream.marks) do marks[i] = digits(mark.first) .. ':' .. digits(mark.before) end
  return digits(stream.number) .. ' ' .. digits(stream.bytes) .. ' ' .. stream.ttl .. ' ' .. table.concat(marks, ',')
end

-- Count one more chunk. Reading old chunks to learn their sizes would copy them. So some of them are marked: a large
-- one, and the first one after each sixteenth of the limit.
function chunks.count(stream, size, most)
  local marks = stream.marks
  local last = marks[#marks]
  stream.number = stream.number + 1
  if not last or size >= most / MARKS or stream.bytes - last.before >= most / MARKS then
    marks[#marks + 1] = {first = stream.number, before = stream.bytes}
  end
  stream.bytes = stream.bytes + size
end

-- Forget the oldest chunks, so that at most `most` bytes remain, or the last marked chunk. Return the number of the
-- first chunk that stays; nil if all stay.
function chunks.drop_oldest(stream, most)
  local marks, dropped = stream.marks, 0
  while dropped + 1 < #marks and stream.bytes - marks[dropped + 1].before > most do dropped = dropped + 1 end
  if dropped == 0 then return nil end
  stream.marks = {unpack(marks, dropped + 1)}
  return stream.marks[1].first
end

-- Wake the readers of a stream, or the watchers of its job. text: the number of the last chunk, "end", or "changed" if
-- the state, the progress or the log of the job has changed.
function chunks.publish(base, id, text)
  -- This comes after writes, so it must not raise. Readers also look again every few seconds.
  redis.pcall('SPUBLISH', base .. ':chunks:' .. id, text)
end

-- Return the run in the `claim` field of a record, "0" before the first claim.
function chunks.run_of(claim)
  return string.match(claim or '0', '^%d+')
end

-- Return the state in which a job has ended, from the fields of an entry; nil if the entry is a chunk.
function chunks.end_of(fields)
  return fields[1] == ENDED and fields[2] or nil
end

-- Wake the watchers of the jobs that these events are about, once for each job. Watched jobs have an open stream.
function chunks.announce(base, call)
  if not call.seen.streamed then return end
  local ids, met = {}, {}
  for _, id in ipairs(events.ids_in(call.lines)) do
    if not met[id] then met[id], ids[#ids + 1] = true, id end
  end
  for from = 1, #ids, CHUNK do
    local last = math.min(from + CHUNK - 1, #ids)
    for i, kept in ipairs(redis.call('HMGET', base .. ':streamed', unpack(ids, from, last))) do
      if kept then chunks.publish(base, ids[from + i - 1], CHANGED) end
    end
  end
end

-- Wake the watchers of one job.
function chunks.announce_one(base, id)
  if redis.call('HEXISTS', base .. ':streamed', id) == 1 then chunks.publish(base, id, CHANGED) end
end

-- End the stream of a job that has ended. payload: the error of its run, '' without one.
function chunks.close(base, id, state, payload, call)
  local stream = call.seen.streamed and chunks.open_of(base, id)
  if not stream then return end
  local key, known = base .. ':chunks:' .. id, redis.call('HMGET', base .. ':job:' .. id, 'claim', 'reason')
  local failed = state == 'failed'
  -- The id follows the last chunk, unless a user has changed the stream by hand.
  redis.pcall('XADD', key, digits(stream.number) .. '-*', ENDED, state, 'run', chunks.run_of(known[1] or nil),
    'stream', chunks.packed(stream),
    'reason', failed and known[2] or '', 'error', failed and #payload <= MOST_ERROR and payload or '')
  redis.call('PEXPIRE', key, stream.ttl)
  redis.call('HDEL', base .. ':streamed', id)
  chunks.publish(base, id, ENDED)
end

-- Open the stream of a job that had ended and runs again. The numbers of the chunks continue. The ended stream of a
-- removed job with the same id stays as it is.
function chunks.reopen(base, id, seen)
  if not seen.logs then return end
  local key = base .. ':chunks:' .. id
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not last or last[2][1] ~= ENDED or last[2][2] == REMOVED then return end
  if redis.call('HEXISTS', base .. ':job:' .. id, 'streamed') == 0 then return end
  redis.call('XDEL', key, last[1])
  redis.call('PERSIST', key)
  redis.call('HSET', queue_flags.create(base, 'streamed', seen), id, last[2][6])
end

-- Remove the streams of removed jobs. The end of an open one remains for a minute, for its readers. seen: the table of
-- queue_flags.at.
function chunks.remove(base, ids, seen)
  if not seen.logs then return end
  local keys = {}
  for i, id in ipairs(ids) do keys[i] = base .. ':chunks:' .. id end
  in_chunks('UNLINK', nil, nil, keys)
  if not seen.streamed then return end
  for _, id in ipairs(ids) do
    local stream = chunks.open_of(base, id)
    if stream then
      redis.call('HDEL', base .. ':streamed', id)
      redis.pcall('XADD', base .. ':chunks:' .. id, digits(stream.number) .. '-' .. LAST, ENDED, REMOVED, 'run', '0')
      redis.call('PEXPIRE', base .. ':chunks:' .. id, KEPT_REMOVED_MS)
      chunks.publish(base, id, ENDED)
    end
  end
end
