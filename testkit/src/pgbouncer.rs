//! A PgBouncer of a test's own.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::account::{Account, find_program, output, spawn};
use crate::dir::TempDir;
use crate::port::free_port;
use crate::postgres::{PostgresServer, client};
use crate::process;
use crate::wait::eventually;

/// Number of attempts with another port when one was taken meanwhile.
const PORT_ATTEMPTS: u32 = 10;

/// A running `pgbouncer` in transaction mode before a [`PostgresServer`], on a free port of loopback and on a unix socket.
/// Killed when dropped. As root it runs as `nobody`.
///
/// It has all databases of the server, and lets in the user `postgres` and those it is started with, without passwords.
#[derive(Debug)]
pub struct PgBouncer {
    child: Option<Child>,
    port: u16,
    program: PathBuf,
    psql: PathBuf,
    account: Account,
    server: (PathBuf, u16),
    settings: Vec<(String, String)>,
    dir: TempDir,
}

impl PgBouncer {
    /// Starts a pooler of at most twenty connections for each user and database, and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when `pgbouncer` is not installed; otherwise what kept it from starting, with its log.
    pub fn start(server: &PostgresServer) -> io::Result<Self> {
        Self::start_with(server, &[], &[])
    }

    /// Starts a pooler that also lets in these users, with these settings, such as `("default_pool_size", "2")`.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(server: &PostgresServer, users: &[&str], settings: &[(&str, &str)]) -> io::Result<Self> {
        let program = found()?;
        let (dir, account) = (TempDir::new("bouncer")?, Account::unprivileged()?);
        let names = users.iter().chain(&["postgres"]).map(|user| format!("\"{user}\" \"\"\n"));
        fs::write(dir.path().join("users"), names.collect::<String>())?;
        account.give(dir.path())?;
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let server_place = (server.socket_dir().to_owned(), server.port());
        let psql = server.program("psql");
        let mut pooler = Self { child: None, port: 0, program, psql, account, server: server_place, settings, dir };
        for _ in 1..PORT_ATTEMPTS {
            pooler.port = free_port()?;
            match pooler.spawn() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result.map(|()| pooler),
            }
        }
        pooler.port = free_port()?;
        pooler.spawn().map(|()| pooler)
    }

    /// The installed version: `PgBouncer 1.18.0`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when nothing is.
    pub fn version() -> io::Result<String> {
        let said = Command::new(found()?).arg("--version").output()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        Ok(said.lines().next().unwrap_or("PgBouncer of an unknown version").to_owned())
    }

    /// The URL of a database through the pooler, for the user `postgres`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_for("postgres", database)
    }

    /// The URL of a database through the pooler, for this user.
    #[must_use]
    pub fn url_for(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// The TCP port; also the number in the name of the unix socket.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the unix socket.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process id; `None` while the pooler is killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Runs statements as `postgres` through the pooler, as [`PostgresServer::sql`] does without it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Other`] with the words of the pooler or the server.
    pub fn sql(&self, database: &str, statements: &str) -> io::Result<String> {
        output(self.psql(database).args(["-c", statements]))
    }

    /// Runs a command of the pooler's own console, such as `SHOW POOLS` or `KILL postgres`.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub fn console(&self, command: &str) -> io::Result<String> {
        self.sql("pgbouncer", command)
    }

    fn psql(&self, database: &str) -> Command {
        client(&self.psql, self.dir.path(), self.port, database)
    }

    /// Stops the process without closing anything (SIGSTOP); returns when it has stopped.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] when it is not running.
    pub fn pause(&mut self) -> io::Result<()> {
        process::pause(self.child.as_ref().ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Resumes a paused process (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] when it is not running.
    pub fn resume(&mut self) -> io::Result<()> {
        process::resume(self.child.as_ref().ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Kills the process (SIGKILL) and waits for its end. Killing twice is fine.
    ///
    /// # Errors
    ///
    /// Those of signalling and waiting.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.take().map_or(Ok(()), process::kill)
    }

    /// Kills the process if it runs, and starts it again with the same address and settings.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start).
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        let mut spawn = || match self.spawn() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
            result => Some(result),
        };
        eventually("the pooler's port to be free", &mut spawn)?
    }

    fn configuration(&self) -> String {
        let (socket, port) = &self.server;
        let dir = self.dir.path().display();
        let mut text = format!("[databases]\n* = host={} port={port}\n[pgbouncer]\n", socket.display());
        text.push_str("pool_mode = transaction\nlisten_addr = 127.0.0.1\nauth_type = trust\nadmin_users = postgres\n");
        text.push_str(&format!("listen_port = {}\nunix_socket_dir = {dir}\nauth_file = {dir}/users\n", self.port));
        for (name, value) in &self.settings {
            text.push_str(&format!("{name} = {value}\n"));
        }
        text
    }

    fn spawn(&mut self) -> io::Result<()> {
        let (file, log) = (self.dir.path().join("ini"), self.dir.path().join("log"));
        fs::write(&file, self.configuration())?;
        let _ = fs::remove_file(self.dir.path().join(format!(".s.PGSQL.{}", self.port)));
        let mut command = self.account.command(&self.program, self.dir.path());
        command.arg(&file).stdin(Stdio::null());
        command.stdout(File::create(&log)?).stderr(File::options().append(true).open(&log)?);
        self.child = Some(spawn(&mut command)?);
        let ready = eventually("the pooler to answer", || match self.child.as_mut()?.try_wait() {
            Ok(None) => self.console("SHOW VERSION").ok().map(|_| Ok(())),
            Ok(Some(status)) => Some(Err(io::Error::other(format!("the pooler ended with {status}")))),
            Err(error) => Some(Err(error)),
        });
        let result = match ready {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) | Err(error) => error,
        };
        self.kill()?;
        let text = fs::read_to_string(&log).unwrap_or_default();
        if text.contains("Address already in use") {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Err(io::Error::new(result.kind(), format!("{result}; the pooler's log:\n{text}")))
    }
}

fn found() -> io::Result<PathBuf> {
    find_program("pgbouncer", "TENURE_PGBOUNCER_BIN", &[PathBuf::from("/usr/sbin")])
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
