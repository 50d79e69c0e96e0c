//! A PostgreSQL server of a test's own.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::account::{Account, find_program, output, spawn};
use crate::clock::ClockShim;
use crate::dir::TempDir;
use crate::port::free_port;
use crate::postgres_options::PostgresOptions;
use crate::process;
use crate::template;
use crate::wait::eventually;

/// Number of attempts with another port when one was taken meanwhile.
const PORT_ATTEMPTS: u32 = 10;

/// Where Debian keeps the programs of its versions.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Settings that every server has. None weakens what a commit promises: flushes, full pages and `synchronous_commit` are the
/// server's own; that it is fast comes from a data directory in memory.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("max_connections", "200"),
    ("shared_buffers", "32MB"),
    // In the data directory: nothing is left in the machine's shared memory after a kill.
    ("dynamic_shared_memory_type", "mmap"),
    ("logging_collector", "off"),
    ("log_line_prefix", "%m [%p] %a "),
];

/// A running `postgres` on a free port of loopback and on a unix socket, with the superuser `postgres`. Ended when dropped.
///
/// As root it runs as `nobody`, since it refuses to be root. [`kill`](Self::kill), [`pause`](Self::pause) and
/// [`resume`](Self::resume) mean all of its processes.
#[derive(Debug)]
pub struct PostgresServer {
    child: Option<Child>,
    port: u16,
    options: PostgresOptions,
    programs: PathBuf,
    account: Account,
    clock: Option<ClockShim>,
    dir: TempDir,
}

impl PostgresServer {
    /// Makes an empty cluster, starts a server and waits until it takes connections.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when PostgreSQL is not installed; otherwise what kept it from starting, with the end of
    /// its log.
    pub fn start(options: PostgresOptions) -> io::Result<Self> {
        let mut server = Self::prepare(options)?;
        let initdb = server.program("initdb");
        template::copy(&initdb, &server.data(), |data| {
            let mut command = server.account.command(&initdb, server.dir.path());
            command.args(["--no-sync", "--username=postgres", "--encoding=UTF8", "--locale=C", "--auth=trust", "-D"]);
            output(command.arg(data)).map(drop)
        })?;
        server.account.give(&server.data())?;
        server.configure()?;
        server.begin()?;
        if let Some(password) = server.options.password.clone() {
            server.sql("postgres", &format!("ALTER USER postgres PASSWORD {}", literal(&password)))?;
        }
        Ok(server)
    }

    /// The installed version: `PostgreSQL 15.3`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when nothing is.
    pub fn version() -> io::Result<String> {
        let programs = programs(&PostgresOptions::new())?;
        let said = Command::new(programs.join("postgres")).arg("--version").output()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let number = said.split_whitespace().nth(2).unwrap_or("of an unknown version");
        Ok(format!("PostgreSQL {number}"))
    }

    /// Starts a standby that follows this server (streaming, asynchronous) and answers queries that only read.
    ///
    /// # Errors
    ///
    /// Those of copying the data and of [`start`](Self::start).
    pub fn standby(&self) -> io::Result<Self> {
        let mut standby = Self::prepare(self.options.clone())?;
        let mut command = standby.account.command(&standby.program("pg_basebackup"), standby.dir.path());
        // The socket's directory is closed to other accounts, and this one owns it.
        command.arg("-h").arg(self.dir.path()).args(["-p", &self.port.to_string(), "-U", "postgres", "-D"]);
        output(command.arg(standby.data()).args(["-R", "-X", "stream", "-c", "fast"]))?;
        standby.configure()?;
        standby.begin()?;
        Ok(standby)
    }

    /// Makes a standby a server that takes writes, and waits until it does.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Other`] with the server's words when it is no standby.
    pub fn promote(&self) -> io::Result<()> {
        match self.sql("postgres", "SELECT pg_promote(true, 20)")?.as_str() {
            "t" => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::TimedOut, "the standby was not promoted within 20 s")),
        }
    }

    /// Waits until a standby streams from this server and has applied everything that was written so far.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] when it does not; those of asking either.
    pub fn wait_for(&self, standby: &Self) -> io::Result<()> {
        eventually("the standby to stream", || {
            let count = self.sql("postgres", "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'");
            count.map(|count| (count != "0").then_some(())).transpose()
        })??;
        let place = self.sql("postgres", "SELECT pg_current_wal_lsn()")?;
        let question = format!("SELECT pg_last_wal_replay_lsn() >= {}", literal(&place));
        eventually("the standby to catch up", || {
            standby.sql("postgres", &question).map(|answer| (answer == "t").then_some(())).transpose()
        })?
    }

    /// The URL of a database for the user `postgres`, with the password if there is one.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_through(self.port, database)
    }

    /// The same on another port of loopback that leads here, such as a [`TcpProxy`](crate::TcpProxy)'s.
    #[must_use]
    pub fn url_through(&self, port: u16, database: &str) -> String {
        self.url_of("postgres", self.options.password.as_deref(), port, database)
    }

    /// The URL of a database for this user.
    #[must_use]
    pub fn url_for(&self, user: &str, password: Option<&str>, database: &str) -> String {
        self.url_of(user, password, self.port, database)
    }

    fn url_of(&self, user: &str, password: Option<&str>, port: u16, database: &str) -> String {
        let password = password.map(|password| format!(":{password}")).unwrap_or_default();
        format!("postgres://{user}{password}@127.0.0.1:{port}/{database}")
    }

    /// How it was started.
    #[must_use]
    pub fn options(&self) -> &PostgresOptions {
        &self.options
    }

    /// The TCP port; also the number in the name of the unix socket.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the unix socket, which is what clients take for the host.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What the server has logged since it was last started.
    ///
    /// # Errors
    ///
    /// Those of reading a file.
    pub fn log(&self) -> io::Result<String> {
        fs::read_to_string(self.dir.path().join("log"))
    }

    /// The process id of the server; `None` while it is killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Runs statements as `postgres` over the unix socket, by `psql`, and returns what they answer: a line for each row, `|`
    /// between columns. Several statements are one transaction.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Other`] with the server's words when it refuses.
    pub fn sql(&self, database: &str, statements: &str) -> io::Result<String> {
        output(self.psql(database).args(["-c", statements]))
    }

    /// Runs a script as `postgres`: each statement is a transaction, unless the script says otherwise.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql); the script ends with the first statement that fails.
    pub fn script(&self, database: &str, script: &str) -> io::Result<String> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), script)?;
        output(self.psql(database).stdin(File::open(file.path())?))
    }

    fn psql(&self, database: &str) -> Command {
        let own = self.program("psql");
        let installed = || programs(&PostgresOptions::new()).map(|folder| folder.join("psql"));
        // A server of another version may come without it.
        let psql = if own.is_file() { own } else { installed().unwrap_or(own) };
        client(&psql, self.dir.path(), self.port, database)
    }

    /// One of the programs that come with the server.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Makes a database.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub fn create_database(&self, name: &str) -> io::Result<()> {
        self.sql("postgres", &format!("CREATE DATABASE {}", quoted(name))).map(drop)
    }

    /// Makes a user that may sign in, and has no rights beyond those of every user.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub fn create_user(&self, name: &str, password: &str) -> io::Result<()> {
        let statement = format!("CREATE USER {} PASSWORD {}", quoted(name), literal(password));
        self.sql("postgres", &statement).map(drop)
    }

    /// Ends the connections whose `application_name` begins with `prefix`; says how many there were.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub fn terminate(&self, prefix: &str) -> io::Result<usize> {
        let condition = format!("pid <> pg_backend_pid() AND starts_with(application_name, {})", literal(prefix));
        let statement =
            format!("SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {condition}");
        self.sql("postgres", &statement)?.parse().map_err(io::Error::other)
    }

    /// Stops the server with all of its processes and without closing anything (SIGSTOP); returns when they have stopped.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] when it is not running.
    pub fn pause(&mut self) -> io::Result<()> {
        process::pause(self.child.as_ref().ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Resumes a paused server (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] when it is not running.
    pub fn resume(&mut self) -> io::Result<()> {
        process::resume(self.child.as_ref().ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Kills the server with all of its processes (SIGKILL) and waits for their end: unlogged tables are empty afterwards.
    /// Killing twice is fine.
    ///
    /// # Errors
    ///
    /// Those of signalling and waiting.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.take().map_or(Ok(()), process::kill)
    }

    /// Ends the server as an administrator does: clients are cut off, and everything is written. Ending it twice is fine.
    ///
    /// # Errors
    ///
    /// Those of signalling and waiting.
    pub fn shut_down(&mut self) -> io::Result<()> {
        self.child.take().map_or(Ok(()), process::shut_down)
    }

    /// Kills the server if it runs, and starts it again with the same address, options and data; returns when its recovery is
    /// over.
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
        eventually("the server's port to be free", &mut spawn)?
    }

    /// Moves the server's wall clock to `micros` ahead of the machine's (behind, if negative).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] unless started with [`PostgresOptions::movable_clock`].
    pub fn set_clock_offset(&self, micros: i64) -> io::Result<()> {
        let none = || io::Error::new(io::ErrorKind::Unsupported, "the server was not started with a movable clock");
        self.clock.as_ref().ok_or_else(none)?.set_offset(micros)
    }

    fn prepare(options: PostgresOptions) -> io::Result<Self> {
        let dir = if options.on_disk { TempDir::new("pg") } else { TempDir::in_memory("pg") }?;
        let account = Account::unprivileged()?;
        let programs = programs(&options)?;
        let mut clock = if options.movable_clock { Some(ClockShim::new(dir.path())?) } else { None };
        if let Some(clock) = &mut clock {
            clock.keep_library_in(dir.path())?;
        }
        account.give(dir.path())?;
        Ok(Self { child: None, port: 0, options, programs, account, clock, dir })
    }

    /// Writes what differs from the server's own settings.
    fn configure(&self) -> io::Result<()> {
        let mut settings: Vec<(String, String)> =
            SETTINGS.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        settings.push(("unix_socket_directories".to_owned(), self.dir.path().display().to_string()));
        let mut access = String::from("local all all trust\nlocal replication all trust\n");
        let kind = if self.options.tls.is_some() { "hostssl" } else { "host" };
        let method = if self.options.password.is_some() { "scram-sha-256" } else { "trust" };
        access.push_str(&format!("{kind} all all 127.0.0.1/32 {method}\n"));
        if let Some(certificates) = &self.options.tls {
            let (certificate, key) = certificates.server();
            let files = [("server.pem", certificate), ("server.key", key)];
            for (name, source) in files {
                let copy = self.data().join(name);
                fs::copy(source, &copy)?;
                fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
                self.account.give(&copy)?;
            }
            let words = [("ssl", "on"), ("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key")];
            settings.extend(words.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        settings.extend(self.options.settings.iter().cloned());
        let lines = settings.iter().map(|(name, value)| format!("{name} = {}\n", literal(value)));
        for (name, text) in [("postgresql.conf", lines.collect()), ("pg_hba.conf", access)] {
            let path = self.data().join(name);
            fs::write(&path, text)?;
            self.account.give(&path)?;
        }
        Ok(())
    }

    /// The first start, on a port that is still to be found.
    fn begin(&mut self) -> io::Result<()> {
        for _ in 1..PORT_ATTEMPTS {
            self.port = free_port()?;
            match self.spawn() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result,
            }
        }
        self.port = free_port()?;
        self.spawn()
    }

    fn spawn(&mut self) -> io::Result<()> {
        let log = self.dir.path().join("log");
        let mut command = self.account.command(&self.program("postgres"), self.dir.path());
        command.args(["-p", &self.port.to_string(), "-D"]).arg(self.data()).stdin(Stdio::null());
        command.stdout(File::create(&log)?).stderr(File::options().append(true).open(&log)?);
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        self.child = Some(spawn(&mut command)?);
        let result = match eventually("the server to take connections", || self.probe().transpose()) {
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

    /// `Some` once the server takes connections; an error when it ended instead.
    fn probe(&mut self) -> io::Result<Option<()>> {
        let file = self.data().join("postmaster.pid");
        let Some(child) = &mut self.child else { return Ok(None) };
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("the server ended with {status}")));
        }
        // The file of an earlier process may still be there: its first line is the process, its eighth the state.
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        let mine = lines.first() == Some(&child.id().to_string().as_str());
        Ok((mine && lines.get(7) == Some(&"ready")).then_some(()))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            let _ = process::end(child);
        }
    }
}

/// The folder of the programs: what the options say, what `TENURE_POSTGRES_BIN` says, the newest of Debian's versions, the
/// `PATH`.
fn programs(options: &PostgresOptions) -> io::Result<PathBuf> {
    if let Some(folder) = &options.folder {
        return Ok(folder.clone());
    }
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let entries = fs::read_dir(VERSIONS).into_iter().flatten();
    let mut versions: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    versions.sort_by_key(|path| std::cmp::Reverse(number(path)));
    let folders: Vec<_> = versions.into_iter().map(|path| path.join("bin")).collect();
    let program = find_program("initdb", "TENURE_POSTGRES_BIN", &folders)?;
    // Where it really is: `psql` on the PATH may be a wrapper that looks for clusters of its own.
    let real = fs::canonicalize(program)?;
    Ok(real.parent().map(Path::to_path_buf).unwrap_or_default())
}

/// A `psql` at a unix socket, as `postgres`, that prints bare rows.
pub(crate) fn client(psql: &Path, socket: &Path, port: u16, database: &str) -> Command {
    let mut command = Command::new(psql);
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-h"]);
    command.arg(socket).args(["-p", &port.to_string()]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    command
}

/// A text as a literal of SQL, and of the configuration file.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as an identifier of SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
