//! Small mistakes in Lua, one at a time: what a test of the scripts has to notice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::wire::Edit;
use tenure_models::number;

/// A mistake that was put into one file of the scripts.
pub(crate) struct Mutant {
    /// The file, the line, and what is wrong in it.
    pub(crate) id: String,
    pub(crate) edit: Edit,
}

/// What is written in place of what, wherever it stands.
const WORDS: &[(&str, &str)] = &[
    (" == ", " ~= "),
    (" ~= ", " == "),
    (" < ", " <= "),
    (" <= ", " < "),
    (" > ", " >= "),
    (" >= ", " > "),
    (" + ", " - "),
    (" - ", " + "),
    (" and ", " or "),
    (" or ", " and "),
    ("not ", ""),
    ("true", "false"),
    ("false", "true"),
];

/// How a line begins that does something and may be forgotten.
const DEEDS: &[&str] = &["redis.call(", "drop(", "pass_on(", "bury(", "if head then drop", "insert(", "remove("];

/// The folder with the scripts.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../redis-support/src/scripts")
}

/// Every mutant of these files: of each line, every word that can be another, every number that can be greater by one, its
/// condition negated, and what it does forgotten.
pub(crate) fn mutants(files: &[&str]) -> Vec<Mutant> {
    files.iter().flat_map(|file| of_file(file)).collect()
}

fn of_file(file: &str) -> Vec<Mutant> {
    let text = std::fs::read_to_string(folder().join(file).with_extension("lua")).unwrap();
    let mut all = Vec::new();
    let mut number = 0;
    // What stands between two includes is found again, as it is, in the scripts.
    for piece in text.split_inclusive('\n').collect::<Vec<_>>().split_inclusive(|line| line.contains("-- @include ")) {
        let lines = &piece[..piece.len() - usize::from(piece.last().is_some_and(|line| line.contains("-- @include ")))];
        let piece_text = lines.concat();
        let mut from = 0;
        for (at, line) in lines.iter().enumerate() {
            let code = line.find("--").map_or(line.trim_end(), |comment| &line[..comment]);
            for wrong in variants(code) {
                let to = [&piece_text[..from], &wrong, &piece_text[from + code.len()..]].concat();
                let id = format!("{file}:{}: {} -> {}", number + at + 1, code.trim(), wrong.trim());
                all.push(Mutant { id, edit: Edit { from: piece_text.clone(), to } });
            }
            from += line.len();
        }
        number += piece.len();
    }
    all
}

fn variants(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (word, other) in WORDS {
        for (at, _) in code.match_indices(word) {
            all.push([&code[..at], other, &code[at + word.len()..]].concat());
        }
    }
    all.extend(greater(code));
    if let Some((before, rest)) = code.split_once("if ")
        && let Some((condition, after)) = rest.split_once(" then")
    {
        all.push(format!("{before}if not ({condition}) then{after}"));
    }
    if DEEDS.iter().any(|deed| code.trim_start().starts_with(deed)) {
        all.push(String::new());
    }
    all
}

/// Each whole number outside of strings, greater by one: also those that say which key or argument is meant.
fn greater(code: &str) -> Vec<String> {
    let bytes = code.as_bytes();
    let (mut all, mut at, mut quoted) = (Vec::new(), 0, false);
    while at < bytes.len() {
        let end = at + bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let begins = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        if end > at && begins && !quoted {
            let number: u64 = code[at..end].parse().unwrap();
            all.push(format!("{}{}{}", &code[..at], number + 1, &code[end..]));
        }
        quoted ^= bytes[at] == b'\'';
        at = end.max(at + 1);
    }
    all
}

/// What became of a mutant: what noticed it, and at which step; or that nothing did.
pub(crate) type Fate = Result<u64, (u64, String)>;

/// Takes a panic for a notice: the scripts may answer anything.
pub(crate) fn fate(run: impl FnOnce() -> Fate) -> Fate {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Err((0, format!("panicked: {text}")))
    })
}

/// Tries every `TENURE_MUTANTS_EACH`th mutant, and tells which survive; also in the folder `TENURE_MUTANTS_LEFT`, for other tests.
pub(crate) fn survivors(files: &[&str], mut run: impl FnMut(&Edit) -> Fate) -> Vec<String> {
    let (each, first) = (number("TENURE_MUTANTS_EACH", 1) as usize, number("TENURE_MUTANTS_FROM", 0) as usize);
    let tried: Vec<_> = mutants(files).into_iter().skip(first).step_by(each).collect();
    let mut left = Vec::new();
    let folder = std::env::var_os("TENURE_MUTANTS_LEFT").map(PathBuf::from);
    let name = files[0].replace('/', "_");
    for (done, mutant) in tried.iter().enumerate() {
        match fate(|| run(&mutant.edit)) {
            Ok(_) => {
                println!("{done} of {}: survives: {}", tried.len(), mutant.id);
                if let Some(folder) = &folder {
                    let file = folder.join(format!("{name}-{done:04}"));
                    std::fs::write(file.with_extension("id"), &mutant.id).unwrap();
                    let Edit { from, to } = &mutant.edit;
                    std::fs::write(file.with_extension("edit"), format!("{from}\0{to}")).unwrap();
                }
                left.push(mutant.id.clone());
            }
            Err((_, _)) if done % 50 == 0 => println!("{done} of {}: {} dies", tried.len(), mutant.id),
            Err(_) => {}
        }
    }
    if let Some(folder) = &folder {
        std::fs::write(folder.join(name).with_extension("tried"), tried.len().to_string()).unwrap();
    }
    println!("{} of {} mutants die", tried.len() - left.len(), tried.len());
    left
}
