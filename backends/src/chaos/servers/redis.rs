//! Redis servers: one, or the nodes of a quorum.

use std::time::Duration;

use tenure_conformance::{BoxError, Rng};
use tenure_testkit::{RedisOptions, RedisServer, Reply};

use super::Servers;
use crate::chaos::fault::Data;

/// For so long an abandoned token is remembered, and a queue without waiters.
const MEMORY: Duration = Duration::from_secs(60);

pub(crate) struct RedisNodes {
    nodes: Vec<RedisServer>,
    data: Data,
}

impl RedisNodes {
    pub(crate) fn start(count: usize, options: &RedisOptions, data: Data) -> Result<Self, BoxError> {
        let nodes = (0..count).map(|_| RedisServer::start(options.clone())).collect::<Result<_, _>>()?;
        Ok(Self { nodes, data })
    }

    /// Whether it is the one that there is, and may forget while it runs. Nodes of a quorum must not.
    fn forgets(&self) -> bool {
        self.data == Data::Lost && self.nodes.len() == 1
    }
}

impl Servers for RedisNodes {
    fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(RedisServer::port).collect()
    }

    fn leader(&self) -> Option<usize> {
        None
    }

    fn stop(&mut self, node: usize) -> Result<(), BoxError> {
        Ok(self.nodes[node].pause()?)
    }

    fn go_on(&mut self, node: usize) -> Result<(), BoxError> {
        Ok(self.nodes[node].resume()?)
    }

    fn kill(&mut self, node: usize) -> Result<(), BoxError> {
        Ok(self.nodes[node].kill()?)
    }

    fn start(&mut self, node: usize) -> Result<(), BoxError> {
        Ok(self.nodes[node].restart()?)
    }

    fn disturb(&mut self, node: usize, rng: &mut Rng) -> Result<String, BoxError> {
        let pause = (20 + rng.below(700)).to_string();
        let words: &[&str] = match rng.below(if self.forgets() { 5 } else { 4 }) {
            0 => &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
            1 => &["CLIENT", "KILL", "TYPE", "pubsub"],
            2 => &["CLIENT", "PAUSE", &pause, "ALL"],
            3 => &["SCRIPT", "FLUSH", "SYNC"],
            _ => &["FLUSHALL"],
        };
        self.nodes[node].cli(words)?;
        Ok(words.join(" "))
    }

    fn left(&mut self) -> Result<Vec<String>, BoxError> {
        let mut left = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            left.extend(left_at(node)?.into_iter().map(|what| format!("node {number}: {what}")));
        }
        Ok(left)
    }

    fn counters(&mut self) -> Result<String, BoxError> {
        let mut lines = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let info = info(node, "everything")?;
            let value = |key: &str| find(&info, key).unwrap_or("0").to_owned();
            let errors: Vec<&str> = info.lines().filter_map(|line| line.strip_prefix("errorstat_")).collect();
            let (commands, rss) = (value("total_commands_processed"), value("used_memory_human"));
            let errors = if errors.is_empty() { "none".into() } else { errors.join(" ") };
            lines.push(format!("node {number} since its last start: {commands} commands, {rss}, errors: {errors}"));
        }
        Ok(lines.join("\n"))
    }
}

fn info(node: &RedisServer, section: &str) -> Result<String, BoxError> {
    Ok(node.cli(&["INFO", section])?.text())
}

fn find<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(key)?.strip_prefix(':'))
}

/// Connections and channels of clients, waiters, keys that are no memory of the past, and keys without an end.
fn left_at(node: &RedisServer) -> Result<Vec<String>, BoxError> {
    let mut client = node.connect()?;
    let mut left = Vec::new();
    let Reply::Array(keys) = client.call(&["KEYS", "*"])? else { return Err("KEYS answers with a list".into()) };
    let now = client.call(&["TIME"])?;
    let now_ms = now.items().first().and_then(Reply::int).ok_or("TIME answers with numbers")? * 1_000;
    for key in keys.iter().map(Reply::text) {
        let ttl = client.call(&["PTTL", &key])?.int().ok_or("PTTL answers with a number")?;
        left.extend(judged(&key, ttl).map(|why| format!("the key {key} {why}")));
        if key.ends_with("}:w") {
            // Its scores are the ends of presences.
            let waiters = client.call(&["ZCOUNT", &key, &format!("({now_ms}"), "+inf"])?.int().unwrap_or(0);
            left.extend((waiters > 0).then(|| format!("{waiters} waiters in {key}")));
        }
    }
    let clients = info(node, "clients")?;
    let connected: usize = find(&clients, "connected_clients").unwrap_or("0").parse()?;
    if connected > 2 {
        left.push(format!("{} connections of clients", connected - 2)); // those of this function are not theirs
    }
    let listeners = client.call(&["PUBSUB", "CHANNELS"])?;
    left.extend(listeners.items().iter().map(|name| format!("a listener on {}", name.text())));
    Ok(left)
}

/// The fault of a key of that ttl (-1: it has no end; -2: it ended just now) after the last client has ended.
fn judged(key: &str, ttl: i64) -> Option<String> {
    let is_counter_of_all = key.ends_with(":{fence}") || key.ends_with(":{electorate}");
    let is_counter_of_queue = key.contains(":dq:") && (key.ends_with("}:c") || key.ends_with("}:n"));
    let is_memory = ["}:q", "}:w", "}:a"].iter().any(|side| key.ends_with(side)) || key.contains("}:x:");
    match ttl {
        -2 => None,
        -1 if is_counter_of_all => None,
        -1 => Some("has no end".into()),
        _ if is_counter_of_all || key.ends_with("}:f") || is_counter_of_queue => None,
        _ if is_memory && u128::try_from(ttl).is_ok_and(|ttl| ttl <= MEMORY.as_millis()) => None,
        _ => Some(format!("is left, for {ttl} ms more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counters_and_short_memories_may_be_left() {
        for (key, ttl) in [
            ("t:{fence}", -1),
            ("{t:a}:f", 2_592_000_000),
            ("{t:a}:x:abc", 60_000),
            ("{t:a}:q", 60_000),
            ("t:a", -2),
            ("t:{electorate}", -1),
            ("{t:dq:jobs}:c", 600_000),
            ("{t:dq:jobs}:n", 2_592_000_000),
        ] {
            assert_eq!(judged(key, ttl), None, "{key}");
        }
        for (key, ttl) in [
            ("{t:a}:a", -1),
            ("{t:a}:f", -1),
            ("{t:a}:x:abc", -1),
            ("{t:a}:x:abc", 61_000),
            ("{t:a}:w", 61_000),
            ("t:a", 900),
            ("{t:dq:jobs}:c", -1),
            ("{t:dq:jobs}:t", 60_000),
        ] {
            assert!(judged(key, ttl).is_some(), "{key}");
        }
    }

    #[test]
    fn what_a_server_has_left_is_found() {
        let mut servers = RedisNodes::start(1, &RedisOptions::new(), Data::Kept).unwrap();
        servers.nodes[0].cli(&["INCR", "tenure:{fence}"]).unwrap();
        assert_eq!(servers.left().unwrap(), Vec::<String>::new(), "its own connections do not count");
        let now = servers.nodes[0].cli(&["TIME"]).unwrap().items()[0].int().unwrap() * 1_000;
        for (plant, found) in [
            (&["SET", "tenure:n", "token", "PX", "60000"][..], "the key tenure:n is left"),
            (&["SADD", "{tenure:n}:a", "member"], "the key {tenure:n}:a has no end"),
            (&["ZADD", "{tenure:n}:w", &(now + 30_000).to_string(), "member"], "1 waiters in {tenure:n}:w"),
            (&["SUBSCRIBE", "tenure:wake:x"], "a listener on tenure:wake:x"),
        ] {
            let mut other = servers.nodes[0].connect().unwrap();
            let mut third = servers.nodes[0].connect().unwrap();
            other.call(plant).unwrap();
            third.call(&["PING"]).unwrap();
            let left = servers.left().unwrap();
            assert!(left.iter().any(|left| left.contains(found)), "{found}: {left:?}");
            assert!(left.iter().any(|left| left.contains("connections of clients")), "{left:?}");
        }
    }
}
