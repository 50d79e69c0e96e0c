//! One leader among many.

use std::time::Duration;

use tenure::{Client, ErrorKind, FencingToken, Result};

/// Leads whenever it is this instance's turn. `work` is told the fence of its term, which it shows to all that it
/// changes; it is dropped when the term is over, and returns to step down.
///
/// # Errors
///
/// What waiting does not mend: a client that was closed, for example.
pub async fn lead<F: Future<Output = ()>>(client: &Client, work: impl Fn(FencingToken) -> F) -> Result<()> {
    let lock = client.lock("leader").ttl(Duration::from_secs(15)).label("leader");
    loop {
        let term = match lock.acquire().await {
            Ok(term) => term,
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) => {
                tokio::time::sleep(Duration::from_secs(1)).await; // the backend is away
                continue;
            }
            Err(error) => return Err(error),
        };
        match term.run(work(term.fence())).await {
            Err(error) if error.kind() != ErrorKind::Lost => return Err(error),
            _ => {} // the term is over, one way or the other; the guard is dropped
        }
    }
}
