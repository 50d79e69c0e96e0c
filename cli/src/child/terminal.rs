//! The terminal, if there is one: whose turn it is to read from it.

use std::io::{IsTerminal as _, stdin};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal that standard input is.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// How it was before the child had it.
    modes: Option<Termios>,
}

impl Terminal {
    pub(crate) fn of_input() -> Option<Self> {
        stdin().is_terminal().then(|| Self { modes: tcgetattr(stdin()).ok() })
    }

    /// Makes the child's group the foreground one, if that is ours so far. A group in the background does not take it.
    pub(crate) fn give_to(&self, group: Pid) {
        if tcgetpgrp(stdin()) == Ok(getpgrp()) {
            set_foreground(group);
        }
    }

    /// Takes it back from the child's group.
    pub(crate) fn take_back_from(&self, group: Pid) {
        if tcgetpgrp(stdin()) == Ok(group) {
            set_foreground(getpgrp());
        }
    }

    /// Undoes what a child that was killed had no time to undo.
    pub(crate) fn restore_modes(&self) {
        if let (Some(modes), true) = (&self.modes, tcgetpgrp(stdin()) == Ok(getpgrp())) {
            let _ = tcsetattr(stdin(), OptionalActions::Drain, modes);
        }
    }
}

/// From the background this would stop us (`SIGTTOU`), unless the signal is blocked for the moment.
fn set_foreground(group: Pid) {
    let stop = SigSet::from(NixSignal::SIGTTOU);
    let Ok(before) = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return };
    let _ = tcsetpgrp(stdin(), group); // a terminal that is gone by now
    let _ = before.thread_set_mask();
}
