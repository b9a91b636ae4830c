-- layout: the version of the structures of a queue. This text reads and writes layout 2.
--   meta2  hash    settings and state of a queue of layout 2, see queue.lua
--   meta   string  in a queue of layout 2: NOTICE
--          hash    settings and state of a queue of layout 1, which migration.lua converts
-- Functions of older versions read `meta` as a hash before they write. In a queue of layout 2 the server therefore
-- refuses them with WRONGTYPE, also if their client opened the queue before its migration. Every queue of layout 2 has
-- the notice, because an older version would otherwise create a queue of layout 1 over it.

local layout = {}
layout.OWNER = 'glidemq_async'
layout.NUMBER = '2'
local NOTICE = 'glidemq_async: the data of this queue have layout 2, see the key meta2. Clients of older versions ' ..
  'cannot use it.'

local OURS = {'events', 'seen_at', 'schedulers', 'dead_letter', 'relaying', 'outbox_last', 'turn', 'numeric_ids',
  'touched', 'keep_completed', 'keep_failed', 'limits', 'key_limits', 'planned', 'features'}

-- Return true if a queue of this library has its settings at this key. After FLUSHALL or an obliteration, other calls
-- may create the settings again, without an owner but with one of these fields.
function layout.is_ours(key, owner)
  if owner then return owner == layout.OWNER end
  for _, value in ipairs(redis.call('HMGET', key, unpack(OURS))) do
    if value then return true end
  end
  return false
end

function layout.refuse(base, asked, found)
  fail('INCOMPATIBLE', base .. ': asked for ' .. asked .. ', found ' .. found)
end

-- Refuse a call until migrateQueue has converted the queue.
function layout.require_migration(base)
  fail('MIGRATE', base .. ' has layout 1, or its migration to layout 2 has not ended')
end

-- Return 'none', 'old' (layout 1) or 'new' (layout 2). Raise INCOMPATIBLE for data of another program or of a later
-- version.
function layout.find(base)
  local key = base .. ':meta'
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then return 'none' end
  if kind == 'string' and redis.call('GET', key) == NOTICE then return 'new' end
  local wanted = 'a queue of ' .. layout.OWNER
  if kind ~= 'hash' then layout.refuse(base, wanted, 'a ' .. kind .. ' at ' .. key) end
  local meta = redis.call('HMGET', key, 'owner', 'layout')
  if not layout.is_ours(key, meta[1]) then layout.refuse(base, wanted, 'data of ' .. (meta[1] or 'another library')) end
  if (meta[2] or '1') ~= '1' then layout.refuse(base, 'layout ' .. layout.NUMBER, 'layout ' .. meta[2]) end
  return 'old'
end

function layout.write_notice(base)
  redis.call('SET', base .. ':meta', NOTICE)
end
