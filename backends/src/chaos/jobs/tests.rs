//! Hand-made logs, one for each rule.

use std::time::Duration;

use tenure_core::driver::DeadCause;

use super::check;
use super::ended::{Letter, Remains};
use crate::chaos::event::read;
use crate::chaos::judge::Rule;

/// The violations in this log; instants are milliseconds here.
fn found(log: &str, letters: &[(&str, DeadCause, u32)]) -> Vec<Rule> {
    let nanos = |line: &str| {
        let words = line.split(' ').map(|word| match word.strip_suffix("ms") {
            Some(millis) => format!("{millis}000000"),
            None => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let text: String = log.lines().map(|line| nanos(line.trim()) + "\n").collect();
    let letter =
        |&(message, cause, attempt): &(&str, DeadCause, u32)| Letter { message: message.into(), cause, attempt };
    let letters = letters.iter().map(letter).collect();
    let remains = Remains { is_known: true, letters, clock_error: Duration::from_millis(10), ..Remains::default() };
    check(&read(&text).unwrap(), &remains).into_iter().map(|violation| violation.rule).collect()
}

const PUSHED: &str = "100ms 0 0 1 1 m pushing done-0 50ms - - 0ms\n101ms 0 0 1 1 m pushed stored\n";
const HANDLED: &str =
    "160ms 1 0 1 1 m got 90ms 7 1 First\n161ms 1 0 1 1 m settling 7 ack 0ms\n162ms 1 0 1 1 m settled 7 Done\n";

#[test]
fn a_message_that_is_handled_once_breaks_nothing() {
    assert_eq!(found(&format!("{PUSHED}{HANDLED}"), &[]), []);
    let killed = "160ms 1 0 1 1 m got 90ms 7 1 First\n2200ms 1 0 1 2 m got 2000ms 8 2 LeaseExpired\n\
                  2201ms 1 0 1 2 m settling 8 ack 0ms\n2202ms 1 0 1 2 m settled 8 Done\n";
    assert_eq!(found(&format!("{PUSHED}{killed}"), &[]), []);
    let unanswered = "160ms 1 0 1 1 m got 90ms 7 1 First\n161ms 1 0 1 1 m settling 7 ack 0ms\n";
    assert_eq!(found(&format!("{PUSHED}{unanswered}"), &[]), []);
}

#[test]
fn a_loss_and_a_second_settlement_are_found() {
    assert_eq!(found(PUSHED, &[]), [Rule::LostMessage]);
    let refused =
        "160ms 1 0 1 1 m got 90ms 7 1 First\n161ms 1 0 1 1 m settling 7 ack 0ms\n162ms 1 0 1 1 m settled 7 Stale\n";
    assert_eq!(found(&format!("{PUSHED}{refused}"), &[]), [Rule::LostMessage]);
    assert_eq!(found(&format!("{PUSHED}{HANDLED}163ms 1 0 1 1 m settled 7 Done\n"), &[]), [Rule::SettledTwice]);
    let again = "170ms 2 0 1 1 m got 165ms 8 2 Retried\n";
    assert_eq!(found(&format!("{PUSHED}{HANDLED}{again}"), &[]), [Rule::SettledTwice]);
}

#[test]
fn early_deliveries_are_found() {
    let early = HANDLED.replace("160ms", "120ms");
    assert_eq!(found(&format!("{PUSHED}{early}"), &[]), [Rule::Early]);
    let handled = "160ms 1 0 1 1 m got 150ms 7 1 First\n161ms 1 0 1 1 m settling 7 nack 500ms\n400ms 1 0 1 2 m got 300ms 8 2 Retried\n\
                   401ms 1 0 1 2 m settling 8 ack 0ms\n";
    assert_eq!(found(&format!("{PUSHED}{handled}"), &[]), [Rule::Early]);
    let expired = "160ms 1 0 1 1 m got 150ms 7 1 First\n1900ms 1 0 1 2 m got 1800ms 8 2 LeaseExpired\n1901ms 1 0 1 2 m settling 8 ack 0ms\n";
    assert_eq!(found(&format!("{PUSHED}{expired}"), &[]), [Rule::Early]);
}

#[test]
fn wrong_attempts_and_dead_letters_are_found() {
    let twice = "160ms 1 0 1 1 m got 150ms 7 1 First\n161ms 1 0 1 1 m settling 7 nack 0ms\n170ms 1 0 1 2 m got 165ms 8 1 Retried\n\
                 171ms 1 0 1 2 m settling 8 ack 0ms\n";
    assert_eq!(found(&format!("{PUSHED}{twice}"), &[]), [Rule::Attempts]);
    let returned = twice.replace("7 nack", "7 return");
    assert_eq!(found(&format!("{PUSHED}{returned}"), &[]), []);
    assert_eq!(found(PUSHED, &[("m", DeadCause::Exhausted, 1000)]), [Rule::WronglyDead]);
    let dying = PUSHED.replace("done-0", "exhausted");
    assert_eq!(found(&dying, &[("m", DeadCause::Exhausted, 2)]), []);
    assert_eq!(found(&dying, &[("m", DeadCause::Exhausted, 1)]), [Rule::WronglyDead]);
    assert_eq!(found(&dying, &[]), [Rule::LostMessage]);
    let doubled = [("m", DeadCause::Exhausted, 2), ("m", DeadCause::Exhausted, 2)];
    assert_eq!(found(&dying, &doubled), [Rule::WronglyDead]);
    assert_eq!(found("", &[("m", DeadCause::Rejected, 1)]), [Rule::WronglyDead]);
}

#[test]
fn what_was_refused_must_not_come() {
    let duplicate = PUSHED.replace("stored", "duplicate");
    assert_eq!(found(&duplicate, &[]), []);
    assert_eq!(found(&format!("{duplicate}{HANDLED}"), &[]), [Rule::Unknown]);
    assert_eq!(found(HANDLED, &[]), [Rule::Unknown]);
}

#[test]
fn fences_out_of_order_are_found() {
    let other = |text: &str| text.replace(" m ", " n ");
    let same = format!("{PUSHED}{HANDLED}{}{}", other(PUSHED), other(HANDLED));
    assert_eq!(found(&same, &[]), [Rule::SameFence]);
    let later = other(HANDLED).replace(" 7 ", " 6 ").replace("got 90ms", "got 161ms").replace("160ms", "165ms");
    assert_eq!(found(&format!("{PUSHED}{HANDLED}{}{later}", other(PUSHED)), &[]), [Rule::FenceOrder]);
    let overlapping = later.replace("got 161ms", "got 159ms");
    assert_eq!(found(&format!("{PUSHED}{HANDLED}{}{overlapping}", other(PUSHED)), &[]), []);
}

#[test]
fn two_of_a_key_and_two_of_a_name_are_found() {
    let other = |text: &str| text.replace(" m ", " n ");
    let keyed = PUSHED.replace("50ms - -", "50ms 3 -");
    let long = HANDLED.replace("161ms", "400ms").replace("162ms", "401ms");
    let meanwhile = other(HANDLED).replace(" 7 ", " 8 ").replace("160ms", "200ms").replace("161ms", "210ms");
    assert_eq!(found(&format!("{keyed}{long}{}{meanwhile}", other(&keyed)), &[]), [Rule::KeyTwice]);
    let then = meanwhile.replace("200ms", "450ms").replace("210ms", "460ms");
    assert_eq!(found(&format!("{keyed}{long}{}{then}", other(&keyed)), &[]), []);
    let named = PUSHED.replace("50ms - - 0ms", "50ms - 3 400ms");
    let next = other(&named).replace("100ms", "300ms").replace("101ms", "301ms");
    let handled = other(HANDLED).replace(" 7 ", " 8 ").replace("160ms", "360ms");
    assert_eq!(found(&format!("{named}{HANDLED}{next}{handled}"), &[]), [Rule::NameTwice]);
    let free = next.replace("300ms", "700ms").replace("301ms", "701ms");
    let handled = handled.replace("360ms", "860ms");
    assert_eq!(found(&format!("{named}{HANDLED}{free}{handled}"), &[]), []);
}
