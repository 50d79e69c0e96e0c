//! The service works, and exports each metric of the dashboard to Prometheus.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The status and the body of an answer.
async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (status, body.to_owned())
}

/// The queries of a dashboard, at any depth.
fn queries(of: &Value, found: &mut Vec<String>) {
    match of {
        Value::Object(fields) => {
            found.extend(
                fields.get("expr").and_then(Value::as_str).map(str::to_owned),
            );
            fields.values().for_each(|value| queries(value, found));
        }
        Value::Array(values) => {
            values.iter().for_each(|value| queries(value, found))
        }
        _ => {}
    }
}

/// The metrics that a query names.
fn metrics(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| {
        word.starts_with("tenure_")
            || word.starts_with("messaging_") && !word.ends_with("_name")
    })
}

/// The sum of all series of a metric whose line has this in it.
fn sum(scrape: &str, metric: &str, with: &str) -> f64 {
    let lines = scrape.lines().filter(|line| {
        line.split(['{', ' ']).next() == Some(metric) && line.contains(with)
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_dashboard_asks_for_is_reported() {
    let handle = service_example::record().unwrap();
    let client = tenure::connect("memory:").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service =
        tokio::spawn(service_example::serve(listener, client, handle));

    let shipping: Vec<_> = (0..4)
        .map(|_| tokio::spawn(ask(address, "POST", "/orders/42/ship")))
        .collect();
    for one in shipping {
        let (status, body) = one.await.unwrap();
        assert!(status == 200 && body.contains("fence"), "{status}: {body}");
    }
    let (one, other) = tokio::join!(
        ask(address, "POST", "/report"),
        ask(address, "POST", "/report")
    );
    assert_eq!(BTreeSet::from([one.0, other.0]), BTreeSet::from([200, 409]));

    let (begun, acked) = (Instant::now(), "outcome=\"ack\"");
    let scrape = loop {
        let (status, scrape) = ask(address, "GET", "/metrics").await;
        assert_eq!(status, 200);
        if sum(&scrape, "tenure_queue_deliveries_total", acked) >= 4.0 {
            break scrape;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the mails are not sent:\n{scrape}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let acquires = |how| {
        sum(
            &scrape,
            "tenure_lock_acquires_total",
            &format!("outcome=\"{how}\""),
        )
    };
    assert_eq!(acquires("busy"), 1.0);
    let waited = ["at_once", "waited"].map(acquires);
    assert_eq!(waited[0] + waited[1], 5.0);
    assert_eq!(
        sum(
            &scrape,
            "messaging_client_sent_messages_total",
            "outcome=\"stored\""
        ),
        4.0
    );

    for line in scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a name and a kind");
        let suffix = match kind {
            "counter" => "_total",
            "histogram" => "_seconds",
            _ => "",
        };
        assert!(name.ends_with(suffix), "{name} is a {kind}");
    }

    let dashboard: Value =
        serde_json::from_str(include_str!("../dashboard.json")).unwrap();
    let mut all = Vec::new();
    queries(&dashboard, &mut all);
    let asked: BTreeSet<&str> =
        all.iter().flat_map(|query| metrics(query)).collect();
    assert!(asked.len() >= 10, "{asked:?}");
    let reported: BTreeSet<&str> = scrape
        .lines()
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let missing: Vec<_> = asked.difference(&reported).collect();
    assert!(
        missing.is_empty(),
        "the dashboard asks for {missing:?}, and these are reported: {reported:?}"
    );
    service.abort();
}
