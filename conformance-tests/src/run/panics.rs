//! Keeps the message of a panic on a case's thread, and its place.

use std::cell::RefCell;
use std::panic::PanicHookInfo;
use std::sync::Once;

thread_local! {
    /// `Some` on the threads of cases.
    static CAUGHT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Catches the panics of this thread from now on; those of other threads go where they went before.
pub(super) fn catch_here() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !keep(info) {
                before(info);
            }
        }));
    });
    CAUGHT.with_borrow_mut(|caught| *caught = Some(Vec::new()));
}

/// Returns the panics that were caught on this thread, also in background tasks.
pub(super) fn caught() -> Vec<String> {
    CAUGHT.with_borrow_mut(|caught| caught.as_mut().map(std::mem::take).unwrap_or_default())
}

fn keep(info: &PanicHookInfo<'_>) -> bool {
    let text = info.payload().downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| info.payload().downcast_ref::<String>().cloned()).unwrap_or_default();
    let place = info.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
    CAUGHT.with_borrow_mut(|caught| match caught {
        Some(list) => {
            list.push(format!("panicked: {text}{place}"));
            true
        }
        None => false,
    })
}
