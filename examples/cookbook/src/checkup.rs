//! A look at the servers when a program starts.

use tenure::Client;
use tenure::doctor::{Concern, Finding};

/// Checks the servers when a program starts, and logs what an operator should
/// read. Fails if locks can be lost, or if the servers do not answer.
pub async fn check_up(
    client: &Client,
    log: impl Fn(&Finding),
) -> Result<(), String> {
    let checkup = client.doctor().await.map_err(|error| error.to_string())?;
    for finding in checkup.findings() {
        if finding.concern > Concern::Fine {
            log(finding);
        }
    }
    let mut findings = checkup.findings().iter();
    match findings.find(|finding| finding.concern == Concern::Danger) {
        Some(Finding { server, seen, meaning, .. }) => {
            Err(format!("{server}: {seen}: {meaning}"))
        }
        None => Ok(()),
    }
}
