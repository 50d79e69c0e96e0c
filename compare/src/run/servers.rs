//! The servers of a comparison.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use tenure_testkit::{EtcdCluster, EtcdOptions, RedisOptions, RedisServer, Reply};

use super::child::Worker;
#[cfg(feature = "sql")]
use super::databases;
use super::machine::{Pins, pin_process, pinned};
use super::proxy;
use super::server::{Counters, Server};
use super::table::{BACKLOG, Kind, Language, Way};
use crate::job::{Job, Outcome, PAYLOAD};

pub(super) fn start(kind: Kind, pins: &Pins) -> Outcome<Rc<dyn Server>> {
    let shared = pins.shared.as_deref();
    Ok(match kind {
        Kind::Nothing => Rc::new(Nothing),
        Kind::Redis => Rc::new(Redis::start(shared)?),
        Kind::RedisApart => Rc::new(Redis::start(pins.other.as_deref())?),
        Kind::RedisAnywhere => Rc::new(Redis::start(None)?),
        Kind::Five => Rc::new(Five::start(shared)?),
        Kind::Backlog(count) => Rc::new(Backlog::start(pins, count)?),
        Kind::Etcd => Rc::new(Etcd::start()?),
        Kind::Beanstalkd => Rc::new(Beanstalkd::start(shared)?),
        #[cfg(feature = "sql")]
        Kind::Database(database) => databases::start(database, shared)?,
    })
}

struct Nothing;

impl Server for Nothing {
    fn ports(&self, _way: Way) -> Outcome<Vec<u16>> {
        Ok(Vec::new())
    }
}

struct Redis {
    server: RefCell<RedisServer>,
    pin: Option<String>,
    /// The proxy for each delay.
    proxies: RefCell<BTreeMap<u32, u16>>,
    looks: Cell<f64>,
}

/// What one look at the counters reads from the server's sockets: three connections, one command each.
const OWN_READS: f64 = 3.0;

impl Redis {
    fn start(pin: Option<&str>) -> Outcome<Self> {
        let server = RedisServer::start(RedisOptions::new())?;
        pin_process(server.pid(), pin)?;
        let (server, proxies, looks) = (RefCell::new(server), RefCell::default(), Cell::new(0.0));
        Ok(Self { server, pin: pin.map(str::to_owned), proxies, looks })
    }

    fn cli(&self, args: &[&str]) -> Outcome<Reply> {
        Ok(self.server.borrow().cli(args)?)
    }

    fn info(&self, section: &str) -> Outcome<String> {
        Ok(self.cli(&["INFO", section])?.text())
    }

    fn kill(&self) -> Outcome {
        Ok(self.server.borrow_mut().kill()?)
    }

    /// Starts it once more, if it was killed.
    fn revive(&self) -> Outcome {
        let mut server = self.server.borrow_mut();
        if server.pid().is_none() {
            server.restart()?;
            pin_process(server.pid(), self.pin.as_deref())?;
        }
        Ok(())
    }
}

impl Server for Redis {
    fn ports(&self, way: Way) -> Outcome<Vec<u16>> {
        let port = self.server.borrow().port();
        let (Way::Far(delay @ 1..) | Way::OneDead(delay @ 1..)) = way else { return Ok(vec![port]) };
        let mut proxies = self.proxies.borrow_mut();
        if !proxies.contains_key(&delay) {
            proxies.insert(delay, proxy::start(port, Duration::from_micros(delay.into()))?);
        }
        Ok(vec![proxies[&delay]])
    }

    fn tidy(&self) -> Outcome {
        self.cli(&["FLUSHALL"]).map(drop)
    }

    fn counters(&self) -> Outcome<Counters> {
        let cpu = self.info("cpu")?;
        let seconds = |name| number(&cpu, name).unwrap_or(0.0);
        let calls = self.info("commandstats")?;
        let calls = calls.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        });
        self.looks.set(self.looks.get() + OWN_READS);
        let reads = number(&self.info("stats")?, "total_reads_processed").unwrap_or(0.0) - self.looks.get();
        let cpu_us = (seconds("used_cpu_sys") + seconds("used_cpu_user")) * 1e6;
        Ok(Counters { cpu_us, reads, calls: calls.collect() })
    }

    fn memory(&self) -> Outcome<f64> {
        number(&self.info("memory")?, "used_memory").ok_or_else(|| "INFO has no used_memory".into())
    }

    fn version(&self) -> Option<(&'static str, String)> {
        let text = self.info("server").ok()?;
        Some(("redis", field(&text, "redis_version")?.to_owned()))
    }

    fn watch_scripts(&self) -> Outcome {
        self.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "200"])?;
        self.cli(&["CONFIG", "SET", "slowlog-max-len", "10000"])?;
        self.cli(&["SLOWLOG", "RESET"])?;
        Ok(())
    }

    fn longest_script(&self) -> Outcome<Option<f64>> {
        let log = self.cli(&["SLOWLOG", "GET", "10000"])?;
        let script = |entry: &&Reply| {
            let command = entry.items().get(3).and_then(|args| args.items().first()).map(Reply::text);
            command.is_some_and(|command| ["EVAL", "EVALSHA"].contains(&command.to_uppercase().as_str()))
        };
        let micros = |entry: &Reply| entry.items().get(2).and_then(Reply::int).unwrap_or(0) as f64;
        Ok(Some(log.items().iter().filter(script).map(micros).fold(0.0, f64::max) / 1e3))
    }

    fn connections(&self) -> Outcome<Option<(f64, f64)>> {
        let open = number(&self.info("clients")?, "connected_clients").ok_or("INFO has no connected_clients")?;
        let bytes = number(&self.info("memory")?, "mem_clients_normal").ok_or("INFO has no mem_clients_normal")?;
        Ok(Some((open, bytes)))
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn number(info: &str, name: &str) -> Option<f64> {
    field(info, name)?.parse().ok()
}

/// A quorum's servers; the last of them is the one that dies.
struct Five {
    alive: Vec<Redis>,
    mortal: Redis,
}

impl Five {
    fn start(pin: Option<&str>) -> Outcome<Self> {
        let alive = (0..4).map(|_| Redis::start(pin)).collect::<Outcome<Vec<_>>>()?;
        Ok(Self { alive, mortal: Redis::start(pin)? })
    }

    fn all(&self) -> impl Iterator<Item = &Redis> {
        self.alive.iter().chain([&self.mortal])
    }
}

impl Server for Five {
    fn ports(&self, way: Way) -> Outcome<Vec<u16>> {
        self.all().map(|server| Ok(server.ports(way)?[0])).collect()
    }

    fn tidy(&self) -> Outcome {
        self.mortal.revive()?;
        self.all().try_for_each(Server::tidy)
    }

    fn before_it_begins(&self, way: Way) -> Outcome {
        if matches!(way, Way::OneDead(_)) { self.mortal.kill() } else { Ok(()) }
    }

    /// Of those that are alive.
    fn counters(&self) -> Outcome<Counters> {
        let mut sum = Counters::default();
        for server in self.all().filter(|server| server.server.borrow().pid().is_some()) {
            sum += server.counters()?;
        }
        Ok(sum)
    }
}

struct Backlog {
    redis: Redis,
    /// What a stored message takes beyond its payload.
    bytes: f64,
}

impl Backlog {
    fn start(pins: &Pins, count: usize) -> Outcome<Self> {
        let redis = Redis::start(pins.shared.as_deref())?;
        let (what, subject, name) = ("preload".into(), "tenure-redis".into(), BACKLOG.into());
        let ports = redis.ports(Way::Direct)?;
        // The largest request has 250 messages.
        let job = Job { what, subject, name, ports, count, batch: 250, workers: 4, ..Job::default() };
        let empty = redis.memory()?;
        let mut worker = Worker::prepared(&Language::Rust.program()?, pins.other.as_deref(), &job)?;
        worker.go()?;
        worker.answer()?;
        let bytes = (redis.memory()? - empty) / count as f64 - PAYLOAD as f64;
        Ok(Self { redis, bytes })
    }
}

impl Server for Backlog {
    fn ports(&self, way: Way) -> Outcome<Vec<u16>> {
        self.redis.ports(way)
    }

    fn counters(&self) -> Outcome<Counters> {
        self.redis.counters()
    }

    fn figure(&self) -> Option<(&'static str, f64)> {
        Some(("stored_bytes", self.bytes))
    }
}

/// One member, with its data in memory where the machine has a file system for that. Killed when dropped.
struct Etcd(EtcdCluster);

impl Etcd {
    fn start() -> Outcome<Self> {
        if cfg!(not(feature = "etcd")) {
            return Err("built without the feature etcd, which needs protoc".into());
        }
        let cluster = EtcdCluster::single(EtcdOptions::new());
        Ok(Self(cluster.map_err(|error| format!("etcd does not run here: {error}"))?))
    }
}

impl Server for Etcd {
    fn ports(&self, _way: Way) -> Outcome<Vec<u16>> {
        Ok(self.0.ports())
    }

    fn counters(&self) -> Outcome<Counters> {
        Ok(Counters::of_cpu(self.0.metric(0, "process_cpu_seconds_total ")? * 1e6))
    }

    fn memory(&self) -> Outcome<f64> {
        Ok(self.0.metric(0, "process_resident_memory_bytes ")?)
    }

    fn version(&self) -> Option<(&'static str, String)> {
        let program = std::env::var_os("TENURE_ETCD_BIN").unwrap_or_else(|| "etcd".into());
        let text = String::from_utf8(Command::new(program).arg("--version").output().ok()?.stdout).ok()?;
        Some(("etcd", text.lines().find_map(|line| line.strip_prefix("etcd Version: "))?.to_owned()))
    }
}

/// In memory, on a free port of loopback. Killed when dropped.
struct Beanstalkd {
    child: Child,
    port: u16,
}

impl Beanstalkd {
    fn start(pin: Option<&str>) -> Outcome<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        if !super::machine::on_path("beanstalkd") {
            return Err("beanstalkd is not installed".into());
        }
        let mut command = pinned("beanstalkd", pin);
        command.args(["-l", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let server = Self { child, port };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("beanstalkd does not listen within five seconds".into())
    }
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server for Beanstalkd {
    fn ports(&self, _way: Way) -> Outcome<Vec<u16>> {
        Ok(vec![self.port])
    }
}
