//! Redis servers, and what they have done so far.

use std::process::{Command, Stdio};

use tenure_testkit::{RedisOptions, RedisServer, Reply};

use super::counters::{Counted, Counters};
use crate::failure::Outcome;

/// A server of this comparison, on the processors that it was pinned to.
pub(super) struct Redis {
    pub(super) server: RedisServer,
}

impl Redis {
    pub(super) fn start(pin: Option<&str>) -> Outcome<Self> {
        let server = RedisServer::start(RedisOptions::new())?;
        let redis = Self { server };
        redis.pin(pin)?;
        Ok(redis)
    }

    /// Moves all its threads to these processors.
    pub(super) fn pin(&self, pin: Option<&str>) -> Outcome {
        let (Some(cpus), Some(pid)) = (pin, self.server.pid()) else { return Ok(()) };
        let mut command = Command::new("taskset");
        let status = command.args(["-acp", cpus, &pid.to_string()]).stdout(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("cannot pin the server: {status}").into()) }
    }

    pub(super) fn port(&self) -> u16 {
        self.server.port()
    }

    /// Removes all keys.
    pub(super) fn flush(&self) -> Outcome {
        self.server.cli(&["FLUSHALL"])?;
        Ok(())
    }

    /// The server's bytes for data and clients.
    pub(super) fn used_memory(&self) -> Outcome<f64> {
        number(&self.info("memory")?, "used_memory").ok_or_else(|| "INFO has no used_memory".into())
    }

    /// How many connections are open, this one included, and the memory that they take.
    pub(super) fn clients(&self) -> Outcome<(f64, f64)> {
        let open = number(&self.info("clients")?, "connected_clients").ok_or("INFO has no connected_clients")?;
        let bytes = number(&self.info("memory")?, "mem_clients_normal").ok_or("INFO has no mem_clients_normal")?;
        Ok((open, bytes))
    }

    pub(super) fn version(&self) -> Outcome<String> {
        let text = self.info("server")?;
        Ok(field(&text, "redis_version").unwrap_or("unknown").to_owned())
    }

    pub(super) fn info(&self, section: &str) -> Outcome<String> {
        Ok(self.server.cli(&["INFO", section])?.text())
    }

    /// Forgets slow scripts, and remembers those over so many microseconds from now on.
    pub(super) fn watch_scripts(&self, micros: u32) -> Outcome {
        self.server.cli(&["CONFIG", "SET", "slowlog-log-slower-than", &micros.to_string()])?;
        self.server.cli(&["CONFIG", "SET", "slowlog-max-len", "10000"])?;
        self.server.cli(&["SLOWLOG", "RESET"])?;
        Ok(())
    }

    /// The longest script since then, in milliseconds; 0 if none was long enough to be remembered.
    pub(super) fn longest_script(&self) -> Outcome<f64> {
        let log = self.server.cli(&["SLOWLOG", "GET", "10000"])?;
        let script = |entry: &&Reply| {
            let command = entry.items().get(3).and_then(|args| args.items().first()).map(Reply::text);
            command.is_some_and(|command| ["EVAL", "EVALSHA"].contains(&command.to_uppercase().as_str()))
        };
        let micros = |entry: &Reply| entry.items().get(2).and_then(Reply::int).unwrap_or(0) as f64;
        Ok(log.items().iter().filter(script).map(micros).fold(0.0, f64::max) / 1e3)
    }
}

impl Counted for Redis {
    fn counters(&self) -> Outcome<Counters> {
        let cpu = self.info("cpu")?;
        let seconds = |name| number(&cpu, name).unwrap_or(0.0);
        let calls = self.info("commandstats")?;
        let calls = calls.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        });
        let reads = number(&self.info("stats")?, "total_reads_processed").unwrap_or(0.0);
        let cpu_us = (seconds("used_cpu_sys") + seconds("used_cpu_user")) * 1e6;
        Ok(Counters::of_cpu(cpu_us).with_commands(reads, calls.collect()))
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn number(info: &str, name: &str) -> Option<f64> {
    field(info, name)?.parse().ok()
}
