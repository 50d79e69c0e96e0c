//! `tenure inspect`: who holds a lock.

use std::ffi::OsString;
use std::time::Duration;

use serde::Serialize;
use tenure::{Holder, Inspection, PermitHolder, PermitInspection, Share};

use crate::backend::Backend;
use crate::duration::show;
use crate::exit::Failure;
use crate::name::{self, NameView};
use crate::printer::{Format, Printer};
use crate::run::describe_holder;

/// Show a lock's holder and number of waiters
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 it is held, 1 it is free.")]
pub(crate) struct Inspect {
    /// NAME is written in hexadecimal digits
    #[arg(long)]
    name_hex: bool,
    /// Show the semaphore of this name: exit 0 if a permit is held
    #[arg(long, conflicts_with = "rw")]
    semaphore: bool,
    /// Show the read-write lock of this name
    #[arg(long)]
    rw: bool,
    /// The lock
    name: OsString,
}

/// A holder, for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HolderView {
    pub(crate) label: Option<String>,
    pub(crate) fence: Option<u64>,
    pub(crate) held_for_ms: Option<u128>,
    pub(crate) remaining_ms: Option<u128>,
    pub(crate) depth: u32,
}

impl From<&Holder> for HolderView {
    fn from(holder: &Holder) -> Self {
        Self {
            label: holder.label.as_ref().map(|label| label.as_str().to_owned()),
            fence: holder.fence.map(|fence| fence.get()),
            held_for_ms: holder.held_for.map(|span| span.as_millis()),
            remaining_ms: holder.remaining.map(|span| span.as_millis()),
            depth: holder.depth,
        }
    }
}

/// A lock, for programs.
#[derive(Debug, Serialize)]
struct LockView {
    #[serde(flatten)]
    name: NameView,
    held: bool,
    holder: Option<HolderView>,
    waiters: u32,
}

pub(crate) async fn inspect(command: &Inspect, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    let name = name::Spelling::of(command.name_hex).read(&command.name)?;
    let client = backend.client().await?;
    if command.semaphore || command.rw {
        // The capacity belongs to requests, and an inspection makes none.
        let seen = match command.rw {
            true => client.rw_lock(&name).inspect().await?,
            false => client.semaphore(&name, 1).inspect().await?,
        };
        return permits(&name, command.rw, &seen, printer);
    }
    let seen = client.lock(&name).inspect().await?;
    match printer.format {
        Format::Json => printer.json(&LockView {
            name: NameView::of(&name),
            held: seen.holder.is_some(),
            holder: seen.holder.as_ref().map(HolderView::from),
            waiters: seen.waiters,
        })?,
        Format::Text => print(&name, &seen, printer)?,
    }
    Ok(if seen.holder.is_some() { 0 } else { 1 })
}

/// Holders of a semaphore or a read-write lock, for programs.
#[derive(Debug, Serialize)]
struct PermitsView {
    #[serde(flatten)]
    name: NameView,
    held: bool,
    used: u64,
    holders: Vec<PermitView>,
    waiters: u32,
}

#[derive(Debug, Serialize)]
struct PermitView {
    weight: u32,
    capacity: u32,
    #[serde(flatten)]
    holder: HolderView,
}

fn permits(name: &[u8], rw: bool, seen: &PermitInspection, printer: Printer) -> Result<u8, Failure> {
    let view = |one: &PermitHolder| {
        let Share { weight, capacity } = one.share;
        PermitView { weight, capacity, holder: HolderView::from(&one.holder) }
    };
    let held = !seen.holders.is_empty();
    match printer.format {
        Format::Json => printer.json(&PermitsView {
            name: NameView::of(name),
            held,
            used: seen.used,
            holders: seen.holders.iter().map(view).collect(),
            waiters: seen.waiters,
        })?,
        Format::Text => {
            let line = |what: &str, value: String| printer.print(&format!("{what:<10}{value}"));
            line("name", name::text(name))?;
            line("state", String::from(if held { "held" } else { "free" }))?;
            if !rw {
                line("permits", seen.used.to_string())?;
            }
            for PermitHolder { share, holder, .. } in &seen.holders {
                let how = match *share {
                    Share::READER if rw => String::from("reads"),
                    Share::UPGRADABLE if rw => String::from("reads, and may write"),
                    Share::WRITER if rw => String::from("writes"),
                    Share { weight, capacity } => format!("{weight} of {capacity}"),
                };
                let fence = holder.fence.map_or_else(|| String::from("unknown"), |fence| fence.to_string());
                line("holder", format!("{how}; {}; fence {fence}", describe_holder(holder)))?;
            }
            line("waiting", seen.waiters.to_string())?;
        }
    }
    Ok(if held { 0 } else { 1 })
}

fn print(name: &[u8], seen: &Inspection, printer: Printer) -> Result<(), Failure> {
    let line = |what: &str, value: String| printer.print(&format!("{what:<10}{value}"));
    line("name", name::text(name))?;
    let Some(holder) = &seen.holder else {
        line("state", String::from("free"))?;
        return line("waiting", seen.waiters.to_string());
    };
    let unknown = || String::from("unknown");
    let span = |span: Option<Duration>, none: &str| span.map_or_else(|| none.to_owned(), show);
    line("state", String::from("held"))?;
    line("holder", holder.label.as_ref().map_or_else(unknown, |label| label.as_str().escape_debug().to_string()))?;
    line("fence", holder.fence.map_or_else(unknown, |fence| fence.to_string()))?;
    line("since", span(holder.held_for, "unknown"))?;
    line("lease", span(holder.remaining, "without end"))?;
    if holder.depth > 1 {
        line("entries", holder.depth.to_string())?;
    }
    line("waiting", seen.waiters.to_string())
}
