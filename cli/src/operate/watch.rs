//! `tenure watch`: who holds a lock, as it changes.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tenure::Inspection;
use tokio::time::sleep;

use super::inspect::HolderView;
use crate::backend::Backend;
use crate::child::Signals;
use crate::exit::{Failure, by_signal};
use crate::name::{self, NameView};
use crate::printer::{Format, Printer, Progress};
use crate::run::describe;

/// Show a lock's holder, and every change, until interrupted
#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    /// The pause between two looks
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = crate::duration::parse)]
    every: Duration,
    /// NAME is written in hexadecimal digits
    #[arg(long)]
    name_hex: bool,
    /// The lock
    name: OsString,
}

#[derive(Debug, Serialize)]
struct Change {
    time: String,
    #[serde(flatten)]
    name: NameView,
    holder: Option<HolderView>,
    waiters: u32,
}

/// The least time between two looks.
const SHORTEST: Duration = Duration::from_millis(20);

pub(crate) async fn watch(command: &Watch, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    let name = name::Spelling::of(command.name_hex).read(&command.name)?;
    let mut signals = Signals::hear().map_err(|error| Failure::system(&error))?;
    let client = backend.client().await?;
    let lock = client.lock(&name);
    let looking = async {
        let (mut before, mut line, mut silent) = (None, printer.progress(), false);
        loop {
            match lock.inspect().await {
                Ok(seen) => {
                    silent = false;
                    if let Err(failure) = show(&name, &seen, &mut before, line.as_mut(), printer) {
                        return failure;
                    }
                }
                Err(error) if error.is_transient() => {
                    if !std::mem::replace(&mut silent, true) {
                        printer.warn(&format!("the backend does not answer: {error:#}"));
                    }
                }
                Err(error) => return error.into(),
            }
            sleep(command.every.max(SHORTEST)).await;
        }
    };
    tokio::select! {
        signal = signals.end() => Ok(by_signal(signal.as_raw())),
        failure = looking => Err(failure),
    }
}

/// Who holds it: the fence where there is one, so that a holder's own renewals are no change.
type Key = Option<(Option<u64>, Option<String>)>;

fn show(
    name: &[u8],
    seen: &Inspection,
    before: &mut Option<Key>,
    line: Option<&mut Progress>,
    printer: Printer,
) -> Result<(), Failure> {
    let holder = seen.holder.as_ref().map(HolderView::from);
    let key: Key = holder.as_ref().map(|holder| (holder.fence, holder.label.clone()));
    let text = describe(seen);
    if before.as_ref() != Some(&key) {
        *before = Some(key);
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        match printer.format {
            Format::Json => printer.json(&Change { time, name: NameView::of(name), holder, waiters: seen.waiters })?,
            Format::Text => {
                let fence = holder.and_then(|holder| holder.fence).map(|fence| format!(", fence {fence}"));
                printer.print_over(line.is_some(), &format!("{time}  {text}{}", fence.unwrap_or_default()))?;
            }
        }
    }
    if let Some(line) = line {
        line.show(&text);
    }
    Ok(())
}
