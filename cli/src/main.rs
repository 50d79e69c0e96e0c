//! The command `tenure`: programs under a lock, and what operators do with locks and queues.

mod args;
mod backend;
mod duration;
mod exit;
mod name;
mod operate;
mod pages;
mod queue;
mod run;
mod speak;
#[cfg(feature = "conformance")]
mod worker;

use std::process::ExitCode;

use args::{Args, Command};
use backend::Backend;
use clap::{CommandFactory as _, Parser as _};
use exit::Failure;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == run::launcher::COMMAND => return run::launcher::launch(words),
        #[cfg(feature = "conformance")]
        Some(word) if word == worker::COMMAND => return worker::serve(),
        _ => {}
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
            Command::Ls(command) => operate::ls(&command, &backend, voice).await,
            Command::Inspect(command) => operate::inspect(&command, &backend, voice).await,
            Command::Watch(command) => operate::watch(&command, &backend, voice).await,
            Command::ForceRelease(command) => operate::force_release(&command, &backend, voice).await,
            Command::Doctor(_) => operate::doctor(&backend, voice).await,
            Command::Bench(command) => operate::bench(&command, &backend, voice).await,
            Command::Conformance(command) => operate::conformance(&command, &backend, voice).await,
            Command::Completions(command) => Ok(pages::completions(&command, Args::command(), voice)),
            Command::Man(command) => pages::man(&command, Args::command(), voice),
            Command::Queue(command) => queue::obey(command, &backend, voice).await,
        }
    };
    done.await.unwrap_or_else(|failure: Failure| {
        voice.error(&failure.text);
        failure.exit
    })
}
