//! Sixteen waiters in two processes on one Redis server: served in order, woken one by one, nothing polled.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tenure_core::Client;
use tenure_redis::RedisDriver;
use tenure_testkit::{RedisOptions, RedisServer, Reply};

const WAITERS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(30);

/// A contender; killed when dropped.
struct Contender {
    child: Child,
    input: Option<ChildStdin>,
}

impl Contender {
    fn start(url: &str, name: &str, lines: mpsc::Sender<String>) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_contender"))
            .args([url, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the contender starts");
        let output = child.stdout.take().expect("its output is piped");
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        let input = child.stdin.take();
        Self { child, input }
    }

    fn join(&mut self, number: usize) {
        let input = self.input.as_mut().expect("its input is open");
        writeln!(input, "join {number}").expect("it reads");
        input.flush().expect("it reads");
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often the server ran scripts for clients, and other commands that clients sent while waiting.
fn asked(server: &RedisServer) -> u64 {
    let Reply::Bulk(text) = server.cli(&["INFO", "commandstats"]).expect("the server answers") else {
        panic!("INFO answers with text");
    };
    let text = String::from_utf8(text).expect("INFO is ASCII");
    let calls = |command: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|rest| rest.split(',').next()).and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    calls("evalsha") + calls("eval")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_waiters_in_two_processes_take_turns_without_polling() {
    let server = RedisServer::start(RedisOptions::new()).expect("a server of our own");
    let client = Client::new(RedisDriver::connect_url(&server.url()).await.expect("it connects"));
    let lock = client.lock("hot").ttl(Duration::from_secs(60));
    let guard = lock.acquire().await.expect("it is free");
    let first_fence = guard.fence().get();

    let (lines, reported) = mpsc::channel();
    let mut processes =
        [Contender::start(&server.url(), "hot", lines.clone()), Contender::start(&server.url(), "hot", lines)];
    for number in 0..WAITERS {
        processes[number % 2].join(number);
        let deadline = std::time::Instant::now() + PATIENCE;
        while lock.inspect().await.expect("it can be seen").waiters as usize != number + 1 {
            assert!(std::time::Instant::now() < deadline, "waiter {number} does not join");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    // While nothing happens, nothing is asked but heartbeats: each waiter's is due every 5 s.
    let span = Duration::from_secs(2);
    let before = asked(&server);
    tokio::time::sleep(span).await;
    let idle = asked(&server) - before;
    assert!(idle <= WAITERS as u64, "{idle} requests of {WAITERS} waiters within {span:?}");

    let before = asked(&server);
    guard.release().await.expect("it is held");
    let mut served = Vec::new(); // by fence: two processes' lines may be read in another order than they were written
    while served.len() < WAITERS {
        let line = reported.recv_timeout(PATIENCE).expect("every waiter gets its turn");
        let words: Vec<&str> = line.split(' ').collect();
        served.push((words[2].parse::<u64>().expect("a fence"), words[1].parse::<usize>().expect("a number")));
    }
    let asked = asked(&server) - before;
    served.sort_unstable();
    assert!(served[0].0 > first_fence, "{served:?} after {first_fence}");
    assert!(served.windows(2).all(|turns| turns[0].0 < turns[1].0), "two turns with one fence: {served:?}");
    let order: Vec<usize> = served.iter().map(|(_, number)| *number).collect();
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>(), "served in the order in which they joined");
    let handovers = WAITERS as u64;
    // A release each; on a slow machine an extension as well, and a heartbeat of each waiter. Polling takes hundreds.
    let most = 2 * (handovers + 1) + WAITERS as u64;
    assert!(asked <= most, "{asked} requests for {handovers} hand-overs");
    println!("{asked} requests for {handovers} hand-overs; {idle} while idle for {span:?}");
}
