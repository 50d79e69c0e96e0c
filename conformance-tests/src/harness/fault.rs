//! The faults that a harness can inject into its server.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tenure_core::LockName;
use tenure_core::queue::QueueName;

use super::BoxError;

/// A fault of the server. A harness declares which kinds it can inject.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The lease of this name ends now, as if its ttl had passed.
    ExpireLease(LockName),
    /// Every connection of every client is cut once.
    CutConnections,
    /// Every open connection of every client now loses all data, in both directions, and is not closed. New connections
    /// work.
    SilenceConnections,
    /// The server admits two connections at a time from now on, and closes others at once. Healing admits all again.
    FewConnections,
    /// The server refuses writes from now on, over connections that stay open; new ones lead to an empty server that accepts writes.
    /// Nothing is healed.
    DemoteServer,
    /// A transaction of an application pushes a message to this queue and stays open until healed, which commits it.
    OpenPush(OpenPush),
    /// More than two days pass for the server. Nothing is healed.
    PassDays,
    /// Cuts only the connections that carry wake-ups, once.
    CutNotifications,
    /// Wake-ups are dropped until healed; everything else works.
    MuteNotifications,
    /// The server stops until healed; connections stay open. It executes the requests of that time afterwards.
    PauseServer,
    /// The server is killed; healing starts it again.
    KillServer(Data),
    /// Scripts, prepared statements and the like are forgotten.
    ForgetScripts,
    /// The server's wall clock is moved; healing moves it back.
    JumpServerClock(ClockStep),
}

/// A message that an application pushes in a transaction.
#[derive(Clone, Debug)]
pub struct OpenPush {
    /// The queue.
    pub queue: QueueName,
    /// The caller's id of the message, if it has one.
    pub id: Option<String>,
}

/// The data that a killed server keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// All acknowledged data.
    Kept,
    /// No data.
    Lost,
}

/// A step of a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockStep {
    /// Into the future.
    Forward(Duration),
    /// Into the past.
    Back(Duration),
}

/// The kind of a [`Fault`], to be declared at list time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// [`Fault::ExpireLease`]
    ExpireLease,
    /// [`Fault::CutConnections`]
    CutConnections,
    /// [`Fault::SilenceConnections`]
    SilenceConnections,
    /// [`Fault::FewConnections`]
    FewConnections,
    /// [`Fault::DemoteServer`]
    DemoteServer,
    /// [`Fault::OpenPush`]
    OpenPush,
    /// [`Fault::PassDays`]
    PassDays,
    /// [`Fault::CutNotifications`]
    CutNotifications,
    /// [`Fault::MuteNotifications`]
    MuteNotifications,
    /// [`Fault::PauseServer`]
    PauseServer,
    /// [`Fault::KillServer`] with [`Data::Kept`]
    RestartKeepingData,
    /// [`Fault::KillServer`] with [`Data::Lost`]
    RestartLosingData,
    /// [`Fault::ForgetScripts`]
    ForgetScripts,
    /// [`Fault::JumpServerClock`]
    JumpServerClock,
}

impl Fault {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> FaultKind {
        match self {
            Self::ExpireLease(_) => FaultKind::ExpireLease,
            Self::CutConnections => FaultKind::CutConnections,
            Self::SilenceConnections => FaultKind::SilenceConnections,
            Self::FewConnections => FaultKind::FewConnections,
            Self::DemoteServer => FaultKind::DemoteServer,
            Self::OpenPush(_) => FaultKind::OpenPush,
            Self::PassDays => FaultKind::PassDays,
            Self::CutNotifications => FaultKind::CutNotifications,
            Self::MuteNotifications => FaultKind::MuteNotifications,
            Self::PauseServer => FaultKind::PauseServer,
            Self::KillServer(Data::Kept) => FaultKind::RestartKeepingData,
            Self::KillServer(Data::Lost) => FaultKind::RestartLosingData,
            Self::ForgetScripts => FaultKind::ForgetScripts,
            Self::JumpServerClock(_) => FaultKind::JumpServerClock,
        }
    }
}

impl FaultKind {
    /// Whether the fault affects only the name of the case that injects it. Every other fault affects the whole server,
    /// so its cases get a separate harness.
    #[must_use]
    pub const fn is_local(self) -> bool {
        matches!(self, Self::ExpireLease)
    }
}

/// Ends a fault. Dropped without [`heal`](Healer::heal), it heals in the background.
#[must_use = "a fault lasts until it is healed"]
pub struct Healer(Option<BoxFuture<'static, Result<(), BoxError>>>);

impl Healer {
    /// A healer that runs `heal`.
    pub fn new(heal: impl Future<Output = Result<(), BoxError>> + Send + 'static) -> Self {
        Self(Some(Box::pin(heal)))
    }

    /// For a fault that has ended when it has been injected.
    pub const fn nothing() -> Self {
        Self(None)
    }

    /// Ends the fault and returns when the server is as before.
    ///
    /// # Errors
    ///
    /// The reason why the harness could not.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the fault in an unknown state.
    pub async fn heal(mut self) -> Result<(), BoxError> {
        match self.0.take() {
            Some(heal) => heal.await,
            None => Ok(()),
        }
    }
}

impl Drop for Healer {
    fn drop(&mut self) {
        if let (Some(heal), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(heal);
        }
    }
}

impl fmt::Debug for Healer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Healer")
    }
}
