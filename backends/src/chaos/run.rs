//! A whole run: servers, processes, faults, the end, and the judgement.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tenure_conformance::BoxError;
use tenure_conformance::history::Assumption;
use tenure_conformance::worker::monotonic;
use tenure_testkit::{TcpProxy, TempDir};

use super::event::{self, Event};
use super::jobs::{self, Remains};
use super::judge::{Ending, Seen, judge};
use super::nemesis::Nemesis;
use super::options::{Options, Subject};
use super::processes::Processes;
use super::report::Report;
use super::servers::Servers;

/// Runs it and judges it.
///
/// # Errors
///
/// It could not be run: servers or processes do not start, or a log cannot be read. What the judge finds is in the
/// report.
///
/// # Cancel safety
///
/// Dropping the future kills everything that was started.
pub async fn run(options: &Options) -> Result<Report, BoxError> {
    let temporary = TempDir::new("chaos")?;
    let folder = options.logs.clone().unwrap_or_else(|| temporary.path().to_owned());
    fs::create_dir_all(&folder)?;
    if fs::read_dir(&folder)?.next().is_some() {
        return Err(format!(
            "{}: has files in it, and logs of another run would be judged with these",
            folder.display()
        )
        .into());
    }
    let began = monotonic();
    let servers = options.profile.start(options.data)?;
    let rows = if options.profile.shares_links() { 1 } else { options.processes };
    let proxies = (0..rows)
        .map(|_| servers.ports().into_iter().map(TcpProxy::start).collect::<Result<Vec<_>, _>>())
        .collect::<Result<Vec<_>, _>>()?;
    let at = |ports: &[u16]| servers.url().unwrap_or_else(|| options.profile.url(ports, options.data));
    let url = |proxies: &Vec<TcpProxy>| at(&proxies.iter().map(TcpProxy::port).collect::<Vec<_>>());
    let direct = at(&servers.ports());
    let processes =
        Processes::start(options, folder.clone(), proxies.iter().map(url).cycle().take(options.processes).collect())
            .await?;
    let mut nemesis = Nemesis::new(options, servers, proxies, processes);
    nemesis.run().await?;
    let calm = monotonic();
    let Nemesis { mut servers, processes, faults, .. } = nemesis;
    let alive = (0..processes.size()).map(|process| (process, processes.life(process))).collect();
    let settle = match options.subject {
        Subject::Locks | Subject::Guards => options.profile.settle,
        // Messages that were pushed during the faults take no longer to be consumed without them.
        Subject::Queue => options.profile.settle + options.span,
    };
    let patience = options.patience.unwrap_or(settle).mul_f64(options.slack);
    let all_ended = processes.end(patience).await?;
    let settled = monotonic();
    let remains = match options.subject {
        Subject::Queue if all_ended => Some(jobs::empty(&direct).await?),
        Subject::Queue => Some(Remains::default()),
        Subject::Locks | Subject::Guards => None,
    };
    // What lives is not judged by what it leaves.
    let left = if all_ended {
        what_is_left(&mut *servers, options.profile.clean.mul_f64(options.slack)).await?
    } else {
        Vec::new()
    };
    let tasks = match options.subject {
        Subject::Locks | Subject::Guards => options.tasks + 2 * options.steady,
        Subject::Queue => jobs::TASKS,
    };
    let (commits, lost) = balance(&servers.books()?)?;
    let left = left.into_iter().chain(remains.iter().flat_map(|remains| remains.odd.clone())).chain(lost).collect();
    let ending = Ending { alive, tasks, span: (calm, settled), left };
    let counters = match options.subject {
        Subject::Guards => format!("{commits} guarded transactions; {}", servers.counters()?),
        Subject::Locks | Subject::Queue => servers.counters()?,
    };
    let events = read_all(&folder)?;
    let assumption = match options.profile.excludes_over(options.data) {
        true => Assumption::Timed,
        false => Assumption::Asynchronous,
    };
    let violations = judge(
        &Seen { events: &events, faults: &faults, assumption, bounds: options.profile.bounds(options.slack) },
        &ending,
        remains.as_ref(),
    );
    Ok(Report { options: options.clone(), began, events, faults, ending, counters, violations })
}

/// How many guarded transactions were committed, and the names whose number is another.
fn balance(books: &str) -> Result<(u64, Vec<String>), BoxError> {
    let (mut all, mut lost) = (0, Vec::new());
    for line in books.lines() {
        let [name, commits, value] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("not a line of the books: {line}").into());
        };
        all += commits.parse::<u64>()?;
        if commits != value {
            lost.push(format!("lost updates: {name} has {commits} commits, and its number is {value}"));
        }
    }
    Ok((all, lost))
}

/// Looks until nothing is left, at most for so long.
async fn what_is_left(servers: &mut dyn Servers, limit: Duration) -> Result<Vec<String>, BoxError> {
    let deadline = monotonic() + limit;
    loop {
        let left = servers.left()?;
        if left.is_empty() || monotonic() > deadline {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The events of all processes, in the order of their instants.
fn read_all(folder: &Path) -> Result<Vec<Event>, BoxError> {
    let mut events = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("client-")) {
            events.extend(event::read(&fs::read_to_string(path)?)?);
        }
    }
    events.sort_by_key(|event| (event.at, event.by));
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::balance;

    #[test]
    fn a_number_that_is_not_the_count_of_commits_is_a_lost_update() {
        assert_eq!(balance("").unwrap(), (0, vec![]));
        let (all, lost) = balance("a\t3\t3\nb\t168\t152").unwrap();
        assert_eq!((all, lost), (171, vec!["lost updates: b has 168 commits, and its number is 152".to_owned()]));
        assert!(balance("a 3").is_err());
    }
}
