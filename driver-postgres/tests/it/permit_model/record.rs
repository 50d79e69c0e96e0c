//! The rows of one name, as the record of the rule.

use std::collections::HashMap;

use tenure_core::driver::Share;
use tenure_core::rules::permits::PermitState;
use tokio_postgres::{Client, Row};

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// The rows as bytes in the format of the record, whose documentation has the order of the parts.
struct Bytes<'a> {
    out: Vec<u8>,
    tokens: &'a HashMap<String, [u8; 16]>,
}

impl Bytes<'_> {
    fn number(&mut self, number: u64) {
        let mut rest = number;
        while rest >= 0x80 {
            self.out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.out.push(rest as u8);
    }

    fn span(&mut self, micros: i64) {
        self.number(u64::try_from(micros).unwrap() * 1_000);
    }

    fn head(&mut self, flags: [bool; 3], token: &str, weight: i64, capacity: i64) {
        self.out.push(flags.iter().enumerate().map(|(bit, is_set)| u8::from(*is_set) << bit).sum());
        self.out.extend(self.tokens[token]);
        self.number(weight.cast_unsigned());
        self.number(capacity.cast_unsigned());
    }

    fn label(&mut self, label: Option<&[u8]>) {
        if let Some(label) = label {
            self.number(label.len() as u64);
            self.out.extend(label);
        }
    }

    fn hold(&mut self, row: &Row) {
        let label: Option<&[u8]> = row.get("label");
        self.head(
            [row.get("handed"), label.is_some(), false],
            row.get("token"),
            row.get("weight"),
            row.get("capacity"),
        );
        self.number(row.get::<_, i64>("fence").cast_unsigned());
        let since: i64 = row.get("since");
        self.span(since);
        self.span(row.get::<_, i64>("until") - since);
        self.span(row.get("ttl"));
        self.number(row.get::<_, i64>("step").cast_unsigned());
        self.label(label);
    }

    fn waiter(&mut self, row: &Row) {
        let accepts: bool = row.get("accepts");
        let label: Option<&[u8]> = if accepts { row.get("label") } else { None };
        let flags = [row.get("called"), label.is_some(), accepts];
        self.head(flags, row.get("token"), row.get("weight"), row.get("capacity"));
        self.number(0); // of no client, as the rule has it here
        self.span(row.get("present"));
        if accepts {
            self.span(row.get("ttl"));
        }
        self.label(label);
    }

    fn record(mut self) -> PermitState {
        let check = self.out.iter().fold(FNV_START, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
        self.out.extend(check.to_be_bytes());
        PermitState::from_bytes(&self.out).unwrap()
    }
}

/// Reads the record of a name, and checks the sums and bounds of its row. The second value is the last fence.
pub(super) async fn read(
    session: &Client,
    name: &[u8],
    tokens: &HashMap<String, [u8; 16]>,
) -> Result<(PermitState, i64), String> {
    let name: &(dyn tokio_postgres::types::ToSql + Sync) = &name;
    let all = [
        "SELECT * FROM tenure.permit WHERE name = $1",
        "SELECT * FROM tenure.permit_hold WHERE name = $1 ORDER BY fence",
        "SELECT * FROM tenure.permit_waiter WHERE name = $1 ORDER BY place",
    ];
    let parameters = [name];
    let (permit, holds, waiters) = tokio::join!(
        session.query(all[0], &parameters),
        session.query(all[1], &parameters),
        session.query(all[2], &parameters)
    );
    let (permit, holds, waiters) = (permit.unwrap(), holds.unwrap(), waiters.unwrap());
    let permit = permit.first();
    let growth = permit.filter(|row| row.get::<_, Option<&str>>("grow_token").is_some());
    let mut bytes = Bytes { out: vec![1], tokens };
    for number in [0, holds.len(), waiters.len(), usize::from(growth.is_some())] {
        bytes.number(number as u64);
    }
    holds.iter().for_each(|row| bytes.hold(row));
    waiters.iter().for_each(|row| bytes.waiter(row));
    if let Some(row) = growth {
        let called = [row.get("grow_called"), false, false];
        bytes.head(called, row.get("grow_token"), row.get("grow_weight"), row.get("grow_capacity"));
        bytes.number(0); // of no client, as the rule has it here
        bytes.span(row.get("grow_until"));
    }
    let Some(row) = permit else {
        return if holds.is_empty() && waiters.is_empty() {
            Ok((bytes.record(), 0))
        } else {
            Err("rows without a name".to_owned())
        };
    };
    let used: i64 = holds.iter().map(|hold| hold.get::<_, i64>("weight")).sum();
    let sums = (row.get::<_, i64>("used"), row.get::<_, i32>("holders"));
    if sums != (used, i32::try_from(holds.len()).unwrap()) {
        return Err(format!("the sums are {sums:?}, with {} holds that weigh {used}", holds.len()));
    }
    for (bound, earliest) in [
        ("ends", holds.iter().map(|hold| hold.get::<_, i64>("until")).min()),
        ("lapse", waiters.iter().map(|waiter| waiter.get::<_, i64>("present")).min()),
    ] {
        let kept: Option<i64> = row.get(bound);
        if earliest.is_some_and(|earliest| kept.is_none_or(|kept| kept > earliest)) {
            return Err(format!("{bound} is {kept:?}, and {earliest:?} is earlier"));
        }
    }
    Ok((bytes.record(), row.get("fence")))
}

/// A share that no request may have.
pub(super) const IMPOSSIBLE: Share = Share { weight: 3, capacity: 2 };
