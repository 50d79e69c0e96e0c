//! Faults that were put into the scripts of the queue by hand: each has to be noticed.

use crate::common::wire::Seeded;

const fn seeded(name: &'static str, from: &'static str, to: &'static str) -> Seeded {
    Seeded { name, from, to }
}

pub(crate) const SEEDED: &[Seeded] = &[
    seeded(
        "a receipt of an earlier delivery settles",
        "if not state or settled[id] or sub(state, 12, 25) ~= sub(arg, 15, 28) then",
        "if not state or settled[id] then",
    ),
    seeded("a delivery is settled twice", "if not state or settled[id] or", "if not state or"),
    seeded("a lease that has ended is extended", "if ends > 2 * now + 1 then", "if true then"),
    seeded("a lease is made shorter", "if asked > ends then", "if true then"),
    seeded("the fence of a delivery is not raised", "      fence = fence + 1\n", ""),
    seeded("an acknowledged message stays", "    redis.call('HDEL', M, unpack(gone))\n", ""),
    seeded(
        "a message is delivered before it is due",
        "if not score or value > 2 * now + 1 then break end",
        "if not score then break end",
    ),
    seeded("an attempt is not counted", "string.format('%04x', attempt + 1)", "string.format('%04x', attempt)"),
    seeded(
        "one attempt too many",
        "if attempt >= (tonumber(string.sub(state, 5, 8), 16) or 0) then doom = 'E' end",
        "",
    ),
    seeded("two messages of a key are in flight", "if key ~= '' and must_wait(id, key) then", "if false then"),
    seeded("a key stays taken", "  if busy then redis.call('HDEL', I, 'k' .. key) end\n", ""),
    seeded("a known name is stored again", "if state and not replaces then", "if false then"),
    seeded("a name is forgotten with the acknowledgement", "redis.call('ZADD', S, now + window, name)", ""),
    seeded(
        "a message that is too late is delivered",
        "if doom == '-' and expires > 0 and expires < now then doom = 'T' end",
        "",
    ),
    seeded(
        "a paused queue delivers",
        "most = paused and 0 or math.min(max, seldom().room())",
        "most = math.min(max, seldom().room())",
    ),
    seeded("leases are not counted", "  redis.call('ZADD', L, unpack(leases))\n", ""),
    seeded("the dead have no cap", "local full = redis.call('ZCARD', D) >= dead_cap", "local full = false"),
    seeded("a message in flight is purged", "or (place == 'T' and standing(place, score) == 3)", ""),
];
