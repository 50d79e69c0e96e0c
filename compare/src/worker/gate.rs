//! The lines between this process and the one that conducts.

use std::io::{BufRead, Write};

use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};

/// Says that the job is prepared, and waits for the word.
pub(super) fn gate() -> Outcome {
    say(&json!({ "ready": true }))?;
    match read_line()?.as_deref() {
        Some("go") => Ok(()),
        other => Err(Failure::from(format!("expected go, got {other:?}"))),
    }
}

pub(super) fn read_line() -> Outcome<Option<String>> {
    let mut line = String::new();
    let length = std::io::stdin().lock().read_line(&mut line)?;
    Ok((length > 0).then(|| line.trim().to_owned()))
}

pub(super) fn say(value: &Value) -> Outcome {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}
