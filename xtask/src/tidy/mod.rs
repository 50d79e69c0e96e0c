//! Rules of this workspace that a program can check. Each says why it is there.

mod arrows;
mod circles;
mod columns;
mod commits;
mod cookbook;
mod docs;
mod features;
mod glossary;
mod lengths;
mod links;
mod lua;
mod msrv;
mod packages;
mod pages;
mod words;

use std::path::Path;

use crate::command::{Failure, Outcome};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Rewrite the generated docs
    #[arg(long)]
    fix: bool,
}

/// `suite` is the program that prints the suite's pages, if it is built.
pub(crate) fn run(options: &Options, suite: Option<&Path>) -> Outcome {
    let fix = if options.fix { docs::Stale::Rewrite } else { docs::Stale::Report };
    let metadata = cargo_metadata::MetadataCommand::new()
        .exec()
        .map_err(|error| Failure(format!("cargo metadata failed: {error}")))?;
    let mut findings = features::check(fix)?; // the facade is not built without the page, and other pages are its output
    findings.extend(arrows::check(&metadata));
    findings.extend(arrows::of_plain_builds()?);
    findings.extend(msrv::check(&metadata));
    findings.extend(packages::check(&metadata)?);
    findings.extend(lengths::check()?);
    findings.extend(circles::check()?);
    findings.extend(lua::check()?);
    findings.extend(glossary::check()?);
    findings.extend(links::check()?);
    findings.extend(pages::check()?);
    findings.extend(columns::check()?);
    findings.extend(words::check()?);
    findings.extend(commits::check()?);
    findings.extend(docs::check(fix, suite)?);
    findings.extend(cookbook::check(fix)?);
    if findings.is_empty() {
        println!("tidy: nothing to complain about");
        return Ok(());
    }
    findings.sort();
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    Err(Failure(format!("tidy found {} things", findings.len())))
}
