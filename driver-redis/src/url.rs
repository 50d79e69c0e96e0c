//! URLs of Redis servers.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tenure_core::{Error, ErrorKind, Result};
use tenure_redis_support::{Eviction, Fences, Prefix};

use crate::config::{Address, RedisConfig};

const DEFAULT_PORT: u16 = 6379;
const PARAMETERS: &str = "prefix, max_waiters, max_backlog, max_dead_letters, fences, allow_eviction, connect_timeout_ms, response_timeout_ms, \
                          ping_interval_ms, protocol; for unix sockets also user, pass, db";

/// See [`RedisConfig::from_url`].
pub(crate) fn parse(text: &str) -> Result<RedisConfig> {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let unix = match scheme {
        "redis" => false,
        "unix" | "redis+unix" => true,
        "rediss" => {
            let text = "rediss:// needs TLS, which the feature \"tls\" is to bring and which is not built yet";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        _ => return Err(invalid("the URL does not begin with redis://, redis+unix:// or unix://")),
    };
    let url = redis::parse_redis_url(text)
        .ok_or_else(|| invalid("the URL is not of the form redis://[user[:password]@]host[:port][/db]"))?;
    if url.fragment().is_some() {
        return Err(invalid("the URL has a fragment (a # in a password is written as %23)"));
    }
    let mut config = if unix {
        if url.host_str().is_some_and(|host| !host.is_empty()) {
            return Err(invalid("the URL of a unix socket has three slashes and no host: redis+unix:///path"));
        }
        RedisConfig::new(Address::Unix(PathBuf::from(decode(url.path())?)))
    } else {
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| invalid("the URL has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut config = RedisConfig::tcp(decode(&host)?, url.port().unwrap_or(DEFAULT_PORT));
        config.database = database(url.path().trim_matches('/'))?;
        config
    };
    if !url.username().is_empty() {
        config.username = Some(decode(url.username())?);
    }
    config.password = url.password().map(decode).transpose()?;
    for (key, value) in url.query_pairs() {
        config = parameter(config, unix, &key, &value)?;
    }
    Ok(config)
}

fn parameter(mut config: RedisConfig, unix: bool, key: &str, value: &str) -> Result<RedisConfig> {
    match key {
        "prefix" => config.settings = config.settings.prefix(Prefix::new(value)?),
        "max_waiters" => config.settings = config.settings.max_waiters(number(key, value)?)?,
        "max_backlog" => config.settings = config.settings.max_backlog(number(key, value)?)?,
        "max_dead_letters" => config.settings = config.settings.max_dead_letters(number(key, value)?),
        "fences" => {
            config.settings = config.settings.fences(match value {
                "clock" => Fences::ClockSeeded,
                "counter" => Fences::Counter,
                _ => return Err(invalid("fences is clock or counter")),
            });
        }
        "allow_eviction" => {
            config.settings = config.settings.eviction(match value {
                "true" => Eviction::Allow,
                "false" => Eviction::Refuse,
                _ => return Err(invalid("allow_eviction is true or false")),
            });
        }
        "connect_timeout_ms" => config = config.connect_timeout(millis(key, value)?)?,
        "response_timeout_ms" => config = config.response_timeout(millis(key, value)?)?,
        "ping_interval_ms" => config = config.ping_interval(millis(key, value)?)?,
        "protocol" => match value {
            "resp3" => {}
            "resp2" => {
                let text = "protocol=resp2 is not supported: wake-ups come as push messages of resp3";
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            _ => return Err(invalid("protocol is resp3")),
        },
        "user" if unix => config.username = Some(value.to_owned()),
        "pass" if unix => config.password = Some(value.to_owned()),
        "db" if unix => config.database = database(value)?,
        _ => {
            let text = format!("the URL has an unknown parameter \"{}\"; known are {PARAMETERS}", key.escape_debug());
            return Err(invalid(text));
        }
    }
    Ok(config)
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text.into())
}

fn database(text: &str) -> Result<i64> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse::<u32>().map(i64::from).map_err(|_| invalid("the database of the URL is not a number"))
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| invalid(format!("{key} is not a number, or out of range")))
}

fn millis(key: &str, value: &str) -> Result<Duration> {
    number(key, value).map(Duration::from_millis)
}

/// Undoes percent encoding.
fn decode(text: &str) -> Result<String> {
    let bad = || invalid("the URL has a % that is not followed by two hexadecimal digits of UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or_else(bad)?;
        let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let config = parse("redis://us%3Aer:p%40ss@example.com:6380/3?prefix=app&response_timeout_ms=250").unwrap();
        assert_eq!(config.address, Address::Tcp { host: "example.com".into(), port: 6380 });
        assert_eq!((config.username.as_deref(), config.password.as_deref()), (Some("us:er"), Some("p@ss")));
        assert_eq!((config.database, config.response_timeout), (3, Duration::from_millis(250)));
        assert_eq!(parse("redis://[::1]").unwrap().address, Address::Tcp { host: "::1".into(), port: 6379 });
        assert_eq!(parse("redis://:pw@h/").unwrap().password.as_deref(), Some("pw"));
    }

    #[test]
    fn unix_sockets_are_read() {
        let config = parse("redis+unix:///run/redis%20a/s?user=u&pass=p%20w&db=2").unwrap();
        assert_eq!(config.address, Address::Unix("/run/redis a/s".into()));
        assert_eq!((config.username.as_deref(), config.password.as_deref()), (Some("u"), Some("p w")));
        assert_eq!(config.database, 2);
        assert!(parse("unix:///run/s").is_ok());
    }

    #[test]
    fn bad_urls_say_what_is_wrong_and_repeat_no_secret() {
        use ErrorKind::{InvalidArgument, Unsupported};
        for (url, kind, word) in [
            ("rediss://:s3cret@h", Unsupported, "tls"),
            ("redis://:s3cret@h?protocol=resp2", Unsupported, "resp2"),
            ("http://:s3cret@h", InvalidArgument, "redis://"),
            ("s3cret", InvalidArgument, "redis://"),
            ("redis://:s3cret@", InvalidArgument, "redis://"),
            ("redis://:s3cret@h:99999", InvalidArgument, "host[:port]"),
            ("redis://:s3cret@h/x", InvalidArgument, "database"),
            ("redis://:s3cret@h?prefx=a", InvalidArgument, "\"prefx\""),
            ("redis://:s3cret@h?pass=x", InvalidArgument, "\"pass\""),
            ("redis://:s3cret@h?prefix=a:b", InvalidArgument, "a:b"),
            ("redis://:s3cret@h?max_waiters=0", InvalidArgument, "max_waiters"),
            ("redis://:s3cret@h?max_waiters=-1", InvalidArgument, "max_waiters"),
            ("redis://:s3cret@h?max_backlog=0", InvalidArgument, "max_backlog"),
            ("redis://:s3cret@h?max_dead_letters=many", InvalidArgument, "max_dead_letters"),
            ("redis://:s3cret@h?fences=no", InvalidArgument, "fences"),
            ("redis://:s3cret@h?allow_eviction=1", InvalidArgument, "allow_eviction"),
            ("redis://:s3cret@h?connect_timeout_ms=1", InvalidArgument, "connect timeout"),
            ("redis://:s3cret%@h", InvalidArgument, "%"),
            ("redis://:s3cret@h/#x", InvalidArgument, "%23"),
            ("unix://host/s3cret", InvalidArgument, "three slashes"),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), kind, "{url}: {error}");
            assert!(error.message().contains(word), "{url}: {error}");
            assert!(!format!("{error:?}").contains("s3cret"), "{url}: {error:?}");
        }
    }
}
