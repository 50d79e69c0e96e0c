//! The watch of the locks of one client, and who is woken by it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::{Event, EventType};
use tenure_core::driver::Watch;
use tenure_core::{OwnerToken, Result};

use crate::keys::{Keyspace, Parsed};
use crate::link::Link;
use crate::standing::{Audience, Standing};
use crate::view::{Change, View};

#[derive(Debug)]
pub(crate) struct Watcher(Arc<Standing<Places>>);

/// The view of the queues that this client waits in, and the keys that it is made of.
pub(crate) struct Places {
    keyspace: Keyspace,
    view: Mutex<View>,
}

/// A request on its way, for the view.
pub(crate) struct Asking<'a> {
    watcher: &'a Watcher,
    name: &'a [u8],
    pub(crate) epoch: u64,
}

impl Watcher {
    pub(crate) fn new(link: Arc<Link>, keyspace: Keyspace) -> Self {
        Self(Standing::new(link, Places { keyspace, view: Mutex::default() }))
    }

    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.0.audience.view()
    }

    pub(crate) fn asking<'a>(&'a self, name: &'a [u8]) -> Asking<'a> {
        Asking { watcher: self, name, epoch: self.view().asks(name) }
    }

    /// Listens for a token, once the watch stands.
    pub(crate) async fn listen(&self, name: &[u8], token: OwnerToken) -> Result<Watch> {
        self.0.ensure_live().await?;
        let (handle, watch) = Watch::channel();
        let (standing, name) = (Arc::clone(&self.0), name.to_vec());
        self.view().listen(&name, token, handle);
        Ok(watch.on_drop(move || standing.audience.view().unlisten(&name, &token)))
    }

    pub(crate) async fn close(&self) {
        self.0.close().await;
    }

    pub(crate) fn abort(&self) {
        self.0.abort();
    }
}

impl Places {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, view: &mut View, event: &Event) {
        let Some(key) = event.kv() else { return };
        let put = event.event_type() == EventType::Put;
        match self.keyspace.parse(key.key()) {
            Parsed::Hold(name) => {
                view.change(name, key.mod_revision(), if put { Change::Held } else { Change::Freed });
            }
            Parsed::Wait(name, token) => {
                let change = if put { Change::Joined(token, key.create_revision()) } else { Change::Left(token) };
                view.change(name, key.mod_revision(), change);
            }
            Parsed::Foreign => {}
        }
    }
}

impl Audience for Places {
    fn root(&self) -> &[u8] {
        self.keyspace.root()
    }

    fn take_in(&self, events: &[Event]) {
        let mut view = self.view();
        events.iter().for_each(|event| self.change(&mut view, event));
    }

    /// Everybody asks again.
    fn gap(&self) {
        self.view().gap();
    }

    fn is_empty(&self) -> bool {
        self.view().is_empty()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.watcher.view().asked(self.name);
    }
}
