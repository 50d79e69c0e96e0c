//! What a package of this program ships beside it: completions of shells, and pages of the manual.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::exit::Failure;
use crate::speak::Voice;

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
    /// Where the pages of all commands are written, one file each
    dir: Option<PathBuf>,
}

pub(crate) fn completions(command: &Completions, mut tree: clap::Command, voice: Voice) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut tree, "tenure", &mut script);
    voice.bytes(&script);
    0
}

/// Without a folder the page of the program; with one a page for each command: `tenure.1`, `tenure-queue-push.1`.
pub(crate) fn man(command: &Man, tree: clap::Command, voice: Voice) -> Result<u8, Failure> {
    let written = match &command.dir {
        Some(dir) => std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(tree, dir)),
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(tree).render(&mut page).map(|()| voice.bytes(&page))
        }
    };
    let dir = command.dir.as_ref().map_or_else(String::new, |dir| format!(" to {}", dir.display()));
    written.map_err(|error| Failure::usage(format!("the pages cannot be written{dir}: {error}")))?;
    Ok(0)
}
