//! Ports for servers.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

/// Where ports are looked for: below those that connections get theirs from.
const FIRST: u16 = 10_000;
const COUNT: u32 = 22_000;

/// A port without a listener right now, outside the range of ephemeral ports: a server that is killed
/// finds its port still free when it comes back.
pub(crate) fn free_port() -> io::Result<u16> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let start = std::process::id().wrapping_mul(7_919); // other programs begin elsewhere
    let next = || FIRST + (start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % COUNT) as u16;
    std::iter::repeat_with(next).take(COUNT as usize).find(is_free).ok_or_else(|| io::ErrorKind::AddrInUse.into())
}

/// A port of this machine that refuses connections. It is taken as long as this lives, so that no server of another test comes to
/// listen on it.
#[derive(Debug)]
pub struct ClosedPort {
    _socket: OwnedFd,
    number: u16,
}

impl ClosedPort {
    /// Takes one.
    ///
    /// # Errors
    ///
    /// When the system has no port.
    pub fn new() -> io::Result<Self> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let number = SocketAddrV4::try_from(getsockname(&socket)?)?.port();
        Ok(Self { _socket: socket, number })
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::ClosedPort;

    #[test]
    fn a_closed_port_refuses_and_is_taken() {
        let port = ClosedPort::new().unwrap();
        let place = (Ipv4Addr::LOCALHOST, port.number());
        assert_eq!(TcpStream::connect(place).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(TcpListener::bind(place).unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
