//! The server's own state of the lock, and what has to hold of it whatever happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_testkit::{Reply, RespClient};

use super::script::{Cast, ENDLESS, Manner};

/// Everything at once, read by the server itself.
const LOOK: &str = "
local K, Q, W, D = 'tenure:m', '{tenure:m}:q', '{tenure:m}:w', '{tenure:m}:a'
local kind = redis.call('TYPE', K).ok
local value = {}
if kind == 'string' then value = {redis.call('GET', K)} end
if kind == 'hash' then value = redis.call('HKEYS', K) end
local ttls = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  ttls[#ttls + 1] = key
  ttls[#ttls + 1] = redis.call('PTTL', key)
end
return {redis.call('ZRANGE', Q, 0, -1), redis.call('ZRANGE', W, 0, -1, 'WITHSCORES'), redis.call('HGETALL', D), kind, value,
  ttls, redis.call('GET', ARGV[1]) or '0'}
";

pub(crate) struct State {
    /// The members of the queue, in order.
    queue: Vec<String>,
    /// The millisecond at which each counts as dead.
    presence: BTreeMap<String, i64>,
    /// What each wants: empty where it asks.
    terms: BTreeMap<String, String>,
    kind: String,
    value: Vec<String>,
    ttls: BTreeMap<String, i64>,
    counter: i64,
}

impl State {
    pub(crate) fn read(server: &mut RespClient, counter: &str) -> Self {
        let all = server.call(&["EVAL", LOOK, "0", counter]).unwrap();
        let [queue, presence, terms, kind, value, ttls, counter] = all.items() else { panic!("{all:?}") };
        let texts = |reply: &Reply| reply.items().iter().map(Reply::text).collect::<Vec<_>>();
        let pairs = |reply: &Reply| {
            let pairs = reply.items().chunks(2).map(|pair| (pair[0].text(), pair[1].int().unwrap()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        Self {
            queue: texts(queue),
            presence: pairs(presence),
            terms: texts(terms).chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
            kind: kind.text(),
            value: texts(value),
            ttls: pairs(ttls),
            counter: counter.int().unwrap(),
        }
    }

    /// Who holds the lock.
    fn holders(&self) -> BTreeSet<String> {
        match self.kind.as_str() {
            "none" => BTreeSet::new(),
            "hash" => self.value.iter().filter_map(|field| field.strip_prefix('#')).map(str::to_owned).collect(),
            _ => self.value.iter().map(|value| token(value).to_owned()).collect(),
        }
    }

    /// Those who count as alive, in order.
    fn living(&self, now_ms: i64) -> Vec<(String, i64)> {
        let dies = |member: &String| self.presence.get(member).copied().unwrap_or(0) - now_ms;
        let all = self.queue.iter().map(|member| (token(member).to_owned(), dies(member)));
        all.filter(|(_, left)| *left > 0).collect()
    }

    /// What is not as it has to be, if anything.
    pub(crate) fn wrong(&self, cast: &Cast, now_ms: i64, last_counter: &mut i64) -> Option<String> {
        let holders = self.holders();
        if let Some(both) = self.queue.iter().find(|member| holders.contains(token(member))) {
            return Some(format!("{both} holds the lock and waits for it"));
        }
        let members: BTreeSet<&String> = self.queue.iter().collect();
        if members != self.presence.keys().collect() {
            return Some(format!("waiting are {members:?}, present {:?}", self.presence));
        }
        let direct =
            |member: &str| cast.who(token(member)).is_some_and(|who| cast.askers[who].manner == Manner::Direct);
        if members != self.terms.keys().collect()
            || self.terms.iter().any(|(member, terms)| direct(member) == terms.is_empty())
        {
            return Some(format!("of {members:?}, these have terms: {:?}", self.terms));
        }
        let endless = |(key, left): &(&String, &i64)| **left < 0 && *key != ENDLESS;
        if let Some((key, _)) = self.ttls.iter().find(endless) {
            return Some(format!("{key} has no end"));
        }
        let longest = self.presence.values().map(|dies| dies - now_ms).max().unwrap_or(0);
        for side in ["q", "w", "a"] {
            let left = self.ttls.get(&format!("{{tenure:m}}:{side}"));
            if left.is_some_and(|left| *left < longest) {
                return Some(format!("{side} ends before a waiter does"));
            }
        }
        if self.kind == "string" && !self.queue.is_empty() && self.value[0].as_bytes()[23] == b'-' {
            return Some("somebody waits, and the holder is not known to have waiters".into());
        }
        if self.counter < *last_counter {
            return Some(format!("the counter fell from {last_counter} to {}", self.counter));
        }
        *last_counter = self.counter;
        None
    }

    /// How the line differs from that in memory, if it does.
    pub(crate) fn differs(&self, line: &[(String, Duration)], now_ms: i64) -> Option<String> {
        let living = self.living(now_ms);
        let close = |((one, left), (other, span)): (&(String, i64), &(String, Duration))| {
            one == other && left.abs_diff(span.as_millis() as i64) <= 2
        };
        let same = living.len() == line.len() && living.iter().zip(line).all(close);
        (!same).then(|| format!("in line are {living:?}, in memory {line:?}"))
    }

    /// Whether those who were told that it is their turn are at most one, and the first of a free lock.
    pub(crate) fn reserved(&self, reported: &BTreeSet<String>, now_ms: i64) -> Option<String> {
        let living = self.living(now_ms);
        let waiting: Vec<_> = living.iter().map(|(token, _)| token).filter(|token| reported.contains(*token)).collect();
        let sound = match waiting.as_slice() {
            [] => true,
            [one] => self.kind == "none" && **one == living[0].0,
            _ => false,
        };
        (!sound)
            .then(|| format!("it is the turn of {waiting:?}, with {:?} in line and a lock of {}", living, self.kind))
    }

    pub(crate) fn held_by(&self) -> BTreeSet<String> {
        self.holders()
    }
}

fn token(member: &str) -> &str {
    member.get(..22).unwrap_or(member)
}
