//! A web service with two endpoints that work under locks, a worker for its queue, and `/metrics` for Prometheus.
//!
//! `dashboard.json` is for Grafana: import it, and choose the Prometheus that scrapes this service.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use metrics_exporter_prometheus::{
    BuildError, PrometheusBuilder, PrometheusHandle,
};
use tenure::queue::{Job, Queue, Worker};
use tenure::{Client, Error};
use tokio::net::TcpListener;

/// Where the buckets of all histograms end, in seconds: from what a local hand-over takes to what a slow job takes.
const BUCKETS: [f64; 12] = [
    0.000_01, 0.000_1, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
    120.0,
];

/// Installs the recorder. Before the first client is built: a client registers its series once. With the names that Prometheus
/// recommends, `_total` for counters and the unit of histograms, which the dashboard asks for.
///
/// # Errors
///
/// There is a recorder already.
pub fn record() -> Result<PrometheusHandle, BuildError> {
    PrometheusBuilder::new()
        .with_recommended_naming(true)
        .set_buckets(&BUCKETS)?
        .install_recorder()
}

#[derive(Clone)]
struct App {
    client: Client,
    mails: Queue<String>,
    metrics: PrometheusHandle,
}

/// Serves until the future is dropped.
///
/// # Errors
///
/// The listener failed, or the backend has no queues.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    metrics: PrometheusHandle,
) -> Result<(), std::io::Error> {
    let mails =
        client.queue::<String>("mails").map_err(std::io::Error::other)?;
    let _worker = worker(&mails).map_err(std::io::Error::other)?;
    let upkeep = metrics.clone();
    let service = Router::new()
        .route("/orders/{id}/ship", post(ship))
        .route("/report", post(report))
        .route(
            "/metrics",
            get(async |State(app): State<App>| app.metrics.render()),
        )
        .with_state(App { client, mails, metrics });
    tokio::select! {
        served = axum::serve(listener, service) => served,
        () = keep_small(upkeep) => Ok(()),
    }
}

/// The recorder gathers the values of histograms until an upkeep sorts them into buckets.
async fn keep_small(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        metrics.run_upkeep();
    }
}

/// Sends the mails. It asks for the depth of its queue every second; without that, no metric would show it.
fn worker(mails: &Queue<String>) -> Result<Worker, Error> {
    let send = async |mail: Job<String>| {
        tokio::time::sleep(Duration::from_millis(5)).await; // where it would be sent
        if mail.value.is_empty() {
            Err("a mail without a text")
        } else {
            Ok(())
        }
    };
    mails
        .worker()
        .concurrency(4)
        .measure_depth(Duration::from_secs(1))
        .start(send)
}

/// An order is shipped by one request at a time; others wait up to two seconds for their turn.
async fn ship(
    State(app): State<App>,
    Path(id): Path<u64>,
) -> Result<String, (StatusCode, String)> {
    let lock = app.client.lock(format!("orders/{id}"));
    let guard = lock
        .acquire_within(Duration::from_secs(2))
        .await
        .map_err(unavailable)?;
    let fence = guard.fence();
    let shipped = guard.run(tokio::time::sleep(Duration::from_millis(5))).await; // where it would be shipped
    shipped.map_err(unavailable)?;
    app.mails
        .push(&format!("order {id} is on its way"))
        .await
        .map_err(unavailable)?;
    guard.release().await.map_err(unavailable)?;
    Ok(format!("shipped, with fence {fence}\n"))
}

/// A report is made by one request; others learn that one is being made.
async fn report(
    State(app): State<App>,
) -> Result<&'static str, (StatusCode, String)> {
    let Some(guard) =
        app.client.lock("report").try_acquire().await.map_err(unavailable)?
    else {
        return Err((StatusCode::CONFLICT, "a report is being made\n".into()));
    };
    tokio::time::sleep(Duration::from_millis(20)).await; // where it would be made
    guard.release().await.map_err(unavailable)?;
    Ok("made\n")
}

fn unavailable(error: Error) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
}
