//! The comparison of locks, most telling sections first.

use super::table::{
    Comparison, Kind, Language, On, Row, SCRIPTS, SET_AND_SCRIPTS, TRIP, Table, Way, Work, row, table, work,
};

pub(super) const LOCKS: Comparison = Comparison { name: "locks", tables: TABLES, curves: &[] };

/// Everything on one processor.
const REDIS: On = On(Kind::Redis, Way::Direct);
/// A network of a fixed length: a millisecond each way.
const FAR: On = On(Kind::Redis, Way::Far(ONE_WAY));
const ONE_WAY: u32 = 1_000;
const ETCD: On = On(Kind::Etcd, Way::Direct);

const PAIR: Work = work("pair").millis(400, 1_500);
const PAIRS: Work = PAIR.workers(64).millis(300, 1_000);
/// 16 waiters in two processes; nothing is done while holding.
const SIXTEEN: Work = work("contend").workers(16).processes(2).millis(700, 2_000);

/// A hundred pairs are timed as one: reading the clock costs a fifth of a pair.
const MANY_AS_ONE: Work = PAIR.millis(200, 500).batch(100);

const fn ours(name: &'static str) -> Row {
    row(name, name)
}

/// A subject that sends `SET` as well.
const fn by_hand(name: &'static str) -> Row {
    row(name, name).sends(SET_AND_SCRIPTS)
}

const REDIS_PY: Row = by_hand("redis-py").by(Language::Python("redis"));
const PYTHON_REDIS_LOCK: Row =
    row("python-redis-lock", "python-redis-lock").sends(&["set", "eval", "evalsha", "blpop"]).by(PYTHON_LOCK);
const PYTHON_LOCK: Language = Language::Python("redis_lock");
const NODE_REDLOCK: Row = row("node-redlock", "node-redlock").sends(SCRIPTS).by(Language::Node("redlock"));
const GO: Row = ours("go-concurrency").by(Language::Go);

/// On a runtime with one worker a lease that was handed over is confirmed before it is returned.
const ON_THREADS: Row = row("tenure-redis-each-asks, 2 threads", "tenure-redis-each-asks");
const FLOOR: Row = row("publish floor", "bare").does(work("publish").millis(300, 300));

const SEVERAL: &[Row] = &[
    by_hand("bare"),
    by_hand("redis"),
    by_hand("fred"),
    by_hand("rslock"),
    by_hand("distributed-lock"),
    ours("tenure-redis"),
    ours("tenure-fred"),
    NODE_REDLOCK,
];

const TABLES: &[Table] = &[
    table(
        "pair",
        REDIS,
        PAIR,
        &[
            by_hand("bare"),
            by_hand("redis"),
            by_hand("fred"),
            by_hand("rslock"),
            by_hand("distributed-lock"),
            ours("tenure-redis"),
            ours("tenure-fred"),
            REDIS_PY,
            PYTHON_REDIS_LOCK,
            NODE_REDLOCK,
        ],
    ),
    table("pairs", REDIS, PAIRS, SEVERAL),
    table("pairs-apart", On(Kind::RedisApart, Way::Direct), PAIRS, SEVERAL),
    table("pairs-threads", On(Kind::RedisAnywhere, Way::Direct), PAIRS.threads(2), SEVERAL).anywhere(),
    table(
        "handover-16",
        REDIS,
        SIXTEEN,
        &[
            FLOOR,
            by_hand("rslock"),
            by_hand("rslock-tuned"),
            ours("tenure-redis"),
            ours("tenure-redis-behind"),
            ours("tenure-redis-each-asks"),
            ON_THREADS.does(SIXTEEN.threads(2)),
            ours("tenure-fred"),
            REDIS_PY,
            PYTHON_REDIS_LOCK,
            NODE_REDLOCK,
        ],
    ),
    table(
        "handover-local",
        REDIS,
        SIXTEEN.processes(1),
        &[FLOOR, ours("tenure-redis"), ours("tenure-redis-each-asks"), ours("tenure-fred")],
    ),
    table(
        "network-pairs",
        FAR,
        PAIRS.millis(700, 1_500),
        &[
            row(TRIP, "bare").does(work("ping").count(100, 100)),
            by_hand("redis"),
            by_hand("rslock"),
            ours("tenure-redis"),
            ours("tenure-fred"),
        ],
    )
    .in_trips("p50_us"),
    table(
        "network-handover",
        FAR,
        SIXTEEN.millis(700, 1_500),
        &[
            row(TRIP, "bare").does(work("ping").count(100, 100)),
            by_hand("rslock-tuned"),
            ours("tenure-redis"),
            ours("tenure-redis-each-asks"),
            ON_THREADS.does(SIXTEEN.threads(2).millis(700, 1_500)),
            ours("tenure-fred"),
        ],
    )
    .in_trips("gap_p50_us"),
    table(
        "handover-128",
        REDIS,
        work("contend").workers(128).processes(4).millis(1_000, 2_000),
        &[by_hand("rslock-tuned"), ours("tenure-redis"), ours("tenure-fred")],
    ),
    table(
        "handover-1000",
        REDIS,
        work("contend").workers(1_000).processes(4).millis(1_000, 2_000),
        &[ours("tenure-redis")],
    ),
    table(
        "dead",
        REDIS,
        work("dead"),
        &[
            row("64 waiters, released 20 ms after the kill", "tenure-redis")
                .does(work("dead").workers(64).millis(20, 20)),
            row("24 waiters, released 20 ms after the kill", "tenure-redis")
                .does(work("dead").workers(24).millis(20, 20)),
            row("24 waiters, released at once", "tenure-redis").does(work("dead").workers(24)),
        ],
    ),
    table(
        "renew",
        On(Kind::RedisApart, Way::Direct),
        work("renew").count(100_000, 100_000).millis(10_000, 10_000),
        &[ours("tenure-redis")],
    )
    .rounds(5),
    table(
        "redlock-network",
        On(Kind::Five, Way::Far(ONE_WAY)),
        PAIR.millis(600, 1_500),
        &[
            row("one server", "tenure-redis").on(FAR),
            ours("tenure-redlock"),
            row("tenure-redlock, one of five killed", "tenure-redlock").on(On(Kind::Five, Way::OneDead(ONE_WAY))),
            by_hand("rslock"),
        ],
    ),
    table(
        "redlock",
        On(Kind::Five, Way::Direct),
        PAIR.millis(600, 1_500),
        &[row("one server", "tenure-redis").on(REDIS), ours("tenure-redlock"), by_hand("rslock")],
    ),
    table(
        "etcd-pair",
        ETCD,
        PAIR.millis(800, 2_000),
        &[ours("etcd-put-del"), ours("etcd-lock-api"), ours("tenure-etcd"), GO],
    )
    .anywhere(),
    table("etcd-handover", ETCD, SIXTEEN.millis(1_500, 3_000), &[ours("etcd-lock-api"), ours("tenure-etcd"), GO])
        .anywhere(),
    table(
        "memory",
        On(Kind::Nothing, Way::Direct),
        MANY_AS_ONE,
        &[ours("dashmap"), ours("memory-driver"), ours("tenure-memory")],
    ),
];
