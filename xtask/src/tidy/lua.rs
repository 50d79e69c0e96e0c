//! A file of Lua is a script or a part of one, and parses by itself. Why: the code that a server runs can be read in one place, and tools
//! for the language can read it as well.

use super::lengths::{read, tracked};
use crate::command::{Findings, Outcome};

/// The line that includes another file.
const INCLUDE: &str = "-- @include ";

pub(super) fn check() -> Outcome<Findings> {
    let mut findings = Findings::new();
    let files = tracked("*.lua")?;
    let mut included = Vec::new();
    for path in &files {
        let text = read(path)?;
        findings.extend(faults(&text).into_iter().map(|fault| format!("{path}: does not parse: {fault}")));
        included.extend(text.lines().filter_map(|line| Some(line.trim().strip_prefix(INCLUDE)?.to_owned())));
        if !is_part(path) {
            let header: String = text.lines().take_while(|line| line.starts_with("--")).collect();
            for word in ["KEYS", "ARGV", "Returns", "Atomic"] {
                if !header.contains(word) {
                    findings.push(format!("{path}: its header does not speak of {word}"));
                }
            }
        }
    }
    for path in files.iter().filter(|path| is_part(path)) {
        if !included.iter().any(|file| path.ends_with(&format!("/{file}"))) {
            findings.push(format!("{path}: no script includes it"));
        }
    }
    Ok(findings)
}

fn is_part(path: &str) -> bool {
    path.contains("/part/")
}

fn faults(text: &str) -> Vec<String> {
    match full_moon::parse(text) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_block_does_not_parse() {
        assert!(faults("-- @include part/now.lua\nreturn 1\n").is_empty());
        assert!(!faults("if redis.call('EXISTS', KEYS[1]) then\n").is_empty());
        assert!(!faults("end\n").is_empty());
    }
}
