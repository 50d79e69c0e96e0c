//! A server with the schema, and clients of it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Client;
use tenure_core::driver::{Backend, QueueAdmin};
use tenure_postgres::{Install, PostgresDriver, install_sql};
use tenure_testkit::{PostgresOptions, PostgresServer};

pub(crate) fn start(options: PostgresOptions) -> std::io::Result<PostgresServer> {
    let server = PostgresServer::start(options)?;
    server
        .script("postgres", &install_sql(Install { longest_ttl: Duration::from_secs(3_600), ..Install::default() }))?;
    Ok(server)
}

async fn backend(server: &PostgresServer) -> Backend {
    let url = format!("{}?connections=1", server.url("postgres"));
    PostgresDriver::connect(&url).await.unwrap().into()
}

/// The queues of another client of the server.
#[allow(dead_code, reason = "each test program uses a part")]
pub(crate) async fn queue(server: &PostgresServer) -> Arc<dyn QueueAdmin> {
    Arc::clone(backend(server).await.queue_admin().unwrap())
}

/// Another client of the server.
#[allow(dead_code, reason = "each test program uses a part")]
pub(crate) async fn client(server: &PostgresServer) -> Client {
    Client::new(backend(server).await)
}
