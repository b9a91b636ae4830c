"""Ways to break what operators see and do, each one statement. The scenes must notice each of them."""

from __future__ import annotations

from typing import Final

OPERATOR_MUTANTS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "failure groups": {
        "a failure is counted twice": (
            "  group[COUNT], group[LAST] = group[COUNT] + noted.count, math.max(group[LAST], now)\n",
            "  group[COUNT], group[LAST] = group[COUNT] + noted.count + 1, math.max(group[LAST], now)\n",
        ),
        "further failures of a call are not counted": ("noted.count = noted.count + 1 end", "noted.count = 1 end"),
        "the clock of a group goes back": ("math.max(group[LAST], now)\n", "now\n"),
        "the hours of a group do not move on": ("  move_on(group, now)\n  group[COUNT]", "  group[COUNT]"),
        "the hours move on by one too many": (
            "local by = math.min(hour - group[HOUR], HOURS)",
            "local by = math.min(hour - group[HOUR] + 1, HOURS)",
        ),
        "the trend counts in the first hour": (
            "  group[TREND][HOURS] = group[TREND][HOURS] + noted.count\n",
            "  group[TREND][1] = group[TREND][1] + noted.count\n",
        ),
        "a group forgets its last hour": ("  group[HOUR] = hour\nend", "end"),
        "a version begins anew with each failure": (
            "      n = n + table.remove(versions, i + 1)\n",
            "      table.remove(versions, i + 1)\n",
        ),
        "a version that fails again stays at its position": (
            "  versions[#versions + 1], versions[#versions + 2] = version, n\n",
            "  table.insert(versions, 1, n)\n  table.insert(versions, 1, version)\n",
        ),
        "a group keeps all versions": ("  if #versions > 2 * MOST_VERSIONS then\n", "  if false then\n"),
        "a group begins with its last version": (
            "  group[MESSAGE], group[SAMPLE] = noted.message, noted.id\n",
            "  group[MESSAGE], group[SAMPLE], group[BEGAN] = noted.message, noted.id, noted.version\n",
        ),
        "all groups are kept": (
            "fingerprint) == 1 then forget_some(base) end",
            "fingerprint) == 2 then forget_some(base) end",
        ),
        "the newest groups leave": (
            "redis.call('ZPOPMIN', base .. ':failing'",
            "redis.call('ZPOPMAX', base .. ':failing'",
        ),
        "the data of a group that left stay": ("  redis.call('HDEL', base .. ':failure_groups', unpack(gone))\n", ""),
        "collected failures are lost": (
            "  if call.failure_count >= MOST_NOTES then failure_groups.write(base, call) end\n",
            "  if call.failure_count >= MOST_NOTES then call.failures, call.failure_count = nil, nil end\n",
        ),
        "failures of different versions are one": (
            "  call.failures, failures[fingerprint .. ' ' .. failed.version] = failures, failed\n",
            "  call.failures, failures[fingerprint] = failures, failed\n",
        ),
        "any text is a fingerprint": (
            "  if not string.find(fingerprint, '^%w+$') then\n",
            "  if fingerprint == '' then\n",
        ),
        "the version of a worker is unknown": (
            "  if version == '' then version = failure_groups.version_of(base, call.consumer, call) end\n",
            "",
        ),
        "a revoked job has failed": (
            "  if cause == 'revoked' then\n    if not exists(key)",
            "  if false then\n    if not exists(key)",
        ),
        "an expired job has no group": ("  if cause ~= 'stalled' and cause ~= 'revoked' then\n", "  if false then\n"),
        "a lost lease has no group": ("    redis.call('HSET', key, 'group', group, 'runner', runner)\n", ""),
        "a list of groups ends with its first step": (
            "return {#found == STEP and digits(from + STEP) or '', rows, (clock.now())}",
            "return {'', rows, (clock.now())}",
        ),
    },
    "histories": {
        "a lost lease has no entry": ("    job_history.note_stall(base, id, runner, group, call)\n", ""),
        "an end by the server has no entry": ("  job_history.note_end(base, id, cause, reason, call)\n", ""),
        "a delayed run has no entry": ("  job_history.note_run(base, id, 'delayed', reason, call)\n", ""),
        "a revoked run has no entry": ("    job_history.note_run(base, id, 'revoked', reason, call)\n", ""),
        "a completed run that runs again has no entry": (
            "  if record.location(base, id) == 'completed' then job_history.note_completed(base, id, call) end\n",
            "",
        ),
        "a history has no limit": ("  while #text > most do\n", "  while false do\n"),
        "the newest entry leaves": ("    if not at then return entry end\n", "    if not at then return kept end\n"),
        "the history begins anew": (
            "  local text = kept and kept ~= '' and kept .. RS .. entry or entry\n",
            "  local text = entry\n",
        ),
        "a history that is off goes on": (
            "  local key, most = base .. ':job:' .. id, limit_of(base, call)\n  if most == 0 then return end\n",
            "  local key, most = base .. ':job:' .. id, limit_of(base, call)\n",
        ),
        "a failed run is noted in a history that is off": ("  if most == 0 then return nil end\n", ""),
        "a delayed run is noted in a history that is off": ("  if limit_of(base, call) == 0 then return end\n", ""),
        "a change is noted in a history that is off": ("  if most == 0 then return 0 end\n", ""),
        "separators in a text are kept": (
            "return (string.gsub(string.sub(text, 1, most), '%c', ' '))",
            "return string.sub(text, 1, most)",
        ),
        "long texts are kept": ("string.gsub(string.sub(text, 1, most)", "string.gsub(text"),
        "a note creates a job": ("    if has_record(base, args[i], call.seen) then\n", "    if true then\n"),
        "a call notes too many jobs": ("  if #args > MOST_JOBS + 5 then", "  if false then"),
        "a history may have any size": (
            "  if bytes < 0 or bytes > MOST_BYTES then fail('ARGUMENT', 'a history",
            "  if false then fail('ARGUMENT', 'a history",
        ),
    },
    "bulk changes": {
        "a repeated step is made again": (
            "    if kept ~= nil then return kept end\n    return request.remember(base, channel, number, run(",
            "    return request.remember(base, channel, number, run(",
        ),
        "the reply of a step is forgotten after minutes": ("run(base, args), request.WEEK_MS)", "run(base, args))"),
        "positions begin with 0": (
            "    if position < 1 then",
            "    if position < 0 then",
        ),
        "later jobs are changed": (
            "(added_of(job) or 0) > step.cutoff then return 'later' end",
            "false then return 'later' end",
        ),
        "the time of a keyed job is unknown": (
            "job.fields[4] or keyed.added_of(job.fields[5] or '') or",
            "job.fields[4] or",
        ),
        "jobs in all states are changed": (
            "    if step.states and not step.states[state] then return 'state ' .. state end\n",
            "",
        ),
        "a job that the client refuses is changed": (
            "args[at + 2] ~= '' and args[at + 2] or change_one(base, step, job, call)",
            "change_one(base, step, job, call)",
        ),
        "a completed job is retried": (
            "not (argument == '1' and state == 'completed') then return 'state ' .. state end",
            "not (state == 'completed') then return 'state ' .. state end",
        ),
        "a waiting job is retried": (
            "    if state ~= 'failed' and not (argument == '1' and state == 'completed') then return",
            "    if state == 'completed' and argument ~= '1' then return",
        ),
        "an ended job is cancelled": (
            "    if locations.is_final(job.state) then return 'state ' .. job.state end\n    note",
            "    note",
        ),
        "the reason of a cancel is lost": (
            "    if reason ~= '' then redis.call('HSET', base .. ':job:' .. job.id, 'revoked', reason) end\n",
            "",
        ),
        "a running job fails at once when it is cancelled": (
            "    if job.state == 'active' then\n      removal.revoke_run",
            "    if false then\n      removal.revoke_run",
        ),
        "a waiting job is promoted": ("    if job.state ~= 'delayed' then return 'state ' .. job.state end\n", ""),
        "a running job is delayed": (
            "    if not locations.is_unstarted(job.state) or job.state == 'waiting-children' then return",
            "    if false then return",
        ),
        "a delayed job is delayed twice": (
            "    if job.state == 'delayed' then\n      scheduled.take_out(base, job.id)\n    else\n",
            "    if job.state == 'delayed' then\n    else\n",
        ),
        "a delay of 0 has no effect": (
            "return job.state == 'delayed' and promote(base, job.id, call) or 'ok' end",
            "return 'ok' end",
        ),
        "a moved job starts immediately": (
            "    if job.state == 'delayed' then\n      extra.at =",
            "    if false then\n      extra.at =",
        ),
        "a moved job lives longer": ("    if till then extra.ttl =", "    if false then extra.ttl ="),
        "a moved job stays": (
            "extra_of(base, job, call), ''}, call)\n    removal.remove(base, job.id, job.state, call)\n",
            "extra_of(base, job, call), ''}, call)\n",
        ),
        "a moved job has its old data": ("job.data ~= '' and job.data or fields[2] or ''", "fields[2] or ''"),
        "a completed job is moved": (
            "    if not waits and job.state ~= 'failed' then return 'state ' .. job.state end\n",
            "",
        ),
        "a running job is edited": (
            "    if job.state == 'active' or job.state == 'suspended' then return 'state ' .. job.state end\n",
            "",
        ),
        "an edited job does not run again": (
            "      local status = restart(base, job.id, job.state, argument, call)\n",
            "      local status = 'ok'\n",
        ),
        "an edit changes nothing": (
            "    redis.call('HSET', key, 'data', job.data)\n    if job.opts",
            "    if job.opts",
        ),
        "a bulk change is not noted": (
            "    if status == 'ok' and step.action ~= 'cancel' then note(base, step, job, call) end\n",
            "",
        ),
        "a change that was not made is noted": (
            "    if status == 'ok' and step.action ~= 'cancel' then note(base, step, job, call) end\n",
            "    if step.action ~= 'cancel' then note(base, step, job, call) end\n",
        ),
        "a cancel is noted after the end": (
            "    note(base, step, job, call)   -- before",
            "    -- before",
        ),
        "a change without an actor is noted": (
            "    if args[7] ~= '' then step.entry = job_history.action",
            "    if true then step.entry = job_history.action",
        ),
        "a note keeps a deleted job": (
            "  if found[1] then redis.call('HSET', key, 'history', extended(found[2], entry, most)) end\n",
            "  redis.call('HSET', key, 'history', extended(found[2], entry, most))\n",
        ),
    },
    "operations": {
        "an operation starts with any ticket": ("    if found[2] ~= args[4] then return 'ticket' end\n", ""),
        "an operation starts twice": (
            "    if redis.call('HEXISTS', key, 'started') == 1 then return 'known' end\n",
            "",
        ),
        "a cancelled preview is started": ("    if found[1] ~= 'previewed' then return 'state ' .. found[1] end\n", ""),
        "a preview never expires": (
            "    redis.call('PEXPIRE', base .. ':operation:' .. id, digits(TICKET_MS))\n    redis.call('ZADD'",
            "    redis.call('ZADD'",
        ),
        "the jobs of a preview never expire": (
            "    redis.call('PEXPIRE', base .. ':operation_targets:' .. args[1], digits(TICKET_MS))\n",
            "",
        ),
        "a started operation expires soon": (
            "    redis.call('PEXPIRE', key, digits(KEPT_MS))\n    redis.call('PEXPIRE'",
            "    redis.call('PEXPIRE'",
        ),
        "the jobs of a started operation expire soon": (
            "    redis.call('PEXPIRE', base .. ':operation_targets:' .. id, digits(KEPT_MS))\n",
            "",
        ),
        "a started operation is not run": ("    if not is_empty then add.one(", "    if false then add.one("),
        "an operation without jobs runs": ("    local is_empty = found[3] == '0'\n", "    local is_empty = false\n"),
        "a start has no audit line": ("    audit.append(base, args[8])\n", ""),
        "a long audit line of a start is stored": ("    audit.check(args[8])\n", ""),
        "a step is counted twice": (
            "    if tonumber(found[2]) ~= position then return {found[1], tonumber(found[2])} end\n",
            "",
        ),
        "an operation never ends": (
            "    if found[1] == 'running' and following >= tonumber(found[3]) then\n",
            "    if false then\n",
        ),
        "a cancelled operation is done": (
            "    if found[1] == 'running' and following >= tonumber(found[3]) then\n",
            "    if following >= tonumber(found[3]) then\n",
        ),
        "refused jobs are not counted": (
            "    for i = 7, #args - 1, 2 do redis.call('HINCRBY', key, 'r:'",
            "    for i = 7, 0, 2 do redis.call('HINCRBY', key, 'r:'",
        ),
        "changed jobs are not counted": ("    redis.call('HINCRBY', key, 'done', args[5])\n", ""),
        "the watched jobs are forgotten": (
            "    if args[6] ~= '' and found[1] == 'running' then",
            "    if found[1] == 'running' then",
        ),
        "a cancelled operation keeps watched jobs": (
            "    if args[6] ~= '' and found[1] == 'running' then",
            "    if args[6] ~= '' then",
        ),
        "any number of watched jobs is stored": ("    if #args[6] > MOST_TARGETS then", "    if false then"),
        "a chunk of jobs has any size": ("    if #args[3] > MOST_TARGETS * 4 then", "    if false then"),
        "the jobs of an ended operation stay": ("      redis.call('UNLINK', targets)\n", ""),
        "an operation is ended twice": (
            "    if state ~= 'running' and state ~= 'previewed' then return 'state ' .. state end\n",
            "",
        ),
        "the jobs of a cancelled operation stay": (
            "    redis.call('UNLINK', base .. ':operation_targets:' .. id)\n    if line",
            "    if line",
        ),
        "a cancel has no audit line": ("    if line then audit.append(base, line) end\n", ""),
        "a long audit line of a cancel is stored": ("    if line then audit.check(line) end\n", ""),
        "an ended preview expires soon": (
            "    redis.call('PEXPIRE', key, digits(KEPT_MS))\n    redis.call('UNLINK'",
            "    redis.call('UNLINK'",
        ),
        "all operations are listed": (
            "digits(now - KEPT_MS))\n    redis.call('ZREMRANGEBYRANK', list, 0, -MOST_LISTED - 1)\n",
            "digits(now - KEPT_MS))\n",
        ),
        "old operations are listed": ("    redis.call('ZREMRANGEBYSCORE', list, '-inf', digits(now - KEPT_MS))\n", ""),
        "the oldest operations are listed first": (
            "redis.call('ZREVRANGE', base .. ':operations', 0",
            "redis.call('ZRANGE', base .. ':operations', 0",
        ),
    },
    "audit lines": {
        "a long audit line is stored": (
            "    audit.check(args[3])\n    return audit.append(base, args[3])\n",
            "    return audit.append(base, args[3])\n",
        ),
        "a long end of a change is stored": ("    audit.check(args[4])\n", ""),
        "a change has two audit lines": ("    redis.call('XDEL', base .. ':audit', args[3])\n", ""),
        "all audit lines are kept": ("'MAXLEN', digits(MOST), '*', 'line', line)", "'*', 'line', line)"),
        "old audit lines are read": ("'(' .. before, oldest,\n", "'(' .. before, '-',\n"),
        "a page begins with the last line of the page before": (
            "'+' or '(' .. before, oldest,",
            "'+' or before, oldest,",
        ),
        "a page of audit lines has any size": ("      if bytes > 524288 then", "      if false then"),
        "a list of audit lines ends with its first page": (
            "return {#found == most and found[most] and found[most][1] or '', rows}",
            "return {'', rows}",
        ),
    },
}
