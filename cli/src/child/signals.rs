//! The signals that this program hears, and what each is for.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A request to end: TERM, INT, HUP, QUIT.
    End(Signal),
    /// It is for the program that runs: USR1, USR2, WINCH, CONT.
    Other(Signal),
    /// `^Z`, or a request to stop.
    Stop,
}

const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
const OTHER: [Signal; 4] = [Signal::USR1, Signal::USR2, Signal::WINCH, Signal::CONT];

/// All signals that are heard from now on.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Heard, unix::Signal)>,
}

impl Signals {
    /// Receives every signal except those that the process which started this program had it ignore, as `nohup` and shells
    /// without job control do: those stay ignored, here and in the program that runs.
    ///
    /// # Errors
    ///
    /// When the system refuses to have a signal handled.
    pub(crate) fn hear() -> io::Result<Self> {
        let ignored = ignored();
        let ending = ENDING.map(|signal| (Heard::End(signal), signal));
        let other = OTHER.map(|signal| (Heard::Other(signal), signal));
        let all = ending.into_iter().chain(other).chain([(Heard::Stop, Signal::TSTP)]);
        let heard = all.filter(|(_, signal)| ignored & (1 << (signal.as_raw() - 1)) == 0);
        let streams = heard.map(|(heard, signal)| Ok((heard, unix::signal(SignalKind::from_raw(signal.as_raw()))?)));
        Ok(Self { streams: streams.collect::<io::Result<_>>()? })
    }

    /// The next signal. Those that mean the end come first. Safe to drop.
    pub(crate) async fn next(&mut self) -> Heard {
        poll_fn(|context| {
            for (heard, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*heard);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that means the end, while nothing runs that others are for. A request to stop is followed.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Heard::End(signal) => return signal,
                Heard::Stop if super::family::has_job_control() => stop_here(),
                Heard::Stop | Heard::Other(_) => {}
            }
        }
    }
}

/// Stops this process, once what it said is written; returns when it is continued.
pub(crate) fn stop_here() {
    crate::messages::flush(Duration::from_millis(50));
    // To this thread: a signal to the process may be taken by another thread, and this one would run until that has stopped
    // it. It would continue the programs then, which it has just stopped.
    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
}

/// The set of ignored signals, a bit for each. No safe call returns it; the system's own table of processes has it.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// A signal as people call it.
pub(crate) fn name(signal: i32) -> String {
    let known = nix::sys::signal::Signal::try_from(signal);
    known.map_or_else(|_| format!("signal {signal}"), |known| known.as_str().to_owned())
}
