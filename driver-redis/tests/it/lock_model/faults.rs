//! Faults that were put into the scripts by hand: each has to be noticed.

use crate::common::wire::Seeded;

const fn seeded(name: &'static str, from: &'static str, to: &'static str) -> Seeded {
    Seeded { name, from, to }
}

pub(crate) const SEEDED: &[Seeded] = &[
    seeded("a turn is given to a dead waiter", "local alive = dies > now_ms", "local alive = true"),
    seeded(
        "a lock is handed to a waiter that does not hear",
        "redis.call('PUBLISH', channel .. client, news) == 0 then",
        "redis.call('PUBLISH', channel .. client, news) < 0 then",
    ),
    seeded("a second waiter gets the turn", "(waiter == asker or dies <= now_ms + claim)", "waiter == asker"),
    seeded("a waiter passes those before it", "free = budget > 0 and (head or member) == member", "free = true"),
    seeded("a dead waiter keeps its place", "if dead[1] then drop(unpack(dead)) end\nbudget", "budget"),
    seeded("two that arrive at once stand in any order", "if comes and place ~= waiting then", "if false then"),
    seeded("one that asks is handed the lock", "direct == '1' and ttl", "true and ttl"),
    seeded("a release ends anybody's lease", "string.sub(value, 1, 22) == ARGV[1]\nif held", "true\nif held"),
    seeded("a release by one command ends anybody's lease", "if value and value == ARGV[1] then", "if value then"),
    seeded("a release wakes nobody", "serve()\nreturn budget > 0 and 1 or -2", "return 1"),
    seeded("an exit frees the lock with entries left", "if depth > 0 then return depth end\n", ""),
    seeded("an exit ends the hold of another owner", "if hold ~= ARGV[2] then", "if not hold then"),
    seeded(
        "a renewal extends anybody's lease",
        "if value and string.sub(value, 1, 22) == ARGV[i + 1] then",
        "if value then",
    ),
    seeded("a renewal shortens", "if left >= tonumber(ttl) then return left end", ""),
    seeded("a later hold of the owner is renewed", " and hold[2] == ARGV[2 * i + 1]", ""),
    seeded("a forced release takes another hold", "if fence ~= expected then return -1 end", ""),
    seeded("the queue has no end", "redis.pcall('PEXPIRE', Q, life)", "true"),
    seeded("presence has no end", "redis.call('PEXPIRE', W, life)", ""),
    seeded("the terms have no end", "redis.call('PEXPIRE', D, life)", ""),
    seeded("a tombstone has no end", "redis.call('SET', X, '1', 'PX', ARGV[3])", "redis.call('SET', X, '1')"),
    seeded(
        "an abandoned token is granted",
        "  if found > (value and 1 or 0) + math.min(waiting, 1) then return {-1} end",
        "",
    ),
    seeded("a lease has no end", ".. label, 'PX', ttl)", ".. label)"),
    seeded("a holder stays in the queue", "if free and head then drop(member) end", ""),
    seeded(
        "an entry stays in the queue",
        "  drop(member)\n  local left = redis.call('PTTL', K)",
        "  local left = redis.call('PTTL', K)",
    ),
    seeded("an abandoned waiter stays in the queue", "drop(member)\nredis.call('SET', X", "redis.call('SET', X"),
    seeded("a fence comes twice", "fence = last + 8", "fence = last"),
    seeded("the counter is not raised", "    redis.call('SET', F, kept)\n", ""),
    seeded("the position is one too high", "return {0, place, recheck, now}", "return {0, place + 1, recheck, now}"),
    seeded("a holder is not known to have waiters", "if own == '-' then redis", "if false then redis"),
    seeded("a handed lease lasts as long as was asked", "if tonumber(ttl) < claim then span = ttl end", "span = ttl"),
    seeded("a handed lease is never made to last", "if own == 'h' then", "if false then"),
];
