//! The processes that descend from this one, as `/proc` tells them.

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

    /// The name of the program stands in parentheses and may hold anything, parentheses as well.
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

/// The children that this process had before it started any: whoever ran it by `exec` may have left some.
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
    pub(crate) fn members(&self) -> Vec<Pid> {
        self.members_in(&all(), getpid().as_raw_nonzero().get())
    }

    fn members_in(&self, all: &BTreeMap<i32, Stat>, own: i32) -> Vec<Pid> {
        let (mut parents, mut found) = (vec![own], BTreeSet::new());
        while let Some(parent) = parents.pop() {
            for (pid, stat) in all.iter().filter(|(_, stat)| stat.parent == parent) {
                let known = parent == own && self.strangers.contains(pid);
                if !known && found.insert(*pid) && stat.is_alive() {
                    parents.push(*pid);
                }
            }
        }
        found.into_iter().filter(|pid| all[pid].is_alive()).filter_map(Pid::from_raw).collect()
    }

    /// Sends a signal to every one of them: to those of the group at once, which none of them escapes by a fork, and to the
    /// others one by one. `group` is that of a leader who was not waited for yet: later the number could be somebody else's.
    /// What stopped goes on, since a stopped process would not hear it.
    pub(crate) fn signal(&self, signal: Signal, group: Option<Pid>) {
        if let Some(group) = group {
            let _ = kill_process_group(group, signal); // it may have ended meanwhile
            let _ = kill_process_group(group, Signal::CONT);
        }
        for pid in self.members().into_iter().filter(|pid| group.is_none() || getpgid(Some(*pid)).ok() != group) {
            let _ = kill_process(pid, signal);
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Whether there were children before.
    pub(crate) fn has_strangers(&self) -> bool {
        !self.strangers.is_empty()
    }
}

/// The others of this process's group, which the terminal's own stop did not reach.
pub(crate) fn companions() -> Vec<Pid> {
    let (own, group) = (getpid().as_raw_nonzero().get(), getpgrp().as_raw_nonzero().get());
    let others = all().into_iter().filter(|(pid, stat)| *pid != own && stat.group == group && stat.is_alive());
    others.filter_map(|(pid, _)| Pid::from_raw(pid)).collect()
}

/// Whether somebody would let this process go on if it stopped: a shell with job control, which is in the same session, and in
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
        let members: Vec<i32> = family.members_in(&all, 10).into_iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        assert_eq!(members, [11, 12]);
    }
}
