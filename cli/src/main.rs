//! The command `tenure`: programs under a lock, and what operators do with locks and queues.

mod args;
mod backend;
mod duration;
mod exit;
mod name;
mod run;
mod speak;

use std::process::ExitCode;

use args::{Args, Command};
use backend::Backend;
use clap::Parser as _;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == run::launcher::COMMAND) {
        return run::launcher::launch(words);
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    // One thread, the first one: a program that runs ends with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => ExitCode::from(runtime.block_on(obey(args))),
        Err(error) => {
            args.voice().error(&format!("no runtime: {error}"));
            ExitCode::from(exit::UNAVAILABLE)
        }
    }
}

async fn obey(args: Args) -> u8 {
    let voice = args.voice();
    let backend = match Backend::of(args.url) {
        Ok(backend) => backend,
        Err(failure) => {
            voice.error(&failure.text);
            return failure.exit;
        }
    };
    match args.command {
        Command::Run(run) => run::run(run, &backend, voice).await,
    }
}
