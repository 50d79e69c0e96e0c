//! On a terminal: `^C`, `^Z` and `fg`, reading, and the line that is rewritten.
//!
//! What is stopped is a `bash`: a `dash` that is about to start a program (`vfork`) does not stop before that program goes on, under any
//! shell.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tenure_testkit::eventually;

use crate::support::{World, is_alive, is_stopped, state, with_default_signals};

/// A terminal with a shell in it that has job control.
struct Shell {
    keys: File,
    screen: Arc<Mutex<String>>,
    shell: Child,
}

impl Shell {
    fn open(world: &World) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let slave = OpenOptions::new().read(true).write(true).open(path.to_str().unwrap()).unwrap();
        let mut command = with_default_signals();
        let shell = ["setsid", "--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"];
        world.prepare(command.args(shell).env("PS1", "$ ").env("TERM", "xterm").env("PATH", path_with_tenure()));
        command.stdin(Stdio::from(slave.try_clone().unwrap()));
        command.stdout(Stdio::from(slave.try_clone().unwrap())).stderr(Stdio::from(slave));
        let shell = command.spawn().unwrap();
        let keys = File::from(master);
        let screen = watch(keys.try_clone().unwrap());
        let shell = Self { keys, screen, shell };
        shell.shows("$ ");
        shell
    }

    fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn shows(&self, text: &str) {
        let shown = eventually("something on the screen", || self.text().contains(text).then_some(()));
        assert!(shown.is_ok(), "{text:?} is not on the screen: {}", self.text());
    }

    /// Forgets what was shown so far.
    fn clear(&self) {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn number(&self, word: &str) -> i32 {
        let found = || {
            let text = self.text();
            let (number, _) = text.rsplit_once(word)?.1.split_once('\r')?;
            number.trim().parse().ok()
        };
        eventually("a number on the screen", found).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn watch(mut master: File) -> Arc<Mutex<String>> {
    let screen = Arc::new(Mutex::new(String::new()));
    let shown = Arc::clone(&screen);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count) = std::io::Read::read(&mut master, &mut bytes) {
            if count == 0 {
                break;
            }
            shown.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    screen
}

pub(crate) fn path_with_tenure() -> String {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

#[test]
fn an_interrupt_of_the_terminal_reaches_the_program_once() {
    let world = World::new();
    let mut shell = Shell::open(&world);
    shell.types("tenure run job -- sh -c 'trap \"echo int\" INT; echo rea''dy; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; exit 3'; echo code $?\n");
    shell.shows("ready");
    shell.types("\x03");
    shell.shows("code 3");
    assert_eq!(shell.text().matches("int\r").count(), 1, "{}", shell.text());
}

#[test]
fn the_program_reads_from_the_terminal_and_the_shell_has_it_back_afterwards() {
    let world = World::new();
    let mut shell = Shell::open(&world);
    shell.types("tenure run job -- sh -c 'echo as''king; read line; echo got $line'\n");
    shell.shows("asking");
    shell.types("an answer\n");
    shell.shows("got an answer");
    shell.types("echo 'the shell' reads\n");
    shell.shows("the shell reads");
}

#[test]
fn control_z_stops_both_and_fg_continues_both_under_the_lock() {
    stopped_and_continued(&World::new());
}

pub(crate) fn stopped_and_continued(world: &World) {
    let mut shell = Shell::open(world);
    shell.types(
        "tenure run job -- bash -c 'echo pid $$; while ! [ -e go ]; do sleep 0.02; done; read line; echo got $line'\n",
    );
    let pid = shell.number("pid ");
    shell.clear();
    shell.types("\x1a");
    shell.shows("stopped; the lock expires in");
    shell.shows("Stopped");
    assert_eq!(state(pid), Some('T'));
    shell.clear();
    shell.types("fg\n");
    eventually("it to go on", || (state(pid) != Some('T')).then_some(())).unwrap();
    assert!(!world.is_free());
    std::fs::write(world.file("go"), "").unwrap();
    shell.types("an answer\n");
    shell.shows("got an answer"); // in the foreground again
    shell.types("echo code $?\n");
    shell.shows("code 0");
}

#[test]
fn bg_continues_in_the_background() {
    let world = World::new();
    let mut shell = Shell::open(&world);
    shell.types("tenure run job -- bash -c 'echo pid $$; while ! [ -e go ]; do sleep 0.02; done; echo fin''ished'\n");
    let pid = shell.number("pid ");
    shell.types("\x1a");
    shell.shows("Stopped");
    shell.types("bg\n");
    eventually("it to go on", || (state(pid) != Some('T')).then_some(())).unwrap();
    shell.types("echo 'the shell' reads\n");
    shell.shows("the shell reads");
    std::fs::write(world.file("go"), "").unwrap();
    shell.shows("finished");
}

/// Continued after the lease has ended: KILL, not CONT.
#[test]
fn stopped_for_longer_than_the_lease_it_is_killed_instead_of_continued() {
    stopped_for_too_long(&World::new(), "2s");
}

pub(crate) fn stopped_for_too_long(world: &World, ttl: &str) {
    let mut shell = Shell::open(world);
    shell.types(&format!(
        "tenure run --ttl {ttl} job -- bash -c 'echo pid $$; while :; do echo alive >> alive; sleep 0.02; done'\n"
    ));
    let pid = shell.number("pid ");
    shell.types("\x1a");
    shell.shows("Stopped");
    let before = world.text("alive").len();
    world.becomes_free();
    shell.types("fg; echo code $?\n");
    shell.shows("sending KILL");
    shell.shows("code 79");
    assert!(!is_alive(pid));
    assert_eq!(world.text("alive").len(), before, "it never ran again");
}

#[test]
fn a_waiter_shows_who_is_in_the_way_on_a_line_that_goes() {
    let world = World::new();
    let holder = world.start_script(&["--label", "somebody"], "echo holds; exec sleep 60");
    holder.says("holds");
    let mut shell = Shell::open(&world);
    shell.types("tenure run job -- echo do''ne\n");
    shell.shows("in line; held by somebody for");
    holder.signal(rustix::process::Signal::TERM);
    shell.shows("done");
    let text = shell.text();
    let line = text.rfind("waiting").unwrap();
    assert!(text[line..].contains("\r\x1b[K"), "{text:?}");
}

/// A message whose lease ends while everything is stopped is handled by one program at a time.
#[test]
fn a_worker_stops_its_programs_and_looks_at_leases_before_it_continues_them() {
    for (lease, killed) in [("20s", false), ("1s", true)] {
        let world = World::new();
        world.run(&["queue", "push", "mails", "x"]);
        let mut shell = Shell::open(&world);
        let script = "echo pi''d $$; while ! [ -e go ]; do date +%s%N > alive; sleep 0.02; done; echo do''ne";
        shell.types(&format!("tenure queue run --drain --lease {lease} mails -- sh -c '{script}'\n"));
        let pid = shell.number("pid ");
        shell.types("\x1a");
        shell.shows("Stopped");
        eventually("the stop", || is_stopped(pid).then_some(())).unwrap();
        let alive = world.text("alive");
        if killed {
            // The lease ends, and the message is another worker's.
            let other =
                world.run(&["queue", "run", "--drain", "mails", "--", "sh", "-c", "echo attempt $TENURE_ATTEMPT"]);
            let taken = eventually("the other's turn", || {
                let more = || {
                    world.run(&["queue", "run", "--drain", "mails", "--", "sh", "-c", "echo attempt $TENURE_ATTEMPT"])
                };
                (other.out.contains("attempt 2") || more().out.contains("attempt 2")).then_some(())
            });
            taken.unwrap();
        }
        assert_eq!(world.text("alive"), alive, "it was stopped");
        shell.types("fg\n");
        if killed {
            shell.shows("sending KILL");
            eventually("its end", || (!is_alive(pid)).then_some(())).unwrap();
            assert_eq!(world.text("alive"), alive);
        } else {
            eventually("its next step", || (world.text("alive") != alive).then_some(())).unwrap();
            std::fs::write(world.file("go"), "").unwrap();
            shell.shows("done");
        }
    }
}

#[test]
fn a_stopped_waiter_continues_waiting() {
    let world = World::new();
    let holder = world.start_script(&[], "echo holds; exec sleep 60");
    holder.says("holds");
    let mut shell = Shell::open(&world);
    shell.types("tenure run job -- echo do''ne\n");
    shell.shows("waiting");
    shell.types("\x1a");
    shell.shows("Stopped");
    shell.types("fg\n");
    holder.signal(rustix::process::Signal::TERM);
    shell.shows("done");
}

/// Colours are for terminals, and for those who want them.
#[test]
fn a_terminal_gets_colours_unless_it_asks_for_none_and_a_pipe_never() {
    let world = World::new();
    let mut shell = Shell::open(&world);
    let ask = "tenure --url nonsense: inspect job";
    shell.types(&format!("{ask}; echo with''out\n"));
    shell.shows("without");
    assert!(shell.text().contains("tenure: error: "), "NO_COLOR is set: {}", shell.text());
    shell.clear();
    shell.types(&format!("unset NO_COLOR; export TERM=xterm; {ask}; echo wi''th\n"));
    shell.shows("with\r");
    assert!(shell.text().contains("tenure: \x1b[1m\x1b[31merror:\x1b[0m "), "{:?}", shell.text());
    shell.clear();
    shell.types(&format!("{ask} 2>&1 | cat; echo pi''ped\n"));
    shell.shows("piped");
    assert!(shell.text().contains("tenure: error: "), "{:?}", shell.text());
}
