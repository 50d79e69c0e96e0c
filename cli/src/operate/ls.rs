//! `tenure ls`: the locks that are held.

use std::ffi::OsString;
use std::time::Duration;

use serde::Serialize;
use tenure::{HeldLock, Label};

use super::inspect::HolderView;
use crate::backend::Backend;
use crate::duration::show;
use crate::exit::Failure;
use crate::name;
use crate::printer::{Format, Printer};

/// List held locks; exit 0, also if there is none
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// PREFIX is written in hexadecimal digits
    #[arg(long)]
    name_hex: bool,
    /// Only locks whose names begin with exactly this [default: all]
    #[arg(default_value = "", hide_default_value = true)]
    prefix: OsString,
}

/// A held lock, for programs. `waiters` is null where the backend does not count them.
#[derive(Debug, Serialize)]
struct HeldView {
    name: String,
    name_hex: String,
    holder: HolderView,
    owner: Option<String>,
    waiters: Option<u32>,
}

/// Prints a page as soon as it arrives: a backend may have more locks than fit well in memory.
pub(crate) async fn ls(command: &Ls, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    let prefix = name::Spelling::of(command.name_hex).read(&command.prefix)?;
    let client = backend.client().await?;
    let mut held = client.held_locks(&prefix);
    let mut head = printer.format == Format::Text;
    while let Some(page) = held.next_page().await? {
        for lock in page {
            if std::mem::take(&mut head) {
                printer.print(&line("NAME", "HOLDER", "LEASE", "WAITING"))?;
            }
            match printer.format {
                Format::Json => printer.json(&view(&lock))?,
                Format::Text => print(&lock, printer)?,
            }
        }
    }
    Ok(0)
}

fn view(HeldLock { name, holder, waiters, .. }: &HeldLock) -> HeldView {
    HeldView {
        name: name::text(name.as_bytes()),
        name_hex: name::hex(name.as_bytes()),
        holder: HolderView::from(holder),
        owner: holder.owner.map(|owner| owner.to_string()),
        waiters: *waiters,
    }
}

fn print(HeldLock { name, holder, waiters, .. }: &HeldLock, printer: Printer) -> Result<(), Failure> {
    let label = holder.label.as_ref().map_or_else(|| String::from("unknown"), Label::to_string);
    let entries = if holder.owner.is_some() { format!(" ({} entries)", holder.depth) } else { String::new() };
    let lease = holder.remaining.map_or_else(|| String::from("no end"), |left: Duration| show(left));
    let waiting = waiters.map_or_else(|| String::from("unknown"), |count| count.to_string());
    printer.print(&line(&name::text(name.as_bytes()), &format!("{label}{entries}"), &lease, &waiting))
}

/// 80 columns, or more for a long name: a long holder is cut to fit.
fn line(name: &str, holder: &str, lease: &str, waiting: &str) -> String {
    let room = HOLDS.saturating_sub(name.chars().count().max(NAME) + 1).max(SHORTEST);
    let holder = match holder.chars().count() {
        count if count > room => holder.chars().take(room - 1).chain(['…']).collect(),
        _ => holder.to_owned(),
    };
    let hold = format!("{name:<NAME$} {holder}");
    format!("{hold:<HOLDS$} {lease:>12} {waiting:>8}")
}

/// The columns of a name; a longer one takes some of the holder's.
const NAME: usize = 27;
/// The columns of a name and its holder.
const HOLDS: usize = 55;
/// The fewest columns of a holder that is cut.
const SHORTEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_do_not_run_together() {
        let (name, host) = ("orders/of-a-customer-with-a-long-name", "ip-10-0-12-34.internal.example pid 31337");
        for (name, holder) in [(name, "short"), ("job", host), (name, host), (&name.repeat(3), host)] {
            let line = line(name, holder, "29s", "12");
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!((words[0], &words[words.len() - 2..]), (name, &["29s", "12"][..]), "{line}");
            assert!(line.chars().count() < 80 || name.len() > NAME + 11, "{line}");
        }
        assert!(line("job", host, "29s", "12").contains(" ip-10-0-12-34.internal.exa… "));
    }
}
