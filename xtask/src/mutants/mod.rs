//! Mutants of the code: one small mistake at a time, and the tests that have to notice it.
//!
//! A crate of Rust is built once, with all mistakes in it; an environment variable says which one is on. Tests are first
//! run with none, to learn which mistakes each of them reaches. For the scripts of Redis see [`lua`].

mod beside;
mod build;
mod edit;
mod hunt;
mod lua;
mod page;
mod points;
mod process;
mod trace;
mod tree;

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum as _;
use edit::Mutant;
use hunt::{Book, Fate};
use page::Equivalent;
use tree::{Sources, Tree};

use crate::command::{Failure, Outcome};
use crate::setup;

/// Whose code is mutated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Driver {
    Core,
    Memory,
    Redis,
    Redlock,
    Etcd,
    /// The scripts of Redis
    Lua,
}

/// Their own tests, and the suite in memory.
const SUITE: &[&str] = &["tenure-core", "tenure-memory", "tenure-conformance"];

/// Tests of the suite's own mutants, which run it many times.
const LEFT_OUT: &[&str] = &["conformance-tests test it"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Whose code is mutated (may be repeated; default: all)
    #[arg(long)]
    driver: Vec<Driver>,
    /// Only so many, chosen at random
    #[arg(long)]
    sample: Option<usize>,
    /// Decides the sample
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only files whose path contains this (may be repeated)
    #[arg(long)]
    file: Vec<String>,
    /// Only these tests: `lib`, or the name of a file below `tests/` (may be repeated)
    #[arg(long)]
    tests: Vec<String>,
    /// Also the tests of these packages (may be repeated); those that need servers start them
    #[arg(long)]
    package: Vec<String>,
    /// Print the mutants, and run nothing
    #[arg(long)]
    list: bool,
    /// Only these, and again (may be repeated)
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    check: Vec<u32>,
    /// Those that nothing noticed, and those whose tests did not end, again
    #[arg(long)]
    again: bool,
    /// How many at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Leave out tests that take longer than so many seconds
    #[arg(long, default_value_t = 10)]
    longest: u64,
    /// Try each with no more tests than take so many seconds by themselves, the quickest ones: for a first look
    #[arg(long)]
    budget: Option<u64>,
}

/// A crate, and the packages whose tests have to notice.
struct Subject {
    package: &'static str,
    folder: &'static str,
    tests: &'static [&'static str],
}

impl Driver {
    /// Nothing for what is not written in Rust.
    fn subject(self) -> Option<Subject> {
        let (package, folder, tests): (_, _, &[&str]) = match self {
            Self::Core => ("tenure-core", "core", SUITE),
            Self::Memory => ("tenure-memory", "driver-memory", SUITE),
            Self::Redis => ("tenure-redis-support", "redis-support", &["tenure-redis-support", "tenure-redis"]),
            Self::Redlock => ("tenure-redlock", "driver-redlock", &["tenure-redlock"]),
            Self::Etcd => ("tenure-etcd", "driver-etcd", &["tenure-etcd"]),
            Self::Lua => return None,
        };
        Some(Subject { package, folder, tests })
    }
}

pub(crate) fn run(options: &Options) -> Outcome {
    let chosen = |driver: &&Driver| options.driver.is_empty() || options.driver.contains(driver);
    Driver::value_variants().iter().filter(chosen).try_for_each(|driver| match driver.subject() {
        Some(subject) => rust(&subject, options),
        None => lua::run(options.jobs, Duration::from_secs(options.longest)),
    })
}

fn rust(subject: &Subject, options: &Options) -> Outcome {
    let sources = Sources::read(subject.folder)?;
    if options.list {
        for mutant in sources.mutants.iter().filter(|mutant| options.is_in_file(mutant)) {
            println!("{} {}:{} {} {}", mutant.id, mutant.file, mutant.line, mutant.function, mutant.change());
        }
        return Ok(());
    }
    let folder = setup::target().join("mutants").join(subject.package);
    let made = |error| Failure(format!("cannot make {}: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(made)?;
    let tree = Tree::make()?;
    let dropped = compiled(&tree, &sources, subject, &folder)?;
    let packages: Vec<&str> = subject.tests.iter().copied().chain(options.package.iter().map(String::as_str)).collect();
    let mut programs = build::tests(&tree, &packages, &options.tests)?;
    programs.retain(|program| !LEFT_OUT.contains(&program.name.as_str()));
    let traced = trace::programs(&programs, &folder, options.jobs, Duration::from_secs(options.longest))?;
    let book = Book::open(folder.join(format!("fates-{}.jsonl", sources.digest())));
    let wanted = options.choose(&sources, &dropped);
    let due: Vec<&Mutant> = wanted.iter().filter(|mutant| options.is_due(mutant, &book, &dropped)).copied().collect();
    println!("{} mutants, {} to be tried", wanted.len(), due.len());
    let effort = hunt::Effort { jobs: options.jobs, budget: options.budget.map(Duration::from_secs) };
    hunt::all(&due, &sources.mutants, &programs, &traced, &book, effort)?;
    let fates = book.fates.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    println!("{}", page::write(&folder, subject.package, &wanted, &dropped, &fates)?);
    println!("told in {}", folder.join("result.md").display());
    Ok(())
}

/// Makes the copy compile, and tells which mistakes had to be taken out: all that were, last time, of the same sources.
fn compiled(tree: &Tree, sources: &Sources, subject: &Subject, folder: &Path) -> Outcome<HashSet<u32>> {
    let file = folder.join(format!("dropped-{}.json", sources.digest()));
    let known = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let mut dropped: HashSet<u32> = known.unwrap_or_default();
    build::settle(tree, sources, subject.package, &mut dropped)?;
    tree::write_if_other(&file, serde_json::json!(dropped).to_string().as_bytes())?;
    Ok(dropped)
}

impl Options {
    fn is_in_file(&self, mutant: &Mutant) -> bool {
        self.file.is_empty() || self.file.iter().any(|file| mutant.file.contains(file))
    }

    /// Those of these files, or a sample of them.
    fn choose<'a>(&self, sources: &'a Sources, dropped: &HashSet<u32>) -> Vec<&'a Mutant> {
        let mut all: Vec<&Mutant> = sources.mutants.iter().filter(|mutant| self.is_in_file(mutant)).collect();
        let Some(sample) = self.sample else { return all };
        all.retain(|mutant| !dropped.contains(&mutant.id));
        all.sort_by_cached_key(|mutant| scattered(self.seed, mutant.id));
        all.truncate(sample);
        all.sort_by_key(|mutant| mutant.id);
        all
    }

    fn is_due(&self, mutant: &Mutant, book: &Book, dropped: &HashSet<u32>) -> bool {
        if !self.check.is_empty() {
            return self.check.contains(&mutant.id);
        }
        let fates = book.fates.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        !dropped.contains(&mutant.id)
            && match fates.get(&mutant.id) {
                None => true,
                Some(Fate::Survived | Fate::Unreached | Fate::Hangs(_)) => {
                    self.again && !Equivalent::read().contains(&Equivalent::of(mutant))
                }
                Some(_) => false,
            }
    }
}

/// A number that looks like chance, and is the same for the same seed.
fn scattered(seed: u64, id: u32) -> u64 {
    let mixed = (seed ^ (u64::from(id) << 32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
