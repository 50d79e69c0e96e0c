//! An etcd cluster of a test's own.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::dir::TempDir;
use crate::port::free_port;
use crate::wait::eventually;

/// Number of attempts with other ports when one was taken meanwhile.
const PORT_ATTEMPTS: u32 = 5;

/// Options of an [`EtcdCluster`]; by default plain text, etcd's own timing, and data in memory where there is plenty.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    program: Option<PathBuf>,
    on_disk: bool,
    tls: Option<EtcdCertificates>,
    args: Vec<String>,
}

/// PEM files for the members of a cluster.
#[derive(Clone, Debug)]
pub struct EtcdCertificates {
    /// The servers' certificate, for `127.0.0.1` and `localhost`.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority of the clients' certificates; with it, clients without one are refused.
    pub client_ca: Option<PathBuf>,
}

impl EtcdOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts this program, in place of `etcd` (or what `TENURE_ETCD_BIN` names).
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Serves clients over TLS.
    #[must_use]
    pub fn tls(mut self, certificates: EtcdCertificates) -> Self {
        self.tls = Some(certificates);
        self
    }

    /// Keeps the data on the disk, whose writes etcd waits for: for measurements.
    #[must_use]
    pub fn on_disk(mut self) -> Self {
        self.on_disk = true;
        self
    }

    /// One more flag, without its dashes: `flag("election-timeout", "500")`.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.args.push(format!("--{name}={value}"));
        self
    }
}

/// A running cluster of one or several members on free ports of loopback. Killed when dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    options: EtcdOptions,
    dir: TempDir,
}

#[derive(Debug)]
struct Member {
    child: Option<Child>,
    client: u16,
    peer: u16,
    metrics: u16,
}

impl EtcdCluster {
    /// Starts a cluster of one member, and waits until it serves.
    ///
    /// # Errors
    ///
    /// As [`EtcdCluster::start`].
    pub fn single(options: EtcdOptions) -> io::Result<Self> {
        Self::start(options, 1)
    }

    /// Starts a cluster of `size` members, and waits until all of them serve.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when `etcd` (or what `TENURE_ETCD_BIN` names) is not installed; otherwise what kept
    /// it from starting, with the ends of its logs.
    pub fn start(options: EtcdOptions, size: usize) -> io::Result<Self> {
        let mut attempt = 1;
        loop {
            let dir = if options.on_disk { TempDir::new("etcd") } else { TempDir::in_memory("etcd") }?;
            let mut cluster = Self { members: Vec::new(), options: options.clone(), dir };
            for _ in 0..size {
                let (client, peer, metrics) = (free_port()?, free_port()?, free_port()?);
                cluster.members.push(Member { child: None, client, peer, metrics });
            }
            let started = (0..size).try_for_each(|index| cluster.spawn(index)).and_then(|()| cluster.serving());
            match started {
                Ok(()) => return Ok(cluster),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempt < PORT_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// How many members there are, running or not.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The client ports, in the order of the members.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.members.iter().map(|member| member.client).collect()
    }

    /// The URL of all members, as tenure reads it, in plain text.
    #[must_use]
    pub fn url(&self) -> String {
        Self::url_of(&self.ports())
    }

    /// The URL of these ports of loopback, such as those of [`TcpProxy`](crate::TcpProxy)s.
    #[must_use]
    pub fn url_of(ports: &[u16]) -> String {
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("etcd://{}", hosts.join(","))
    }

    /// The member that leads now, once there is one that is not paused.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] when no member leads.
    pub fn leader(&self) -> io::Result<usize> {
        eventually("a leader", || {
            (0..self.size()).find(|index| self.metric(*index, "etcd_server_is_leader").is_ok_and(|value| value == 1.0))
        })
    }

    /// The sum of all series of a member's metric whose line begins with `prefix`.
    ///
    /// # Errors
    ///
    /// Those of asking; a member that is paused or gone does not answer.
    pub fn metric(&self, member: usize, prefix: &str) -> io::Result<f64> {
        let page = http_get(self.members[member].metrics, "/metrics")?;
        let values = page.lines().filter(|line| line.starts_with(prefix));
        Ok(values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Stops a member without closing anything (SIGSTOP); returns when it has stopped.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] when it is not running.
    pub fn pause(&mut self, member: usize) -> io::Result<()> {
        let pid = self.signal(member, Signal::STOP)?;
        let stat = PathBuf::from(format!("/proc/{pid}/stat"));
        if !stat.exists() {
            return Ok(()); // no such file system here: the signal has to do
        }
        eventually("the member to stand still", || {
            let text = fs::read_to_string(&stat).unwrap_or_default();
            text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T')).then_some(())
        })
    }

    /// Resumes a paused member (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] when it is not running.
    pub fn resume(&mut self, member: usize) -> io::Result<()> {
        self.signal(member, Signal::CONT).map(drop)
    }

    /// Kills a member (SIGKILL) and waits for its end. Killing twice is fine.
    ///
    /// # Errors
    ///
    /// Those of signalling and waiting.
    pub fn kill(&mut self, member: usize) -> io::Result<()> {
        let Some(mut child) = self.members[member].child.take() else { return Ok(()) };
        child.kill()?;
        child.wait().map(drop)
    }

    /// Kills a member if it runs, starts it again with its data, and waits until it serves.
    ///
    /// # Errors
    ///
    /// Those of [`EtcdCluster::start`].
    pub fn restart(&mut self, member: usize) -> io::Result<()> {
        self.kill(member)?;
        self.spawn(member)?;
        self.serves(member)
    }

    /// Starts a member that was killed, with its data, and does not wait: without a majority it does not serve.
    ///
    /// # Errors
    ///
    /// Those of starting a process.
    pub fn start_member(&mut self, member: usize) -> io::Result<()> {
        self.kill(member)?;
        self.spawn(member)
    }

    /// Kills every member that runs, and starts all of them with their data.
    ///
    /// # Errors
    ///
    /// Those of [`EtcdCluster::start`].
    pub fn restart_all(&mut self) -> io::Result<()> {
        (0..self.size()).try_for_each(|index| self.kill(index))?;
        (0..self.size()).try_for_each(|index| self.spawn(index))?;
        self.serving()
    }

    /// Kills every member, and starts all of them with nothing.
    ///
    /// # Errors
    ///
    /// Those of [`EtcdCluster::start`].
    pub fn restart_empty(&mut self) -> io::Result<()> {
        for index in 0..self.size() {
            self.kill(index)?;
            let _ = fs::remove_dir_all(self.dir.path().join(index.to_string()));
        }
        (0..self.size()).try_for_each(|index| self.spawn(index))?;
        self.serving()
    }

    fn signal(&self, member: usize, signal: Signal) -> io::Result<u32> {
        let child = self.members[member].child.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        kill_process(Pid::from_child(child), signal)?;
        Ok(child.id())
    }

    fn spawn(&mut self, index: usize) -> io::Result<()> {
        let usual = || std::env::var_os("TENURE_ETCD_BIN").map_or_else(|| "etcd".into(), PathBuf::from);
        let program = self.options.program.clone().unwrap_or_else(usual);
        let peers: Vec<_> = self.members.iter().map(|member| format!("http://127.0.0.1:{}", member.peer)).collect();
        let all: Vec<_> = peers.iter().enumerate().map(|(index, peer)| format!("m{index}={peer}")).collect();
        let Member { client, metrics, .. } = &self.members[index];
        let scheme = if self.options.tls.is_some() { "https" } else { "http" };
        let (clients, metrics) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{metrics}"));
        let log = self.dir.path().join(format!("log{index}"));
        let mut command = Command::new(&program);
        command
            .arg(format!("--name=m{index}"))
            .arg(format!("--data-dir={}", self.dir.path().join(index.to_string()).display()))
            .args([format!("--listen-client-urls={clients}"), format!("--advertise-client-urls={clients}")])
            .args([format!("--listen-peer-urls={}", peers[index]), format!("--listen-metrics-urls={metrics}")])
            .args([format!("--initial-advertise-peer-urls={}", peers[index])])
            .args([format!("--initial-cluster={}", all.join(","))])
            .args(["--initial-cluster-state=new", "--logger=zap", "--log-level=warn"])
            .args(&self.options.args)
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH.replace("aarch64", "arm64"))
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        if let Some(tls) = &self.options.tls {
            command.arg(format!("--cert-file={}", tls.cert.display()));
            command.arg(format!("--key-file={}", tls.key.display()));
            if let Some(ca) = &tls.client_ca {
                command.arg("--client-cert-auth").arg(format!("--trusted-ca-file={}", ca.display()));
            }
        }
        let child = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display())))?;
        self.members[index].child = Some(child);
        Ok(())
    }

    fn serving(&mut self) -> io::Result<()> {
        (0..self.size()).try_for_each(|index| self.serves(index))
    }

    /// Waits until a member serves; an error when it ends instead.
    fn serves(&mut self, index: usize) -> io::Result<()> {
        let member = &mut self.members[index];
        let served = eventually("the member to serve", || {
            match member.child.as_mut().map(Child::try_wait).transpose().map(Option::flatten) {
                Ok(Some(status)) => return Some(Err(io::Error::other(format!("the member ended with {status}")))),
                Err(error) => return Some(Err(error)),
                Ok(None) => {}
            }
            http_get(member.metrics, "/health").is_ok_and(|page| page.contains("\"true\"")).then_some(Ok(()))
        });
        let Err(error) = served.and_then(|served| served) else { return Ok(()) };
        let log = fs::read_to_string(self.dir.path().join(format!("log{index}"))).unwrap_or_default();
        if log.contains("address already in use") {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Err(io::Error::new(error.kind(), format!("{error}; the member's log:\n{log}")))
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for index in 0..self.size() {
            let _ = self.kill(index);
        }
    }
}

fn http_get(port: u16, path: &str) -> io::Result<String> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), limit)?;
    stream.set_read_timeout(Some(limit))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}
