//! Servers of other versions and makers than those on the PATH: `…@6.2`, `…@valkey-9`, `…@3.6`.
//!
//! `cargo xtask test` puts them into `target/servers`, or wherever `TENURE_SERVERS` says; a program of one's own will do.

use std::path::{Path, PathBuf};

use tenure_conformance::Missing;

/// A program that a backend is run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The one on the PATH, or what this variable names in its place.
    Usual { name: &'static str, variable: &'static str },
    /// One of a name in the folder of the others: `redis-6.2`.
    Other(&'static str),
}

impl Program {
    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Usual { name, variable } => std::env::var_os(variable).unwrap_or_else(|| (*name).into()).into(),
            Self::Other(name) => folder().join(name),
        }
    }

    /// Where it is, if the tests' own choice has to be overruled.
    pub(crate) fn instead(&self) -> Option<PathBuf> {
        matches!(self, Self::Other(_)).then(|| self.path())
    }

    /// That it is there.
    pub(crate) fn found(&self) -> Result<(), Missing> {
        let path = self.path();
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let is_there = std::env::split_paths(&paths).any(|folder| folder.join(&path).is_file());
        match self {
            _ if is_there => Ok(()),
            Self::Usual { name, variable } => {
                Err(Missing::new(format!("no {name} on the PATH, and {variable} names none")))
            }
            Self::Other(name) => Err(Missing::new(format!("no {name} in {}", folder().display()))),
        }
    }

    /// The first word and the version that it prints about itself.
    pub(crate) fn version(&self, prefix: &str) -> String {
        let output = std::process::Command::new(self.path()).arg("--version").output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let version = text.split_once(prefix).and_then(|(_, rest)| rest.split_whitespace().next());
        let maker = text.split_whitespace().next().unwrap_or("a server").to_lowercase();
        format!("{maker} {}", version.unwrap_or("of unknown version"))
    }
}

fn folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    std::env::var_os("TENURE_SERVERS").map_or_else(|| workspace.join("target/servers"), PathBuf::from)
}
