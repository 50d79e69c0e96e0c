//! The scripts: one file each, with the parts that several share, and their digests; a call of one, with its keys and
//! arguments; and the request and reply of a call.

use std::fmt::{self, Write};
use std::sync::LazyLock;

/// A Lua script.
#[derive(Debug)]
pub(crate) struct Script {
    name: &'static str,
    source: String,
    sha1: String,
}

impl Script {
    fn new(name: &'static str, text: &str) -> Self {
        let source = composed(text);
        let sha1 = sha1_smol::Sha1::from(&source).digest().to_string();
        Self { name, source, sha1 }
    }

    /// The name of the script, in errors.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The whole source.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The digest of the script at the server: 40 hexadecimal digits.
    pub(crate) fn sha1(&self) -> &str {
        &self.sha1
    }

    /// The first command that line `number` (from 1) calls, in capitals.
    pub(crate) fn command_at(&self, number: usize) -> Option<&str> {
        let line = self.source.lines().nth(number.checked_sub(1)?)?;
        let rest = line.split_once("call('")?.1;
        rest.split_once('\'').map(|(command, _)| command)
    }
}

/// A line that begins so, followed by the name of a file, includes that file.
const INCLUDE: &str = "-- @include ";

/// The script with its parts in it, which may have parts of their own.
fn composed(text: &str) -> String {
    let mut whole = String::with_capacity(4 * text.len());
    for line in text.split_inclusive('\n') {
        match line.trim().strip_prefix(INCLUDE) {
            Some(file) => whole.push_str(&composed(part(file))),
            None => whole.push_str(line),
        }
    }
    whole
}

fn part(file: &str) -> &'static str {
    let found = PARTS.iter().find(|(known, _)| *known == file);
    found.map(|(_, text)| *text).unwrap_or_else(|| unreachable!("the tests compose every script: {file}"))
}

macro_rules! parts {
    ($($file:literal)+) => {
        const PARTS: &[(&str, &str)] = &[$(($file, include_str!(concat!("scripts/", $file)))),+];
    };
}

parts! {
    "part/answer.lua"
    "part/bury.lua"
    "part/fence.lua"
    "part/flag.lua"
    "part/grant.lua"
    "part/join.lua"
    "part/lengthen.lua"
    "part/line.lua"
    "part/look.lua"
    "part/now.lua"
    "part/place.lua"
    "part/refusal.lua"
    "part/serve.lua"
    "part/try.lua"
    "part/turn.lua"
    "part/vote_fence.lua"
    "part/wish.lua"
    "permit/part/record.lua"
    "permit/part/serve.lua"
    "queue/part/behind.lua"
    "queue/part/bury.lua"
    "queue/part/clock.lua"
    "queue/part/find.lua"
    "queue/part/form.lua"
    "queue/part/insert.lua"
    "queue/part/key.lua"
    "queue/part/keys.lua"
    "queue/part/known.lua"
    "queue/part/limit.lua"
    "queue/part/listen.lua"
    "queue/part/look_up.lua"
    "queue/part/receive.lua"
    "queue/part/remove.lua"
    "queue/part/seldom.lua"
    "queue/part/selected.lua"
    "queue/part/settle.lua"
    "queue/part/settle_other.lua"
    "queue/part/until_when.lua"
    "queue/part/unusual.lua"
}

macro_rules! scripts {
    ($($constant:ident = $name:literal: $file:literal;)+) => {
        $(pub(crate) static $constant: LazyLock<Script> =
            LazyLock::new(|| Script::new($name, include_str!(concat!("scripts/", $file, ".lua"))));)+

        /// All scripts.
        pub(crate) static SCRIPTS: LazyLock<Vec<&'static Script>> = LazyLock::new(|| vec![$(&*$constant),+]);
    };
}

scripts! {
    ACQUIRE = "acquire": "acquire";
    RELEASE = "release": "release";
    ABANDON = "abandon": "abandon";
    RENEW = "renew": "renew";
    INSPECT = "inspect": "inspect";
    CENSUS = "census": "census";
    FORCE_RELEASE = "force_release": "force_release";
    PASS = "pass": "pass";
    ENTER = "enter": "enter";
    EXIT = "exit": "exit";
    ABANDON_ENTRY = "abandon_entry": "abandon_entry";
    RENEW_HOLD = "renew_hold": "renew_hold";
    VOTE = "vote": "vote";
    RAISE = "raise": "raise";
    ENROLL = "enroll": "enroll";
    RIGHTS = "rights": "rights";
    PERMIT_ACQUIRE = "permit_acquire": "permit/acquire";
    PERMIT_RELEASE = "permit_release": "permit/release";
    PERMIT_ABANDON = "permit_abandon": "permit/abandon";
    PERMIT_RESIZE = "permit_resize": "permit/resize";
    PERMIT_EVICT = "permit_evict": "permit/evict";
    PERMIT_PASS = "permit_pass": "permit/pass";
    PERMIT_RENEW = "permit_renew": "permit/renew";
    PERMIT_INSPECT = "permit_inspect": "permit/inspect";
    QUEUE_PUSH = "queue_push": "queue/push";
    QUEUE_TURN = "queue_turn": "queue/turn";
    QUEUE_EXTEND = "queue_extend": "queue/extend";
    QUEUE_CANCEL = "queue_cancel": "queue/cancel";
    QUEUE_RESCHEDULE = "queue_reschedule": "queue/reschedule";
    QUEUE_GIVE_TURN = "queue_give_turn": "queue/give_turn";
    QUEUE_GET = "queue_get": "queue/get";
    QUEUE_STATS = "queue_stats": "queue/stats";
    QUEUE_PAUSE = "queue_pause": "queue/pause";
    QUEUE_RESUME = "queue_resume": "queue/resume";
    QUEUE_PURGE = "queue_purge": "queue/purge";
    QUEUE_DEAD_LIST = "queue_dead_list": "queue/dead_list";
    QUEUE_DEAD_REDRIVE = "queue_dead_redrive": "queue/dead_redrive";
    QUEUE_DEAD_PURGE = "queue_dead_purge": "queue/dead_purge";
    QUEUE_LISTEN = "queue_listen": "queue/listen";
    QUEUE_LIMIT = "queue_limit": "queue/limit";
    QUEUE_PAGE = "queue_page": "queue/page";
    QUEUE_LIST = "queue_list": "queue/list";
    QUEUE_LIVING = "queue_living": "queue/living";
    TYPES = "types": "types";
}

/// The name, the source and the digest of each script, for servers that need them loaded beforehand, and for tests.
#[doc(hidden)]
pub fn scripts() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    SCRIPTS.iter().map(|script| (script.name(), script.source(), script.sha1()))
}

/// A script with its keys and arguments.
#[derive(Clone, Debug)]
pub(crate) struct ScriptCall {
    /// The script.
    pub(crate) script: &'static Script,
    /// Its keys; in a cluster they share a slot.
    pub(crate) keys: ArgList,
    /// Its arguments. They hold secrets: not for logs.
    pub(crate) args: ArgList,
}

/// Keys or arguments of a command: byte strings, side by side in one buffer.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct ArgList {
    /// Each string behind its length.
    bytes: Vec<u8>,
    count: usize,
}

/// What the length of a string is kept in.
const LENGTH: usize = size_of::<u32>();

impl ArgList {
    /// An empty list with room for `count` short strings.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { bytes: Vec::with_capacity(count * (LENGTH + 44)), count: 0 }
    }

    /// Adds a string of bytes.
    pub(crate) fn push(&mut self, arg: impl AsRef<[u8]>) {
        self.push_with(|bytes| bytes.extend_from_slice(arg.as_ref()));
    }

    /// Adds what `build` writes, as one string.
    ///
    /// # Panics
    ///
    /// When it is longer than 4 GiB, eight times of what Redis takes.
    pub(crate) fn push_with(&mut self, build: impl FnOnce(&mut Vec<u8>)) {
        let head = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LENGTH]);
        build(&mut self.bytes);
        let length = self.bytes.len() - head - LENGTH;
        let length = u32::try_from(length).expect("no string is that long");
        self.bytes[head..head + LENGTH].copy_from_slice(&length.to_ne_bytes());
        self.count += 1;
    }

    /// Adds a number, in decimal.
    pub(crate) fn push_number(&mut self, number: u64) {
        self.push_format(format_args!("{number}"));
    }

    /// Adds a formatted text, as one string.
    pub(crate) fn push_format(&mut self, text: fmt::Arguments<'_>) {
        self.push_with(|bytes| {
            let _ = Text(bytes).write_fmt(text); // writing to memory does not fail
        });
    }

    /// The number of strings.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The total number of bytes.
    pub(crate) fn total(&self) -> usize {
        self.bytes.len() - LENGTH * self.count
    }

    /// The strings, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LENGTH>()?;
            let (one, more) = behind.split_at(u32::from_ne_bytes(*length) as usize);
            rest = more;
            Some(one)
        })
    }
}

impl fmt::Debug for ArgList {
    /// How many, not which: arguments hold the secrets of leases.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArgList({} strings)", self.len())
    }
}

struct Text<'a>(&'a mut Vec<u8>);

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

// What goes over a connection.

/// A reply of the server, with the types that scripts and checks use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No value.
    Nil,
    /// A number.
    Int(i64),
    /// Bytes or a status.
    Bytes(Vec<u8>),
    /// Several replies.
    Array(Vec<Reply>),
}

/// One command, borrowed from its caller.
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

    /// The number of words of the command, and an upper bound of their total bytes.
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

    /// Passes the words of the command to `take`, in order. The first one is the name of the command.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_says_what_it_takes_and_why_it_is_atomic() {
        for script in SCRIPTS.iter() {
            for part in ["-- KEYS ", "-- ARGV ", "-- Returns ", "-- Atomic"] {
                assert!(script.source().contains(part), "{} lacks {part:?}", script.name());
            }
            assert_eq!(script.sha1().len(), 40);
            assert!(script.source().contains(&format!("-- {}: ", script.name())));
        }
    }

    #[test]
    fn a_line_names_its_command() {
        let line = RENEW.source().lines().position(|line| line.contains("call('MGET'")).unwrap() + 1;
        assert_eq!(RENEW.command_at(line), Some("MGET"));
        assert_eq!(RENEW.command_at(1), None);
        assert_eq!(RENEW.command_at(0), None);
        assert_eq!(RENEW.command_at(10_000), None);
    }

    #[test]
    fn the_rights_probe_tries_every_command() {
        let tried: Vec<&str> =
            RIGHTS.source().lines().filter_map(|line| line.strip_prefix("try('")?.split('\'').next()).collect();
        for script in SCRIPTS.iter() {
            for number in 1..=script.source().lines().count() {
                let Some(command) = script.command_at(number) else { continue };
                if command == "INFO" {
                    continue; // an optional right, which only a ballot that asks for seniority needs
                }
                assert!(tried.contains(&command), "{} uses {command}, which is not tried", script.name());
            }
        }
    }

    #[test]
    fn keeps_strings_apart() {
        let mut list = ArgList::with_capacity(4);
        list.push("a");
        list.push("");
        list.push_number(1042);
        list.push_with(|bytes| bytes.extend_from_slice(b"\0\xff"));
        let all: Vec<&[u8]> = list.iter().collect();
        assert_eq!(all, [b"a".as_slice(), b"", b"1042", b"\0\xff"]);
        assert_eq!((list.len(), list.total()), (4, 7));
        assert_eq!(format!("{list:?}"), "ArgList(4 strings)");
    }

    #[test]
    fn a_call_is_its_script_the_number_of_its_keys_and_the_rest() {
        let (mut keys, mut args) = (ArgList::default(), ArgList::default());
        (0..10).for_each(|key| keys.push_number(key));
        let last = "last".repeat(50);
        args.push(&last);
        let call = ScriptCall { script: &ENROLL, keys, args };
        let request = Request::by_digest(&call);
        let mut words = Vec::new();
        request.each(|word| words.push(String::from_utf8(word.to_vec()).unwrap()));
        assert_eq!(words[..4], ["EVALSHA", ENROLL.sha1(), "10", "0"]);
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
