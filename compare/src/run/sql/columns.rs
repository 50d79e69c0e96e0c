//! What is measured of locks.

/// What is measured of locks that nobody else wants.
pub(super) const PAIR: &[(&str, &str)] = &[
    ("p50_us", "p50 µs"),
    ("p99_us", "p99 µs"),
    ("per_s", "pairs per second"),
    ("client_us", "client CPU µs"),
    ("server_us", "server CPU µs"),
];

/// What is measured of one that everybody wants.
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
