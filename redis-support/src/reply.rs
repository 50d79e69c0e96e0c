//! What the scripts' answers mean.

use std::time::Duration;

use tenure_core::driver::{Acquisition, Begun, Busy, Exited, Grant, Handed, Holder, Inspection, Renewed};
use tenure_core::{Error, ErrorKind, FenceFloor, FencingToken, Label, Result};

use crate::call::{FENCES, MAX_DEPTH};
use crate::damage;
use crate::dial::Reply;
use crate::settings::RedisSettings;

/// The answer of a script that freed a lock and did not get as far as a live waiter.
pub(crate) const GO_ON: i64 = -2;

impl Reply {
    pub(crate) fn int(&self) -> Result<i64> {
        let number = match self {
            Self::Int(number) => Some(*number),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        number.ok_or_else(|| unexpected("a number is missing"))
    }

    pub(crate) fn bytes(&self) -> Result<&[u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(unexpected("a string is missing")),
        }
    }

    pub(crate) fn items(&self) -> Result<&[Self]> {
        match self {
            Self::Array(items) => Ok(items),
            _ => Err(unexpected("an array is missing")),
        }
    }

    pub(crate) fn fence(&self) -> Result<FencingToken> {
        let number = u64::try_from(self.int()?).ok().and_then(FencingToken::new);
        number.ok_or_else(|| unexpected("a fence is not positive"))
    }
}

pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("a script answered in an unexpected form: {what}"))
}

fn millis(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

fn micros(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_micros)
}

/// The news that a waiter was given the lock, `<fence>;<server µs>;<ms>;<fences>`; `None` for anything else.
pub(crate) fn handed(news: &str) -> Option<Handed> {
    let mut parts = news.split(';');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let fence = FencingToken::new(number()?)?;
    let (began_at, ttl) = (Duration::from_micros(number()?), Duration::from_millis(number()?));
    let fences = u32::try_from(number()?).ok()?.max(1);
    Some(Handed::new(fence, ttl, began_at).with_fences(fences))
}

/// The fence of a grant while nobody waited, and how far it is ahead of the server's clock as the lock's value says, unless
/// fences only count; `None` for any other answer of acquire.
pub(crate) fn free_grant(reply: &Reply) -> Option<(FencingToken, &str)> {
    let ahead = match reply {
        Reply::Int(_) => return Some((reply.fence().ok()?, "")),
        Reply::Array(items) => match items.as_slice() {
            [Reply::Int(3), _, ahead] => ahead,
            _ => return None,
        },
        _ => return None,
    };
    Some((reply.items().ok()?.get(1)?.fence().ok()?, std::str::from_utf8(ahead.bytes().ok()?).ok()?))
}

/// The answer of acquire and enter: `[code, fence, depth, ms, fences]`, cut short where the rest goes without saying.
pub(crate) fn acquisition(reply: &Reply, ttl: Duration, settings: &RedisSettings) -> Result<Acquisition> {
    if let Reply::Int(_) = reply {
        let grant = Grant::new(reply.fence()?, ttl).with_fences(FENCES);
        return Ok(Acquisition::Granted(grant));
    }
    let items = reply.items()?;
    let at = |i: usize| items.get(i).ok_or_else(|| unexpected("the answer is too short"));
    let depth = || -> Result<u32> {
        let depth = items.get(2).map_or(Ok(1), Reply::int)?;
        u32::try_from(depth).map_err(|_| unexpected("a depth is out of range"))
    };
    let fences = || -> Result<u32> {
        let fences = items.get(4).map_or(Ok(1), Reply::int)?;
        u32::try_from(fences).map_err(|_| unexpected("a number of fences is out of range"))
    };
    match at(0)?.int()? {
        code @ (1 | 2) => {
            let begun = if code == 1 { Begun::Now } else { Begun::Earlier };
            let kept = items.get(3).map(Reply::int).transpose()?.and_then(millis).unwrap_or(ttl);
            let grant = Grant::new(at(1)?.fence()?, kept).with_begun(begun).with_depth(depth()?).with_fences(fences()?);
            Ok(Acquisition::Granted(grant))
        }
        3 => Ok(Acquisition::Granted(Grant::new(at(1)?.fence()?, ttl))),
        0 => {
            let position = u32::try_from(at(1)?.int()?).ok();
            let answered_at = items.get(3).map(Reply::int).transpose()?.and_then(micros);
            Ok(Acquisition::Busy(
                Busy::default()
                    .with_position(position)
                    .with_recheck_after(millis(at(2)?.int()?))
                    .with_answered_at(answered_at),
            ))
        }
        -1 => Err(Error::new(ErrorKind::NotHeld, "the token was abandoned before its request arrived")),
        -2 => {
            let text = format!("the queue of this lock is full: it holds {} waiters", settings.max_waiters);
            Err(Error::new(ErrorKind::LimitReached, text))
        }
        -3 => {
            let text = format!("the lock is entered {MAX_DEPTH} times already, the deepest that is kept");
            Err(Error::new(ErrorKind::LimitReached, text))
        }
        -8 => Err(stored(at(1)?, at(2)?, "which is not the fence of a hold; force_release ends it")),
        -6 => Err(no_fence(at(1)?, at(2)?, settings.fence_floor)),
        _ => Err(unexpected("an unknown answer")),
    }
}

/// Why a script gave no fence: the answer shows the floor, or what the counter holds.
fn no_fence(key: &Reply, shown: &Reply, floor: FenceFloor) -> Error {
    if !shown.bytes().is_ok_and(|shown| shown == floor.to_string().as_bytes()) {
        return damaged(key, shown);
    }
    floor_ahead(floor.get())
}

pub(crate) fn floor_ahead(floor: u64) -> Error {
    let text = format!("the fence_floor of {floor} is more than a day ahead of the server's clock; no fence was given");
    Error::new(ErrorKind::Misconfigured, text)
}

/// What a script that hands out fences says of a counter that it cannot go on from.
pub(crate) fn damaged(key: &Reply, found: &Reply) -> Error {
    let what = "which is no number, or more than a day ahead of the server's clock; no fence was given. Set it to the greatest \
                fence that was given, or delete it if the clock seeds it";
    stored(key, found, what)
}

fn stored(key: &Reply, found: &Reply, what: &str) -> Error {
    let bytes = |reply| Reply::bytes(reply).unwrap_or_default();
    damage::unreadable(bytes(key), bytes(found), what)
}

/// The answers of the renewals, one for each of `count`; or one for all of them.
pub(crate) fn renewals(reply: &Reply, count: usize) -> Result<Vec<Renewed>> {
    let renewed = |item: &Reply| {
        Ok(match item.int()? {
            0 => Renewed::Lost,
            kept => Renewed::Extended { ttl: millis(kept).ok_or_else(|| unexpected("a lease is negative"))? },
        })
    };
    match reply {
        Reply::Int(_) => Ok(vec![renewed(reply)?; count]),
        Reply::Array(items) if items.len() == count => items.iter().map(renewed).collect(),
        _ => Err(unexpected("the number of answers differs from that of the renewals")),
    }
}

/// The answer of exit.
pub(crate) fn exited(answer: i64) -> Result<Exited> {
    Ok(match answer {
        -1 => Exited::NotHeld,
        0 | GO_ON => Exited::Released,
        depth => Exited::Inside { depth: u32::try_from(depth).map_err(|_| unexpected("a depth is out of range"))? },
    })
}

/// The answer of inspect.
pub(crate) fn inspection(reply: &Reply) -> Result<Inspection> {
    let items = reply.items()?;
    let at = |i: usize| items.get(i).ok_or_else(|| unexpected("the answer is too short"));
    let waiters = u32::try_from(at(0)?.int()?).unwrap_or(u32::MAX);
    let now = at(1)?.int()?;
    let kind = at(2)?.bytes()?;
    if kind == b"none" {
        return Ok(Inspection::default().with_waiters(waiters));
    }
    let remaining = millis(at(3)?.int()?);
    let foreign = Holder::default().with_remaining(remaining);
    let holder = match kind {
        b"string" => plain_holder(at(4)?.bytes()?, now, remaining),
        b"hash" => entered_holder(&items[4..], now, remaining),
        _ => return Err(unexpected("a lock of an unknown type")),
    };
    Ok(Inspection::default().with_holder(Some(holder.unwrap_or(foreign))).with_waiters(waiters))
}

/// The holder from a plain value, `<token>;<flag>;<fence>;<ahead>;<label>`; `None` for a foreign one. The fence was so many
/// microseconds ahead of the clock at the grant, none if `ahead` is empty.
fn plain_holder(value: &[u8], now: i64, remaining: Option<Duration>) -> Option<Holder> {
    let mut parts = std::str::from_utf8(value).ok()?.splitn(5, ';');
    let (token, flag) = (parts.next()?, parts.next()?);
    let (fence, ahead, label) = (parts.next()?, parts.next()?, parts.next()?);
    if token.len() != 22 || flag.len() != 1 {
        return None;
    }
    let ahead = if ahead.is_empty() { 0 } else { ahead.parse::<i64>().ok()? };
    let began = fence.parse::<i64>().ok()?.checked_sub(ahead)? / 1000;
    holder(fence, began, label, now, remaining)
}

/// The holder from `[fence, since, label, number of fields, owner]`; `None` for a foreign hash.
fn entered_holder(items: &[Reply], now: i64, remaining: Option<Duration>) -> Option<Holder> {
    let [fence, since, label, fields, owner] = items else { return None };
    let text = |item: &Reply| item.bytes().ok().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
    let depth = u32::try_from(fields.int().ok()?.checked_sub(4)?).ok()?;
    let owner = text(owner)?.parse().ok()?;
    let seen = holder(&text(fence)?, text(since)?.parse().ok()?, &text(label)?, now, remaining)?;
    Some(seen.with_depth(depth).with_owner(Some(owner)))
}

/// The holder of a plain lock.
fn holder(fence: &str, since: i64, label: &str, now: i64, remaining: Option<Duration>) -> Option<Holder> {
    let fence = FencingToken::new(fence.parse().ok()?)?;
    let held_for = millis(now.saturating_sub(since).max(0)); // the server's clock may step back
    let label = if label.is_empty() { None } else { Label::new(label).ok() };
    Some(Holder::default().with_label(label).with_fence(Some(fence)).with_held_for(held_for).with_remaining(remaining))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_values_have_no_details() {
        assert!(plain_holder(b"6f1c2d0e9e0b11efb2a1", 1, None).is_none());
        assert!(plain_holder(b"\xff\xfe", 1, None).is_none());
        assert!(plain_holder(b"AAAAAAAAAAAAAAAAAAAAAA;-;x;1;", 1, None).is_none());
        for other in ["AAAAAAAAAAAAAAAAAAAAA;-;7;1;", "AAAAAAAAAAAAAAAAAAAAAA;--;7;1;", "AAAAAAAAAAAAAAAAAAAAAA;;7;1;"]
        {
            assert!(plain_holder(other.as_bytes(), 1, None).is_none(), "{other}");
        }
        let ours = plain_holder(b"AAAAAAAAAAAAAAAAAAAAAA;w;7;-10000;a;b", 25, None).unwrap();
        assert_eq!((ours.fence, ours.held_for), (FencingToken::new(7), Some(Duration::from_millis(15))));
        assert_eq!(ours.label.unwrap().as_str(), "a;b");
        let ours = plain_holder(b"AAAAAAAAAAAAAAAAAAAAAA;-;1795201718160814;;", 1_795_201_718_175, None).unwrap();
        assert_eq!((ours.fence, ours.held_for), (FencingToken::new(1_795_201_718_160_814), millis(15)));
        assert_eq!(ours.label, None);
        let ours = plain_holder(b"AAAAAAAAAAAAAAAAAAAAAA;-;1795201718160814;8;", 1_795_201_718_175, None).unwrap();
        assert_eq!(ours.held_for, millis(15));
    }

    /// Whatever stands in an answer, it is an error or a value, and no panic.
    #[test]
    fn no_number_is_too_absurd() {
        let settings = RedisSettings::default();
        let texts = [&b""[..], b"none", b"string", b"hash", b"-9223372036854775808", b"18446744073709551615", b"\xff"];
        let numbers = [i64::MIN, -1, 0, 1, 2, 3, 4, i64::MAX].map(Reply::Int);
        let values = numbers.into_iter().chain(texts.map(|text| Reply::Bytes(text.to_vec())));
        let values: Vec<Reply> = values.chain([Reply::Nil, Reply::Array(vec![])]).collect();
        let sound = |kind: &[u8]| {
            let text = |text: &[u8]| Reply::Bytes(text.to_vec());
            let rest = [text(b"7"), text(b"1"), text(b""), Reply::Int(5), text(b"AAAAAAAAAAAAAAAAAAAAAA")];
            [vec![Reply::Int(1), text(b"2"), text(kind), Reply::Int(4)], rest.to_vec()].concat()
        };
        for kind in [&b"string"[..], b"hash", b"none"] {
            for at in 0..sound(kind).len() {
                for value in &values {
                    let mut items = sound(kind);
                    items[at] = value.clone();
                    let lengths = (0..=items.len()).map(|length| Reply::Array(items[..length].to_vec()));
                    for reply in lengths.chain([value.clone()]) {
                        drop((inspection(&reply), acquisition(&reply, Duration::ZERO, &settings), renewals(&reply, 1)));
                    }
                }
            }
        }
        for reply in &values {
            if let Ok(answer) = reply.int() {
                drop(exited(answer));
            }
        }
    }

    #[test]
    fn only_a_grant_that_nobody_waits_for_has_a_value_that_is_known() {
        let (settings, text) = (RedisSettings::default(), |text: &str| Reply::Bytes(text.as_bytes().to_vec()));
        let fence = |number| FencingToken::new(number).unwrap();
        let usual = Reply::Int(1_700_000_000_000_000);
        assert_eq!(free_grant(&usual), Some((fence(1_700_000_000_000_000), "")));
        let single = Reply::Array(vec![Reply::Int(3), Reply::Int(7), text("5")]);
        assert_eq!(free_grant(&single), Some((fence(7), "5")));
        let Ok(Acquisition::Granted(grant)) = acquisition(&single, Duration::from_secs(1), &settings) else { panic!() };
        assert_eq!((grant.fence, grant.fences, grant.begun, grant.depth), (fence(7), 1, Begun::Now, 1));
        let handed = vec![Reply::Int(1), Reply::Int(7), Reply::Int(1), Reply::Int(9), Reply::Int(8)];
        let before = vec![Reply::Int(2), text("7"), Reply::Int(1), Reply::Int(9), Reply::Int(8)];
        let busy = vec![Reply::Int(0), Reply::Int(0), Reply::Int(9), text("5")];
        for items in [handed, before, busy, vec![Reply::Int(3)], vec![Reply::Int(3), Reply::Int(0), text("")], vec![]] {
            assert_eq!(free_grant(&Reply::Array(items)), None);
        }
        assert_eq!((free_grant(&Reply::Nil), free_grant(&Reply::Int(-1))), (None, None));
    }

    #[test]
    fn every_code_of_an_answer_has_its_meaning() {
        let settings = RedisSettings::default().max_waiters(9).unwrap();
        let (text, ttl) = (|text: &str| Reply::Bytes(text.as_bytes().to_vec()), Duration::from_secs(3));
        let read = |items: &[Reply]| acquisition(&Reply::Array(items.to_vec()), ttl, &settings);
        let same =
            |answer: Result<Acquisition>, other| assert_eq!(format!("{:?}", answer.unwrap()), format!("{other:?}"));
        let [one, two, seven, half] = [1, 2, 7, 500].map(Reply::Int);
        let fence = FencingToken::new(7).unwrap();
        let usual = Grant::new(fence, ttl);
        for (items, grant) in [
            (&[one.clone(), text("7")][..], usual),
            (&[two.clone(), seven.clone()], usual.with_begun(Begun::Earlier)),
            (&[one, seven.clone(), two.clone(), half.clone(), Reply::Int(8)], {
                usual.with_depth(2).with_fences(8).with_ttl(Duration::from_millis(500))
            }),
        ] {
            same(read(items), Acquisition::Granted(grant));
        }
        same(acquisition(&seven, ttl, &settings), Acquisition::Granted(usual.with_fences(FENCES)));
        let busy = Busy::default().with_position(Some(2)).with_recheck_after(millis(500));
        same(read(&[Reply::Int(0), two.clone(), half.clone()]), Acquisition::Busy(busy));
        let at = busy.with_answered_at(Some(Duration::from_micros(7)));
        same(read(&[Reply::Int(0), two, half, text("7")]), Acquisition::Busy(at));
        same(read(&[Reply::Int(0), Reply::Int(-1), Reply::Int(-1)]), Acquisition::Busy(Busy::default()));
        for (code, kind, word) in [
            (-1, ErrorKind::NotHeld, "abandoned"),
            (-2, ErrorKind::LimitReached, "9 waiters"),
            (-3, ErrorKind::LimitReached, "65535 times"),
            (-8, ErrorKind::Damaged, "force_release"),
            (-6, ErrorKind::Damaged, "Set it to the greatest"),
        ] {
            let error = read(&[Reply::Int(code), text("tenure:a"), text("x")]).unwrap_err();
            assert!(error.kind() == kind && error.message().contains(word), "{code}: {error}");
        }
        let floored = settings.clone().fence_floor(FenceFloor::new(5).unwrap());
        let error = acquisition(&Reply::Array(vec![Reply::Int(-6), text("k"), text("5")]), ttl, &floored).unwrap_err();
        assert!(error.kind() == ErrorKind::Misconfigured && error.message().contains("fence_floor of 5"), "{error}");
        assert_eq!(
            [-1, 0, GO_ON].map(|code| exited(code).unwrap()),
            [Exited::NotHeld, Exited::Released, Exited::Released]
        );
        assert_eq!(exited(3).unwrap(), Exited::Inside { depth: 3 });
        assert_eq!(handed("7;5;9;0"), Some(Handed::new(fence, Duration::from_millis(9), Duration::from_micros(5))));
    }

    #[test]
    fn a_hold_is_seen_as_it_is() {
        let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        let seen = |kind: &str, rest: &[Reply]| {
            let head = [Reply::Int(2), Reply::Int(25), text(kind), Reply::Int(500)];
            inspection(&Reply::Array([&head, rest].concat())).unwrap()
        };
        let free = seen("none", &[]);
        assert_eq!((free.holder, free.waiters), (None, 2));
        let owner = "AAAAAAAAAAAAAAAAAAAAAQ";
        let fields = [text("7"), text("10"), text("lab"), Reply::Int(6), text(owner)];
        let seen_so = |rest: &[Reply]| seen("hash", rest).holder.unwrap();
        let entered = seen_so(&fields);
        assert_eq!((entered.depth, entered.owner.map(|owner| owner.to_string()).as_deref()), (2, Some(owner)));
        assert_eq!(
            (entered.fence, entered.held_for, entered.remaining),
            (FencingToken::new(7), millis(15), millis(500))
        );
        assert_eq!(entered.label.unwrap().as_str(), "lab");
        let foreign = seen_so(&[text("x"), Reply::Nil, Reply::Nil, Reply::Int(1), Reply::Nil]);
        assert_eq!((foreign.fence, foreign.owner, foreign.remaining), (None, None, millis(500)));
        let later = [text("7"), text("99"), text(""), Reply::Int(5), text(owner)];
        assert_eq!((seen_so(&later).held_for, seen_so(&later).label), (millis(0), None), "the clock stepped back");
        let plain = seen("string", &[text("AAAAAAAAAAAAAAAAAAAAAA;-;10000;;")]).holder.unwrap();
        assert_eq!((plain.held_for, plain.depth), (millis(15), 1));
        assert!(inspection(&Reply::Array(vec![Reply::Int(0), Reply::Int(0), text("list"), Reply::Int(0)])).is_err());
    }

    #[test]
    fn answers_in_an_unknown_form_are_protocol_violations() {
        let settings = RedisSettings::default();
        for reply in [Reply::Nil, Reply::Array(vec![]), Reply::Array(vec![Reply::Int(9)])] {
            let error = acquisition(&reply, Duration::from_secs(1), &settings).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
        }
        assert_eq!(renewals(&Reply::Array(vec![]), 1).unwrap_err().kind(), ErrorKind::Protocol);
    }
}
