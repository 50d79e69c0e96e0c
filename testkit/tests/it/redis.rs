//! The kit's own promises.

use std::time::{SystemTime, UNIX_EPOCH};

use tenure_testkit::{CheckedServer, Link, RedisOptions, RedisServer, Reply, RespClient, TcpProxy};

#[test]
fn a_server_keeps_its_place_and_data_over_a_restart() {
    let mut server = RedisServer::start(RedisOptions::new().append_only().password("secret")).unwrap();
    server.cli(&["SET", "key", "value"]).unwrap();
    let port = server.port();
    server.kill().unwrap();
    assert!(server.cli(&["PING"]).is_err());
    server.restart().unwrap();
    assert_eq!((server.port(), server.cli(&["GET", "key"]).unwrap().text()), (port, "value".to_owned()));
    assert!(RespClient::tcp(port).unwrap().call(&["GET", "key"]).unwrap().text().starts_with("NOAUTH"));
}

#[test]
fn a_paused_server_answers_only_when_it_continues() {
    let mut server = RedisServer::start(RedisOptions::new()).unwrap();
    let mut client = server.connect().unwrap();
    server.pause().unwrap();
    client.send(&["PING"]).unwrap();
    server.resume().unwrap();
    assert_eq!(client.read().unwrap(), Reply::Status("PONG".into()));
}

#[test]
fn a_checked_server_panics_over_a_key_that_may_not_stay() {
    let ends = |keys: &[&str]| {
        let server = CheckedServer::start(RedisOptions::new(), |key| key == "kept").unwrap();
        keys.iter().for_each(|key| drop(server.cli(&["SET", key, "a"]).unwrap()));
        server.cli(&["SET", "short", "a", "EX", "60"]).unwrap();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(server))).is_ok()
    };
    assert!(ends(&["kept"]));
    assert!(!ends(&["kept", "left"]));
}

#[test]
fn the_wall_clock_moves() {
    let server = RedisServer::start(RedisOptions::new().movable_clock()).unwrap();
    let behind = || {
        let time = server.cli(&["TIME"]).unwrap().items()[0].int().unwrap();
        time - i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
    };
    assert!(behind().abs() < 60);
    server.set_clock_offset(-3_600_000_001).unwrap();
    assert!((behind() + 3600).abs() < 60, "{}", behind());
    server.set_clock_offset(7_200_000_000).unwrap();
    assert!((behind() - 7200).abs() < 60, "{}", behind());
}

#[test]
fn a_proxy_loses_and_cuts() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let mut client = RespClient::tcp(proxy.port()).unwrap();
    assert_eq!(client.call(&["PING"]).unwrap().text(), "PONG");
    proxy.set_present(Link::LosesReplies);
    client.send(&["SET", "key", "value"]).unwrap();
    tenure_testkit::eventually("the request to arrive", || {
        (server.cli(&["GET", "key"]).unwrap().text() == "value").then_some(())
    })
    .unwrap();
    assert_eq!(RespClient::tcp(proxy.port()).unwrap().call(&["PING"]).unwrap().text(), "PONG");
    proxy.cut();
    assert!(client.read().is_err());
    assert_eq!(proxy.accepted(), 2);
}
