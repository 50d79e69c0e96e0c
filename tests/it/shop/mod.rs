//! A small shop that several processes run: the application under test. It knows locks, and no backend.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Client, ErrorKind, FenceGate, FencingToken, OwnerId, Result, StaleFence};

/// The part of the world that the locks protect: shared by all processes, and it checks fences.
#[derive(Default)]
pub(crate) struct Database {
    shelves: Mutex<HashMap<String, Shelf>>,
    accounts: Mutex<HashMap<String, i64>>,
    shipped: Mutex<Vec<String>>,
    reports: AtomicU32,
}

#[derive(Default)]
struct Shelf {
    left: u32,
    gate: FenceGate,
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sold {
    Yes,
    Out,
}

/// What became of a shipment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shipped {
    Yes,
    Before,
    Interrupted,
}

/// One process of the shop.
pub(crate) struct Shop {
    locks: Client,
    prefix: String,
    database: Arc<Database>,
}

impl Database {
    pub(crate) fn put(&self, item: &str, amount: u32) {
        self.shelves.lock().unwrap().entry(item.to_owned()).or_default().left += amount;
    }

    pub(crate) fn left(&self, item: &str) -> u32 {
        self.shelves.lock().unwrap().get(item).map_or(0, |shelf| shelf.left)
    }

    /// How many are left, for the holder of the item's lock: `UPDATE shelf SET fence = $2 WHERE fence <= $2 RETURNING count`.
    fn claim(&self, item: &str, fence: FencingToken) -> Result<u32, StaleFence> {
        let mut shelves = self.shelves.lock().unwrap();
        let shelf = shelves.entry(item.to_owned()).or_default();
        shelf.gate.admit(fence)?;
        Ok(shelf.left)
    }

    /// Takes one away if the fence is not stale: `UPDATE shelf SET count = count - 1 WHERE fence = $2`.
    pub(crate) fn take(&self, item: &str, fence: FencingToken) -> Result<(), StaleFence> {
        let mut shelves = self.shelves.lock().unwrap();
        let shelf = shelves.entry(item.to_owned()).or_default();
        shelf.gate.admit(fence)?;
        shelf.left -= 1;
        Ok(())
    }
}

impl Shop {
    pub(crate) fn new(locks: Client, prefix: String, database: Arc<Database>) -> Self {
        Self { locks, prefix, database }
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn name_of(&self, thing: &str) -> String {
        format!("{}/{thing}", self.prefix)
    }

    /// Sells one of each item, or nothing.
    pub(crate) async fn sell(&self, items: &[&str]) -> Result<Sold> {
        self.sell_within(items, Duration::from_secs(30)).await
    }

    pub(crate) async fn sell_within(&self, items: &[&str], patience: Duration) -> Result<Sold> {
        let names: Vec<_> = items.iter().map(|item| self.name_of(item)).collect();
        let guard = self.locks.lock_all(&names).label("sale").acquire_within(patience).await?;
        let fenced = |name: &String| guard.fence(name).expect("every item is locked");
        let claims = items.iter().zip(&names).map(|(item, name)| self.database.claim(item, fenced(name)));
        let left = claims.collect::<Result<Vec<_>, _>>().expect("nobody passed us while we held the lock");
        if left.contains(&0) {
            guard.release().await?;
            return Ok(Sold::Out);
        }
        tokio::task::yield_now().await; // the card terminal takes its time
        guard.check()?;
        for (item, name) in items.iter().zip(&names) {
            self.database.take(item, fenced(name)).expect("nobody passed us while we held the lock");
        }
        guard.release().await?;
        Ok(Sold::Yes)
    }

    /// Makes the report, unless somebody is at it; tells its number.
    pub(crate) async fn report(&self, reading: impl Future<Output = ()>) -> Result<Option<u32>> {
        let Some(guard) = self.locks.lock(self.name_of("report")).try_acquire().await? else { return Ok(None) };
        guard.run(reading).await?;
        let number = self.database.reports.fetch_add(1, Ordering::SeqCst) + 1;
        guard.release().await?;
        Ok(Some(number))
    }

    /// Books a payment and its fee on an account; both steps lock the account, as they do when used alone.
    pub(crate) async fn settle(&self, account: &str, amount: i64, me: &OwnerId) -> Result<i64> {
        let outer = self.locks.reentrant(self.name_of(account), me).acquire().await?;
        self.book(account, amount, me).await?;
        let balance = self.book(account, -10, me).await?;
        outer.release().await?;
        Ok(balance)
    }

    async fn book(&self, account: &str, amount: i64, me: &OwnerId) -> Result<i64> {
        let guard = self.locks.reentrant(self.name_of(account), me).acquire().await?;
        let before = self.balance(account);
        tokio::task::yield_now().await;
        assert_eq!(self.balance(account), before, "somebody else booked in between");
        self.database.accounts.lock().unwrap().insert(account.to_owned(), before + amount);
        guard.release().await?;
        Ok(before + amount)
    }

    fn balance(&self, account: &str) -> i64 {
        self.database.accounts.lock().unwrap().get(account).copied().unwrap_or(0)
    }

    /// Ships an order once. Work that outlives the lease is dropped, and the order stays to be shipped.
    pub(crate) async fn ship(
        &self,
        order: &str,
        lease: Duration,
        packing: impl Future<Output = ()>,
    ) -> Result<Shipped> {
        let guard = self.locks.lock(self.name_of(order)).fixed_ttl(lease).acquire().await?;
        if self.database.shipped.lock().unwrap().iter().any(|known| known == order) {
            return Ok(Shipped::Before);
        }
        match guard.run(packing).await {
            Ok(()) => {
                self.database.shipped.lock().unwrap().push(order.to_owned());
                guard.release().await?;
                Ok(Shipped::Yes)
            }
            Err(error) if error.kind() == ErrorKind::Lost => Ok(Shipped::Interrupted),
            Err(error) => Err(error),
        }
    }
}
