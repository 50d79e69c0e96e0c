//! An executor over one plain connection, which hears what it subscribes to and nothing else.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tenure_redis_support::{ArgList, ExecError, Placement, RedisExecutor, Reply, SCRIPTS, ScriptCall};
use tenure_testkit::{RedisServer, Reply as Answer, RespClient};

/// Many times what a thousand dead waiters take.
const MOST_PASSES: u64 = 1_000;

/// A client without a link: what it is not subscribed to by hand, it does not hear.
#[derive(Debug)]
pub(crate) struct Wire {
    connection: Mutex<RespClient>,
    edit: Option<Edit>,
    /// How often the script of `pass` ran in a row: with something wrong in it, it may never say that it is done.
    passes: AtomicU64,
}

/// Something wrong in the scripts, put there by a test.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub(crate) from: String,
    pub(crate) to: String,
}

impl Edit {
    pub(crate) fn concerns(&self, source: &str) -> bool {
        source.contains(&self.from)
    }
}

/// A fault that was put into the scripts, by name: what is written in place of what.
pub(crate) struct Seeded {
    pub(crate) name: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

impl Seeded {
    /// Wherever it is in the scripts; somewhere it has to be.
    pub(crate) fn edit(&self) -> Edit {
        let edit = Edit { from: self.from.into(), to: self.to.into() };
        assert!(SCRIPTS.iter().any(|script| edit.concerns(script.source())), "no script has {:?}", self.from);
        edit
    }
}

impl Wire {
    pub(crate) fn to(server: &RedisServer) -> Self {
        Self::with(server, None)
    }

    /// A client whose scripts have this wrong, in each that has such a place.
    pub(crate) fn with(server: &RedisServer, edit: Option<Edit>) -> Self {
        Self { connection: Mutex::new(server.connect().unwrap()), edit, passes: AtomicU64::new(0) }
    }

    fn call(&self, words: &[&[u8]]) -> Result<Reply, ExecError> {
        let answer = self.connection.lock().unwrap_or_else(PoisonError::into_inner).call(words).unwrap();
        translate(answer)
    }

    fn edited(&self, call: &ScriptCall) -> Option<String> {
        let edit = self.edit.as_ref().filter(|edit| edit.concerns(call.script.source()))?;
        Some(call.script.source().replacen(&edit.from, &edit.to, 1))
    }

    fn script(&self, command: &str, subject: &str, call: &ScriptCall) -> Result<Reply, ExecError> {
        let passes = if call.script.name() == "pass" { self.passes.load(Ordering::Relaxed) + 1 } else { 0 };
        assert!(passes < MOST_PASSES, "the turn is passed on without end");
        self.passes.store(passes, Ordering::Relaxed);
        let count = call.keys.len().to_string();
        let head = [command.as_bytes(), subject.as_bytes(), count.as_bytes()];
        let rest = call.keys.iter().chain(ArgList::iter(&call.args));
        self.call(&head.into_iter().chain(rest).collect::<Vec<_>>())
    }
}

fn translate(answer: Answer) -> Result<Reply, ExecError> {
    Ok(match answer {
        Answer::Nil => Reply::Nil,
        Answer::Int(number) => Reply::Int(number),
        Answer::Status(text) => Reply::Bytes(text.into_bytes()),
        Answer::Bulk(bytes) => Reply::Bytes(bytes),
        Answer::Array(items) => Reply::Array(items.into_iter().map(translate).collect::<Result<_, _>>()?),
        Answer::Error(text) => return Err(ExecError::refused(&text)),
    })
}

impl RedisExecutor for Wire {
    fn driver(&self) -> &'static str {
        "wire"
    }

    fn placement(&self) -> Placement {
        Placement::OneServer
    }

    fn homes(&self) -> Vec<(String, RangeInclusive<u16>)> {
        vec![("wire".into(), 0..=16_383)]
    }

    async fn evalsha(&self, call: &ScriptCall) -> Result<Reply, ExecError> {
        match self.edited(call) {
            None => self.script("EVALSHA", call.script.sha1(), call),
            Some(source) => self.script("EVAL", &source, call),
        }
    }

    async fn eval(&self, call: &ScriptCall) -> Result<Reply, ExecError> {
        self.script("EVAL", call.script.source(), call)
    }

    async fn command(&self, args: &[&str]) -> Vec<(String, Result<Reply, ExecError>)> {
        let words: Vec<&[u8]> = args.iter().map(|word| word.as_bytes()).collect();
        vec![("wire".into(), self.call(&words))]
    }

    async fn command_at(&self, _slot: u16, args: &[&str]) -> Result<Reply, ExecError> {
        self.command(args).await.remove(0).1
    }

    fn identity(&self) -> Option<String> {
        None
    }

    async fn close(&self) {}
}
