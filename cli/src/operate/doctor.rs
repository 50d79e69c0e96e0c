//! `tenure doctor`: what the servers mean for locks.

use serde::Serialize;
use tenure::doctor::{Concern, Finding};

use crate::backend::Backend;
use crate::exit::Failure;
use crate::printer::{Format, Printer};

/// Check the servers, and report what that means for locks
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 all is fine, 1 there are notes, 2 there is danger.")]
pub(crate) struct Doctor {
    /// The lowest severity with an exit code other than 0: note or danger
    #[arg(long, value_name = "WHAT", default_value = "note", hide_possible_values = true)]
    fail_on: FailOn,
}

/// The lowest severity with an exit code other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    Note,
    Danger,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    driver: &'a str,
    concern: &'static str,
    findings: Vec<FindingView<'a>>,
}

#[derive(Debug, Serialize)]
struct FindingView<'a> {
    concern: &'static str,
    server: &'a str,
    topic: String,
    seen: &'a str,
    meaning: &'a str,
}

fn word(concern: Concern) -> &'static str {
    match concern {
        Concern::Fine => "fine",
        Concern::Note => "note",
        _ => "danger",
    }
}

impl<'a> From<&'a Finding> for FindingView<'a> {
    fn from(finding: &'a Finding) -> Self {
        let Finding { server, topic, concern, seen, meaning, .. } = finding;
        Self { concern: word(*concern), server, topic: format!("{topic:?}").to_lowercase(), seen, meaning }
    }
}

/// Exit 0 if all is fine, 1 if there are notes and those are asked for, 2 if there is danger.
pub(crate) async fn doctor(command: &Doctor, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    let client = backend.client().await?;
    let checkup = client.doctor().await?;
    let views: Vec<FindingView<'_>> = checkup.findings().iter().map(FindingView::from).collect();
    match printer.format {
        Format::Json => {
            printer.json(&Report { driver: client.driver(), concern: word(checkup.concern()), findings: views })?;
        }
        Format::Text => {
            for FindingView { concern, server, topic, seen, meaning } in views {
                printer.print_coloured(concern, &format!("{server}, {topic}: {seen}: {meaning}"))?;
            }
        }
    }
    Ok(match checkup.concern() {
        Concern::Fine => 0,
        Concern::Note => u8::from(command.fail_on == FailOn::Note),
        _ => 2,
    })
}
