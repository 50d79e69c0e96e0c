//! Harms clients, servers and connections, in an order that the seed decides, and mends everything again.

use std::time::Duration;

use tenure_conformance::worker::monotonic;
use tenure_conformance::{BoxError, Rng};
use tenure_testkit::{Link, TcpProxy};

use super::fault::{Fault, Harmed};
use super::options::Options;
use super::processes::Processes;
use super::servers::Servers;

/// A fault that is to be mended.
struct Open {
    /// Its place among all faults.
    number: usize,
    until: Duration,
}

pub(super) struct Nemesis {
    options: Options,
    rng: Rng,
    pub(super) servers: Box<dyn Servers>,
    /// Of each process, or shared by all, one before each server.
    proxies: Vec<Vec<TcpProxy>>,
    pub(super) processes: Processes,
    pub(super) faults: Vec<Fault>,
    open: Vec<Open>,
}

fn millis(span: u64) -> Duration {
    Duration::from_millis(span)
}

impl Nemesis {
    pub(super) fn new(
        options: &Options,
        servers: Box<dyn Servers>,
        proxies: Vec<Vec<TcpProxy>>,
        processes: Processes,
    ) -> Self {
        let rng = Rng::new(options.seed);
        let mut options = options.clone();
        options.harm.links &= servers.url().is_none();
        Self { options, rng, servers, proxies, processes, faults: Vec::new(), open: Vec::new() }
    }

    /// Does something every now and then, for as long as the options say; then everything works again.
    pub(super) async fn run(&mut self) -> Result<(), BoxError> {
        let end = monotonic() + self.options.span;
        while monotonic() < end {
            tokio::time::sleep(millis(30 + self.rng.below(370))).await;
            self.mend(monotonic()).await?;
            self.harm()?;
        }
        self.mend(Duration::MAX).await
    }

    /// One more fault, if the chosen target can be harmed.
    fn harm(&mut self) -> Result<(), BoxError> {
        let harm = self.options.harm;
        match self.rng.below(100) {
            0..=24 if harm.clients => self.harm_client(),
            25..=39 if harm.servers => self.stop_server(),
            40..=46 if harm.servers => self.kill_server(),
            47 if harm.servers => self.outage(),
            48..=62 if harm.servers => self.disturb_server(),
            63..=80 if harm.links => self.harm_links(),
            _ => Ok(()),
        }
    }

    /// Notes a fault before it is done; one with a span is mended at its end.
    fn begin(&mut self, what: Harmed, span: Option<Duration>) -> usize {
        let at = monotonic();
        self.faults.push(Fault { at, end: None, what });
        let number = self.faults.len() - 1;
        self.open.extend(span.map(|span| Open { number, until: at + span }));
        number
    }

    fn is_open(&self, what: impl Fn(&Harmed) -> bool) -> bool {
        self.open.iter().any(|open| what(&self.faults[open.number].what))
    }

    fn harm_client(&mut self) -> Result<(), BoxError> {
        let process = self.rng.below(self.processes.size() as u64) as usize;
        let is_harmed = |what: &Harmed| matches!(what, Harmed::ClientKilled { process: p, .. } | Harmed::ClientStopped { process: p, .. } if *p == process);
        if self.is_open(is_harmed) {
            return Ok(());
        }
        let life = self.processes.life(process);
        if self.rng.below(3) == 0 {
            let span = millis(self.rng.below(600));
            self.begin(Harmed::ClientKilled { process, life }, Some(span));
            return self.processes.kill(process);
        }
        let most = if self.rng.below(3) == 0 { self.options.profile.ttl * 5 / 2 } else { millis(300) };
        let span = millis(20 + self.rng.below(most.as_millis() as u64));
        self.begin(Harmed::ClientStopped { process, life }, Some(span));
        self.processes.stop(process)
    }

    fn harmed_servers(&self) -> Vec<usize> {
        let node = |open: &Open| match self.faults[open.number].what {
            Harmed::ServerKilled { node } | Harmed::ServerStopped { node } => Some(node),
            _ => None,
        };
        self.open.iter().filter_map(node).collect()
    }

    /// A server to be harmed next; the leader as often as any other. Mostly a majority is left alone, so that there is
    /// something to be broken.
    fn working_server(&mut self) -> Option<usize> {
        let (count, harmed) = (self.servers.ports().len(), self.harmed_servers());
        if count > 1 && harmed.len() >= (count - 1) / 2 && self.rng.below(10) > 0 {
            return None;
        }
        let node = match harmed.is_empty().then(|| self.servers.leader()).flatten() {
            Some(leader) if self.rng.below(2) == 0 => leader,
            _ => self.rng.below(count as u64) as usize,
        };
        (!harmed.contains(&node)).then_some(node)
    }

    fn stop_server(&mut self) -> Result<(), BoxError> {
        let Some(node) = self.working_server() else { return Ok(()) };
        // A third of the stops outlast the leases.
        let ttl = self.options.profile.ttl.as_millis() as u64;
        let span = if self.rng.below(3) == 0 { ttl + self.rng.below(ttl) } else { 20 + self.rng.below(700) };
        self.begin(Harmed::ServerStopped { node }, Some(millis(span)));
        self.servers.stop(node)
    }

    fn kill_server(&mut self) -> Result<(), BoxError> {
        let Some(node) = self.working_server() else { return Ok(()) };
        let span = millis(self.rng.below(800));
        self.begin(Harmed::ServerKilled { node }, Some(span));
        self.servers.kill(node)
    }

    /// So many at once, and for so long, that every holder of a lock loses it.
    fn outage(&mut self) -> Result<(), BoxError> {
        let (count, span) = (self.servers.ports().len(), self.options.profile.ttl * 9 / 5);
        for node in 0..count {
            let harmed = self.harmed_servers();
            if harmed.len() * 2 <= count && !harmed.contains(&node) {
                self.begin(Harmed::ServerStopped { node }, Some(span));
                self.servers.stop(node)?;
            }
        }
        Ok(())
    }

    fn disturb_server(&mut self) -> Result<(), BoxError> {
        let node = self.rng.below(self.servers.ports().len() as u64) as usize;
        if self.harmed_servers().contains(&node) {
            return Ok(());
        }
        let number = self.begin(Harmed::ServerDisturbed { node, how: String::new() }, None);
        let how = self.servers.disturb(node, &mut self.rng)?;
        let fault = &mut self.faults[number];
        (fault.end, fault.what) = (Some(monotonic()), Harmed::ServerDisturbed { node, how });
        Ok(())
    }

    fn harm_links(&mut self) -> Result<(), BoxError> {
        if self.is_open(|what| matches!(what, Harmed::LinksBad { .. })) {
            return Ok(());
        }
        let ttl = self.options.profile.ttl.as_millis() as u64;
        let span = if self.rng.below(3) == 0 { ttl + self.rng.below(ttl) } else { 20 + self.rng.below(400) };
        let (link, how) = match self.rng.below(6) {
            0 | 1 => return self.cut_links(),
            2 | 3 => (Link::Jammed, "late"),
            4 => (Link::Silent, "silent"),
            _ => (Link::LosesReplies, "without replies"),
        };
        self.begin(Harmed::LinksBad { how }, Some(millis(span)));
        for proxy in self.some_links() {
            proxy.set_new(link);
            proxy.set_present(link);
        }
        Ok(())
    }

    fn cut_links(&mut self) -> Result<(), BoxError> {
        let number = self.begin(Harmed::LinksCut, None);
        self.some_links().for_each(TcpProxy::cut);
        self.faults[number].end = Some(monotonic());
        Ok(())
    }

    /// The connections of one process, or of all to one server.
    fn some_links(&mut self) -> impl Iterator<Item = &TcpProxy> {
        let count = self.servers.ports().len();
        let process = self.rng.below(self.proxies.len() as u64) as usize;
        let server = self.rng.below(count as u64) as usize;
        let of_process = self.proxies.len() > 1 && self.rng.below(2) == 0;
        let chosen = move |row: usize, node: usize| if of_process { row == process } else { node == server };
        let rows = self.proxies.iter().enumerate();
        rows.flat_map(move |(row, proxies)| {
            proxies.iter().enumerate().filter(move |(node, _)| chosen(row, *node)).map(|(_, proxy)| proxy)
        })
    }

    /// Mends all faults whose span has ended at that time.
    async fn mend(&mut self, now: Duration) -> Result<(), BoxError> {
        let due: Vec<Open> = self.open.extract_if(.., |open| open.until <= now).collect();
        for Open { number, .. } in due {
            match self.faults[number].what.clone() {
                Harmed::ClientKilled { process, .. } => self.processes.revive(process).await?,
                Harmed::ClientStopped { process, .. } => self.processes.go_on(process)?,
                Harmed::ServerKilled { node } => self.servers.start(node)?,
                Harmed::ServerStopped { node } => self.servers.go_on(node)?,
                Harmed::LinksBad { how } => self.mend_links(how),
                Harmed::ServerDisturbed { .. } | Harmed::LinksCut => {}
            }
            self.faults[number].end = Some(monotonic());
        }
        Ok(())
    }

    /// Late bytes arrive now. Connections that lost bytes are closed: no network delivers bytes behind a hole.
    fn mend_links(&self, how: &str) {
        for proxy in self.proxies.iter().flatten() {
            proxy.set_new(Link::Open);
            if how == "late" { proxy.set_present(Link::Open) } else { proxy.cut() }
        }
    }
}
