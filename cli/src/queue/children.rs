//! The processes that handle messages: who waits for which, and what is left of their groups.

use std::cell::RefCell;
use std::collections::HashMap;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, wait, waitid, waitpid};
use tokio::sync::oneshot;

use crate::run::ChildEnd;

/// All processes that were started and have not ended.
#[derive(Debug, Default)]
pub(super) struct Children {
    expected: RefCell<HashMap<Pid, oneshot::Sender<ChildEnd>>>,
}

impl Children {
    /// Tells the end of this process, the first of its group.
    pub(super) fn expect(&self, leader: Pid) -> oneshot::Receiver<ChildEnd> {
        let (tell, told) = oneshot::channel();
        self.expected.borrow_mut().insert(leader, tell);
        told
    }

    /// Takes note of everybody who has ended. What a program left in its group is killed while the number of the group is
    /// still its own: before anybody waits for the program.
    pub(super) fn reap(&self) {
        let leaders: Vec<Pid> = self.expected.borrow().keys().copied().collect();
        for leader in leaders {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            if let Ok(Some(_)) = waitid(WaitId::Pid(leader), look) {
                let _ = kill_process_group(leader, Signal::KILL);
                if let Ok(Some((_, status))) = waitpid(Some(leader), WaitOptions::NOHANG) {
                    self.tell(leader, ChildEnd::of(status));
                }
            }
        }
        // As process 1 of a container every orphan is a child.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.tell(pid, ChildEnd::of(status));
        }
    }

    fn tell(&self, pid: Pid, end: Option<ChildEnd>) {
        if let (Some(end), Some(told)) = (end, self.expected.borrow_mut().remove(&pid)) {
            let _ = told.send(end);
        }
    }
}
