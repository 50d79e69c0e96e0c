//! Which backend a URL means.

use tenure_core::{Error, ErrorKind, Result};

/// The schemes that this crate knows, compiled in or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Memory,
    Redis,
}

/// What URLs may begin with, for messages.
const KNOWN: &str = "memory:, redis://, rediss://, redis+unix://";

impl Scheme {
    /// Reads the scheme; the URL itself may hold a password and is never repeated.
    pub(crate) fn of(url: &str) -> Result<Self> {
        let Some((scheme, _)) = url.split_once(':') else {
            return Err(invalid(format!("the URL has no scheme; known are {KNOWN}")));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "memory" => Ok(Self::Memory),
            "redis" | "rediss" | "redis+unix" => Ok(Self::Redis),
            _ if is_scheme(scheme) => Err(invalid(format!("the scheme \"{scheme}\" is not known; known are {KNOWN}"))),
            _ => Err(invalid(format!("the URL does not begin with a scheme; known are {KNOWN}"))),
        }
    }

    /// The Cargo feature that brings it.
    const fn feature(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
        }
    }

    /// The refusal of a scheme that is known and was left out.
    #[cfg_attr(all(feature = "memory", feature = "redis"), expect(dead_code, reason = "nothing was left out"))]
    pub(crate) fn left_out(self) -> Error {
        let feature = self.feature();
        let text = format!("this build has no driver for that URL; enable the feature `{feature}` of the crate tenure");
        Error::new(ErrorKind::Unsupported, text)
    }
}

/// Whether the text before the colon can be shown: what is no scheme may be the beginning of a password.
fn is_scheme(text: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    text.len() <= 32 && text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(letters)
}

pub(crate) fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_told_apart() {
        for (url, scheme) in [
            ("memory:", Scheme::Memory),
            ("memory:shared", Scheme::Memory),
            ("redis://host", Scheme::Redis),
            ("REDIS://host", Scheme::Redis),
            ("rediss://host", Scheme::Redis),
            ("redis+unix:///path", Scheme::Redis),
        ] {
            assert_eq!(Scheme::of(url).unwrap(), scheme, "{url}");
        }
    }

    #[test]
    fn what_is_not_known_is_named_with_what_is() {
        for (url, words) in [
            ("", "no scheme"),
            ("localhost", "no scheme"),
            ("http://host", "\"http\""),
            ("etcd://host", "\"etcd\""),
            ("s3cret@host:6379", "does not begin with a scheme"),
            (":6379", "does not begin with a scheme"),
        ] {
            let error = Scheme::of(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = error.to_string();
            assert!(text.contains(words) && text.contains(KNOWN) && !text.contains("s3cret"), "{url}: {text}");
        }
    }

    #[test]
    fn the_missing_feature_is_named() {
        assert_eq!(Scheme::Redis.feature(), "redis");
        assert_eq!(Scheme::Memory.feature(), "memory");
    }
}
