//! Blocking calls where there is no runtime to wait on any more.

use std::cell::RefCell;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tenure::ErrorKind;
use tenure::blocking::{self, Client};

const PATIENCE: Duration = Duration::from_secs(20);

thread_local! {
    /// Calls when its thread ends, later than what the calls before it left there.
    static LAST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
}

struct AtTheEnd(Client, Sender<Option<ErrorKind>>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let called = self.0.lock("a").try_acquire();
        self.1.send(called.err().map(|error| error.kind())).unwrap();
    }
}

#[test]
fn a_call_in_the_destructor_of_a_thread_local_is_an_error() {
    let (client, (tell, reported)) = (blocking::connect("memory:").unwrap(), channel());
    let thread = std::thread::spawn({
        let client = client.clone();
        move || {
            LAST.with(|last| *last.borrow_mut() = Some(AtTheEnd(client.clone(), tell)));
            client.lock("a").acquire().unwrap().release().unwrap();
        }
    });
    assert_eq!(reported.recv_timeout(PATIENCE).unwrap(), Some(ErrorKind::InvalidArgument));
    thread.join().unwrap();
    client.lock("a").acquire_within(PATIENCE).unwrap().release().unwrap();
}
