//! The settings of a client, each in one line of a table.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use tenure_core::driver::{BackendUrl, Ttl};
use tenure_core::{ClientBuilder, Confirmation, DriftBound, Error, ErrorKind, Result};

use super::value::{Given, Read, Spans};

/// The URL and all settings of a client: a value that a program fills in, reads from its environment
/// ([`from_env`](Self::from_env)), or, with the feature `serde`, from a file. [`connect`](crate::connect) takes one.
///
/// `None` means *not set*. From the strongest to the weakest:
///
/// 1. the setters of the [`ClientBuilder`](crate::ClientBuilder), after [`connect_builder`](crate::connect_builder);
/// 2. the fields of this configuration. Several are put in order by [`or`](Self::or): usually the environment before a file;
/// 3. the parameters of the URL;
/// 4. the defaults.
///
/// `docs/configuration.md` is the table of all fields, parameters, variables and defaults. `metric_names` (feature `metrics`) is set by the
/// builder alone.
///
/// In a file, a time is text with a unit: `ttl = "1m30s"`. A bare number is ambiguous, so it is refused, and so is an
/// unknown field. A configuration is read and not written, since its URL may hold a password; `Debug` prints only the
/// scheme of the URL.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tenure::ClientConfig;
///
/// // SHOP_LOCKS_URL, SHOP_LOCKS_TTL=1m30s, …
/// let mut config = ClientConfig::from_env("SHOP_LOCKS")?;
/// config.op_timeout = Some(Duration::from_millis(500));
/// let client = tenure::connect(config.or(ClientConfig::new("memory:"))).await?;
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The URL of the backend, as [`connect`](crate::connect) reads it. It may hold a password.
    pub url: Option<String>,
    /// [`ClientBuilder::ttl`](crate::ClientBuilder::ttl).
    pub ttl: Option<Duration>,
    /// [`ClientBuilder::op_timeout`](crate::ClientBuilder::op_timeout).
    pub op_timeout: Option<Duration>,
    /// [`ClientBuilder::presence`](crate::ClientBuilder::presence).
    pub presence: Option<Duration>,
    /// [`ClientBuilder::parked_turn`](crate::ClientBuilder::parked_turn).
    pub parked_turn: Option<Duration>,
    /// The rate of [`ClientBuilder::drift`](crate::ClientBuilder::drift): 0.01 is 1 %.
    pub drift_rate: Option<f64>,
    /// The fixed part of [`ClientBuilder::drift`](crate::ClientBuilder::drift).
    pub drift_fixed: Option<Duration>,
    /// [`ClientBuilder::max_holds`](crate::ClientBuilder::max_holds).
    pub max_holds: Option<usize>,
    /// [`ClientBuilder::holders_per_grant`](crate::ClientBuilder::holders_per_grant).
    pub holders_per_grant: Option<u32>,
    /// [`ClientBuilder::confirmation`](crate::ClientBuilder::confirmation).
    pub confirmation: Option<Confirmation>,
}

/// One setting: its name and the parser of its value.
pub(super) struct Setting {
    /// The field; in capitals and after a prefix, the variable.
    pub(super) field: &'static str,
    /// The parameter of a URL.
    parameter: &'static str,
    read: fn(&mut ClientConfig, Given<'_>) -> Read<()>,
}

impl Setting {
    pub(super) fn read(&self, config: &mut ClientConfig, text: &str) -> Read<()> {
        (self.read)(config, Given::new(text, Spans::WithUnit))
    }
}

const fn setting(
    field: &'static str,
    parameter: &'static str,
    read: fn(&mut ClientConfig, Given<'_>) -> Read<()>,
) -> Setting {
    Setting { field, parameter, read }
}

/// Every setting but the URL.
pub(super) const SETTINGS: [Setting; 9] = [
    setting("ttl", "ttl_ms", |config, given| {
        config.ttl = Some(given.span(Ttl::MIN..=Ttl::MAX)?);
        Ok(())
    }),
    setting("op_timeout", "op_timeout_ms", |config, given| {
        config.op_timeout = Some(given.span(ClientBuilder::OP_TIMEOUT)?);
        Ok(())
    }),
    setting("presence", "presence_ms", |config, given| {
        config.presence = Some(given.span(ClientBuilder::PRESENCE)?);
        Ok(())
    }),
    setting("parked_turn", "parked_turn_ms", |config, given| {
        config.parked_turn = Some(given.span(Ttl::MIN..=Ttl::MAX)?);
        Ok(())
    }),
    setting("drift_rate", "drift_rate", |config, given| {
        config.drift_rate = Some(given.number(0.0..=DriftBound::MAX_RATE)?);
        Ok(())
    }),
    setting("drift_fixed", "drift_fixed_ms", |config, given| {
        config.drift_fixed = Some(given.span(Duration::ZERO..=DriftBound::MAX_FIXED)?);
        Ok(())
    }),
    setting("max_holds", "max_holds", |config, given| {
        config.max_holds = Some(given.number(1..=usize::MAX)?);
        Ok(())
    }),
    setting("holders_per_grant", "holders_per_grant", |config, given| {
        config.holders_per_grant = Some(given.number(0..=ClientBuilder::MAX_HOLDERS_PER_GRANT)?);
        Ok(())
    }),
    setting("confirmation", "confirmation", |config, given| {
        config.confirmation = Some(given.word(CONFIRMATIONS)?);
        Ok(())
    }),
];

const CONFIRMATIONS: &[(&str, Confirmation)] =
    &[("by_runtime", Confirmation::ByRuntime), ("first", Confirmation::First), ("behind", Confirmation::Behind)];

impl ClientConfig {
    /// Makes a configuration with this URL only.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::default() }
    }

    /// Reads the settings from the environment of this process: the variable of a field is its name in capitals after
    /// `prefix` and an underscore, such as `TENURE_URL` and `TENURE_OP_TIMEOUT=500ms` for the prefix `TENURE`.
    ///
    /// An empty variable counts as absent. Variables of other names are not read: a misspelt one changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a value that cannot be read or is out of
    /// range: it names the variable, the problem and the allowed values, and does not repeat the value. Also for a
    /// prefix that is not made of letters, digits and underscores.
    pub fn from_env(prefix: &str) -> Result<Self> {
        Self::from_variables(prefix, |name| std::env::var_os(name))
    }

    /// Reads as [`from_env`](Self::from_env), with variables from `value`: for tests, and for settings that are kept
    /// elsewhere.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::ClientConfig;
    ///
    /// let ttl = |value: &'static str| {
    ///     move |name: &str| (name == "APP_TTL").then(|| value.into())
    /// };
    /// let config = ClientConfig::from_variables("APP", ttl("1m30s"))?;
    /// assert_eq!(config.ttl, Some(Duration::from_secs(90)));
    ///
    /// let error = ClientConfig::from_variables("APP", ttl("90")).unwrap_err();
    /// assert!(error.message().starts_with("the variable APP_TTL has no unit"));
    /// # Ok::<(), tenure::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_env`](Self::from_env).
    pub fn from_variables(prefix: &str, value: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(invalid("the prefix of the variables is not made of letters, digits and underscores".into()));
        }
        let reported = |field: &str| {
            let name = format!("{prefix}_{}", field.to_ascii_uppercase());
            let Some(text) = value(&name).filter(|text| !text.is_empty()) else { return Ok(None) };
            match text.into_string() {
                Ok(text) => Ok(Some((name, text))),
                Err(_) => Err(invalid(format!("the variable {name} is not UTF-8"))),
            }
        };
        let mut config = Self { url: reported("url")?.map(|(_, url)| url), ..Self::default() };
        for setting in &SETTINGS {
            if let Some((name, text)) = reported(setting.field)? {
                let read = setting.read(&mut config, &text);
                read.map_err(|wrong| invalid(format!("the variable {name} {wrong}")))?;
            }
        }
        Ok(config)
    }

    /// Returns these settings; a setting that is not set here is taken from `other`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure::ClientConfig;
    /// let file = ClientConfig::new("redis://cache/?ttl_ms=10000");
    /// // A variable takes precedence over the file.
    /// let config = ClientConfig::from_env("SHOP_LOCKS")?.or(file);
    /// # assert!(config.url.is_some());
    /// # Ok::<(), tenure::Error>(())
    /// ```
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            url: self.url.or(other.url),
            ttl: self.ttl.or(other.ttl),
            op_timeout: self.op_timeout.or(other.op_timeout),
            presence: self.presence.or(other.presence),
            parked_turn: self.parked_turn.or(other.parked_turn),
            drift_rate: self.drift_rate.or(other.drift_rate),
            drift_fixed: self.drift_fixed.or(other.drift_fixed),
            max_holds: self.max_holds.or(other.max_holds),
            holders_per_grant: self.holders_per_grant.or(other.holders_per_grant),
            confirmation: self.confirmation.or(other.confirmation),
        }
    }

    /// Applies the settings of this configuration to a builder, for a backend that was made without a URL. The URL is
    /// not used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a drift out of range. The other limits are
    /// checked by [`ClientBuilder::build`](crate::ClientBuilder::build).
    pub fn apply(&self, mut builder: ClientBuilder) -> Result<ClientBuilder> {
        if let Some(ttl) = self.ttl {
            builder = builder.ttl(ttl);
        }
        if let Some(limit) = self.op_timeout {
            builder = builder.op_timeout(limit);
        }
        if let Some(presence) = self.presence {
            builder = builder.presence(presence);
        }
        if let Some(most) = self.parked_turn {
            builder = builder.parked_turn(most);
        }
        if self.drift_rate.is_some() || self.drift_fixed.is_some() {
            let rate = self.drift_rate.unwrap_or(DriftBound::DEFAULT.rate());
            let fixed = self.drift_fixed.unwrap_or(DriftBound::DEFAULT.fixed());
            builder = builder.drift(DriftBound::new(rate, fixed)?);
        }
        if let Some(most) = self.max_holds {
            builder = builder.max_holds(most);
        }
        if let Some(most) = self.holders_per_grant {
            builder = builder.holders_per_grant(most);
        }
        if let Some(when) = self.confirmation {
            builder = builder.confirmation(when);
        }
        Ok(builder)
    }
}

/// Removes the settings of a client from a URL and returns them.
///
/// # Errors
///
/// For a value that cannot be read or is out of range: names the parameter and the allowed values.
pub(crate) fn from_url(url: &mut BackendUrl) -> Result<ClientConfig> {
    let mut config = ClientConfig::default();
    for setting in &SETTINGS {
        if let Some(text) = url.text(setting.parameter) {
            let read = (setting.read)(&mut config, Given::new(&text, Spans::Millis));
            read.map_err(|wrong| invalid(format!("the parameter {} {wrong}", setting.parameter)))?;
        }
    }
    Ok(config)
}

/// Returns a parameter of this URL that is a setting of the client.
pub(crate) fn of_the_client(url: &mut BackendUrl) -> Option<&'static str> {
    SETTINGS.iter().map(|setting| setting.parameter).find(|parameter| url.text(parameter).is_some())
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

impl From<&str> for ClientConfig {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for ClientConfig {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

impl From<&String> for ClientConfig {
    fn from(url: &String) -> Self {
        Self::new(url)
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, ttl, op_timeout, presence, parked_turn, .. } = self;
        let Self { drift_rate, drift_fixed, max_holds, holders_per_grant, confirmation, .. } = self;
        let url = url.as_deref().map(|url| BackendUrl::parse(url).ok());
        f.debug_struct("ClientConfig")
            .field("url", &url)
            .field("ttl", ttl)
            .field("op_timeout", op_timeout)
            .field("presence", presence)
            .field("parked_turn", parked_turn)
            .field("drift_rate", drift_rate)
            .field("drift_fixed", drift_fixed)
            .field("max_holds", max_holds)
            .field("holders_per_grant", holders_per_grant)
            .field("confirmation", confirmation)
            .finish()
    }
}
