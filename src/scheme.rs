//! The schemes of backend URLs.

use tenure_core::driver::BackendUrl;
use tenure_core::{Error, ErrorKind, Result};

/// The schemes that this crate knows, compiled in or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Memory,
    Sqlite,
    Postgres,
    Mysql,
    Redis,
    Fred,
    Etcd,
    RedlockRedis,
    RedlockFred,
}

/// The known beginnings of URLs, for messages.
const KNOWN: &str = "memory:, sqlite:, postgres://, mysql://, redis://, rediss://, redis+unix://, redis+cluster://, redis+sentinel://, fred+ before \
                     any of these but the first four, redlock+ before redis://, rediss:// and the same after fred+, etcd:// and \
                     etcds://";

/// Parses a URL. `others` are the schemes of third-party drivers.
pub(crate) fn parse<'a>(url: &str, others: impl Iterator<Item = &'a str>) -> Result<BackendUrl> {
    if url.contains(':') {
        return BackendUrl::parse(url);
    }
    Err(invalid(format!("the URL has no scheme; known are {}", known(others))))
}

/// Returns the refusal of a URL with an unknown scheme.
pub(crate) fn unknown<'a>(url: &BackendUrl, others: impl Iterator<Item = &'a str>) -> Error {
    let known = known(others);
    match url.scheme() {
        // What no slashes follow may be the name of a user.
        name if url.has_slashes() && name.len() <= LONGEST => {
            invalid(format!("the scheme \"{name}\" is not known; known are {known}"))
        }
        _ => invalid(format!("the URL does not begin with a known scheme; known are {known}")),
    }
}

fn known<'a>(others: impl Iterator<Item = &'a str>) -> String {
    let others: String = others.map(|name| format!("; {name}:")).collect();
    format!("{KNOWN}{others}")
}

/// The most letters of a scheme.
const LONGEST: usize = 32;

/// Checks the scheme of a third-party driver, and returns it in small letters.
pub(crate) fn own_name(scheme: &str) -> Result<String> {
    let name = scheme.to_ascii_lowercase();
    let url = BackendUrl::parse(&format!("{name}:")).ok();
    let url = url.filter(|url| url.scheme() == name && name.len() <= LONGEST).ok_or_else(|| {
        let rule = "a letter, followed by letters, digits, +, - and ., 32 at most";
        invalid(format!("\"{}\" is not a scheme: {rule}", scheme.escape_debug()))
    })?;
    match Scheme::of(&url) {
        Some(_) => Err(invalid(format!("the scheme \"{name}\" is one of the crate tenure"))),
        None => Ok(name),
    }
}

impl Scheme {
    /// Returns the scheme of this crate, if it is one.
    pub(crate) fn of(url: &BackendUrl) -> Option<Self> {
        Some(match url.scheme() {
            "memory" => Self::Memory,
            "sqlite" => Self::Sqlite,
            "postgres" | "postgresql" => Self::Postgres,
            "mysql" | "mariadb" => Self::Mysql,
            "etcd" | "etcds" => Self::Etcd,
            name if is_redis(name) => Self::Redis,
            name if name.strip_prefix("fred+").is_some_and(is_redis) => Self::Fred,
            "redlock+redis" | "redlock+rediss" => Self::RedlockRedis,
            "redlock+fred+redis" | "redlock+fred+rediss" => Self::RedlockFred,
            _ => return None,
        })
    }

    /// Returns the Cargo features that enable it.
    const fn features(self) -> &'static [&'static str] {
        match self {
            Self::Memory => &["memory"],
            Self::Sqlite => &["sqlite"],
            Self::Postgres => &["postgres"],
            Self::Mysql => &["mysql"],
            Self::Redis => &["redis"],
            Self::Fred => &["fred"],
            Self::Etcd => &["etcd"],
            Self::RedlockRedis => &["redlock", "redis"],
            Self::RedlockFred => &["redlock", "fred"],
        }
    }

    /// Returns the refusal of a scheme that is known and not compiled in.
    #[cfg_attr(
        all(
            feature = "memory",
            feature = "mysql",
            feature = "postgres",
            feature = "sqlite",
            feature = "redis",
            feature = "fred",
            feature = "etcd",
            feature = "redlock"
        ),
        expect(dead_code, reason = "nothing was left out")
    )]
    pub(crate) fn left_out(self) -> Error {
        let features = self.features().join("` and `");
        let text = format!("this build has no driver for that URL; enable `{features}`, features of the crate tenure");
        Error::new(ErrorKind::Unsupported, text)
    }
}

/// Returns true if this is one of the schemes of Redis, for either library.
fn is_redis(scheme: &str) -> bool {
    let plain = scheme.strip_prefix("rediss").or_else(|| scheme.strip_prefix("redis"));
    matches!(plain, Some("" | "+cluster" | "+sentinel")) || scheme == "redis+unix"
}

pub(crate) fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Scheme> {
        let url = parse(url, ["zk"].into_iter())?;
        Scheme::of(&url).ok_or_else(|| unknown(&url, ["zk"].into_iter()))
    }

    #[test]
    fn schemes_are_distinguished() {
        for (url, scheme) in [
            ("memory:", Scheme::Memory),
            ("memory:shared", Scheme::Memory),
            ("redis://host", Scheme::Redis),
            ("sqlite:", Scheme::Sqlite),
            ("PostgreSQL://app@host/db", Scheme::Postgres),
            ("mysql://app@host/db", Scheme::Mysql),
            ("MariaDB://app@host/db", Scheme::Mysql),
            ("SQLite:///var/locks.db", Scheme::Sqlite),
            ("REDIS://host", Scheme::Redis),
            ("Memory:", Scheme::Memory),
            ("Fred+RedisS://host", Scheme::Fred),
            ("ETCD://a", Scheme::Etcd),
            ("RedLock+Redis://a,b,c", Scheme::RedlockRedis),
            ("REDLOCK+FRED+REDIS://a,b,c", Scheme::RedlockFred),
            ("rediss://host", Scheme::Redis),
            ("redis+unix:///path", Scheme::Redis),
            ("rediss+cluster://a,b", Scheme::Redis),
            ("redis+sentinel://a/b", Scheme::Redis),
            ("fred+redis://host", Scheme::Fred),
            ("fred+redis+unix:///path", Scheme::Fred),
            ("etcd://a,b,c", Scheme::Etcd),
            ("etcds://user:password@host", Scheme::Etcd),
            ("redlock+redis://a,b,c", Scheme::RedlockRedis),
            ("redlock+rediss://a,b,c", Scheme::RedlockRedis),
            ("redlock+fred+redis://a,b,c", Scheme::RedlockFred),
        ] {
            assert_eq!(read(url).unwrap(), scheme, "{url}");
        }
    }

    #[test]
    fn what_is_not_known_is_named_with_what_is() {
        for (url, words) in [
            ("", "no scheme"),
            ("root:s3cret@host", "known scheme"),
            ("localhost", "no scheme"),
            ("http://host", "\"http\""),
            ("etcd+unix:///path", "\"etcd+unix\""),
            ("fred://host", "\"fred\""),
            ("redisx://host", "\"redisx\""),
            ("redlock://a,b,c", "\"redlock\""),
            ("redlock+memory:", "known scheme"),
            ("redlock+redis+cluster://a,b", "\"redlock+redis+cluster\""),
            ("fred+redlock+redis://a,b", "\"fred+redlock+redis\""),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = error.to_string();
            assert!(text.contains(words) && text.contains(KNOWN) && text.ends_with("; zk:"), "{url}: {text}");
            assert!(!text.contains("s3cret") && !text.contains("root"), "{url}: {text}");
        }
        for url in ["s3cret@host:6379", ":6379"] {
            let text = read(url).unwrap_err().to_string();
            assert!(text.contains("does not begin with a scheme") && !text.contains("s3cret"), "{url}: {text}");
        }
    }

    #[test]
    fn others_take_a_name_that_is_a_scheme_and_free() {
        assert_eq!(own_name("ZK+tls").unwrap(), "zk+tls");
        for taken in ["redis", "REDISS+cluster", "fred+redis", "mariadb", "memory"] {
            assert!(own_name(taken).unwrap_err().message().contains("one of the crate tenure"), "{taken}");
        }
        for none in ["", "1zk", "zk:", "z k", "zk://", "zé", &"z".repeat(33)] {
            assert!(own_name(none).unwrap_err().message().contains("is not a scheme"), "{none}");
        }
    }

    #[test]
    fn the_missing_features_are_named() {
        assert_eq!(Scheme::Redis.features(), ["redis"]);
        assert_eq!(Scheme::Fred.features(), ["fred"]);
        assert_eq!(Scheme::Etcd.features(), ["etcd"]);
        assert_eq!(Scheme::Memory.features(), ["memory"]);
        assert_eq!(Scheme::Sqlite.features(), ["sqlite"]);
        assert_eq!(Scheme::RedlockRedis.features(), ["redlock", "redis"]);
        assert_eq!(Scheme::RedlockFred.features(), ["redlock", "fred"]);
    }
}
