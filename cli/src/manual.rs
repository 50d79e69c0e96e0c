//! Pages of the manual: what clap knows of a command, and examples, exit codes and variables.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// What a page says beside the options.
struct Notes {
    /// The words after `tenure`.
    command: &'static str,
    examples: &'static [&'static str],
    /// Exit codes that other commands do not have.
    exits: &'static [(&'static str, &'static str)],
}

const fn notes(
    command: &'static str,
    examples: &'static [&'static str],
    exits: &'static [(&'static str, &'static str)],
) -> Notes {
    Notes { command, examples, exits }
}

const FOUND: &[(&str, &str)] = &[("1", "there is no such message")];
const ASKED: &[(&str, &str)] = &[("1", "the answer to the question was no")];

/// The notes of every command.
const NOTES: &[Notes] = &[
    notes("", &["tenure run nightly ./backup.sh", "TENURE_URL=redis://10.0.0.5 tenure ls"], &[]),
    notes(
        "run",
        &["tenure run nightly ./backup.sh", "tenure -q run --no-wait --busy-exit 0 nightly ./backup.sh"],
        &[
            ("N", "that of the program, which ran under the lock all the time; 128 + n if signal n killed it"),
            ("75", "the lock is taken, and nothing was run; --busy-exit changes this code"),
            ("79", "the lock was lost while the program ran"),
            ("126, 127", "the program cannot be run (126) or does not exist (127)"),
        ],
    ),
    notes("ls", &["tenure ls", "tenure --format json ls jobs/"], &[]),
    notes("inspect", &["tenure inspect nightly"], &[("1", "the lock is free")]),
    notes("watch", &["tenure watch nightly"], &[("128 + n", "signal n arrived")]),
    notes(
        "force-release",
        &["tenure force-release nightly", "tenure force-release --fence 42 nightly"],
        &[
            ("1", "the lock was free, or the answer to the question was no"),
            ("75", "another client holds it by now; nothing was done"),
        ],
    ),
    notes(
        "doctor",
        &["tenure doctor", "tenure doctor --fail-on danger"],
        &[("1", "there are notes; 0 with --fail-on danger"), ("2", "there is danger")],
    ),
    notes("ping", &["tenure ping --wait 30s"], &[]),
    notes("queue", &["tenure queue push mails hello", "tenure queue stats"], &[]),
    notes(
        "queue push",
        &["tenure queue push mails hello --delay 5m --id bill/7", "tenure queue push mails --lines < messages"],
        &[],
    ),
    notes("queue stats", &["tenure queue stats"], &[]),
    notes("queue peek", &["tenure queue peek mails", "tenure queue peek mails bill/7"], FOUND),
    notes("queue list", &["tenure queue list mails --most 20"], &[]),
    notes("queue pause", &["tenure queue pause mails"], &[]),
    notes("queue resume", &["tenure queue resume mails"], &[]),
    notes("queue cancel", &["tenure queue cancel mails bill/7"], &[("1", "no such message is waiting")]),
    notes("queue purge", &["tenure queue purge mails"], ASKED),
    notes("queue dead", &["tenure queue dead mails"], &[]),
    notes("queue requeue", &["tenure queue requeue mails bill/7", "tenure queue requeue mails --all"], &[]),
    notes("queue dead-purge", &["tenure queue dead-purge mails --oldest 100"], ASKED),
    notes(
        "queue run",
        &["tenure queue run mails ./send.sh", "tenure queue run --drain mails ./send.sh"],
        &[("126, 127", "the program cannot be run (126) or does not exist (127); its message is delivered again")],
    ),
    notes("bench", &["tenure bench --for 5s"], &[("128 + n", "signal n arrived")]),
    notes("conformance", &["tenure conformance --list"], &[("1", "a case failed, or none ran")]),
    notes("schema", &["tenure schema postgres | psql --set ON_ERROR_STOP=1 app"], &[]),
    notes("completions", &["tenure completions bash > /etc/bash_completion.d/tenure"], &[]),
    notes("man", &["tenure man | man -l -", "tenure man /usr/local/share/man/man1"], &[]),
];

const SOURCE: &str = concat!("tenure ", env!("CARGO_PKG_VERSION"));

/// Exit codes of all commands.
const EXITS: &[(&str, &str)] = &[
    ("64", "wrong usage"),
    ("69", "the backend cannot be reached"),
    ("74", "the result cannot be written"),
    ("77", "the backend refuses this user"),
    ("78", "wrong URL or configuration"),
    ("141", "the reader of the results closed the pipe"),
];

const VARIABLES: &[(&str, &str)] = &[
    ("TENURE_URL", "the backend; by default sqlite:, a file of this user"),
    (
        "TENURE_TTL, TENURE_OP_TIMEOUT, TENURE_PRESENCE, TENURE_PARKED_TURN, TENURE_DRIFT_RATE, TENURE_DRIFT_FIXED, \
         TENURE_MAX_HOLDS, TENURE_HOLDERS_PER_GRANT, TENURE_CONFIRMATION",
        "settings of the client",
    ),
    ("XDG_STATE_HOME, HOME", "where the file of sqlite: is"),
    ("NO_COLOR", "no colours, if it is set"),
];

/// Writes the pages of these commands into a folder.
pub(crate) fn write_all(tree: &clap::Command, dir: &Path) -> io::Result<()> {
    for below in tree.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_all(below, dir)?;
    }
    let name = tree.get_display_name().unwrap_or(tree.get_name());
    let mut file = File::create(dir.join(format!("{name}.1")))?;
    file.write_all(&page(tree)?)
}

/// The page of a command, of a tree that is built.
pub(crate) fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let called = command.get_bin_name().unwrap_or_default().trim_start_matches("tenure").trim();
    let notes = NOTES.iter().find(|notes| notes.command == called);
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let man = Man::new(command.clone().override_usage(usage)).source(SOURCE);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    man.render_options_section(&mut page)?;
    let mut roff = Roff::new();
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if !text.is_empty() && !text.starts_with("Exit codes") {
        roff.control("SH", ["NOTES"]).control("nf", []);
        for line in text.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    if let Some(notes) = notes {
        table(&mut roff, "EXIT STATUS", notes.exits.iter().chain(EXITS));
        table(&mut roff, "ENVIRONMENT", VARIABLES.iter());
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for example in notes.examples {
            roff.text([roman(*example)]);
        }
        roff.control("fi", []);
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}

fn table<'a>(roff: &mut Roff, heading: &str, rows: impl Iterator<Item = &'a (&'a str, &'a str)>) {
    roff.control("SH", [heading]);
    for (what, meaning) in rows {
        roff.control("TP", []).text([bold(*what)]).text([roman(*meaning)]);
    }
}
