//! What every command about a queue has at hand.

use tenure::Client;
use tenure::queue::Queue;

use crate::speak::Voice;

/// A queue of bytes, and what is said about it.
pub(super) struct Desk {
    pub(super) client: Client,
    pub(super) queue: Queue<Vec<u8>>,
    pub(super) voice: Voice,
}
