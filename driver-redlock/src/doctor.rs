//! The health check of a quorum: that of each node.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tenure_core::Result;
use tenure_core::driver::{Checkup, Concern, Doctor, Finding, Topic};

use crate::driver::Redlock;
use crate::node::Node;

/// How long one node may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks all nodes at once. Findings begin with the name of the node; a node that does not answer is a finding.
#[async_trait]
impl Doctor for Redlock {
    async fn examine(&self) -> Result<Checkup> {
        let all = join_all(self.0.nodes.iter().map(|node| examine(node))).await;
        let answered = all.iter().filter(|answer| answer.is_ok()).count();
        let (concern, meaning) = match answered >= self.0.needed() {
            true => (Concern::Note, "the other nodes are enough for a majority"),
            false => (Concern::Danger, "no majority answers: no lock is granted or renewed"),
        };
        let findings = self.0.nodes.iter().zip(all).flat_map(|(node, answer)| match answer {
            Ok(findings) => findings,
            Err(seen) => vec![finding(node, concern, seen, meaning)],
        });
        Ok(findings.collect())
    }
}

async fn examine(node: &Node) -> Result<Vec<Finding>, String> {
    let Some(doctor) = node.api.doctor() else {
        let seen = format!("the driver \"{}\" has no health check", node.api.driver());
        return Ok(vec![finding(node, Concern::Note, seen, "it is unknown whether this node may vote")]);
    };
    match tokio::time::timeout(PATIENCE, doctor.examine()).await {
        Ok(Ok(checkup)) => {
            let named = |found: Finding| {
                let server = format!("{} ({})", node.name, found.server);
                found.with_server(server)
            };
            Ok(checkup.into_iter().map(named).collect())
        }
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}

fn finding(node: &Node, concern: Concern, seen: String, meaning: &str) -> Finding {
    Finding::new(node.name.clone(), Topic::Reach, concern, seen, meaning.to_owned())
}
