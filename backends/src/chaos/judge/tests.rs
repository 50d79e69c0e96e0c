//! Hand-made logs: a clean one is clean, and each rule finds what it is for.

use std::time::Duration;

use tenure_conformance::history::Assumption;

use super::{Bounds, Ending, Rule, Seen, Violation, judge, stalls};
use crate::chaos::event::{Event, read};
use crate::chaos::fault::{Fault, Harmed};

const BOUNDS: Bounds = Bounds { reported_late: Duration::from_millis(250), stall: Duration::from_millis(500) };

/// The events of a log whose instants are milliseconds, of the lock "n" unless it is said otherwise.
fn log(text: &str) -> Vec<Event> {
    let nanos = |ms: &str| format!("{}000000", ms.parse::<u64>().unwrap());
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (at, process, op, what) = (nanos(words[0]), words[1], words[2], &words[3..]);
        let what: Vec<String> = match what {
            ["granted", fence, until] => vec!["granted".into(), (*fence).into(), nanos(until)],
            ["held", until] => vec!["held".into(), nanos(until)],
            what => what.iter().map(|word| (*word).into()).collect(),
        };
        let (task, name) = if what[0] == "closed" { (0, "-") } else { (1, "n") };
        format!("{at} {process} 0 {task} {op} {name} {}\n", what.join(" "))
    };
    let mut events = read(&text.lines().filter(|line| !line.trim().is_empty()).map(line).collect::<String>()).unwrap();
    events.sort_by_key(|event| event.at);
    events
}

fn fault(at: u64, end: Option<u64>, what: Harmed) -> Fault {
    Fault { at: Duration::from_millis(at), end: end.map(Duration::from_millis), what }
}

fn found(text: &str, faults: &[Fault], assumption: Assumption) -> Vec<Violation> {
    let events = log(text);
    judge(&Seen { events: &events, faults, assumption, bounds: BOUNDS }, &Ending::default(), None)
}

fn rules(text: &str) -> Vec<Rule> {
    found(text, &[], Assumption::Timed).iter().map(|violation| violation.rule).collect()
}

const CLEAN: &str = "
    0  0 1 asked acquire
    5  0 1 granted 10 900
    50 0 1 held 950
    60 0 1 leaving release true
    62 0 1 left Released
    7  1 1 asked within
    61 1 1 granted 11 1000
    80 1 1 leaving drop true";

#[test]
fn a_clean_log_is_clean_and_a_hold_ends_where_it_was_last_certain() {
    assert_eq!(rules(CLEAN), []);
    let holds = super::holds(&log(CLEAN));
    let spans: Vec<_> = holds.iter().map(|hold| (hold.returned.as_millis(), hold.believed.as_millis())).collect();
    assert_eq!(spans, [(5, 60), (61, 80)]);
}

#[test]
fn two_grants_with_one_fence() {
    assert_eq!(rules(&CLEAN.replace("granted 11", "granted 10")), [Rule::SameFence]);
}

#[test]
fn a_grant_that_was_asked_for_later_and_has_a_smaller_fence() {
    let later = "
        0   0 1 asked acquire
        5   0 1 granted 10 900
        60  0 1 leaving release true
        70  1 1 asked within
        75  1 1 granted 9 1000";
    // Asked for before the other returned, it may have been granted first, and is out of order all the same: the
    // second hold began after the first, with a smaller fence.
    assert_eq!(rules(later), [Rule::FenceOrder, Rule::HoldOrder]);
    assert_eq!(rules(&later.replace("70  1 1 asked", "3 1 1 asked")), [Rule::HoldOrder]);
}

#[test]
fn two_holders_at_once() {
    let overlap = CLEAN.replace("61 1 1 granted", "59 1 1 granted");
    assert_eq!(rules(&overlap), [Rule::Overlap]);
    // Not where data may be lost: only fences are promised there.
    assert_eq!(found(&overlap, &[], Assumption::Asynchronous), []);
    // Nor where the second guard held nothing when it was returned.
    assert_eq!(rules(&overlap.replace("granted 11 1000", "granted 11 59")), []);
}

#[test]
fn a_look_at_the_guard_is_what_is_certain() {
    let killed = "
        0  0 1 asked acquire
        5  0 1 granted 10 900
        50 0 1 held 950
        7  1 1 asked within
        51 1 1 granted 11 1000";
    // The belief of a killed process after its last entry is unknown.
    assert_eq!(rules(killed), []);
    assert_eq!(rules(&killed.replace("51 1 1 granted", "49 1 1 granted")), [Rule::Overlap]);
}

#[test]
fn a_loss_by_the_clock_was_believed_until_then_and_another_one_until_the_last_look() {
    let frozen = "
        0   0 1 asked acquire
        5   0 1 granted 10 300
        500 0 1 lost true
        501 0 1 leaving drop false
        7   1 1 asked within
        299 1 1 granted 11 1000";
    assert_eq!(rules(frozen), [Rule::Overlap]);
    assert_eq!(rules(&frozen.replace("299 1 1 granted", "300 1 1 granted")), []);
    assert_eq!(rules(&frozen.replace("lost true", "lost false")), []);
}

#[test]
fn a_loss_that_is_reported_after_the_next_grant_is_excused_by_a_stop_of_the_process_only() {
    let late = "
        0   0 1 asked acquire
        5   0 1 granted 10 300
        600 0 1 lost true
        7   1 1 asked within
        310 1 1 granted 11 1000";
    assert_eq!(rules(late), [Rule::ReportedLate]);
    assert_eq!(rules(&late.replace("600 0 1 lost", "559 0 1 lost")), []);
    let stopped = |process| fault(400, Some(580), Harmed::ClientStopped { process, life: 0 });
    assert_eq!(found(late, &[stopped(0)], Assumption::Timed), []);
    assert_eq!(found(late, &[stopped(1)], Assumption::Timed).len(), 1);
    let before = fault(100, Some(200), Harmed::ClientStopped { process: 0, life: 0 });
    assert_eq!(found(late, &[before], Assumption::Timed).len(), 1);
}

#[test]
fn a_second_entry_counts_for_the_first_and_has_its_fence() {
    let nested = "
        0  0 1 asked enter
        5  0 1 granted 10 900
        6  0 2 asked nested 1
        8  0 2 granted 10 900
        90 0 2 held 950
        91 0 2 leaving release true
        7  1 1 asked within
        95 1 1 granted 11 1000";
    assert_eq!(rules(nested), []);
    assert_eq!(rules(&nested.replace("95 1 1 granted", "89 1 1 granted")), [Rule::Overlap]);
    assert_eq!(rules(&nested.replace("8  0 2 granted 10", "8  0 2 granted 9")), [Rule::FenceOrder, Rule::HoldOrder]);
}

#[test]
fn an_error_that_no_fault_explains() {
    for (kind, count) in [("Unavailable", 0), ("TimedOut", 0), ("Protocol", 1), ("LimitReached", 1)] {
        let text = format!("0 0 1 asked acquire\n5 0 1 failed {kind} why");
        assert_eq!(rules(&text).len(), count, "{kind}");
    }
}

#[test]
fn a_task_without_an_end_a_client_that_does_not_close_and_what_is_left() {
    let whole = "
        0 0 1 asked last
        1 0 1 granted 10 900
        2 0 1 leaving release true
        3 0 0 finished
        4 0 0 closed ok 0 0 0";
    let judged = |text: &str, left: &[&str]| {
        let ending = Ending {
            alive: vec![(0, 0)],
            tasks: 1,
            span: (Duration::ZERO, Duration::from_secs(1)),
            left: left.iter().map(|what| (*what).into()).collect(),
        };
        let seen = Seen { events: &log(text), faults: &[], assumption: Assumption::Timed, bounds: BOUNDS };
        judge(&seen, &ending, None).into_iter().map(|violation| violation.rule).collect::<Vec<_>>()
    };
    assert_eq!(judged(whole, &[]), []);
    assert_eq!(judged(whole, &["the key n"]), [Rule::Left]);
    assert_eq!(judged(&whole.replace("3 0 0 finished", ""), &[]), [Rule::Hang]);
    assert_eq!(judged(&whole.replace("closed ok 0 0 0", "closed ok 0 0 1"), &[]), [Rule::NotClosed]);
    assert_eq!(judged(&whole.replace("closed ok", "closed timed_out"), &[]), [Rule::NotClosed]);
    assert_eq!(judged("0 0 1 asked last", &[]), [Rule::Hang, Rule::NotClosed]);
    assert_eq!(judged("", &[]), [Rule::Hang, Rule::NotClosed]);
}

#[test]
fn a_stall_lasts_from_the_end_of_a_hold_or_the_death_of_its_process_to_the_next_grant() {
    let stall = |text: &str, faults: &[Fault]| {
        let stall = stalls(log(text).iter(), faults).into_iter().max().unwrap();
        (stall.from.as_millis(), stall.span.as_millis())
    };
    assert_eq!(stall(CLEAN, &[]), (0, 5));
    assert_eq!(stall(&CLEAN.replace("61 1 1 granted", "90 1 1 granted"), &[]), (60, 30));
    let killed = "
        0   0 1 asked acquire
        5   0 1 granted 10 900
        7   1 1 asked within
        400 1 1 granted 11 1000";
    assert_eq!(stall(killed, &[]), (0, 5));
    assert_eq!(stall(killed, &[fault(100, Some(101), Harmed::ClientKilled { process: 0, life: 0 })]), (100, 300));
}

#[test]
fn a_stall_is_found_where_no_fault_of_a_server_explains_it() {
    let killed = "
        0    0 1 asked acquire
        5    0 1 granted 10 900
        7    1 1 asked within
        5000 1 1 granted 11 9000";
    let kill = fault(4000, Some(4001), Harmed::ClientKilled { process: 0, life: 0 });
    let stop = |at, end| fault(at, end, Harmed::ServerStopped { node: 0 });
    let judged = |faults: &[Fault]| -> Vec<Rule> {
        found(killed, faults, Assumption::Timed).iter().map(|violation| violation.rule).collect()
    };
    assert_eq!(judged(std::slice::from_ref(&kill)), [Rule::Stall]);
    // A stop of a server explains its own span, and what comes right after it.
    assert_eq!(judged(&[kill.clone(), stop(4400, Some(4500))]), []);
    assert_eq!(judged(&[stop(2000, Some(2300)), kill.clone()]), [Rule::Stall]);
    assert_eq!(judged(&[stop(2000, Some(2700)), kill.clone()]), []);
    assert_eq!(judged(&[kill.clone(), stop(4700, None)]), [Rule::Stall]);
    // A stop of another client does not.
    let client = fault(4100, Some(4900), Harmed::ClientStopped { process: 2, life: 0 });
    assert_eq!(judged(&[kill.clone(), client]), [Rule::Stall]);
    // While it is stopped itself, it wants nothing.
    let itself = fault(4100, Some(4900), Harmed::ClientStopped { process: 1, life: 0 });
    assert_eq!(judged(&[kill, itself]), []);
}
