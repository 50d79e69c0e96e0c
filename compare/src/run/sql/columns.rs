//! The columns of the sections on locks.

/// The columns for locks without contention.
pub(super) const PAIR: &[(&str, &str)] = &[
    ("p50_us", "p50 µs"),
    ("p99_us", "p99 µs"),
    ("per_s", "pairs per second"),
    ("client_us", "client CPU µs"),
    ("server_us", "server CPU µs"),
];

/// The columns for one lock that all workers want.
pub(super) const HANDOVER: &[(&str, &str)] = &[
    ("per_s", "hand-overs per second"),
    ("gap_p50_us", "gap p50 µs"),
    ("gap_p99_us", "gap p99 µs"),
    ("jain", "Jain"),
    ("max_over_mean", "longest wait / mean"),
    ("server_us", "server CPU µs"),
    ("client_us", "client CPU µs"),
    ("overlaps", "overlaps"),
    ("fences_back", "fences that fell"),
];
