//! Messages that come again: one of many instances handles each occurrence, and none is lost or doubled.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tenure_core::driver::{
    Cancelled, Delay, DelayQueue as _, DelayQueueExt as _, Lease, MessageState, NamedId, NewMessage, Payload,
    ReceiveRequest, Rest, Settle, Settled, Settlement,
};
use tenure_core::queue::{
    Delivery, Ending, Ensured, Job, MessageId, Missed, OccurrenceEnd, Outcome, Queue, Recurrence, RetryPolicy, Text,
    Worker, WorkerEvent,
};
use tenure_core::{Client, ErrorKind};
use tokio::time::{sleep, timeout};

use crate::queues::stage::{ms, staged};

const MINUTE: Duration = Duration::from_secs(60);

fn text() -> String {
    "all".to_owned()
}

fn id() -> MessageId {
    MessageId::named("report").unwrap()
}

async fn ensure(queue: &Queue<String>, interval: Duration) -> Ensured {
    queue.recurring("report").every(interval).max_attempts(2).ensure(&text()).await.unwrap()
}

/// The next occurrence, by hand.
async fn next(queue: &Queue<String>) -> Delivery<String> {
    timeout(MINUTE * 60, queue.receive()).await.expect("it comes").unwrap()
}

async fn due_in(queue: &Queue<String>) -> Duration {
    queue.get(&id()).await.unwrap().unwrap().due_in
}

/// Whether the spans are the same, but for what reading clocks takes.
fn about(one: Duration, other: Duration) -> bool {
    one.abs_diff(other) < ms(100)
}

type Times = Arc<Mutex<Vec<SystemTime>>>;

fn noting(queue: &Queue<String>, times: &Times) -> Worker {
    let times = Arc::clone(times);
    let noted = move |job: Job<String>| {
        times.lock().unwrap().push(job.occurrence.expect("it recurs"));
        async move { assert_eq!((job.attempt, job.max_attempts, job.value.as_str()), (1, 2, "all")) }
    };
    queue.worker().start(noted).unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_occurrence_is_handled_by_one_of_many_instances_and_in_step() {
    let (_, memory, _, _) = staged();
    let times = Times::default();
    let mut instances = Vec::new();
    for number in 0..3 {
        let client = Client::new(memory.clone());
        let queue = client.queue_with("jobs", Text).unwrap();
        let ensured = ensure(&queue, MINUTE).await;
        assert_eq!(ensured, if number == 0 { Ensured::Created } else { Ensured::Unchanged });
        let worker = noting(&queue, &times);
        instances.push((client, queue, worker));
    }
    sleep(MINUTE * 20 + MINUTE / 2).await;
    let (_, queue, _) = &instances[0];
    assert_eq!(ensure(queue, MINUTE).await, Ensured::Unchanged);
    let times = times.lock().unwrap().clone();
    assert_eq!(times.len(), 20);
    for pair in times.windows(2) {
        assert_eq!(pair[1].duration_since(pair[0]).unwrap(), MINUTE, "it does not drift");
    }
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.scheduled, stats.ready, stats.in_flight, stats.dead), (1, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn all_settlements_by_hand_lead_to_the_next_occurrence() {
    let (_, _, _, queue) = staged();
    ensure(&queue, MINUTE).await;
    let first = next(&queue).await;
    let time = first.occurrence().unwrap();
    sleep(MINUTE / 3).await;
    assert_eq!(first.ack().await.unwrap(), Settled::Done);
    assert!(about(due_in(&queue).await, MINUTE * 2 / 3));
    let second = next(&queue).await;
    assert_eq!(second.occurrence().unwrap(), time + MINUTE);
    queue.ack_many([second]).await.unwrap();
    let third = next(&queue).await;
    assert_eq!((third.attempt(), third.max_attempts()), (1, 2));
    third.bury(None).await.unwrap();
    let fourth = next(&queue).await;
    assert_eq!(fourth.occurrence().unwrap(), time + MINUTE * 3);
    fourth.nack(ms(10)).await.unwrap();
    let again = next(&queue).await;
    assert_eq!((again.attempt(), again.occurrence().unwrap()), (2, time + MINUTE * 3));
    drop(again); // its last attempt
    let fifth = next(&queue).await;
    assert_eq!((fifth.attempt(), fifth.occurrence().unwrap()), (1, time + MINUTE * 4));
    assert_eq!(fifth.last_failure().unwrap().as_str(), "dropped");
    fifth.give_back().await.unwrap();
    let same = next(&queue).await;
    assert_eq!((same.attempt(), same.occurrence().unwrap()), (1, time + MINUTE * 4));
    same.end_recurrence().await.unwrap();
    assert!(queue.get(&id()).await.unwrap().is_none());
    assert_eq!(queue.stats().await.unwrap().dead, 0);
    assert_eq!(ensure(&queue, MINUTE).await, Ensured::Created, "its name is free at once");
}

#[tokio::test(start_paused = true)]
async fn an_occurrence_that_failed_is_no_dead_letter_and_the_worker_says_so() {
    let (_, _, _, queue) = staged();
    ensure(&queue, MINUTE).await;
    let ends = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&ends);
    let worker = queue
        .worker()
        .retry(RetryPolicy::fixed(ms(100)))
        .on_event(move |event| {
            if let WorkerEvent::Ended { ending, occurrence, .. } = event {
                reported.lock().unwrap().push((ending.clone(), *occurrence));
            }
        })
        .start(async |_: Job<String>| Err::<(), _>("no paper"))
        .unwrap();
    sleep(MINUTE + MINUTE / 2).await;
    let stats = worker.stats();
    assert_eq!((stats.retried, stats.occurrences_failed, stats.dead, stats.handled), (1, 1, 0, 0));
    let info = queue.get(&id()).await.unwrap().unwrap();
    assert_eq!((info.state, info.attempt, info.reason.unwrap().as_str()), (MessageState::Scheduled, 0, "no paper"));
    assert!(about(info.due_in, MINUTE / 2), "{:?}", info.due_in);
    let ends = ends.lock().unwrap().clone();
    assert!(ends.iter().all(|(ending, _)| matches!(ending, Ending::Said(Outcome::Retry(_)))), "{ends:?}");
    assert_eq!(ends.iter().map(|(_, occurrence)| *occurrence).collect::<Vec<_>>(), [None, Some(OccurrenceEnd::Failed)]);
    worker.abort().await;
}

#[tokio::test(start_paused = true)]
async fn missed_occurrences_are_skipped_or_run_once() {
    for missed in [Missed::Skip, Missed::RunOnce] {
        let (_, _, _, queue) = staged();
        queue.recurring("report").every(MINUTE).missed(missed).ensure(&text()).await.unwrap();
        sleep(MINUTE * 5 + MINUTE / 2).await; // nobody is there
        let late = queue.receive_within(ms(1_000)).await.unwrap();
        assert_eq!(late.is_some(), missed == Missed::RunOnce);
        if let Some(late) = late {
            late.ack().await.unwrap();
        }
        let due = due_in(&queue).await; // of the sixth: some time of the receive has passed
        assert!(due <= MINUTE / 2 + ms(1) && due > MINUTE / 2 - ms(1_100), "{due:?}");
        let next = next(&queue).await;
        assert!(next.late() < ms(100));
        sleep(MINUTE * 3 + MINUTE / 4).await; // while it is handled
        next.extend(MINUTE).await.unwrap_err();
        next.ack().await.unwrap();
        let after = match missed {
            Missed::Skip => MINUTE * 3 / 4,
            Missed::RunOnce => Duration::ZERO,
        };
        let due = due_in(&queue).await;
        assert!(about(due, after), "{missed:?}: {due:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn crashes_use_up_the_attempts_of_an_occurrence_and_no_more() {
    let (_, _, _, queue) = staged();
    let queue = queue.lease(ms(100));
    ensure(&queue, MINUTE).await;
    for attempt in 1..=2 {
        let delivery = next(&queue).await;
        assert_eq!(delivery.attempt(), attempt);
        std::mem::forget(delivery); // as a crash does
    }
    sleep(ms(200)).await;
    assert!(queue.try_receive().await.unwrap().is_none(), "it is not handled once more");
    sleep(ms(200)).await;
    let info = queue.get(&id()).await.unwrap().unwrap();
    assert_eq!((info.state, info.attempt), (MessageState::Scheduled, 0));
    assert_eq!(info.reason.unwrap(), tenure_core::queue::Reason::lease_ended());
    assert_eq!(next(&queue).await.attempt(), 1);
}

async fn ensure_of(queue: &Queue<String>, text: &str, interval: Duration) -> Ensured {
    let recurring = queue.recurring("report").every(interval).max_attempts(2);
    timeout(ms(1_000), recurring.ensure(&text.to_owned())).await.expect("it waits for no occurrence").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_deployed_more_often_than_its_message_comes_leaves_no_occurrence_out() {
    for intervals in [[MINUTE, MINUTE], [MINUTE, MINUTE + ms(1)]] {
        let (_, _, _, queue) = staged();
        let times = Times::default();
        let noted = Arc::clone(&times);
        let worker = queue.worker().start(move |job: Job<String>| {
            noted.lock().unwrap().push(job.occurrence.unwrap());
            async {}
        });
        for version in 0..60 {
            let ensured = ensure_of(&queue, &format!("version {version}"), intervals[version % 2]).await;
            assert_eq!(ensured, if version == 0 { Ensured::Created } else { Ensured::Replaced });
            sleep(ms(19_000)).await;
        }
        worker.unwrap().abort().await;
        let times = times.lock().unwrap().clone();
        assert!((18..=19).contains(&times.len()), "{} in 19 minutes", times.len());
        assert!(times.windows(2).all(|pair| about(pair[1].duration_since(pair[0]).unwrap(), MINUTE)), "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_payload_keeps_the_time_of_what_waits_and_another_interval_counts_from_the_time_before() {
    let (_, _, _, queue) = staged();
    ensure(&queue, MINUTE).await;
    let failed = next(&queue).await;
    let time = failed.occurrence().unwrap();
    failed.nack(MINUTE / 2).await.unwrap();
    assert_eq!(ensure_of(&queue, "some", MINUTE).await, Ensured::Replaced);
    assert!(about(due_in(&queue).await, MINUTE / 2));
    let again = next(&queue).await;
    assert_eq!((again.attempt(), again.occurrence(), again.value().unwrap().as_str()), (1, Some(time), "some"));
    again.ack().await.unwrap();

    // The last one was due half a minute ago.
    for (interval, due) in [(MINUTE * 2, MINUTE * 3 / 2), (MINUTE, MINUTE / 2), (MINUTE / 4, Duration::ZERO)] {
        assert_eq!(ensure_of(&queue, "some", interval).await, Ensured::Replaced);
        assert!(about(due_in(&queue).await, due), "{interval:?}");
    }
    let caught_up = next(&queue).await;
    assert_eq!(caught_up.occurrence().unwrap(), time + MINUTE / 2);
    caught_up.ack().await.unwrap();
    assert!(about(due_in(&queue).await, MINUTE / 4));
}

#[tokio::test(start_paused = true)]
async fn a_change_waits_in_the_background_for_what_is_in_flight_and_the_last_one_wins() {
    let (_, memory, _, queue) = staged();
    ensure(&queue, MINUTE).await;
    let delivery = next(&queue).await;
    for text in ["some", "few"] {
        assert_eq!(ensure_of(&queue, text, MINUTE).await, Ensured::Pending);
    }
    memory.faults().outage();
    sleep(MINUTE / 4).await;
    memory.faults().heal();
    assert_eq!(delivery.value().unwrap(), "all");
    delivery.ack().await.unwrap();
    sleep(ms(5_000)).await;
    let info = queue.get(&id()).await.unwrap().unwrap();
    assert_eq!((info.state, info.payload.as_bytes()), (MessageState::Scheduled, &b"few"[..]));
    assert!(about(info.due_in, MINUTE * 3 / 4 - ms(5_000)), "{:?}", info.due_in);
    assert_eq!(ensure_of(&queue, "few", MINUTE).await, Ensured::Unchanged);
    let delivery = next(&queue).await;
    assert_eq!(ensure_of(&queue, "none", MINUTE).await, Ensured::Pending);
    assert_eq!(ensure_of(&queue, "few", MINUTE).await, Ensured::Unchanged, "and the change before is no longer wanted");
    delivery.ack().await.unwrap();
    sleep(ms(5_000)).await;
    assert_eq!(queue.get(&id()).await.unwrap().unwrap().payload.as_bytes(), b"few");
}

#[tokio::test(start_paused = true)]
async fn a_worker_tells_and_counts_the_occurrences_that_it_does_not_handle() {
    let (_, _, _, queue) = staged();
    let queue = queue.lease(ms(100));
    ensure(&queue, MINUTE).await;
    sleep(MINUTE * 5 + MINUTE / 2).await; // nobody is there
    let reported = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&reported);
    let hook = move |event: &WorkerEvent| {
        if let WorkerEvent::PassedOver { id, time, how } = event {
            tell.lock().unwrap().push((id.clone(), *time, *how));
        }
    };
    let worker = queue.worker().on_event(hook.clone()).start(async |_: Job<String>| ()).unwrap();
    sleep(MINUTE / 4).await;
    let stats = worker.abort().await;
    assert_eq!((stats.occurrences_missed, stats.occurrences_failed, stats.handled), (1, 0, 0));
    for _ in 0..2 {
        std::mem::forget(next(&queue).await); // as a crash does
    }
    sleep(ms(200)).await;
    let worker = queue.worker().on_event(hook).start(async |_: Job<String>| ()).unwrap();
    sleep(MINUTE / 4).await;
    let stats = worker.abort().await;
    assert_eq!((stats.occurrences_missed, stats.occurrences_failed, stats.handled), (0, 1, 0));
    let reported = reported.lock().unwrap().clone();
    let [(missed, first, OccurrenceEnd::Missed), (_, second, OccurrenceEnd::Failed)] = &reported[..] else {
        panic!("{reported:?}");
    };
    assert_eq!((missed, second.duration_since(*first).unwrap()), (&id(), MINUTE * 5));
}

#[tokio::test(start_paused = true)]
async fn a_schedule_ends_by_its_handler_or_by_cancelling_it() {
    let (_, _, _, queue) = staged();
    ensure(&queue, MINUTE).await;
    assert_eq!(queue.cancel(&id()).await.unwrap(), Cancelled::Removed);
    ensure(&queue, MINUTE).await;
    let worker = queue.worker().start(async |_: Job<String>| Outcome::End).unwrap();
    sleep(MINUTE * 5).await;
    assert_eq!(worker.stats().handled, 1);
    assert!(queue.get(&id()).await.unwrap().is_none());
    queue.push(&text()).await.unwrap();
    sleep(ms(100)).await;
    assert_eq!(worker.abort().await.handled, 2, "one that does not recur is done");
}

#[tokio::test(start_paused = true)]
async fn a_recurrence_of_another_version_is_left_to_others() {
    let (stage, _, _, queue) = staged();
    let recurrence = Some(Recurrence::new("2 when the cock crows").unwrap());
    let message = NewMessage::new(Payload::new(*b"x").unwrap()).with_recurrence(recurrence);
    stage.push(queue.name(), &[message]).await.unwrap();
    assert!(queue.try_receive().await.unwrap().is_none());
    sleep(ms(100)).await;
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.scheduled, stats.in_flight), (1, 0));
    assert_eq!(stage.dead_list(queue.name(), None, 1).await.unwrap().rest, Rest::None);
}

#[tokio::test(start_paused = true)]
async fn a_recurrence_of_another_version_is_replaced_by_who_ensures_its_own() {
    let (stage, _, _, queue) = staged();
    let recurrence = Some(Recurrence::new("2 when the cock crows").unwrap());
    let message = NewMessage::new(Payload::new(text().into_bytes()).unwrap()).with_recurrence(recurrence);
    let name = NamedId::new(id(), Delay::ZERO);
    stage.push(queue.name(), &[message.with_id(Some(name))]).await.unwrap();
    assert_eq!(ensure(&queue, MINUTE).await, Ensured::Replaced);
    assert_eq!(ensure(&queue, MINUTE).await, Ensured::Unchanged);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_schedule_is_refused() {
    let (_, _, _, queue) = staged();
    let refused = [
        queue.recurring("report"),
        queue.recurring("").every(MINUTE),
        queue.recurring("report").every(ms(999)),
        queue.recurring("report").every(Duration::MAX),
        queue.recurring("report").every(MINUTE).max_attempts(0),
        queue.recurring("report").every(MINUTE).max_attempts(queue.capabilities().attempts),
    ];
    for recurring in refused {
        assert_eq!(recurring.ensure(&text()).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    queue.push(&text()).id("report").await.unwrap();
    let error = queue.recurring("report").every(MINUTE).ensure(&text()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "it is somebody else's: {error}");
    next(&queue).await.ack().await.unwrap();
    let error = queue.recurring("report").every(MINUTE).ensure(&text()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "and known for a while: {error}");
    queue.push(&text()).id("dead").await.unwrap();
    next(&queue).await.bury(None).await.unwrap();
    let error = queue.recurring("dead").every(MINUTE).ensure(&text()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "somebody's dead letter: {error}");
    assert_eq!(queue.stats().await.unwrap().dead, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_put_off_or_parked_beyond_the_next_time_is_not_missed() {
    let (_, _, _, queue) = staged();
    ensure(&queue, MINUTE).await;
    let first = next(&queue).await;
    let time = first.occurrence().unwrap();
    first.put_off(MINUTE * 3).await.unwrap();
    let same = next(&queue).await;
    assert_eq!((same.attempt(), same.occurrence().unwrap()), (1, time));
    same.ack().await.unwrap();
    assert_eq!(next(&queue).await.occurrence().unwrap(), time + MINUTE * 4, "those of that time are left out");
}

#[tokio::test(start_paused = true)]
async fn what_is_passed_over_hides_nothing_behind_it() {
    let (_, _, _, queue) = staged();
    ensure(&queue, MINUTE).await;
    sleep(MINUTE * 5 + MINUTE / 2).await; // nobody is there
    queue.push(&"behind".to_owned()).await.unwrap();
    let got = queue.try_receive().await.unwrap().expect("it is due");
    assert_eq!((got.value().unwrap().as_str(), got.occurrence()), ("behind", None));
}

#[cfg(feature = "cron")]
#[tokio::test(start_paused = true)]
async fn cron_expressions_come_at_their_times() {
    let (_, _, _, queue) = staged();
    let hourly = || queue.recurring("report").cron("0 * * * *", "Europe/Berlin").max_attempts(2);
    assert_eq!(hourly().ensure(&text()).await.unwrap(), Ensured::Created);
    assert_eq!(hourly().ensure(&text()).await.unwrap(), Ensured::Unchanged);
    let mut last = None;
    for _ in 0..3 {
        let delivery = timeout(MINUTE * 61, queue.receive()).await.expect("within the hour").unwrap();
        let time = delivery.occurrence().unwrap();
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_millis() % 3_600_000, 0);
        assert!(last.is_none_or(|last| time == last + MINUTE * 60));
        last = Some(time);
        delivery.ack().await.unwrap();
    }
    for (pattern, zone) in [("0 0 30 2 *", "UTC"), ("x", "UTC"), ("0 3 * * *", "Europe/Atlantis")] {
        let error = queue.recurring("other").cron(pattern, zone).ensure(&text()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{pattern} {zone}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_died_in_spite_of_its_attempts_begins_anew() {
    let (_, memory, _, queue) = staged();
    assert_eq!(ensure(&queue, MINUTE).await, Ensured::Created);
    sleep(MINUTE * 3 / 2).await;
    let request = ReceiveRequest::new(queue.name().clone(), 1, Lease::DEFAULT);
    let delivery = memory.receive(&request).await.unwrap().deliveries.remove(0);
    let dies = Settle::new(delivery.receipt, Settlement::Dead { reason: None });
    memory.settle(queue.name(), &[dies]).await.unwrap();
    assert_eq!(queue.stats().await.unwrap().dead, 1);
    assert_eq!(ensure(&queue, MINUTE).await, Ensured::Created);
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.dead, stats.scheduled), (0, 1));
}
