//! A connection whose server, scripts and answers a test may change, and which hears no messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_redis::{RedisConfig, RedisSettings};
use tenure_redis_support::{Dialer, Driver, Endpoint, ExecError, Listen, Reply, Request, Socket, scripts};
use tenure_testkit::{RedisServer, Reply as Answer, RespClient};

/// Many times what a thousand dead waiters take, or a list of all that a model has.
const MOST_IN_A_ROW: u64 = 5_000;

/// Opens nothing: the one connection to its server sends all commands, and a test passes messages on by hand, if at all.
/// Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Wire(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connection: Mutex<RespClient>,
    edits: Vec<Edit>,
    /// Which script ran last, and how often in a row: with something wrong in one that goes on where it ended, it may never say that
    /// it is done.
    last: Mutex<(&'static str, u64)>,
    delifeq: Delifeq,
    /// How often `DELIFEQ` was sent for a lock, and the script of a release run.
    by_value: AtomicU64,
    scripts: AtomicU64,
    /// The client's channel, and the receiver of its messages.
    listen: Mutex<Option<Listen>>,
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
        let sources = scripts().map(|(_, source, _)| source).chain([DELIFEQ]);
        assert!(sources.into_iter().any(|source| edit.concerns(source)), "no script has {:?}", self.from);
        edit
    }
}

/// The result of a run with a fault: how many steps passed, or the step that noticed the fault and what differed.
pub(crate) type Fate = Result<u64, (u64, String)>;

/// Counts a panic as noticed: scripts with a fault may answer anything.
pub(crate) fn fate(run: impl FnOnce() -> Fate) -> Fate {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Err((0, format!("panicked: {text}")))
    })
}

impl Wire {
    pub(crate) fn to(server: &RedisServer) -> Self {
        Self::with(server, None)
    }

    /// A connection whose scripts have these changes, in each that has such a place.
    pub(crate) fn with(server: &RedisServer, edits: impl IntoIterator<Item = Edit>) -> Self {
        Self::with_delifeq(server, edits, Delifeq::AsItIs)
    }

    /// And this becomes of the command of a release that nobody waits for.
    pub(crate) fn with_delifeq(server: &RedisServer, edits: impl IntoIterator<Item = Edit>, delifeq: Delifeq) -> Self {
        let (connection, edits) = (Mutex::new(server.connect().unwrap()), edits.into_iter().collect());
        let (last, by_value, scripts, listen) = Default::default();
        Self(Arc::new(Inner { connection, edits, last, delifeq, by_value, scripts, listen }))
    }

    /// A driver over this connection.
    pub(crate) async fn driver(&self, settings: RedisSettings) -> Driver<Self> {
        Driver::on(self.clone(), RedisConfig::default().settings(settings)).await.unwrap()
    }

    /// The channel of the driver over this connection, and the receiver of its messages.
    pub(crate) fn listen(&self) -> Listen {
        self.0.listen.lock().unwrap().clone().expect("a driver was connected")
    }

    /// How often `DELIFEQ` was sent for a lock.
    pub(crate) fn by_value(&self) -> u64 {
        self.0.by_value.load(Ordering::Relaxed)
    }

    /// How often the script of a release ran.
    pub(crate) fn scripts(&self) -> u64 {
        self.0.scripts.load(Ordering::Relaxed)
    }

    fn delete_equal(&self, key: &str, value: &str) -> Result<Reply, ExecError> {
        if key.contains("%rights") && !matches!(self.0.delifeq, Delifeq::AsItIs | Delifeq::Withheld(_)) {
            return Ok(Reply::Int(0));
        }
        self.0.by_value.fetch_add(u64::from(!key.contains("%rights")), Ordering::Relaxed);
        let source = self.edited(DELIFEQ).unwrap_or_else(|| DELIFEQ.to_owned());
        let emulated = || self.call(&["EVAL", &source, "1", key, value].map(str::as_bytes));
        let lost = || ExecError::SentUnknown { message: "the reply was lost".into(), source: None };
        match self.0.delifeq {
            Delifeq::AsItIs => self.call(&["DELIFEQ", key, value].map(str::as_bytes)),
            Delifeq::Emulated => emulated(),
            Delifeq::Refused(text) | Delifeq::Withheld(text) => Err(ExecError::refused(text)),
            Delifeq::Unanswered { executed } => {
                Err(if executed { emulated().err().unwrap_or_else(lost) } else { lost() })
            }
        }
    }

    fn call(&self, words: &[&[u8]]) -> Result<Reply, ExecError> {
        let answer = self.0.connection.lock().unwrap_or_else(PoisonError::into_inner).call(words).unwrap();
        translate(answer)
    }

    /// Runs a script by its digest, or by its source with the fault in it.
    fn script(&self, digest: &[u8], rest: &[&[u8]]) -> Result<Reply, ExecError> {
        let (name, source, _) = scripts().find(|(.., sha1)| sha1.as_bytes() == digest).expect("a known script");
        {
            let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
            *last = if last.0 == name { (name, last.1 + 1) } else { (name, 1) };
            assert!(last.1 < MOST_IN_A_ROW, "{name} is sent without end");
        }
        self.0.scripts.fetch_add(u64::from(name == "release"), Ordering::Relaxed);
        match self.edited(source) {
            None => self.call(&[&[&b"EVALSHA"[..], digest], rest].concat()),
            Some(edited) => self.call(&[&[b"EVAL", edited.as_bytes()], rest].concat()),
        }
    }

    /// The source with the changes in it; `None` if none concerns it.
    fn edited(&self, source: &str) -> Option<String> {
        let edits = self.0.edits.iter().filter(|edit| edit.concerns(source));
        edits.fold(None, |edited: Option<String>, edit| {
            Some(edited.as_deref().unwrap_or(source).replacen(&edit.from, &edit.to, 1))
        })
    }

    fn info(&self) -> Result<Reply, ExecError> {
        let mut answer = self.call(&[b"INFO"]);
        if let Ok(Reply::Bytes(info)) = &mut answer
            && !matches!(self.0.delifeq, Delifeq::AsItIs)
        {
            info.extend_from_slice(b"valkey_version:9.0.0\r\n");
        }
        answer
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

impl Dialer for Wire {
    type Socket = Self;

    const DRIVER: &'static str = "wire";
    const SCHEME: &'static str = "";

    fn agree(&self, config: RedisConfig) -> tenure_core::Result<RedisConfig> {
        Ok(config)
    }

    async fn dial(&self, _endpoint: &Endpoint, listen: Option<Listen>) -> Result<Self, ExecError> {
        *self.0.listen.lock().unwrap() = listen;
        Ok(self.clone())
    }
}

impl Socket for Wire {
    async fn send(&self, request: &Request<'_>) -> Result<Reply, ExecError> {
        let mut words = Vec::new();
        request.each(|word| words.push(word.to_vec()));
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match words[..] {
            [b"EVALSHA", digest, ref rest @ ..] => self.script(digest, rest),
            [b"DELIFEQ", key, value] => {
                let text = |word| std::str::from_utf8(word).unwrap();
                self.delete_equal(text(key), text(value))
            }
            [b"INFO"] => self.info(),
            _ => self.call(&words),
        }
    }

    async fn ended(&self) {
        std::future::pending().await
    }
}
