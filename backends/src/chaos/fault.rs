//! The faults of clients, servers and connections, and their times.

use std::fmt;
use std::time::Duration;

use super::event::Origin;

/// Something bad, from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Before it began.
    pub(crate) at: Duration,
    /// After its end; not yet, or at once.
    pub(crate) end: Option<Duration>,
    pub(crate) what: Harmed,
}

/// What happens to the data of a server that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Data {
    /// It is there again after a restart.
    Kept,
    /// It is gone, where the driver has a promise for that.
    Lost,
}

/// The harmed part, and the kind of harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Harmed {
    ClientKilled {
        process: usize,
        life: u32,
    },
    ClientStopped {
        process: usize,
        life: u32,
    },
    ServerKilled {
        node: usize,
    },
    ServerStopped {
        node: usize,
    },
    /// What its kind suffers, in words.
    ServerDisturbed {
        node: usize,
        how: String,
    },
    LinksCut,
    /// In words: they lose something, or are late.
    LinksBad {
        how: &'static str,
    },
}

impl Fault {
    pub(crate) fn is_of_client(&self) -> bool {
        matches!(self.what, Harmed::ClientKilled { .. } | Harmed::ClientStopped { .. })
    }

    /// Whether this process was stopped for some of the time between the two.
    pub(crate) fn stops(&self, by: Origin, from: Duration, to: Duration) -> bool {
        self.what == (Harmed::ClientStopped { process: by.process, life: by.life })
            && self.at <= to
            && self.end.is_none_or(|end| end >= from)
    }

    /// What kind it is, for counting.
    pub(crate) fn kind(&self) -> String {
        match &self.what {
            Harmed::ClientKilled { .. } => "clients killed".into(),
            Harmed::ClientStopped { .. } => "clients stopped".into(),
            Harmed::ServerKilled { .. } => "servers killed".into(),
            Harmed::ServerStopped { .. } => "servers stopped".into(),
            Harmed::ServerDisturbed { how, .. } => {
                let plain = |word: &&str| !word.contains(|c: char| c.is_ascii_digit() || c == '(');
                how.split(' ').take_while(plain).collect::<Vec<_>>().join(" ")
            }
            Harmed::LinksCut => "connections cut".into(),
            Harmed::LinksBad { how } => format!("connections {how}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Harmed::ClientKilled { process, life } => write!(f, "client {process} (life {life}) killed"),
            Harmed::ClientStopped { process, life } => write!(f, "client {process} (life {life}) stopped"),
            Harmed::ServerKilled { node } => write!(f, "server {node} killed"),
            Harmed::ServerStopped { node } => write!(f, "server {node} stopped"),
            Harmed::ServerDisturbed { node, how } => write!(f, "server {node}: {how}"),
            Harmed::LinksCut => f.write_str("connections cut"),
            Harmed::LinksBad { how } => write!(f, "connections {how}"),
        }
    }
}
