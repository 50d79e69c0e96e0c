//! URLs of Redis.

use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tenure_core::{Error, ErrorKind, Result};
use url::Url;

use crate::config::{Address, Protocol, RedisConfig, Tls, Topology};
use crate::keyspace::Prefix;
use crate::settings::{Eviction, Fences};

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;
const PARAMETERS: &str = "prefix, max_waiters, max_backlog, max_dead_letters, fences, counter_life_ms, functions, \
                          allow_eviction, connect_timeout_ms, response_timeout_ms, \
                          ping_interval_ms, protocol, name; with rediss:// also ca, cert, key; for unix sockets also \
                          user, pass, db; with sentinels also sentinel_user, sentinel_pass";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Unix,
    Cluster,
    Sentinel,
}

/// See [`RedisConfig::from_url`].
pub(crate) fn parse(text: &str) -> Result<RedisConfig> {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let (kind, tls) = match scheme {
        "redis" => (Kind::Single, None),
        "rediss" => (Kind::Single, Some(Tls::default())),
        "unix" | "redis+unix" => (Kind::Unix, None),
        "redis+cluster" => (Kind::Cluster, None),
        "rediss+cluster" => (Kind::Cluster, Some(Tls::default())),
        "redis+sentinel" => (Kind::Sentinel, None),
        "rediss+sentinel" => (Kind::Sentinel, Some(Tls::default())),
        _ => {
            return Err(invalid(
                "the URL does not begin with redis://, rediss://, redis+unix:// or unix://, redis+cluster:// or redis+sentinel://",
            ));
        }
    };
    let (first, others) = one_host(text);
    if !others.is_empty() && !matches!(kind, Kind::Cluster | Kind::Sentinel) {
        return Err(invalid("the URL has several hosts; those are for redis+cluster:// and redis+sentinel://"));
    }
    let url = Url::parse(&first)
        .map_err(|_| invalid("the URL is not of the form redis://[user[:password]@]host[:port][/db]"))?;
    if url.fragment().is_some() {
        return Err(invalid("the URL has a fragment (a # in a password is written as %23)"));
    }
    let mut config = RedisConfig::new(match kind {
        Kind::Unix => Topology::Single(Address::Unix(socket(&url)?)),
        Kind::Single => Topology::Single(address(&url, DEFAULT_PORT)?),
        Kind::Cluster => Topology::Cluster(addresses(&url, &others, DEFAULT_PORT)?),
        Kind::Sentinel => {
            let path = url.path().trim_matches('/');
            let service = path.split_once('/').map_or(path, |(service, _)| service);
            if service.is_empty() {
                return Err(invalid("the URL lacks the name that the sentinels have for the primary: …/service"));
            }
            let sentinels = addresses(&url, &others, DEFAULT_SENTINEL_PORT)?;
            Topology::Sentinel { sentinels, service: decode(service)? }
        }
    });
    let path = url.path().trim_matches('/');
    config.database = match kind {
        Kind::Unix => 0,
        Kind::Single => database(path)?,
        Kind::Sentinel => database(path.split_once('/').map_or("", |(_, rest)| rest))?,
        Kind::Cluster if path.is_empty() || path == "0" => 0,
        Kind::Cluster => return Err(invalid("a cluster has no database but 0")),
    };
    config.tls = tls;
    if !url.username().is_empty() {
        config.login.username = Some(decode(url.username())?);
    }
    config.login.password = url.password().map(decode).transpose()?;
    for (key, value) in url.query_pairs() {
        config = parameter(config, kind, &key, &value)?;
    }
    Ok(config)
}

/// See [`RedisConfig::nodes_from_url`].
pub(crate) fn parse_nodes(text: &str) -> Result<Vec<RedisConfig>> {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    if !matches!(scheme, "redis" | "rediss") {
        return Err(invalid("the nodes of a quorum are given as redis://host[:port],host[:port]… or rediss://…"));
    }
    let hosts = hosts(text);
    let (before, after) = (&text[..hosts.start], &text[hosts.end..]);
    text[hosts.clone()].split(',').map(|host| parse(&format!("{before}{host}{after}"))).collect()
}

/// Where in a URL its hosts are.
fn hosts(text: &str) -> Range<usize> {
    let start = text.find("://").map_or(text.len(), |at| at + 3);
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
    text[start..end].rfind('@').map_or(start, |at| start + at + 1)..end
}

/// The URL with its first host alone, and the other hosts.
fn one_host(text: &str) -> (String, Vec<String>) {
    let hosts = hosts(text);
    let mut all = text[hosts.clone()].split(',');
    let first = all.next().unwrap_or_default();
    (format!("{}{first}{}", &text[..hosts.start], &text[hosts.end..]), all.map(str::to_owned).collect())
}

fn addresses(url: &Url, others: &[String], port: u16) -> Result<Vec<Address>> {
    let mut all = vec![address(url, port)?];
    for host in others {
        let bad = |_| invalid("one of the hosts of the URL is not of the form host[:port]");
        all.push(address(&Url::parse(&format!("redis://{host}")).map_err(bad)?, port)?);
    }
    Ok(all)
}

fn address(url: &Url, port: u16) -> Result<Address> {
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| invalid("the URL has no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(Address::tcp(decode(host)?, url.port().unwrap_or(port)))
}

fn socket(url: &Url) -> Result<PathBuf> {
    if url.host_str().is_some_and(|host| !host.is_empty()) {
        return Err(invalid("the URL of a unix socket has three slashes and no host: redis+unix:///path"));
    }
    Ok(PathBuf::from(decode(url.path())?))
}

fn parameter(mut config: RedisConfig, kind: Kind, key: &str, value: &str) -> Result<RedisConfig> {
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
        "counter_life_ms" => config.settings = config.settings.counter_life(millis(key, value)?)?,
        "functions" => config.settings = config.settings.functions(truth(key, value)?),
        "allow_eviction" => {
            let eviction = if truth(key, value)? { Eviction::Allow } else { Eviction::Refuse };
            config.settings = config.settings.eviction(eviction);
        }
        "connect_timeout_ms" => config = config.connect_timeout(millis(key, value)?)?,
        "response_timeout_ms" => config = config.response_timeout(millis(key, value)?)?,
        "ping_interval_ms" => config = config.ping_interval(millis(key, value)?)?,
        "protocol" => {
            config.protocol = match value {
                "resp2" => Protocol::Resp2,
                "resp3" => Protocol::Resp3,
                _ => return Err(invalid("protocol is resp2 or resp3")),
            };
        }
        "name" => config.name = Some(connection_name(value)?),
        "user" if kind == Kind::Unix => config.login.username = Some(value.to_owned()),
        "pass" if kind == Kind::Unix => config.login.password = Some(value.to_owned()),
        "db" if kind == Kind::Unix => config.database = database(value)?,
        "sentinel_user" if kind == Kind::Sentinel => config.sentinel_login.username = Some(value.to_owned()),
        "sentinel_pass" if kind == Kind::Sentinel => config.sentinel_login.password = Some(value.to_owned()),
        "ca" | "cert" | "key" => tls_file(&mut config, key, value)?,
        _ => {
            let text = format!("the URL has an unknown parameter \"{}\"; known are {PARAMETERS}", key.escape_debug());
            return Err(invalid(text));
        }
    }
    Ok(config)
}

fn tls_file(config: &mut RedisConfig, key: &str, path: &str) -> Result<()> {
    let Some(tls) = &mut config.tls else {
        return Err(invalid(format!("{key} is for TLS, which rediss:// asks for")));
    };
    let text = std::fs::read(path).map_err(|error| invalid(format!("cannot read the file of {key}: {error}")))?;
    match key {
        "ca" => tls.authorities = Some(text.into()),
        "cert" => tls.identity.get_or_insert_default().certificates = text.into(),
        _ => tls.identity.get_or_insert_default().key = text.into(),
    }
    Ok(())
}

/// What `CLIENT SETNAME` takes.
fn connection_name(name: &str) -> Result<String> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("name is of printable ASCII characters without spaces"));
    }
    Ok(name.to_owned())
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text.into())
}

fn database(text: &str) -> Result<u32> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| invalid("the database of the URL is not a number"))
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| invalid(format!("{key} is not a number, or out of range")))
}

fn truth(key: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| invalid(format!("{key} is true or false")))
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
    use crate::config::Login;

    fn login(username: &str, password: &str) -> Login {
        Login { username: Some(username.into()), password: Some(password.into()) }
    }

    #[test]
    fn several_hosts_are_read() {
        let config = parse("redis+cluster://u:p,@a:1,b,[::1]:3?prefix=x").unwrap();
        let all = vec![Address::tcp("a", 1), Address::tcp("b", 6379), Address::tcp("::1", 3)];
        assert_eq!((config.topology, config.login), (Topology::Cluster(all), login("u", "p,")));
        let config = parse("redis+sentinel://a,b:5/main/2?sentinel_pass=s").unwrap();
        let sentinels = vec![Address::tcp("a", 26379), Address::tcp("b", 5)];
        assert_eq!(config.topology, Topology::Sentinel { sentinels, service: "main".into() });
        assert_eq!((config.database, config.sentinel_login.password.as_deref()), (2, Some("s")));
    }

    #[test]
    fn urls_are_read() {
        let config = parse("redis://us%3Aer:p%40ss@example.com:6380/3?prefix=app&response_timeout_ms=250").unwrap();
        assert_eq!(config.topology, Topology::Single(Address::tcp("example.com", 6380)));
        assert_eq!(config.login, login("us:er", "p@ss"));
        assert_eq!((config.database, config.response_timeout), (3, Duration::from_millis(250)));
        assert_eq!(parse("redis://[::1]").unwrap().topology, Topology::Single(Address::tcp("::1", 6379)));
        assert_eq!(parse("redis://:pw@h/").unwrap().login.password.as_deref(), Some("pw"));
        let config = parse("redis://h?protocol=resp2&name=billing-7").unwrap();
        assert_eq!((config.protocol, config.name.as_deref()), (Protocol::Resp2, Some("billing-7")));
        assert!(parse("rediss://h").unwrap().tls.is_some());
    }

    #[test]
    fn nodes_of_a_quorum_are_read() {
        let all = parse_nodes("rediss://u:p,@a:1,b,[::1]:3/2?prefix=x").unwrap();
        let address = |config: &RedisConfig| config.topology.clone();
        let hosts = [Address::tcp("a", 1), Address::tcp("b", 6379), Address::tcp("::1", 3)];
        assert_eq!(all.iter().map(address).collect::<Vec<_>>(), hosts.map(Topology::Single));
        assert!(all.iter().all(|node| node.login == login("u", "p,") && node.database == 2 && node.tls.is_some()));
        for url in
            ["redis+unix:///s3cret", "redis+cluster://:s3cret@a,b", "redis://:s3cret@a,,b", "s3cret", "redis:a,b"]
        {
            let error = parse_nodes(url).unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidArgument && !error.message().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn unix_sockets_are_read() {
        let config = parse("redis+unix:///run/redis%20a/s?user=u&pass=p%20w&db=2").unwrap();
        assert_eq!(config.topology, Topology::Single(Address::Unix("/run/redis a/s".into())));
        assert_eq!(config.login, login("u", "p w"));
        assert_eq!(config.database, 2);
        assert!(parse("unix:///run/s").is_ok());
    }

    #[test]
    fn bad_urls_say_what_is_wrong_and_repeat_no_secret() {
        use ErrorKind::InvalidArgument;
        for (url, kind, word) in [
            ("rediss://:s3cret@h?ca=/nonexistent", InvalidArgument, "ca"),
            ("redis://:s3cret@h?ca=/nonexistent", InvalidArgument, "rediss://"),
            ("redis://:s3cret@h?protocol=resp4", InvalidArgument, "resp2"),
            ("redis://:s3cret@h?name=a%20b", InvalidArgument, "name"),
            ("redis://:s3cret@h,i", InvalidArgument, "several hosts"),
            ("redis+cluster://:s3cret@h/1", InvalidArgument, "database"),
            ("redis+sentinel://:s3cret@h", InvalidArgument, "service"),
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
            ("redis://:s3cret@h?counter_life_ms=59999", InvalidArgument, "counter_life"),
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
