//! Lines for people on standard error, written by a separate thread: a full disk, a pipe that is not read and a terminal that is
//! held up stop nothing else. Lines that find no room are left out and counted.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How many lines may be under way.
const ROOM: usize = 256;

/// What the thread does, in order.
enum Task {
    /// Words of this program; colours are left out where they are not seen.
    Words(String),
    /// What a program wrote, as it is.
    Bytes(Vec<u8>),
    /// Reports that everything before is written.
    Tell(mpsc::SyncSender<()>),
}

static TASKS: OnceLock<Sender<Task>> = OnceLock::new();
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Writes text, a line end included, when there is room. Never waits.
pub(crate) fn say(text: String) {
    if tasks().try_send(Task::Words(text)).is_err() {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes what moves the cursor, as it is, when there is room. Never waits.
pub(crate) fn pass(text: &'static str) {
    let _ = tasks().try_send(Task::Bytes(text.into()));
}

/// Passes on what a program wrote. Waits for room, and loses nothing.
///
/// # Cancel safety
///
/// Dropping the future passes nothing on.
pub(crate) async fn pass_on(bytes: Vec<u8>) {
    let _ = tasks().send(Task::Bytes(bytes)).await;
}

/// Returns when everything is written, or after `most`. Blocks the thread.
pub(crate) fn flush(most: Duration) {
    let Some(tasks) = TASKS.get() else { return };
    let until = Instant::now() + most;
    let (tell, reported) = mpsc::sync_channel(1);
    while tasks.try_send(Task::Tell(tell.clone())).is_err() {
        if Instant::now() >= until {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let written = reported.recv_timeout(until.saturating_duration_since(Instant::now()));
    debug_assert_ne!(written, Err(RecvTimeoutError::Disconnected), "the thread lasts as long as the program");
}

fn tasks() -> &'static Sender<Task> {
    TASKS.get_or_init(|| {
        let (sender, receiver) = channel(ROOM);
        // Without a thread there are no messages, and the lock is kept all the same.
        let _ = thread::Builder::new().name("messages".into()).spawn(move || write(receiver));
        sender
    })
}

fn write(mut tasks: Receiver<Task>) {
    // A terminal may stop those who write to it from the background: not this process, which renews a lock.
    let _ = SigSet::from(Signal::SIGTTOU).thread_block();
    while let Some(task) = tasks.blocking_recv() {
        let mut errors = anstream::stderr();
        // What cannot be written is left out: there is no other place to say so.
        let _ = match task {
            Task::Words(words) => errors.write_all(words.as_bytes()),
            Task::Bytes(bytes) => std::io::stderr().write_all(&bytes),
            Task::Tell(tell) => {
                let _ = tell.send(());
                Ok(())
            }
        };
        let _ = match LEFT_OUT.swap(0, Ordering::Relaxed) {
            0 => errors.flush(),
            1 => writeln!(errors, "tenure: 1 message was dropped here: standard error was not read"),
            count => writeln!(errors, "tenure: {count} messages were dropped here: standard error was not read"),
        };
    }
}
