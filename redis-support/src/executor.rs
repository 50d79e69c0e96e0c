//! What a client library has to bring.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use crate::args::ArgList;
use crate::error::ExecError;
use crate::script::Script;

/// A script with its keys and arguments.
#[derive(Clone, Debug)]
pub struct ScriptCall {
    /// Which script.
    pub script: &'static Script,
    /// Its keys; in a cluster they share a slot.
    pub keys: ArgList,
    /// Its arguments. They hold secrets: not for logs.
    pub args: ArgList,
}

/// A reply of the server, as far as scripts and checks use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing there.
    Nil,
    /// A number.
    Int(i64),
    /// Bytes or a status.
    Bytes(Vec<u8>),
    /// Several replies.
    Array(Vec<Reply>),
}

/// How keys are spread over servers, and what that does to exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// All on one server.
    OneServer,
    /// All on one server at a time; another may take its place without having seen the latest writes.
    OnePrimary,
    /// By slots over several servers, each as with [`Placement::OnePrimary`]. A script's keys share a slot.
    Slots,
}

/// A link to Redis, through a client library.
///
/// One method call is one request, sent at most once: no retry, no replay by the library. The link is the executor's
/// own affair: it re-establishes it for ever, subscribes to the client's channel before it counts as up, and tells the
/// [`WakeLink`](crate::WakeLink) of every message and every new start. A request while the link is down fails with
/// [`ExecError::NotSent`] within a bounded time, and every request is bounded in time.
///
/// # Cancel safety
///
/// Futures may be dropped half-way; the request may then be applied or not.
pub trait RedisExecutor: Debug + Send + Sync + 'static {
    /// A short constant name of the driver: `"redis"`.
    fn driver(&self) -> &'static str;

    /// How keys are spread. Constant.
    fn placement(&self) -> Placement;

    /// For each server that keeps locks, where it is and some of the slots that it serves.
    fn homes(&self) -> Vec<(String, RangeInclusive<u16>)>;

    /// `EVALSHA` of the script's digest. An unknown script is a [`ExecError::Server`] with code `NOSCRIPT`.
    fn evalsha(&self, call: &ScriptCall) -> impl Future<Output = Result<Reply, ExecError>> + Send;

    /// `EVAL` of the script's source.
    fn eval(&self, call: &ScriptCall) -> impl Future<Output = Result<Reply, ExecError>> + Send;

    /// A plain command without side effects, such as `INFO`, to every server that keeps locks: where each is, and what
    /// it answered.
    fn command(&self, args: &[&str]) -> impl Future<Output = Vec<(String, Result<Reply, ExecError>)>> + Send;

    /// Whose data this is, the same for executors that were told to reach the same servers and database; `None` if it
    /// cannot be told. No I/O.
    fn identity(&self) -> Option<String>;

    /// Ends the link and the work behind it; later calls fail with [`ExecError::Closed`]. May be called again.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Runs a script: by its digest, and by its source where the server does not know that.
///
/// `NOSCRIPT` proves that nothing was executed: the second request is never a repetition.
pub(crate) async fn run<E: RedisExecutor>(executor: &E, call: &ScriptCall) -> Result<Reply, ExecError> {
    match executor.evalsha(call).await {
        Err(error) if error.is_no_script() => executor.eval(call).await,
        result => result,
    }
}
