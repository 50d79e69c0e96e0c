//! URLs of Redis.

use std::path::PathBuf;

use tenure_core::driver::BackendUrl;
use tenure_core::{Error, ErrorKind, FenceFloor, Result};

use crate::config::{Address, Protocol, RedisConfig, Tls, Topology};
use crate::settings::{Eviction, Fences, Prefix, RedisSettings};

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Unix,
    Cluster,
    Sentinel,
}

impl RedisConfig {
    /// Reads a URL:
    ///
    /// * `redis://[user[:password]@]host[:port][/db]`: one server;
    /// * `redis+unix:///path[?user=…&pass=…&db=…]` (also `unix://`): one server at a unix socket;
    /// * `redis+cluster://[user[:password]@]host[:port][,host[:port]]…`: a cluster;
    /// * `redis+sentinel://[user[:password]@]host[:port][,host[:port]]…/service[/db]`: behind sentinels.
    ///
    /// `rediss` instead of `redis` enables TLS.
    ///
    /// Query parameters: `prefix`, `max_waiters`, `max_backlog`, `max_dead_letters`, `fences=clock|counter`,
    /// `fence_floor`, `counter_life_ms`, `allow_eviction=true|false`, `connect_timeout_ms`, `response_timeout_ms`,
    /// `ping_interval_ms`, `protocol=resp2|resp3`, `name`; with TLS also `ca`, `cert` and `key`, the paths of PEM
    /// files; with sentinels also `sentinel_user` and `sentinel_pass`. The setters and [`RedisSettings`] describe their
    /// meaning.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] names the problem, including an unknown parameter. It does not repeat the URL,
    /// which may hold a password.
    pub fn from_url(url: &str) -> Result<Self> {
        Self::read(BackendUrl::parse(url)?)
    }

    /// Like [`from_url`](Self::from_url), after other readers have removed their parameters from the URL.
    ///
    /// # Errors
    ///
    /// Those of [`from_url`](Self::from_url).
    pub fn read(url: BackendUrl) -> Result<Self> {
        read(url)
    }

    /// Reads a URL of several independent servers, the nodes of a quorum:
    /// `redis://[user[:password]@]host[:port][,host[:port]]…[/db]`, or the same with `rediss`. All parts but the host
    /// are the same for all nodes, and as [`from_url`](Self::from_url) reads them.
    ///
    /// # Errors
    ///
    /// Like [`from_url`](Self::from_url); [`ErrorKind::InvalidArgument`] also for the URL of a socket, of a cluster, or
    /// of sentinels, which are not independent servers.
    pub fn nodes_from_url(url: &str) -> Result<Vec<Self>> {
        Self::read_nodes(BackendUrl::parse(url)?)
    }

    /// Like [`nodes_from_url`](Self::nodes_from_url), after other readers have removed their parameters from the URL.
    ///
    /// # Errors
    ///
    /// Those of [`nodes_from_url`](Self::nodes_from_url).
    pub fn read_nodes(url: BackendUrl) -> Result<Vec<Self>> {
        read_nodes(url)
    }
}

/// See [`RedisConfig::read`].
pub(crate) fn read(url: BackendUrl) -> Result<RedisConfig> {
    let (kind, tls) = kind(&url)?;
    let topology = match kind {
        Kind::Unix => Topology::Single(Address::Unix(PathBuf::from(url.file()?))),
        Kind::Single => {
            let mut all = addresses(&url, DEFAULT_PORT)?;
            if all.len() > 1 {
                return Err(invalid("the URL has several hosts; those are for redis+cluster:// and redis+sentinel://"));
            }
            Topology::Single(all.remove(0))
        }
        Kind::Cluster => Topology::Cluster(addresses(&url, DEFAULT_PORT)?),
        Kind::Sentinel => {
            let service = service(&url).0.to_owned();
            if service.is_empty() {
                return Err(invalid("the URL lacks the name that the sentinels have for the primary: …/service"));
            }
            Topology::Sentinel { sentinels: addresses(&url, DEFAULT_SENTINEL_PORT)?, service }
        }
    };
    settle(url, kind, tls, RedisConfig::new(topology))
}

/// See [`RedisConfig::read_nodes`].
pub(crate) fn read_nodes(url: BackendUrl) -> Result<Vec<RedisConfig>> {
    let (Kind::Single, tls) = kind(&url)? else {
        return Err(invalid("the nodes of a quorum are given as redis://host[:port],host[:port]… or rediss://…"));
    };
    let mut all = addresses(&url, DEFAULT_PORT)?.into_iter().map(|address| RedisConfig::new(Topology::Single(address)));
    let first = all.next().ok_or_else(|| invalid("the URL has no host"))?;
    let first = settle(url, Kind::Single, tls, first)?;
    let others = all.map(|node| RedisConfig { topology: node.topology, ..first.clone() }).collect::<Vec<_>>();
    Ok([vec![first], others].concat())
}

fn kind(url: &BackendUrl) -> Result<(Kind, Option<Tls>)> {
    Ok(match url.scheme() {
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
    })
}

fn addresses(url: &BackendUrl, port: u16) -> Result<Vec<Address>> {
    Ok(url.hosts(port)?.into_iter().map(|(host, port)| Address::tcp(host, port)).collect())
}

/// The name of the primary, and what follows it.
fn service(url: &BackendUrl) -> (&str, &str) {
    url.path().split_once('/').unwrap_or((url.path(), ""))
}

/// Reads everything but the topology.
fn settle(mut url: BackendUrl, kind: Kind, tls: Option<Tls>, mut config: RedisConfig) -> Result<RedisConfig> {
    config.database = match kind {
        Kind::Unix => database(url.text("db").as_deref().unwrap_or_default())?,
        Kind::Single => database(url.path())?,
        Kind::Sentinel => database(service(&url).1)?,
        Kind::Cluster if url.path().is_empty() || url.path() == "0" => 0,
        Kind::Cluster => return Err(invalid("a cluster has no database but 0")),
    };
    config.login.username = url.user().map(str::to_owned);
    config.login.password = url.password().map(str::to_owned);
    if kind == Kind::Unix {
        config.login.username = url.text("user");
        config.login.password = url.text("pass");
    }
    if kind == Kind::Sentinel {
        config.sentinel_login.username = url.text("sentinel_user");
        config.sentinel_login.password = url.text("sentinel_pass");
    }
    config.tls = encryption(&mut url, tls)?;
    if let Some(limit) = url.millis("connect_timeout_ms")? {
        config = config.connect_timeout(limit)?;
    }
    if let Some(limit) = url.millis("response_timeout_ms")? {
        config = config.response_timeout(limit)?;
    }
    if let Some(interval) = url.millis("ping_interval_ms")? {
        config = config.ping_interval(interval)?;
    }
    if let Some(protocol) = url.choice("protocol", &[("resp2", Protocol::Resp2), ("resp3", Protocol::Resp3)])? {
        config.protocol = protocol;
    }
    config.name = url.text("name").map(connection_name).transpose()?;
    config.settings = settings(&mut url, config.settings)?;
    url.finish()?;
    Ok(config)
}

fn settings(url: &mut BackendUrl, mut settings: RedisSettings) -> Result<RedisSettings> {
    if let Some(prefix) = url.text("prefix") {
        settings = settings.prefix(Prefix::new(&prefix)?);
    }
    if let Some(most) = url.number("max_waiters")? {
        settings = settings.max_waiters(most)?;
    }
    if let Some(most) = url.number("max_backlog")? {
        settings = settings.max_backlog(most)?;
    }
    if let Some(most) = url.number("max_dead_letters")? {
        settings = settings.max_dead_letters(most);
    }
    if let Some(fences) = url.choice("fences", &[("clock", Fences::ClockSeeded), ("counter", Fences::Counter)])? {
        settings = settings.fences(fences);
    }
    if let Some(floor) = FenceFloor::read(url)? {
        settings = settings.fence_floor(floor);
    }
    if let Some(life) = url.millis("counter_life_ms")? {
        settings = settings.counter_life(life)?;
    }
    if let Some(allowed) = url.truth("allow_eviction")? {
        settings = settings.eviction(if allowed { Eviction::Allow } else { Eviction::Refuse });
    }
    Ok(settings)
}

fn encryption(url: &mut BackendUrl, tls: Option<Tls>) -> Result<Option<Tls>> {
    let Some(mut tls) = tls else {
        let asked = ["ca", "cert", "key"].into_iter().find(|name| url.text(name).is_some());
        return match asked {
            Some(name) => Err(invalid(format!("{name} is for TLS, which rediss:// asks for"))),
            None => Ok(None),
        };
    };
    if let Some(pem) = url.file_of("ca")? {
        tls.authorities = Some(pem.into());
    }
    if let Some(pem) = url.file_of("cert")? {
        tls.identity.get_or_insert_default().certificates = pem.into();
    }
    if let Some(pem) = url.file_of("key")? {
        tls.identity.get_or_insert_default().key = pem.into();
    }
    Ok(Some(tls))
}

/// What `CLIENT SETNAME` takes.
fn connection_name(name: String) -> Result<String> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("name is of printable ASCII characters without spaces"));
    }
    Ok(name)
}

fn database(text: &str) -> Result<u32> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| invalid("the database of the URL is not a number"))
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::config::Login;

    fn parse(url: &str) -> Result<RedisConfig> {
        RedisConfig::from_url(url)
    }

    fn parse_nodes(url: &str) -> Result<Vec<RedisConfig>> {
        RedisConfig::nodes_from_url(url)
    }

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
        assert_eq!(parse("REDIS+Unix:///S").unwrap().topology, parse("redis+unix:///S").unwrap().topology);
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
    fn every_parameter_sets_what_it_says() {
        let url = "redis://h?connect_timeout_ms=700&ping_interval_ms=900&protocol=resp3&prefix=app&max_waiters=7\
                   &max_backlog=8&max_dead_letters=9&fences=counter&fence_floor=10&counter_life_ms=90000000\
                   &allow_eviction=true";
        let config = parse(url).unwrap();
        let millis = Duration::from_millis;
        assert_eq!((config.connect_timeout, config.ping_interval), (millis(700), millis(900)));
        assert_eq!(config.protocol, Protocol::Resp3);
        let settings = config.settings;
        assert_eq!((settings.prefix.as_str(), settings.max_waiters), ("app", 7));
        assert_eq!((settings.max_backlog, settings.max_dead_letters), (Some(8), 9));
        assert_eq!((settings.fences, settings.fence_floor.first().get()), (Fences::Counter, 11));
        assert_eq!((settings.counter_life, settings.eviction), (millis(90_000_000), Eviction::Allow));
        let other = parse("redis://h?fences=clock&allow_eviction=false").unwrap().settings;
        assert_eq!((other.fences, other.eviction), (Fences::ClockSeeded, Eviction::Refuse));
        let sentinel = parse("redis+sentinel://u:p@h/main?sentinel_user=su&sentinel_pass=sp").unwrap();
        assert_eq!((sentinel.login, sentinel.sentinel_login), (login("u", "p"), login("su", "sp")));
    }

    #[test]
    fn schemes_with_two_s_ask_for_tls_and_no_others() {
        for (scheme, rest, tls) in [
            ("redis", "h", false),
            ("rediss", "h", true),
            ("redis+cluster", "h", false),
            ("rediss+cluster", "h/0", true),
            ("redis+sentinel", "h/main", false),
            ("rediss+sentinel", "h/main", true),
            ("redis+unix", "/s", false),
        ] {
            assert_eq!(parse(&format!("{scheme}://{rest}")).unwrap().tls.is_some(), tls, "{scheme}");
        }
        assert!(parse_nodes("rediss+cluster://h").is_err());
    }

    #[test]
    fn certificates_are_read_from_their_files() {
        let file = |name: &str| {
            let path = std::env::temp_dir().join(format!("tenure-{}-{name}", std::process::id()));
            std::fs::write(&path, name).unwrap();
            path
        };
        let [ca, cert, key] = ["ca", "cert", "key"].map(file);
        let url = format!("rediss://h?ca={}&cert={}&key={}", ca.display(), cert.display(), key.display());
        let tls = parse(&url).unwrap().tls.unwrap();
        let identity = tls.identity.unwrap();
        assert_eq!(tls.authorities.as_deref(), Some(&b"ca"[..]));
        assert_eq!((&*identity.certificates, &*identity.key), (&b"cert"[..], &b"key"[..]));
        let bare = parse("rediss://h").unwrap().tls.unwrap();
        assert!(bare.authorities.is_none() && bare.identity.is_none());
        [ca, cert, key].iter().for_each(|path| std::fs::remove_file(path).unwrap());
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
            ("s3cret", InvalidArgument, "scheme"),
            ("redis:s3cret", InvalidArgument, "redis://"),
            ("redis://:s3cret@", InvalidArgument, "no host"),
            ("redis://app:12?3s3cret@h", InvalidArgument, "%3F"),
            ("redis://app:12?prefix=s3cret@h", InvalidArgument, "%3F"),
            ("redis+sentinel://app:12/s3cret@h/main", InvalidArgument, "%2F"),
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
            ("redis://:s3cret@h?fence_floor=9223372036854775807", InvalidArgument, "fence_floor"),
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
