-- access: checks that the caller's user may run every command of the functions. Functions run with the permissions of
-- their caller. If the server refused a command in the middle of a function, half of a change would remain.
--   check(base)  raises ACCESS with the missing ACL rules before anything is written. Returns the missing rules for
--                channels: without them wake-ups are lost, but nothing else fails.

local access = {}

-- One use of each command in the function library; "k" marks the position of a key. tests/unit/test_lua.py compares
-- this list with the source.
local COMMANDS = {
  'APPEND k v', 'EXISTS k', 'GET k', 'HDEL k f', 'HEXISTS k f', 'HGET k f', 'HGETALL k', 'HINCRBY k f 1', 'HKEYS k',
  'HMGET k f',
  'HSET k f v', 'HSCAN k 0', 'HSETNX k f v', 'HSTRLEN k f', 'HLEN k', 'INCR k', 'INCRBY k 1', 'LINDEX k 0',
  'LINSERT k BEFORE p v', 'LLEN k', 'LPOP k', 'LPOS k v', 'LPUSH k v', 'LRANGE k 0 0', 'LREM k 0 v',
  'LTRIM k 0 0', 'MEMORY USAGE k', 'PERSIST k', 'PEXPIRE k 1', 'PTTL k', 'RENAME k k', 'RPOP k',
  'RPUSH k v', 'SADD k v', 'SET k v', 'SISMEMBER k v', 'SMISMEMBER k v', 'SSCAN k 0', 'SREM k v', 'TIME', 'TYPE k',
  'UNLINK k', 'XACK k g 0-1', 'XADD k * f v', 'XCLAIM k g c 0 0-1', 'XDEL k 0-1', 'XGROUP CREATE k g 0',
  'XGROUP DELCONSUMER k g c', 'XGROUP SETID k g 0',
  'XINFO GROUPS k',
  'XINFO STREAM k', 'XLEN k', 'XPENDING k g', 'XRANGE k - +', 'XREADGROUP GROUP g c STREAMS k >',
  'XREVRANGE k + -', 'XTRIM k MAXLEN 0', 'ZADD k 0 v', 'ZCARD k', 'ZCOUNT k 0 0', 'ZMSCORE k v', 'ZPOPMAX k',
  'ZPOPMIN k', 'ZRANGE k 0 0', 'ZRANGEBYSCORE k 0 0', 'ZRANK k v', 'ZREM k v', 'ZREMRANGEBYRANK k 0 0',
  'ZREMRANGEBYSCORE k 0 0', 'ZREVRANGE k 0 0', 'ZREVRANK k v', 'ZSCAN k 0', 'ZSCORE k v'
}
local CONTAINERS = {MEMORY = true, XGROUP = true, XINFO = true}

local function allowed(arguments)
  -- acl_check_cmd raises an error for a command that the server does not know. ACL rules cannot change that.
  local known, answer = pcall(redis.acl_check_cmd, unpack(arguments))
  return not known or answer
end

-- Return the rule that allows a command, for example "+zadd" or "+xgroup|create".
local function rule_of(arguments)
  return '+' .. string.lower(arguments[1] .. (CONTAINERS[arguments[1]] and '|' .. arguments[2] or ''))
end

local function missing_commands(key)
  local rules, with_key = {}, 0
  for _, line in ipairs(COMMANDS) do
    local arguments, keyed = {}, false
    for argument in string.gmatch(line, '%S+') do
      keyed = keyed or argument == 'k'
      arguments[#arguments + 1] = argument == 'k' and key or argument
    end
    if keyed then with_key = with_key + 1 end
    if not allowed(arguments) then rules[#rules + 1] = rule_of(arguments) end
  end
  return rules, #rules == with_key and allowed({'TIME'})
end

local function missing_channels(base)
  local rules, channel = {}, base .. ':wake:'
  if not allowed({'SPUBLISH', channel, ''}) then rules[1] = '+spublish' end
  if not allowed({'SSUBSCRIBE', channel}) then rules[#rules + 1] = '+ssubscribe' end
  -- If both are missing, the user lacks the channels (as every new user does), not the two commands.
  if rules[2] then rules = {'&' .. string.match(base, '^[^{]*') .. '*'} end
  return rules
end

function access.check(base)
  if not redis.acl_check_cmd then return {} end
  local rules, only_keys = missing_commands(base .. ':meta2')
  if only_keys then rules = {'~' .. string.match(base, '^[^{]*') .. '*'} end
  if rules[1] then fail('ACCESS', table.concat(rules, ' ')) end
  return missing_channels(base)
end
