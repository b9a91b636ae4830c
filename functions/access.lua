-- access: whether the caller's user may run what the functions run. Functions run with the permissions of their caller,
-- and a command that is refused in the middle of one would leave half of a change.
--   check(base) raises ACCESS with the missing ACL rules, before anything is written; answers the missing rules that
--   cost a wake-up and nothing else: those of the channels.

local access = {}

-- One use of each command that stands in these files; "k" stands for a key. tests/unit/test_lua.py holds this list
-- against the text.
local COMMANDS = {
  'EXISTS k', 'GET k', 'HDEL k f', 'HEXISTS k f', 'HGET k f', 'HGETALL k', 'HINCRBY k f 1', 'HMGET k f',
  'HSET k f v', 'HSETNX k f v', 'HSTRLEN k f', 'HLEN k', 'INCR k', 'INCRBY k 1', 'LLEN k', 'LRANGE k 0 0',
  'LTRIM k 0 0', 'MEMORY USAGE k', 'PEXPIRE k 1', 'RPUSH k v', 'SADD k v', 'SET k v', 'SISMEMBER k v',
  'SMISMEMBER k v', 'SSCAN k 0', 'SREM k v', 'TIME', 'TYPE k', 'UNLINK k', 'XACK k g 0-1', 'XADD k * f v',
  'XCLAIM k g c 0 0-1', 'XDEL k 0-1', 'XGROUP CREATE k g 0', 'XGROUP DELCONSUMER k g c', 'XINFO GROUPS k',
  'XINFO STREAM k', 'XLEN k', 'XPENDING k g', 'XRANGE k - +', 'XREADGROUP GROUP g c STREAMS k >',
  'XREVRANGE k + -', 'XTRIM k MAXLEN 0', 'ZADD k 0 v', 'ZCARD k', 'ZCOUNT k 0 0', 'ZMSCORE k v', 'ZPOPMAX k',
  'ZPOPMIN k', 'ZRANGE k 0 0', 'ZRANGEBYSCORE k 0 0', 'ZRANK k v', 'ZREM k v', 'ZREMRANGEBYRANK k 0 0',
  'ZREMRANGEBYSCORE k 0 0', 'ZREVRANGE k 0 0', 'ZREVRANK k v', 'ZSCAN k 0', 'ZSCORE k v'
}
local CONTAINERS = {MEMORY = true, XGROUP = true, XINFO = true}

local function allowed(words)
  -- It raises for a command that the server does not know, which an ACL cannot help.
  local known, answer = pcall(redis.acl_check_cmd, unpack(words))
  return not known or answer
end

-- The rule that allows a command: "+zadd", "+xgroup|create".
local function rule_of(words)
  return '+' .. string.lower(words[1] .. (CONTAINERS[words[1]] and '|' .. words[2] or ''))
end

local function missing_commands(key)
  local rules, with_key = {}, 0
  for _, line in ipairs(COMMANDS) do
    local words, keyed = {}, false
    for word in string.gmatch(line, '%S+') do
      keyed = keyed or word == 'k'
      words[#words + 1] = word == 'k' and key or word
    end
    if keyed then with_key = with_key + 1 end
    if not allowed(words) then rules[#rules + 1] = rule_of(words) end
  end
  return rules, #rules == with_key and allowed({'TIME'})
end

local function missing_channels(base)
  local rules, channel = {}, base .. ':wake:'
  if not allowed({'SPUBLISH', channel, ''}) then rules[1] = '+spublish' end
  if not allowed({'SSUBSCRIBE', channel}) then rules[#rules + 1] = '+ssubscribe' end
  -- Both at once: it is the channels that are missing, as for each new user, and not two commands.
  if rules[2] then rules = {'&' .. string.match(base, '^[^{]*') .. '*'} end
  return rules
end

function access.check(base)
  if not redis.acl_check_cmd then return {} end
  local rules, only_keys = missing_commands(base .. ':meta')
  if only_keys then rules = {'~' .. string.match(base, '^[^{]*') .. '*'} end
  if rules[1] then fail('ACCESS', table.concat(rules, ' ')) end
  return missing_channels(base)
end
