//! A map that removes expired entries, a few at a time.

use std::collections::HashMap;
use std::hash::Hash;

/// How many entries one step looks at.
const STEP: usize = 2;

/// A hash map with a cursor: every [`step`](Self::step) looks at two entries and drops the ended ones.
///
/// One operation on the store makes at least one step and adds at most one entry, so ended entries never outweigh live ones
/// for long, and no operation ever pays for all of it.
#[derive(Debug)]
pub(crate) struct Sweep<K, V> {
    slots: HashMap<K, (usize, V)>,
    order: Vec<K>,
    cursor: usize,
}

impl<K, V> Default for Sweep<K, V> {
    fn default() -> Self {
        Self { slots: HashMap::new(), order: Vec::new(), cursor: 0 }
    }
}

impl<K: Eq + Hash + Clone, V> Sweep<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.slots.get(key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.slots.get_mut(key).map(|(_, value)| value)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.slots.values().map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots.iter().map(|(key, (_, value))| (key, value))
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if let Some((_, old)) = self.slots.get_mut(&key) {
            *old = value;
            return;
        }
        self.slots.insert(key.clone(), (self.order.len(), value));
        self.order.push(key);
    }

    pub(crate) fn remove(&mut self, key: &K) {
        let Some((at, _)) = self.slots.remove(key) else { return };
        self.order.swap_remove(at);
        if let Some(moved) = self.order.get(at) {
            self.slots.get_mut(moved).expect("every key of the order has a slot").0 = at;
        }
    }

    /// Looks at the next two entries and drops those of which `over` is true.
    pub(crate) fn step(&mut self, mut over: impl FnMut(&mut V) -> bool) {
        for _ in 0..STEP.min(self.order.len()) {
            if self.cursor >= self.order.len() {
                self.cursor = 0;
            }
            let Some(key) = self.order.get(self.cursor).cloned() else { return };
            if self.get_mut(&key).is_some_and(&mut over) {
                self.remove(&key); // the last entry takes this place, and is looked at next
            } else {
                self.cursor += 1;
            }
        }
    }

    /// Drops every entry of which `over` is true. Costs a look at each.
    pub(crate) fn sweep_all(&mut self, mut over: impl FnMut(&mut V) -> bool) {
        for key in self.order.clone() {
            if self.get_mut(&key).is_some_and(&mut over) {
                self.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_reach_every_entry_and_keep_the_index_whole() {
        let mut map = Sweep::default();
        for number in 0..101 {
            map.insert(number, number % 3 == 0);
        }
        map.remove(&50);
        map.insert(4, false);
        assert_eq!(map.len(), 100);
        for _ in 0..101 {
            map.step(|over| *over);
        }
        assert_eq!(map.len(), 66);
        for number in 0..101 {
            assert_eq!(map.get(&number).is_some(), number % 3 != 0 && number != 50, "{number}");
        }
        map.sweep_all(|_| true);
        assert_eq!((map.len(), map.values().count()), (0, 0));
        map.step(|_| true);
    }
}
