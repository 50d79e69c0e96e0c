//! The quorum's own settings in a URL.

use tenure_core::driver::BackendUrl;
use tenure_core::{FenceFloor, Result};

use crate::builder::{RedlockBuilder, Restarts};

impl RedlockBuilder {
    /// Removes the quorum's own settings from a URL; the remaining parameters are for the driver of the nodes.
    ///
    /// | parameter | default | meaning |
    /// |---|---|---|
    /// | `node_timeout_ms` | 250 | [`node_timeout`](Self::node_timeout) |
    /// | `max_ttl_ms` | 60000 | [`max_ttl`](Self::max_ttl) |
    /// | `restarts` | `may_forget` | [`Restarts::MayForget`]; `durable`: [`Restarts::Durable`] |
    /// | `fence_floor` | 0 | [`fence_floor`](Self::fence_floor) |
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](tenure_core::ErrorKind::InvalidArgument) naming the parameter.
    pub fn settings_from_url(mut self, url: &mut BackendUrl) -> Result<Self> {
        if let Some(limit) = url.millis("node_timeout_ms")? {
            self = self.node_timeout(limit);
        }
        if let Some(longest) = url.millis("max_ttl_ms")? {
            self = self.max_ttl(longest);
        }
        if let Some(restarts) =
            url.choice("restarts", &[("may_forget", Restarts::MayForget), ("durable", Restarts::Durable)])?
        {
            self = self.restarts(restarts);
        }
        if let Some(floor) = FenceFloor::read(url)? {
            self = self.fence_floor(floor);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quorums_settings_are_taken_and_the_rest_is_left() {
        let url = "redis://a,b/1?prefix=x&restarts=durable&node_timeout_ms=70&max_ttl_ms=5000&fence_floor=1234";
        let mut url = BackendUrl::parse(url).unwrap();
        let builder = RedlockBuilder::new().settings_from_url(&mut url).unwrap();
        let text = format!("{builder:?}");
        assert!(text.contains("70ms") && text.contains("5s") && text.contains("Durable"), "{text}");
        assert!(text.contains("FenceFloor(1234)"), "{text}");
        assert_eq!(url.text("prefix").as_deref(), Some("x"));
        url.finish().unwrap();
    }

    #[test]
    fn a_bad_setting_is_named() {
        for (setting, word) in [
            ("restarts=never", "may_forget or durable"),
            ("max_ttl_ms=1s", "max_ttl_ms"),
            ("node_timeout_ms=", "node"),
            ("fence_floor=x", "fence_floor"),
        ] {
            let mut url = BackendUrl::parse(&format!("redis://:s3cret@a?{setting}")).unwrap();
            let error = RedlockBuilder::new().settings_from_url(&mut url).unwrap_err();
            assert!(error.message().contains(word) && !error.message().contains("s3cret"), "{error}");
        }
    }
}
