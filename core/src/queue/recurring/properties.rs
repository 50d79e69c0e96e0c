//! Stored schedules are read with inputs that nobody thought of.

use proptest::prelude::*;
use tenure_testkit::inputs::{self, assert_sound};

use crate::queue::recurring::schedule::Plan;
use crate::value::queue_name::Recurrence;

const WORDS: &[&str] = &[
    "1 ",
    "2 ",
    "1700000000000 ",
    "18446744073709551615 ",
    "3 ",
    "0 ",
    "skip ",
    "once ",
    "every ",
    "cron ",
    "UTC ",
    "Europe/Berlin ",
    "* ",
    "*/5 ",
    "30 ",
    "2 ",
    "MON-FRI ",
    "L ",
    "15W ",
    "5#3 ",
    "60000",
    "1",
    " ",
    "-",
    ",",
    "/",
];

/// What is mostly a plan: the words that all have, and then any.
fn texts() -> impl Strategy<Value = String> {
    let heads = ["", "1 5 3 skip every ", "1 1700000000000 3 once cron UTC ", "1 0 10000 skip cron Europe/Berlin "];
    (0..heads.len(), inputs::text(WORDS, 0..8)).prop_map(move |(head, rest)| format!("{}{rest}", heads[head]))
}

proptest! {
    #![proptest_config(inputs::config())]

    #[test]
    fn any_schedule_is_read_or_refused_and_has_a_next_time_or_none(text in texts(), after in any::<u64>()) {
        let Ok(recurrence) = Recurrence::new(&text) else { return Ok(()) };
        match Plan::read(&recurrence) {
            Err(error) => assert_sound(&error, &[]),
            Ok((plan, nominal)) => {
                for after in [after, after % 4_000_000_000_000] {
                    let next = plan.schedule.next(nominal, after);
                    assert!(next.is_none_or(|next| next > nominal && next > after), "{next:?}");
                }
                let again = plan.recurrence(nominal).unwrap();
                assert_eq!(Plan::read(&again).unwrap(), (plan, nominal));
            }
        }
    }
}
