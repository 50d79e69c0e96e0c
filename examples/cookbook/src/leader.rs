//! One leader among many, and those who follow it.

use std::time::Duration;

use tenure::election::View;
use tenure::{Client, ErrorKind, FencingToken, Result};

/// Leads whenever it is this instance's turn. `work` is told the number of its term, which it shows to all that it
/// changes; it is dropped when the term is over, and returns to step down.
///
/// # Errors
///
/// What waiting does not mend: a client that was closed, for example.
pub async fn lead<F: Future<Output = ()>>(
    client: &Client,
    address: &str,
    work: impl Fn(FencingToken) -> F,
) -> Result<()> {
    let candidate = client.election("leader").ttl(Duration::from_secs(15)).candidate(address);
    loop {
        match candidate.lead(async |leadership| work(leadership.term()).await).await {
            Ok(()) => {}                                        // stepped down; the next candidate leads first
            Err(error) if error.kind() == ErrorKind::Lost => {} // the term is over
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) => {
                tokio::time::sleep(Duration::from_secs(1)).await; // the backend is away
            }
            Err(error) => return Err(error),
        }
    }
}

/// Tells each change of where requests for the leader go; `None` while nobody leads, or while that is not known.
pub async fn follow(client: &Client, mut send_to: impl FnMut(Option<String>)) -> Result<()> {
    let mut observer = client.election("leader").observe()?.every(Duration::from_secs(1));
    while let Some(view) = observer.next().await {
        send_to(match view {
            View::Leader(leader) => leader.label.map(|address| address.as_str().to_owned()),
            View::Nobody | View::Unknown(_) => None,
        });
    }
    Ok(())
}
