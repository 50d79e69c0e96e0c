//! The queue after the last client: what it still holds, and that it can be emptied.

use std::time::Duration;

use tenure::Client;
use tenure_conformance::BoxError;
use tenure_core::driver::DeadCause;

use super::plan::read;

/// How long it may take to look, and for ids to be forgotten.
const LIMIT: Duration = Duration::from_secs(30);

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) message: String,
    pub(crate) cause: DeadCause,
    pub(crate) attempt: u32,
}

/// The remaining messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remains {
    /// Whether the queue was read: it is not when some clients did not end.
    pub(crate) is_known: bool,
    pub(crate) letters: Vec<Letter>,
    /// What should not be there.
    pub(crate) odd: Vec<String>,
    /// How far the queue's clock may be wrong.
    pub(crate) clock_error: Duration,
}

/// Looks at the queue, and removes its messages.
pub(crate) async fn empty(url: &str) -> Result<Remains, BoxError> {
    let client = Client::builder(crate::connect(url).await?).ttl(Duration::from_secs(1)).op_timeout(LIMIT).build()?;
    let queue = super::queue(&client)?;
    let mut remains = Remains { is_known: true, clock_error: queue.capabilities().clock_error, ..Remains::default() };
    let stats = queue.admin().stats().await?;
    let dead = queue.admin().dead_letters();
    let mut after = None;
    loop {
        let page = dead.list(after, 100).await?;
        for letter in &page.letters {
            let (message, _) = read(letter.payload.as_bytes())?;
            remains.letters.push(Letter { message, cause: letter.cause, attempt: letter.attempt });
        }
        after = page.letters.last().map(|letter| letter.place);
        if after.is_none() || page.rest == tenure_core::driver::Rest::None {
            break;
        }
    }
    if (stats.scheduled, stats.ready, stats.in_flight, stats.dead) != (0, 0, 0, remains.letters.len() as u64) {
        remains.odd.push(format!("{stats:?}, with {} dead letters", remains.letters.len()));
    }
    dead.purge_all().await?;
    let deadline = tokio::time::Instant::now() + LIMIT;
    // Receiving forgets ids whose window has passed.
    while !client.list_queues().await?.is_empty() {
        let got = queue.receive_many(1, Duration::ZERO).await?;
        remains.odd.extend(got.iter().map(|delivery| format!("a delivery of {}", delivery.id())));
        if tokio::time::Instant::now() > deadline {
            remains.odd.push("the empty queue is still listed".into());
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    client.close(LIMIT).await?;
    Ok(remains)
}
