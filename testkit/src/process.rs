//! A server process with those that it started itself.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::eventually;

/// How long a server that is asked to end is waited for.
const FAREWELL: Duration = Duration::from_secs(5);

/// What `/proc/PID/stat` says: the state and the parent.
fn stat(pid: i32) -> Option<(char, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = text.rsplit(')').next()?.split_whitespace();
    Some((rest.next()?.chars().next()?, rest.next()?.parse().ok()?))
}

/// Processes whose parent is `pid`: a server's workers may be in sessions of their own.
fn workers(pid: i32) -> io::Result<Vec<i32>> {
    let ids = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    Ok(ids.filter(|id| stat(*id).is_some_and(|(_, parent)| parent == pid)).collect())
}

fn signal(pid: i32, signal: Signal) -> io::Result<()> {
    match Pid::from_raw(pid).map(|pid| kill_process(pid, signal)) {
        Some(Err(error)) if error == rustix::io::Errno::SRCH => Ok(()), // it ended by itself
        Some(result) => Ok(result?),
        None => Ok(()),
    }
}

fn id(child: &Child) -> i32 {
    Pid::from_child(child).as_raw_nonzero().get()
}

/// Stops a server and its workers (SIGSTOP); returns when all of them have stopped.
pub(crate) fn pause(child: &Child) -> io::Result<()> {
    let server = id(child);
    signal(server, Signal::STOP)?; // first: then no further worker is started
    stands_still(server)?;
    if !Path::new("/proc/self/stat").exists() {
        return Ok(());
    }
    for worker in workers(server)? {
        signal(worker, Signal::STOP)?;
        stands_still(worker)?;
    }
    Ok(())
}

/// Resumes a paused server and its workers (SIGCONT).
pub(crate) fn resume(child: &Child) -> io::Result<()> {
    let server = id(child);
    for worker in workers(server).unwrap_or_default() {
        signal(worker, Signal::CONT)?;
    }
    signal(server, Signal::CONT)
}

/// Kills a server and its workers (SIGKILL), and waits until all of them are gone.
pub(crate) fn kill(mut child: Child) -> io::Result<()> {
    let server = id(&child);
    signal(server, Signal::STOP)?;
    let _ = stands_still(server);
    let workers = workers(server).unwrap_or_default();
    child.kill()?;
    workers.iter().try_for_each(|worker| signal(*worker, Signal::KILL))?;
    child.wait()?;
    let gone = |pid: &i32| stat(*pid).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'));
    eventually("the server's workers to be gone", || workers.iter().all(gone).then_some(()))
}

/// Asks a server to end at once by itself, so that it leaves no shared memory behind; kills it when it does not.
pub(crate) fn end(child: Child) -> io::Result<()> {
    end_by(child, Signal::QUIT)
}

/// Asks a server to cut off its clients, to write everything, and to end; kills it when it does not.
pub(crate) fn shut_down(child: Child) -> io::Result<()> {
    end_by(child, Signal::INT)
}

fn end_by(mut child: Child, by: Signal) -> io::Result<()> {
    resume(&child)?;
    signal(id(&child), by)?;
    let deadline = Instant::now() + FAREWELL;
    while Instant::now() < deadline {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(child)
}

fn stands_still(pid: i32) -> io::Result<()> {
    if !Path::new("/proc/self/stat").exists() {
        return Ok(()); // no such file system here: the signal has to do
    }
    eventually("the process to stand still", || {
        stat(pid).is_none_or(|(state, _)| matches!(state, 'T' | 't' | 'Z' | 'X')).then_some(())
    })
}
