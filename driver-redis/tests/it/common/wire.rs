//! An executor over one plain connection, which hears what it subscribes to and nothing else.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tenure_redis_support::{ArgList, ExecError, Placement, RedisExecutor, Reply, SCRIPTS, ScriptCall};
use tenure_testkit::{RedisServer, Reply as Answer, RespClient};

/// Many times what a thousand dead waiters take, or a list of all that a model has.
const MOST_IN_A_ROW: u64 = 5_000;

/// A client without a link: what it is not subscribed to by hand, it does not hear.
#[derive(Debug)]
pub(crate) struct Wire {
    connection: Mutex<RespClient>,
    edit: Option<Edit>,
    /// Which script ran last, and how often in a row: with something wrong in one that goes on where it ended, it may never say that
    /// it is done.
    last: Mutex<(&'static str, u64)>,
    delifeq: Delifeq,
    /// How often `DELIFEQ` was sent for a lock, and the script of a release run.
    pub(crate) by_value: AtomicU64,
    pub(crate) scripts: AtomicU64,
}

/// What becomes of `DELIFEQ`. But for the first one, the server is said to be one that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delifeq {
    /// The server says whether it has it.
    AsItIs,
    /// A script does what it does.
    Emulated,
    /// It is not executed, and this is the answer: from the start on, or only since a release was tried.
    Withheld(&'static str),
    Refused(&'static str),
    /// The reply is lost, after it was executed or before.
    Unanswered {
        executed: bool,
    },
}

/// What `DELIFEQ` does.
const DELIFEQ: &str = "local value = redis.call('GET', KEYS[1])
if value and value == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0";

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
        let sources = SCRIPTS.iter().map(|script| script.source()).chain([DELIFEQ]);
        assert!(sources.into_iter().any(|source| edit.concerns(source)), "no script has {:?}", self.from);
        edit
    }
}

impl Wire {
    pub(crate) fn to(server: &RedisServer) -> Self {
        Self::with(server, None)
    }

    /// A client whose scripts have this wrong, in each that has such a place.
    pub(crate) fn with(server: &RedisServer, edit: Option<Edit>) -> Self {
        Self::with_delifeq(server, edit, Delifeq::AsItIs)
    }

    /// And this becomes of the command of a release that nobody waits for.
    pub(crate) fn with_delifeq(server: &RedisServer, edit: Option<Edit>, delifeq: Delifeq) -> Self {
        let connection = Mutex::new(server.connect().unwrap());
        Self {
            connection,
            edit,
            last: Mutex::new(("", 0)),
            delifeq,
            by_value: AtomicU64::new(0),
            scripts: AtomicU64::new(0),
        }
    }

    fn delete_equal(&self, key: &str, value: &str) -> Result<Reply, ExecError> {
        if key.contains("%rights") && !matches!(self.delifeq, Delifeq::AsItIs | Delifeq::Withheld(_)) {
            return Ok(Reply::Int(0));
        }
        self.by_value.fetch_add(u64::from(!key.contains("%rights")), Ordering::Relaxed);
        let edit = self.edit.as_ref().filter(|edit| edit.concerns(DELIFEQ));
        let source = edit.map_or(DELIFEQ.to_owned(), |edit| DELIFEQ.replacen(&edit.from, &edit.to, 1));
        let emulated = || self.call(&["EVAL", &source, "1", key, value].map(str::as_bytes));
        let lost = || ExecError::SentUnknown { message: "the reply was lost".into(), source: None };
        match self.delifeq {
            Delifeq::AsItIs => self.call(&["DELIFEQ", key, value].map(str::as_bytes)),
            Delifeq::Emulated => emulated(),
            Delifeq::Refused(text) | Delifeq::Withheld(text) => Err(ExecError::refused(text)),
            Delifeq::Unanswered { executed } => {
                Err(if executed { emulated().err().unwrap_or_else(lost) } else { lost() })
            }
        }
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
        {
            let (name, mut last) = (call.script.name(), self.last.lock().unwrap_or_else(PoisonError::into_inner));
            *last = if last.0 == name { (name, last.1 + 1) } else { (name, 1) };
            assert!(last.1 < MOST_IN_A_ROW, "{name} is sent without end");
        }
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
        if call.script.name() == "release" {
            self.scripts.fetch_add(1, Ordering::Relaxed);
        }
        match self.edited(call) {
            None => self.script("EVALSHA", call.script.sha1(), call),
            Some(source) => self.script("EVAL", &source, call),
        }
    }

    async fn eval(&self, call: &ScriptCall) -> Result<Reply, ExecError> {
        self.script("EVAL", call.script.source(), call)
    }

    async fn command(&self, args: &[&str]) -> Vec<(String, Result<Reply, ExecError>)> {
        if let ["DELIFEQ", key, value] = args {
            return vec![("wire".into(), self.delete_equal(key, value))];
        }
        let words: Vec<&[u8]> = args.iter().map(|word| word.as_bytes()).collect();
        let mut answer = self.call(&words);
        if let (["INFO"], Ok(Reply::Bytes(info))) = (args, &mut answer)
            && !matches!(self.delifeq, Delifeq::AsItIs)
        {
            info.extend_from_slice(b"valkey_version:9.0.0\r\n");
        }
        vec![("wire".into(), answer)]
    }

    async fn command_at(&self, _slot: u16, args: &[&str]) -> Result<Reply, ExecError> {
        self.command(args).await.remove(0).1
    }

    fn identity(&self) -> Option<String> {
        None
    }

    async fn close(&self) {}
}
