"""Ways to break flows, each one statement. The random flows must detect each of them."""

from __future__ import annotations

from typing import Final

FLOW_MUTANTS: Final[dict[str, tuple[str, str]]] = {
    "the end of a child does not resume its suspended parent": (
        "  push_work(base, 's', 0, 0, flow, call)\n",
        "",
    ),
    "a job is suspended although a further child has ended": (
        "(redis.call('HGET', key, plans.ENDED) or 0) > known then return false end",
        "(redis.call('HGET', key, plans.ENDED) or 0) > known + 1 then return false end",
    ),
    "a suspended parent does not fail with its child": (
        "or (flow_jobs.is_suspended(base, id) and locations.leave(base, id, call))",
        "",
    ),
    "an end while the parent runs is not counted": (
        "  redis.call('HINCRBY', key, plans.ENDED, 1)\n",
        "  redis.call('HINCRBY', key, plans.ENDED, redis.call('HGET', key, plans.RUNS) == 's' and 1 or 0)\n",
    ),
    "a parent is released one child too early": (
        "  if left == 0 then push_work(base, 'r'",
        "  if left <= 1 then push_work(base, 'r'",
    ),
    "an end that arrives twice counts twice": (
        "  if redis.call('HSETNX', key, 'e' .. digits(number), ending .. value) == 0 then return false end\n",
        "  redis.call('HSETNX', key, 'e' .. digits(number), ending .. value)\n",
    ),
    "a failed child counts like a completed one": (
        "if ending == 'f' and not PATIENT[node[4]] then",
        "if false then",
    ),
    "the policy wait does not fail the parent": (
        "if ending == 'f' and (node[4] == 'f' or node[4] == 'w') then",
        "if ending == 'f' and node[4] == 'f' then",
    ),
    "the policy ignore fails the parent": (
        "local PATIENT = {w = true, c = true, i = true,",
        "local PATIENT = {w = true, c = true,",
    ),
    "an end on the server does not reach the plan": (
        "  if seen.flowed then record.resolve(base, ids, call) end    -- see flow_jobs.lua\n",
        "",
    ),
    "the children of a failed parent stay": (
        "  cancel_children(base, key, flow, edge.node, call)\n",
        "",
    ),
    "a child is cancelled that another parent needs": (
        "    if not known[parent] then return false end\n",
        "    if not known[parent] then return true end\n",
    ),
    "a cancelled subtree stays below its first node": (
        "      for _, parent in ipairs(parents) do push_work(base, 'c', parent, 0, flow, call) end\n",
        "",
    ),
    "a cancelled job keeps its mark": ("  forget_edges(base, same, own)\n", ""),
    "nodes that are cancelled together count once": (
        "redis.call('HINCRBY', key, 'live', -#numbers)",
        "redis.call('HINCRBY', key, 'live', -1)",
    ),
    "jobs of other queues are not told to stop": (
        "if node[1] == '' then carry_out(base, message, call) else post(base, node[1], message, call) end",
        "if node[1] == '' then carry_out(base, message, call) end",
    ),
    "work that is left is forgotten": (
        "    call.ends_jobs = top and string.sub(top, 1, 1) ~= MAKE\n",
        "    if top then redis.call('UNLINK', key) end\n",
    ),
    "a released parent stays among those that wait": (
        "  redis.call('ZREM', base .. ':parents', id)\n",
        "",
    ),
    "the values of children are those of another node": (
        "  local found = children_of(key, number)\n",
        "  local found = children_of(key, 0)\n",
    ),
    "a refused job of another queue is not reported": (
        "    report(base, job.id, edge_of(job.home, job.flow, job.stamp, job.node), 'f', refused, call)\n",
        "",
    ),
    "an add in another queue loses its place in the flow": (
        "  redis.call('HSET', queue_flags.create(base, 'flowed', call.seen), id, edge)",
        "  redis.call('HSET', queue_flags.create(base, 'flowed', call.seen), SEP, edge)",
    ),
    "a plan does not know how many of its nodes live": (
        "  if redis.call('HINCRBY', key, 'live', -1) == 0 then",
        "  if redis.call('HINCRBY', key, 'live', 0) == 0 then",
    ),
    "a node that nobody needs is made": ("  if is_needless(key, parents, {}) then\n", "  if false then\n"),
    "a job that waits for ended children is not released": (
        "if runs == 'f' or left <= 0 then push_work(",
        "if runs == 'f' then push_work(",
    ),
    "the failure of an added child is forgotten while its parent runs": (
        "if runs == 'f' or left <= 0 then push_work(",
        "if left <= 0 then push_work(",
    ),
    "the children that a job has added stay when it ends": (
        "    if own ~= '' then ended(base, parse_edge(own_edge(own)), ending, '', call) end\n",
        "",
    ),
    "a job that is cancelled forgets the children that it has added": (
        "    if own == '' then\n      gone[#gone + 1] = id\n",
        "    if true then\n      gone[#gone + 1] = id\n",
    ),
    "the children of a run that is revoked start": (
        "  redis.call('HSET', key, plans.REVOKED, '1')\n  plans.cancel_children(base, key, edge.flow, 0, call)\n",
        "  redis.call('HSET', key, plans.REVOKED, '1')\n",
    ),
    "the children of a run that is revoked are needed": (
        "(parent == 0 and redis.call('HEXISTS', key, plans.REVOKED) == 1)",
        "false",
    ),
    "a run that is revoked starts its first children": (
        "  if is_revoked then redis.call(",
        "  if false then redis.call(",
    ),
    "a job that waits does not wait": (
        "local key, edge = own_plan(base, id)\n  redis.call('HDEL', job, 'after')",
        "local key, edge\n  redis.call('HDEL', job, 'after')",
    ),
}
