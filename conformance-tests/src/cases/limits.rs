//! Names, ttls and labels: the accepted values, and the refusal of others at the start.

use std::time::Duration;

use tenure_core::driver::Ttl;
use tenure_core::{ErrorKind, Label, LockName};

use super::support::{free_within, is_free, keep, lock, must_fail, take};
use crate::case::{Case, CaseResult, Context, case};
use crate::layer::Op;

pub(super) const CASES: &[Case] = &[
    case!(
        "name/odd-bytes-are-names",
        "Names with braces, NUL, newlines, percent signs, globs and bytes that are no UTF-8 lock, exclude and release.",
        ["P27"],
        [],
        odd_bytes_are_names
    ),
    case!(
        "name/odd-names-are-apart",
        "Names that an encoding could confuse are all held at the same time.",
        ["P27"],
        [],
        odd_names_are_apart
    ),
    case!(
        "name/case-and-prefixes-are-apart",
        "Names that differ in case, in one trailing byte, or are prefixes of each other are different locks.",
        ["P27"],
        [],
        case_and_prefixes_are_apart
    ),
    case!(
        "name/longest-is-a-name",
        "Names of the greatest length work, and two that differ in their last byte are apart.",
        ["P27"],
        [],
        longest_is_a_name
    ),
    case!(
        "ttl/bad-is-refused-unsent",
        "A ttl of zero, below or above the limits, or with a fraction of a millisecond is refused, and nothing is sent.",
        ["P28", "R7", "R10"],
        [],
        bad_ttl_is_refused_unsent
    ),
    case!(
        "ttl/shortest-works-without-a-storm",
        "The shortest ttl that the driver keeps is granted, with few requests, and ends by itself.",
        ["P28", "R7"],
        [],
        shortest_works_without_a_storm
    ),
    case!(
        "ttl/longest-works",
        "The longest ttl that the driver keeps is granted in full, and released like any other.",
        ["P28", "R11"],
        [],
        longest_works
    ),
    case!(
        "label/any-text-is-taken",
        "A label of the greatest length, and one of whatever characters, is taken and changes nothing; a longer one is refused unsent.",
        ["P26"],
        [],
        any_label_is_taken
    ),
];

/// Endings of names that something on the way could misread.
const ODD: [&[u8]; 21] = [
    b"{",
    b"}",
    b"{}",
    b"{a}",
    b"x{a}y",
    b"}a{",
    b"a{b}c",
    b"%",
    b"%7B",
    b"%257B",
    b"\0",
    b"a\0b",
    b"a\nb",
    b"a\r\nb",
    b" ",
    b"*",
    b"a:b",
    b"\xff\xfe",
    b"\"'\\",
    "\u{e9}\u{1f512}".as_bytes(),
    b"$(x);--",
];

async fn odd_bytes_are_names(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    for odd in ODD {
        let name = context.name(odd);
        let guard = keep(&one, &name, context.ttl(20_000)).await?;
        assert_eq!(guard.name(), &name);
        assert!(lock(&other, &name).try_acquire().await?.is_none(), "\"{name}\" was granted twice");
        guard.release().await?;
        assert!(is_free(&other, &name).await?, "\"{name}\"");
    }
    Ok(())
}

async fn odd_names_are_apart(context: &mut Context) -> CaseResult {
    let names: Vec<LockName> = ODD.iter().map(|odd| context.name(odd)).collect();
    all_at_once(context, &names).await
}

async fn case_and_prefixes_are_apart(context: &mut Context) -> CaseResult {
    let endings = ["a", "A", "aa", "a/", "a/a", "a ", "a:", "a}", "a\0", "b", "\u{e9}", "e\u{301}", "\u{c9}"];
    let names: Vec<LockName> = endings.iter().map(|ending| context.name(ending)).collect();
    all_at_once(context, &names).await
}

async fn longest_is_a_name(context: &mut Context) -> CaseResult {
    let room = LockName::MAX_LEN - context.name("").as_bytes().len();
    let full = |fill: u8, last: u8| {
        let mut bytes = vec![fill; room];
        bytes[room - 1] = last;
        context.name(bytes)
    };
    let names = [full(b'x', b'x'), full(b'x', b'y'), full(b'{', b'{'), full(0, 0), full(0xff, 0xfe)];
    assert_eq!(names[0].as_bytes().len(), LockName::MAX_LEN);
    all_at_once(context, &names).await
}

/// Holds all names at once, each busy for others, and gives them back one by one.
async fn all_at_once(context: &mut Context, names: &[LockName]) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let mut guards = Vec::new();
    for name in names {
        guards.push(keep(&one, name, context.ttl(20_000)).await?);
    }
    while let Some(guard) = guards.pop() {
        let name = guard.name().clone();
        assert!(!is_free(&other, &name).await?, "\"{name}\" is not held");
        guard.release().await?;
        for held in &guards {
            assert!(!is_free(&other, held.name()).await?, "releasing \"{name}\" freed \"{}\"", held.name());
        }
        assert!(is_free(&other, &name).await?);
    }
    Ok(())
}

async fn bad_ttl_is_refused_unsent(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (name, range) = (context.name("ttl"), context.declared().locks.ttl);
    let tick = Duration::from_millis(1);
    let bad = [Duration::ZERO, Duration::from_nanos(1), range.min - tick, range.max + tick, Duration::MAX];
    for ttl in bad.into_iter().chain([range.min * 3 + Duration::from_micros(500)]) {
        for handle in [lock(&client, &name).ttl(ttl), lock(&client, &name).fixed_ttl(ttl)] {
            let error = must_fail(handle.try_acquire().await, ErrorKind::InvalidArgument)?;
            assert!(!error.message().is_empty() && error.name() == Some(&name), "{error}");
            must_fail(handle.acquire().await, ErrorKind::InvalidArgument)?;
        }
    }
    assert_eq!(layer.count(), 0, "something was sent");
    keep(&client, &name, context.ttl(5_000)).await?.release().await?;
    Ok(())
}

async fn shortest_works_without_a_storm(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, ttl) = (context.client().await?, context.name("shortest"), context.declared().locks.ttl.min);
    // A reply may be later than so short a lease: then the attempt fails, and another is due.
    let mut attempts = 0;
    let won = async || {
        attempts += 1;
        let won = lock(&client, &name).fixed_ttl(ttl).try_acquire().await.ok().flatten();
        won.is_some_and(|guard| guard.remaining() < ttl)
    };
    context.eventually(context.soon(), "the shortest ttl is granted", won).await?;
    let frames = layer.frames_of(Op::Acquire, &name).len();
    assert_eq!(frames, attempts, "an attempt is one request");
    free_within(context, &probe, &name, ttl + context.soon()).await?;
    let waiter = lock(&client, &name).ttl(ttl);
    let before = layer.count();
    drop(context.within(context.soon(), "a wait with the shortest ttl ends", waiter.acquire()).await?);
    context.pass(context.ms(200)).await;
    assert!(layer.count() - before < 60, "{} requests", layer.count() - before);
    Ok(())
}

async fn longest_works(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("longest"), context.declared().locks.ttl.max.min(Ttl::MAX));
    let guard = take(&one, &name, ttl).await?;
    assert!(guard.remaining() > ttl.mul_f64(0.9) && guard.remaining() < ttl, "{:?} of {ttl:?}", guard.remaining());
    context.pass(context.ms(300)).await;
    assert!(guard.is_held() && !is_free(&other, &name).await?, "the longest lease has ended");
    guard.release().await?;
    assert!(is_free(&other, &name).await?);
    Ok(())
}

async fn any_label_is_taken(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let name = context.name("label");
    let long = lock(&client, &name).label("x".repeat(Label::MAX_LEN + 1));
    must_fail(long.try_acquire().await, ErrorKind::InvalidArgument)?;
    assert_eq!(layer.count(), 0, "something was sent");
    for label in [String::new(), "x".repeat(Label::MAX_LEN), "\u{1f512}{}%\n\0'\"".to_owned()] {
        let won = lock(&client, &name).label(label).try_acquire().await?;
        let guard = super::support::must(won, &name)?;
        guard.release().await?;
    }
    Ok(())
}
