//! A beanstalkd of this comparison.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::failure::Outcome;

/// In memory, on a free port of loopback. Killed when dropped.
pub(super) struct Beanstalkd {
    child: Child,
    pub(super) port: u16,
}

impl Beanstalkd {
    /// A server on the processors `pin`, if there are any to name.
    pub(super) fn start(pin: Option<&str>) -> Outcome<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = super::child::pinned("beanstalkd".into(), pin);
        command.args(["-l", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let server = Self { child, port };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("beanstalkd does not listen within five seconds".into())
    }
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
