//! Nothing is reported.

use std::time::Duration;

use crate::engine::outcome::LostReason;
use crate::error::Error;
use crate::name::LockName;
use crate::token::FencingToken;

pub(crate) fn in_acquire_span<F: Future>(_driver: &'static str, _name: &LockName, work: F) -> F {
    work
}

pub(crate) fn granted(_name: &LockName, _fence: FencingToken, _waited: Duration) {}

pub(crate) fn lost(_name: &LockName, _fence: FencingToken, _reason: LostReason) {}

pub(crate) fn renewal_failed(_name: &LockName, _error: &Error) {}

pub(crate) fn wait_disturbed(_name: &LockName, _error: &Error) {}

pub(crate) fn cleanup_retried(_name: &LockName, _error: &Error) {}

pub(crate) fn cleanup_given_up(_name: &LockName, _error: &Error) {}
