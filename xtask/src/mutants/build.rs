//! Building the copy: mistakes that do not compile are taken out until the rest does.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::process::Stdio;

use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel, DiagnosticSpan};
use cargo_metadata::{Artifact, Message};

use super::edit::{Edited, Mutant};
use super::tree::{Sources, Tree};
use crate::command::{Failure, Outcome, cargo};

/// So often mistakes are taken out at most.
const ROUNDS: u32 = 30;

/// A built test program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    pub(crate) folder: PathBuf,
}

/// Writes the crate into the tree without the mistakes that do not compile, and adds those to `dropped`.
pub(crate) fn settle(tree: &Tree, sources: &Sources, package: &str, dropped: &mut HashSet<u32>) -> Outcome {
    for _ in 0..ROUNDS {
        let edited = sources.edited(dropped);
        tree.write(sources, &edited)?;
        let errors = errors(&messages(tree, &["check", "--package", package, "--all-features"])?);
        if errors.is_empty() {
            return Ok(());
        }
        let culprits: HashSet<u32> = errors.iter().flat_map(|error| culprits(sources, &edited, error)).collect();
        let before = dropped.len();
        dropped.extend(culprits);
        if dropped.len() == before {
            let text = errors[0].rendered.as_deref().unwrap_or(&errors[0].message);
            return Err(Failure(format!("the copy does not compile, by no mistake that was made:\n{text}")));
        }
        println!("  {} errors, {} mistakes taken out", errors.len(), dropped.len() - before);
    }
    Err(Failure(format!("the copy does not compile after {ROUNDS} rounds")))
}

/// Builds the tests of these packages: all, or only these targets of theirs.
pub(crate) fn tests(tree: &Tree, packages: &[&str], targets: &[String]) -> Outcome<Vec<Program>> {
    let mut args = vec!["test", "--no-run", "--all-features"];
    if targets.is_empty() {
        args.extend(["--lib", "--tests"]);
    }
    for target in targets {
        match target.as_str() {
            "lib" => args.push("--lib"),
            test => args.extend(["--test", test]),
        }
    }
    args.extend(packages.iter().flat_map(|package| ["--package", package]));
    let messages = messages(tree, &args)?;
    if let Some(error) = errors(&messages).first() {
        return Err(Failure(format!("the tests do not compile: {}", error.rendered.as_deref().unwrap_or_default())));
    }
    let mut programs: Vec<Program> = messages.into_iter().filter_map(program).collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

fn program(message: Message) -> Option<Program> {
    let Message::CompilerArtifact(Artifact { executable: Some(executable), profile, target, manifest_path, .. }) =
        message
    else {
        return None;
    };
    let folder = PathBuf::from(manifest_path.parent()?);
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let name = format!("{package} {} {}", target.kind.first()?, target.name);
    profile.test.then(|| Program { name, executable: executable.into(), folder })
}

fn messages(tree: &Tree, args: &[&str]) -> Outcome<Vec<Message>> {
    println!("$ cargo {}", args.join(" "));
    let mut command = cargo(args);
    command.args(["--message-format", "json", "--quiet"]).current_dir(&tree.root);
    command.env("CARGO_TARGET_DIR", &tree.target).env("CARGO_PROFILE_DEV_DEBUG", "0").stderr(Stdio::inherit());
    let output = command.output().map_err(|error| Failure(format!("cannot run cargo: {error}")))?;
    let told = |error| Failure(format!("cargo tells what cannot be read: {error}"));
    Message::parse_stream(&output.stdout[..]).collect::<Result<Vec<_>, _>>().map_err(told)
}

fn errors(messages: &[Message]) -> Vec<Diagnostic> {
    let error = |message: &Message| match message {
        Message::CompilerMessage(told) if told.message.level == DiagnosticLevel::Error => Some(told.message.clone()),
        _ => None,
    };
    let is_summary = |error: &Diagnostic| error.message.starts_with("aborting due to") || error.spans.is_empty();
    messages.iter().filter_map(error).filter(|error| !is_summary(error)).collect()
}

/// The mistakes that an error is about: the one around its place, or those on its line that are still in, or else all of its
/// function.
fn culprits(sources: &Sources, edited: &BTreeMap<&str, Edited>, error: &Diagnostic) -> Vec<u32> {
    let mut spans: Vec<&DiagnosticSpan> = error.spans.iter().collect();
    spans.sort_by_key(|span| !span.is_primary);
    let place = |span: &DiagnosticSpan| span.byte_start as usize..span.byte_end as usize;
    let at = |span: &&DiagnosticSpan| edited.get(span.file_name.as_str())?.around(&place(span));
    if let Some(id) = spans.iter().find_map(at) {
        return vec![id];
    }
    let near = |span: &&DiagnosticSpan| {
        let edited = edited.get(span.file_name.as_str())?;
        let byte = edited.origin(span.byte_start as usize);
        let same = |mutant: &&Mutant| mutant.file == span.file_name && mutant.within.contains(&byte);
        let function: Vec<&Mutant> =
            sources.mutants.iter().filter(same).filter(|mutant| edited.has(mutant.id)).collect();
        let line = sources.line(&span.file_name, byte);
        let on_line: Vec<u32> = function.iter().filter(|mutant| mutant.line == line).map(|mutant| mutant.id).collect();
        let all = || function.iter().map(|mutant| mutant.id).collect::<Vec<_>>();
        Some(if on_line.is_empty() { all() } else { on_line }).filter(|found| !found.is_empty())
    };
    spans.iter().find_map(near).unwrap_or_default()
}
