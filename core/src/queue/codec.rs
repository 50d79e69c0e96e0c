//! How values become payloads.

use std::fmt::Debug;

use crate::panicked::caught;
use crate::value::error::{Error, ErrorKind, Result};

/// Turns values into bytes and back. A queue has one; [`Json`] is what [`Client::queue`](crate::Client::queue) uses.
///
/// Bytes outlive programs: whatever `decode` once accepted should be accepted by later versions of it.
pub trait Codec<T>: Debug + Send + Sync + 'static {
    /// The bytes of a value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the value has no bytes.
    fn encode(&self, value: &T) -> Result<Vec<u8>>;

    /// The value of bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when the bytes are not those of a value. The message can still be settled. A panic is
    /// taken for this error.
    fn decode(&self, bytes: &[u8]) -> Result<T>;
}

/// The value of bytes. A codec that panics has not decoded them.
pub(super) fn decode<T: 'static>(codec: &dyn Codec<T>, bytes: &[u8]) -> Result<T> {
    caught("the codec", || codec.decode(bytes))
}

/// Values that are bytes already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes;

impl Codec<Vec<u8>> for Bytes {
    fn encode(&self, value: &Vec<u8>) -> Result<Vec<u8>> {
        Ok(value.clone())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(bytes.to_vec())
    }
}

/// Text, in UTF-8.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text;

impl Codec<String> for Text {
    fn encode(&self, value: &String) -> Result<Vec<u8>> {
        Ok(value.clone().into_bytes())
    }

    fn decode(&self, bytes: &[u8]) -> Result<String> {
        String::from_utf8(bytes.to_vec())
            .map_err(|cause| Error::new(ErrorKind::Protocol, "the payload is not UTF-8").with_source(cause))
    }
}

/// Any value that serde knows, as JSON.
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

#[cfg(feature = "json")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> for Json {
    fn encode(&self, value: &T) -> Result<Vec<u8>> {
        serde_json::to_vec(value)
            .map_err(|cause| Error::new(ErrorKind::InvalidArgument, "the value has no JSON form").with_source(cause))
    }

    fn decode(&self, bytes: &[u8]) -> Result<T> {
        serde_json::from_slice(bytes).map_err(|cause| {
            Error::new(ErrorKind::Protocol, format!("the payload is not the JSON of a message: {cause}"))
                .with_source(cause)
        })
    }
}
