//! A moment of this program between `fork` and `exec`: the child's side of a start.
//!
//! The preparation in the new process before the program begins needs no code that runs in a forked copy of this one: the
//! child is this program again, which sets its own death signal, waits for the word, and becomes the program. Standard input
//! arrives with the word; until then a socket is in its place.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSliceMut, Write as _, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::exit;

/// The first argument that makes this program the launcher.
pub(crate) const COMMAND: &str = "__launch";

/// What the launcher says when it is ready for the word.
pub(super) const READY: &[u8] = b"R";
/// The word that lets the launcher become the program.
pub(super) const GO: &[u8] = b"G";

/// `__launch PARENT PROGRAM ARG…`: becomes the program once the parent says so. Returns when that failed.
pub(crate) fn launch(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = words.next().and_then(|word| word.to_str()?.parse::<i32>().ok());
    let (Some(parent), Some(program)) = (parent, words.next()) else { return ExitCode::from(exit::USAGE) };
    let failed = become_program(parent, &program, words.collect());
    let code = match failed.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::CANNOT_RUN,
    };
    ExitCode::from(code)
}

fn become_program(parent: i32, program: &OsStr, args: Vec<OsString>) -> io::Error {
    let started = || {
        // Ends with the thread that started this process: the parent's only one that starts any.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let alive = getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
        if !alive {
            return Err(io::Error::other("the parent process has ended"));
        }
        let mut link = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
        link.write_all(READY)?;
        let input = receive_input(&link)?;
        Ok((link, input))
    };
    match started() {
        Err(error) => error,
        Ok((mut link, input)) => {
            let failed = Command::new(program).args(args).stdin(Stdio::from(input)).exec();
            let number = failed.raw_os_error().unwrap_or(0);
            let _ = link.write_all(&number.to_ne_bytes());
            failed
        }
    }
}

/// Receives the word, and the descriptor for standard input.
fn receive_input(link: &UnixStream) -> io::Result<OwnedFd> {
    let mut word = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(link, &mut [IoSliceMut::new(&mut word)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 || word != *GO {
        return Err(io::Error::other("no order to run the program was received"));
    }
    let mut rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    rights.find_map(|mut rights| rights.next()).ok_or_else(|| io::Error::other("no standard input was received"))
}
