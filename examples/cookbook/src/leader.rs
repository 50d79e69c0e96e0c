//! One leader among many, and those who follow it.

use std::time::Duration;

use tenure::election::View;
use tenure::{Client, ErrorKind, FencingToken, Result};

/// Leads whenever it is this instance's turn. `work` receives the number of its
/// term, and passes it to every store that it changes. It is dropped when the
/// term ends, and returns to step down.
///
/// # Errors
///
/// Those that do not end by waiting: a client that was closed, for example.
pub async fn lead<F: Future<Output = ()>>(
    client: &Client,
    address: &str,
    work: impl Fn(FencingToken) -> F,
) -> Result<()> {
    let candidate = client
        .election("leader")
        .ttl(Duration::from_secs(15))
        .candidate(address);
    loop {
        let term = candidate.lead(async |held| work(held.term()).await);
        let Err(error) = term.await else {
            // Stepped down: another candidate leads next.
            continue;
        };
        match error.kind() {
            // The term has ended.
            ErrorKind::Lost => {}
            // The backend does not answer.
            ErrorKind::Unavailable | ErrorKind::Indeterminate => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            _ => return Err(error),
        }
    }
}

/// Reports each change of the address for the leader's requests; `None` while
/// there is no leader, or while the leader is not known.
pub async fn follow(
    client: &Client,
    mut send_to: impl FnMut(Option<String>),
) -> Result<()> {
    let mut observer =
        client.election("leader").observe()?.every(Duration::from_secs(1));
    while let Some(view) = observer.next().await {
        send_to(match view {
            View::Leader(leader) => {
                leader.label.map(|address| address.as_str().to_owned())
            }
            View::Nobody | View::Unknown(_) => None,
        });
    }
    Ok(())
}
