//! What every command about a queue has at hand.

use tenure::Client;
use tenure::queue::Queue;

use crate::name::Spelling;
use crate::printer::Printer;

/// A queue of bytes, with the client, the spelling of ids and the output that its commands need.
pub(super) struct QueueContext {
    pub(super) client: Client,
    pub(super) queue: Queue<Vec<u8>>,
    /// How ids of messages are written on the command line.
    pub(super) ids: Spelling,
    pub(super) printer: Printer,
}
