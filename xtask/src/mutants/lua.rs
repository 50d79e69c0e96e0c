//! Mistakes in the scripts of Redis. The models of driver-redis put each into a script before they send it; what they leave is
//! tried by its other tests, of which one build reads from a file which mistake is on.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::beside;
use super::build::{self, Program};
use super::page::Equivalent;
use super::process::{self, End};
use super::trace::{self, Traced};
use super::tree::{self, Tree};
use crate::command::{self, Failure, Outcome, cargo};
use crate::setup;

/// The folder of the scripts, and the file that makes a script of its text.
const SCRIPTS: &str = "redis-support/src/scripts";
const MAKER: &str = "redis-support/src/script.rs";
/// Where it does, and where it does so with the mistake that is on.
const MADE: [&str; 2] = ["let source = composed(text);", "let source = with_mistake(composed(text));"];
/// What puts it in.
const SWITCH: &str = include_str!("lua_switch.txt");

/// Test programs that know nothing of scripts, or make mistakes of their own.
const LEFT_OUT: &[&str] = &["lock_model::", "queue_model::", "interop::"];

/// A mistake that the models did not notice.
struct Left {
    /// The file, the line, and what is wrong in it.
    id: String,
    /// Where what is to be replaced stands, and by what.
    edit: PathBuf,
}

/// `TENURE_MUTANTS_EACH`, `TENURE_MUTANTS_FROM` and `TENURE_MUTANT_STEPS` say which the models try, and for how long.
pub(super) fn run(jobs: usize, longest: Duration) -> Outcome {
    let folder = setup::target().join("mutants").join("lua");
    let edits = folder.join("left");
    let _ = std::fs::remove_dir_all(&edits);
    let made = |error| Failure(format!("cannot make {}: {error}", edits.display()));
    std::fs::create_dir_all(&edits).map_err(made)?;
    let models = ["--package", "tenure-redis", "--all-features", "--test", "lock_model", "--test", "queue_model"];
    let small = ["--no-fail-fast", "--", "--ignored", "--nocapture", "--test-threads", "1"];
    command::run(cargo(&["test"]).args(models).args(small).env("TENURE_MUTANTS_LEFT", &edits))?;
    let (tried, left) = (counted(&edits)?, left(&edits)?);
    let (programs, traced) = programs(&folder, jobs, longest)?;
    let keen = Mutex::new(Vec::new());
    let noticed = beside::each(jobs, &left, |one| by_a_test(one, &programs, &traced, longest, &keen));
    let equivalent = Equivalent::read();
    let (mut others, mut same, mut survived) = (0, 0, 0);
    for (one, noticed) in left.iter().zip(noticed) {
        match noticed? {
            Some(test) => {
                others += 1;
                println!("noticed by {test}: {}", one.id);
            }
            None if equivalent.contains(&one.equivalent()) => same += 1,
            None => {
                survived += 1;
                println!("SURVIVED: {}", one.id);
            }
        }
    }
    let by_models = tried - left.len();
    println!(
        "lua: {tried} mutants, {by_models} noticed by the models, {others} by other tests, {survived} survived, {same} equivalent"
    );
    Ok(())
}

impl Left {
    fn equivalent(&self) -> Equivalent {
        let (file, rest) = self.id.split_once(':').unwrap_or_default();
        let change = rest.split_once(": ").map_or(rest, |(_line, change)| change);
        Equivalent::new(&format!("{SCRIPTS}/{file}.lua"), "", &change.replacen(" -> ", " → ", 1))
    }
}

/// How many the models tried.
fn counted(edits: &Path) -> Outcome<usize> {
    let counts = files(edits, "tried")?;
    let count = |file: &PathBuf| tree::read(file)?.trim().parse::<usize>().map_err(|error| Failure(error.to_string()));
    counts.iter().map(count).sum()
}

fn left(edits: &Path) -> Outcome<Vec<Left>> {
    let one = |edit: PathBuf| Ok(Left { id: tree::read(&edit.with_extension("id"))?, edit });
    files(edits, "edit")?.into_iter().map(one).collect()
}

fn files(folder: &Path, extension: &str) -> Outcome<Vec<PathBuf>> {
    let unreadable = |error| Failure(format!("cannot read {}: {error}", folder.display()));
    let found = std::fs::read_dir(folder).map_err(unreadable)?.map(|entry| entry.map(|entry| entry.path()));
    let mut found: Vec<PathBuf> = found.collect::<Result<_, _>>().map_err(unreadable)?;
    found.retain(|path| path.extension() == Some(OsStr::new(extension)));
    found.sort();
    Ok(found)
}

/// The other tests of the driver, in a copy whose scripts have the mistake that is on; and what they do without one.
fn programs(folder: &Path, jobs: usize, longest: Duration) -> Outcome<(Vec<Program>, Vec<Traced>)> {
    let tree = Tree::make()?;
    let maker = tree::read(&command::root().join(MAKER))?;
    if maker.matches(MADE[0]).count() != 1 {
        return Err(Failure(format!("{MAKER} makes scripts otherwise than by `{}`", MADE[0])));
    }
    let maker = maker.replacen(MADE[0], MADE[1], 1) + SWITCH;
    tree::write_if_other(&tree.root.join(MAKER), maker.as_bytes())?;
    let programs = build::tests(&tree, &["tenure-redis"], &[])?;
    let traced = trace::programs(&programs, folder, jobs, longest)?;
    Ok((programs, traced))
}

/// The first test that notices; those that did so before are asked first.
fn by_a_test(
    one: &Left,
    programs: &[Program],
    traced: &[Traced],
    longest: Duration,
    keen: &Mutex<Vec<usize>>,
) -> Outcome<Option<String>> {
    let mut order = keen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    order.extend((0..programs.len()).filter(|index| !order.contains(index)).collect::<Vec<_>>());
    for index in order {
        let (program, known) = (&programs[index], &traced[index]);
        let names = known.tests.iter().filter(|test| test.passed).map(|test| test.name.as_str());
        let tests: Vec<&str> = names.filter(|name| !LEFT_OUT.iter().any(|module| name.starts_with(module))).collect();
        if tests.is_empty() {
            continue;
        }
        let test = match process::run(program, &tests, longest * 4, ("TENURE_LUA_MUTANT", one.edit.as_ref()))? {
            End::Passed => continue,
            End::Failed(test) => test.unwrap_or_default(),
            End::TimedOut => String::from("(it did not end)"),
        };
        let mut keen = keen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        keen.retain(|known| *known != index);
        keen.insert(0, index);
        return Ok(Some(format!("{} {test}", program.name)));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_that_is_left_is_found_on_the_page() {
        let id = String::from("queue/part/key:45: return other -> return not other");
        let row = "| `redis-support/src/scripts/queue/part/key.lua` | | `return other → return not other` | because |";
        assert_eq!(Some(Left { id, edit: PathBuf::new() }.equivalent()), Equivalent::row(row));
    }

    #[test]
    fn scripts_are_made_where_the_mistake_is_put_in() {
        let maker = tree::read(&command::root().join(MAKER)).unwrap();
        assert_eq!(maker.matches(MADE[0]).count(), 1);
        assert!(syn::parse_file(&(maker.replacen(MADE[0], MADE[1], 1) + SWITCH)).is_ok());
    }
}
