//! `tenure queue push`: stores a message.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

use serde::Serialize;
use tenure::Error;
use tenure::queue::{Message, MessageId, Pushed};

use super::args::Push;
use super::context::QueueContext;
use super::id::{self, IdView};
use super::view;
use crate::exit::Failure;
use crate::printer::Format;

#[derive(Debug, Serialize)]
struct PushedView {
    outcome: &'static str,
    #[serde(flatten)]
    id: Option<IdView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

pub(super) async fn push(context: &QueueContext, push: &Push) -> Result<u8, Failure> {
    let given = push.id.as_ref().map(|id| context.ids.read(id)).transpose()?;
    let message = message(push, given.as_deref(), content(push)?);
    for pushed in context.queue.push_many([message]).await.map_err(Error::from)? {
        tell(context, pushed, given.as_deref())?;
    }
    Ok(0)
}

/// The message with the options of the command line.
pub(super) fn message(push: &Push, id: Option<&[u8]>, content: Vec<u8>) -> Message<'static, Vec<u8>> {
    let mut message = Message::bytes(content);
    if let Some(delay) = push.delay {
        message = message.delay(delay);
    }
    if let Some(id) = id {
        message = message.id(id);
    }
    if push.replace {
        message = message.replace();
    }
    if let Some(ttl) = push.ttl {
        message = message.ttl(ttl);
    }
    if let Some(key) = &push.key {
        message = message.concurrency_key(key.as_bytes());
    }
    match push.attempts {
        Some(attempts) => message.max_attempts(attempts),
        None => message,
    }
}

fn tell(context: &QueueContext, pushed: Pushed, given: Option<&[u8]>) -> Result<(), Failure> {
    let (outcome, id, state) = match pushed {
        Pushed::Stored(stored) => ("stored", Some(stored), None),
        Pushed::Replaced(stored) => ("replaced", Some(stored), None),
        Pushed::Duplicate(state) => ("duplicate", given.map(MessageId::named).transpose()?, Some(view::state(state))),
    };
    match context.printer.format {
        Format::Json => context.printer.json(&PushedView { outcome, id: id.as_ref().map(IdView::of), state }),
        Format::Text => {
            let id = id.as_ref().map(id::show).unwrap_or_default();
            let state = state.map(|state| format!(" ({state})")).unwrap_or_default();
            context.printer.print(&format!("{outcome} {id}{state}"))
        }
    }
}

fn content(push: &Push) -> Result<Vec<u8>, Failure> {
    if let Some(message) = &push.message {
        return Ok(message.as_bytes().to_vec());
    }
    let read = match push.file.as_ref().filter(|path| path.as_os_str() != "-") {
        Some(path) => std::fs::read(path),
        None => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
        }
    };
    read.map_err(|error| {
        let from = push.file.as_ref().map_or_else(|| String::from("standard input"), |path| path.display().to_string());
        Failure::usage(format!("the message cannot be read from {from}: {error}"))
    })
}
