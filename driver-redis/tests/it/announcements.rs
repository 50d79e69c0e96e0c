//! Sentinels that announce another primary without a pause.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Client, LONG, attempt, server};
use tenure_redis::RedisConfig;

/// A sentinel that announces as fast as its listeners read, and names each of its primaries in turn.
struct Flood {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    primaries: Vec<u16>,
    asked: AtomicUsize,
    announced: AtomicUsize,
}

impl Flood {
    fn start(primaries: &[u16]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { primaries: primaries.to_vec(), asked: 0.into(), announced: 0.into() });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.serve(client.unwrap()));
            }
        });
        Self { port, shared }
    }

    fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Acquire)
    }
}

impl Shared {
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let (mut requests, mut answers) = (BufReader::new(client.try_clone()?), client);
        loop {
            let words = command(&mut requests)?;
            match words[0].to_uppercase().as_str() {
                "SUBSCRIBE" => {
                    answers.write_all(b"*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n")?;
                    let mut flood = answers.try_clone()?;
                    thread::scope(|scope| {
                        scope.spawn(move || while self.announce(&mut flood).is_ok() {});
                        while command(&mut requests).is_ok() {} // a listener only pings, which the flood answers
                    });
                    return Ok(());
                }
                "SENTINEL" => {
                    let turn = self.asked.fetch_add(1, Ordering::AcqRel);
                    let port = self.primaries[turn % self.primaries.len()].to_string();
                    write!(answers, "*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())?;
                }
                _ => answers.write_all(b"+OK\r\n")?,
            }
        }
    }

    /// A hundred announcements, and the answer to a ping that may have come.
    fn announce(&self, to: &mut TcpStream) -> io::Result<()> {
        let text = "locks 127.0.0.1 1 127.0.0.1 2";
        let one = format!("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{text}\r\n", text.len());
        to.write_all(one.repeat(100).as_bytes())?;
        self.announced.fetch_add(100, Ordering::AcqRel);
        thread::sleep(Duration::from_millis(5)); // 20,000 in a second leave something for the client to run on
        Ok(())
    }
}

fn command(from: &mut impl BufRead) -> io::Result<Vec<String>> {
    let number = |from: &mut dyn BufRead| {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let digits = line.trim_end().get(1..).unwrap_or_default();
        digits.parse::<usize>().map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))
    };
    let count = number(from)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; number(from)? + 2];
        from.read_exact(&mut word)?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Ok(words)
}

async fn behind(flood: &Flood) -> Client {
    let config = RedisConfig::from_url(&format!("redis+sentinel://127.0.0.1:{}/locks", flood.port)).unwrap();
    let brief = Duration::from_millis(500);
    Client::with(config.ping_interval(brief).unwrap().response_timeout(brief).unwrap()).await
}

#[tokio::test]
async fn announcements_without_a_pause_are_followed_at_a_pace() {
    let mut server = server();
    let flood = Flood::start(&[server.port()]);
    let c = behind(&flood).await;
    let (before, began) = (flood.asked(), Instant::now());
    let mut granted = 0;
    while began.elapsed() < Duration::from_secs(2) {
        c.grant(&attempt(&format!("a-{granted}"))).await;
        granted += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let asked = flood.asked() - before;
    assert!(flood.shared.announced.load(Ordering::Acquire) > 1000);
    assert!(asked <= 50, "the sentinel was asked {asked} times in two seconds");
    // A server that falls silent is noticed all the same, and one that is back is found.
    server.pause().unwrap();
    let began = Instant::now();
    while c.locks.acquire(&attempt("b")).await.is_ok() {}
    assert!(began.elapsed() < LONG / 4);
    server.resume().unwrap();
    while c.locks.acquire(&attempt("c")).await.is_err() {
        assert!(began.elapsed() < LONG);
    }
}

/// Nobody can say which of them is the primary; the link goes from one to the other, at a pace as well.
#[tokio::test]
async fn two_primaries_in_turn_are_followed_at_a_pace() {
    let (one, other) = (server(), server());
    let flood = Flood::start(&[one.port(), other.port()]);
    let c = behind(&flood).await;
    let before = flood.asked();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = flood.asked() - before;
    assert!((2..=100).contains(&asked), "the sentinel was asked {asked} times in two seconds");
    let began = Instant::now();
    while c.locks.acquire(&attempt("a")).await.is_err() {
        assert!(began.elapsed() < LONG);
    }
}
