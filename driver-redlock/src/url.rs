//! The quorum's own settings in a URL.

use std::str::FromStr;
use std::time::Duration;

use tenure_core::{Error, ErrorKind, Result};

use crate::builder::{RedlockBuilder, Restarts};

impl RedlockBuilder {
    /// Takes the quorum's own settings out of the query of a URL, and returns the URL without them, for whoever knows
    /// how to reach the nodes.
    ///
    /// | parameter | default | meaning |
    /// |---|---|---|
    /// | `node_timeout_ms` | 250 | [`node_timeout`](Self::node_timeout) |
    /// | `max_ttl_ms` | 60000 | [`max_ttl`](Self::max_ttl) |
    /// | `restarts` | `may_forget` | [`Restarts::MayForget`]; `durable`: [`Restarts::Durable`] |
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] naming the parameter. The URL, which may hold a password, is not repeated.
    pub fn settings_from_url(mut self, url: &str) -> Result<(Self, String)> {
        let Some((place, query)) = url.split_once('?') else { return Ok((self, url.to_owned())) };
        let mut rest = Vec::new();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some((key @ "node_timeout_ms", value)) => self = self.node_timeout(millis(key, value)?),
                Some((key @ "max_ttl_ms", value)) => self = self.max_ttl(millis(key, value)?),
                Some(("restarts", "may_forget")) => self = self.restarts(Restarts::MayForget),
                Some(("restarts", "durable")) => self = self.restarts(Restarts::Durable),
                Some(("restarts", _)) => return Err(invalid("restarts is may_forget or durable")),
                _ => rest.push(pair),
            }
        }
        let mark = if rest.is_empty() { "" } else { "?" };
        Ok((self, format!("{place}{mark}{}", rest.join("&"))))
    }
}

fn millis(key: &str, value: &str) -> Result<Duration> {
    let number = u64::from_str(value).map_err(|_| invalid(format!("{key} is not a number of milliseconds")))?;
    Ok(Duration::from_millis(number))
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quorums_settings_are_taken_and_the_rest_is_left() {
        let url = "redis://a,b/1?prefix=x&restarts=durable&node_timeout_ms=70&max_ttl_ms=5000&name=y";
        let (builder, rest) = RedlockBuilder::new().settings_from_url(url).unwrap();
        assert_eq!(rest, "redis://a,b/1?prefix=x&name=y");
        let text = format!("{builder:?}");
        assert!(text.contains("70ms") && text.contains("5s") && text.contains("Durable"), "{text}");
        for (url, rest) in [("redis://a", "redis://a"), ("redis://a?restarts=may_forget", "redis://a")] {
            assert_eq!(RedlockBuilder::new().settings_from_url(url).unwrap().1, rest);
        }
    }

    #[test]
    fn a_bad_setting_is_named_and_the_url_is_not_repeated() {
        for (setting, word) in
            [("restarts=never", "restarts"), ("max_ttl_ms=1s", "max_ttl_ms"), ("node_timeout_ms=", "node")]
        {
            let error = RedlockBuilder::new().settings_from_url(&format!("redis://:s3cret@a?{setting}")).unwrap_err();
            assert!(error.message().contains(word) && !error.message().contains("s3cret"), "{error}");
        }
    }
}
