//! The conditions of a merge.

use crate::command::{Outcome, cargo, cargo_giving_way};
use crate::schedule::{Job, Load};
use crate::setup::{self, Install};
use crate::{book, command, programs, steps, test, tidy};

/// Feature sets that must build alone: package and features.
const FEATURES: &[(&str, &[&str])] = &[
    ("tenure-core", &["", "mock", "tracing", "metrics", "json", "cron"]),
    ("tenure", FACADE),
    ("tenure-redis", &["", "tls"]),
    ("tenure-fred", &["", "tls"]),
    ("tenure-etcd", &["", "tls"]),
    ("tenure-conformance", &["", "mutants"]),
    ("tenure-mysql", &["", "tls"]),
    ("tenure-postgres", &["", "tls"]),
    ("tenure-sqlite", &["bundled"]),
    ("tenure-cli", &[""]),
];

const FACADE: &[&str] = &[
    "",
    "memory",
    "redis",
    "fred",
    "redis,fred,tls",
    "postgres",
    "postgres,tls",
    "mysql",
    "mysql,tls",
    "sqlite",
    "etcd",
    "etcd,tls",
    "redlock",
    "redlock,redis",
    "redlock,fred",
    "tracing",
    "metrics",
    "metrics,tracing",
    "json",
    "cron",
    "serde",
    "tower",
    "blocking",
    "blocking,memory",
];

pub(crate) fn run(options: &test::Options) -> Outcome {
    options.begin();
    setup::prepare(Install::Allowed)?;
    run_step(&["fmt", "--all", "--check"])?;
    dependencies()?;
    book::build()?;
    let built = programs::build()?;
    let suite = built.bin("conformance")?;
    steps::within("tidy", || tidy::run(&tidy::Options::default(), Some(suite)))?;
    test::run_built(options, &built, checks())
}

/// What compiles: clippy for all features together and for each set alone, and the docs.
fn checks<'a>() -> Vec<Job<'a>> {
    let clippy = |words: &[&str]| [&["clippy", "--quiet"], words, &["--", "-D", "warnings"]].concat().join("\n");
    let mut commands = vec![
        clippy(&["--workspace", "--all-targets", "--all-features"]),
        ["doc", "--quiet", "--workspace", "--all-features", "--no-deps"].join("\n"),
    ];
    let sets = FEATURES.iter().flat_map(|(package, sets)| sets.iter().map(move |features| (package, features)));
    commands.extend(
        sets.map(|(package, features)| {
            clippy(&["--package", package, "--no-default-features", "--features", features])
        }),
    );
    let job = |words: String| {
        let args: Vec<&str> = words.split('\n').collect();
        let name = command::show(&cargo(&args));
        Job::whole(&name, Load::Computing, move || {
            let args: Vec<&str> = words.split('\n').collect();
            steps::run(cargo_giving_way(&args).env("RUSTDOCFLAGS", "-D warnings")).map(drop)
        })
    };
    commands.into_iter().map(job).collect()
}

/// Licences, sources and duplicates of all dependencies, where the program for it is installed. Known vulnerabilities are not
/// asked for: their list comes over the network.
fn dependencies() -> Outcome {
    const CHECK: &[&str] = &["deny", "--all-features", "check", "-D", "warnings", "bans", "licenses", "sources"];
    if command::on_path("cargo-deny") {
        return run_step(CHECK);
    }
    steps::left_out(&command::show(&cargo(CHECK)), "cargo install --locked cargo-deny");
    Ok(())
}

fn run_step(args: &[&str]) -> Outcome {
    steps::run(&mut cargo(args)).map(drop)
}
