//! Which test reaches which mistake, and how long it takes: each is run once by itself, with no mistake on.

use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::beside;
use super::build::Program;
use super::process::{self, End};
use super::tree::write_if_other;
use crate::command::{Failure, Outcome};

/// A test, as it went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) millis: u64,
    /// The mistakes that it reaches; none if it failed or took too long.
    pub(crate) reaches: Vec<u32>,
    pub(crate) passed: bool,
}

/// The tests of one program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Traced {
    pub(crate) program: String,
    /// Tells one build of it from another.
    build: String,
    /// Whether it runs several tests that are named; one with a harness of its own runs one, or all.
    pub(crate) runs_several: bool,
    pub(crate) tests: Vec<Test>,
}

/// The tests of each program. Programs that are the same as in the last trace are not run again.
pub(crate) fn programs(programs: &[Program], folder: &Path, jobs: usize, longest: Duration) -> Outcome<Vec<Traced>> {
    let file = folder.join("trace.json");
    let known = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Vec<Traced>>(&text).ok());
    let known = known.unwrap_or_default();
    let mut all: Vec<Traced> = Vec::new();
    for program in programs {
        let build = stamp(program)?;
        if let Some(same) = known.iter().find(|traced| traced.program == program.name && traced.build == build) {
            all.push(same.clone());
            continue;
        }
        let names = process::list(program)?;
        let run = |name: &String| one(program, name, folder, longest);
        let tests = beside::each(jobs, &names, run).into_iter().collect::<Outcome<Vec<_>>>()?;
        let left: Vec<&str> = tests.iter().filter(|test| !test.passed).map(|test| test.name.as_str()).collect();
        println!("  {}: {} tests; left out: {left:?}", program.name, names.len());
        let runs_several = runs_several(program, &tests, longest)?;
        all.push(Traced { program: program.name.clone(), build, runs_several, tests });
        let text = serde_json::to_vec(&all).map_err(|error| Failure(format!("cannot write the trace: {error}")))?;
        write_if_other(&file, &text)?;
    }
    Ok(all)
}

fn runs_several(program: &Program, tests: &[Test], longest: Duration) -> Outcome<bool> {
    let some: Vec<&str> = tests.iter().filter(|test| test.passed).map(|test| test.name.as_str()).take(2).collect();
    let end = process::run(program, &some, longest * 2, ("TENURE_MUTANT", "none".as_ref()))?;
    Ok(end == End::Passed)
}

fn one(program: &Program, name: &str, folder: &Path, longest: Duration) -> Outcome<Test> {
    let file = folder.join(format!("reached-{:?}", std::thread::current().id()));
    let _ = std::fs::remove_file(&file);
    let started = Instant::now();
    let end = process::run(program, &[name], longest, ("TENURE_MUTANT_TRACE", file.as_os_str()))?;
    let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let passed = end == End::Passed;
    let bytes = if passed { std::fs::read(&file).unwrap_or_default() } else { Vec::new() };
    let mut reaches: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)).collect();
    reaches.sort_unstable();
    reaches.dedup();
    let _ = std::fs::remove_file(&file);
    Ok(Test { name: name.to_owned(), millis, reaches, passed })
}

fn stamp(program: &Program) -> Outcome<String> {
    let told = |error| Failure(format!("cannot look at {}: {error}", program.name));
    let metadata = std::fs::metadata(&program.executable).map_err(told)?;
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok(format!("{} {} {}", program.executable.display(), modified.as_nanos(), metadata.len()))
}
