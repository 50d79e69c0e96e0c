//! Dependencies point down only. Why: the engine must not know a backend, the suite must not know a driver, and
//! a build without a feature must not compile its client library.

use std::collections::BTreeSet;

use cargo_metadata::{DependencyKind, Metadata};

use crate::command::Findings;
use crate::command::{Failure, Outcome, cargo, output};

/// Package, and the workspace packages that it may depend on (development aside).
const ARROWS: &[(&str, &[&str])] = &[
    ("tenure-core", &[]),
    ("tenure-memory", &["tenure-core"]),
    ("tenure-redis-support", &["tenure-core"]),
    ("tenure-redis", &["tenure-core", "tenure-redis-support"]),
    ("tenure-fred", &["tenure-core", "tenure-redis-support"]),
    ("tenure-redlock", &["tenure-core"]),
    ("tenure-etcd", &["tenure-core"]),
    ("tenure-sqlite", &["tenure-core"]),
    ("tenure-mysql", &["tenure-core"]),
    ("tenure-postgres", &["tenure-core"]),
    ("tenure-conformance", &["tenure-core"]),
    ("tenure-testkit", &[]),
    ("tenure-models", &["tenure-core", "tenure-memory"]),
    (
        "tenure",
        &[
            "tenure-core",
            "tenure-fred",
            "tenure-memory",
            "tenure-redis",
            "tenure-redlock",
            "tenure-etcd",
            "tenure-mysql",
            "tenure-postgres",
            "tenure-sqlite",
        ],
    ),
    ("tenure-cli", &["tenure", "tenure-conformance"]),
    ("cookbook-example", &["tenure"]),
    ("custom-driver-example", &["tenure-core"]),
    ("service-example", &["tenure"]),
    ("swap-in-tests-example", &["tenure"]),
    ("web-example", &["tenure"]),
];

/// Packages for tests and chores, which may depend on everything.
const FREE: &[&str] = &["xtask", "tenure-backends", "tenure-benches"];

/// Client libraries, and the packages that may know them.
const CLIENTS: &[(&str, &[&str])] = &[
    ("redis", &["tenure-redis"]),
    ("fred", &["tenure-fred"]),
    ("etcd-client", &["tenure-etcd"]),
    ("rusqlite", &["tenure-sqlite", "cookbook-example"]),
    ("mysql_async", &["tenure-mysql"]),
    ("sqlx", &["cookbook-example"]),
    ("tokio-postgres", &["tenure-postgres", "cookbook-example"]),
];

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

/// A plain `cargo run --example quickstart` builds no client library, a build without the feature `etcd` nothing that needs
/// `protoc`, and the tests of a third party's driver no mutants of the suite. cargo unites the features that the default
/// members ask for, so that one of them could bring all.
pub(super) fn of_plain_builds() -> Outcome<Findings> {
    let plain = reached(&[], &["etcd-client", "fred", "prost-build", "redis"])?;
    let backends = reached(&["--package", "tenure-backends"], &["etcd-client", "prost-build"])?;
    let mutants = features_of("tenure-conformance", "custom-driver-example")?.contains("mutants");
    let mutants = mutants.then(|| String::from("examples/custom_driver builds the mutants of the suite"));
    let plain = plain.into_iter().map(|name| format!("a plain cargo build takes {name}; see default-members"));
    let backends = backends.into_iter().map(|name| format!("tenure-backends without etcd takes {name}"));
    Ok(plain.chain(backends).chain(mutants).collect())
}

/// The features of a package, separated by commas, with which the tests of another one are built alone.
fn features_of(package: &str, selected: &str) -> Outcome<String> {
    let tree =
        ["tree", "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p} {f}", "--package", selected];
    let tree = output(&mut cargo(&tree))?;
    let line = tree.lines().find(|line| line.split(' ').next() == Some(package));
    let line = line.ok_or_else(|| Failure(format!("{selected} does not depend on {package}")))?;
    Ok(line.rsplit_once(' ').map(|(_, features)| features.to_owned()).unwrap_or_default())
}

/// Which of these packages cargo would build.
fn reached(selected: &[&str], packages: &[&str]) -> Outcome<Vec<String>> {
    let tree = ["tree", "--edges", "all", "--prefix", "none", "--format", "{p}"];
    let tree = output(&mut cargo(&[&tree[..], selected].concat()))?;
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let found: BTreeSet<&str> = names.filter(|name| packages.contains(name)).collect();
    Ok(found.into_iter().map(str::to_owned).collect())
}
