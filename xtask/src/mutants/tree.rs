//! A copy of the workspace in which the mistakes are made, with a build folder of its own.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::edit::{self, Edited, Mutant};
use super::points;
use crate::command::{self, Failure, Outcome};
use crate::setup;

/// What asks which mistake is on; it is added to the crate.
const SWITCH: &str = include_str!("switch.txt");

/// Files of a build that are smaller than this are copied: cargo writes some of them anew in their place.
const LINKED: u64 = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

/// A crate's sources, and all mistakes that can be made in them.
#[derive(Debug)]
pub(crate) struct Sources {
    folder: &'static str,
    files: BTreeMap<String, String>,
    pub(crate) mutants: Vec<Mutant>,
}

impl Sources {
    /// Follows the modules from `lib.rs` on, but for those of tests.
    pub(crate) fn read(folder: &'static str) -> Outcome<Self> {
        let mut sources = Self { folder, files: BTreeMap::new(), mutants: Vec::new() };
        let mut left = vec![format!("{folder}/src/lib.rs")];
        while let Some(file) = left.pop() {
            let text = read(&command::root().join(&file))?;
            let found = points::find(&file, &text, u32::try_from(sources.mutants.len()).unwrap_or(u32::MAX))
                .map_err(|error| Failure(format!("cannot parse {file}: {error}")))?;
            let inside = match file.strip_suffix("/lib.rs").or(file.strip_suffix("/mod.rs")) {
                Some(inside) => inside,
                None => file.trim_end_matches(".rs"),
            };
            for module in found.modules {
                let flat = format!("{inside}/{module}.rs");
                let is_flat = command::root().join(&flat).exists();
                left.push(if is_flat { flat } else { format!("{inside}/{module}/mod.rs") });
            }
            sources.mutants.extend(found.mutants);
            sources.files.insert(file, text);
        }
        Ok(sources)
    }

    /// Each file with the mistakes, but for those in `without`.
    pub(crate) fn edited(&self, without: &HashSet<u32>) -> BTreeMap<&str, Edited> {
        let edit = |(file, text): (&'_ String, &String)| {
            let here = |mutant: &&Mutant| mutant.file == *file && !without.contains(&mutant.id);
            edit::apply(text, &self.mutants.iter().filter(here).collect::<Vec<_>>())
        };
        self.files.iter().map(|entry| (entry.0.as_str(), edit(entry))).collect()
    }

    /// The line of a byte of a file.
    pub(crate) fn line(&self, file: &str, byte: usize) -> usize {
        let before = self.files.get(file).and_then(|text| text.as_bytes().get(..byte)).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// The same as long as the same mistakes have the same numbers.
    pub(crate) fn digest(&self) -> String {
        let told = self
            .mutants
            .iter()
            .flat_map(|m| format!("{}{}{}{}", m.file, m.function, m.before, m.change()).into_bytes());
        let hash =
            told.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        format!("{hash:016x}")
    }
}

impl Tree {
    /// Copies the sources, and what is built of other packages, so that they are not built once more.
    pub(crate) fn make() -> Outcome<Self> {
        let folder = setup::target().join("mutants");
        let tree = Self { root: folder.join("tree"), target: folder.join("build") };
        let listed = ["ls-files", "--cached", "--others", "--exclude-standard"];
        let files = command::output(std::process::Command::new("git").args(listed))?;
        for file in files.lines() {
            let from = command::root().join(file);
            if let Ok(content) = std::fs::read(&from) {
                write_if_other(&tree.root.join(file), &content)?;
            }
        }
        for part in ["deps", "build", ".fingerprint"] {
            link(&setup::target().join("debug").join(part), &tree.target.join("debug").join(part), is_foreign)?;
        }
        Ok(tree)
    }

    /// Writes the crate with its mistakes.
    pub(crate) fn write(&self, sources: &Sources, edited: &BTreeMap<&str, Edited>) -> Outcome {
        for (file, edited) in edited {
            let mut text = edited.text.clone();
            if file.ends_with("src/lib.rs") {
                let count = sources.mutants.len().max(1).to_string();
                // Arithmetic that is wrong in every run is a mistake like others. On the first line, so that all keep their numbers.
                let allowed = "#![allow(arithmetic_overflow, unconditional_panic)]";
                text = format!("{allowed} {text}{}", SWITCH.replace("COUNT", &count));
            }
            write_if_other(&self.root.join(file), text.as_bytes())?;
        }
        // What is left out or never used is no reason to build nothing.
        let manifest = format!("{}/Cargo.toml", sources.folder);
        let text = read(&command::root().join(&manifest))?.replace("[lints]\nworkspace = true\n", "");
        write_if_other(&self.root.join(manifest), text.as_bytes())
    }
}

/// Whether a file or folder of a build belongs to a package that is not of this workspace.
fn is_foreign(name: &str) -> bool {
    let crate_name = name.strip_prefix("lib").unwrap_or(name).replace('-', "_");
    const EXAMPLES: [&str; 5] = ["cookbook", "custom_driver", "service", "swap_in_tests", "web"];
    let example = EXAMPLES.iter().any(|name| crate_name.starts_with(&format!("{name}_example")));
    let own = ["tenure", "xtask"];
    !example && !own.iter().any(|own| crate_name.starts_with(own))
}

/// Files without an extension in `deps` are programs, which are linked anew.
fn link(from: &Path, to: &Path, wanted: fn(&str) -> bool) -> Outcome {
    let told = |error: std::io::Error| Failure(format!("cannot link {}: {error}", from.display()));
    std::fs::create_dir_all(to).map_err(told)?;
    for entry in std::fs::read_dir(from).map_err(told)? {
        let entry = entry.map_err(told)?;
        let (name, target) = (entry.file_name(), to.join(entry.file_name()));
        let metadata = entry.metadata().map_err(told)?;
        let is_program = from.ends_with("deps") && target.extension().is_none();
        if target.exists() && !metadata.is_dir() || is_program || !wanted(&name.to_string_lossy()) {
            continue;
        }
        if metadata.is_dir() {
            link(&entry.path(), &target, |_| true)?;
        } else if metadata.len() < LINKED {
            std::fs::copy(entry.path(), &target).map_err(told)?;
            let times = std::fs::FileTimes::new().set_modified(metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH));
            std::fs::File::options().append(true).open(&target).and_then(|file| file.set_times(times)).map_err(told)?;
        } else {
            std::fs::hard_link(entry.path(), &target).map_err(told)?;
        }
    }
    Ok(())
}

pub(crate) fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| Failure(format!("cannot read {}: {error}", path.display())))
}

/// Leaves a file alone that is the same: cargo goes by its time.
pub(crate) fn write_if_other(path: &Path, content: &[u8]) -> Outcome {
    if std::fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(path, content));
    written.map_err(|error| Failure(format!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_of_this_workspace_is_linked() {
        for (name, foreign) in [
            ("libtokio-1a2b.rlib", true),
            ("serde-77aa", true),
            ("libtenure_core-1a2b.rmeta", false),
            ("tenure-core-1a2b", false),
            ("xtask-1a2b.d", false),
        ] {
            assert_eq!(is_foreign(name), foreign, "{name}");
        }
    }

    #[test]
    fn the_modules_of_a_crate_are_followed() {
        let sources = Sources::read("core").unwrap();
        for file in [
            "core/src/lib.rs",
            "core/src/value/time.rs",
            "core/src/engine/renewer.rs",
            "core/src/engine/local_handover.rs",
        ] {
            assert!(sources.files.contains_key(file), "{file}");
        }
        assert!(sources.mutants.iter().enumerate().all(|(index, mutant)| mutant.id as usize == index));
        let edited = sources.edited(&HashSet::new());
        assert!(edited.values().all(|edited| syn::parse_file(&edited.text).is_ok()));
    }
}
