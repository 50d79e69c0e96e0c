//! The orders of a client process.

use std::path::PathBuf;
use std::time::Duration;

use tenure_conformance::{BoxError, Rng};

use crate::chaos::options::{Options, Subject};

/// The orders of a client process, from its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::chaos) struct Orders {
    pub(super) url: String,
    pub(super) log: PathBuf,
    pub(super) process: usize,
    pub(super) life: u32,
    pub(super) seed: u64,
    pub(super) processes: usize,
    pub(super) tasks: u32,
    pub(super) names: u32,
    pub(super) steady: u32,
    pub(super) ttl: Duration,
    pub(super) subject: Subject,
    pub(super) broken: Option<String>,
}

impl Orders {
    pub(in crate::chaos) fn new(options: &Options, url: String, log: PathBuf, process: usize, life: u32) -> Self {
        let Options { seed, processes, tasks, names, steady, ref broken, .. } = *options;
        let (ttl, subject, broken) = (options.profile.ttl, options.subject, broken.clone());
        Self { url, log, process, life, seed, processes, tasks, names, steady, ttl, subject, broken }
    }

    pub(in crate::chaos) fn words(&self) -> Vec<String> {
        let Self { process, life, seed, processes, tasks, names, steady, .. } = self;
        let numbers = format!("{process} {life} {seed} {processes} {tasks} {names} {steady} {}", self.ttl.as_millis());
        let places = [self.url.clone(), self.log.display().to_string()];
        let subject = match self.subject {
            Subject::Queue => "queue",
            Subject::Guards => "guards",
            Subject::Locks => "locks",
        };
        let words = places.into_iter().chain(numbers.split(' ').map(String::from)).chain([subject.into()]);
        words.chain(self.broken.clone()).collect()
    }

    pub(super) fn parse(words: &[String]) -> Result<Self, BoxError> {
        let [url, log, process, life, seed, processes, tasks, names, steady, ttl, subject, broken @ ..] = words else {
            return Err("not the words of a client process".into());
        };
        Ok(Self {
            url: url.clone(),
            log: log.into(),
            process: process.parse()?,
            life: life.parse()?,
            seed: seed.parse()?,
            processes: processes.parse()?,
            tasks: tasks.parse()?,
            names: names.parse()?,
            steady: steady.parse()?,
            ttl: Duration::from_millis(ttl.parse()?),
            subject: match subject.as_str() {
                "queue" => Subject::Queue,
                "guards" => Subject::Guards,
                _ => Subject::Locks,
            },
            broken: broken.first().cloned(),
        })
    }

    /// The randomness of a task.
    pub(super) fn rng(&self, task: u32) -> Rng {
        let mut mixed = Rng::new(self.seed);
        let salt = (self.process as u64) << 40 | u64::from(self.life) << 20 | u64::from(task);
        Rng::new(mixed.bits() ^ salt)
    }
}
