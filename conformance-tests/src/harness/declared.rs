//! A maker's declaration of its backend, before the suite connects to anything.

use std::time::Duration;

use tenure_core::driver::{
    CensusCapabilities, LockCapabilities, PermitCapabilities, QueueCapabilities, ReentrantCapabilities,
};

use super::FaultKind;

/// The promises of a backend and the abilities of its harness, known without I/O. The selection of cases depends on
/// this alone; the case `meta/declared-matches-driver` compares it with the live driver.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The promises of the driver's plain locks.
    pub locks: LockCapabilities,
    /// The promises of its re-entrant locks, if it has them.
    pub reentrant: Option<ReentrantCapabilities>,
    /// The promises of its semaphores and read-write locks, if it has them.
    pub permits: Option<PermitCapabilities>,
    /// The promises of its delay queues, if it has them.
    pub queue: Option<QueueCapabilities>,
    /// Whether its queues have the operations of [`QueueAdmin`](tenure_core::driver::QueueAdmin).
    pub administration: Administration,
    /// The promises of its list of held locks, if it has one.
    pub census: Option<CensusCapabilities>,
    /// The faults that the harness can inject into the server.
    pub faults: Vec<FaultKind>,
    /// The clock of the backend.
    pub time: Time,
    /// Whether other processes can reach the same backend.
    pub processes: Processes,
    /// Whether the harness can look at the raw store.
    pub leftovers: Leftovers,
    /// Whether the harness can open a backend with a floor for fences.
    pub floors: Floors,
    /// Whether the suite's clients pass leases on among their own waiters.
    pub passing: Passing,
    /// The time within which a released lock passes over a waiter whose process was killed, on an idle machine.
    pub past_killed_waiters: Option<Duration>,
    /// The time after which a silent connection is given up, in addition to the time that an answer may take.
    pub silence: Duration,
}

/// Whether a driver has operations on the stored messages of its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Administration {
    /// It does not: they are refused.
    None,
    /// It has all of them.
    Full,
}

/// The clock of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Time {
    /// Tokio's: the suite pauses it, and a wait of an hour takes no time.
    Virtual,
    /// The machine's.
    Real,
}

/// Whether [`Harness::worker_command`](super::Harness::worker_command) returns a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Processes {
    /// It does not: the cases with several processes are ignored.
    Single,
    /// It does.
    Several,
}

/// Whether [`Harness::inspector`](super::Harness::inspector) returns an inspector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leftovers {
    /// It does not.
    Hidden,
    /// It does.
    Visible,
}

/// Whether [`Harness::backend_beyond`](super::Harness::backend_beyond) returns a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Floors {
    /// It does not: the driver has no floor to set.
    Fixed,
    /// It does.
    Settable,
}

/// Whether the suite's clients pass leases on among their own waiters, if the driver can reserve fences for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Passing {
    /// They do, as clients do by default.
    On,
    /// Every waiter waits at the backend.
    Off,
}

impl Declared {
    /// Plain locks on the machine's clock, one process, no faults, no inspector.
    #[must_use]
    pub fn new(locks: LockCapabilities) -> Self {
        Self {
            locks,
            reentrant: None,
            permits: None,
            queue: None,
            administration: Administration::None,
            census: None,
            faults: Vec::new(),
            time: Time::Real,
            processes: Processes::Single,
            leftovers: Leftovers::Hidden,
            floors: Floors::Fixed,
            passing: Passing::On,
            past_killed_waiters: None,
            silence: Duration::from_secs(5),
        }
    }

    /// Lets every waiter wait at the backend.
    #[must_use]
    pub fn without_passing(mut self) -> Self {
        self.passing = Passing::Off;
        self
    }

    /// Adds re-entrant locks.
    #[must_use]
    pub fn reentrant(mut self, reentrant: ReentrantCapabilities) -> Self {
        self.reentrant = Some(reentrant);
        self
    }

    /// Adds semaphores, and read-write locks if they are declared.
    #[must_use]
    pub fn permits(mut self, permits: PermitCapabilities) -> Self {
        self.permits = Some(permits);
        self
    }

    /// Adds delay queues, with operations on stored messages.
    #[must_use]
    pub fn queue(mut self, queue: QueueCapabilities) -> Self {
        self.queue = Some(queue);
        self.administration = Administration::Full;
        self
    }

    /// Takes the operations on stored messages away: the driver has no
    /// [`QueueAdmin`](tenure_core::driver::QueueAdmin).
    #[must_use]
    pub fn without_queue_admin(mut self) -> Self {
        self.administration = Administration::None;
        self
    }

    /// Adds the list of held locks.
    #[must_use]
    pub fn census(mut self, census: CensusCapabilities) -> Self {
        self.census = Some(census);
        self
    }

    /// Adds faults that the harness can inject.
    #[must_use]
    pub fn faults(mut self, kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        self.faults.extend(kinds);
        self
    }

    /// Runs the cases on a paused clock.
    #[must_use]
    pub fn virtual_time(mut self) -> Self {
        self.time = Time::Virtual;
        self
    }

    /// Declares that the harness returns a worker command.
    #[must_use]
    pub fn several_processes(mut self) -> Self {
        self.processes = Processes::Several;
        self
    }

    /// Declares that a silent connection is given up within this time, in addition to the time that an answer may take.
    /// Default: 5 s.
    #[must_use]
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// Declares the time within which a released lock passes over a waiter whose process was killed, whatever its
    /// presence.
    #[must_use]
    pub fn past_killed_waiters(mut self, within: Duration) -> Self {
        self.past_killed_waiters = Some(within);
        self
    }

    /// Declares that the harness opens backends with a floor for fences.
    #[must_use]
    pub fn fence_floors(mut self) -> Self {
        self.floors = Floors::Settable;
        self
    }

    /// Declares that the harness returns an inspector.
    #[must_use]
    pub fn visible_leftovers(mut self) -> Self {
        self.leftovers = Leftovers::Visible;
        self
    }
}
