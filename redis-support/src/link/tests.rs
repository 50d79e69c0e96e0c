//! A link over a server in memory: when it is replaced and tried, how long a request waits for it, and whom it wakes.

use tenure_core::driver::Signal;
use tokio::time::sleep;

use super::*;
use crate::config::Protocol;
use crate::link::fake_server::{Connection, Mood, Scene, listener, server};

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

type Heards = Arc<Mutex<Vec<&'static str>>>;

fn link(fake_server: &Scene, config: &RedisConfig) -> (Link<Scene>, Heards) {
    let (listen, heard) = listener();
    let route = Route::Fixed(config.endpoint(server("a")));
    (Link::new(Arc::new(fake_server.clone()), route, listen, config, None), heard)
}

async fn connected(fake_server: &Scene, config: &RedisConfig) -> (Link<Scene>, Heards) {
    let (link, heard) = link(fake_server, config);
    (link.connect().await.unwrap(), heard)
}

const GET: Request<'_> = Request::words(&["GET", "a"]);

/// How a request ended, and how long it took.
async fn get(link: &Link<Scene>) -> (Result<Reply, ExecError>, Duration) {
    let start = Instant::now();
    let answer = link.request(&GET).await;
    (answer, start.elapsed())
}

/// How long a request took that failed and was not sent, since the link was down.
async fn refused(link: &Link<Scene>) -> Duration {
    let (answer, took) = get(link).await;
    match answer {
        Err(ExecError::NotSent { message, .. }) if message.starts_with("the link to a:1 is down: ") => took,
        other => panic!("{other:?}"),
    }
}

/// Lets all tasks run as far as they can, without letting time pass.
async fn settled() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_comes_back_after_pauses_that_grow_and_says_so() {
    let (fake_server, a) = (Scene::new(), server("a"));
    let (link, heard) = connected(&fake_server, &RedisConfig::default()).await;
    assert!(link.is_up() && get(&link).await.0.is_ok() && heard.lock().unwrap().is_empty());
    fake_server.is(&a, Mood::Refusing);
    fake_server.cut(&a, false);
    settled().await;
    assert!(!link.is_up());
    assert_eq!(*heard.lock().unwrap(), ["cut"]);
    assert_eq!(refused(&link).await, ms(500), "so long it waits for the link");
    sleep(ms(5_000)).await;
    let dialled = fake_server.dialled(&a);
    let pauses: Vec<Duration> = dialled.windows(2).map(|two| two[1] - two[0]).collect();
    for (pause, longest) in pauses.iter().zip([50, 100, 200, 400, 800, 1_000, 1_000]) {
        let [least, most] = [ms(longest / 2), ms(longest + 2)]; // timers are good for a millisecond
        assert!(*pause >= least && *pause <= most, "{pauses:?}");
    }
    assert!(pauses.len() > 6 && *heard.lock().unwrap() == ["cut"], "{pauses:?}");
    fake_server.is(&a, Mood::Well);
    sleep(ms(1_010)).await;
    assert!(link.is_up() && get(&link).await.1.is_zero());
    assert_eq!(*heard.lock().unwrap(), ["cut", "gap"]);

    // One that has lasted is replaced at once; one that is cut as soon as it is open is not.
    sleep(ms(1_000)).await;
    for (turn, at_once) in [(0, true), (1, false)] {
        let before = fake_server.dialled(&a).len();
        fake_server.cut(&a, false);
        settled().await;
        assert_eq!(fake_server.dialled(&a).len() > before, at_once, "turn {turn}");
        assert_eq!(link.is_up(), at_once, "turn {turn}");
    }
    assert!(get(&link).await.0.is_ok());
    assert_eq!(*heard.lock().unwrap(), ["cut", "gap", "cut", "gap", "cut", "gap"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_it_is_up_or_has_been_broken_for_too_long() {
    let (fake_server, a) = (Scene::new(), server("a"));
    let config = RedisConfig { link_patience: Patience::SinceBroken(ms(1_000)), ..RedisConfig::default() };
    let (link, _) = connected(&fake_server, &config).await;
    for turn in 0..2 {
        fake_server.is(&a, Mood::Refusing);
        fake_server.cut(&a, false);
        sleep(ms(600)).await;
        let took = refused(&link).await;
        assert!(took >= ms(399) && took <= ms(401), "turn {turn}: {took:?}");
        assert!(refused(&link).await.is_zero(), "it has been broken for long");
        fake_server.is(&a, Mood::Well);
        link.up(ms(1_500)).await.unwrap();
        assert!(link.is_up());
    }
    sleep(ms(1_100)).await; // long enough for a first attempt at once
    fake_server.is(&a, Mood::Refusing);
    fake_server.cut(&a, false);
    settled().await;
    assert!(matches!(link.up(ms(10)).await, Err(ExecError::NotSent { .. })));
    fake_server.is(&a, Mood::Well);
    let (answer, took) = get(&link).await;
    assert!(answer.is_ok() && took < ms(500), "{answer:?} after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn one_without_answers_is_tried_and_replaced() {
    let (fake_server, a) = (Scene::new(), server("a"));
    let (link, heard) = connected(&fake_server, &RedisConfig::default()).await;
    let pings = || fake_server.sent("PING").into_iter().map(|(when, _)| when.as_millis()).collect::<Vec<_>>();
    sleep(ms(11_000)).await;
    assert_eq!(pings(), [5_000, 10_000], "nothing is asked");
    for _ in 0..20 {
        sleep(ms(1_000)).await;
        get(&link).await.0.unwrap();
    }
    assert_eq!(pings().len(), 2, "answers come all the time, the last at 31 s");
    fake_server.answers(|_, _| Err(ExecError::refused("ERR no")));
    sleep(ms(4_000)).await;
    assert!(matches!(get(&link).await.0, Err(ExecError::Server { .. })));
    assert_eq!((fake_server.time(), pings().len()), (ms(35_000), 2));
    sleep(ms(6_000)).await;
    assert_eq!(pings()[2..], [40_000], "a refusal is an answer, also to a ping");
    fake_server.is(&a, Mood::Silent);
    sleep(ms(4_400)).await;
    assert_eq!((pings()[3..].to_vec(), fake_server.dialled(&a).len()), (vec![45_000], 1));
    sleep(ms(200)).await;
    assert_eq!(fake_server.dialled(&a)[1..], [ms(45_500)], "half of the response timeout later");
    assert_eq!((*heard.lock().unwrap()).clone(), ["cut", "gap"]);
    assert_eq!(fake_server.connections(&a), 1, "the old one is closed");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_given_up_is_a_reason_to_try_it() {
    let (fake_server, a) = (Scene::new(), server("a"));
    let (link, _) = connected(&fake_server, &RedisConfig::default()).await;
    let pings = || fake_server.sent("PING").len();
    let give_up_after = async |span| {
        let _ = timeout(ms(span), link.request(&GET)).await;
        settled().await;
    };
    sleep(ms(100)).await;
    give_up_after(100).await;
    assert_eq!(pings(), 0);
    fake_server.is(&a, Mood::Silent);
    give_up_after(190).await;
    assert_eq!(pings(), 0, "it has not waited for long");
    give_up_after(210).await;
    assert_eq!(pings(), 1);
    sleep(ms(510)).await;
    assert_eq!(fake_server.dialled(&a).len(), 2);
    let (answer, took) = get(&link).await;
    assert!(matches!(answer, Err(ExecError::SentUnknown { .. })) && took == ms(1_000), "{answer:?} {took:?}");
    settled().await;
    assert_eq!((pings(), fake_server.dialled(&a).len()), (2, 2));
    fake_server.is(&a, Mood::Well);
    sleep(ms(510)).await;
    assert_eq!(fake_server.dialled(&a).len(), 3, "its ping was not answered");
    assert!(get(&link).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_to_a_server_that_takes_no_writes_is_replaced_once_a_second() {
    let (fake_server, a) = (Scene::new(), server("a"));
    let (link, _) = connected(&fake_server, &RedisConfig::default()).await;
    fake_server.answers(|_, command| match command {
        "GET a" => Err(ExecError::refused("READONLY a replica")),
        _ => Ok(Reply::Nil),
    });
    let replaced = async || {
        let before = fake_server.dialled(&a).len();
        assert!(get(&link).await.0.unwrap_err().is_read_only());
        settled().await;
        fake_server.dialled(&a).len() - before
    };
    sleep(ms(500)).await;
    assert_eq!(replaced().await, 0);
    sleep(ms(600)).await;
    assert_eq!(replaced().await, 1);
    sleep(ms(900)).await;
    assert_eq!(replaced().await, 0);
    sleep(ms(200)).await;
    assert_eq!(replaced().await, 1);
    assert!(link.is_up() && fake_server.sent("PING").is_empty());
}

#[tokio::test(start_paused = true)]
async fn closed_or_dropped_it_ends_what_it_has_and_begins_nothing() {
    let (fake_server, a) = (Scene::new(), server("a"));
    let (link, heard) = connected(&fake_server, &RedisConfig::default()).await;
    link.close().await;
    assert_eq!((link.is_up(), fake_server.connections(&a)), (false, 0));
    assert!(matches!(get(&link).await, (Err(ExecError::Closed), Duration::ZERO)));
    assert!(matches!(link.up(ms(100)).await, Err(ExecError::Closed)));
    link.close().await;

    // While it tries to connect, and a request waits for that.
    let (link, _) = connected(&fake_server, &RedisConfig::default()).await;
    fake_server.is(&a, Mood::Refusing);
    fake_server.cut(&a, false);
    sleep(ms(100)).await;
    let (answer, ()) = tokio::join!(get(&link), async {
        sleep(ms(50)).await;
        link.close().await;
    });
    assert!(matches!(answer, (Err(ExecError::Closed), took) if took == ms(50)), "{answer:?}");
    let dialled = fake_server.dialled(&a).len();
    sleep(ms(10_000)).await;
    assert_eq!(fake_server.dialled(&a).len(), dialled);

    fake_server.is(&a, Mood::Well);
    let (link, _) = connected(&fake_server, &RedisConfig::default()).await;
    drop(link);
    settled().await;
    assert_eq!(fake_server.connections(&a), 0);
    assert!(heard.lock().unwrap().is_empty(), "a closed link reports nothing");
}

#[tokio::test(start_paused = true)]
async fn with_the_older_protocol_it_is_two_connections_and_needs_both() {
    let (fake_server, a) = (Scene::new(), server("a"));
    let config = RedisConfig::default().protocol(Protocol::Resp2).name("app");
    let (link, heard) = connected(&fake_server, &config).await;
    assert_eq!((fake_server.connections(&a), fake_server.sent("CLIENT SETNAME app").len()), (2, 1));
    sleep(ms(5_010)).await;
    assert_eq!(fake_server.sent("PING").len(), 2, "each is tried");
    for (latest, gaps) in [(true, 1), (false, 2)] {
        sleep(ms(1_500)).await;
        fake_server.cut(&a, latest);
        settled().await;
        assert_eq!(heard.lock().unwrap().iter().filter(|word| **word == "gap").count(), gaps);
        assert_eq!((link.is_up(), fake_server.connections(&a)), (true, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_attempt_is_final_or_not_as_it_is_begun() {
    let (fake_server, a) = (Scene::new(), server("a"));
    fake_server.answers(|_, _| Err(ExecError::refused("ERR no")));
    let named = RedisConfig::default().name("app");
    assert!(connected(&fake_server, &named).await.0.is_up(), "a name is a comfort");
    fake_server.is(&a, Mood::Silent);
    let (tried, _) = link(&fake_server, &named);
    let start = Instant::now();
    let error = tried.connect().await.unwrap_err();
    assert!(error.to_string().contains("no connection to a:1 within 1s") && start.elapsed() == ms(1_000), "{error}");
    fake_server.is(&a, Mood::Refusing);
    let (tried, _) = link(&fake_server, &named);
    let error = tried.connect().await.unwrap_err();
    assert_eq!(error.to_string(), "cannot connect to a:1: refused");
    let (joined, error) = link(&fake_server, &named).0.join().await;
    assert!(!joined.is_up() && error.is_err());
    let started = link(&fake_server, &named).0.start();
    let failed = fake_server.dialled(&a).len();
    sleep(ms(300)).await;
    assert!(fake_server.dialled(&a).len() > failed + 2, "they go on");
    fake_server.is(&a, Mood::Well);
    for link in [&joined, &started] {
        link.up(ms(1_000)).await.unwrap();
    }
    let (joined, outcome) = link(&fake_server, &named).0.join().await;
    assert!(joined.is_up() && outcome.is_ok());
}

#[test]
fn it_continues_in_the_next_runtime_when_its_own_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (fake_server, a) = (Scene::new(), server("a"));
    let first = runtime();
    let (link, heard) = first.block_on(connected(&fake_server, &RedisConfig::default()));
    drop(first);
    assert!(!link.is_up());
    assert_eq!(*heard.lock().unwrap(), ["cut", "gap"], "those who wait ask elsewhere");
    runtime().block_on(async {
        get(&link).await.0.unwrap();
        assert_eq!((fake_server.dialled(&a).len(), link.is_up()), (2, true));
        settled().await;
        fake_server.cut(&a, false);
        get(&link).await.0.unwrap_err();
        get(&link).await.0.unwrap();
    });
    assert_eq!(*heard.lock().unwrap(), ["cut", "gap", "gap", "cut", "gap", "cut", "gap"]);
    runtime().block_on(async {
        link.up(ms(500)).await.unwrap();
        link.close().await;
    });
    let fourth = runtime();
    assert!(matches!(fourth.block_on(get(&link)).0, Err(ExecError::Closed)), "closed is closed");

    // Closed between the end of one runtime and the first request in the next, by a caller that is not through with it.
    let (first, fake_server) = (runtime(), Scene::new());
    let (link, _) = first.block_on(connected(&fake_server, &RedisConfig::default()));
    drop(first);
    link.shared.state.send_replace(State::Closed);
    runtime().block_on(async {
        assert!(matches!(get(&link).await.0, Err(ExecError::Closed)));
        assert!(link.supervisor.lock().unwrap().as_ref().unwrap().is_finished(), "nothing is begun");
        link.close().await;
    });
}

/// Sentinels that name a primary.
struct Names {
    primary: Mutex<Address>,
    moved: Notify,
    config: RedisConfig,
}

#[async_trait]
impl NamesPrimary<Connection> for Names {
    fn place(&self) -> String {
        "the primary".into()
    }

    async fn moved(&self) {
        self.moved.notified().await;
    }

    async fn primary(&self) -> Result<Address, ExecError> {
        Ok(self.primary.lock().unwrap().clone())
    }

    async fn endpoint(&self) -> Result<Endpoint, ExecError> {
        Ok(self.config.endpoint(self.primary().await?))
    }

    async fn confirm(&self, socket: &Connection) -> Result<(), ExecError> {
        socket.send(&Request::words(&["ROLE"])).await.map(drop)
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_follows_the_primary_leaves_the_old_one_and_waits_for_the_new_one() {
    let (fake_server, [a, b]) = (Scene::new(), ["a", "b"].map(server));
    let config = RedisConfig::default();
    let (primary, moved) = (Mutex::new(a.clone()), Notify::new());
    let names = Arc::new(Names { primary, moved, config: config.clone() });
    let (listen, _) = listener();
    let route = Route::Named(Arc::clone(&names) as Arc<dyn NamesPrimary<_>>);
    let link = Link::new(Arc::new(fake_server.clone()), route, listen, &config, None).connect().await.unwrap();
    assert_eq!((link.place().as_str(), fake_server.sent("ROLE").len()), ("the primary", 1));
    sleep(ms(2_000)).await;
    names.moved.notify_one();
    settled().await;
    assert_eq!((fake_server.sent("PING").len(), fake_server.dialled(&a).len()), (1, 1), "it has not moved");
    fake_server.answers({
        let b = b.clone();
        move |at, command| match command {
            "ROLE" if *at == b => Err(ExecError::refused("ERR a replica")),
            _ => Ok(Reply::Nil),
        }
    });
    *names.primary.lock().unwrap() = b.clone();
    get(&link).await.0.unwrap();
    assert_eq!(fake_server.dialled(&b).len(), 0, "nothing was said yet");
    names.moved.notify_one();
    settled().await;
    assert_eq!((link.is_up(), fake_server.connections(&a), fake_server.dialled(&b).len()), (false, 0, 1));
    sleep(ms(3_000)).await;
    assert!(!link.is_up() && fake_server.dialled(&b).len() > 5, "it is a replica yet");
    fake_server.answers(|_, _| Ok(Reply::Nil));
    names.moved.notify_one();
    settled().await;
    assert!(link.is_up(), "news end the pause");
    assert_eq!(fake_server.connections(&b), 1);
}

// Who is woken by what comes on it.

#[tokio::test]
async fn only_the_waiter_named_is_woken() {
    let wake = WakeLink::default();
    let (one, two) = (OwnerToken::random(), OwnerToken::random());
    let (mut first, mut second) = (wake.router().register(one), wake.router().register(two));
    for payload in [b"".as_slice(), b"\xff", b"not a token", OwnerToken::random().expose().as_ref()] {
        wake.deliver(payload);
    }
    wake.deliver(one.expose().as_ref());
    assert!(timeout(Duration::from_secs(5), first.next()).await.is_ok());
    // News of a form that this version does not know are a reason to ask.
    for rest in ["", "news", "1;2;3", "-1;2;3;4"] {
        wake.deliver(format!("{};{rest}", one.expose().as_str()).as_bytes());
        assert_eq!(timeout(Duration::from_secs(5), first.next()).await.unwrap(), Signal::Wake, "{rest}");
    }
    assert!(timeout(Duration::ZERO, second.next()).await.is_err());
    wake.link_up();
    assert!(timeout(Duration::from_secs(5), second.next()).await.is_ok());
    // A message behind a gap may be by another clock than the messages before.
    let news = format!("{};9;1;2000;8", two.expose().as_str());
    wake.deliver(news.as_bytes());
    assert!(matches!(second.next().await, Signal::Handed(_)));
    wake.link_cut();
    wake.deliver(news.as_bytes());
    assert_eq!(second.next().await, Signal::Wake);
}

#[tokio::test]
async fn watchers_of_a_queue_are_woken_by_its_name() {
    let wake = WakeLink::default();
    let (one, other) = (QueueName::new("a\0!").unwrap(), QueueName::new("b").unwrap());
    let (mut first, mut second) = (wake.queues().register(&one), wake.queues().register(&other));
    wake.deliver(b"!");
    wake.deliver(b"!a\0!");
    assert!(timeout(Duration::from_secs(5), first.next()).await.is_ok());
    assert!(timeout(Duration::ZERO, second.next()).await.is_err());
    wake.link_up();
    assert!(timeout(Duration::from_secs(5), second.next()).await.is_ok());
}
