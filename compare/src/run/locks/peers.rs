//! Who is compared.

use super::super::bench::Bench;
use super::super::language::Language;

/// A subject, and which of the commands in the server's statistics its clients send: the others are calls inside
/// scripts.
#[derive(Clone)]
pub(in crate::run) struct Peer {
    pub(in crate::run) name: &'static str,
    pub(in crate::run) language: Language,
    pub(in crate::run) sends: &'static [&'static str],
}

const SCRIPTS: &[&str] = &["eval", "evalsha", "ping"];
const SET_AND_SCRIPTS: &[&str] = &["set", "eval", "evalsha", "ping"];

pub(in crate::run) fn ours(name: &'static str) -> Peer {
    Peer { name, language: Language::Rust, sends: SCRIPTS }
}

pub(super) fn rust(name: &'static str) -> Peer {
    Peer { name, language: Language::Rust, sends: SET_AND_SCRIPTS }
}

/// The libraries of other languages that are installed here; the others are noted as left out.
pub(super) fn foreign(bench: &mut Bench) -> Vec<Peer> {
    let all: [(&str, _, &[&str]); 3] = [
        ("redis-py", Language::python("redis"), SET_AND_SCRIPTS),
        ("python-redis-lock", Language::python("redis_lock"), &["set", "eval", "evalsha", "blpop"]),
        ("node-redlock", Language::node("redlock"), SCRIPTS),
    ];
    let mut found = Vec::new();
    for (name, language, sends) in all {
        match language {
            Ok(language) => found.push(Peer { name, language, sends }),
            Err(why) => bench.report.left_out(name, why),
        }
    }
    found
}
