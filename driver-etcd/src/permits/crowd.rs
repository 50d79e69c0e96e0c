//! The waiters of this client: a copy of each name that they wait for, kept up to date by a watch.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Event, EventType};
use tenure_core::driver::{Share, WakeHandle, Watch};
use tenure_core::rules::locks::CLAIM_WINDOW;
use tenure_core::{OwnerToken, Result};
use tokio::time::Instant;

use super::seen::{Held, MOST_HOLDERS, Seen, Waiter, read_value};
use crate::keys::{ParsedPermit, PermitSpace, Spot};
use crate::lasting_watch::{Audience, LastingWatch};
use crate::link::Link;

/// How many events of a name are remembered, for answers that arrive after them.
const MOST_EVENTS: usize = 1_024;

#[derive(Clone, Debug)]
pub(crate) struct Crowds(Arc<LastingWatch<Names>>);

/// The names that this client waits for.
pub(crate) struct Names {
    space: PermitSpace,
    view: Mutex<View>,
}

#[derive(Debug, Default)]
struct View {
    names: HashMap<Vec<u8>, Name>,
    /// Counts the beginnings of the watch: an answer read before one says nothing of the name after it.
    epoch: u64,
}

#[derive(Debug, Default)]
struct Name {
    local: HashMap<OwnerToken, WakeHandle>,
    copy: Option<Copy>,
    recent: VecDeque<(i64, Change)>,
    /// Events up to this revision may be missing.
    forgotten: i64,
}

/// A copy of a name.
#[derive(Debug)]
struct Copy {
    /// The revision of the answer that it began with.
    read_at: i64,
    holds: HashMap<OwnerToken, Share>,
    growth: Option<(OwnerToken, Share)>,
    /// Whether the hold that waits to weigh more was woken.
    growth_called: bool,
    line: BTreeMap<Spot, Share>,
    /// The last place that is known, if others are behind it.
    horizon: Option<Spot>,
    /// The waiters that fit, and since when they do.
    called: BTreeMap<Spot, Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Held(OwnerToken, Share),
    Freed(OwnerToken),
    Grows(OwnerToken, Share),
    GrowsNoMore,
    Joined(Spot, Share),
    Left(Spot),
}

impl Crowds {
    pub(crate) fn new(link: Arc<Link>, space: PermitSpace) -> Self {
        Self(LastingWatch::new(link, Names { space, view: Mutex::default() }))
    }

    /// Returns when the watch is open; an answer to a later request is of the returned epoch.
    pub(super) async fn ensure_live(&self) -> Result<u64> {
        self.0.ensure_live().await?;
        Ok(self.view().epoch)
    }

    pub(super) fn listen(&self, base: &[u8], token: OwnerToken) -> Watch {
        let (handle, watch) = Watch::channel();
        let (crowds, base) = (Arc::clone(&self.0), base.to_vec());
        self.view().names.entry(base.clone()).or_default().local.insert(token, handle);
        watch.on_drop(move || {
            let mut view = crowds.audience.view();
            let Some(name) = view.names.get_mut(&base) else { return };
            name.local.remove(&token);
            if name.local.is_empty() {
                view.names.remove(&base);
            }
        })
    }

    /// Takes in what a request of this token read.
    pub(super) fn take_in(&self, base: &[u8], epoch: u64, token: &OwnerToken, seen: &Seen) {
        let mut view = self.view();
        if epoch == view.epoch
            && let Some(name) = view.names.get_mut(base)
        {
            name.read(token, seen);
        }
    }

    /// The waiters before a place that have left their room alone for too long, among those that a request has just
    /// read; and the time after which the first of the others will have, if the place is the next one behind them.
    pub(super) fn silent(&self, base: &[u8], spot: &Spot, seen: &Seen) -> (Vec<Waiter>, Option<Duration>) {
        let view = self.view();
        let Some(copy) = view.names.get(base).and_then(|name| name.copy.as_ref()) else { return (Vec::new(), None) };
        let before = || copy.called.range(..*spot);
        let has_passed = |spot: &Spot| copy.called.get(spot).is_some_and(|since| since.elapsed() >= CLAIM_WINDOW);
        let silent = seen.front.iter().enumerate().filter(|(at, waiter)| {
            let is_before = waiter.place.spot < *spot && has_passed(&waiter.place.spot);
            is_before && seen.fits(u32::try_from(*at).unwrap_or(u32::MAX), waiter.share)
        });
        let silent = silent.map(|(_, waiter)| *waiter).collect();
        let is_next = copy.line.range(..*spot).count() == before().count();
        let left = before().map(|(_, since)| CLAIM_WINDOW.saturating_sub(since.elapsed())).min();
        (silent, left.filter(|_| is_next))
    }

    pub(crate) async fn close(&self) {
        self.0.close().await;
    }

    pub(crate) fn abort(&self) {
        self.0.abort();
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.0.audience.view()
    }
}

impl Name {
    fn read(&mut self, token: &OwnerToken, seen: &Seen) {
        if self.copy.as_ref().is_some_and(|copy| copy.read_at >= seen.revision) {
            return;
        }
        if seen.revision < self.forgotten {
            // It is too old. Without a copy the token would wait for nothing: it asks again.
            if self.copy.is_none() {
                self.local.get(token).iter().for_each(|handle| handle.wake());
            }
            return;
        }
        let mut copy = Copy::of(seen);
        if let Some(last) = self.copy.take() {
            (copy.called, copy.growth_called) = (last.called, last.growth_called && last.growth == copy.growth);
        }
        self.recent.iter().for_each(|(revision, change)| copy.apply(*revision, change));
        copy.serve(&self.local);
        // Events may have ended the place that the answer has.
        if seen.own.is_some_and(|own| copy.is_gone(&own.place.spot)) {
            self.local.get(token).iter().for_each(|handle| handle.wake());
        }
        self.copy = Some(copy);
    }

    fn happened(&mut self, revision: i64, change: Change) {
        if self.recent.len() == MOST_EVENTS {
            self.forgotten = self.recent.pop_front().map_or(0, |(oldest, _)| oldest);
        }
        self.recent.push_back((revision, change));
        if let Some(copy) = &mut self.copy {
            copy.apply(revision, &change);
        }
        // Its place lapsed, if it still waits.
        if let Change::Left(spot) = change
            && let Some(handle) = self.local.get(&spot.token)
        {
            handle.wake();
        }
    }

    fn serve(&mut self) {
        if let Some(copy) = &mut self.copy {
            copy.serve(&self.local);
        }
    }
}

impl Copy {
    fn of(seen: &Seen) -> Self {
        let horizon = seen.front.last().filter(|_| !seen.is_whole()).map(|last| last.place.spot);
        Self {
            read_at: seen.revision,
            holds: seen.holds.iter().map(|held| (held.token, held.part.share)).collect(),
            growth: seen.growth.map(|growth| (growth.token, growth.to)),
            growth_called: false,
            line: seen.front.iter().map(|waiter| (waiter.place.spot, waiter.share)).collect(),
            horizon,
            called: BTreeMap::new(),
        }
    }

    fn is_gone(&self, spot: &Spot) -> bool {
        self.horizon.is_none_or(|horizon| *spot <= horizon) && !self.line.contains_key(spot)
    }

    fn apply(&mut self, revision: i64, change: &Change) {
        if revision <= self.read_at {
            return;
        }
        match *change {
            Change::Held(token, share) => drop(self.holds.insert(token, share)),
            Change::Freed(token) => drop(self.holds.remove(&token)),
            Change::Grows(token, to) => (self.growth, self.growth_called) = (Some((token, to)), false),
            Change::GrowsNoMore => self.growth = None,
            Change::Joined(spot, share) => drop(self.line.insert(spot, share)),
            Change::Left(spot) => drop(self.line.remove(&spot)),
        }
    }

    fn used(&self) -> u64 {
        self.holds.values().map(|share| u64::from(share.weight)).sum()
    }

    /// Wakes the hold that waits to weigh more if it fits, or all waiters at the front that fit.
    fn serve(&mut self, local: &HashMap<OwnerToken, WakeHandle>) {
        let used = self.used();
        if let Some((token, to)) = self.growth
            && let Some(held) = self.holds.get(&token)
        {
            self.called.clear();
            if !self.growth_called && used - u64::from(held.weight) + u64::from(to.weight) <= u64::from(to.capacity) {
                self.growth_called = true;
                local.get(&token).iter().for_each(|handle| handle.wake());
            }
            return;
        }
        let (mut reserved, mut least, mut last) = (0, u32::MAX, None);
        let (mut holders, mut all_fit) = (self.holds.len(), true);
        for (spot, share) in &self.line {
            let known = self.horizon.is_none_or(|horizon| *spot <= horizon);
            (least, reserved, holders) = (least.min(share.capacity), reserved + u64::from(share.weight), holders + 1);
            all_fit = used + reserved <= u64::from(least) && holders <= MOST_HOLDERS;
            if !all_fit || !known {
                break;
            }
            last = Some(*spot);
            if !self.called.contains_key(spot) {
                self.called.insert(*spot, Instant::now());
                local.get(&spot.token).iter().for_each(|handle| handle.wake());
            }
        }
        let line = &self.line;
        self.called.retain(|spot, _| last.is_some_and(|last| *spot <= last) && line.contains_key(spot));
        // The known part of the line is served: the waiters of this client look again.
        if let Some(horizon) = self.horizon.filter(|_| all_fit) {
            let known: HashSet<_> = line.range(..=horizon).map(|(spot, _)| spot.token).collect();
            local.iter().filter(|(token, _)| !known.contains(token)).for_each(|(_, handle)| handle.wake());
        }
    }
}

impl Names {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<'a>(&self, event: &'a Event) -> Option<(&'a [u8], i64, Change)> {
        let key = event.kv()?;
        let (base, parsed) = self.space.parse(key.key())?;
        let is_put = event.event_type() == EventType::Put;
        let change = match parsed {
            ParsedPermit::Hold(token) if is_put => Change::Held(token, Held::of(key)?.part.share),
            ParsedPermit::Hold(token) => Change::Freed(token),
            ParsedPermit::Grow if is_put => {
                let (to, token) = read_value(key.value())?;
                Change::Grows(token?, to)
            }
            ParsedPermit::Grow => Change::GrowsNoMore,
            ParsedPermit::Wait(spot) if is_put => Change::Joined(spot, read_value(key.value())?.0),
            ParsedPermit::Wait(spot) => Change::Left(spot),
        };
        Some((base, key.mod_revision(), change))
    }
}

impl Audience for Names {
    fn root(&self) -> &[u8] {
        self.space.root()
    }

    fn take_in(&self, events: &[Event]) {
        let mut view = self.view();
        let mut changed = HashSet::new();
        for event in events {
            if let Some((base, revision, change)) = self.read(event)
                && let Some(name) = view.names.get_mut(base)
            {
                name.happened(revision, change);
                changed.insert(base);
            }
        }
        // After all of them: a grant deletes a place and puts a hold in one revision.
        for base in changed {
            view.names.get_mut(base).into_iter().for_each(Name::serve);
        }
    }

    fn begin(&self) {
        let mut view = self.view();
        view.epoch += 1;
        for name in view.names.values_mut() {
            *name = Name { local: std::mem::take(&mut name.local), ..Name::default() };
        }
    }

    /// All waiters ask again.
    fn gap(&self) {
        self.begin();
        self.view().names.values().flat_map(|name| name.local.values()).for_each(WakeHandle::wake);
    }

    fn is_empty(&self) -> bool {
        self.view().names.is_empty()
    }

    /// The session's keeper looks after those who wait.
    async fn attend(&self) {
        std::future::pending().await
    }
}
