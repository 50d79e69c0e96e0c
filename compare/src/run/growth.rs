//! How cost grows: the same work over more waiters, locks, names, clients, bytes and longer ways. Servers are on one processor
//! and all clients on another.

use super::table::{Comparison, Curve, Curves, Extents, Kind, On, Way, Work, work};

pub(super) const GROWTH: Comparison = Comparison { name: "growth", tables: &[], curves: CURVES };

const REDIS: On = On(Kind::RedisApart, Way::Direct);
const ETCD: On = On(Kind::Etcd, Way::Direct);
const EACH_ASKS: &str = "tenure-redis-each-asks";
/// A client for each task.
const APART: &str = "tenure-redis-apart";

const fn curve(name: &'static str, subject: &'static str, at: fn(f64) -> Option<(On, Work)>) -> Curve {
    Curve { name, subject, at }
}

/// Everything that takes a second is measured so often.
const ROUNDS: Extents<usize> = Extents(1, 3);

const CURVES: &[Curves] = &[
    Curves {
        id: "waiters",
        rounds: ROUNDS,
        points: Extents(&[1.0, 10.0, 100.0, 1_000.0, 10_000.0], &[1.0, 2.0, 10.0, 30.0, 100.0, 1_000.0, 10_000.0]),
        curves: &[
            curve("passed", "tenure-redis", |waiters| Some((REDIS, grants(waiters)))),
            curve("asks", EACH_ASKS, |waiters| Some((REDIS, grants(waiters)))),
            curve("etcd", "tenure-etcd", |waiters| (waiters <= 1e3).then(|| (ETCD, grants(waiters)))),
        ],
    },
    Curves {
        id: "held",
        rounds: Extents(1, 1),
        points: Extents(&[1.0, 1e3, 1e5], &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]),
        curves: &[
            curve("redis", "tenure-redis", |locks| Some((REDIS, held(locks)))),
            curve("etcd", "tenure-etcd", |locks| [1.0, 1e3, 1e4].contains(&locks).then(|| (ETCD, held(locks)))),
        ],
    },
    Curves {
        id: "names",
        rounds: ROUNDS,
        points: Extents(NAMES, NAMES),
        curves: &[curve("redis", "tenure-redis-any", |names| {
            Some((REDIS, work("pair").workers(64).count(names as usize, names as usize).millis(500, 1_000)))
        })],
    },
    Curves {
        id: "clients",
        rounds: ROUNDS,
        points: Extents(&[1.0, 10.0, 100.0, 1_000.0], &[1.0, 10.0, 100.0, 300.0, 1_000.0]),
        curves: &[
            curve("pairs", APART, |clients| Some((REDIS, work("pair").workers(clients as usize).millis(500, 1_000)))),
            curve("grants", APART, |clients| {
                let work = work("contend").workers(clients as usize).millis(500, 1_000);
                (clients > 1.0).then_some((REDIS, work))
            }),
            curve("messages", APART, |clients| {
                Some((REDIS, work("throughput").workers(clients as usize).batch(10).count(20_000, 20_000)))
            }),
            curve("renewal", "tenure-redis", |clients| {
                let locks = 100 * clients as usize;
                let work = work("renew").workers(clients as usize).count(locks, locks).millis(10_000, 10_000);
                [10.0, 100.0, 1e3].contains(&clients).then_some((REDIS, work))
            }),
        ],
    },
    Curves {
        id: "payload",
        rounds: ROUNDS,
        points: Extents(BYTES, BYTES),
        curves: &[
            curve("one", "tenure-redis", |bytes| Some((REDIS, messages(bytes, 1)))),
            curve("ten", "tenure-redis", |bytes| Some((REDIS, messages(bytes, 10)))),
        ],
    },
    Curves {
        id: "network",
        rounds: Extents(1, 2),
        points: Extents(&[0.0, 1.0, 10.0], &[0.0, 0.2, 1.0, 5.0, 20.0, 50.0]),
        curves: &[
            curve("trip", "bare", |delay| Some((far(delay), work("ping").count(20, 20)))),
            curve("pair", "tenure-redis", |delay| Some((far(delay), work("pair").millis(700, 1_000)))),
            curve("pairs", "tenure-redis", |delay| Some((far(delay), work("pair").workers(64).millis(700, 1_000)))),
            curve("asks", EACH_ASKS, |delay| Some((far(delay), SIXTEEN))),
            curve("passed", "tenure-redis", |delay| Some((far(delay), SIXTEEN))),
            curve("messages", "tenure-redis", |delay| {
                let count = ((8_000.0 / delay.max(1.0)) as usize).next_multiple_of(10);
                Some((far(delay), work("throughput").workers(8).batch(10).count(count, count)))
            }),
        ],
    },
];

const NAMES: &[f64] = &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];
/// The last is nearly what a queue on Redis takes: 256 KiB.
const BYTES: &[f64] = &[10.0, 100.0, 1e3, 1e4, 1e5, 250_000.0];
const SIXTEEN: Work = work("contend").workers(16).processes(2).threads(2).millis(700, 1_000);
/// A pair of another client beside held locks.
const PAIR: Work = work("pair").millis(500, 500);

/// Grants of one lock to so many waiters in two processes; one waiter has it to itself.
const fn grants(waiters: f64) -> Work {
    // Long enough for all of them to come in line.
    let least = waiters as u64 / 4;
    let (quick, full) = (if least > 700 { least } else { 700 }, if least > 1_000 { least } else { 1_000 });
    match waiters as usize {
        1 => work("pair").millis(quick, full),
        waiters => work("contend").workers(waiters).processes(2).millis(quick, full),
    }
}

/// So many locks of one client, for one period of renewal.
const fn held(locks: f64) -> Work {
    let held = work("renew").count(locks as usize, locks as usize).millis(10_000, 10_000);
    Work { beside: Some(&PAIR), ..held }
}

/// At most 40 MB of messages.
fn messages(bytes: f64, batch: usize) -> Work {
    let most = 4e7 / bytes;
    let count = |least: f64| most.clamp(40.0, least) as usize;
    Work { bytes: bytes as usize, ..work("throughput").workers(8).batch(batch).count(count(8_000.0), count(16_000.0)) }
}

/// A round trip of so many milliseconds.
fn far(delay: f64) -> On {
    On(Kind::RedisApart, Way::Far((delay * 500.0) as u32))
}
