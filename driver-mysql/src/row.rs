//! Values of a row, and of the contract.

use mysql_async::prelude::FromValue;
use mysql_async::{Row, Value};
use tenure_core::{FencingToken, Result};

use crate::error::odd;

/// A column of a row.
pub(crate) fn column<T: FromValue>(row: &Row, at: usize) -> Result<T> {
    row.get_opt(at).ok_or_else(odd)?.map_err(|error| odd().with_source(error))
}

/// The one row.
pub(crate) fn single(rows: &[Row]) -> Result<&Row> {
    rows.first().ok_or_else(odd)
}

pub(crate) fn fence_of(number: i64) -> Result<FencingToken> {
    u64::try_from(number).ok().and_then(FencingToken::new).ok_or_else(odd)
}

/// Bytes, or null.
pub(crate) fn bytes(value: Option<&[u8]>) -> Value {
    value.map_or(Value::NULL, |bytes| Value::Bytes(bytes.to_vec()))
}

/// Bytes as the texts of JSON carry them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
