//! Ports for servers.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where ports are looked for: below those that connections get theirs from.
const FIRST: u16 = 10_000;
const COUNT: u32 = 22_000;

/// A port that nobody listens on right now, outside the range that connections get theirs from: a server that is killed
/// finds its own still free when it comes back.
pub(crate) fn free_port() -> io::Result<u16> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let start = std::process::id().wrapping_mul(7_919); // other programs begin elsewhere
    let next = || FIRST + (start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % COUNT) as u16;
    std::iter::repeat_with(next).take(COUNT as usize).find(is_free).ok_or_else(|| io::ErrorKind::AddrInUse.into())
}
