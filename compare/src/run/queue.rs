//! The comparison of delay queues.

use super::table::{BACKLOG, Comparison, Kind, Language, On, Row, Table, Way, Work, row, table, work};

pub(super) const QUEUE: Comparison = Comparison { name: "queue", tables: TABLES, curves: &[] };

/// Everything on one processor.
const REDIS: On = On(Kind::Redis, Way::Direct);

/// Messages that are due at once: so many in a request, of so many tasks.
pub(super) const fn through(batch: usize, workers: usize, count: usize) -> Work {
    work("throughput").batch(batch).workers(workers).count(count, 3 * count)
}

const fn ours(name: &'static str) -> Row {
    row(name, name)
}

const CROWDED: Work = work("late").count(400, 800);

const TABLES: &[Table] = &[
    table(
        "throughput",
        REDIS,
        through(1, 8, 4_000),
        &[
            row("tenure-redis, 1 × 8", "tenure-redis"),
            row("tenure-redis, 10 × 8", "tenure-redis").does(through(10, 8, 16_000)),
            row("tenure-redis, 16 × 8", "tenure-redis").does(through(16, 8, 16_000)),
            row("tenure-redis, 100 × 1", "tenure-redis").does(through(100, 1, 20_000)),
            row("tenure-fred, 1 × 8", "tenure-fred"),
            row("apalis-redis, 1", "apalis").does(through(1, 1, 2_000)),
            // More at once wedge it: its script unpacks all.
            row("apalis-redis, 10", "apalis").does(through(10, 1, 2_000)),
            row("rsmq_async, 1 × 8", "rsmq"),
            row("rsmq_async, 10 × 8", "rsmq").does(through(10, 8, 8_000)),
            row("BullMQ, 1 × 8", "bullmq").does(through(1, 8, 2_000)).by(Language::Node("bullmq")),
            row("beanstalkd, 1", "beanstalkd").does(through(1, 1, 4_000)).on(On(Kind::Beanstalkd, Way::Direct)),
            row("beanstalkd, 100", "beanstalkd").does(through(100, 1, 20_000)).on(On(Kind::Beanstalkd, Way::Direct)),
        ],
    ),
    table(
        "late",
        REDIS,
        CROWDED,
        &[
            row("tenure-redis, idle", "tenure-redis").does(work("late-idle").count(40, 100)),
            row("tenure-redis, crowded", "tenure-redis"),
            row("tenure-fred, crowded", "tenure-fred"),
            row("rsmq_async asked every 10 ms, crowded", "rsmq"),
            row("polled every 500 ms, crowded", "poll-500ms"),
        ],
    ),
    table(
        "backlog",
        REDIS,
        Work { queue: Some(BACKLOG), ..through(1, 8, 4_000) },
        &[
            row("a thousand", "tenure-redis").on(On(Kind::Backlog(1_000), Way::Direct)),
            row("a million", "tenure-redis").on(On(Kind::Backlog(1_000_000), Way::Direct)),
        ],
    ),
    table("idle", REDIS, work("idle").millis(10_500, 10_500), &[ours("tenure-redis")]).rounds(5),
    table(
        "burst",
        REDIS,
        work("burst").batch(250).workers(4).count(100_000, 100_000).millis(15_000, 15_000),
        &[ours("tenure-redis")],
    )
    .rounds(5),
    table("etcd", On(Kind::Etcd, Way::Direct), through(32, 4, 3_200), &[ours("tenure-etcd")]).anywhere(),
    table(
        "memory",
        On(Kind::Nothing, Way::Direct),
        through(100, 1, 0).count(100_000, 100_000),
        &[ours("tenure-memory")],
    ),
];
