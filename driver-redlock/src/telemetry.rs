//! The events of a quorum, with the feature `tracing`. Without it, nothing is compiled in.

use tenure_core::Error;

/// A node began to refuse its votes for a reason that a person has to remove. The others make up for it, so callers see no error.
#[cfg(feature = "tracing")]
pub(crate) fn node_unfit(node: &str, error: &Error) {
    tracing::warn!(name: "tenure.node_unfit", node, %error);
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn node_unfit(_node: &str, _error: &Error) {}
