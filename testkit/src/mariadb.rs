//! A MariaDB server of a test's own, or a MySQL server in its place.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::account::{Account, find_program, output, spawn};
use crate::certificates::Certificates;
use crate::clock::ClockShim;
use crate::dir::TempDir;
use crate::port::free_port;
use crate::process;
use crate::template;
use crate::wait::eventually;

/// Number of attempts with another port when one was taken meanwhile.
const PORT_ATTEMPTS: u32 = 10;

/// Settings that every server has. None weakens what a commit promises: flushes and the doublewrite buffer are the server's
/// own; that it is fast comes from a data directory in memory.
const SETTINGS: &[&str] = &[
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--performance-schema=OFF",
];

/// And every MySQL server: no second protocol, and no folder of the system's.
const MYSQL: &[&str] = &["--mysqlx=OFF", "--secure-file-priv="];

/// Where an unpacked MySQL server finds its own files.
fn places(folder: &Path) -> [String; 2] {
    [format!("--basedir={}", folder.display()), format!("--lc-messages-dir={}", folder.join("share").display())]
}

/// What makes a server speak TLS with the certificate in this folder, and nothing else but on its socket.
fn encrypted(folder: &Path) -> [String; 3] {
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (file("server.pem"), file("server.key"));
    [format!("--ssl-cert={certificate}"), format!("--ssl-key={key}"), "--require-secure-transport=ON".into()]
}

/// Options of a [`MariaDbServer`]; by default data in memory where there is plenty, and the server's own settings but for its
/// memory.
#[derive(Clone, Debug, Default)]
pub struct MariaDbOptions {
    program: Option<PathBuf>,
    mysql: Option<PathBuf>,
    on_disk: bool,
    movable_clock: bool,
    tls: Option<Arc<Certificates>>,
    settings: Vec<String>,
}

impl MariaDbOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts this program, in place of `mariadbd` (in the folder that `TENURE_MARIADB_BIN` names, if it does).
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Starts a MySQL server in place of MariaDB: the one that is unpacked in this folder, with `bin/mysqld` and `share`. Its binary
    /// log is on, as is its default.
    #[must_use]
    pub fn mysql(mut self, folder: impl Into<PathBuf>) -> Self {
        self.mysql = Some(folder.into());
        self
    }

    /// Keeps the data on the disk, whose flushes the server waits for: for measurements.
    #[must_use]
    pub fn on_disk(mut self) -> Self {
        self.on_disk = true;
        self
    }

    /// Speaks only TLS on the TCP port. Clients need no certificate. The unix socket stays as it is.
    #[must_use]
    pub fn tls(mut self, certificates: Arc<Certificates>) -> Self {
        self.tls = Some(certificates);
        self
    }

    /// Lets [`set_clock_offset`](MariaDbServer::set_clock_offset) move the server's wall clock.
    #[must_use]
    pub fn movable_clock(mut self) -> Self {
        self.movable_clock = true;
        self
    }

    /// One more setting, as on the command line without its dashes: `setting("innodb-lock-wait-timeout", "1")`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push(format!("--{name}={value}"));
        self
    }
}

/// A running `mariadbd` on a free port of loopback and on a unix socket, with the user `root`, who needs no password. Killed
/// when dropped. As root it runs as `nobody`.
#[derive(Debug)]
pub struct MariaDbServer {
    child: Option<Child>,
    port: u16,
    options: MariaDbOptions,
    program: PathBuf,
    account: Account,
    clock: Option<ClockShim>,
    dir: TempDir,
}

impl MariaDbServer {
    /// Makes an empty data directory, starts a server and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when MariaDB is not installed; otherwise what kept it from starting, with its log.
    pub fn start(options: MariaDbOptions) -> io::Result<Self> {
        let found = || find_program("mariadbd", "TENURE_MARIADB_BIN", &[PathBuf::from("/usr/sbin")]);
        let mysqld = options.mysql.as_ref().map(|folder| folder.join("bin/mysqld"));
        let program = options.program.clone().or(mysqld).map_or_else(found, Ok)?;
        let dir = if options.on_disk { TempDir::new("maria") } else { TempDir::in_memory("maria") }?;
        let account = Account::unprivileged()?;
        let mut clock = if options.movable_clock { Some(ClockShim::new(dir.path())?) } else { None };
        if let Some(clock) = &mut clock {
            clock.keep_library_in(dir.path())?;
        }
        // Over TCP another account than over the socket.
        let account_of_root = "CREATE USER IF NOT EXISTS root@'127.0.0.1';\n\
                               GRANT ALL PRIVILEGES ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n";
        fs::write(dir.path().join("init"), account_of_root)?;
        if let Some(certificates) = &options.tls {
            let (certificate, key) = certificates.server();
            for (name, source) in [("server.pem", certificate), ("server.key", key)] {
                fs::copy(source, dir.path().join(name))?;
            }
        }
        account.give(dir.path())?;
        let mut server = Self { child: None, port: 0, options, program, account, clock, dir };
        template::copy(&server.program, &server.data(), |data| server.install(data))?;
        account.give(&server.data())?;
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

    /// Makes a data directory.
    fn install(&self, data: &Path) -> io::Result<()> {
        let mut command = match &self.options.mysql {
            Some(folder) => {
                let mut command = self.account.command(&self.program, self.dir.path());
                command.args(["--no-defaults", "--initialize-insecure"]).args(places(folder));
                command
            }
            None => {
                let places = [PathBuf::from("/usr/bin")];
                let install = find_program("mariadb-install-db", "TENURE_MARIADB_INSTALL_BIN", &places)?;
                let mut command = self.account.command(&install, self.dir.path());
                command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
                command
            }
        };
        // Not where others keep files of the same names.
        command.arg(format!("--tmpdir={}", self.dir.path().display()));
        output(command.arg(format!("--datadir={}", data.display()))).map(drop)
    }

    /// The version of the program that would be started, such as `10.11.19-MariaDB`.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn version() -> io::Result<String> {
        let program = find_program("mariadbd", "TENURE_MARIADB_BIN", &[PathBuf::from("/usr/sbin")])?;
        let said = output(Command::new(program).args(["--no-defaults", "--version"]))?;
        let version = said.split_whitespace().skip_while(|word| *word != "Ver").nth(1);
        let number = version.and_then(|version| version.split('-').next()).unwrap_or_default();
        Ok(if number.is_empty() { String::new() } else { format!("MariaDB {number}") })
    }

    /// The URL of a database for the user `root`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_through(self.port, database)
    }

    /// The same on another port of loopback that leads here, such as a [`TcpProxy`](crate::TcpProxy)'s.
    #[must_use]
    pub fn url_through(&self, port: u16, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{port}/{database}")
    }

    /// The URL of a database for this user.
    #[must_use]
    pub fn url_for(&self, user: &str, password: &str, database: &str) -> String {
        format!("mysql://{user}:{password}@127.0.0.1:{}/{database}", self.port)
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

    fn data(&self) -> PathBuf {
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

    /// The process id; `None` while the server is killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Runs statements as `root` over the unix socket, by the program `mariadb`, and returns what they answer: a line for each
    /// row, a tab between columns. Without a database if the name is empty.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Other`] with the server's words when it refuses.
    pub fn sql(&self, database: &str, statements: &str) -> io::Result<String> {
        output(self.client(database)?.args(["-e", statements]))
    }

    /// Runs a script as `root`; it may change the delimiter, for the bodies of procedures.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql); the script ends with the first statement that fails.
    pub fn script(&self, database: &str, script: &str) -> io::Result<String> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), script)?;
        output(self.client(database)?.stdin(File::open(file.path())?))
    }

    fn client(&self, database: &str) -> io::Result<Command> {
        let program = find_program("mariadb", "TENURE_MARIADB_CLIENT_BIN", &[PathBuf::from("/usr/bin")])?;
        let mut command = Command::new(program);
        command.args(["--no-defaults", "-u", "root", "-N", "-B", "-S"]).arg(self.socket());
        if !database.is_empty() {
            command.args(["-D", database]);
        }
        Ok(command)
    }

    /// Makes a database.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub fn create_database(&self, name: &str) -> io::Result<()> {
        self.sql("", &format!("CREATE DATABASE {}", quoted(name))).map(drop)
    }

    /// Makes a user that may sign in from anywhere, and has no right.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub fn create_user(&self, name: &str, password: &str) -> io::Result<()> {
        self.sql("", &format!("CREATE USER {}@'%' IDENTIFIED BY {}", quoted(name), literal(password))).map(drop)
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

    /// Kills the process if it runs, and starts it again with the same address, options and data; returns when its recovery is
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
    /// [`io::ErrorKind::Unsupported`] unless started with [`MariaDbOptions::movable_clock`].
    pub fn set_clock_offset(&self, micros: i64) -> io::Result<()> {
        let none = || io::Error::new(io::ErrorKind::Unsupported, "the server was not started with a movable clock");
        self.clock.as_ref().ok_or_else(none)?.set_offset(micros)
    }

    fn spawn(&mut self) -> io::Result<()> {
        let (dir, log) = (self.dir.path(), self.dir.path().join("log"));
        let mut command = self.account.command(&self.program, dir);
        command
            .args(["--no-defaults", &format!("--port={}", self.port), &format!("--datadir={}", self.data().display())])
            .args([format!("--socket={}", self.socket().display()), format!("--tmpdir={}", dir.display())])
            .args([format!("--pid-file={}", dir.join("pid").display())])
            .args([format!("--init-file={}", dir.join("init").display())])
            .args(SETTINGS)
            .args(self.options.mysql.iter().flat_map(|folder| places(folder)))
            .args(self.options.mysql.iter().flat_map(|_| MYSQL))
            .args(self.options.tls.iter().flat_map(|_| encrypted(dir)))
            .args(&self.options.settings)
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        self.child = Some(spawn(&mut command)?);
        let ready = eventually("the server to answer", || match self.child.as_mut()?.try_wait() {
            Ok(None) => self.ready(),
            Ok(Some(status)) => Some(Err(io::Error::other(format!("the server ended with {status}")))),
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
        Err(io::Error::new(result.kind(), format!("{result}; the server's log:\n{text}")))
    }

    /// `Some` once the server answers over its socket and has the user of its TCP port.
    fn ready(&self) -> Option<io::Result<()>> {
        let said = fs::read_to_string(self.dir.path().join("log")).ok()?;
        said.contains("ready for connections").then_some(())?;
        self.sql("", "SELECT 1").ok().map(|_| Ok(()))
    }
}

impl Drop for MariaDbServer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// A text as a literal of SQL.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A name as an identifier of SQL.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}
