//! How a Redis server is to be started.

use std::path::PathBuf;
use std::sync::Arc;

use crate::certificates::Certificates;

/// What a server process is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// Keeps data.
    #[default]
    Data,
    /// Watches those that do.
    Sentinel,
}

/// Options of a [`RedisServer`](crate::RedisServer); by default no password, no persistence, no limits.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    pub(crate) program: Option<PathBuf>,
    pub(crate) password: Option<String>,
    pub(crate) append_only: bool,
    pub(crate) movable_clock: bool,
    pub(crate) tls: Option<Arc<Certificates>>,
    pub(crate) role: Role,
    pub(crate) args: Vec<String>,
}

impl RedisOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts this program, in place of `redis-server` (or what `TENURE_REDIS_SERVER` names).
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Requires this password of the default user.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Keeps the data over a kill: an append-only file, synced at every command.
    #[must_use]
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// Lets [`set_clock_offset`](crate::RedisServer::set_clock_offset) move the server's wall clock.
    #[must_use]
    pub fn movable_clock(mut self) -> Self {
        self.movable_clock = true;
        self
    }

    /// Speaks only TLS on the TCP port, and asks clients for a certificate of the same authority. The unix socket stays
    /// as it is.
    #[must_use]
    pub fn tls(mut self, certificates: Arc<Certificates>) -> Self {
        self.tls = Some(certificates);
        self
    }

    /// Adds a user with these rules of an access control list, as `ACL SETUSER` takes them.
    #[must_use]
    pub fn user(self, name: &str, rules: &[&str]) -> Self {
        self.words(&["--user", name]).words(rules)
    }

    pub(crate) fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// The certificates, if it speaks TLS.
    #[must_use]
    pub fn certificates(&self) -> Option<&Certificates> {
        self.tls.as_deref()
    }

    /// One more setting, as in the configuration file: `setting("maxmemory-policy", "allkeys-lru")`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl Into<String>) -> Self {
        self.args.push(format!("--{name}"));
        self.args.push(value.into());
        self
    }

    /// Words of the command line as they are, for settings with several values.
    #[must_use]
    pub fn words(mut self, words: &[&str]) -> Self {
        self.args.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// The command line, without the places that the server chooses for itself.
    pub(crate) fn command_line(&self) -> Vec<String> {
        if self.role == Role::Sentinel {
            return self.args.clone();
        }
        let mut args: Vec<String> = ["--save", "", "--daemonize", "no"].map(String::from).to_vec();
        let append = if self.append_only { ["--appendonly", "yes"] } else { ["--appendonly", "no"] };
        args.extend(append.map(String::from));
        if self.append_only {
            args.extend(["--appendfsync", "always"].map(String::from));
        }
        if let Some(password) = &self.password {
            args.extend(["--requirepass".to_owned(), password.clone()]);
        }
        args.extend(self.args.iter().cloned());
        args
    }
}
