//! What the handlers of messages have in common.

use std::time::Duration;

use tokio::sync::broadcast;

use super::args::Run;
use crate::child::{Children, Order};
use crate::printer::Printer;
use crate::results::Results;

/// What every handler needs.
pub(super) struct Shared {
    pub(super) queue: Vec<u8>,
    pub(super) run: Run,
    pub(super) term_before: Duration,
    pub(super) printer: Printer,
    pub(super) results: Results,
    pub(super) children: Children,
    /// Sends orders to the supervisors of the programs.
    pub(super) orders: broadcast::Sender<Order>,
}
