//! The command `tenure`: runs programs under a lock, and gives operators access to locks and queues.

mod args;
mod backend;
mod child;
mod duration;
mod exit;
mod manual;
mod messages;
mod name;
mod operate;
mod output;
mod pages;
mod printer;
mod queue;
mod results;
mod run;
#[cfg(feature = "conformance")]
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use args::{Args, Command};
use backend::Backend;
use clap::{CommandFactory as _, Parser as _};
use printer::{Format, Printer, Volume};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == child::launcher::COMMAND => return child::launcher::launch(words),
        #[cfg(feature = "conformance")]
        Some(word) if word == worker::COMMAND => return worker::serve(),
        _ => {}
    }
    let exit = match Args::try_parse() {
        Ok(args) => begin(args),
        Err(error) => answer(&error),
    };
    messages::flush(FAREWELL);
    ExitCode::from(exit)
}

fn begin(args: Args) -> u8 {
    // One thread, the first one: a program that runs ends with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            kill_on_panic();
            catch_unwind(AssertUnwindSafe(|| runtime.block_on(obey(args)))).unwrap_or(exit::SOFTWARE)
        }
        Err(error) => {
            args.printer().error(&format!("cannot start the runtime: {error}"));
            exit::UNAVAILABLE
        }
    }
}

/// A program does not run on when the one that watches its lease has failed.
fn kill_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        child::kill_everything();
        messages::say(format!("tenure: error: a fault of this program, please report it: {panic}\n"));
    }));
}

/// How long the end waits until messages are written.
const FAREWELL: Duration = Duration::from_secs(1);

async fn obey(args: Args) -> u8 {
    let printer = args.printer();
    let done = async {
        let backend = || Backend::of(args.url);
        match args.command {
            Command::Run(command) => run::run(command, &backend()?, printer).await,
            Command::Ls(command) => operate::ls(&command, &backend()?, printer).await,
            Command::Inspect(command) => operate::inspect(&command, &backend()?, printer).await,
            Command::Watch(command) => operate::watch(&command, &backend()?, printer).await,
            Command::ForceRelease(command) => operate::force_release(&command, &backend()?, printer).await,
            Command::Doctor(command) => operate::doctor(&command, &backend()?, printer).await,
            Command::Ping(command) => operate::ping(&command, &backend()?, printer).await,
            Command::Bench(command) => operate::bench(&command, &backend()?, printer).await,
            Command::Conformance(command) => operate::conformance(&command, &backend()?, printer).await,
            Command::Queue(command) => queue::obey(command, &backend()?, printer).await,
            Command::Completions(command) => pages::completions(&command, Args::command(), printer),
            Command::Man(command) => pages::man(&command, Args::command(), printer),
            Command::Help(command) => pages::help(&command, Args::command(), printer),
            Command::Schema(command) => operate::schema(&command, printer),
        }
    };
    done.await.unwrap_or_else(|failure| printer.fail(&failure))
}

/// Prints the requested help, or the error in the usage.
fn answer(error: &clap::Error) -> u8 {
    let printer = Printer { format: Format::asked_for(std::env::args_os()), volume: Volume::Normal };
    if error.use_stderr() {
        let text = error.render().to_string();
        printer.fail_for_programs(exit::USAGE, text.trim_end().trim_start_matches("error: "));
        let _ = error.print();
        return exit::USAGE;
    }
    output::written(error.print()).map_or_else(|failure| printer.fail(&failure), |()| 0)
}
