//! A client whose settings come from the environment.

use std::time::Duration;

use tenure::{Client, ClientConfig, Result};

/// Connects to the backend that the environment names, or else to a store of
/// this process, which is enough to try things.
pub async fn from_environment() -> Result<Client> {
    let mut defaults = ClientConfig::new("memory:");
    // The default of this program. SHOP_LOCKS_TTL takes precedence.
    defaults.ttl = Some(Duration::from_secs(10));
    tenure::connect(ClientConfig::from_env("SHOP_LOCKS")?.or(defaults)).await
}
