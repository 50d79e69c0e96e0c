//! A web service in which each order is changed by one request at a time, whichever instance serves it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use tenure::doctor::Concern;
use tenure::queue::{Job, Queue, Worker};
use tenure::tower::{LockLayer, Refused};
use tenure::{Client, ErrorKind, FencingToken, Result};
use tokio::time::timeout;

mod orders;
pub mod stopping;
pub use orders::Orders;

/// The longest wait of a shipment for its order: longer than a request to the
/// backend may take (`op_timeout`), so that an outage is not mistaken for a
/// locked order.
pub const PATIENCE: Duration = Duration::from_millis(1500);
/// The time limit of a health check: less than the timeout of its caller.
pub const CHECKUP: Duration = Duration::from_millis(500);

/// The routes of the service. Each order that is shipped needs a label.
pub fn router(
    client: Client,
    orders: Arc<Orders>,
    labels: Queue<String>,
) -> Router {
    // A change of a locked order is refused at once; a shipment waits a moment.
    let change = put(change)
        .layer(locked(&client, Duration::ZERO))
        .layer(from_fn(order));
    let ship =
        post(ship).layer(locked(&client, PATIENCE)).layer(from_fn(order));
    let checks = Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .with_state(client);
    let served = Router::new()
        .route("/orders/{id}", change)
        .route("/orders/{id}/shipment", ship);
    served.with_state(orders).layer(Extension(labels)).merge(checks)
}

/// Prints the labels of orders that were shipped.
pub fn printer(labels: &Queue<String>) -> Result<Worker> {
    labels.worker().concurrency(2).start(async |job: Job<String>| {
        eprintln!("label of order {}", job.value)
    })
}

/// The lock of an order.
#[derive(Clone)]
struct OrderLock(String);

/// Names the lock by the parameter as the handlers get it: `/orders/4%32` and
/// `/orders/42` are one order.
async fn order(
    Path(id): Path<String>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(OrderLock(format!("orders/{id}")));
    next.run(request).await
}

fn locked(
    client: &Client,
    wait: Duration,
) -> LockLayer<Request, Response, Infallible> {
    let client = client.clone();
    let lock = move |request: &Request| {
        let name = request.extensions().get::<OrderLock>();
        // Without a name the request is refused, as an empty name is.
        let name = name.map_or("", |OrderLock(name)| name);
        client.lock(name).ttl(Duration::from_secs(10))
    };
    LockLayer::new(lock, |refused| Ok(refusal(&refused)))
        .wait(wait)
        .insert_fence()
}

/// The response to a request that was not served. An outage is not a conflict:
/// the lock may be free.
fn refusal(refused: &Refused) -> Response {
    let status = match refused {
        Refused::Busy(_) => StatusCode::CONFLICT,
        Refused::TimedOut(_) => StatusCode::LOCKED,
        Refused::Failed(error)
            if error.kind() == ErrorKind::InvalidArgument =>
        {
            // The id is too long for a name.
            return StatusCode::BAD_REQUEST.into_response();
        }
        // Also after a lost lease: some of the work may be done.
        _ => StatusCode::SERVICE_UNAVAILABLE,
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
    Extension(labels): Extension<Queue<String>>,
    Path(id): Path<String>,
    Extension(fence): Extension<FencingToken>,
) -> Response {
    let shipped = orders.write(&id, fence, String::from("shipped"));
    if shipped.is_ok() {
        // The id makes the push idempotent: if the client sends the request
        // again, there is still one label.
        if let Err(error) = labels.push(&id).id(format!("label/{id}")).await {
            return unavailable(error);
        }
    }
    written(shipped)
}

/// The resource refuses a holder that lost the lock and does not know it yet.
fn written(reported: Result<(), tenure::StaleFence>) -> Response {
    match reported {
        Ok(()) => StatusCode::OK.into_response(),
        Err(stale) => {
            (StatusCode::PRECONDITION_FAILED, stale.to_string()).into_response()
        }
    }
}

fn unavailable(reason: impl ToString) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, reason.to_string()).into_response()
}

/// Reports if the backend answers, for an alarm. A restart does not help an
/// instance that cannot reach it: let no orchestrator kill it for that.
async fn health(State(client): State<Client>) -> Response {
    match timeout(CHECKUP, client.ping()).await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(error)) => unavailable(error),
        Err(_) => unavailable("the backend does not answer in time"),
    }
}

/// Reports if requests should be sent here. They should not while the servers
/// are configured so that locks can be lost. This sends a few requests to each
/// server: call it every ten seconds, not every second.
async fn ready(State(client): State<Client>) -> Response {
    let findings = match timeout(CHECKUP, client.doctor()).await {
        Ok(Ok(checkup)) => checkup,
        Ok(Err(error)) => return unavailable(error),
        Err(_) => return unavailable("the servers do not answer in time"),
    };
    let dangers: Vec<_> = findings
        .findings()
        .iter()
        .filter(|finding| finding.concern == Concern::Danger)
        .map(|danger| format!("{}: {}", danger.seen, danger.meaning))
        .collect();
    match dangers.is_empty() {
        true => StatusCode::OK.into_response(),
        false => unavailable(dangers.join("\n")),
    }
}
