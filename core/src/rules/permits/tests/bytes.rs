//! Records as bytes: what was written is read, and damage is an error.

use std::time::Duration;

use super::super::{Caps, PermitState, Rule};
use super::{World, join, label, request, share, token};
use crate::driver::{Handing, Queueing, Share};
use crate::{ErrorKind, LockName};

const CAPS: Caps = Caps { waiters: 100, holders: 100 };
/// An instant on a clock that counts since 1970.
const NOW: Duration = Duration::from_secs(1_800_000_000);

/// A record with holds, waiters and an upgrade.
fn busy_record(rng: &mut fastrand::Rng) -> PermitState {
    let (mut state, mut world) = (PermitState::default(), World::default());
    let name = LockName::new("name").unwrap();
    for who in 0..rng.u64(1..12) {
        let mut rule = Rule::new(&mut state, NOW + Duration::from_millis(who), CAPS, &mut world);
        let asked = *rng.choice(&[Share::READER, Share::UPGRADABLE, Share::WRITER, share(2, 3)]).unwrap();
        let accepts = if rng.bool() { Handing::Direct } else { Handing::Asked };
        let request = request(&name, token(who), Duration::from_secs(30), join(Duration::from_secs(9), accepts));
        let request = request.with_label(label("a holder").filter(|_| rng.bool()));
        let Ok(_) = rule.acquire(asked, &request);
        let Ok(_) = rule.resize(&token(rng.u64(0..12)), Share::WRITER, rng.u32(0..9), Some(Duration::from_secs(9)));
    }
    state
}

/// The same bytes with a fitting check, so that damage reaches the reader.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let body = &bytes[..bytes.len() - 8];
    [body, &super::super::bytes::check(body)].concat()
}

#[test]
fn records_round_trip() {
    let mut rng = fastrand::Rng::with_seed(1);
    let empty = PermitState::default();
    assert_eq!(empty.to_bytes().len(), 13);
    assert_eq!(PermitState::from_bytes(&empty.to_bytes()).unwrap(), empty);
    for _ in 0..500 {
        let state = busy_record(&mut rng);
        let bytes = state.to_bytes();
        assert_eq!(PermitState::from_bytes(&bytes).unwrap(), state);
        assert!(bytes.len() <= 22 + 60 * (state.holds.len() + state.line.len() + 1), "{} bytes", bytes.len());
    }
}

#[test]
fn times_far_away_are_kept_as_the_last_one() {
    let (mut state, mut world) = (PermitState::default(), World::default());
    let name = LockName::new("name").unwrap();
    let request = request(&name, token(1), Duration::from_secs(30), Queueing::None);
    let Ok(_) =
        Rule::new(&mut state, Duration::from_secs(u64::MAX / 2), CAPS, &mut world).acquire(share(1, 1), &request);
    let read = PermitState::from_bytes(&state.to_bytes()).unwrap();
    assert_eq!(read.holds[0].until, Duration::from_nanos(u64::MAX));
}

#[test]
fn a_record_of_version_one_is_read() {
    let mut state = PermitState::default();
    let name = LockName::new("name").unwrap();
    let request = request(&name, token(7), Duration::from_nanos(200_000_000), Queueing::None).with_label(label("é"));
    let Ok(_) =
        Rule::new(&mut state, Duration::from_nanos(5), CAPS, &mut World::default()).acquire(share(2, 300), &request);
    let body = [
        &[1, 5, 1, 0, 0, 2][..],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
        &[2, 0xac, 2, 1, 0, 0x80, 0x84, 0xaf, 0x5f, 0x80, 0x84, 0xaf, 0x5f, 0, 2, 0xc3, 0xa9],
        &[0; 8],
    ];
    assert_eq!(state.to_bytes(), sealed(&body.concat()));
    assert_eq!(PermitState::from_bytes(&sealed(&body.concat())).unwrap(), state);
}

#[test]
fn damaged_bytes_are_an_error() {
    let mut rng = fastrand::Rng::with_seed(2);
    let kind = |bytes: &[u8]| PermitState::from_bytes(bytes).unwrap_err().kind();
    for _ in 0..40 {
        let bytes = busy_record(&mut rng).to_bytes();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= rng.u8(1..);
            assert_eq!(kind(&damaged), ErrorKind::Damaged);
            assert_eq!(kind(&bytes[..at]), ErrorKind::Damaged, "cut off");
        }
        assert_eq!(kind(&[&bytes[..], &[0]].concat()), ErrorKind::Damaged, "too long");
    }
    for _ in 0..2_000 {
        let length = rng.usize(0..200);
        let noise: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(length).collect();
        assert_eq!(kind(&noise), ErrorKind::Damaged);
    }
    let newer = PermitState::from_bytes(&[2, 0]).unwrap_err();
    assert!(newer.message().contains("version 2"), "{newer}");
}

#[test]
fn damage_with_a_fitting_check_neither_panics_nor_allocates_much() {
    let mut rng = fastrand::Rng::with_seed(3);
    let name = LockName::new("name").unwrap();
    let mut read = 0;
    for _ in 0..4_000 {
        let mut bytes = busy_record(&mut rng).to_bytes();
        for _ in 0..rng.u8(1..4) {
            let at = rng.usize(1..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let Ok(mut state) = PermitState::from_bytes(&sealed(&bytes)) else { continue };
        read += 1;
        assert!(state.holds.capacity() * 20 <= bytes.len() * 4 && state.line.capacity() * 20 <= bytes.len() * 4);
        // Whatever was read, the rule does not panic on it.
        let mut world = World::default();
        for who in 0..12 {
            let request = request(&name, token(who), Duration::from_secs(9), join(NOW, Handing::Direct));
            let mut rule = Rule::new(&mut state, NOW + Duration::from_secs(who), CAPS, &mut world);
            let Ok(_) = rule.acquire(Share::READER, &request);
            let Ok(_) = rule.resize(&token(who), Share::WRITER, 1, Some(NOW));
            let Ok(_) = rule.release(&token(who / 2));
        }
    }
    assert!(read > 100, "{read} were read");
    // A count of all that a number can be.
    for at in 2..5 {
        let mut bytes = PermitState::default().to_bytes();
        bytes.splice(at..=at, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        assert_eq!(PermitState::from_bytes(&sealed(&bytes)).unwrap_err().kind(), ErrorKind::Damaged);
    }
}
