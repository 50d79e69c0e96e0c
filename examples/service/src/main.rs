//! `cargo run -p service-example`, then `curl -X POST 127.0.0.1:8080/orders/42/ship` and `curl 127.0.0.1:8080/metrics`. `SERVICE_URL` is
//! the backend's (default: `memory:`), `SERVICE_ADDRESS` where it listens.

use std::env;
use std::error::Error;

use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let setting = |name, default: &str| {
        env::var(name).unwrap_or_else(|_| default.to_owned())
    };
    let metrics = service_example::record()?;
    let client = tenure::connect(&setting("SERVICE_URL", "memory:")).await?;
    let listener =
        TcpListener::bind(setting("SERVICE_ADDRESS", "127.0.0.1:8080")).await?;
    service_example::serve(listener, client, metrics).await?;
    Ok(())
}
