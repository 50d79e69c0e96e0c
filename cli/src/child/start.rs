//! The parent's side of a start: the process exists, and does not become the program before the parent sends the word.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStderr, Command, Stdio};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::launcher;

/// This program itself, also when its file has been replaced meanwhile.
const OURSELVES: &str = "/proc/self/exe";

/// A process, the first of its group, that becomes the program when the parent sends the word.
#[derive(Debug)]
pub(crate) struct Prepared {
    leader: Pid,
    link: UnixStream,
    errors: Option<ChildStderr>,
}

impl Prepared {
    /// Must be called by the thread that lives as long as this program: the child ends with it.
    pub(crate) fn start(words: &[OsString], variables: &[(&str, OsString)], errors: Stdio) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let parent = getpid().as_raw_nonzero().to_string();
        let mut command = Command::new(OURSELVES);
        command.arg(launcher::COMMAND).arg(parent).args(words);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stderr(errors).process_group(0);
        let mut child = command.spawn()?;
        let errors = child.stderr.take();
        Ok(Self { leader: Pid::from_child(&child), link: UnixStream::from_std(ours)?, errors })
    }

    /// What the program writes to standard error, if that is a pipe.
    pub(crate) fn take_errors(&mut self) -> Option<ChildStderr> {
        self.errors.take()
    }

    /// The process, and the group that it is the first of.
    pub(crate) fn leader(&self) -> Pid {
        self.leader
    }

    /// Returns when the process waits for the word. Safe to drop.
    pub(crate) async fn ready(&mut self) -> io::Result<()> {
        let mut said = [0; 1];
        self.link.read_exact(&mut said).await?;
        if said == *launcher::READY { Ok(()) } else { Err(io::Error::other("the launcher sent an unexpected word")) }
    }

    /// Gives the word, and standard input with it.
    pub(crate) fn go(self, input: BorrowedFd<'_>) -> io::Result<Launch> {
        let input = [input];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&input));
        sendmsg(&self.link, &[IoSlice::new(launcher::GO)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(Launch { link: Some(self.link) })
    }

    /// Gives no word: the process ends without having run anything.
    pub(crate) fn give_up(self) {
        let _ = kill_process(self.leader, Signal::KILL);
        let _ = waitpid(Some(self.leader), WaitOptions::empty());
    }
}

/// A process that received the word to become the program.
#[derive(Debug)]
pub(crate) struct Launch {
    link: Option<UnixStream>,
}

impl Launch {
    /// Whether it is unknown so far if the program began.
    pub(crate) fn is_pending(&self) -> bool {
        self.link.is_some()
    }

    /// Why the program cannot be run; `None` once it runs. Safe to drop.
    pub(crate) async fn failure(&mut self) -> Option<io::Error> {
        let link = self.link.as_mut()?;
        let mut number = [0; 4];
        let read = link.read_exact(&mut number).await;
        self.link = None;
        read.ok().map(|_| io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
    }
}
