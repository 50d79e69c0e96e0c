//! The list of held locks: a scan of the keys at each server, and a look at the keys that are locks.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use tenure_core::driver::{Census, CensusCapabilities, CensusOrder, CensusPlace, HeldLock, HeldPage};
use tenure_core::{Error, ErrorKind, LockName, Result};

use crate::call;
use crate::link::Dialer;
use crate::lock::Driver;
use crate::script::{Reply, Request};

/// How many locks one script looks at, so that it stays short.
const LOOKS: usize = 100;

/// A page is one `SCAN` at one server, and then a script for each hundred locks that it returned, all at once; in a cluster for
/// each slot that they are in. In a cluster the servers come one after the other.
#[async_trait]
impl<D: Dialer> Census for Driver<D> {
    fn capabilities(&self) -> CensusCapabilities {
        CensusCapabilities::new(CensusOrder::None)
    }

    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let mut homes = self.servers().homes();
        homes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (cursor, server) = match from {
            Some(place) => read(place)?,
            None => (0, String::new()),
        };
        // The server that the cursor is of, or the next one if that has left the cluster.
        let Some(at) = homes.iter().position(|(home, _)| *home >= server) else {
            return Ok(HeldPage::new(Vec::new(), None));
        };
        let (home, slots) = &homes[at];
        let cursor = if *home == server { cursor } else { 0 };
        let (cursor, count) = (cursor.to_string(), max.to_string());
        let pattern = self.calls().keys.lock_pattern(prefix);
        let words = ["SCAN", &cursor, "MATCH", &pattern, "COUNT", &count];
        let scanned = self.servers().request(*slots.start(), &Request::words(&words)).await;
        let scanned =
            scanned.map_err(|error| self.calls().keys.explain(error).at(format_args!("the keys at {home}")))?;
        let (cursor, keys) = scan(&scanned)?;
        let next = match (cursor, homes.get(at + 1)) {
            (0, None) => None,
            (0, Some((next, _))) => Some(place(0, next)),
            (cursor, _) => Some(place(cursor, home)),
        };
        // A scan returns a key twice while the server makes room for more of them.
        let names: BTreeMap<&[u8], LockName> =
            keys.into_iter().filter_map(|key| Some((key, self.calls().keys.lock_of(key)?))).collect();
        Ok(HeldPage::new(self.held_of(names.into_values().collect()).await?, next))
    }
}

impl<D: Dialer> Driver<D> {
    /// Those of the locks that are held.
    async fn held_of(&self, names: Vec<LockName>) -> Result<Vec<HeldLock>> {
        let mut slots: BTreeMap<u16, Vec<&LockName>> = BTreeMap::new();
        for name in &names {
            slots.entry(self.servers().slot(&self.calls().keys.lock_key(name))).or_default().push(name);
        }
        let parts = slots.values().flat_map(|names| names.chunks(LOOKS)).map(async |names: &[&LockName]| {
            let [first, ..] = names else { return Ok(Vec::new()) };
            let reply = self.run("held_locks", first, self.calls().census(names)).await?;
            let items = reply.items()?;
            if items.len() != names.len() {
                return Err(Error::new(ErrorKind::Protocol, "the number of answers differs from that of the locks"));
            }
            names.iter().zip(items).filter_map(|(name, item)| seen(name, item).transpose()).collect::<Result<Vec<_>>>()
        });
        Ok(try_join_all(parts).await?.into_iter().flatten().collect())
    }
}

/// The lock, if it is held, and a lock at all: others may keep lists under such a key.
fn seen(name: &LockName, item: &Reply) -> Result<Option<HeldLock>> {
    let kind = item.items()?.get(2).map(Reply::bytes).transpose()?;
    if !matches!(kind, Some(b"string" | b"hash")) {
        return Ok(None);
    }
    let seen = call::inspection(item)?;
    Ok(seen.holder.map(|holder| HeldLock::new(name.clone(), holder).with_waiters(Some(seen.waiters))))
}

/// The next cursor of a scan, and the keys that it returned.
fn scan(reply: &Reply) -> Result<(u64, Vec<&[u8]>)> {
    let unexpected = || Error::new(ErrorKind::Protocol, "unexpected reply to SCAN");
    let [cursor, keys] = reply.items()? else { return Err(unexpected()) };
    let cursor = std::str::from_utf8(cursor.bytes()?).ok().and_then(|text| text.parse().ok()).ok_or_else(unexpected)?;
    Ok((cursor, keys.items()?.iter().map(Reply::bytes).collect::<Result<_>>()?))
}

fn place(cursor: u64, server: &str) -> CensusPlace {
    CensusPlace::new(format!("{cursor} {server}").into_bytes())
}

fn read(place: &CensusPlace) -> Result<(u64, String)> {
    let parts = || {
        let (cursor, server) = std::str::from_utf8(place.as_bytes()).ok()?.split_once(' ')?;
        Some((cursor.parse().ok()?, server.to_owned()))
    };
    parts().ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "the page token is not from this driver"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Address, RedisConfig, Topology};
    use crate::keyspace::{ClientId, Keyspace};
    use crate::link::fake_server::{Scene, fit, server, slot_map};
    use crate::settings::RedisSettings;
    use crate::slot;

    fn bytes(text: impl Into<Vec<u8>>) -> Reply {
        Reply::Bytes(text.into())
    }

    fn keys() -> Keyspace {
        Keyspace::of(&RedisSettings::default(), ClientId::random()).over_slots()
    }

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    /// A cluster whose map has the servers in this order, each of one range; each answers a scan with the result of `scan`.
    async fn cluster(
        servers: &[Address],
        scan: impl Fn(&Address, u64) -> (u64, Vec<&'static str>) + Send + Sync + 'static,
    ) -> (Scene, Driver<Scene>) {
        let (fake_server, known, (last, others)) = (Scene::new(), keys(), servers.split_last().unwrap());
        let share = slot::COUNT / u16::try_from(servers.len()).unwrap();
        let mut shares: Vec<_> = others.iter().map(|node| (node, share)).collect();
        shares.push((last, slot::COUNT - share * u16::try_from(others.len()).unwrap()));
        let map = slot_map(&shares);
        fake_server.answers(move |at, command| {
            if let Some(answer) = fit(command) {
                return Ok(answer);
            }
            let words: Vec<&str> = command.split(' ').collect();
            match words[..] {
                ["CLUSTER", "SLOTS"] => Ok(map.clone()),
                ["SCAN", cursor, ..] => {
                    let (next, names) = scan(at, cursor.parse().unwrap());
                    let names = names.into_iter().map(|text| match text.strip_prefix("raw ") {
                        Some(raw) => bytes(raw),
                        None => bytes(known.lock_key(&name(text))),
                    });
                    Ok(Reply::Array(vec![bytes(next.to_string()), Reply::Array(names.collect())]))
                }
                ["EVALSHA", _, _, ref keys @ ..] => {
                    let kind = |key: &str| if key.contains("list") { "list" } else { "string" };
                    let look = |key: &[&str]| {
                        Reply::Array(vec![
                            Reply::Int(2),
                            Reply::Int(0),
                            bytes(kind(key[0])),
                            Reply::Int(500),
                            bytes("x"),
                        ])
                    };
                    Ok(Reply::Array(keys.chunks(2).map(look).collect()))
                }
                _ => panic!("{command}"),
            }
        });
        let config = RedisConfig::new(Topology::Cluster(servers.to_vec()));
        let locks = Driver::<Scene>::connect_on(fake_server.clone(), config).await.unwrap();
        (fake_server, locks)
    }

    /// The names on all pages from this place on, and the servers that were asked, in order.
    async fn walk(fake_server: &Scene, locks: &Driver<Scene>, from: Option<CensusPlace>) -> (Vec<String>, Vec<String>) {
        let (mut place, mut names, mut asked) = (from, Vec::new(), Vec::new());
        for _ in 0..10 {
            let page = locks.held(b"", place.as_ref(), 5).await.unwrap();
            names.extend(page.locks.iter().map(|held| held.name.to_string()));
            place = page.next;
            asked.extend(fake_server.last_scan());
            if place.is_none() {
                return (names, asked);
            }
        }
        panic!("it does not end: {names:?} of {asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn pages_go_through_every_server_once_in_whatever_order_the_map_has_them() {
        let [a, b, c] = ["a", "b", "c"].map(server);
        for order in [[&a, &b, &c], [&c, &a, &b], [&b, &c, &a]] {
            let (fake_server, locks) =
                cluster(&order.map(Clone::clone), |at, cursor| match (at.to_string().as_str(), cursor) {
                    ("a:1", 0) => (7, vec!["one", "two", "one"]),
                    ("a:1", 7) => (0, vec!["three", "a list", "raw other"]),
                    ("b:1", 0) => (0, vec![]),
                    ("c:1", 0) => (9, vec!["four"]),
                    ("c:1", 9) => (0, vec!["five"]),
                    other => panic!("{other:?}"),
                })
                .await;
            let (mut names, asked) = walk(&fake_server, &locks, None).await;
            names.sort();
            assert_eq!(names, ["five", "four", "one", "three", "two"], "{order:?}");
            assert_eq!(asked, ["a:1", "a:1", "b:1", "c:1", "c:1"], "{order:?}");
            let (names, asked) = walk(&fake_server, &locks, Some(place(9, "b:0"))).await;
            assert_eq!(
                (names.len(), asked),
                (2, vec!["b:1".into(), "c:1".into(), "c:1".into()]),
                "that server has left"
            );
            let nothing = locks.held(b"", Some(&place(0, "d:1")), 5).await.unwrap();
            assert!(nothing.locks.is_empty() && nothing.next.is_none(), "it was the last");
            let page = locks.held(b"", Some(&place(7, "a:1")), 5).await.unwrap();
            let [held] = &page.locks[..] else { panic!("{page:?}") };
            assert_eq!((held.waiters, held.holder.remaining), (Some(2), Some(std::time::Duration::from_millis(500))));
            for other in ["", "7", "x a:1"] {
                let error = locks.held(b"", Some(&CensusPlace::new(other.as_bytes().to_vec())), 5).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{other}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_answers_for_other_locks_is_no_answer() {
        let (fake_server, locks) = cluster(&[server("a")], |_, _| (0, vec!["one"])).await;
        assert_eq!(walk(&fake_server, &locks, None).await.0, ["one"]);
        fake_server.answers(|_, command| match command.split(' ').next() {
            Some("SCAN") => {
                Ok(Reply::Array(vec![bytes("0"), Reply::Array(vec![bytes(keys().lock_key(&name("one")))])]))
            }
            _ => Ok(Reply::Array(Vec::new())),
        });
        let error = locks.held(b"", None, 5).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    }
}
