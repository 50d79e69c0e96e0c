//! `TENURE_URL=redis://127.0.0.1 cargo run -p web-example`, and `curl -X PUT -d paid http://127.0.0.1:3000/orders/42`.

use std::error::Error;

use tenure::ClientConfig;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = ClientConfig::from_env("TENURE")?.or("memory:".into());
    let client = tenure::connect(config).await?;
    let address = std::env::var("LISTEN").unwrap_or_else(|_| String::from("127.0.0.1:3000"));
    let listener = TcpListener::bind(&address).await?;
    eprintln!("listening on {address}; locks: {}", client.driver());
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    web_example::run(listener, client, stop).await?;
    Ok(())
}
