//! The stated minimum Rust version holds for every dependency. Why: only one toolchain is at hand to try it with.
//! Newer functions of the standard library are found by clippy's `incompatible_msrv`.

use cargo_metadata::Metadata;

use crate::command::Findings;

pub(super) fn check(metadata: &Metadata) -> Findings {
    let mut findings = Findings::new();
    let stated = metadata.workspace_packages().iter().filter_map(|package| package.rust_version.clone()).min();
    let Some(stated) = stated else {
        return vec![String::from("no package states a rust-version")];
    };
    for package in &metadata.packages {
        if package.rust_version.as_ref().is_some_and(|needed| *needed > stated) {
            let needed = package.rust_version.as_ref().map(ToString::to_string).unwrap_or_default();
            findings.push(format!("{} {} needs Rust {needed}, {stated} is promised", package.name, package.version));
        }
    }
    findings
}
