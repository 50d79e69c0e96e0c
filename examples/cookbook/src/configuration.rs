//! A client whose settings come from the environment.

use std::time::Duration;

use tenure::{Client, ClientConfig, Result};

/// Connects to what the environment says, or to a store of this process: good enough to try things.
pub async fn from_environment() -> Result<Client> {
    let mut defaults = ClientConfig::new("memory:");
    defaults.ttl = Some(Duration::from_secs(10)); // this program's default: SHOP_LOCKS_TTL comes before it
    tenure::connect(ClientConfig::from_env("SHOP_LOCKS")?.or(defaults)).await
}
