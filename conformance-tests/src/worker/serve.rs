//! The worker's side.

use std::io::{BufRead, Write};
use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::{Client, FencingToken, LockGuard, OwnerId, ReentrantGuard};
use tokio::sync::mpsc;

use super::monotonic;
use crate::harness::BoxError;
use crate::layer::{Answer, FaultLayer};

type Outcome<T> = Result<T, BoxError>;

enum Held {
    Plain(LockGuard),
    Entry(ReentrantGuard),
}

/// Serves the worker's protocol over this backend until standard input ends. Runs inside a tokio runtime with time and
/// the other features that the driver needs.
///
/// # Errors
///
/// Standard output is closed.
///
/// # Cancel safety
///
/// Dropping the future drops the held lock.
pub async fn serve(backend: impl Into<Backend>) -> std::io::Result<()> {
    let (lines, mut commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    let backend = backend.into();
    #[cfg(feature = "mutants")]
    let backend = crate::mutants::of_environment(backend);
    let client = Client::new(backend.clone());
    let mut held = None;
    say("ready")?;
    while let Some(line) = commands.recv().await {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = obey(&backend, &client, &words, &mut held).await;
        say(&answer.unwrap_or_else(|error| format!("error {error}").replace('\n', " ")))?;
    }
    Ok(())
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

async fn obey(backend: &Backend, client: &Client, words: &[&str], held: &mut Option<Held>) -> Outcome<String> {
    match words {
        ["keep", name, ttl] => {
            let guard = client.lock(bytes(name)?).ttl(millis(ttl)?).acquire().await?;
            took(guard, held)
        }
        ["wait", name, ttl, presence] => {
            let guard = wait(backend, &bytes(name)?, millis(ttl)?, millis(presence)?).await?;
            took(guard, held)
        }
        ["enter", name, owner, ttl] => {
            let owner: OwnerId = owner.parse()?;
            let guard = client.reentrant(bytes(name)?, &owner).ttl(millis(ttl)?).acquire().await?;
            let answer = format!("entered {} {}", guard.fence(), guard.depth());
            *held = Some(Held::Entry(guard));
            Ok(answer)
        }
        ["held"] => {
            let is_held = match held {
                Some(Held::Plain(guard)) => guard.is_held(),
                Some(Held::Entry(guard)) => guard.is_held(),
                None => false,
            };
            Ok(format!("held {}", if is_held { "yes" } else { "no" }))
        }
        ["release"] => {
            let released = match held.take() {
                Some(Held::Plain(guard)) => Some(guard.release().await),
                Some(Held::Entry(guard)) => Some(guard.release().await.map(drop)),
                None => None,
            };
            let text = match released {
                Some(Err(error)) if !error.is_lost() => return Err(error.into()),
                Some(Ok(())) => "released",
                Some(Err(_)) | None => "not-held",
            };
            Ok(text.to_owned())
        }
        ["turns", name, count, ttl] => turns(client, &bytes(name)?, count.parse()?, millis(ttl)?).await,
        _ => Err(format!("unknown command {words:?}").into()),
    }
}

fn took(guard: LockGuard, held: &mut Option<Held>) -> Outcome<String> {
    let fence: FencingToken = guard.fence();
    *held = Some(Held::Plain(guard));
    Ok(format!("took {fence}"))
}

/// Waits, and says so as soon as the backend knows of it.
async fn wait(backend: &Backend, name: &[u8], ttl: Duration, presence: Duration) -> Outcome<LockGuard> {
    let layer = FaultLayer::over(backend.clone());
    let client = Client::builder(layer.backend()).presence(presence).build()?;
    let lock = client.lock(name).ttl(ttl);
    let watch = async {
        while !layer.frames().iter().any(|frame| frame.answer == Answer::Busy) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let _said = say("waiting");
        std::future::pending().await
    };
    tokio::select! {
        guard = lock.acquire() => Ok(guard?),
        () = watch => Err("never".into()),
    }
}

async fn turns(client: &Client, name: &[u8], count: u32, ttl: Duration) -> Outcome<String> {
    let lock = client.lock(name).fixed_ttl(ttl);
    for _ in 0..count {
        let asked = monotonic();
        let guard = lock.acquire().await?;
        // The order of the readings makes the hold look longer than it was, never shorter.
        let until = monotonic() + guard.remaining();
        let granted = monotonic();
        tokio::time::sleep(Duration::from_millis(3)).await;
        let ended = if guard.is_held() { monotonic() } else { granted };
        let stamps = [asked, granted, until, ended].map(|at| at.as_nanos().to_string());
        say(&format!("turn {} {}", guard.fence(), stamps.join(" ")))?;
        guard.release().await?;
    }
    Ok("done".to_owned())
}

fn millis(text: &str) -> Outcome<Duration> {
    Ok(Duration::from_millis(text.parse()?))
}

fn bytes(hex: &str) -> Outcome<Vec<u8>> {
    let digits = hex.as_bytes();
    let pair = |pair: &[u8]| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    digits.chunks(2).map(pair).collect()
}
