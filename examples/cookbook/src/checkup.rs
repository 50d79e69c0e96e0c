//! A look at the servers when a program starts.

use tenure::Client;
use tenure::doctor::{Concern, Finding};

/// What an operator reads in the log of a program that starts; an error if locks can be lost, or are not served.
pub async fn check_up(client: &Client, log: impl Fn(&Finding)) -> Result<(), String> {
    let checkup = client.doctor().await.map_err(|error| error.to_string())?;
    checkup.findings().iter().filter(|finding| finding.concern > Concern::Fine).for_each(log);
    match checkup.findings().iter().find(|finding| finding.concern == Concern::Danger) {
        Some(Finding { server, seen, meaning, .. }) => Err(format!("{server}: {seen}: {meaning}")),
        None => Ok(()),
    }
}
