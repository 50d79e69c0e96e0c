//! A web service in which each order is changed by one request at a time, whichever instance serves it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Router, serve};
use tenure::doctor::Concern;
use tenure::tower::{LockLayer, Refused};
use tenure::{Client, ErrorKind, FencingToken, Result};
use tokio::net::TcpListener;
use tokio::time::timeout;

mod orders;
pub use orders::Orders;

/// How long a shipment waits for its order: longer than a request to the backend may take (`op_timeout`), so that an outage is not
/// mistaken for an order that is taken.
pub const PATIENCE: Duration = Duration::from_millis(1500);
/// How long a check of health may take: less than whoever asks for it waits.
pub const CHECKUP: Duration = Duration::from_millis(500);

/// The routes of the service.
pub fn router(client: Client, orders: Arc<Orders>) -> Router {
    // A change of an order that is being changed is refused at once; a shipment waits a moment.
    let change = put(change).layer(locked(&client, Duration::ZERO)).layer(from_fn(order));
    let ship = post(ship).layer(locked(&client, PATIENCE)).layer(from_fn(order));
    let checks = Router::new().route("/health", get(health)).route("/ready", get(ready)).with_state(client);
    let served = Router::new().route("/orders/{id}", change).route("/orders/{id}/shipment", ship);
    served.with_state(orders).merge(checks)
}

/// Serves until `stop` resolves, and gives back what is held.
pub async fn run(listener: TcpListener, client: Client, stop: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let routes = router(client.clone(), Arc::default());
    if let Err(error) = serve(listener, routes).with_graceful_shutdown(stop).await {
        eprintln!("{error}");
    }
    client.close(Duration::from_secs(5)).await
}

/// The lock of an order.
#[derive(Clone)]
struct OrderLock(String);

/// Names the lock by the parameter as the handlers get it: `/orders/4%32` and `/orders/42` are one order.
async fn order(Path(id): Path<String>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(OrderLock(format!("orders/{id}")));
    next.run(request).await
}

fn locked(client: &Client, wait: Duration) -> LockLayer<Request, Response, Infallible> {
    let client = client.clone();
    let lock = move |request: &Request| {
        // Without a name nothing is served: an empty one is refused.
        let name = request.extensions().get::<OrderLock>().map_or("", |OrderLock(name)| name);
        client.lock(name).ttl(Duration::from_secs(10))
    };
    LockLayer::new(lock, |refused| Ok(refusal(&refused))).wait(wait).insert_fence()
}

/// What a client is told that was not served. An outage is not a conflict: its lock may be free.
fn refusal(refused: &Refused) -> Response {
    let status = match refused {
        Refused::Busy(_) => StatusCode::CONFLICT,
        Refused::TimedOut(_) => StatusCode::LOCKED,
        Refused::Failed(error) if error.kind() == ErrorKind::InvalidArgument => {
            return StatusCode::BAD_REQUEST.into_response(); // the id is too long for a name
        }
        _ => StatusCode::SERVICE_UNAVAILABLE, // also when the lease was lost: some of the work may be done
    };
    (status, [(RETRY_AFTER, "1")]).into_response()
}

async fn change(
    State(orders): State<Arc<Orders>>,
    Path(id): Path<String>,
    Extension(fence): Extension<FencingToken>,
    text: String,
) -> Response {
    written(orders.write(&id, fence, text))
}

async fn ship(
    State(orders): State<Arc<Orders>>,
    Path(id): Path<String>,
    Extension(fence): Extension<FencingToken>,
) -> Response {
    written(orders.write(&id, fence, String::from("shipped")))
}

/// The resource refuses a holder that lost the lock and does not know it yet.
fn written(told: Result<(), tenure::StaleFence>) -> Response {
    match told {
        Ok(()) => StatusCode::OK.into_response(),
        Err(stale) => (StatusCode::PRECONDITION_FAILED, stale.to_string()).into_response(),
    }
}

/// Whether the backend answers, for an alarm. An instance that cannot reach it is not better after a restart: let no orchestrator
/// kill it for that.
async fn health(State(client): State<Client>) -> Response {
    match timeout(CHECKUP, client.ping()).await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the backend does not answer in time").into_response(),
    }
}

/// Whether requests should be sent here: also not while the servers are set up in a way that loses locks. A few requests to each
/// server: ask every ten seconds and not every one.
async fn ready(State(client): State<Client>) -> Response {
    let findings = match timeout(CHECKUP, client.doctor()).await {
        Ok(Ok(checkup)) => checkup,
        Ok(Err(error)) => return (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
        Err(_) => return (StatusCode::SERVICE_UNAVAILABLE, "the servers do not answer in time").into_response(),
    };
    let dangers = findings.findings().iter().filter(|finding| finding.concern == Concern::Danger);
    let told: Vec<_> = dangers.map(|danger| format!("{}: {}", danger.seen, danger.meaning)).collect();
    let status = if told.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, told.join("\n")).into_response()
}
