//! A server whose answer never ends: the timeouts hold, and the connection that it comes on is replaced, with either library.

use std::time::{Duration, Instant};

use tenure_core::{Client, ErrorKind, Result};
use tenure_testkit::{Link, RedisOptions, RedisServer, TcpProxy};

const LIMIT: Duration = Duration::from_secs(1);
/// What a busy machine adds.
const SLACK: Duration = Duration::from_secs(2);

struct Case {
    library: &'static str,
    protocol: u32,
    link: Link,
}

fn cases() -> impl Iterator<Item = Case> {
    let links = [Link::EndlessLine, Link::EndlessString].into_iter();
    let of = |link| [2, 3].into_iter().map(move |protocol| (link, protocol));
    links.flat_map(of).flat_map(|(link, protocol)| ["", "fred+"].map(|library| Case { library, protocol, link }))
}

impl Case {
    async fn connect(&self, proxy: &TcpProxy) -> Result<Client> {
        let limit = LIMIT.as_millis();
        let url = format!(
            "{}redis://127.0.0.1:{}/?protocol=resp{}&connect_timeout_ms={limit}&response_timeout_ms={limit}",
            self.library,
            proxy.port(),
            self.protocol
        );
        tenure_backends::connect(&url).await.map(Client::new)
    }

    fn name(&self) -> String {
        format!("{}redis, {:?} of protocol {}", self.library, self.link, self.protocol)
    }
}

#[tokio::test]
async fn connecting_ends_in_time() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    for case in cases() {
        let proxy = TcpProxy::start(server.port()).unwrap();
        proxy.set_new(case.link);
        let began = Instant::now();
        let error = case.connect(&proxy).await.unwrap_err();
        let took = began.elapsed();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}: {error}", case.name());
        assert!(took < LIMIT + SLACK, "{}: {took:?}", case.name());
    }
}

#[tokio::test]
async fn a_request_ends_in_time_and_the_connection_is_replaced() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    for case in cases() {
        let proxy = TcpProxy::start(server.port()).unwrap();
        let client = case.connect(&proxy).await.unwrap();
        proxy.set_present(case.link);
        let began = Instant::now();
        let error = client.lock("a").try_acquire().await.unwrap_err();
        let took = began.elapsed();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{}: {error}", case.name());
        assert!(took < LIMIT + SLACK, "{}: {took:?}", case.name());
        let began = Instant::now();
        while client.lock("b").try_acquire().await.is_err() {
            assert!(began.elapsed() < 2 * LIMIT + SLACK, "{}: the link is not mended", case.name());
        }
        client.close(LIMIT).await.unwrap();
    }
}
