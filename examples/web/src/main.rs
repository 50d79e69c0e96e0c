//! `TENURE_URL=redis://127.0.0.1 cargo run -p web-example`, and `curl -X PUT -d paid http://127.0.0.1:3000/orders/42`.

use std::error::Error;
use std::sync::Arc;

use tenure::ClientConfig;
use tokio::net::TcpListener;
use web_example::stopping::{self, Grace};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stop = stopping::asked_to_stop()?;
    let config = ClientConfig::from_env("TENURE")?.or("memory:".into());
    let client = tenure::connect(config).await?;
    let address = std::env::var("LISTEN")
        .unwrap_or_else(|_| String::from("127.0.0.1:3000"));
    let listener = TcpListener::bind(&address).await?;
    eprintln!(
        "listening on {}; locks: {}",
        listener.local_addr()?,
        client.driver()
    );
    let labels = client.queue("labels")?;
    let worker = web_example::printer(&labels)?;
    let routes = web_example::router(client.clone(), Arc::default(), labels);
    stopping::run(listener, routes, worker, client, Grace::default(), stop)
        .await?;
    Ok(())
}
