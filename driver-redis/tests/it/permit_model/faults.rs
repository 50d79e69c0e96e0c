//! Faults that were put into the scripts by hand: each has to be noticed.

use crate::common::wire::Seeded;

const fn seeded(name: &'static str, from: &'static str, to: &'static str) -> Seeded {
    Seeded { name, from, to }
}

pub(crate) const SEEDED: &[Seeded] = &[
    seeded("a waiter is passed", "fits = at == waiting and has_room", "fits = has_room"),
    seeded("a waiter passes those before it", "fits = place < at", "fits = true"),
    seeded(
        "a waiter's limit does not bind those behind",
        "least = at + 1, reserved + terms.weight, limit",
        "least = at + 1, reserved + terms.weight, math.huge",
    ),
    seeded("nothing is reserved", "at + 1, reserved + terms.weight, limit", "at + 1, 0, limit"),
    seeded("a hold is given behind others", "if at > 0 or terms.ttl == '0' then", "if terms.ttl == '0' then"),
    seeded("a release does not serve", "remove(token, hold.weight) end\nserve()", "remove(token, hold.weight) end"),
    seeded("an asker is notified", "terms.called == '1' or member == asker", "terms.called == '1'"),
    seeded("a notified waiter keeps its presence", "redis.call('ZADD', W, 'LT', now_us + 1000 * claim, member)", ""),
    seeded("a waiter that asked counts as notified", "if terms and terms.called == '1' then", "if false then"),
    seeded("a hold that is not heard of stays", "then remove(token, terms.weight) end", "then end"),
    seeded("a late change counts", "if step < tonumber(hold.step) then return {-5} end", ""),
    seeded("an upgrade keeps its fence", "      hold.fence = fence\n", ""),
    seeded(
        "an upgrade counts its own weight",
        "used - had + weight <= capacity then",
        "used + weight <= capacity then",
    ),
    seeded("a second upgrade is let in", "growth and not grows then", "false then"),
    seeded(
        "waiters are let in during an upgrade",
        "if growth and call_growth() then return end",
        "if growth then call_growth() end",
    ),
    seeded("an upgrade does not end with its presence", "growth.present <= now_us or", "false or"),
    seeded("a smaller hold keeps its wait for more", "if grows then stop_growing() end", ""),
    seeded("a released hold waits for more", "== token then stop_growing() end", "== nil then stop_growing() end"),
    seeded("a lease ends late", "ends + 0 > now_us then", "true then"),
    seeded("a renewal shortens", "if now_us + 1000 * ttl > ends + 0 then", "if true then"),
    seeded("a renewal revives", "or ends + 0 <= now_us then", "then"),
    seeded("a handed hold lasts no longer", "  lengthen(token, now_us + 1000 * ttl)\n", ""),
    seeded("an abandoned token is granted", "if redis.call('EXISTS', X) == 1 then return {-1, more} end", ""),
    seeded("one holder too many", "holders + before < most", "holders + before <= most"),
    seeded("the recheck looks at one lease", "if ended == 16 or fits(back, ended) then break end", "break"),
    seeded("the recheck counts the asker's lease", "if token ~= other_than and texts[i] then", "if texts[i] then"),
    seeded("a head that was notified is not waited for", "(first.called == '1' or not", "(not"),
    seeded("leases outlast their keys", "if redis.call('PTTL', R) < longest / 2 then", "if false then"),
    seeded(
        "the line is too long",
        "waiting >= max_waiters then return {-2, more}",
        "waiting > max_waiters then return {-2, more}",
    ),
    seeded("a front is remembered without a waiter", "drop('#', unpack(absent))", "drop(unpack(absent))"),
    seeded("a front is remembered without an abandoned waiter", "drop(member, '#')\nif", "drop(member)\nif"),
    seeded(
        "a front with one that left keeps its weight",
        "at, reserved = at - 1, reserved - terms.weight",
        "at = at - 1",
    ),
    seeded("the first that fit are notified and no others", "more, waiters = 1, {}", "waiters = {}"),
    seeded(
        "one run removes a part",
        "holders, settled = holders - #ended, #ended < budget",
        "holders = holders - #ended",
    ),
    seeded("a fence is given twice", "newest, spare = newest + 1, spare - 1", "spare = spare - 1"),
    seeded("a waiter that left keeps its place", "if gone[1] then drop(unpack(gone)) end", ""),
    seeded("an ended lease is seen", "if ends > now_us and #seen", "if #seen"),
];
