//! Wake-ups, from a client library's push messages to the waiters of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::OwnerToken;
use tenure_core::driver::{QueueRouter, WakeRouter};
use tenure_core::queue::QueueName;

use crate::reply;

/// What a driver feeds with the messages of its client's channel, and with news of the link. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct WakeLink {
    router: WakeRouter,
    queues: QueueRouter,
    /// How often a connection broke or was made anew.
    renewed: Arc<AtomicU64>,
}

impl WakeLink {
    /// A message on the client's channel: the token of the waiter that it is for, alone or, behind `;`, with the lease that it
    /// was given; or `!` and the name of a delay queue (no token has that sign). Anything else is ignored; but what a later
    /// version says behind the token is a reason to ask.
    pub fn deliver(&self, payload: &[u8]) {
        if let Some(name) = payload.strip_prefix(b"!") {
            if let Ok(queue) = QueueName::new(name) {
                self.queues.wake(&queue); // as below
            }
            return;
        }
        let Ok(text) = std::str::from_utf8(payload) else { return };
        let (token, news) = text.split_once(';').unwrap_or((text, ""));
        let Ok(token) = OwnerToken::parse(token) else { return };
        match reply::handed(news) {
            Some(handed) => self.router.hand(&token, handed), // one that is gone has left its token to be abandoned
            None => self.router.wake(&token),                 // a waiter that is gone needs no wake-up
        };
    }

    /// The link broke: what waiters are told from now on may be by the clock of another server, until they have asked it.
    pub fn link_cut(&self) {
        self.renewed.fetch_add(1, Ordering::AcqRel);
        self.router.cut();
    }

    /// The link and the subscription stand again after a gap, in which messages may have been lost: all waiters ask.
    pub fn link_up(&self) {
        self.renewed.fetch_add(1, Ordering::AcqRel);
        self.router.wake_all();
        self.queues.wake_all();
    }

    /// How often a link broke or came up: each time the next to answer may be another server, or one that was set up anew. A
    /// request that asks after a break waits for the new connection, and so looks at the server before anything else does.
    pub(crate) fn renewed(&self) -> u64 {
        self.renewed.load(Ordering::Acquire)
    }

    pub(crate) fn queues(&self) -> &QueueRouter {
        &self.queues
    }

    pub(crate) fn router(&self) -> &WakeRouter {
        &self.router
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::driver::Signal;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn only_the_waiter_named_is_woken() {
        let wake = WakeLink::default();
        let (one, two) = (OwnerToken::random(), OwnerToken::random());
        let (mut first, mut second) = (wake.router().register(one), wake.router().register(two));
        for payload in [b"".as_slice(), b"\xff", b"not a token", OwnerToken::random().expose().as_ref()] {
            wake.deliver(payload);
        }
        wake.deliver(one.expose().as_ref());
        assert!(timeout(Duration::from_secs(5), first.next()).await.is_ok());
        // News of a form that this version does not know are a reason to ask.
        for rest in ["", "news", "1;2;3", "-1;2;3;4"] {
            wake.deliver(format!("{};{rest}", one.expose().as_str()).as_bytes());
            assert_eq!(timeout(Duration::from_secs(5), first.next()).await.unwrap(), Signal::Wake, "{rest}");
        }
        assert!(timeout(Duration::ZERO, second.next()).await.is_err());
        wake.link_up();
        assert!(timeout(Duration::from_secs(5), second.next()).await.is_ok());
        // What comes behind a gap may be by another clock than what was said before.
        let news = format!("{};9;1;2000;8", two.expose().as_str());
        wake.deliver(news.as_bytes());
        assert!(matches!(second.next().await, Signal::Handed(_)));
        wake.link_cut();
        wake.deliver(news.as_bytes());
        assert_eq!(second.next().await, Signal::Wake);
    }

    #[tokio::test]
    async fn watchers_of_a_queue_are_woken_by_its_name() {
        let wake = WakeLink::default();
        let (one, other) = (QueueName::new("a\0!").unwrap(), QueueName::new("b").unwrap());
        let (mut first, mut second) = (wake.queues().register(&one), wake.queues().register(&other));
        wake.deliver(b"!");
        wake.deliver(b"!a\0!");
        assert!(timeout(Duration::from_secs(5), first.next()).await.is_ok());
        assert!(timeout(Duration::ZERO, second.next()).await.is_err());
        wake.link_up();
        assert!(timeout(Duration::from_secs(5), second.next()).await.is_ok());
    }
}
