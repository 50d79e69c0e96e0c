//! Elections on the memory driver under virtual time: what broke others, a test each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use tenure_core::election::{Candidate, Election, Leadership, Observer, View};
use tenure_core::{Client, ErrorKind, Inspection, LostReason};
use tenure_memory::{MemoryDriver, Operation};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const TTL: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
const SEAT: &str = "scheduler";

fn election(driver: &MemoryDriver) -> (Client, Election) {
    let client = Client::new(driver.clone());
    let election = client.election(SEAT);
    (client, election)
}

fn campaign(candidate: &Candidate) -> JoinHandle<tenure_core::Result<Leadership>> {
    let candidate = candidate.clone();
    tokio::spawn(async move { candidate.campaign().await })
}

/// The next view within two ttls, as label and term; `None` for nobody.
async fn next(observer: &mut Observer) -> Option<(String, u64)> {
    match timeout(2 * TTL, observer.next()).await.expect("there is news").expect("the client is open") {
        View::Leader(leader) => {
            Some((leader.label.map_or_else(String::new, |l| l.as_str().to_owned()), leader.term.get()))
        }
        View::Nobody => None,
        View::Unknown(error) => panic!("{error}"),
    }
}

async fn unknown(observer: &mut Observer) -> ErrorKind {
    match timeout(2 * TTL, observer.next()).await.expect("there is news") {
        Some(View::Unknown(error)) => error.kind(),
        other => panic!("{other:?}"),
    }
}

/// Whatever the election left in the store.
async fn left_in(driver: &MemoryDriver) -> Inspection {
    Client::new(driver.another_client()).lock(SEAT).inspect().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn terms_follow_each_other_and_all_are_reported() {
    let driver = MemoryDriver::new();
    let ((_a, first), (_b, second)) = (election(&driver), election(&driver.another_client()));
    let mut observer = election(&driver.another_client()).1.observe().unwrap();
    assert_eq!(next(&mut observer).await, None);
    let leads = first.candidate("a:1").campaign().await.unwrap();
    let term = leads.term();
    assert!(leads.remaining() > TTL / 2 && leads.remaining() <= TTL, "{:?}", leads.remaining());
    assert_eq!(next(&mut observer).await, Some(("a:1".into(), term.get())));
    let follower = campaign(&second.candidate("b:2"));
    sleep(5 * TTL).await;
    assert!(leads.is_leader() && !follower.is_finished());
    leads.resign().await.unwrap();
    let follows = follower.await.unwrap().unwrap();
    assert!(follows.term() > term);
    assert_eq!(next(&mut observer).await, Some(("b:2".into(), follows.term().get())));
    let seen = first.leader().await.unwrap().unwrap();
    assert_eq!((seen.term, seen.label.unwrap().as_str()), (follows.term(), "b:2"));
    assert!(seen.rest.is_some_and(|rest| rest > TTL / 2 && rest <= TTL));
    follows.resign().await.unwrap();
    assert_eq!(next(&mut observer).await, None);
    assert_eq!(first.leader().await.unwrap(), None);
}

/// Curator took the node of an earlier session at the same path for its own. Here identity is the token of the campaign.
#[tokio::test(start_paused = true)]
async fn candidates_of_one_client_with_one_label_are_two_and_each_has_the_term_that_is_observed() {
    let driver = MemoryDriver::new();
    let (client, seat) = election(&driver);
    let candidate = seat.candidate("same");
    let mut observer = seat.observe().unwrap().every(SECOND / 10);
    let leads = candidate.campaign().await.unwrap();
    let others: Vec<_> = (0..3).map(|_| campaign(&candidate)).collect();
    sleep(SECOND).await;
    assert!(candidate.try_campaign().await.unwrap().is_none(), "it leads, and yet it is not let in twice");
    assert_eq!(left_in(&driver).await.waiters, 3, "each has a place of its own");
    let mut last = leads.term();
    assert_eq!(next(&mut observer).await, Some(("same".into(), last.get())));
    leads.resign().await.unwrap();
    for other in others {
        let leads = other.await.unwrap().unwrap();
        assert!(leads.term() > last);
        last = leads.term();
        let reported = loop {
            // A moment after the change an observer may still be told of nobody.
            if let Some(reported) = next(&mut observer).await {
                break reported;
            }
        };
        assert_eq!(reported, ("same".into(), last.get()), "the leader and the observer speak of one term");
        leads.resign().await.unwrap();
    }
    client.close(SECOND).await.unwrap();
    assert_eq!(left_in(&driver).await, Inspection::default());
}

/// etcd's campaign went on when its session had ended, and then reported a leadership that was nobody's.
#[tokio::test(start_paused = true)]
async fn a_campaign_whose_place_lapsed_takes_another_and_reports_no_leadership_that_it_has_not() {
    let driver = MemoryDriver::new();
    let (cut, stays) = (driver.another_client(), driver.another_client());
    let ((_a, lonely), (_b, second), (_c, third)) = (election(&cut), election(&stays), election(&driver));
    let leads = third.candidate("leader").campaign().await.unwrap();
    let lost = campaign(&lonely.candidate("cut off"));
    sleep(SECOND).await;
    cut.faults().outage();
    sleep(20 * SECOND).await; // its presence lapses
    let behind = campaign(&second.candidate("behind"));
    sleep(SECOND).await;
    leads.resign().await.unwrap();
    let follows = behind.await.unwrap().unwrap();
    cut.faults().heal();
    sleep(2 * TTL).await;
    assert!(!lost.is_finished(), "somebody else leads");
    assert_eq!(second.leader().await.unwrap().unwrap().term, follows.term());
    let term = follows.term();
    follows.resign().await.unwrap();
    let leads = lost.await.unwrap().unwrap();
    assert!(leads.is_leader() && leads.term() > term);
    assert_eq!(second.leader().await.unwrap().unwrap().term, leads.term());
}

#[tokio::test(start_paused = true)]
async fn a_term_that_was_over_before_its_news_came_is_not_reported() {
    let driver = MemoryDriver::new();
    let link = driver.another_client();
    let (_client, seat) = election(&link);
    link.faults().delay_reply(Operation::Acquire, SECOND);
    let short = seat.clone().ttl(SECOND / 2);
    let refused = short.candidate("late").campaign_within(5 * SECOND).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Indeterminate);
    link.faults().heal();
    sleep(2 * SECOND).await;
    assert_eq!(left_in(&driver).await, Inspection::default());
    assert!(short.candidate("late").try_campaign().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_campaign_ends_with_its_client_and_leaves_nothing() {
    let driver = MemoryDriver::new();
    let ((client, seat), (_other, second)) = (election(&driver.another_client()), election(&driver.another_client()));
    let leads = second.candidate("leader").campaign().await.unwrap();
    let waiting = campaign(&seat.candidate("closed"));
    sleep(SECOND).await;
    client.close(SECOND).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(left_in(&driver).await.waiters, 0);
    assert!(leads.is_leader());
    leads.resign().await.unwrap();
    sleep(TTL).await;
    assert_eq!(left_in(&driver).await, Inspection::default());
}

/// etcd's failed campaign left its key, which led in the end.
#[tokio::test(start_paused = true)]
async fn a_failed_campaign_leaves_nothing() {
    let driver = MemoryDriver::new();
    let link = driver.another_client();
    let ((client, seat), (_other, second)) = (election(&link), election(&driver.another_client()));
    let leads = second.candidate("leader").campaign().await.unwrap();
    let refused = seat.candidate("patient").campaign_within(SECOND).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    assert_eq!(left_in(&driver).await.waiters, 0, "out of the queue");
    assert_eq!(seat.candidate("x".repeat(10_000)).campaign().await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    leads.resign().await.unwrap();
    link.faults().lose_reply_next(Operation::Acquire); // taken, and nobody knows
    assert_eq!(seat.candidate("unheard").try_campaign().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    sleep(SECOND).await;
    assert_eq!((left_in(&driver).await, client.stats().cleanups), (Inspection::default(), 0));
}

/// etcd's resign forgot its key after a failed request, which led until its session ended.
#[tokio::test(start_paused = true)]
async fn a_failed_resignation_is_carried_on_until_it_is_acknowledged() {
    let driver = MemoryDriver::new();
    let link = driver.another_client();
    let ((_client, seat), (_other, second)) = (election(&link), election(&driver.another_client()));
    let leads = seat.candidate("a").campaign().await.unwrap();
    let follower = campaign(&second.candidate("b"));
    sleep(SECOND).await;
    link.faults().outage();
    assert!(leads.resign().await.unwrap_err().is_transient());
    sleep(5 * SECOND).await;
    assert!(!follower.is_finished(), "the backend knows nothing of it yet");
    link.faults().heal();
    let began = Instant::now();
    let follows = follower.await.unwrap().unwrap();
    assert!(began.elapsed() < 3 * SECOND, "at once, not when the lease ends: {:?}", began.elapsed());
    sleep(TTL).await;
    assert!(follows.is_leader(), "and nobody resigns for the next leader");
}

#[tokio::test(start_paused = true)]
async fn who_resigns_a_term_that_is_over_learns_it_and_ends_no_other() {
    let driver = MemoryDriver::new();
    let ((_a, seat), (_b, second)) = (election(&driver.another_client()), election(&driver.another_client()));
    let leads = seat.candidate("a").campaign().await.unwrap();
    driver.faults().expire(SEAT).unwrap();
    let follows = second.candidate("b").campaign().await.unwrap();
    assert!(follows.check().is_ok());
    sleep(TTL).await;
    assert_eq!((leads.is_leader(), leads.check().unwrap_err().kind()), (false, ErrorKind::Lost));
    assert_eq!(leads.resign().await.unwrap_err().kind(), ErrorKind::Lost);
    sleep(TTL).await;
    assert!(follows.is_leader());
    assert_eq!(seat.leader().await.unwrap().unwrap().term, follows.term());
}

#[tokio::test(start_paused = true)]
async fn campaigns_and_resignations_that_are_dropped_anywhere_leave_nothing() {
    let driver = MemoryDriver::new();
    let link = driver.another_client();
    let ((client, seat), (_other, second)) = (election(&link), election(&driver.another_client()));
    for operation in [Operation::Watch, Operation::Acquire, Operation::Release] {
        link.faults().delay(operation, Duration::from_millis(5));
        link.faults().delay_reply(operation, Duration::from_millis(5));
    }
    let mut ends = [0, 0];
    for busy in [false, true] {
        for millis in 0..30 {
            let leads = if busy { Some(second.candidate("leader").campaign().await.unwrap()) } else { None };
            let candidate = seat.candidate("dropped");
            let ended = timeout(Duration::from_millis(millis), candidate.campaign()).await.is_ok();
            ends[usize::from(ended)] += 1;
            drop(leads);
            sleep(SECOND).await;
            assert_eq!(left_in(&driver).await, Inspection::default(), "busy: {busy}, after {millis} ms");
        }
    }
    assert!(ends[0] > 40 && ends[1] > 5, "most were dropped half-way, and the last ones were not: {ends:?}");
    for millis in 0..15 {
        let leads = seat.candidate("dropped").campaign().await.unwrap();
        let _dropped = timeout(Duration::from_millis(millis), leads.resign()).await;
        sleep(SECOND).await;
        assert_eq!(left_in(&driver).await, Inspection::default(), "after {millis} ms of a resignation");
    }
    assert_eq!((client.stats().holds, client.stats().waiters, client.stats().cleanups), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_term_is_dropped_before_the_next_one_begins() {
    let driver = MemoryDriver::new();
    let link = driver.another_client();
    let ((_a, seat), (_b, second)) = (election(&link), election(&driver.another_client()));
    let (worked, counter) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = Arc::clone(&worked);
    let work = tokio::spawn(async move {
        let candidate = seat.candidate("a");
        let term = candidate.lead(async |leadership| {
            counter.store(leadership.term().get(), Ordering::SeqCst);
            loop {
                sleep(SECOND / 10).await;
                counts.fetch_add(1, Ordering::SeqCst);
            }
        });
        let ended: tenure_core::Result<()> = term.await;
        ended
    });
    sleep(SECOND).await;
    let follower = campaign(&second.candidate("b"));
    link.faults().outage();
    let follows = follower.await.unwrap().unwrap();
    let done = worked.load(Ordering::SeqCst);
    assert_eq!(work.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
    sleep(TTL).await;
    assert_eq!(worked.load(Ordering::SeqCst), done, "no work after the next term began");
    let begun = async |leadership: &Leadership| leadership.loss();
    follows.resign().await.unwrap();
    let loss = second.candidate("c").lead(begun).await.unwrap();
    assert_eq!(loss.ended().await, None, "a resignation is no loss");
}

#[tokio::test(start_paused = true)]
async fn a_term_has_a_longest() {
    let driver = MemoryDriver::new();
    let (_client, seat) = election(&driver);
    let leads = seat.max_term(5 * SECOND).candidate("a").campaign().await.unwrap();
    assert_eq!(leads.lost().await, LostReason::MaxHold);
}

/// etcd's observers are not told that a leader is gone.
#[tokio::test(start_paused = true)]
async fn observers_hear_of_nobody_soon_whatever_ended_the_term() {
    let driver = MemoryDriver::new();
    let link = driver.another_client();
    let ((_a, seat), (_b, watching)) = (election(&link), election(&driver.another_client()));
    let mut observer = watching.observe().unwrap();
    assert_eq!(next(&mut observer).await, None);
    for end in ["resigned", "forced", "died"] {
        let leads = seat.candidate(end).campaign().await.unwrap();
        assert_eq!(next(&mut observer).await, Some((end.into(), leads.term().get())));
        let began = Instant::now();
        let within = match end {
            "resigned" => leads.resign().await.map(|()| TTL / 3).unwrap(),
            "forced" => forced(&driver).await,
            _ => {
                link.faults().outage();
                std::mem::forget(leads);
                TTL
            }
        };
        assert_eq!(next(&mut observer).await, None, "{end}");
        assert!(began.elapsed() <= within + SECOND / 10, "{end}: after {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_looks_seldom_looks_right_when_the_lease_ends() {
    let driver = MemoryDriver::new();
    let link = driver.another_client();
    let ((_a, seat), (_b, watching)) = (election(&link), election(&driver.another_client()));
    let leads = seat.candidate("a").campaign().await.unwrap();
    let (term, began) = (leads.term().get(), Instant::now());
    link.faults().outage();
    std::mem::forget(leads);
    let mut observer = watching.observe().unwrap().every(10 * TTL);
    assert_eq!(next(&mut observer).await, Some(("a".into(), term)));
    assert_eq!(next(&mut observer).await, None);
    assert!(began.elapsed() <= TTL + SECOND / 200, "{:?}", began.elapsed());
}

async fn forced(driver: &MemoryDriver) -> Duration {
    Client::new(driver.another_client()).lock(SEAT).force_release().await.unwrap();
    TTL / 3
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_unknown_and_not_nobody_and_is_reported_once() {
    let driver = MemoryDriver::new();
    let link = driver.another_client();
    let ((_a, seat), (_b, watching)) = (election(&driver.another_client()), election(&link));
    let leads = seat.candidate("a").campaign().await.unwrap();
    let reported = Some(("a".into(), leads.term().get()));
    let mut observer = watching.observe().unwrap();
    assert_eq!(next(&mut observer).await, reported);
    for outage in [true, false] {
        if outage {
            link.faults().outage()
        } else {
            link.faults().silence()
        }
        assert!(matches!(unknown(&mut observer).await, ErrorKind::Unavailable | ErrorKind::Indeterminate));
        assert!(timeout(5 * TTL, observer.next()).await.is_err(), "reported again");
        link.faults().heal();
        let back = Instant::now();
        assert_eq!(next(&mut observer).await, reported);
        assert!(back.elapsed() <= 2 * SECOND, "after {:?}", back.elapsed());
    }
}

/// etcd's observers may be told of a wrong leader: here of one whose term was over.
#[tokio::test(start_paused = true)]
async fn no_observer_receives_an_older_term() {
    let stale = stale::Stale::over(MemoryDriver::new());
    let client = Client::new(tenure_core::driver::Backend::new(Arc::clone(&stale) as _));
    let seat = client.election(SEAT);
    let mut observer = seat.observe().unwrap().every(SECOND);
    let first = seat.candidate("first").campaign().await.unwrap();
    assert_eq!(next(&mut observer).await, Some(("first".into(), first.term().get())));
    stale.keep();
    first.resign().await.unwrap();
    let second = seat.candidate("second").campaign().await.unwrap();
    stale.show(false);
    assert_eq!(next(&mut observer).await, Some(("second".into(), second.term().get())));
    stale.show(true);
    assert_eq!(unknown(&mut observer).await, ErrorKind::Protocol);
    stale.show(false);
    assert_eq!(next(&mut observer).await, Some(("second".into(), second.term().get())));
}

#[tokio::test(start_paused = true)]
async fn an_observer_ends_with_the_client_and_as_a_stream_too() {
    let driver = MemoryDriver::new();
    let (client, seat) = election(&driver);
    let (observer, mut idle) = (seat.observe().unwrap(), seat.observe().unwrap());
    let views = tokio::spawn(observer.stream().map(|view| matches!(view, View::Nobody)).collect::<Vec<_>>());
    sleep(TTL).await;
    assert!(!views.is_finished());
    client.close(SECOND).await.unwrap();
    assert_eq!(views.await.unwrap(), [true]);
    assert!(idle.next().await.is_none(), "also one that has not looked yet");
}

#[tokio::test(start_paused = true)]
async fn observing_costs_looks_at_a_third_of_the_ttl_and_nothing_when_nobody_asks() {
    let driver = MemoryDriver::new();
    let link = driver.another_client();
    let ((_a, seat), (_b, watching)) = (election(&driver), election(&link));
    let leads = seat.candidate("a").campaign().await.unwrap();
    let looks = || link.faults().calls(Operation::Inspect);
    let mut observer = watching.observe().unwrap();
    sleep(10 * TTL).await;
    assert_eq!(looks(), 0, "nobody asked");
    next(&mut observer).await;
    let before = looks();
    assert!(timeout(100 * TTL, observer.next()).await.is_err(), "renewals are no news");
    let asked = looks() - before;
    assert!((295..=305).contains(&asked), "{asked} looks");
    // Dropped again and again, it goes on where it was.
    let before = looks();
    for _ in 0..1_000 {
        assert!(timeout(TTL / 1_000, observer.next()).await.is_err());
    }
    assert!(looks() - before <= 4, "{} looks within one ttl", looks() - before);
    assert_eq!(link.faults().calls(Operation::Acquire) + link.faults().calls(Operation::Watch), 0);
    drop(leads);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_unsent() {
    let driver = MemoryDriver::new();
    let (client, seat) = election(&driver);
    let refused = |result: tenure_core::Result<Observer>| result.unwrap_err().kind();
    assert_eq!(refused(client.election("").observe()), ErrorKind::InvalidArgument);
    assert_eq!(refused(seat.ttl(Duration::from_micros(1)).observe()), ErrorKind::InvalidArgument);
    let blind = stale::Stale::blind(MemoryDriver::new());
    let client = Client::new(tenure_core::driver::Backend::new(blind as _));
    assert_eq!(refused(client.election(SEAT).observe()), ErrorKind::Unsupported);
    assert_eq!(client.election(SEAT).leader().await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(driver.faults().calls(Operation::Inspect), 0);
}

mod stale {
    //! A driver whose looks can be stale, or are not to be had.

    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use tenure_core::driver::{
        AcquireRequest, Acquisition, DistributedLock, Hold, Inspection, Introspection, LockCapabilities, Released,
        Renewed, Ttl, Watch,
    };
    use tenure_core::{FencingToken, ForceReleased, LockName, OwnerToken, Result};
    use tenure_memory::MemoryDriver;

    #[derive(Debug)]
    pub(super) struct Stale {
        inner: MemoryDriver,
        blind: bool,
        state: Mutex<State>,
    }

    #[derive(Debug, Default)]
    struct State {
        last: Inspection,
        kept: Inspection,
        shows: bool,
    }

    impl Stale {
        pub(super) fn over(inner: MemoryDriver) -> Arc<Self> {
            Arc::new(Self { inner, blind: false, state: Mutex::default() })
        }

        pub(super) fn blind(inner: MemoryDriver) -> Arc<Self> {
            Arc::new(Self { inner, blind: true, state: Mutex::default() })
        }

        /// Keeps the last look, to be shown later.
        pub(super) fn keep(&self) {
            let mut state = self.state.lock().unwrap();
            state.kept = state.last.clone();
        }

        pub(super) fn show(&self, shows: bool) {
            self.state.lock().unwrap().shows = shows;
        }
    }

    #[async_trait]
    impl DistributedLock for Stale {
        fn driver(&self) -> &'static str {
            "stale"
        }

        fn capabilities(&self) -> LockCapabilities {
            let inner = self.inner.capabilities();
            if self.blind { inner.with_introspection(Introspection::None) } else { inner }
        }

        async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
            self.inner.acquire(request).await
        }

        async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
            DistributedLock::renew(&self.inner, ttl, holds).await
        }

        async fn release(&self, hold: &Hold) -> Result<Released> {
            self.inner.release(hold).await
        }

        async fn abandon(&self, hold: &Hold) -> Result<()> {
            DistributedLock::abandon(&self.inner, hold).await
        }

        async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
            DistributedLock::watch(&self.inner, name, token).await
        }

        async fn inspect(&self, name: &LockName) -> Result<Inspection> {
            let seen = self.inner.inspect(name).await?;
            let mut state = self.state.lock().unwrap();
            state.last = seen.clone();
            Ok(if state.shows { state.kept.clone() } else { seen })
        }

        async fn force_release(&self, name: &LockName, fence: Option<FencingToken>) -> Result<ForceReleased> {
            self.inner.force_release(name, fence).await
        }

        async fn close(&self) {
            DistributedLock::close(&self.inner).await;
        }
    }
}
