//! What errors carry for programs, and say to people.

use std::error::Error as _;

use crate::common::{attempt, server};
use tenure_core::ErrorKind;
use tenure_core::driver::Backend;
use tenure_redis::RedisDriver;
use tenure_testkit::{ClosedPort, TcpProxy};

/// The lines that a printer of chains writes.
fn chain(error: &dyn std::error::Error) -> Vec<String> {
    let mut lines = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        lines.push(error.to_string());
        cause = error.source();
    }
    lines
}

#[tokio::test]
async fn the_source_is_the_client_librarys_error_and_its_words_are_said_once() {
    let nobody = ClosedPort::new().unwrap();
    let error = RedisDriver::connect(&format!("redis://127.0.0.1:{}", nobody.number())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let source = error.source().unwrap().downcast_ref::<redis::RedisError>().expect("the client library's error");
    // What the library's error repeats of its own cause is its own affair.
    assert_eq!(chain(&error)[1..], chain(source));
    assert!(!error.to_string().contains("refused"), "{error}");
    let sentence = format!("{error:?}");
    assert_eq!(sentence.matches("refused").count(), 1, "{sentence}");
    assert!(sentence.starts_with("backend unavailable: cannot connect to 127.0.0.1:"), "{sentence}");
}

#[tokio::test]
async fn a_link_that_broke_later_tells_the_client_librarys_error_too() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let driver = RedisDriver::connect(&format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap();
    let backend = Backend::from(driver);
    drop(proxy);
    let error = loop {
        match backend.locks().acquire(&attempt("a")).await {
            Err(error) if error.kind() == ErrorKind::Unavailable && error.source().is_some() => break error,
            _ => tokio::task::yield_now().await,
        }
    };
    assert!(error.source().unwrap().is::<redis::RedisError>(), "{error:?}");
    assert_eq!(format!("{error:?}").matches("refused").count(), 1, "{error:?}");
}
