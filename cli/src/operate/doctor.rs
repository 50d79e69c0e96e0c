//! `tenure doctor`: what the servers mean for locks.

use serde::Serialize;
use tenure::doctor::{Concern, Finding};

use crate::backend::Backend;
use crate::exit::Failure;
use crate::speak::{Format, Voice};

/// Look at the servers, and say what that means for locks
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 all is fine, 1 there are notes, 2 there is danger.")]
pub(crate) struct Doctor {}

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

/// Exit 0 if all is fine, 1 if there are notes, 2 if there is danger.
pub(crate) async fn doctor(backend: &Backend, voice: Voice) -> Result<u8, Failure> {
    let client = backend.client().await?;
    let checkup = client.doctor().await?;
    let views: Vec<FindingView<'_>> = checkup.findings().iter().map(FindingView::from).collect();
    match voice.format {
        Format::Json => {
            voice.json(&Report { driver: client.driver(), concern: word(checkup.concern()), findings: views });
        }
        Format::Text => {
            for FindingView { concern, server, topic, seen, meaning } in views {
                voice.print_coloured(concern, &format!("{server}, {topic}: {seen}: {meaning}"));
            }
        }
    }
    Ok(match checkup.concern() {
        Concern::Fine => 0,
        Concern::Note => 1,
        _ => 2,
    })
}
