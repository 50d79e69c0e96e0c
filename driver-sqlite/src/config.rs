//! The path of the file and the settings of the driver.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tenure_core::driver::BackendUrl;
use tenure_core::{Error, ErrorKind, FenceFloor, Result};

/// The path of the file and the settings of the driver. Parsed from a URL, or built from a path.
///
/// ```
/// use tenure_sqlite::SqliteConfig;
///
/// let config: SqliteConfig = "sqlite:///var/lib/app/locks.db?max_waiters=100".parse()?;
/// assert_eq!(config, SqliteConfig::new("/var/lib/app/locks.db")?.max_waiters(100)?);
/// assert!("sqlite:locks.db?max_waiter=100".parse::<SqliteConfig>().is_err());
/// # Ok::<(), tenure_core::Error>(())
/// ```
///
/// | part of the URL | what | default |
/// |---|---|---|
/// | `sqlite:PATH`, `sqlite:///PATH` | the file; created if it is missing, in an existing folder | the [user's](Self::of_user) |
/// | `max_waiters` | the largest number of places in the queue of a lock | 10000 |
/// | `max_depth` | the deepest re-entry | 1000 |
/// | `max_dead_letters` | the largest number of dead letters of a queue | 100000 |
/// | `fence_floor` | the lower bound of all fences | the wall clock when the file is created |
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration does nothing until a driver is made of it"]
pub struct SqliteConfig {
    pub(crate) path: PathBuf,
    pub(crate) make_folder: MakeFolder,
    pub(crate) caps: Caps,
    pub(crate) fence_floor: FenceFloor,
}

/// Whether the folder of the file is made as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MakeFolder {
    Yes,
    No,
}

/// The caps of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) max_waiters: u32,
    pub(crate) max_depth: u32,
    pub(crate) max_dead_letters: u64,
}

impl SqliteConfig {
    /// The largest [`max_waiters`](Self::max_waiters).
    pub const MOST_WAITERS: u32 = 1_000_000;
    /// The largest [`max_depth`](Self::max_depth): an entry writes all entries of its hold.
    pub const DEEPEST: u32 = 20_000;

    /// The file at this path. A relative path starts from the current folder of the process. The driver creates the
    /// file if it is missing, but not its folder.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for an empty path, or one that names a folder.
    pub fn new(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if folder || path.file_name().is_none() {
            return Err(invalid(format!("\"{}\" names no file", path.display())));
        }
        let path = std::path::absolute(path)
            .map_err(|error| invalid("the path cannot be made absolute").with_source(error))?;
        Ok(Self::of(path, MakeFolder::No))
    }

    /// The file of this user: `tenure/locks.db` in `$XDG_STATE_HOME`, or in `~/.local/state`. The driver creates its
    /// folder if it is missing, accessible only to the user. The URL `sqlite:` means this file. Programs with different
    /// values of these variables use different files; [`path`](Self::path) returns the path.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`] where neither `XDG_STATE_HOME` nor `HOME` is an absolute path.
    pub fn of_user() -> Result<Self> {
        let file = file_of_user(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?;
        Ok(Self::of(file, MakeFolder::Yes))
    }

    fn of(path: PathBuf, make_folder: MakeFolder) -> Self {
        let caps = Caps { max_waiters: 10_000, max_depth: 1_000, max_dead_letters: 100_000 };
        Self { path, make_folder, caps, fence_floor: FenceFloor::NONE }
    }

    /// The largest number of waiters in the queue of one lock; one more is refused with [`ErrorKind::LimitReached`].
    /// Default: 10,000.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero or more than [`SqliteConfig::MOST_WAITERS`].
    pub fn max_waiters(mut self, most: u32) -> Result<Self> {
        if most == 0 || most > Self::MOST_WAITERS {
            return Err(invalid(format!("max_waiters of {most} is outside 1 to {}", Self::MOST_WAITERS)));
        }
        self.caps.max_waiters = most;
        Ok(self)
    }

    /// The deepest re-entry; one more is refused with [`ErrorKind::LimitReached`]. Default: 1,000.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero or more than [`SqliteConfig::DEEPEST`].
    pub fn max_depth(mut self, most: u32) -> Result<Self> {
        if most == 0 || most > Self::DEEPEST {
            return Err(invalid(format!("max_depth of {most} is outside 1 to {}", Self::DEEPEST)));
        }
        self.caps.max_depth = most;
        Ok(self)
    }

    /// The largest number of dead letters of a queue; while they are full, further messages wait. Default: 100,000.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero.
    pub fn max_dead_letters(mut self, most: u64) -> Result<Self> {
        if most == 0 {
            return Err(invalid("max_dead_letters must not be zero"));
        }
        self.caps.max_dead_letters = most;
        Ok(self)
    }

    /// The lower bound of all later fences of the file. Default: the wall clock in microseconds since 1970, at the time
    /// when the file was created or first opened after the machine was started.
    pub fn fence_floor(mut self, floor: FenceFloor) -> Self {
        self.fence_floor = floor;
        self
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a parsed URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it has a host, or an unknown parameter; and the errors of the setters.
    pub fn read(mut url: BackendUrl) -> Result<Self> {
        if url.scheme() != "sqlite" {
            return Err(invalid("the URL of a file begins with sqlite:"));
        }
        let mut config = match url.local_file()? {
            "" => Self::of_user()?,
            ":memory:" => {
                return Err(invalid(
                    "sqlite: keeps locks in a file; for locks in the memory of this process use memory:",
                ));
            }
            path => Self::new(path)?,
        };
        if let Some(most) = url.number("max_waiters")? {
            config = config.max_waiters(most)?;
        }
        if let Some(most) = url.number("max_depth")? {
            config = config.max_depth(most)?;
        }
        if let Some(most) = url.number("max_dead_letters")? {
            config = config.max_dead_letters(most)?;
        }
        if let Some(floor) = FenceFloor::read(&mut url)? {
            config = config.fence_floor(floor);
        }
        url.finish()?;
        Ok(config)
    }
}

impl FromStr for SqliteConfig {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::read(BackendUrl::parse(url)?)
    }
}

fn file_of_user(state: Option<OsString>, home: Option<OsString>) -> Result<PathBuf> {
    let absolute = |folder: OsString| Some(PathBuf::from(folder)).filter(|folder| folder.is_absolute());
    let state = state.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".local/state")));
    let state = state.ok_or_else(|| {
        let text = "neither XDG_STATE_HOME nor HOME is an absolute path; name the file: sqlite:PATH";
        Error::new(ErrorKind::Misconfigured, text)
    })?;
    Ok(state.join("tenure/locks.db"))
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file_in_each_of_its_spellings() {
        let path = |url: &str| url.parse::<SqliteConfig>().map(|config| config.path);
        let here = std::env::current_dir().unwrap();
        assert_eq!(path("sqlite:/a/b.db").unwrap(), Path::new("/a/b.db"));
        assert_eq!(path("SQLite:///a/b%20c.db").unwrap(), Path::new("/a/b c.db"));
        assert_eq!(path("sqlite:b.db").unwrap(), here.join("b.db"));
        for bad in ["sqlite://host/a.db", "sqlite:a/", "sqlite:/", "sqlite:a.db?max_waiters=0", "memory:a"] {
            assert_eq!(path(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn a_database_in_memory_is_refused_and_the_driver_for_it_named() {
        let error = "sqlite::memory:".parse::<SqliteConfig>().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.message().ends_with("use memory:"), "{error}");
    }

    #[test]
    fn the_file_of_a_user_is_in_the_state_directory() {
        let file = |state: Option<&str>, home: Option<&str>| file_of_user(state.map(Into::into), home.map(Into::into));
        assert_eq!(file(Some("/s"), Some("/h")).unwrap(), Path::new("/s/tenure/locks.db"));
        assert_eq!(file(Some("relative"), Some("/h")).unwrap(), Path::new("/h/.local/state/tenure/locks.db"));
        assert_eq!(file(None, Some("/h")).unwrap(), Path::new("/h/.local/state/tenure/locks.db"));
        for (state, home) in [(None, None), (Some("s"), Some("h"))] {
            assert_eq!(file(state, home).unwrap_err().kind(), ErrorKind::Misconfigured);
        }
    }
}
