//! Sentinels in memory: whom they are asked for, what is believed of their answers, and which news are heard.

use super::*;
use crate::config::{Login, Protocol};
use crate::link::fake_server::{Mood, Scene, server};

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const ASK: &str = "SENTINEL get-master-addr-by-name main";

fn names(address: &Address) -> Reply {
    let Address::Tcp { host, port } = address else { panic!("{address}") };
    Reply::Array([host.clone(), port.to_string()].map(|text| Reply::Bytes(text.into())).to_vec())
}

/// Sentinels that name this primary, which says that it is one.
fn tell(fake_server: &Scene, primary: &Address) {
    let named = names(primary);
    fake_server.answers(move |_, command| match command {
        ASK => Ok(named.clone()),
        "ROLE" => Ok(Reply::Array(vec![Reply::Bytes(b"master".to_vec()), Reply::Int(0)])),
        _ => Ok(Reply::Nil),
    });
}

fn config() -> RedisConfig {
    let login = |user: &str| Login { username: Some(user.into()), password: Some("secret".into()) };
    RedisConfig::default().username("app").password("secret").sentinel_login(login("guard")).database(3).name("billing")
}

fn start(fake_server: &Scene, sentinels: &[Address]) -> Arc<Sentinels<Scene>> {
    Sentinels::start(&Arc::new(fake_server.clone()), &config(), sentinels, "main")
}

/// Whether there are news of another primary, within this time.
async fn moved(sentinels: &Sentinels<Scene>, within: Duration) -> bool {
    timeout(within, sentinels.moved()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn the_sentinel_that_answered_last_is_asked_first_and_the_others_after_it() {
    let (fake_server, [s, t, u, p]) = (Scene::new(), ["s", "t", "u", "p"].map(server));
    tell(&fake_server, &p);
    fake_server.is(&s, Mood::Refusing);
    fake_server.is(&t, Mood::Silent);
    let sentinels = start(&fake_server, &[s.clone(), t.clone(), u.clone()]);
    let asked = || fake_server.sent(ASK).into_iter().map(|(_, at)| at).collect::<Vec<_>>();
    assert_eq!(sentinels.primary().await.unwrap(), p);
    assert_eq!((asked(), fake_server.time()), (vec![t.clone(), u.clone()], ms(1_000)), "so long the second had time");
    assert_eq!(sentinels.primary().await.unwrap(), p);
    assert_eq!((asked().len(), fake_server.time()), (3, ms(1_000)), "only the one that answered is asked");
    fake_server.is(&u, Mood::Refusing);
    fake_server.is(&s, Mood::Well);
    assert_eq!(sentinels.primary().await.unwrap(), p);
    assert_eq!(asked()[3..], std::slice::from_ref(&s)[..], "behind the last one comes the first");
    fake_server.is(&s, Mood::Silent);
    fake_server.is(&t, Mood::Well);
    assert_eq!(sentinels.primary().await.unwrap(), p);
    assert_eq!(asked()[4..], [s, t]);
}

#[tokio::test(start_paused = true)]
async fn what_keeps_the_primary_unknown_is_said_and_nothing_was_sent() {
    let (fake_server, [s, t, p]) = (Scene::new(), ["s", "t", "p"].map(server));
    let sentinels = start(&fake_server, &[s.clone(), t.clone()]);
    let not_sent = |error: ExecError| match error {
        ExecError::NotSent { message, .. } => message,
        other => panic!("{other:?}"),
    };
    fake_server.answers(|_, _| Ok(Reply::Nil));
    assert_eq!(not_sent(sentinels.primary().await.unwrap_err()), "the sentinel t:1 knows no primary called main");
    let odd = [Reply::Int(1), Reply::Array(vec![]), Reply::Array(vec![Reply::Nil, Reply::Nil])];
    for reply in odd.into_iter().chain([Reply::Array(["p", "65536"].map(|text| Reply::Bytes(text.into())).to_vec())]) {
        fake_server.answers(move |_, _| Ok(reply.clone()));
        assert!(matches!(sentinels.primary().await, Err(ExecError::Protocol { .. })));
    }
    fake_server.answers(|_, _| Err(ExecError::SentUnknown { message: "cut".into(), source: None }));
    assert_eq!(not_sent(sentinels.primary().await.unwrap_err()), "cut", "no request of a user was on that connection");
    fake_server.answers(|_, _| Err(ExecError::refused("NOAUTH log in")));
    assert!(matches!(sentinels.primary().await, Err(ExecError::Server { .. })));
    [&s, &t].into_iter().for_each(|sentinel| fake_server.is(sentinel, Mood::Silent));
    assert_eq!(not_sent(sentinels.primary().await.unwrap_err()), "the sentinel t:1 did not answer within 1s");
    assert_eq!(not_sent(start(&fake_server, &[]).primary().await.unwrap_err()), "no sentinel is named");
    [&s, &t].into_iter().for_each(|sentinel| fake_server.is(sentinel, Mood::Well));
    tell(&fake_server, &p);
    assert_eq!(sentinels.primary().await.unwrap(), p);
}

#[tokio::test(start_paused = true)]
async fn only_news_of_this_service_and_a_gap_in_them_are_a_reason_to_look() {
    let (fake_server, [s, t, p]) = (Scene::new(), ["s", "t", "p"].map(server));
    tell(&fake_server, &p);
    let sentinels = start(&fake_server, &[s.clone(), t.clone()]);
    tokio::time::sleep(ms(500)).await;
    assert!(moved(&sentinels, Duration::ZERO).await, "they may have said so before anybody listened");
    assert!(!moved(&sentinels, ms(1_000)).await);
    let say = |at: &Address, text: &str| assert_eq!(fake_server.publish(at, ANNOUNCEMENTS, text), 1);
    for other in ["other a 1 b 1", "main", "mainly a 1 b 1", ""] {
        say(&s, other);
    }
    assert!(!moved(&sentinels, ms(1_000)).await);
    for at in [&s, &t] {
        say(at, "main a 1 b 1");
        assert!(moved(&sentinels, ms(1)).await);
        tokio::time::sleep(ms(200)).await;
    }
    fake_server.is(&s, Mood::Refusing);
    fake_server.cut(&s, false);
    assert!(!moved(&sentinels, ms(1_000)).await, "one of them is away, which says nothing");
    fake_server.is(&s, Mood::Well);
    assert!(moved(&sentinels, ms(1_500)).await, "it may have spoken meanwhile");
    sentinels.close().await;
    assert_eq!([&s, &t].map(|at| fake_server.connections(at)), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn successive_signals_wake_twice_and_none_is_forgotten() {
    let (fake_server, [s, p]) = (Scene::new(), ["s", "p"].map(server));
    tell(&fake_server, &p);
    let sentinels = start(&fake_server, std::slice::from_ref(&s));
    assert!(moved(&sentinels, ms(10)).await);
    tokio::time::sleep(PACE).await;
    let say = || assert_eq!(fake_server.publish(&s, ANNOUNCEMENTS, "main a 1 b 1"), 1);
    (0..5).for_each(|_| say());
    assert!(moved(&sentinels, Duration::ZERO).await, "the first at once");
    (0..5).for_each(|_| say());
    assert!(!moved(&sentinels, PACE - ms(2)).await, "those at its heels a moment later");
    assert!(moved(&sentinels, ms(4)).await, "though nobody heard them then");
    assert!(!moved(&sentinels, ms(1_000)).await);
}

#[tokio::test(start_paused = true)]
async fn a_server_counts_as_primary_when_it_says_so_or_may_not() {
    let (fake_server, [s, p]) = (Scene::new(), ["s", "p"].map(server));
    let sentinels = start(&fake_server, std::slice::from_ref(&s));
    let socket = fake_server.dial(&RedisConfig::default().endpoint(p), None).await.unwrap();
    let confirm = async |answer: Result<Reply, ExecError>| {
        fake_server.answers(move |_, _| answer.clone());
        sentinels.confirm(&socket).await
    };
    let role = |name: &str| Reply::Array(vec![Reply::Bytes(name.into()), Reply::Int(0)]);
    confirm(Ok(role("master"))).await.unwrap();
    for other in [role("slave"), role(""), Reply::Array(vec![]), Reply::Bytes(b"master".to_vec()), Reply::Nil] {
        let error = confirm(Ok(other)).await.unwrap_err();
        assert!(matches!(&error, ExecError::NotSent { message, .. } if message.contains("not (yet)")), "{error}");
    }
    confirm(Err(ExecError::refused("NOPERM no permissions to run the 'role' command"))).await.unwrap();
    assert!(confirm(Err(ExecError::refused("LOADING x"))).await.is_err());
    assert!(confirm(Err(ExecError::Closed)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn sentinels_and_the_primary_have_logins_of_their_own() {
    let (fake_server, [s, p]) = (Scene::new(), ["s", "p"].map(server));
    tell(&fake_server, &p);
    let sentinels = start(&fake_server, std::slice::from_ref(&s));
    assert_eq!(format!("{sentinels:?}"), "Sentinels { service: \"main\", addresses: [Tcp { host: \"s\", port: 1 }] }");
    let endpoint = sentinels.endpoint().await.unwrap();
    assert_eq!((endpoint.address, endpoint.login.username.as_deref()), (p, Some("app")));
    assert_eq!((endpoint.database, endpoint.protocol), (3, Protocol::Resp3));
    tokio::time::sleep(ms(100)).await;
    let guard = fake_server.endpoint(&s).unwrap();
    assert_eq!((guard.login.username.as_deref(), guard.database, guard.protocol), (Some("guard"), 0, Protocol::Resp2));
    assert!(fake_server.sent("CLIENT SETNAME billing").is_empty(), "the name is for servers with data");
}
