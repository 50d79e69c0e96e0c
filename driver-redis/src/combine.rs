//! Commands that are sent at the same time leave together.
//!
//! The library's own task writes whatever it finds, and on a runtime of several threads it finds a command or two at a time:
//! as many system calls as commands, at both ends. So as soon as a few commands are on their way, the next ones gather
//! until every task that is ready now has been run, and leave as pipelines. No command waits for a reply to another one
//! before it leaves, and a few commands alone go straight to the library. The replies to one pipeline are told together: if the
//! connection ends among them, the outcome of all its commands is unknown.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How many commands may be on their way before others gather.
const FEW: usize = 8;

/// For how long commands gather at most.
const LONGEST_GATHERING: Duration = Duration::from_millis(1);

/// The most commands in one pipeline: the first of its replies waits for the last.
const TOGETHER: usize = 16;

/// A connection that many tasks send on.
pub(crate) struct Combined {
    connection: MultiplexedConnection,
    /// The one that the connection lives on, whichever its users run on.
    runtime: Handle,
    on_their_way: AtomicUsize,
    gathered: Arc<Mutex<Vec<Gathered>>>,
}

struct Gathered {
    command: Cmd,
    reply: oneshot::Sender<RedisResult<Value>>,
}

/// One command on its way, until it is answered or given up.
struct OnItsWay<'a>(&'a AtomicUsize);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Combined {
    /// Needs the runtime that the connection was opened on.
    pub(crate) fn new(connection: MultiplexedConnection) -> Self {
        let runtime = Handle::current();
        Self { connection, runtime, on_their_way: AtomicUsize::new(0), gathered: Arc::default() }
    }

    /// Sends one command, at most once, and waits for its reply.
    pub(crate) async fn send(&self, command: Cmd) -> RedisResult<Value> {
        let others = self.on_their_way.fetch_add(1, Ordering::Relaxed);
        let _on_its_way = OnItsWay(&self.on_their_way);
        if others < FEW {
            return self.connection.clone().send_packed_command(&command).await;
        }
        let (reply, answer) = oneshot::channel();
        let first = {
            let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
            gathered.push(Gathered { command, reply });
            gathered.len() == 1
        };
        if first {
            self.runtime.spawn(leave(self.connection.clone(), Arc::clone(&self.gathered)));
        }
        answer.await.unwrap_or_else(|_| Err(broken("the runtime of the connection has ended")))
    }
}

/// Sends what has gathered by the time that all tasks which are ready have run.
async fn leave(connection: MultiplexedConnection, gathered: Arc<Mutex<Vec<Gathered>>>) {
    // Whoever yields is woken by the thread that it yielded on. One that is kept waiting by the next task does not: hence the end.
    let _ = tokio::time::timeout(LONGEST_GATHERING, tokio::task::yield_now()).await;
    let mut all = std::mem::take(&mut *gathered.lock().unwrap_or_else(PoisonError::into_inner));
    all.retain(|one| !one.reply.is_closed());
    let mut all = all.into_iter();
    let pipelines = std::iter::from_fn(|| {
        let some: Vec<Gathered> = all.by_ref().take(TOGETHER).collect();
        (!some.is_empty()).then(|| pipeline(connection.clone(), some))
    });
    join_all(pipelines.collect::<Vec<_>>()).await;
}

async fn pipeline(mut connection: MultiplexedConnection, commands: Vec<Gathered>) {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    let mut replies = Vec::with_capacity(commands.len());
    for Gathered { command, reply } in commands {
        pipeline.add_command(command);
        replies.push(reply);
    }
    let count = replies.len();
    let answer = tokio::select! {
        answer = connection.send_packed_commands(&pipeline, 0, count) => answer,
        // The connection may be replaced by now; this is not to keep it open.
        () = given_up(&mut replies) => return,
    };
    // Who has gone does not care.
    match answer {
        Ok(values) if values.len() == replies.len() => {
            replies.into_iter().zip(values).for_each(|(reply, value)| drop(reply.send(Ok(value))));
        }
        Ok(_) => replies.into_iter().for_each(|reply| drop(reply.send(Err(broken("replies are missing"))))),
        Err(error) => replies.into_iter().for_each(|reply| drop(reply.send(Err(error.clone())))),
    }
}

/// Returns when nobody waits for any of the replies.
async fn given_up(replies: &mut [oneshot::Sender<RedisResult<Value>>]) {
    for reply in replies {
        reply.closed().await;
    }
}

fn broken(what: &'static str) -> RedisError {
    (ErrorKind::Io, what).into()
}

#[cfg(test)]
mod tests {
    use tenure_testkit::{RedisOptions, RedisServer};

    use super::*;

    async fn connected(server: &RedisServer) -> Arc<Combined> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
        Arc::new(Combined::new(client.get_multiplexed_async_connection().await.unwrap()))
    }

    fn command(words: &[&str]) -> Cmd {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        command
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn everybody_gets_the_reply_to_what_they_sent() {
        let server = RedisServer::start(RedisOptions::new()).unwrap();
        let connection = connected(&server).await;
        let ask = |i: usize| {
            let connection = Arc::clone(&connection);
            async move {
                let text = i.to_string();
                let words = if i.is_multiple_of(10) { vec!["no-such-command"] } else { vec!["ECHO", &text] };
                let sending = connection.send(command(&words));
                if i.is_multiple_of(7) {
                    // Given up after a moment, or at once: nobody else is to notice.
                    drop(tokio::time::timeout(Duration::from_micros(i as u64), sending).await);
                    return;
                }
                match sending.await {
                    Ok(Value::BulkString(answer)) => assert_eq!(answer, text.as_bytes()),
                    Ok(Value::ServerError(_)) | Err(_) => assert_eq!(i % 10, 0),
                    other => panic!("{i}: {other:?}"),
                }
            }
        };
        let tasks: Vec<_> = (1..500).map(|i| tokio::spawn(ask(i))).collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(connection.on_their_way.load(Ordering::Relaxed), 0);
        assert!(connection.gathered.lock().unwrap().is_empty());
    }

    /// What gathers yields on a thread that the next task then blocks.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_blocks_its_thread_does_not_keep_what_has_gathered() {
        let server = RedisServer::start(RedisOptions::new()).unwrap();
        let connection = connected(&server).await;
        let (long, brief) = (Duration::from_secs(3), Duration::from_millis(50));
        let took = tokio::spawn(async move {
            // The other thread takes the first one; the last one spawned stays here.
            tokio::spawn(async move { std::thread::sleep(brief) });
            tokio::spawn(async {});
            std::thread::sleep(brief / 2);
            let began = std::time::Instant::now();
            let sends = (0..3 * FEW).map(|_| connection.send(command(&["PING"])));
            let blocks = async {
                tokio::spawn(async move { std::thread::sleep(long) }); // behind what gathers, on this thread
            };
            let ((), answers) = futures_util::future::join(blocks, join_all(sends)).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            began.elapsed()
        });
        let took = took.await.unwrap();
        assert!(took < long / 2, "{took:?}");
    }

    #[tokio::test]
    async fn a_server_that_is_silent_keeps_nothing_that_was_given_up() {
        let mut server = RedisServer::start(RedisOptions::new()).unwrap();
        let connection = connected(&server).await;
        server.pause().unwrap();
        let ask = |_| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move {
                let sending = connection.send(command(&["PING"]));
                tokio::time::timeout(Duration::from_millis(50), sending).await.unwrap_err();
            })
        };
        let tasks: Vec<_> = (0..100).map(ask).collect();
        for task in tasks {
            task.await.unwrap();
        }
        let on_their_way = || Arc::strong_count(&connection.gathered) - 1;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((on_their_way(), connection.on_their_way.load(Ordering::Relaxed)), (0, 0));
        server.resume().unwrap();
        assert_eq!(connection.send(command(&["ECHO", "1"])).await.unwrap(), Value::BulkString(b"1".into()));
    }

    #[tokio::test]
    async fn a_server_that_dies_fails_all_that_are_on_their_way() {
        let mut server = RedisServer::start(RedisOptions::new()).unwrap();
        let connection = connected(&server).await;
        let block = |i: usize| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.send(command(&["BLPOP", &format!("empty/{i}"), "0"])).await })
        };
        let tasks: Vec<_> = (0..100).map(block).collect();
        while !server.cli(&["INFO", "clients"]).unwrap().text().contains("blocked_clients:1") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.kill().unwrap();
        for task in tasks {
            task.await.unwrap().unwrap_err();
        }
        assert_eq!(connection.on_their_way.load(Ordering::Relaxed), 0);
    }
}
