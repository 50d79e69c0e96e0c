//! `tenure queue push --lines`: many messages from one stream, each as soon as it is there.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;
use std::thread;

use serde::Serialize;
use tenure::ErrorKind;
use tenure::queue::QueueCapabilities;
use tokio::sync::mpsc;

use super::args::Push;
use super::context::QueueContext;
use super::push::message;
use super::view::QueueView;
use crate::exit::Failure;
use crate::printer::Format;

#[derive(Debug, Serialize)]
struct LinesView {
    #[serde(flatten)]
    queue: QueueView,
    stored: u64,
}

/// Lines that one request takes, or why there are no more.
type Chunk = Result<Vec<Vec<u8>>, String>;

/// Memory is bounded: a chunk is stored while the next one is read.
const AHEAD: usize = 1;
/// How many bytes are read at once.
const BUFFER: usize = 64 * 1024;

pub(super) async fn push_lines(context: &QueueContext, push: &Push) -> Result<u8, Failure> {
    let limits = context.client.queue_capabilities().ok_or_else(|| Failure::usage("this backend has no queues"))?;
    let (name, input) = open(push.file.as_deref())?;
    let (tell, mut chunks) = mpsc::channel(AHEAD);
    // A thread of its own may wait for input. It ends with this program, if nothing else ends it.
    thread::spawn(move || read(input, &limits, |chunk| tell.blocking_send(chunk).is_ok()));
    let mut stored = 0;
    while let Some(chunk) = chunks.recv().await {
        let lines = chunk.map_err(|why| {
            Failure::usage(format!("line {} of {name} cannot be stored: {why}; {}", stored + 1, so_far(stored)))
        })?;
        let count = lines.len() as u64;
        let messages = lines.into_iter().map(|line| message(push, None, line));
        context.queue.push_many(messages).await.map_err(|failed| {
            let (known, last) = (stored + failed.pushed().len() as u64, stored + count);
            let mut failure = Failure::from(failed.error().clone());
            let unknown = match failed.error().kind() {
                ErrorKind::Indeterminate => format!("; {} may be stored", span(known + 1, last)),
                _ => String::from("; no other line is"),
            };
            failure.text = format!("{}; {}{unknown}", failure.text, so_far(known));
            failure
        })?;
        stored += count;
    }
    match context.printer.format {
        Format::Json => {
            context.printer.json(&LinesView { queue: QueueView::of(context.queue.name().as_bytes()), stored })?;
        }
        Format::Text => context.printer.print(&format!("stored {stored}"))?,
    }
    Ok(0)
}

fn so_far(stored: u64) -> String {
    match stored {
        0 => String::from("no line is stored"),
        1 => String::from("line 1 is stored"),
        last => format!("{} are stored", span(1, last)),
    }
}

fn span(first: u64, last: u64) -> String {
    if first == last { format!("line {first}") } else { format!("lines {first} to {last}") }
}

type Input = Box<dyn io::Read + Send>;

fn open(path: Option<&Path>) -> Result<(String, Input), Failure> {
    let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
        return Ok((String::from("standard input"), Box::new(io::stdin())));
    };
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => Ok((name, Box::new(file))),
        Err(error) => Err(Failure::usage(format!("{name} cannot be read: {error}"))),
    }
}

/// Passes lines on in chunks, until `pass` refuses one. A chunk ends where the next line may have to be waited for.
fn read(input: impl io::Read, limits: &QueueCapabilities, mut pass: impl FnMut(Chunk) -> bool) {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    loop {
        let line = next_line(&mut input, limits.payload);
        let (more, end) = match line {
            Ok(Some(line)) => {
                bytes += line.len();
                chunk.push(line);
                (input.buffer().contains(&b'\n'), None)
            }
            Ok(None) => (false, Some(None)),
            Err(error) => (false, Some(Some(error.to_string()))),
        };
        let is_full = chunk.len() >= limits.batch || bytes >= limits.request_bytes;
        if (is_full || !more) && !chunk.is_empty() {
            bytes = 0;
            if !pass(Ok(std::mem::take(&mut chunk))) {
                return;
            }
        }
        if let Some(why) = end {
            why.map(|why| pass(Err(why)));
            return;
        }
    }
}

/// The next line without its end; none at the end of the input.
fn next_line(input: &mut impl BufRead, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.take(most as u64 + 1).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() == most => Err(io::Error::other(format!("it has more than {most} bytes"))),
        Some(last) => {
            line.push(last); // the last line may have no end
            Ok(Some(line))
        }
    }
}
