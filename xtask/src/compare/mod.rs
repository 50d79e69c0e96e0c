//! Comparing with other libraries: the package in `compare/` measures, this runs it, prints what came out, and writes it
//! into `docs/performance.md`.

pub(crate) mod page;

use std::path::PathBuf;

use crate::command::{self, Failure, Outcome, cargo};
use crate::setup::{self, Install};

/// The package is outside the workspace, so that other libraries do not enter the workspace's lock file.
const MANIFEST: &str = "compare/Cargo.toml";

pub(crate) fn run(args: &[String]) -> Outcome {
    let (name, rest) = match args.split_first() {
        Some((name, [])) if name == "page" => return page::rewrite(),
        Some((name, rest)) if ["locks", "queue"].contains(&name.as_str()) => (name, rest),
        _ => return Err(Failure(String::from("compare what? locks, queue or page"))),
    };
    let mut passed = Vec::new();
    let mut json = None;
    let mut rest = rest.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--json" => json = rest.next().map(PathBuf::from),
            "--only" => passed.extend([arg, rest.next().unwrap_or(arg)]),
            "--quick" => passed.push(arg),
            other => return Err(Failure(format!("compare does not know {other:?}"))),
        }
    }
    let documented = json.is_none();
    let json = json.unwrap_or_else(|| page::source(name));
    let mut command = cargo(&["run", "--release", "--quiet", "--manifest-path", MANIFEST]);
    if command::on_path("protoc") || std::env::var_os("PROTOC").is_some() {
        command.args(["--features", "etcd"]);
    }
    if std::env::var_os("TENURE_PYTHON").is_none()
        && let Ok(python) = setup::python_with_redis(Install::Never)
    {
        command.env("TENURE_PYTHON", python);
    }
    command::run(command.arg("--").arg(name).args(passed).arg("--json").arg(&json))?;
    println!("\n{}", page::tables(&page::read(&json)?));
    if documented { page::rewrite() } else { Ok(()) }
}
