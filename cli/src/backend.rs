//! Which backend is meant, and a client of it.

use std::time::Duration;

use tenure::driver::BackendUrl;
use tenure::{Client, ErrorKind};

use crate::exit::{CONFIG, Failure, USAGE};

/// The variable that names the backend where no argument does.
pub(crate) const VARIABLE: &str = "TENURE_URL";
/// The file of the user, on this machine.
const DEFAULT: &str = "sqlite:";
const TTL: Duration = Duration::from_secs(30);

/// The backend that is meant.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    url: String,
}

impl Backend {
    /// An argument comes before the variable, and that before the file of the user.
    ///
    /// # Errors
    ///
    /// A password in an argument: every user of the machine can read it.
    pub(crate) fn of(argument: Option<String>) -> Result<Self, Failure> {
        if let Some(url) = argument {
            if BackendUrl::parse(&url).is_ok_and(|url| url.password().is_some()) {
                let text = format!(
                    "every user of this machine can read the arguments of a program: put a URL with a password into {VARIABLE}"
                );
                return Err(Failure::new(USAGE, text));
            }
            return Ok(Self { url });
        }
        match std::env::var(VARIABLE) {
            Ok(url) if url.is_empty() => Ok(Self { url: DEFAULT.into() }),
            Ok(url) => Ok(Self { url }),
            Err(std::env::VarError::NotPresent) => Ok(Self { url: DEFAULT.into() }),
            Err(std::env::VarError::NotUnicode(_)) => Err(Failure::new(CONFIG, format!("{VARIABLE} is no UTF-8"))),
        }
    }

    /// How long a lease lasts unless told otherwise. What is wrong with the URL is told when it is used.
    pub(crate) fn ttl(&self) -> Duration {
        let told = BackendUrl::parse(&self.url).and_then(|mut url| url.millis("ttl_ms"));
        told.ok().flatten().unwrap_or(TTL)
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
                Self { url: format!("memory:of-tenure-{}{rest}", std::process::id()) }
            }
            _ => self.clone(),
        }
    }

    /// A client that is connected.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let builder = tenure::connect_builder(&self.url).await.map_err(configuration)?;
        // One program wants one lock: there is nobody in this process to pass a grant on to.
        builder.holders_per_grant(0).build().map_err(configuration)
    }
}

/// An argument that the URL holds is configuration.
fn configuration(error: tenure::Error) -> Failure {
    let exit = match error.kind() {
        ErrorKind::InvalidArgument | ErrorKind::Unsupported => CONFIG,
        _ => return error.into(),
    };
    Failure::new(exit, format!("{error:#}"))
}
