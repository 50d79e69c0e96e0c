//! The server's own state of the queue, and what has to hold of it whatever happened.

use std::collections::{BTreeMap, BTreeSet};

use tenure_testkit::{Reply, RespClient};

/// Everything at once, read by the server itself.
const LOOK: &str = "
local time = redis.call('TIME')
local later = string.format('(%.0f', time[1] * 1000000 + time[2]) -- leases that have ended are counted no more
local function of(suffix) return '{tenure:dq:jobs}:' .. suffix end
return {redis.call('ZRANGE', of('t'), 0, -1, 'WITHSCORES'), redis.call('ZRANGE', of('h'), 0, -1), redis.call('ZRANGE', of('d'), 0, -1),
  redis.call('HKEYS', of('m')), redis.call('HKEYS', of('r')), redis.call('HKEYS', of('o')), redis.call('ZRANGE', of('j'), 0, -1),
  redis.call('HGETALL', of('i')), redis.call('ZRANGE', of('l'), later, '+inf', 'BYSCORE'), redis.call('GET', of('n')) or '0;0;0;0;',
  redis.call('EXISTS', of('t'), of('h'), of('d'))}
";

/// What is not as it has to be, if anything; `counters` are those of the last look.
pub(crate) fn wrong(server: &mut RespClient, counters: &mut [u64; 2]) -> Option<String> {
    let all = server.call(&["EVAL", LOOK, "0"]).unwrap();
    let [timeline, held, dead, records, delivered, outcomes, by_key, names, counted, text, _] = all.items() else {
        panic!("{all:?}")
    };
    let set = |reply: &Reply| reply.items().iter().map(Reply::text).collect::<BTreeSet<_>>();
    let pairs = |reply: &Reply| {
        reply.items().chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect::<BTreeMap<_, _>>()
    };
    let timeline = pairs(timeline);
    let on_time: BTreeSet<String> = timeline.keys().cloned().collect();
    let odd = |(_, score): &(&String, &String)| score.parse::<f64>().unwrap() as u64 % 2 == 1;
    let leased: BTreeSet<String> = timeline.iter().filter(odd).map(|(id, _)| id.clone()).collect();
    let (held, dead, records, delivered) = (set(held), set(dead), set(records), set(delivered));
    let places = [&on_time, &held, &dead];
    if places.iter().map(|place| place.len()).sum::<usize>() != records.len()
        || places.into_iter().flatten().any(|id| !records.contains(id))
    {
        return Some(format!("stored are {records:?}, placed {on_time:?}, {held:?} and {dead:?}"));
    }
    if delivered != leased {
        return Some(format!("with a lease are {leased:?}, delivered {delivered:?}"));
    }
    let outcomes = set(outcomes);
    if !outcomes.is_subset(&records) || !outcomes.is_disjoint(&delivered) {
        return Some(format!("states are kept of {outcomes:?}, of records {records:?} and deliveries {delivered:?}"));
    }
    let by_key: BTreeSet<String> =
        set(by_key).into_iter().map(|member| member[member.len() - 14..].to_owned()).collect();
    if by_key != held {
        return Some(format!("held are {held:?}, by their keys {by_key:?}"));
    }
    for (name, id) in pairs(names) {
        if !records.contains(&id) || (name.starts_with('k') && !delivered.contains(&id)) {
            return Some(format!("{name} leads to {id}, which is not there"));
        }
    }
    if !set(counted).is_subset(&delivered) {
        return Some(format!("counted as in flight are {:?}, delivered {delivered:?}", set(counted)));
    }
    let text = text.text();
    let mut numbers = text.split(';').map(|number| number.parse::<u64>().unwrap_or(0));
    let now = [numbers.next()?, numbers.next()?];
    if now[0] < counters[0] || now[1] < counters[1] {
        return Some(format!("the counters fell from {counters:?} to {now:?}"));
    }
    *counters = now;
    None
}
