//! One mistake at a time: the tests that reach it are run, the quickest first, until one notices.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::build::Program;
use super::edit::Mutant;
use super::process::{self, End};
use super::trace::Traced;
use crate::beside;
use crate::command::{Failure, Outcome};

/// What became of a mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    /// By this test, or by a program that ended otherwise than it should.
    Noticed(String),
    /// By tests that did not end.
    Hangs(String),
    Survived,
    /// No test gets there.
    Unreached,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) id: u32,
    pub(crate) fate: Fate,
}

/// What is known of fates, kept in a file to which each is added as it is found out.
#[derive(Debug)]
pub(crate) struct Book {
    file: PathBuf,
    pub(crate) fates: Mutex<HashMap<u32, Fate>>,
}

impl Book {
    pub(crate) fn open(file: PathBuf) -> Self {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let told = text.lines().filter_map(|line| serde_json::from_str::<Told>(line).ok());
        let fates = told.map(|told| (told.id, told.fate)).collect();
        Self { file, fates: Mutex::new(fates) }
    }

    fn add(&self, id: u32, fate: Fate) -> Outcome {
        let cannot = |error: std::io::Error| Failure(format!("cannot write {}: {error}", self.file.display()));
        let line = serde_json::to_string(&Told { id, fate: fate.clone() }).unwrap_or_default();
        let mut fates = self.fates.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut file = OpenOptions::new().append(true).create(true).open(&self.file).map_err(cannot)?;
        writeln!(file, "{line}").map_err(cannot)?;
        fates.insert(id, fate);
        Ok(())
    }
}

/// Some tests that reach a mistake.
#[derive(Debug, Default, PartialEq, Eq)]
struct Batch<'a> {
    /// By the index of their program; all of it where none is named.
    tests: Vec<(usize, Vec<&'a str>)>,
    millis: u64,
}

/// Finds out what becomes of each, several at a time.
pub(crate) fn all(mutants: &[&Mutant], programs: &[Program], traced: &[Traced], book: &Book, jobs: usize) -> Outcome {
    let results = beside::each(jobs, mutants, |mutant| {
        let fate = one(mutant.id, programs, traced)?;
        println!("  {} {}:{} {} {}", mutant.id, mutant.file, mutant.line, mutant.change(), shown(&fate));
        book.add(mutant.id, fate)
    });
    results.into_iter().collect()
}

fn one(id: u32, programs: &[Program], traced: &[Traced]) -> Outcome<Fate> {
    let batches = batches(id, traced);
    if batches.is_empty() {
        return Ok(Fate::Unreached);
    }
    for batch in &batches {
        let limit = Duration::from_secs(4) + Duration::from_millis(batch.millis) * 8;
        for (index, tests) in &batch.tests {
            let program = &programs[*index];
            let end = process::run(program, tests, limit, ("TENURE_MUTANT", id.to_string().as_ref()))?;
            let by = |test: Option<String>| format!("{}: {}", program.name, test.as_deref().unwrap_or("(its end)"));
            match end {
                End::Passed => {}
                End::Failed(test) => return Ok(Fate::Noticed(by(test))),
                End::TimedOut => return Ok(Fate::Hangs(by(tests.first().map(|test| (*test).to_owned())))),
            }
        }
    }
    Ok(Fate::Survived)
}

/// The tests that reach a mistake, the quickest first: each batch takes about three times as long as the one before.
fn batches(id: u32, traced: &[Traced]) -> Vec<Batch<'_>> {
    let mut tests: Vec<(u64, usize, Option<&str>)> = Vec::new();
    for (index, program) in traced.iter().enumerate() {
        let reaching: Vec<_> = program.tests.iter().filter(|test| test.reaches.binary_search(&id).is_ok()).collect();
        if program.runs_several || reaching.len() == 1 {
            tests.extend(reaching.iter().map(|test| (test.millis, index, Some(test.name.as_str()))));
        } else if !reaching.is_empty() && program.tests.iter().all(|test| test.passed) {
            let all = program.tests.iter().map(|test| test.millis).sum();
            tests.push((all, index, None));
        }
    }
    tests.sort_unstable();
    let mut batches: Vec<Batch<'_>> = Vec::new();
    let mut room = 200;
    for (millis, index, name) in tests {
        if batches.last().is_none_or(|batch| batch.millis >= room) {
            room *= 3;
            batches.push(Batch::default());
        }
        let Some(batch) = batches.last_mut() else { break };
        batch.millis += millis;
        match batch.tests.iter_mut().find(|(program, _)| *program == index) {
            Some((_, names)) => names.extend(name),
            None => batch.tests.push((index, name.into_iter().collect())),
        }
    }
    batches
}

pub(crate) fn shown(fate: &Fate) -> String {
    match fate {
        Fate::Noticed(by) => format!("noticed by {by}"),
        Fate::Hangs(_) => "hangs".into(),
        Fate::Survived => "SURVIVED".into(),
        Fate::Unreached => "no test gets there".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::Test;
    use super::*;

    #[test]
    fn quick_tests_come_first_and_those_of_a_program_together() {
        let test = |name: &str, millis, reaches: &[u32]| Test {
            name: name.into(),
            millis,
            reaches: reaches.to_vec(),
            passed: true,
        };
        let traced = serde_json::json!([
            { "program": "p", "build": "", "runs_several": true, "tests": [test("slow", 9000, &[1]), test("a", 10, &[1, 2]), test("b", 30, &[1])] },
            { "program": "q", "build": "", "runs_several": true, "tests": [test("c", 20, &[1]), test("d", 700, &[1]), test("e", 1, &[2])] },
            { "program": "r", "build": "", "runs_several": false, "tests": [test("f", 5, &[1]), test("g", 6, &[1]), test("h", 7, &[])] },
            { "program": "s", "build": "", "runs_several": false, "tests": [test("i", 8, &[1]), test("j", 6, &[])] },
        ]);
        let traced: Vec<Traced> = serde_json::from_value(traced).unwrap();
        let names: Vec<_> = batches(1, &traced).into_iter().map(|batch| (batch.millis, batch.tests)).collect();
        assert_eq!(
            names,
            [
                (786, vec![(3, vec!["i"]), (0, vec!["a", "b"]), (2, vec![]), (1, vec!["c", "d"])]),
                (9000, vec![(0, vec!["slow"])])
            ]
        );
        assert!(batches(3, &traced).is_empty());
    }
}
