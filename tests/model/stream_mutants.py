"""Ways to break the streams of chunks, each one statement. The random model must detect each of them."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_STREAMS: Final[dict[str, tuple[str, str]]] = {
    "a chunk of a run that lost its job is stored": (
        "    if state ~= 'active' or found ~= entry then return 'stale' end\n    if args[3] ~=",
        "    if args[3] ~=",
    ),
    "a completed job does not end its stream": ("  chunks.close(base, id, 'completed', '', call)\n", ""),
    "a failed run does not end the stream of its job": ("  chunks.close(base, id, 'failed', payload, call)\n", ""),
    "a job that the server fails does not end its stream": ("  chunks.close(base, id, 'failed', '', call)\n", ""),
    "a removed job keeps its stream": ("  chunks.remove(base, ids, call.seen)\n", ""),
    "a job without a record keeps its stream": ("  chunks.remove(base, {id}, call.seen)\n", ""),
    "a retried job keeps the end of its stream": ("  chunks.reopen(base, id, call.seen)\n", ""),
    "an ended stream stays for ever": ("  redis.call('PEXPIRE', key, stream.ttl)\n", ""),
    "an open stream has no flag": (
        "  redis.call('HSET', queue_flags.create(base, 'streamed', seen), id, chunks.packed(stream))\n",
        "  redis.call('HSET', base .. ':streamed', id, chunks.packed(stream))\n",
    ),
    "the numbers of a stream begin again": (
        "    chunks.count(stream, #args[i], most_bytes)\n",
        "    stream.number = i - at - 6\n    chunks.count(stream, #args[i], most_bytes)\n",
    ),
}
