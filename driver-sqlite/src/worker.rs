//! The thread that owns the file: it runs all queued requests in one transaction.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use crate::bell::Bell;
use crate::config::SqliteConfig;
use crate::error::{Done, misconfigured, of_system};
use crate::store::{Store, Turn};

/// The most requests of one transaction.
const BATCH: usize = 64;

/// Does its part in the transaction, if there is one; the function it returns sends the answer, after the commit or its failure.
type Job = Box<dyn FnOnce(Option<&mut Store>) -> Tell + Send>;
type Tell = Box<dyn FnOnce(&Result<()>)>;

/// The way to the thread. Its last handle ends it.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: Mutex<Option<Sender<Job>>>,
    bell: Arc<Bell>,
    ended: Mutex<Option<oneshot::Receiver<()>>>,
    process: u32,
}

impl Worker {
    /// Opens the file in a thread of its own.
    pub(crate) async fn start(config: SqliteConfig) -> Result<Self> {
        let (sender, jobs) = mpsc::channel();
        let (opened, open) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("tenure-sqlite".into());
        let spawned = thread.spawn(move || {
            let _end = end;
            match Store::open(&config) {
                Ok(mut store) => {
                    if opened.send(Ok(store.bell())).is_ok() {
                        work(&mut store, &jobs);
                    }
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        });
        spawned.map_err(|error| of_system("start a thread for the database", error))?;
        let bell = open.await.map_err(|_| died())??;
        let process = std::process::id();
        Ok(Self { jobs: Mutex::new(Some(sender)), bell, ended: Mutex::new(Some(ended)), process })
    }

    /// Where wake-ups arrive.
    pub(crate) fn bell(&self) -> Result<&Bell> {
        self.ensure_open().map(|()| &*self.bell)
    }

    /// Does one request in a transaction. It is done also if the caller no longer waits for the answer.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Turn<'_>) -> Done<T> + Send + 'static,
    ) -> Result<T> {
        self.ensure_open()?;
        let (tell, reported) = oneshot::channel();
        let job: Job = Box::new(move |store| {
            let done = store.map(|store| store.part(work));
            Box::new(move |ended| {
                let answer = match (done, ended) {
                    (Some(Err(error)), _) => Err(error),
                    (_, Err(error)) => Err(error.again()),
                    (Some(Ok(answer)), Ok(())) => Ok(answer),
                    (None, Ok(())) => Err(died()), // nothing was begun, so nothing ended well
                };
                drop(tell.send(answer)); // the caller may be gone
            })
        });
        {
            let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.as_ref().ok_or_else(closed)?.send(job).map_err(|_| died())?;
        }
        reported.await.map_err(|_| died().with_kind(ErrorKind::Indeterminate))?
    }

    fn ensure_open(&self) -> Result<()> {
        if self.process != std::process::id() {
            return Err(misconfigured("the database was opened before this process was forked; open it again"));
        }
        match self.jobs.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            true => Ok(()),
            false => Err(closed()),
        }
    }

    /// Ends the thread once all sent requests are done.
    pub(crate) async fn close(&self) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(jobs);
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended
            && self.process == std::process::id()
        {
            let _ = ended.await; // its sender is dropped, never used
        }
    }
}

fn work(store: &mut Store, jobs: &Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut first = Some(first);
        let mut answers: Vec<Tell> = Vec::new();
        let ended = store.transact(|store| {
            let mut next = first.take();
            while let Some(job) = next {
                answers.push(job(Some(&mut *store)));
                next = if answers.len() < BATCH { jobs.try_recv().ok() } else { None };
            }
        });
        if let Some(first) = first {
            // There was no transaction; the requests behind this one get their own answers.
            answers.push(first(None));
        }
        answers.into_iter().for_each(|tell| tell(&ended));
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the driver was closed")
}

fn died() -> Error {
    Error::new(ErrorKind::Unavailable, "the thread of the database has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_of_the_process_that_opened_the_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(folder.path().join("locks.db")).unwrap();
        let mut worker = Worker::start(config).await.unwrap();
        worker.ask(|_| Ok(())).await.unwrap();
        worker.process += 1; // as a fork sees it: the same memory in another process
        let error = worker.ask(|_| Ok(())).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Misconfigured && error.to_string().contains("forked"), "{error}");
        worker.close().await; // does not wait for a thread that is not there
    }

    #[tokio::test]
    async fn a_request_that_fails_undoes_itself_alone() {
        let folder = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(folder.path().join("locks.db")).unwrap();
        let worker = Worker::start(config).await.unwrap();
        let bury = |number: i64, fails: bool| {
            worker.ask(move |turn| {
                turn.db.execute("INSERT INTO grave (name, token, until) VALUES (x'00', ?1, ?1)", [number])?;
                if fails { Err(misconfigured("as the test wants").into()) } else { Ok(()) }
            })
        };
        let (one, two, three) = tokio::join!(bury(1, false), bury(2, true), bury(3, false));
        assert!(one.is_ok() && two.is_err() && three.is_ok());
        let left = worker.ask(|turn| {
            Ok(turn.db.query_row("SELECT group_concat(until) FROM grave", [], |row| row.get::<_, String>(0))?)
        });
        assert_eq!(left.await.unwrap(), "1,3");
    }
}
