//! The account that a database server runs as: most refuse to be root.

use std::fs;
use std::io;
use std::os::unix::fs::lchown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Whose account servers get when the tests run as root; it owns nothing else.
const NOBODY: &str = "nobody";

/// The caller's own account, or that of `nobody` where the caller is root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account(Option<(u32, u32)>);

impl Account {
    /// The one for this process.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when root's machine has no account `nobody`.
    pub(crate) fn unprivileged() -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self(None));
        }
        let accounts = fs::read_to_string("/etc/passwd")?;
        let fields = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = fields.filter(|fields| fields.first() == Some(&NOBODY)).find_map(|fields| {
            let (user, group) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
            Some((user, group))
        });
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no account nobody to run the server as");
        found.map(|account| Self(Some(account))).ok_or_else(missing)
    }

    /// A command that runs as the account, in `dir`.
    pub(crate) fn command(self, program: &Path, dir: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(dir); // the caller's own may be closed to the account
        if let Self(Some((user, group))) = self {
            command.uid(user).gid(group);
        }
        command
    }

    /// Gives a file, or a directory with all that is in it, to the account.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn give(self, path: &Path) -> io::Result<()> {
        let Self(Some((user, group))) = self else { return Ok(()) };
        lchown(path, Some(user), Some(group))?;
        if path.symlink_metadata()?.is_dir() {
            for entry in fs::read_dir(path)? {
                self.give(&entry?.path())?;
            }
        }
        Ok(())
    }
}

/// Where a program is: the folder that `variable` names, those of the `PATH`, or one of `folders`, the first that has it.
pub(crate) fn find_program(name: &str, variable: &str, folders: &[PathBuf]) -> io::Result<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed: Vec<_> = match named {
        Some(folder) => vec![folder],
        None => std::env::split_paths(&path).chain(folders.iter().cloned()).collect(),
    };
    let found = listed.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let text = format!("{name} is not installed: it is neither on the PATH nor in {folders:?} ({variable})");
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// Starts a program that continues to run.
///
/// # Errors
///
/// Those of starting it, with its name.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| io::Error::new(error.kind(), format!("cannot start {program}: {error}")))
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
///
/// Those of starting it; [`io::ErrorKind::Other`] with its words when it failed.
pub(crate) fn output(command: &mut Command) -> io::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|error| io::Error::new(error.kind(), format!("cannot start {program}: {error}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{program}: {}: {}", output.status, text.trim_end())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
