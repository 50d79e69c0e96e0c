//! What a client library has to bring: a way to open one connection, and to send one command on it.
//!
//! Everything that lasts longer than a connection stands above, once for all libraries: when to replace it
//! (`link`), where the primary is (`sentinel`), which node serves a key (`cluster`).

#[cfg(test)]
pub(crate) mod scene;

use std::fmt::{self, Debug};
use std::sync::Arc;

use crate::config::Endpoint;
use crate::error::ExecError;
use crate::script::ScriptCall;

/// What came in on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// The payload of a message.
    Message(&'a [u8]),
    /// The connection is of no use any more: what comes from now on may be another server's.
    Cut,
    /// Messages may have been lost.
    Gap,
}

/// A channel to listen on, and where its messages go.
#[derive(Clone)]
pub struct Listen {
    /// The name of the channel.
    pub channel: String,
    /// Called with everything that comes in. It does not block.
    pub sink: Arc<dyn Fn(Heard<'_>) + Send + Sync>,
}

impl Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listen").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// A reply of the server, as far as scripts and checks use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing there.
    Nil,
    /// A number.
    Int(i64),
    /// Bytes or a status.
    Bytes(Vec<u8>),
    /// Several replies.
    Array(Vec<Reply>),
}

/// One command, borrowed from whoever sends it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    head: [&'a str; 2],
    rest: Rest<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Rest<'a> {
    Words(&'a [&'a str]),
    Call(&'a ScriptCall),
}

impl<'a> Request<'a> {
    /// A plain command.
    #[must_use]
    pub const fn words(words: &'a [&'a str]) -> Self {
        Self { head: ["", ""], rest: Rest::Words(words) }
    }

    /// A script by its digest.
    pub(crate) fn by_digest(call: &'a ScriptCall) -> Self {
        Self { head: ["EVALSHA", call.script.sha1()], rest: Rest::Call(call) }
    }

    /// A script by its source.
    pub(crate) fn by_source(call: &'a ScriptCall) -> Self {
        Self { head: ["EVAL", call.script.source()], rest: Rest::Call(call) }
    }

    /// How many words the command has, and at most how many bytes they are together.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        match self.rest {
            Rest::Words(words) => (words.len(), words.iter().map(|word| word.len()).sum()),
            Rest::Call(call) => {
                let head: usize = self.head.iter().map(|word| word.len()).sum();
                (3 + call.keys.len() + call.args.len(), head + 20 + call.keys.total() + call.args.total())
            }
        }
    }

    /// Gives the words of the command to `take`, in order. The first one is the name of the command.
    pub fn each(&self, mut take: impl FnMut(&[u8])) {
        match self.rest {
            Rest::Words(words) => words.iter().for_each(|word| take(word.as_bytes())),
            Rest::Call(call) => {
                self.head.iter().for_each(|word| take(word.as_bytes()));
                take(Digits::of(call.keys.len()).as_bytes());
                call.keys.iter().chain(call.args.iter()).for_each(take);
            }
        }
    }
}

/// A number in decimal, on the stack.
struct Digits {
    text: [u8; 20],
    begin: usize,
}

impl Digits {
    fn of(mut number: usize) -> Self {
        let (mut text, mut begin) = ([b'0'; 20], 20);
        loop {
            begin -= 1;
            text[begin] += (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Self { text, begin };
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[self.begin..]
    }
}

/// Opens connections through a client library.
pub trait Dialer: Debug + Send + Sync + 'static {
    /// An open connection. Dropping it closes it.
    type Socket: Socket;

    /// A short constant name of the driver: `"redis"`.
    fn driver(&self) -> &'static str;

    /// Opens one connection, logs in, and subscribes to the channel of `listen` if one is given. It has the
    /// subscription when this returns. With the older protocol such a connection carries no commands but `PING`.
    ///
    /// # Errors
    ///
    /// [`ExecError::Server`] for a refusal; otherwise [`ExecError::NotSent`]. The caller bounds the time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    fn dial(
        &self,
        endpoint: &Endpoint,
        listen: Option<Listen>,
    ) -> impl Future<Output = Result<Self::Socket, ExecError>> + Send;
}

/// One open connection. Requests may be sent concurrently.
pub trait Socket: Send + Sync + 'static {
    /// Sends one command, at most once, and waits for its reply, however long it takes.
    ///
    /// # Errors
    ///
    /// [`ExecError::Server`] for a refusal, [`ExecError::SentUnknown`] when the connection ended before the reply.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the outcome unknown, and the connection usable.
    fn send(&self, request: &Request<'_>) -> impl Future<Output = Result<Reply, ExecError>> + Send;

    /// Returns when the library has seen the connection end. One caller at a time.
    fn ended(&self) -> impl Future<Output = ()> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{self, ArgList};

    #[test]
    fn a_call_is_its_script_the_number_of_its_keys_and_the_rest() {
        let (mut keys, mut args) = (ArgList::default(), ArgList::default());
        (0..10).for_each(|key| keys.push_number(key));
        let last = "last".repeat(50);
        args.push(&last);
        let call = ScriptCall { script: &script::ENROLL, keys, args };
        let request = Request::by_digest(&call);
        let mut words = Vec::new();
        request.each(|word| words.push(String::from_utf8(word.to_vec()).unwrap()));
        assert_eq!(words[..4], ["EVALSHA", script::ENROLL.sha1(), "10", "0"]);
        assert_eq!(words[13], last);
        let (count, bytes) = request.size();
        assert_eq!(count, words.len());
        let sum: usize = words.iter().map(String::len).sum();
        assert!((sum..sum + 20).contains(&bytes), "{bytes} for {sum}: the digits of the number of keys are at most 20");
        assert_eq!(Request::words(&["GET", "a"]).size(), (2, 4));
        assert_eq!(Digits::of(0).as_bytes(), b"0");
        assert_eq!(Digits::of(usize::MAX).as_bytes(), usize::MAX.to_string().as_bytes());
    }
}
