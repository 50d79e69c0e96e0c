//! The command `tenure`: programs under a lock, and what operators do with locks and queues.

mod args;
mod backend;
mod duration;
mod exit;
mod name;
mod operate;
mod queue;
mod run;
mod speak;

use std::process::ExitCode;

use args::{Args, Command};
use backend::Backend;
use clap::Parser as _;
use exit::Failure;

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
    let done = async {
        let backend = Backend::of(args.url)?;
        match args.command {
            Command::Run(command) => Ok(run::run(command, &backend, voice).await),
            Command::Inspect(command) => operate::inspect(&command, &backend, voice).await,
            Command::Watch(command) => operate::watch(&command, &backend, voice).await,
            Command::ForceRelease(command) => operate::force_release(&command, &backend, voice).await,
            Command::Doctor => operate::doctor(&backend, voice).await,
            Command::Queue(command) => queue::obey(command, &backend, voice).await,
        }
    };
    done.await.unwrap_or_else(|failure: Failure| {
        voice.error(&failure.text);
        failure.exit
    })
}
