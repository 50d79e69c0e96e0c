//! Names, labels and payloads of all kinds.

use std::time::Duration;

use crate::common::{granted, hold, locks, message, queue, receive, request, start};
use tenure_core::driver::{AcquireRequest, DelayQueueExt as _, Released, Ttl};
use tenure_core::queue::{MessageId, QueueName};
use tenure_core::{ErrorKind, Label, LockName, OwnerToken};
use tenure_testkit::MariaDbOptions;

const MINUTE: Duration = Duration::from_secs(60);

/// Databases may have any character set, and compare without regard to case or spaces: names are bytes all the same.
#[tokio::test]
async fn the_driver_takes_every_name_and_every_label() {
    let server = start(MariaDbOptions::new().setting("character-set-server", "latin1"));
    let locks = locks(&server).await;
    let mut names: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![b'n', byte]).collect();
    names.extend([b"N".to_vec(), b"n".to_vec(), vec![0; 512], vec![0xff; 512], "ñ\u{1f512}".into()]);
    names.push([vec![b'x'; 511], vec![b'y']].concat());
    names.push([vec![b'x'; 511], vec![b'z']].concat());
    let label = Label::new("a\0b \u{1f512} ' \\ \"").unwrap();
    let mut holds = Vec::new();
    for name in names {
        let name = LockName::new(name).unwrap();
        let asked =
            AcquireRequest::new(name, OwnerToken::random(), Ttl::new(MINUTE).unwrap()).with_label(Some(label.clone()));
        granted(&locks, &asked).await;
        holds.push(hold(&asked));
    }
    for answer in locks.renew(Ttl::new(MINUTE).unwrap(), &holds[..200]).await {
        answer.unwrap();
    }
    for hold in holds {
        assert_eq!(locks.inspect(&hold.name).await.unwrap().holder.unwrap().label, Some(label.clone()));
        assert_eq!(locks.release(&hold).await.unwrap(), Released::Released, "{:?}", hold.name);
    }
}

#[tokio::test]
async fn ttls_of_the_whole_range_are_kept() {
    let server = start(MariaDbOptions::new());
    let locks = locks(&server).await;
    let range = locks.capabilities().ttl;
    for ttl in [range.min, range.max] {
        let asked = request("a", ttl);
        assert_eq!(granted(&locks, &asked).await.ttl, ttl);
        locks.abandon(&hold(&asked)).await.unwrap();
    }
}

#[tokio::test]
async fn payloads_come_back_as_they_were_up_to_the_cap_and_what_the_server_does_not_take_is_named() {
    let server = start(MariaDbOptions::new());
    let (queue, jobs) = (queue(&server).await, QueueName::new([0, 0xff, b'\'']).unwrap());
    let all: Vec<u8> = (0..=255).collect();
    let large = all.repeat(4_096);
    assert_eq!(large.len(), queue.capabilities().payload);
    let payloads = [&b""[..], &all, &large, &large[1..large.len() - 4_096]];
    queue.push(&jobs, &payloads.map(message)).await.unwrap();
    let received = queue.receive(&receive(&jobs, 10)).await.unwrap().deliveries;
    let back: Vec<&[u8]> = received.iter().map(|delivery| delivery.payload.as_bytes()).collect();
    assert!(back == payloads, "{:?}", back.iter().map(|payload| payload.len()).collect::<Vec<_>>());
    let error = queue.push(&jobs, &[message(&large), message(&large), message(&large)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "more than one request may carry");
    let name = MessageId::named([0, 0xff, b'"']).unwrap();
    assert!(queue.get(&jobs, &name).await.unwrap().is_none());
    server.sql("", "SET GLOBAL max_allowed_packet = 1048576").unwrap();
    let narrow = crate::common::queue(&server).await;
    let error = narrow.push(&jobs, &[message(&large)]).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Misconfigured && error.to_string().contains("max_allowed_packet"), "{error:?}");
    narrow.push(&jobs, &[message("x")]).await.unwrap();
}
