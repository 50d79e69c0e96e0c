//! Holders and places, in words.

use tenure::{Holder, Inspection, PermitInspection, Share};

use crate::duration::show;

/// The state of a name, in words.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) holder: String,
    pub(super) waiters: u32,
}

impl From<&Inspection> for Seen {
    fn from(seen: &Inspection) -> Self {
        let holder = seen.holder.as_ref().map_or_else(|| String::from("it is free"), describe_holder);
        Self { holder, waiters: seen.waiters }
    }
}

impl From<&PermitInspection> for Seen {
    /// Of a read-write lock.
    fn from(seen: &PermitInspection) -> Self {
        let writer = seen.holders.iter().find(|holder| holder.share == Share::WRITER);
        let holder = match (writer, &seen.holders[..]) {
            (Some(writer), _) => format!("{}, for writing", describe_holder(&writer.holder)),
            (None, []) => String::from("it is free"),
            (None, [reader]) => format!("{}, for reading", describe_holder(&reader.holder)),
            (None, readers) => {
                format!("held by {} readers{}", readers.len(), longest(readers.iter().map(|one| &one.holder)))
            }
        };
        Self { holder, waiters: seen.waiters }
    }
}

/// The longest of their times, in words.
fn longest<'a>(holders: impl Iterator<Item = &'a Holder>) -> String {
    let most = holders.filter_map(|holder| holder.held_for).max();
    most.map(|span| format!(", the first for {}", show(span))).unwrap_or_default()
}

/// A lock, in words.
pub(crate) fn describe(seen: &Inspection) -> String {
    describe_from(&Seen::from(seen), None)
}

pub(super) fn describe_from(seen: &Seen, place: Option<u64>) -> String {
    let holder = &seen.holder;
    match (place, seen.waiters) {
        (None, 0) => holder.clone(),
        (None, waiters) => format!("{holder}; {waiters} in line"),
        (Some(place), waiters) if u64::from(waiters) < place => format!("{holder}; {} in line", ordinal(place)),
        (Some(place), waiters) => format!("{holder}; {} of {waiters} in line", ordinal(place)),
    }
}

/// For a line that may be cut off.
pub(super) fn describe_place_first(seen: &Seen, place: Option<u64>) -> String {
    let place = place.map(|place| format!("{} in line; ", ordinal(place))).unwrap_or_default();
    place + &describe_from(seen, None)
}

fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

pub(crate) fn describe_holder(holder: &Holder) -> String {
    let mut text = match &holder.label {
        Some(label) => format!("held by {}", label.as_str().escape_debug()),
        None => String::from("held"),
    };
    if let Some(span) = holder.held_for {
        text.push_str(&format!(" for {}", show(span)));
    }
    match holder.remaining {
        Some(rest) => text.push_str(&format!(", its lease expires in {}", show(rest))),
        None => text.push_str(", its lease has no end"),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::ordinal;

    #[test]
    fn places_are_counted_as_people_do() {
        let spoken = [1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111, 112, 123].map(ordinal);
        assert_eq!(spoken.join(" "), "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 101st 111th 112th 123rd");
    }
}
