//! The configuration of the driver.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::ConnectOptions;
use tenure_core::driver::{BackendUrl, host_and_port};
use tenure_core::{Error, ErrorKind, FenceFloor, Result};

/// Where etcd serves its clients.
pub(crate) const DEFAULT_PORT: u16 = 2379;

/// Address of etcd and settings of the driver. Parsed from a URL, or built from endpoints.
///
/// ```
/// use tenure_etcd::EtcdConfig;
///
/// let config: EtcdConfig = "etcd://app:secret@10.0.0.1:2379,10.0.0.2,10.0.0.3/?prefix=shop".parse()?;
/// assert_eq!(config, EtcdConfig::new(["10.0.0.1:2379", "10.0.0.2", "10.0.0.3"])?.user("app", "secret").prefix("shop")?);
/// assert!("etcd://10.0.0.1/?prefx=shop".parse::<EtcdConfig>().is_err());
/// # Ok::<(), tenure_core::Error>(())
/// ```
///
/// | part of the URL | what | default |
/// |---|---|---|
/// | scheme | `etcd`, or `etcds` for TLS (feature `tls`) | |
/// | `user:password@` | credentials; percent-encode characters that a URL would misread | none |
/// | `host:port,host:port` | members of one cluster, tried in turn | port 2379 |
/// | `prefix` | the beginning of all keys | `tenure` |
/// | `max_waiters` | the largest number of places in the queue of a lock | 10000 |
/// | `max_depth` | the deepest re-entry | 1000 |
/// | `fence_floor` | the lower bound of all fences, in addition to the clock of the first grant | 0 |
/// | `clock_error_ms` | the largest difference between the clocks of the clients of a delay queue | 1000 |
/// | `max_dead_letters` | the largest number of dead letters of a queue | 100000 |
/// | `connect_timeout_ms` | the time limit of one attempt to connect | 1000 |
/// | `ca`, `cert`, `key`, `domain` | `etcds` only: PEM files, and the name in the server's certificate | |
#[derive(Clone, PartialEq, Eq)]
#[must_use = "a configuration does nothing until a driver is made of it"]
pub struct EtcdConfig {
    pub(crate) members: Members,
    pub(crate) prefix: String,
    pub(crate) user: Option<(String, String)>,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_waiters: u32,
    pub(crate) max_depth: u32,
    pub(crate) fence_floor: FenceFloor,
    pub(crate) clock_error: Duration,
    pub(crate) max_dead_letters: u64,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<EtcdTls>,
}

/// How the members of the cluster are reached.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Members {
    /// Through the driver's own connections, one at a time.
    Endpoints(Vec<String>),
    /// Through a client that the caller made.
    Through(Given),
}

/// Whether requests are of a user who signs in, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignsIn {
    Yes,
    No,
    /// The given client, or the certificate, decides.
    Unknown,
}

/// A client that the caller made and configured.
#[derive(Clone)]
pub(crate) struct Given(pub(crate) Arc<etcd_client::Client>);

impl PartialEq for Given {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Given {}

/// TLS settings for etcd. All files are PEM.
#[cfg(feature = "tls")]
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdTls {
    /// The certificate of the authority that signs the servers' certificates. There are no built-in roots.
    pub ca: Option<Vec<u8>>,
    /// The client's own certificate and private key, for mutual TLS.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name to expect in the servers' certificates, if it is not the host's.
    pub domain: Option<String>,
}

#[cfg(feature = "tls")]
impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .field("domain", &self.domain)
            .finish()
    }
}

pub(crate) fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text.into())
}

impl EtcdConfig {
    /// The largest [`max_waiters`](Self::max_waiters).
    pub const MOST_WAITERS: u32 = 100_000;
    /// The largest [`max_depth`](Self::max_depth): with it, the hold of one key stays far below etcd's limit on
    /// requests.
    pub const DEEPEST: u32 = 20_000;

    /// The members of one cluster, as `host` or `host:port`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when there is none, or one is not a host with an optional port.
    pub fn new<E: AsRef<str>>(endpoints: impl IntoIterator<Item = E>) -> Result<Self> {
        let read = |text: E| host_and_port(text.as_ref(), DEFAULT_PORT).map(endpoint);
        let endpoints = endpoints.into_iter().map(read).collect::<Result<Vec<_>>>()?;
        if endpoints.is_empty() {
            return Err(invalid("an etcd configuration needs an endpoint"));
        }
        Ok(Self::of(Members::Endpoints(endpoints)))
    }

    /// A cluster that is reached through your own client (version 0.21 of the crate `etcd-client`); other code may
    /// continue to use the client. All requests, streams and watches of the driver go through it. `user`, `tls` and the
    /// endpoints are those of the client; these settings of the configuration are not used.
    ///
    /// The client library sends each request once; it repeats a request after a new sign-in only if the request was
    /// refused before. The driver cannot see how the client was set up, and does not check it. Set it up with:
    ///
    /// * `with_require_leader(true)`: otherwise a watch through a member that is cut off from the others stays silent,
    ///   and waiters ask again only some time later;
    /// * `with_keep_alive(…, …)`: otherwise a connection that failed silently is noticed late;
    /// * `with_auto_token_refresh(true)` if users have passwords;
    /// * one endpoint, or several that are all healthy: the library spreads requests over all of them. With its own
    ///   list, the driver uses one member at a time and skips those that do not answer; it cannot do so here.
    ///
    /// ```no_run
    /// use tenure_etcd::{EtcdConfig, EtcdDriver};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = etcd_client::ConnectOptions::new().with_require_leader(true);
    /// let etcd = etcd_client::Client::connect(["127.0.0.1:2379"], Some(options)).await?;
    /// let driver = EtcdDriver::connect_with(EtcdConfig::on(etcd.clone()).prefix("shop")?).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on(client: etcd_client::Client) -> Self {
        Self::of(Members::Through(Given(Arc::new(client))))
    }

    fn of(members: Members) -> Self {
        Self {
            members,
            prefix: "tenure".into(),
            user: None,
            connect_timeout: Duration::from_secs(1),
            max_waiters: 10_000,
            max_depth: 1_000,
            fence_floor: FenceFloor::NONE,
            clock_error: Duration::from_secs(1),
            max_dead_letters: 100_000,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The beginning of all keys: 1 to 128 of `A-Z a-z 0-9 _ . - /`, not beginning or ending with a slash. Keys spell a
    /// slash `%2F`. Default: `tenure`. Clients with different prefixes do not see each other, even if one prefix begins
    /// with the other.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for any other prefix.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte);
        let slashed = prefix.starts_with('/') || prefix.ends_with('/');
        if prefix.is_empty() || prefix.len() > 128 || slashed || !prefix.bytes().all(fits) {
            let text = format!("the prefix \"{}\" is not 1 to 128 of A-Z a-z 0-9 _ . - /", prefix.escape_debug());
            return Err(invalid(text));
        }
        self.prefix = prefix;
        Ok(self)
    }

    /// Signs in with a name and a password. The driver renews expired tokens. Default: no sign-in.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// The time limit of one attempt to connect, and of the first answer of each member to
    /// [`EtcdDriver::connect`](crate::EtcdDriver::connect). Default: 1 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// The largest number of waiters in the queue of one lock; one more is refused with [`ErrorKind::LimitReached`].
    /// Default: 10,000.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero or more than [`EtcdConfig::MOST_WAITERS`].
    pub fn max_waiters(mut self, most: u32) -> Result<Self> {
        if most == 0 || most > Self::MOST_WAITERS {
            return Err(invalid(format!("max_waiters of {most} is outside 1 to {}", Self::MOST_WAITERS)));
        }
        self.max_waiters = most;
        Ok(self)
    }

    /// The deepest re-entry; one more is refused with [`ErrorKind::LimitReached`]. Default: 1,000.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero or more than [`EtcdConfig::DEEPEST`].
    pub fn max_depth(mut self, most: u32) -> Result<Self> {
        if most == 0 || most > Self::DEEPEST {
            return Err(invalid(format!("max_depth of {most} is outside 1 to {}", Self::DEEPEST)));
        }
        self.max_depth = most;
        Ok(self)
    }

    /// The lower bound of all fences of locks and of deliveries under the prefix, whichever client grants. It applies
    /// from the first grant of a client with this setting. Use it for names that had greater fences before, under
    /// another backend or prefix. Default: none; but fences are always greater than the wall clock, in microseconds
    /// since 1970, 0.1 s before the first grant of each client.
    pub fn fence_floor(mut self, floor: FenceFloor) -> Self {
        self.fence_floor = floor;
        self
    }

    /// The largest difference between the wall clocks of any two clients of a delay queue; etcd offers no clock. A
    /// message is never delivered earlier than this before its due time, and a lease counts as ended this much after
    /// its end. Default: 1 s.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is longer than an hour.
    pub fn clock_error(mut self, most: Duration) -> Result<Self> {
        if most > Duration::from_secs(3_600) {
            return Err(invalid(format!("clock_error of {most:?} is more than an hour")));
        }
        self.clock_error = most;
        Ok(self)
    }

    /// The largest number of dead letters of a queue; while they are full, further messages wait. Clients that move
    /// messages there at the same time may exceed the limit by a batch each. Default: 100,000.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero.
    pub fn max_dead_letters(mut self, most: u64) -> Result<Self> {
        if most == 0 {
            return Err(invalid("max_dead_letters must not be zero"));
        }
        self.max_dead_letters = most;
        Ok(self)
    }

    /// Uses TLS. Default: plain text.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: EtcdTls) -> Self {
        self.tls = Some(tls);
        self
    }

    pub(crate) fn signs_in(&self) -> SignsIn {
        #[cfg(feature = "tls")]
        let certified = self.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        #[cfg(not(feature = "tls"))]
        let certified = false;
        match (&self.members, &self.user) {
            (Members::Endpoints(_), Some(_)) => SignsIn::Yes,
            (Members::Endpoints(_), None) if !certified => SignsIn::No,
            _ => SignsIn::Unknown,
        }
    }

    /// The endpoints as the client library wants them.
    pub(crate) fn urls(&self, endpoints: &[String]) -> Vec<String> {
        #[cfg(feature = "tls")]
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        #[cfg(not(feature = "tls"))]
        let scheme = "http";
        endpoints.iter().map(|endpoint| format!("{scheme}://{endpoint}")).collect()
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        // etcd closes connections that ping more often than every 5 s, or without an open stream.
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.connect_timeout)
            .with_keep_alive(Duration::from_secs(6), Duration::from_secs(3))
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &self.user {
            options = options.with_user(name, password);
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            options = options.with_tls(tls.options());
        }
        options
    }
}

#[cfg(feature = "tls")]
impl EtcdTls {
    fn options(&self) -> etcd_client::TlsOptions {
        let mut options = etcd_client::TlsOptions::new();
        if let Some(ca) = &self.ca {
            options = options.ca_certificate(etcd_client::Certificate::from_pem(ca));
        }
        if let Some((certificate, key)) = &self.identity {
            options = options.identity(etcd_client::Identity::from_pem(certificate, key));
        }
        if let Some(domain) = &self.domain {
            options = options.domain_name(domain);
        }
        options
    }
}

impl FromStr for EtcdConfig {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::read(BackendUrl::parse(url)?)
    }
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("EtcdConfig");
        match &self.members {
            Members::Endpoints(endpoints) => text.field("endpoints", endpoints),
            Members::Through(_) => text.field("through", &"a given client"),
        };
        text.field("prefix", &self.prefix);
        text.field("user", &self.user.as_ref().map(|(name, _)| name));
        #[cfg(feature = "tls")]
        text.field("tls", &self.tls);
        text.finish_non_exhaustive()
    }
}

/// A host and a port as etcd's client wants them.
pub(crate) fn endpoint((host, port): (String, u16)) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> EtcdConfig {
        EtcdConfig::new(["a", "b:1", "[::1]"]).unwrap()
    }

    fn is_refused<T: fmt::Debug>(result: Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::InvalidArgument)
    }

    #[test]
    fn each_setting_has_its_bounds_and_is_kept() {
        for (most, fits) in
            [(0, false), (1, true), (EtcdConfig::MOST_WAITERS, true), (EtcdConfig::MOST_WAITERS + 1, false)]
        {
            let set = config().max_waiters(most);
            assert!(
                fits && set.as_ref().is_ok_and(|set| set.max_waiters == most) || !fits && is_refused(set),
                "{most}"
            );
        }
        for (most, fits) in [(0, false), (1, true), (EtcdConfig::DEEPEST, true), (EtcdConfig::DEEPEST + 1, false)] {
            let set = config().max_depth(most);
            assert!(fits && set.as_ref().is_ok_and(|set| set.max_depth == most) || !fits && is_refused(set), "{most}");
        }
        let hour = Duration::from_secs(3_600);
        assert_eq!(config().clock_error(hour).unwrap().clock_error, hour);
        assert!(is_refused(config().clock_error(hour + Duration::from_nanos(1))));
        assert_eq!(config().max_dead_letters(1).unwrap().max_dead_letters, 1);
        assert!(is_refused(config().max_dead_letters(0)));
        let floor = FenceFloor::new(54).unwrap();
        let set = config().fence_floor(floor).connect_timeout(hour).user("u", "p");
        assert_eq!(
            (set.fence_floor, set.connect_timeout, set.user.clone()),
            (floor, hour, Some(("u".into(), "p".into())))
        );
        assert!(is_refused(EtcdConfig::new(Vec::<String>::new())), "there is no endpoint");
    }

    #[test]
    fn a_prefix_is_checked() {
        for fits in ["x", "A-Z_a.z/09", &"x".repeat(128)] {
            assert_eq!(config().prefix(fits).unwrap().prefix, fits);
        }
        for bad in ["", "/x", "x/", "/", "x y", "é", "%x", &"x".repeat(129)] {
            assert!(is_refused(config().prefix(bad)), "{bad}");
        }
    }

    #[test]
    fn endpoints_are_urls_of_the_scheme_that_they_speak() {
        let endpoints = ["a:2379", "b:1", "[::1]:2379"].map(String::from);
        assert!(config().members == Members::Endpoints(endpoints.clone().into()));
        assert_eq!(config().urls(&endpoints), ["http://a:2379", "http://b:1", "http://[::1]:2379"]);
        #[cfg(feature = "tls")]
        assert_eq!(config().tls(EtcdTls::default()).urls(&endpoints)[1], "https://b:1");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn who_signs_in_is_known_without_a_certificate_of_ones_own() {
        let certified = || EtcdTls { identity: Some((Vec::new(), Vec::new())), ..EtcdTls::default() };
        assert_eq!(config().signs_in(), SignsIn::No);
        assert_eq!(config().tls(EtcdTls::default()).signs_in(), SignsIn::No);
        assert_eq!(config().tls(certified()).signs_in(), SignsIn::Unknown);
        assert_eq!(config().user("u", "p").signs_in(), SignsIn::Yes);
        assert_eq!(config().tls(certified()).user("u", "p").signs_in(), SignsIn::Yes);
    }

    #[tokio::test]
    async fn a_given_client_is_itself_alone() {
        let client = async || etcd_client::Client::connect(["127.0.0.1:1"], None).await.unwrap();
        let (one, other) = (EtcdConfig::on(client().await), EtcdConfig::on(client().await));
        assert!(one == one.clone() && one != other);
        assert_eq!(one.user("u", "p").signs_in(), SignsIn::Unknown);
    }
}
