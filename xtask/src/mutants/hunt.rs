//! One mistake at a time: the tests that reach it are run until one notices. Those that noticed others in the same file come
//! first, then the quickest.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::beside;
use super::build::Program;
use super::edit::Mutant;
use super::process::{self, End};
use super::trace::Traced;
use crate::command::{Failure, Outcome};

/// So many tests that noticed mistakes in the same file are run before the others.
const KEEN: usize = 4;

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
        let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
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

/// How much is done to find out what becomes of a mistake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// How many at a time.
    pub(crate) jobs: usize,
    /// How long the tests of one may take by themselves.
    pub(crate) budget: Option<Duration>,
}

/// How often each test noticed a mistake, by the file of the mistake.
#[derive(Debug, Default)]
struct Keen(Mutex<HashMap<String, HashMap<String, u32>>>);

impl Keen {
    /// As the book has it.
    fn of(mutants: &[Mutant], book: &Book) -> Self {
        let keen = Self::default();
        let fates = book.fates.lock().unwrap_or_else(PoisonError::into_inner);
        for mutant in mutants {
            fates.get(&mutant.id).into_iter().for_each(|fate| keen.learn(mutant, fate));
        }
        drop(fates);
        keen
    }

    fn learn(&self, mutant: &Mutant, fate: &Fate) {
        if let Fate::Noticed(by) = fate {
            *self.files().entry(mutant.file.clone()).or_default().entry(by.clone()).or_default() += 1;
        }
    }

    /// The keenest first.
    fn tests(&self, file: &str) -> Vec<String> {
        let files = self.files();
        let mut tests: Vec<(&String, &u32)> = files.get(file).into_iter().flatten().collect();
        tests.sort_by_key(|(test, times)| (std::cmp::Reverse(**times), *test));
        tests.into_iter().map(|(test, _)| test.clone()).collect()
    }

    fn files(&self) -> MutexGuard<'_, HashMap<String, HashMap<String, u32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds out what becomes of those that are due, several at a time.
pub(crate) fn all(
    due: &[&Mutant],
    mutants: &[Mutant],
    programs: &[Program],
    traced: &[Traced],
    book: &Book,
    effort: Effort,
) -> Outcome {
    let keen = Keen::of(mutants, book);
    let results = beside::each(effort.jobs, due, |mutant| {
        let fate = one(mutant.id, programs, traced, &keen.tests(&mutant.file), effort.budget)?;
        println!("  {} {}:{} {} {}", mutant.id, mutant.file, mutant.line, mutant.change(), shown(&fate));
        keen.learn(mutant, &fate);
        book.add(mutant.id, fate)
    });
    results.into_iter().collect()
}

fn one(id: u32, programs: &[Program], traced: &[Traced], keen: &[String], budget: Option<Duration>) -> Outcome<Fate> {
    let batches = batches(id, traced, keen);
    if batches.is_empty() {
        return Ok(Fate::Unreached);
    }
    let mut spent = Duration::ZERO;
    for batch in &batches {
        spent += Duration::from_millis(batch.millis);
        if budget.is_some_and(|budget| spent > budget) && batch != &batches[0] {
            break;
        }
        let limit = Duration::from_secs(4) + Duration::from_millis(batch.millis) * 8;
        for (index, tests) in &batch.tests {
            let program = &programs[*index];
            let end = process::run(program, tests, limit, ("TENURE_MUTANT", id.to_string().as_ref()))?;
            match end {
                End::Passed => {}
                End::Failed(test) => return Ok(Fate::Noticed(named(&program.name, test.as_deref()))),
                End::TimedOut => return Ok(Fate::Hangs(named(&program.name, tests.first().copied()))),
            }
        }
    }
    Ok(Fate::Survived)
}

fn named(program: &str, test: Option<&str>) -> String {
    format!("{program}: {}", test.unwrap_or("(its end)"))
}

/// The tests that reach a mistake: the keen ones, then the quickest, and each batch takes about three times as long as the one
/// before.
fn batches<'a>(id: u32, traced: &'a [Traced], keen: &[String]) -> Vec<Batch<'a>> {
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
    let rank = |(_, index, name): &(u64, usize, Option<&str>)| {
        keen.iter().position(|test| *test == named(&traced[*index].program, *name)).filter(|rank| *rank < KEEN)
    };
    tests.sort_by_cached_key(|test| (rank(test).unwrap_or(KEEN), *test));
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
        let names: Vec<_> = batches(1, &traced, &[]).into_iter().map(|batch| (batch.millis, batch.tests)).collect();
        assert_eq!(
            names,
            [
                (786, vec![(3, vec!["i"]), (0, vec!["a", "b"]), (2, vec![]), (1, vec!["c", "d"])]),
                (9000, vec![(0, vec!["slow"])])
            ]
        );
        assert!(batches(3, &traced, &[]).is_empty());
        let keen = ["p: slow".to_owned(), "q: e".to_owned()];
        assert_eq!(batches(1, &traced, &keen)[0], Batch { tests: vec![(0, vec!["slow"])], millis: 9000 });
    }
}
