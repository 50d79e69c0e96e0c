//! Dependencies point down only. Why: the engine must not know a backend, the suite must not know a driver, and
//! whoever leaves a feature off must not compile its client library.

use cargo_metadata::{DependencyKind, Metadata};

use crate::command::Findings;
use crate::command::{Outcome, cargo, output};

/// Package, and the workspace packages that it may depend on (development aside).
const ARROWS: &[(&str, &[&str])] = &[
    ("tenure-core", &[]),
    ("tenure-memory", &["tenure-core"]),
    ("tenure-redis-support", &["tenure-core"]),
    ("tenure-redis", &["tenure-core", "tenure-redis-support"]),
    ("tenure-fred", &["tenure-core", "tenure-redis-support"]),
    ("tenure-redlock", &["tenure-core"]),
    ("tenure-etcd", &["tenure-core"]),
    ("tenure-conformance", &["tenure-core"]),
    ("tenure-testkit", &[]),
    ("tenure", &["tenure-core", "tenure-fred", "tenure-memory", "tenure-redis", "tenure-redlock", "tenure-etcd"]),
    ("cookbook-example", &["tenure"]),
    ("custom-driver-example", &["tenure-core"]),
    ("swap-in-tests-example", &["tenure"]),
];

/// Packages for tests and chores, which may depend on everything.
const FREE: &[&str] = &["xtask", "tenure-backends", "tenure-benches"];

/// Client libraries, and the packages that may know them.
const CLIENTS: &[(&str, &[&str])] =
    &[("redis", &["tenure-redis"]), ("fred", &["tenure-fred"]), ("etcd-client", &["tenure-etcd"])];

pub(super) fn check(metadata: &Metadata) -> Findings {
    let mut findings = Findings::new();
    let members = metadata.workspace_packages();
    for package in &members {
        let name = package.name.as_str();
        if FREE.contains(&name) {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            findings.push(format!("{name}: not in the table of dependency arrows"));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development) {
            let other = dependency.name.as_str();
            let internal = members.iter().any(|member| member.name.as_str() == other);
            if internal && !allowed.contains(&other) {
                findings.push(format!("{name}: must not depend on {other}"));
            }
            if CLIENTS.iter().any(|(client, knowing)| *client == other && !knowing.contains(&name)) {
                findings.push(format!("{name}: must not know the client library {other}"));
            }
        }
    }
    findings
}

/// Whoever leaves the feature `etcd` off builds nothing that needs `protoc`.
pub(super) fn without_protoc() -> Outcome<Findings> {
    let tree = output(&mut cargo(&["tree", "--edges", "all", "--prefix", "none", "--format", "{p}"]))?;
    let needs_it = |line: &&str| ["etcd-client ", "prost-build "].iter().any(|name| line.starts_with(name));
    let found = tree.lines().find(needs_it).map(|line| format!("a plain cargo build needs protoc, for {line}"));
    Ok(found.into_iter().collect())
}
