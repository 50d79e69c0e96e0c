//! A client process: tasks that take locks in every way there is, and a log of what they saw.
//!
//! It prints `ready`, runs until it reads `calm`, lets every task take its lock once more, closes its client and prints
//! `end`. When its input ends, it ends at once.

mod books;
mod holding;
mod orders;
mod recorder;
mod task;
mod turn;

use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use tenure::Client;
use tenure::redis::{RedisConfig, RedisDriver};
use tenure::redlock::Redlock;
use tenure_conformance::{BoxError, mutants};
use tenure_core::driver::{Backend, BackendUrl};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::event::What;
use super::jobs;
use super::options::Subject;
pub(super) use orders::Orders;
pub(super) use recorder::{Recorder, failed};
use task::{Role, Task};

/// How long closing the client may take.
const CLOSE: Duration = Duration::from_secs(10);

/// Runs as a client process, as these words say.
///
/// # Errors
///
/// The words make no sense, or the log cannot be written.
///
/// # Cancel safety
///
/// Dropping the future leaves the locks to their ttls.
pub async fn serve(words: &[String]) -> Result<(), BoxError> {
    let orders = Orders::parse(words)?;
    let recorder = Recorder::create(&orders.log, orders.process, orders.life)?;
    let calm = listen();
    say("ready")?;
    let (backend, quorum) = connect(&orders, &recorder).await?;
    let client = Client::new(backend);
    let mut tasks = JoinSet::new();
    match orders.subject {
        Subject::Locks | Subject::Guards => roles(&orders).into_iter().for_each(|(number, role)| {
            tasks.spawn(Task::new(&client, recorder.clone(), calm.clone(), &orders, number, role).run());
        }),
        Subject::Queue => {
            jobs::spawn(&mut tasks, &client, &recorder, &calm, |task| orders.rng(task), orders.broken.as_deref())?
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    if let Some(counted) = quorum.map(|quorum| quorum.elections()) {
        recorder.of_process(What::Elections { won: counted.won, in_one_round: counted.won_in_one_round })?;
    }
    let outcome = client.close(CLOSE).await.map_or_else(|error| error.to_string(), |()| "ok".into());
    let left = client.stats();
    let (holds, waiters, cleanups) = (left.holds, left.waiters, left.cleanups);
    recorder.of_process(What::Closed { outcome, holds, waiters, cleanups })?;
    say("end")
}

/// The tasks: some take turns on the hot names; a steady one has a name of its own, or another process's.
fn roles(orders: &Orders) -> Vec<(u32, Role)> {
    let hot = (0..orders.tasks).map(|_| Role::Hot { names: orders.names });
    let other = (orders.process + 1) % orders.processes;
    let steady = (0..orders.steady).flat_map(|number| {
        [orders.process, other].map(|owner| Role::Steady { name: super::options::steady_name(owner, number) })
    });
    (1..).zip(hot.chain(steady)).collect()
}

/// The state that arrives on standard input, as it changes: whether the faults have ended.
fn listen() -> watch::Receiver<bool> {
    let (tell, calm) = watch::channel(false);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            tell.send_replace(line == "calm");
        }
        std::process::exit(1); // whoever started this process is gone
    });
    calm
}

fn say(line: &str) -> Result<(), BoxError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Reaches the backend, however long that takes: the servers may be down just now.
async fn connect(orders: &Orders, recorder: &Recorder) -> Result<(Backend, Option<Redlock>), BoxError> {
    let (backend, quorum) = loop {
        match reach(&orders.url).await {
            Ok(reached) => break reached,
            Err(error) => recorder.of_process(recorder::failed(&error))?,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let mutant = mutants::all().find(|mutant| orders.broken.as_deref() == Some(mutant.id));
    Ok((mutant.into_iter().fold(backend, |backend, mutant| mutant.over(backend)), quorum))
}

/// The backend, and the quorum if it is one, to be asked for its figures.
async fn reach(url: &str) -> tenure::Result<(Backend, Option<Redlock>)> {
    let Some(servers) = url.strip_prefix("redlock+") else { return Ok((crate::connect(url).await?, None)) };
    let mut url = BackendUrl::parse(servers)?;
    let builder = Redlock::builder().settings_from_url(&mut url)?;
    let nodes = RedisDriver::connect_nodes(&RedisConfig::read_nodes(url)?).await?;
    let quorum = builder.nodes(nodes).build()?;
    Ok((quorum.clone().into(), Some(quorum)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::options::Options;

    #[test]
    fn orders_arrive_as_they_were_given() {
        let mut options = Options::new("chaos".into(), "redis/single").unwrap();
        for broken in [None, Some("exclusion/none".to_owned())] {
            options.broken = broken;
            options.subject = Subject::Guards;
            let orders = Orders::new(&options, "redis://host".into(), "log".into(), 2, 7);
            assert_eq!(Orders::parse(&orders.words()).unwrap(), orders);
        }
        assert!(Orders::parse(&["x".into()]).is_err());
    }

    #[test]
    fn every_steady_name_is_wanted_by_two_processes() {
        let options = Options::new("chaos".into(), "redis/single").unwrap();
        let mut wanted = std::collections::BTreeMap::new();
        for process in 0..options.processes {
            let orders = Orders::new(&options, String::new(), "log".into(), process, 0);
            for (_, role) in roles(&orders) {
                if let Role::Steady { name } = role {
                    *wanted.entry(name).or_insert(0) += 1;
                }
            }
        }
        assert_eq!(wanted.len(), options.processes * options.steady as usize);
        assert!(wanted.values().all(|count| *count == 2), "{wanted:?}");
    }
}
