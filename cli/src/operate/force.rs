//! `tenure force-release`: takes a lock from its holder.

use std::ffi::OsString;

use serde::Serialize;
use tenure::{FencingToken, ForceReleased};

use super::ask::{Consent, consent};
use super::inspect::HolderView;
use crate::backend::Backend;
use crate::exit::{self, Failure};
use crate::name::{self, NameView};
use crate::printer::{Format, Printer};
use crate::run::describe;

/// What `--help` says below the options.
const AFTER_HELP: &str = "\
Without --fence, it shows the holder, asks, and frees that hold only.
The holder is notified at its next renewal, and may work until then.
Exit codes: 0 freed, 1 it was free or you said no, 75 another client holds it.";

/// Take a lock from its holder
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ForceRelease {
    /// Free this hold only, as inspect shows it
    #[arg(long, value_name = "N")]
    fence: Option<u64>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// NAME is written in hexadecimal digits
    #[arg(long)]
    name_hex: bool,
    /// The lock
    name: OsString,
}

#[derive(Debug, Serialize)]
struct Freed {
    #[serde(flatten)]
    name: NameView,
    outcome: &'static str,
    holder: Option<HolderView>,
}

pub(crate) async fn force_release(command: &ForceRelease, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    let name = name::Spelling::of(command.name_hex).read(&command.name)?;
    let client = backend.client().await?;
    let lock = client.lock(&name);
    let (shown, mut holder) = (name::text(&name), None);
    let outcome = match command.fence {
        Some(number) => {
            let fence = FencingToken::new(number).ok_or_else(|| Failure::usage("a fence is not zero"))?;
            Some(lock.force_release_if(fence).await?)
        }
        None => {
            let seen = lock.inspect().await?;
            holder = seen.holder.as_ref().map(HolderView::from);
            match seen.holder.as_ref() {
                None => Some(ForceReleased::NotHeld),
                Some(held) => {
                    let question = format!("{shown} is {}. Free it?", describe(&seen));
                    match (consent(command.yes, &question)?, held.fence) {
                        (Consent::Refused, _) => None,
                        (Consent::Given, Some(fence)) => Some(lock.force_release_if(fence).await?),
                        // A foreign client's lock has no fence to compare.
                        (Consent::Given, None) => Some(lock.force_release().await?),
                    }
                }
            }
        }
    };
    let (word, exit, text) = match outcome {
        None => ("refused", 1, String::from("nothing was done")),
        Some(ForceReleased::Released) => ("released", 0, format!("{shown} is free")),
        Some(ForceReleased::NotHeld) => ("free", 1, format!("{shown} is not held")),
        Some(ForceReleased::Changed) => {
            ("changed", exit::BUSY, format!("another client holds {shown} by now; nothing was done"))
        }
    };
    printer.note(&text);
    if printer.format == Format::Json {
        printer.json(&Freed { name: NameView::of(&name), outcome: word, holder })?;
    }
    Ok(exit)
}
