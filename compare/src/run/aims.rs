//! What the project wants to reach, each aim under the name of its ratio.

pub(super) struct Aim {
    pub(super) key: &'static str,
    pub(super) bound: Bound,
    pub(super) what: &'static str,
}

pub(super) enum Bound {
    Most(f64),
    Least(f64),
    Exactly(f64),
}

use Bound::{Exactly, Least, Most};

const fn aim(key: &'static str, bound: Bound, what: &'static str) -> Aim {
    Aim { key, bound, what }
}

pub(super) const LOCKS: &[Aim] = &[
    aim(
        "pair_1_vs_bare_tokio",
        Most(1.35),
        "uncontended pair, p50, over bare commands on a socket, which do not fence",
    ),
    aim("pair_1_vs_redis_unfenced", Most(1.12), "the same over redis-rs by hand, which does not fence"),
    aim("pair_1_speed_vs_rslock", Least(0.98), "rslock's p50 over ours; rslock does not fence"),
    aim("round_trips_per_pair", Exactly(2.0), "reads of the server's sockets per pair"),
    aim("pairs_64_vs_rslock", Least(1.2), "pairs per second of 64 tasks on names of their own"),
    aim("pairs_64_p50_in_rtt", Most(2.3), "p50 of such a pair through the proxy, in round trips"),
    aim(
        "handover_gap_in_rtt",
        Most(1.10),
        "from a release sent to the next holder running on two threads, through the proxy, in round trips",
    ),
    aim("handover_gap_one_thread_in_rtt", Most(2.2), "the same on one thread, where the lease is confirmed first"),
    aim("handover_local_vs_publish_floor", Most(1.3), "the same within one process, over PUBLISH to subscriber"),
    aim(
        "handover_remote_vs_publish_floor",
        Most(2.7),
        "between two processes of two threads, over PUBLISH to subscriber",
    ),
    aim("handover_remote_one_thread_vs_publish_floor", Most(5.4), "between two processes of one thread"),
    aim(
        "handovers_vs_best_peer",
        Least(6.0),
        "hand-overs per second, 16 waiters in 2 processes, over the best peer measured",
    ),
    aim("handovers_128_vs_rslock_tuned", Least(20.0), "128 waiters in 4 processes, over rslock that asks every 5 ms"),
    aim("handovers_vs_rslock_default", Least(100.0), "16 waiters in 2 processes, over rslock with its defaults"),
    aim("commands_per_handover_16", Most(2.05), "commands that clients send per hand-over, 16 waiters in 2 processes"),
    aim("commands_per_handover_128", Most(2.05), "128 waiters in 4 processes"),
    aim("commands_per_handover_1000", Most(2.05), "1000 waiters in 4 processes"),
    aim("commands_per_handover_local", Most(1.10), "16 waiters in 1 process"),
    aim("jain_128", Least(0.99), "fairness among 128 waiters: 1 is equal"),
    aim("max_over_mean_wait", Most(8.0), "the longest wait over the mean, 16 waiters in 2 processes"),
    aim("range_vs_local", Least(5.0), "hand-overs per second with fence ranges, over one round trip for each"),
    aim("dead_waiters_64_ms", Most(5.0), "time to the next grant after a process with 64 waiters was killed"),
    aim("renew_100k_client_core", Most(0.012), "share of a core that renews 100,000 locks every 10 s"),
    aim("renew_100k_server_core", Most(0.04), "the server's share of a core for it"),
    aim("client_bytes_per_lock", Most(300.0), "heap of a held lock, guard included"),
    aim("server_bytes_per_lock", Most(190.0), "the server's memory for it"),
    aim("redlock5_p50_vs_single", Most(1.10), "pair on five servers over one server, both through the proxy"),
    aim("redlock5_one_dead_vs_alive", Most(1.2), "the same with one of five dead"),
    aim("redlock5_cpu_vs_rslock", Most(0.95), "processor time of client and servers per pair on five servers"),
    aim("etcd_pair_vs_put_del", Most(1.35), "uncontended pair, p50, over a put and a delete"),
    aim("etcd_handovers_vs_lock_api", Least(4.0), "hand-overs per second, 16 waiters, over etcd's own lock API"),
    aim(
        "etcd_handovers_vs_go",
        Least(6.0),
        "the same over the locks of Go's package `concurrency`, which wait in line and do not fence",
    ),
    aim("etcd_gap_p99_ms", Most(20.0), "from a release to the next holder, 99th percentile"),
    aim("memory_pair_vs_dashmap_tokio", Most(1.15), "pair in memory over DashMap of tokio mutexes with removal"),
    aim("allocations_per_pair", Most(28.0), "allocations of the client per uncontended pair"),
];

pub(super) const QUEUE: &[Aim] = &[
    aim(
        "lateness_p50_ms",
        Most(1.5),
        "receipt after the due time, 200 messages per second; the worse of idle and crowded",
    ),
    aim("lateness_p99_ms", Most(3.0), "the same, 99th percentile"),
    aim("early", Exactly(0.0), "messages that came before their time, in all rounds"),
    aim("total_vs_apalis_b1", Least(4.3), "messages per second through push, receipt and settling, one at a time"),
    aim("total_vs_apalis_b10", Least(4.5), "ten at a time"),
    aim("total_vs_bullmq", Least(7.0), "one at a time, eight at once"),
    aim("total_vs_beanstalkd_b100", Least(1.5), "a hundred at a time"),
    aim("redis_cpu_us_b1", Most(30.0), "the server's processor time per message, one at a time"),
    aim("redis_cpu_us_b16", Most(13.0), "sixteen at a time"),
    aim("backlog_1m_vs_1k", Most(1.2), "the server's processor time per message beside a million that are not due"),
    aim("bytes_over_payload", Most(220.0), "the server's memory per message beyond its 100 bytes"),
    aim("idle_commands_per_s", Most(0.5), "commands while one receiver waits at an empty queue"),
    aim("due_burst_100k_longest_script_ms", Most(5.0), "the longest script when 100,000 messages come due at once"),
    aim("etcd_b32_per_s", Least(3000.0), "messages per second on etcd, 32 at a time"),
    aim("memory_life_cycles_per_s", Least(1_000_000.0), "messages per second in memory, 100 at a time"),
];

pub(super) const SQL: &[Aim] = &[
    aim(
        "pg_pair_vs_bare_update",
        Most(2.2),
        "uncontended pair on PostgreSQL, p50, over two bare conditional UPDATEs, which do not fence; unlogged tables",
    ),
    aim("pg_pair_logged_vs_bare_logged", Most(1.8), "the same with logged tables on a disk"),
    aim(
        "pg_handovers_vs_polled_row_each_asks",
        Least(6.0),
        "hand-overs per second, 16 waiters in 2 processes, each asks, over a bare row asked every 5 ms",
    ),
    aim("pg_handovers_vs_polled_row_passed_on", Least(40.0), "the same where waiters of a process pass the lease on"),
    aim(
        "pg_gap_vs_notify_floor",
        Most(10.0),
        "from a release to the next holder, each asks, over NOTIFY to its listener",
    ),
    aim(
        "pg_queue_b10_vs_river_like",
        Least(1.2),
        "messages per second received and settled, ten at a time, over a loop like river's",
    ),
    aim(
        "pg_queue_vs_apalis_pg",
        Least(3.0),
        "messages per second through push, receipt and settling, over apalis-postgres",
    ),
    aim("through_pgbouncer_vs_direct", Most(1.4), "pair through PgBouncer in transaction mode over one without"),
    aim(
        "sqlite_pair_vs_bare_update",
        Most(6.0),
        "uncontended pair on SQLite, p50, over two bare UPDATEs in the calling thread",
    ),
    aim(
        "sqlite_handovers_vs_flock_polling",
        Least(20.0),
        "hand-overs per second, 16 waiters in 2 processes, each asks, over flock tried every 5 ms",
    ),
    aim("mysql_pair_vs_bare_updates", Most(3.0), "uncontended pair on MariaDB, p50, over two bare conditional UPDATEs"),
];
