//! The client processes: started, killed, stopped, and started again.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tenure_conformance::BoxError;
use tenure_conformance::worker::Worker;

use super::client::Orders;
use super::options::Options;

/// For the first line of a process, which it prints before it connects to the servers.
const START: Duration = Duration::from_secs(20);
/// For its last line; the caller that waits for it has its own limit.
const END: Duration = Duration::from_secs(3_600);

pub(super) struct Processes {
    options: Options,
    folder: PathBuf,
    /// Where each process finds the servers.
    urls: Vec<String>,
    workers: Vec<Option<Worker>>,
    lives: Vec<u32>,
}

impl Processes {
    pub(super) async fn start(options: &Options, folder: PathBuf, urls: Vec<String>) -> Result<Self, BoxError> {
        let (workers, lives) = (urls.iter().map(|_| None).collect(), vec![0; urls.len()]);
        let mut processes = Self { options: options.clone(), folder, urls, workers, lives };
        for process in 0..processes.urls.len() {
            processes.begin(process).await?;
        }
        Ok(processes)
    }

    /// Starts a process that is not there.
    async fn begin(&mut self, process: usize) -> Result<(), BoxError> {
        let life = self.lives[process];
        let log = self.folder.join(format!("client-{process}-{life}.log"));
        let orders = Orders::new(&self.options, self.urls[process].clone(), log, process, life);
        let mut command = Command::new(&self.options.program);
        command.arg("--client").args(orders.words());
        let started = tokio::time::timeout(START, Worker::start(command, END)).await;
        let worker = started.map_err(|_| "a client process does not start")?.map_err(|failure| failure.to_string())?;
        self.workers[process] = Some(worker);
        Ok(())
    }

    pub(super) fn size(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn life(&self, process: usize) -> u32 {
        self.lives[process]
    }

    fn worker(&mut self, process: usize) -> Result<&mut Worker, BoxError> {
        Ok(self.workers[process].as_mut().ok_or("the process is dead")?)
    }

    pub(super) fn kill(&mut self, process: usize) -> Result<(), BoxError> {
        Ok(self.worker(process)?.kill().map_err(|failure| failure.to_string())?)
    }

    pub(super) fn stop(&mut self, process: usize) -> Result<(), BoxError> {
        Ok(self.worker(process)?.stop().map_err(|failure| failure.to_string())?)
    }

    pub(super) fn go_on(&mut self, process: usize) -> Result<(), BoxError> {
        Ok(self.worker(process)?.go_on().map_err(|failure| failure.to_string())?)
    }

    /// Starts a killed process again, as the next life of its number.
    pub(super) async fn revive(&mut self, process: usize) -> Result<(), BoxError> {
        self.workers[process] = None;
        self.lives[process] += 1;
        self.begin(process).await
    }

    /// Announces the end of the faults to all processes, and waits until they have ended, at most for `patience`. Kills those
    /// that have not, and returns whether there was none.
    pub(super) async fn end(mut self, patience: Duration) -> Result<bool, BoxError> {
        for process in 0..self.size() {
            self.worker(process)?.send("calm").map_err(|failure| failure.to_string())?;
        }
        let deadline = tokio::time::Instant::now() + patience;
        let mut all = true;
        for worker in self.workers.iter_mut().flatten() {
            let said = tokio::time::timeout_at(deadline, worker.expect("end")).await;
            all &= said.is_ok_and(|said| said.is_ok());
        }
        Ok(all) // what is left of the processes is killed by its drop
    }
}
