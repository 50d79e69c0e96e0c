//! A Redis server that is looked at when its test ends.

use std::io;
use std::ops::{Deref, DerefMut};

use crate::{RedisOptions, RedisServer, Reply};

/// A server on which no key may live for ever but the ones that are named. When it is dropped at the end of a test, it panics
/// if another one is left; not if the test has failed already, or has ended the server.
#[derive(Debug)]
pub struct CheckedServer {
    server: RedisServer,
    may_stay: fn(&str) -> bool,
}

impl CheckedServer {
    /// Starts a server on which these keys may stay.
    ///
    /// # Errors
    ///
    /// As [`RedisServer::start`].
    pub fn start(options: RedisOptions, may_stay: fn(&str) -> bool) -> io::Result<Self> {
        Ok(Self { server: RedisServer::start(options)?, may_stay })
    }

    /// The keys that live until they are deleted, and may not.
    fn left(&self) -> io::Result<Vec<String>> {
        let mut client = self.server.connect()?;
        let Reply::Array(keys) = client.call(&["KEYS", "*"])? else {
            return Err(io::Error::other("the server does not list its keys"));
        };
        let mut left = Vec::new();
        for key in keys.iter().map(Reply::text).filter(|key| !(self.may_stay)(key)) {
            if client.call(&["PTTL", &key])?.int() == Some(-1) {
                left.push(key);
            }
        }
        Ok(left)
    }
}

impl Deref for CheckedServer {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.server
    }
}

impl DerefMut for CheckedServer {
    fn deref_mut(&mut self) -> &mut RedisServer {
        &mut self.server
    }
}

impl Drop for CheckedServer {
    fn drop(&mut self) {
        if std::thread::panicking() || self.pid().is_none() {
            return;
        }
        let left = self.left().expect("the server answers at the end of its test");
        assert!(left.is_empty(), "keys without an end: {left:?}");
    }
}
