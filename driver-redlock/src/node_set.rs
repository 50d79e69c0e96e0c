//! Sets of nodes.

/// A set of nodes, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeSet(u32);

/// The most nodes of a quorum.
pub(crate) const MOST_NODES: usize = 31;

impl NodeSet {
    pub(crate) const EMPTY: Self = Self(0);

    /// The first `n` nodes.
    pub(crate) fn first(n: usize) -> Self {
        Self((1 << n) - 1)
    }

    pub(crate) fn of(node: usize) -> Self {
        Self(1 << node)
    }

    pub(crate) fn insert(&mut self, node: usize) {
        self.0 |= 1 << node;
    }

    pub(crate) fn remove(&mut self, node: usize) {
        self.0 &= !(1 << node);
    }

    pub(crate) fn contains(self, node: usize) -> bool {
        self.0 & 1 << node != 0
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> + Clone {
        (0..MOST_NODES).filter(move |node| self.contains(*node))
    }
}
