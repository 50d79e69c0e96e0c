//! The figures from the merged logs of all waiters: hand-overs, gaps, fairness, and whether anything went wrong.

use serde_json::Value;

use super::report::Sample;
use crate::job::{Event, Outcome};
use crate::measure::{jain, percentile};

/// One acquisition, with the waiter's number among all processes.
#[derive(Clone, Copy, Debug)]
struct Turn {
    waiter: usize,
    asked: u64,
    got: u64,
    gave: u64,
    fence: u64,
}

/// The figures of a run of `waiters` in several processes.
pub(super) fn figures(answers: &[Value], waiters: usize) -> Outcome<Sample> {
    let moment = |name: &str| answers.iter().filter_map(|answer| answer[name].as_u64()).max().unwrap_or(0);
    let (begun, until) = (moment("begun"), moment("until"));
    let mut turns = Vec::new();
    for (process, answer) in answers.iter().enumerate() {
        let events: Vec<Event> = serde_json::from_value(answer["events"].clone())?;
        turns.extend(events.into_iter().map(|(waiter, asked, got, gave, fence)| {
            let waiter = process * waiters.div_ceil(answers.len()) + waiter;
            Turn { waiter, asked, got, gave, fence }
        }));
    }
    if turns.is_empty() {
        return Err("no waiter got the lock".into());
    }
    turns.sort_by_key(|turn| turn.got);
    Ok(evaluate(&turns, waiters, begun, until))
}

fn evaluate(turns: &[Turn], waiters: usize, begun: u64, until: u64) -> Sample {
    let seconds = (until - begun) as f64 / 1e9;
    let pairs = || turns.windows(2).map(|pair| (pair[0], pair[1]));
    let passed = || pairs().filter(|(one, next)| one.waiter != next.waiter);
    let within = |turn: &Turn| turn.got <= until;
    let gap = |(one, next): (Turn, Turn)| next.got.saturating_sub(one.gave) as f64 / 1e3;
    let mut gaps: Vec<f64> = passed().filter(|(_, next)| within(next)).map(gap).collect();
    let mut waits: Vec<f64> = turns.iter().map(|turn| (turn.got - turn.asked) as f64 / 1e6).collect();
    let mut shares = vec![0.0; waiters];
    for turn in turns.iter().filter(|turn| within(turn)) {
        shares[turn.waiter] += 1.0;
    }
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    Sample::from(
        [
            ("n", passed().count() as f64),
            ("per_s", gaps.len() as f64 / seconds),
            ("acquisitions_per_s", shares.iter().sum::<f64>() / seconds),
            ("gap_p50_us", percentile(&mut gaps, 0.5)),
            ("gap_p99_us", percentile(&mut gaps, 0.99)),
            ("gap_p99_ms", percentile(&mut gaps, 0.99) / 1e3),
            ("wait_p99_ms", percentile(&mut waits, 0.99)),
            ("max_over_mean", percentile(&mut waits, 1.0) / mean),
            ("jain", jain(&shares)),
            ("overlaps", pairs().filter(|(one, next)| next.got < one.gave).count() as f64),
            ("fences_back", pairs().filter(|(one, next)| next.fence > 0 && next.fence <= one.fence).count() as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(waiter: usize, asked: u64, got: u64, gave: u64, fence: u64) -> Turn {
        Turn { waiter, asked, got, gave, fence }
    }

    #[test]
    fn a_clean_history_has_gaps_and_no_faults() {
        let turns = [turn(0, 0, 1_000, 2_000, 1), turn(1, 0, 5_000, 6_000, 2), turn(1, 6_000, 7_000, 8_000, 3)];
        let figures = evaluate(&turns, 2, 0, 10_000);
        assert_eq!(figures["n"], 1.0, "the second turn of the same waiter is none");
        assert_eq!(figures["gap_p50_us"], 3.0);
        assert_eq!(figures["overlaps"], 0.0);
        assert_eq!(figures["fences_back"], 0.0);
    }

    #[test]
    fn faults_are_found() {
        let turns = [turn(0, 0, 1_000, 9_000, 7), turn(1, 0, 5_000, 6_000, 7)];
        let figures = evaluate(&turns, 2, 0, 10_000);
        assert_eq!(figures["overlaps"], 1.0);
        assert_eq!(figures["fences_back"], 1.0);
    }
}
