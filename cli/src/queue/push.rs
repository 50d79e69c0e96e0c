//! `tenure queue push`: stores a message.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

use serde::Serialize;
use tenure::queue::Pushed;

use super::args::Push;
use super::desk::Desk;
use super::{id, view};
use crate::exit::Failure;
use crate::speak::Format;

#[derive(Debug, Serialize)]
struct PushedView {
    outcome: &'static str,
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

pub(super) async fn push(desk: &Desk, push: &Push) -> Result<u8, Failure> {
    let mut message = desk.queue.push_bytes(content(push)?);
    if let Some(delay) = push.delay {
        message = message.delay(delay);
    }
    if let Some(id) = &push.id {
        message = message.id(id.as_bytes());
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
    if let Some(attempts) = push.attempts {
        message = message.max_attempts(attempts);
    }
    let given = push.id.as_ref().map(|id| crate::name::text(id.as_bytes()));
    let result = match message.await? {
        Pushed::Stored(stored) => PushedView { outcome: "stored", id: Some(id::show(&stored)), state: None },
        Pushed::Replaced(stored) => PushedView { outcome: "replaced", id: Some(id::show(&stored)), state: None },
        Pushed::Duplicate(state) => PushedView { outcome: "duplicate", id: given, state: Some(view::state(state)) },
    };
    match desk.voice.format {
        Format::Json => desk.voice.json(&result),
        Format::Text => {
            let state = result.state.map(|state| format!(" ({state})")).unwrap_or_default();
            desk.voice.print(&format!("{} {}{state}", result.outcome, result.id.unwrap_or_default()));
        }
    }
    Ok(0)
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
