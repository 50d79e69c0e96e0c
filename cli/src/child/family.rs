//! The processes that descend from this one, as `/proc` lists them, and which of them belong to one program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustix::process::{Pid, Signal, getpgid, getpgrp, getpid, getppid, getsid, kill_process, kill_process_group};

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: i32,
    group: i32,
    session: i32,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name of the program is in parentheses and may hold anything, including parentheses.
    fn read(line: &str) -> Option<Self> {
        let mut rest = line.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = rest.next()?.chars().next()?;
        let mut number = || rest.next()?.parse().ok();
        Some(Self { state, parent: number()?, group: number()?, session: number()? })
    }

    fn is_alive(self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

fn all() -> BTreeMap<i32, Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, Stat::of(pid)?))).collect()
}

/// The children that this process had before it started any: a program that ran it by `exec` may have left some.
#[derive(Debug)]
pub(crate) struct Family {
    strangers: BTreeSet<i32>,
}

impl Family {
    /// To be called before the first child is started.
    pub(crate) fn before_any() -> Self {
        let own = getpid().as_raw_nonzero().get();
        let children = all().into_iter().filter(|(_, stat)| stat.parent == own);
        Self { strangers: children.map(|(pid, _)| pid).collect() }
    }

    /// Who lives of those that were started: children, their children, and so on. As the subreaper, this process has every
    /// orphan of them for a child, in whatever group or session it is.
    pub(crate) fn members(&self, kin: &Kin) -> Vec<Pid> {
        let all = all();
        let mut found = self.members_in(&all, getpid().as_raw_nonzero().get());
        if let Kin { leader: Some(leader), mark: Some(mark), .. } = kin {
            let leader = leader.as_raw_nonzero().get();
            let below = descendants(&all, leader, &BTreeSet::new());
            found.retain(|pid| {
                *pid == leader || below.contains(pid) || all[pid].group == leader || environment_has(*pid, mark)
            });
        }
        found.into_iter().filter_map(Pid::from_raw).collect()
    }

    fn members_in(&self, all: &BTreeMap<i32, Stat>, own: i32) -> BTreeSet<i32> {
        descendants(all, own, &self.strangers)
    }

    /// Sends a signal to every one of them: to those of the leader's group at once, which none of them escapes by a fork, and to the
    /// others one by one. Stopped processes continue, unless the signal stops them, since a stopped process would not receive it.
    pub(crate) fn signal(&self, signal: Signal, kin: &Kin) {
        let resumes = signal != Signal::STOP;
        let group = kin.group();
        if let Some(group) = group {
            let _ = kill_process_group(group, signal); // it may have ended meanwhile
            if resumes {
                let _ = kill_process_group(group, Signal::CONT);
            }
        }
        for pid in self.members(kin).into_iter().filter(|pid| group.is_none() || getpgid(Some(*pid)).ok() != group) {
            let _ = kill_process(pid, signal);
            if resumes {
                let _ = kill_process(pid, Signal::CONT);
            }
        }
    }

    /// Whether there were children before.
    pub(crate) fn has_strangers(&self) -> bool {
        !self.strangers.is_empty()
    }
}

/// Which of the descendants are meant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kin {
    /// The first process of its group.
    leader: Option<Pid>,
    /// The leader was waited for: its number may be another's.
    ended: bool,
    /// One program among several: what descends from its leader, the group, and orphans with this variable in their environment.
    mark: Option<Vec<u8>>,
}

impl Kin {
    /// All of this program's.
    pub(crate) fn all() -> Self {
        Self::default()
    }

    /// Of the only program that there is.
    pub(crate) fn of_only(leader: Pid) -> Self {
        Self { leader: Some(leader), ..Self::default() }
    }

    /// Of one program among several; `mark` is a variable of its environment, as `NAME=value`.
    pub(crate) fn of(leader: Pid, mark: Vec<u8>) -> Self {
        Self { leader: Some(leader), ended: false, mark: Some(mark) }
    }

    pub(crate) fn leader_has_ended(&mut self) {
        self.ended = true;
    }

    /// Whether others may be there that do not belong to it.
    pub(crate) fn has_neighbours(&self) -> bool {
        self.mark.is_some()
    }

    /// The group, as long as its number cannot be another's.
    pub(crate) fn group(&self) -> Option<Pid> {
        self.leader.filter(|_| !self.ended)
    }
}

fn descendants(all: &BTreeMap<i32, Stat>, of: i32, but: &BTreeSet<i32>) -> BTreeSet<i32> {
    let (mut parents, mut found) = (vec![of], BTreeSet::new());
    while let Some(parent) = parents.pop() {
        for (pid, stat) in all.iter().filter(|(_, stat)| stat.parent == parent) {
            let known = parent == of && but.contains(pid);
            if !known && stat.is_alive() && found.insert(*pid) {
                parents.push(*pid);
            }
        }
    }
    found
}

/// Whether this variable, as `NAME=value`, was in the environment that the process began with.
fn environment_has(pid: i32, variable: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable)
}

/// The others of this process's group, which the terminal's own stop did not reach.
pub(crate) fn companions() -> Vec<Pid> {
    let (own, group) = (getpid().as_raw_nonzero().get(), getpgrp().as_raw_nonzero().get());
    let others = all().into_iter().filter(|(pid, stat)| *pid != own && stat.group == group && stat.is_alive());
    others.filter_map(|(pid, _)| Pid::from_raw(pid)).collect()
}

/// Whether a shell with job control would continue this process if it stopped. Such a shell is in the same session, and in
/// another group. Without one (a service, a container) the system itself ignores `^Z`.
pub(crate) fn has_job_control() -> bool {
    let (Ok(session), Some(parent)) = (getsid(None), getppid()) else { return false };
    let (session, group) = (session.as_raw_nonzero().get(), getpgrp().as_raw_nonzero().get());
    let mut ancestor = parent.as_raw_nonzero().get();
    while let Some(stat) = Stat::of(ancestor) {
        if stat.session != session {
            return false;
        }
        if stat.group != group {
            return true;
        }
        ancestor = stat.parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_mislead() {
        let stat = Stat::read("42 (a) S 7 (b)) T 1 40 39 34816 42 4194304 0").unwrap();
        assert_eq!(stat, Stat { state: 'T', parent: 1, group: 40, session: 39 });
        assert!(stat.is_alive());
        assert_eq!(Stat::read("42 (a"), None);
    }

    #[test]
    fn strangers_and_the_dead_are_no_members() {
        let stat = |state, parent| Stat { state, parent, group: 1, session: 1 };
        let all = BTreeMap::from([
            (10, stat('S', 1)),  // we
            (11, stat('S', 10)), // a child
            (12, stat('T', 11)), // its child
            (13, stat('Z', 10)), // dead
            (14, stat('S', 10)), // was there before
            (15, stat('S', 14)), // its child
            (16, stat('S', 2)),  // somebody's
        ]);
        let family = Family { strangers: BTreeSet::from([14]) };
        assert_eq!(family.members_in(&all, 10), BTreeSet::from([11, 12]));
    }
}
