//! The values of settings as given, and their parsers.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The text of a value.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    text: &'a str,
    spans: Spans,
}

/// The format of a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spans {
    /// `1m30s`: in the environment and in files.
    WithUnit,
    /// `90000`: in a URL, where every time is in milliseconds, as the parameter's name shows.
    Millis,
}

/// The problem of a value and the allowed values; fits after the name of the setting. It does not contain the value: the
/// user may have mistaken one variable for another and written a password.
pub(super) type Read<T> = Result<T, String>;

impl<'a> Given<'a> {
    pub(super) const fn new(text: &'a str, spans: Spans) -> Self {
        Self { text, spans }
    }

    /// Parses a time within these limits, in whole milliseconds.
    pub(super) fn span(self, allowed: RangeInclusive<Duration>) -> Read<Duration> {
        let allows = self.allows(&allowed);
        let span = match self.spans {
            Spans::Millis => {
                self.text.parse().map(Duration::from_millis).map_err(|_| "is not a number of milliseconds")
            }
            Spans::WithUnit if has_no_unit(self.text) => Err("has no unit"),
            Spans::WithUnit => humantime::parse_duration(self.text).map_err(|_| "is not a time"),
        };
        let span = span.map_err(|wrong| format!("{wrong}; {allows}"))?;
        if !allowed.contains(&span) {
            return Err(format!("is out of range; {allows}"));
        }
        if !span.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(format!("has a fraction of a millisecond; {allows}"));
        }
        Ok(span)
    }

    fn allows(self, allowed: &RangeInclusive<Duration>) -> String {
        let (least, most) = (*allowed.start(), *allowed.end());
        match self.spans {
            Spans::Millis => format!("allowed are {} to {}", least.as_millis(), most.as_millis()),
            Spans::WithUnit => {
                let [least, most] = [least, most].map(|span| humantime::format_duration(span).to_string());
                format!("allowed are {least} to {most}, written like 10s, 1m30s or 250ms")
            }
        }
    }

    /// Parses a number within these limits.
    pub(super) fn number<N: FromStr + PartialOrd + Display>(self, allowed: RangeInclusive<N>) -> Read<N> {
        let allows = || format!("allowed are {} to {}", allowed.start(), allowed.end());
        let number = self.text.parse().map_err(|_| format!("is not a number of this kind; {}", allows()))?;
        if allowed.contains(&number) { Ok(number) } else { Err(format!("is out of range; {}", allows())) }
    }

    /// Parses one of these words.
    pub(super) fn word<T: Copy>(self, words: &[(&str, T)]) -> Read<T> {
        let chosen = words.iter().find(|(word, _)| *word == self.text).map(|(_, chosen)| *chosen);
        chosen.ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!("is not a known word; allowed are {}", words.join(", "))
        })
    }
}

fn has_no_unit(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3600);

    #[test]
    fn times_have_units_but_in_urls() {
        for (text, millis) in [("10ms", 10), ("1m30s", 90_000), ("1m 30s", 90_000), ("1h", 3_600_000)] {
            let given = Given::new(text, Spans::WithUnit);
            assert_eq!(given.span(ALLOWED), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(Given::new("90000", Spans::Millis).span(ALLOWED), Ok(Duration::from_secs(90)));
        let allowed = "allowed are 10ms to 1h, written like 10s, 1m30s or 250ms";
        for (text, wrong) in [
            ("10", "has no unit"),
            ("1.5", "has no unit"),
            ("", "is not a time"),
            ("-1s", "is not a time"),
            ("10 parsecs", "is not a time"),
            ("9ms", "is out of range"),
            ("61m", "is out of range"),
            ("10500us", "has a fraction of a millisecond"),
        ] {
            let reported = Given::new(text, Spans::WithUnit).span(ALLOWED);
            assert_eq!(reported, Err(format!("{wrong}; {allowed}")), "{text}");
        }
        for text in ["1s", "", "-1", "1.5"] {
            let reported = Given::new(text, Spans::Millis).span(ALLOWED).unwrap_err();
            assert_eq!(reported, "is not a number of milliseconds; allowed are 10 to 3600000", "{text}");
        }
    }

    #[test]
    fn numbers_and_words_tell_what_is_allowed() {
        let number = |text| Given::new(text, Spans::WithUnit).number(1..=64_u32);
        assert_eq!(number("64"), Ok(64));
        for (text, wrong) in [("65", "is out of range"), ("-1", "is not a number"), ("8.5", "is not a number")] {
            let reported = number(text).unwrap_err();
            assert!(reported.starts_with(wrong) && reported.ends_with("allowed are 1 to 64"), "{text}: {reported}");
        }
        assert!(Given::new("NaN", Spans::WithUnit).number(0.0..=0.5).is_err());
        let word = |text| Given::new(text, Spans::WithUnit).word(&[("first", 1), ("behind", 2)]);
        assert_eq!(word("behind"), Ok(2));
        assert_eq!(word("last").unwrap_err(), "is not a known word; allowed are first, behind");
    }
}
