//! What a package of this program ships beside it: completions of shells, and pages of the manual.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::exit::{self, Failure};
use crate::manual;
use crate::printer::Printer;

/// What clap has no completion for in bash.
const BASH: &str = include_str!("completion.bash");

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// bash, elvish, fish, powershell or zsh
    #[arg(hide_possible_values = true)]
    shell: Shell,
}

/// Print the page of the manual, or write those of all commands
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The folder for the pages of all commands, one file each
    dir: Option<PathBuf>,
}

/// Print the help of a command
#[derive(Debug, clap::Args)]
pub(crate) struct Help {
    /// The command: run, queue push [default: all of them on one screen]
    command: Vec<String>,
}

pub(crate) fn help(command: &Help, mut tree: clap::Command, printer: Printer) -> Result<u8, Failure> {
    tree.build();
    let mut at = &mut tree;
    for word in &command.command {
        at = at.find_subcommand_mut(word).ok_or_else(|| {
            Failure::usage(format!("there is no command {}; tenure help lists all", command.command.join(" ")))
        })?;
    }
    printer.print(at.render_help().to_string().trim_end())?;
    Ok(0)
}

pub(crate) fn completions(command: &Completions, mut tree: clap::Command, printer: Printer) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut tree, "tenure", &mut script);
    if command.shell == Shell::Bash {
        script.extend(BASH.as_bytes());
    }
    printer.bytes(&script)?;
    Ok(0)
}

/// Without a folder the page of the program; with one a page for each command: `tenure.1`, `tenure-queue-push.1`.
pub(crate) fn man(command: &Man, mut tree: clap::Command, printer: Printer) -> Result<u8, Failure> {
    tree.build();
    let Some(dir) = &command.dir else {
        printer.bytes(&manual::page(&tree).map_err(|error| Failure::unwritten("standard output", &error))?)?;
        return Ok(0);
    };
    let written = std::fs::create_dir_all(dir).and_then(|()| manual::write_all(&tree, dir));
    written.map_err(|error| {
        Failure::new(exit::IO, format!("the pages cannot be written to {}: {error}", dir.display()))
    })?;
    Ok(0)
}
