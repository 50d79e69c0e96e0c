//! Which backend is meant, and a client of it.

use std::time::Duration;

use tenure::driver::BackendUrl;
use tenure::{Client, ClientConfig, ErrorKind};

use crate::exit::{CONFIG, Failure, USAGE};

/// The variable that names the backend where no argument does: the URL of [`PREFIX`].
pub(crate) const VARIABLE: &str = "TENURE_URL";
/// The file of the user, on this machine.
const DEFAULT: &str = "sqlite:";
const TTL: Duration = Duration::from_secs(30);

/// The prefix of the variables that are settings of a client.
const PREFIX: &str = "TENURE";

/// The backend that is meant, and the settings of its clients.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    url: String,
    config: ClientConfig,
}

impl Backend {
    /// An argument comes before the variable, and that before the file of the user.
    ///
    /// # Errors
    ///
    /// A password in an argument: every user of the machine can read it. A variable whose value is refused.
    pub(crate) fn of(argument: Option<String>) -> Result<Self, Failure> {
        let mut config = ClientConfig::from_env(PREFIX).map_err(configuration)?;
        let variable = config.url.take();
        if argument.as_ref().is_some_and(|url| BackendUrl::parse(url).is_ok_and(|url| url.password().is_some())) {
            let text = format!(
                "every user of this machine can read the arguments of a program: put a URL with a password into {VARIABLE}"
            );
            return Err(Failure::new(USAGE, text));
        }
        let url = argument.or(variable).unwrap_or_else(|| DEFAULT.into());
        Ok(Self { url, config })
    }

    /// How long a lease lasts by default. A wrong URL is reported when it is used.
    pub(crate) fn ttl(&self) -> Duration {
        let of_url = || BackendUrl::parse(&self.url).and_then(|mut url| url.millis("ttl_ms")).ok().flatten();
        self.config.ttl.or_else(of_url).unwrap_or(TTL)
    }

    #[cfg(feature = "conformance")]
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether no other process reaches it.
    #[cfg(feature = "conformance")]
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.url.to_ascii_lowercase().starts_with("memory:")
    }

    /// The same backend for several clients of this process: a store in memory without a name would be another one for each.
    pub(crate) fn meeting(&self) -> Self {
        match self.url.split_once(':') {
            Some((scheme, rest))
                if scheme.eq_ignore_ascii_case("memory") && (rest.is_empty() || rest.starts_with('?')) =>
            {
                Self { url: format!("memory:of-tenure-{}{rest}", std::process::id()), config: self.config.clone() }
            }
            _ => self.clone(),
        }
    }

    /// A client that is connected.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        if let Some(failure) = self.left_out() {
            return Err(failure);
        }
        let mut config = self.config.clone();
        if BackendUrl::parse(&self.url).is_ok_and(|mut url| url.text("holders_per_grant").is_none()) {
            // One program wants one lock: this process has no other waiter to pass a grant on to.
            config.holders_per_grant = config.holders_per_grant.or(Some(0));
        }
        config.url = Some(self.url.clone());
        tenure::connect(config).await.map_err(configuration)
    }

    /// The refusal of a URL whose driver this program was built without.
    fn left_out(&self) -> Option<Failure> {
        let url = BackendUrl::parse(&self.url).ok()?;
        let features = missing_features(url.scheme());
        let what = format!("{} URLs", url.scheme());
        (!features.is_empty()).then(|| Failure::left_out(&what, &features.join(",")))
    }
}

/// The Cargo features that URLs of this scheme need and that this program was built without.
fn missing_features(scheme: &str) -> Vec<&'static str> {
    let (plain, is_quorum) = scheme.strip_prefix("redlock+").map_or((scheme, false), |plain| (plain, true));
    let (server, is_fred) = plain.strip_prefix("fred+").map_or((plain, false), |server| (server, true));
    let is_redis = server.starts_with("redis");
    let needed = [
        ("etcd", cfg!(feature = "etcd"), matches!(server, "etcd" | "etcds")),
        ("fred", cfg!(feature = "fred"), is_redis && is_fred),
        ("mysql", cfg!(feature = "mysql"), matches!(server, "mysql" | "mariadb")),
        ("postgres", cfg!(feature = "postgres"), matches!(server, "postgres" | "postgresql")),
        ("redis", cfg!(feature = "redis"), is_redis && !is_fred),
        ("redlock", cfg!(feature = "redlock"), is_redis && is_quorum),
        ("tls", cfg!(feature = "tls"), server.starts_with("rediss") || server == "etcds"),
    ];
    needed.iter().filter(|(_, built, wanted)| *wanted && !built).map(|(feature, ..)| *feature).collect()
}

/// An argument that the URL holds is configuration.
fn configuration(error: tenure::Error) -> Failure {
    let exit = match error.kind() {
        ErrorKind::InvalidArgument | ErrorKind::Unsupported => CONFIG,
        _ => return error.into(),
    };
    Failure::new(exit, format!("{error:#}"))
}
