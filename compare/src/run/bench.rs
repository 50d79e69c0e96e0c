//! Measures tables and curves: starts what a row needs, gives the work to processes, and makes figures of their answers.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use super::child::{Program, Worker};
use super::heads::Head;
use super::history;
use super::machine::{Pins, about};
use super::report::{Report, Sample, Section, label};
use super::server::{Counters, Server};
use super::servers;
use super::table::{Clients, Curve, Curves, Extents, Kind, Language, On, SCRIPTS, TRIP, Table, Work};
use crate::job::{Job, Outcome};

/// The counters are read so long before workers end by themselves.
const BEFORE_THE_END: u64 = 500;
/// One period of renewal, in seconds.
const PERIOD: f64 = 10.0;
/// With fewer locks the share of one is less than what servers and clients use by themselves.
const ENOUGH: f64 = 1_000.0;

pub(super) struct Bench {
    quick: bool,
    pins: Pins,
    pub(super) report: Report,
    /// Those of the present table, or why they did not start.
    servers: Vec<(Kind, Result<Rc<dyn Server>, String>)>,
    measured: usize,
}

/// Who is measured.
struct Subject<'a> {
    name: &'a str,
    program: &'a Program,
    sends: &'static [&'static str],
}

impl Bench {
    pub(super) fn new(comparison: &str, quick: bool) -> Outcome<Self> {
        let pins = Pins::of_this_machine()?;
        let report = Report::new(about(comparison, if quick { "quick" } else { "full" }, &pins)?);
        Ok(Self { quick, pins, report, servers: Vec::new(), measured: 0 })
    }

    fn pick<T>(&self, Extents(quick, full): Extents<T>) -> T {
        if self.quick { quick } else { full }
    }

    /// Every row in every round, in random order.
    pub(super) fn table(&mut self, table: &Table, head: Head) {
        let mut section = Section::new(head);
        let mut rows = Vec::new();
        for row in table.rows {
            match row.by.program() {
                Ok(program) => rows.push((row, program)),
                Err(why) => self.report.left_out(row.name, why),
            }
        }
        let pin = if table.clients == Clients::Pinned { self.pins.shared.clone() } else { None };
        for _ in 0..self.pick(table.rounds) {
            fastrand::shuffle(&mut rows);
            let mut round = BTreeMap::new();
            for (row, program) in &rows {
                let subject = Subject { name: row.subject, program, sends: row.sends };
                let (on, work) = (row.on.unwrap_or(table.on), row.work.unwrap_or(table.work));
                match self.measure(&subject, on, &work, pin.as_deref(), section.shows("longest_script_ms")) {
                    Ok(figures) => drop(round.insert(row.name, figures)),
                    Err(error) => self.report.left_out(format!("{} in {}", row.name, table.id), error),
                }
            }
            let trip = round.get(TRIP).and_then(|trip| trip.get("p50_us").copied());
            for (row, mut figures) in round {
                let time = table.in_trips.and_then(|metric| figures.get(metric).copied());
                if let Some((time, trip)) = time.zip(trip).filter(|_| row != TRIP) {
                    figures.insert("in_rtt".into(), time / trip);
                }
                section.add(row, figures);
            }
        }
        self.servers.clear();
        self.report.sections.push(section);
    }

    /// Every point of all curves in every round. An error is noted, and the curve has a gap.
    pub(super) fn curves(&mut self, curves: &Curves, head: Head) {
        let mut section = Section::new(head);
        let pin = self.pins.shared.clone();
        for _ in 0..self.pick(curves.rounds) {
            for &x in self.pick(curves.points) {
                let mut point = Sample::from([("x".to_owned(), x)]);
                for curve in curves.curves {
                    if let Some((on, work)) = (curve.at)(x) {
                        match self.point(curve, on, &work, pin.as_deref(), section.shows("longest_script_ms")) {
                            Ok(figures) => point.extend(figures),
                            Err(error) => self.report.left_out(format!("{} at {}", curve.name, label(x)), error),
                        }
                    }
                }
                // The way to the server is as long as it was measured.
                if let Some(trip) = point.get("trip_p50_us").copied() {
                    point.insert("x".into(), trip / 1e3);
                }
                section.add(&label(x), point);
            }
        }
        self.servers.clear();
        self.report.sections.push(section);
    }

    fn point(&mut self, curve: &Curve, on: On, work: &Work, pin: Option<&str>, watched: bool) -> Outcome<Sample> {
        let program = Language::Rust.program()?;
        let subject = Subject { name: curve.subject, program: &program, sends: SCRIPTS };
        let mut figures = self.measure(&subject, on, work, pin, watched)?;
        // Curves show grants, not hand-overs, and messages from push to settlement.
        for metric in ["acquisitions_per_s", "total_per_s"] {
            figures.extend(figures.get(metric).copied().map(|value| ("per_s".to_owned(), value)));
        }
        Ok(figures.into_iter().map(|(metric, value)| (format!("{}_{metric}", curve.name), value)).collect())
    }

    /// One measurement on a tidy server.
    fn measure(
        &mut self,
        subject: &Subject<'_>,
        on: On,
        work: &Work,
        pin: Option<&str>,
        watched: bool,
    ) -> Outcome<Sample> {
        let On(kind, way) = on;
        let server = self.server(kind)?;
        server.tidy()?;
        let jobs = self.jobs(subject, &*server, on, work)?;
        if watched {
            server.watch_scripts()?;
        }
        let empty = if work.what == "renew" { server.memory()? } else { f64::NAN };
        let mut workers = Vec::new();
        for job in &jobs {
            workers.push(Worker::prepared(subject.program, pin, job)?);
        }
        let mut extra = Sample::new();
        if work.what == "renew" {
            let locks = jobs[0].count as f64;
            extra.insert("server_bytes".into(), (server.memory()? - empty) / locks);
            if let Some((open, bytes)) = server.connections()? {
                let clients = work.workers as f64;
                extra.insert("connections".into(), ((open - 1.0) / clients).round());
                // The server looks at each client once a second, and few are through with their locks before that.
                extra.extend((clients >= 1e3).then(|| ("connection_bytes".to_owned(), bytes / clients)));
            }
        }
        if let Some(work) = work.beside {
            let job = &self.jobs(subject, &*server, on, work)?[0];
            let mut worker = vec![Worker::prepared(subject.program, pin, job)?];
            let taken = take(&mut worker, &*server, None)?;
            extra.extend(taken.figures(subject, work)?);
        }
        server.before_it_begins(way)?;
        let window = ["renew", "idle"].contains(&work.what).then(|| jobs[0].millis - BEFORE_THE_END);
        let taken = take(&mut workers, &*server, window)?;
        let mut figures = extra;
        figures.extend(taken.figures(subject, work)?);
        figures.extend(server.figure().map(|(name, value)| (name.to_owned(), value)));
        if watched {
            figures.extend(server.longest_script()?.map(|millis| ("longest_script_ms".to_owned(), millis)));
        }
        if work.what == "renew" && jobs[0].count < ENOUGH as usize {
            figures.retain(|metric, _| !["client_bytes", "server_bytes"].contains(&metric.as_str()));
        }
        Ok(figures)
    }

    /// The server of this kind, which is started with the first row that needs it.
    fn server(&mut self, kind: Kind) -> Outcome<Rc<dyn Server>> {
        if let Some((_, server)) = self.servers.iter().find(|(started, _)| *started == kind) {
            return Ok(server.clone()?);
        }
        let server = servers::start(kind, &self.pins).map_err(|error| error.to_string());
        if let Some((name, version)) = server.as_ref().ok().and_then(|server| server.version()) {
            self.report.about(name, version);
        }
        self.servers.push((kind, server.clone()));
        Ok(server?)
    }

    /// One for each process, with a name that nothing was measured with before.
    fn jobs(&mut self, subject: &Subject<'_>, server: &dyn Server, On(_, way): On, work: &Work) -> Outcome<Vec<Job>> {
        self.measured += 1;
        let job = Job {
            what: work.what.into(),
            subject: subject.name.into(),
            ports: server.ports(way)?,
            path: server.folder(),
            name: work.queue.map_or_else(|| format!("compare-{}-{}", work.what, self.measured), str::to_owned),
            workers: work.workers / work.processes,
            millis: self.pick(work.millis),
            count: self.pick(work.count),
            batch: work.batch,
            bytes: work.bytes,
            threads: work.threads,
        };
        Ok(vec![job; work.processes])
    }
}

/// What came of one measurement.
struct Taken {
    answers: Vec<Value>,
    counters: Counters,
    /// The seconds that the counters are about, where those are fixed.
    seconds: f64,
}

/// All begin together; in between and at the end the server's counters are read. With a window, they are read when it ends,
/// while the workers still wait.
fn take(workers: &mut [Worker], server: &dyn Server, window: Option<u64>) -> Outcome<Taken> {
    let before = server.counters()?;
    for worker in &mut *workers {
        worker.go()?;
    }
    let mut after = None;
    if let Some(millis) = window {
        std::thread::sleep(Duration::from_millis(millis));
        after = Some(server.counters()?);
    }
    let answers = workers.iter_mut().map(Worker::answer).collect::<Outcome<Vec<_>>>()?;
    let after = after.map_or_else(|| server.counters(), Ok)?;
    Ok(Taken { answers, counters: after.since(&before), seconds: window.unwrap_or_default() as f64 / 1e3 })
}

impl Taken {
    /// The numbers of the answers, with the server's and the clients' share for each thing done.
    fn figures(&self, subject: &Subject<'_>, work: &Work) -> Outcome<Sample> {
        let Self { answers, counters, seconds } = self;
        let mut figures = match work.what {
            "contend" => history::figures(answers, work.workers)?,
            _ => numbers(&answers[0]),
        };
        if work.what == "renew" {
            renewals(&mut figures, counters, *seconds);
        } else if work.what == "idle" {
            figures.insert("commands_per_s".into(), counters.calls(subject.sends) / seconds);
        } else if let Some(used) = answers.iter().map(|answer| answer["cpu_s"].as_f64()).sum::<Option<f64>>() {
            let things = figures["n"].max(1.0);
            let (client_us, server_us) = (used * 1e6 / things, counters.cpu_us / things);
            let of_each = [
                ("client_us", client_us),
                ("server_us", server_us),
                ("cpu_us", client_us + server_us),
                ("round_trips", counters.reads / things),
                ("commands", counters.calls(subject.sends) / things),
            ];
            figures.extend(of_each.map(|(metric, value)| (metric.to_owned(), value)));
        }
        let faults = ["overlaps", "fences_back"].map(|fault| figures.get(fault).copied().unwrap_or_default());
        if faults.iter().sum::<f64>() > 0.0 {
            eprintln!(" {}: {} overlaps, {} fences that fell;", subject.name, faults[0], faults[1]);
        }
        Ok(figures)
    }
}

/// The numbers of an answer.
fn numbers(answer: &Value) -> Sample {
    let numbers = answer.as_object().into_iter().flatten();
    numbers.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect()
}

/// What held locks cost, of which each is renewed once in a period.
fn renewals(figures: &mut Sample, counters: &Counters, seconds: f64) {
    let (locks, client_core) = (figures["n"], figures["client_core"]);
    let (renewals, server_core) = (locks * seconds / PERIOD, counters.cpu_us / 1e6 / seconds);
    let mut all = vec![
        ("server_core", server_core),
        ("server_percent", server_core * 100.0),
        ("client_percent", client_core * 100.0),
    ];
    if locks >= ENOUGH {
        all.extend([
            ("renewal_us", counters.cpu_us / renewals),
            ("renewal_client_us", client_core * PERIOD * 1e6 / locks),
            ("per_request", renewals / counters.calls(&["eval", "evalsha"]).max(1.0)),
        ]);
    }
    figures.extend(all.into_iter().map(|(metric, value)| (metric.to_owned(), value)));
}
