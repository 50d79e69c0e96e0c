//! A Redis server of a test's own.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::ClockShim;
use crate::dir::TempDir;
use crate::options::{RedisOptions, Role};
use crate::port::free_port;
use crate::resp::{Reply, RespClient};
use crate::wait::eventually;

/// Number of attempts with another port when one was taken meanwhile.
const PORT_ATTEMPTS: u32 = 10;

/// A running `redis-server` on a free port of loopback and on a unix socket. Killed when dropped.
#[derive(Debug)]
pub struct RedisServer {
    child: Option<Child>,
    paused: bool,
    port: u16,
    options: RedisOptions,
    clock: Option<ClockShim>,
    dir: TempDir,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when `redis-server` (or what `TENURE_REDIS_SERVER` names) is not installed;
    /// otherwise what kept it from starting, with the end of its log.
    pub fn start(options: RedisOptions) -> io::Result<Self> {
        let dir = TempDir::new("redis")?;
        let clock = if options.movable_clock { Some(ClockShim::new(dir.path())?) } else { None };
        let mut server = Self { child: None, paused: false, port: 0, options, clock, dir };
        for _ in 1..PORT_ATTEMPTS {
            server.port = free_port()?;
            match server.spawn() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result.map(|()| server),
            }
        }
        server.port = free_port()?;
        server.spawn().map(|()| server)
    }

    /// The URL of the TCP port, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_through(self.port)
    }

    /// The URL of another port of loopback that leads here, such as a [`TcpProxy`](crate::TcpProxy)'s.
    #[must_use]
    pub fn url_through(&self, port: u16) -> String {
        let scheme = if self.options.tls.is_some() { "rediss" } else { "redis" };
        match &self.options.password {
            Some(password) => format!("{scheme}://:{password}@127.0.0.1:{port}"),
            None => format!("{scheme}://127.0.0.1:{port}"),
        }
    }

    /// The URL of the unix socket, with the password if there is one.
    #[must_use]
    pub fn unix_url(&self) -> String {
        let path = self.socket();
        match &self.options.password {
            Some(password) => format!("redis+unix://{}?pass={password}", path.display()),
            None => format!("redis+unix://{}", path.display()),
        }
    }

    /// How it was started.
    #[must_use]
    pub fn options(&self) -> &RedisOptions {
        &self.options
    }

    /// The TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path of the unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    /// The process id; `None` while the server is killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// A new connection, over the unix socket, authenticated if the server has a password.
    ///
    /// # Errors
    ///
    /// Those of the socket; [`io::ErrorKind::PermissionDenied`] when the password is refused.
    pub fn connect(&self) -> io::Result<RespClient> {
        let mut client = RespClient::unix(&self.socket())?;
        if let Some(password) = &self.options.password
            && let Reply::Error(text) = client.call(&["AUTH", password])?
        {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(client)
    }

    /// Runs one command on a connection of its own. A refusal is an error here.
    ///
    /// # Errors
    ///
    /// Those of [`RedisServer::connect`]; [`io::ErrorKind::Other`] with the server's words when it refuses.
    pub fn cli<A: AsRef<[u8]>>(&self, args: &[A]) -> io::Result<Reply> {
        match self.connect()?.call(args)? {
            Reply::Error(text) => Err(io::Error::other(text)),
            reply => Ok(reply),
        }
    }

    /// Stops the process without closing anything (SIGSTOP); returns when it has stopped.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] when it is not running.
    pub fn pause(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        self.paused = true;
        let Some(pid) = self.pid() else { return Ok(()) };
        let stat = PathBuf::from(format!("/proc/{pid}/stat"));
        if !stat.exists() {
            return Ok(()); // no such file system here: the signal has to do
        }
        eventually("the server to stand still", || {
            let text = fs::read_to_string(&stat).unwrap_or_default();
            text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T')).then_some(())
        })
    }

    /// Resumes a paused process (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] when it is not running.
    pub fn resume(&mut self) -> io::Result<()> {
        self.signal(Signal::CONT)?;
        self.paused = false;
        Ok(())
    }

    /// Kills the process (SIGKILL) and waits for its end. Killing twice is fine.
    ///
    /// # Errors
    ///
    /// Those of signalling and waiting.
    pub fn kill(&mut self) -> io::Result<()> {
        self.paused = false;
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        child.wait().map(drop)
    }

    /// Kills the process if it runs, and starts it again with the same address, options and directory.
    ///
    /// # Errors
    ///
    /// Those of [`RedisServer::start`].
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        eventually("the server's port to be free", || match self.spawn() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                last = error;
                None
            }
            result => Some(result),
        })?
    }

    /// Moves the server's wall clock to `micros` ahead of the machine's (behind, if negative).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] unless started with [`RedisOptions::movable_clock`].
    pub fn set_clock_offset(&self, micros: i64) -> io::Result<()> {
        self.clock()?.set_offset(micros)
    }

    /// Stops the server's wall clock at so many microseconds since 1970, until the next call; zero lets
    /// it run again. While the clock is stopped, no time passes at the server.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] unless started with [`RedisOptions::movable_clock`].
    pub fn stop_clock_at(&self, micros: i64) -> io::Result<()> {
        self.clock()?.stop_at(micros)
    }

    fn clock(&self) -> io::Result<&ClockShim> {
        self.clock.as_ref().ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "the server was not started with a movable clock")
        })
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let child = self.child.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    fn spawn(&mut self) -> io::Result<()> {
        let usual = || std::env::var_os("TENURE_REDIS_SERVER").map_or_else(|| "redis-server".into(), PathBuf::from);
        let program = self.options.program.clone().unwrap_or_else(usual);
        let log = self.dir.path().join("log");
        let _ = fs::remove_file(self.socket());
        let mut command = Command::new(&program);
        if self.options.role == Role::Sentinel {
            // It keeps what it learns in its configuration, which has to be a file of its own.
            let file = self.dir.path().join("sentinel.conf");
            File::options().create(true).append(true).open(&file)?;
            command.arg(file).arg("--sentinel");
        }
        let port = self.port.to_string();
        match &self.options.tls {
            None => command.args(["--port", &port]),
            Some(certificates) => command.args(["--port", "0", "--tls-port", &port]).args(certificates.arguments()),
        };
        command
            .args(["--bind", "127.0.0.1", "--unixsocket"])
            .arg(self.socket())
            .arg("--dir")
            .arg(self.dir.path())
            .args(self.options.command_line())
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        let child = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display())))?;
        self.child = Some(child);
        let ready = eventually("the server to answer", || self.probe().transpose());
        let result = match ready {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) | Err(error) => error,
        };
        self.kill()?;
        let text = fs::read_to_string(&log).unwrap_or_default();
        if text.contains("Address already in use") {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Err(io::Error::new(result.kind(), format!("{result}; the server's log:\n{text}")))
    }

    /// `Some` once the server answers; an error when it ended instead.
    fn probe(&mut self) -> io::Result<Option<()>> {
        if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
            return Err(io::Error::other(format!("the server ended with {status}")));
        }
        // Signed in: to strangers it says so even while it loads.
        let reply = self.connect().and_then(|mut client| client.call(&["PING"]));
        Ok(match reply {
            Ok(Reply::Error(text)) if text.starts_with("LOADING") => None,
            Ok(_) => Some(()),
            Err(_) => None,
        })
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
