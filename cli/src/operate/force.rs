//! `tenure force-release`: takes a lock from whoever has it.

use std::ffi::OsString;

use serde::Serialize;
use tenure::{FencingToken, ForceReleased};

use super::ask::{Consent, consent};
use super::inspect::HolderView;
use crate::backend::Backend;
use crate::exit::{self, Failure};
use crate::name;
use crate::run::describe;
use crate::speak::{Format, Voice};

/// What `--help` says below the options.
const AFTER_HELP: &str = "\
Without --fence, it shows whom it will free, asks, and frees that hold only.
The holder learns of it at its next renewal; it may still be at work.
Exit codes: 0 freed, 1 nobody held it or you said no, 75 somebody else holds it.";

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
    name: String,
    outcome: &'static str,
    holder: Option<HolderView>,
}

pub(crate) async fn force_release(command: &ForceRelease, backend: &Backend, voice: Voice) -> Result<u8, Failure> {
    let name = name::Spelling::of(command.name_hex).read(&command.name)?;
    let client = backend.client().await?;
    let lock = client.lock(&name);
    let (shown, mut holder) = (name::text(&name), None);
    let outcome = match command.fence {
        Some(number) => {
            let fence = FencingToken::new(number).ok_or_else(|| Failure::usage("a fence is not zero"))?;
            lock.force_release_if(fence).await?
        }
        None => {
            let seen = lock.inspect().await?;
            holder = seen.holder.as_ref().map(HolderView::from);
            match seen.holder.as_ref() {
                None => ForceReleased::NotHeld,
                Some(held) => {
                    let question = format!("{shown} is {}. Free it?", describe(&seen));
                    if consent(command.yes, &question)? == Consent::Refused {
                        voice.note("nothing was done");
                        return Ok(1);
                    }
                    match held.fence {
                        Some(fence) => lock.force_release_if(fence).await?,
                        None => lock.force_release().await?, // a foreign client's lock has no fence to compare
                    }
                }
            }
        }
    };
    let (word, exit, text) = match outcome {
        ForceReleased::Released => ("released", 0, format!("{shown} is free")),
        ForceReleased::NotHeld => ("free", 1, format!("nobody holds {shown}")),
        ForceReleased::Changed => {
            ("changed", exit::BUSY, format!("somebody else holds {shown} by now; nothing was done"))
        }
    };
    voice.note(&text);
    if voice.format == Format::Json {
        voice.json(&Freed { name: shown, outcome: word, holder });
    }
    Ok(exit)
}
