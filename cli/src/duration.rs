//! Durations as people write them.

use std::time::Duration;

/// Reads `10s`, `1m30s`, `250ms`. A bare number has no agreed meaning, so it is refused.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("\"{text}\" has no unit: write {text}s, {text}m or {text}ms"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; durations are written 10s, 1m30s, 250ms"))
}

/// As [`parse`] reads it, in no more than two units: `1m 30s`, `2.5s`, `250ms`.
pub(crate) fn show(span: Duration) -> String {
    if span < Duration::from_secs(1) {
        return format!("{}ms", span.as_millis());
    }
    if span < Duration::from_secs(10) {
        return format!("{:.1}s", span.as_secs_f64()).replace(".0s", "s");
    }
    let whole = humantime::format_duration(Duration::from_secs(span.as_secs())).to_string();
    whole.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_refused() {
        for bare in ["10", "0", "1.5"] {
            assert!(parse(bare).unwrap_err().contains("has no unit"), "{bare}");
        }
        assert!(parse("").is_err());
        assert!(parse("10 parsecs").is_err());
        assert!(parse("-1s").is_err());
    }

    #[test]
    fn durations_are_read_and_shown() {
        for (text, millis, shown) in [
            ("250ms", 250, "250ms"),
            ("10s", 10_000, "10s"),
            ("1m30s", 90_000, "1m 30s"),
            ("2500ms", 2500, "2.5s"),
            ("1h", 3_600_000, "1h"),
            ("26h 10m 3s", 94_203_000, "1day 2h"),
            ("0s", 0, "0ms"),
        ] {
            let span = Duration::from_millis(millis);
            assert_eq!(parse(text), Ok(span), "{text}");
            assert_eq!(show(span), shown);
        }
    }
}
