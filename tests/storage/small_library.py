"""A small function library for tests of the storage alone: counting with tokens, echoing, refusing."""

from __future__ import annotations

from glidemq_async.storage.redis.library import Library

SOURCE = """#!lua name=glidemq_async_v2
local function register(name, callback, flags)
  redis.register_function{function_name='glidemq_async_v2_' .. name, callback=callback, flags=flags or {}}
end
-- args: token. Counts each token once, and every execution.
register('count', function(keys, args)
  redis.call('INCR', keys[1] .. ':executions')
  if redis.call('HSETNX', keys[1] .. ':tokens', args[1], 1) == 1 then
    redis.call('INCR', keys[1] .. ':count')
  end
  return redis.call('GET', keys[1] .. ':count')
end)
-- args: token. A replay writes nothing.
register('once', function(keys, args)
  if redis.call('HEXISTS', keys[1] .. ':tokens', args[1]) == 1 then return 'replay' end
  redis.call('HSET', keys[1] .. ':tokens', args[1], 1)
  return 'first'
end)
register('executions', function(keys) return redis.call('GET', keys[1] .. ':executions') end, {'no-writes'})
register('counted', function(keys) return redis.call('GET', keys[1] .. ':count') end, {'no-writes'})
register('echo', function(keys, args) return args[1] end, {'no-writes'})
register('kinds', function() return {'text', 7, false, {'a', 1}} end, {'no-writes'})
register('refuse', function() return redis.error_reply('GLIDEMQ NO_JOB the job is gone') end)
register('broken', function() return redis.call('LPUSH', 'x') end)
register('publish', function(keys, args) return redis.call('SPUBLISH', args[1], args[2]) end)
register('append', function(keys, args)
  return redis.call('XADD', keys[1] .. ':events', '*', 'value', args[1])
end)
register('finish', function(keys, args)
  return redis.call('SET', keys[1] .. ':done', args[1])
end, {'allow-oom'})
"""

LIBRARY = Library(SOURCE)
KEY = "glide:{emails}"
