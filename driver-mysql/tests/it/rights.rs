//! The least right that everything works with, and what those who lack it are told.

use std::time::Duration;

use crate::common::{DATABASE, granted, hold, message, receive, request, start};
use mysql_async::prelude::Queryable as _;
use tenure_core::ErrorKind;
use tenure_core::driver::{Backend, DelayQueueExt as _, ForceReleased, Released, Settle, Settlement, Ttl};
use tenure_core::queue::QueueName;
use tenure_mysql::MysqlDriver;
use tenure_testkit::{MariaDbOptions, MariaDbServer};

const MINUTE: Duration = Duration::from_secs(60);

fn with_user() -> MariaDbServer {
    let server = start(MariaDbOptions::new());
    server.create_user("worker", "secret").unwrap();
    server
}

#[tokio::test]
async fn the_driver_works_with_the_documented_right() {
    let server = with_user();
    server.sql("", "GRANT EXECUTE ON app.* TO worker").unwrap();
    let url = server.url_for("worker", "secret", DATABASE);
    let backend: Backend = MysqlDriver::connect(&url).await.unwrap().into();
    let locks = backend.locks();
    let (first, late) = (request("a", MINUTE), request("a", MINUTE));
    let grant = granted(locks, &first).await;
    locks.renew(Ttl::new(MINUTE).unwrap(), &[hold(&first)]).await.pop().unwrap().unwrap();
    assert_eq!(locks.inspect(&first.name).await.unwrap().holder.unwrap().fence, Some(grant.fence));
    assert_eq!(locks.release(&hold(&first)).await.unwrap(), Released::Released);
    locks.abandon(&hold(&late)).await.unwrap();
    assert_eq!(locks.acquire(&late).await.unwrap_err().kind(), ErrorKind::NotHeld);
    granted(locks, &request("a", MINUTE)).await;
    assert_eq!(locks.force_release(&first.name, None).await.unwrap(), ForceReleased::Released);
    let kept = request("b", MINUTE);
    granted(locks, &kept).await;
    let listed = backend.census().unwrap().held(b"b", None, 9).await.unwrap().locks;
    assert_eq!(listed.iter().map(|lock| &lock.name).collect::<Vec<_>>(), [&kept.name]);
    let (queue, jobs) = (backend.queue().unwrap(), QueueName::new("jobs").unwrap());
    queue.push(&jobs, &[message("x")]).await.unwrap();
    let received = queue.receive(&receive(&jobs, 1)).await.unwrap().deliveries;
    queue.settle(&jobs, &[Settle::new(received[0].receipt, Settlement::Ack)]).await.unwrap();
    backend.doctor().unwrap().examine().await.unwrap();
    let mut user = mysql_async::Conn::new(mysql_async::Opts::from_url(&url).unwrap()).await.unwrap();
    let refused = user.query_drop("UPDATE tenure_lock SET until = 0").await.unwrap_err();
    assert!(matches!(&refused, mysql_async::Error::Server(server) if server.code == 1142), "{refused}");
}

#[tokio::test]
async fn a_missing_right_and_missing_tables_are_named_with_what_helps() {
    let server = with_user();
    let url = server.url_for("worker", "secret", DATABASE);
    let reported = async |url: &str| MysqlDriver::connect(url).await.unwrap_err();
    let (kind, text) = (reported(&url).await.kind(), reported(&url).await.to_string());
    assert!(kind == ErrorKind::Denied && text.contains("no right to the database"), "{text}");
    server.sql("", "GRANT SELECT ON app.* TO worker").unwrap();
    let text = reported(&url).await.to_string();
    assert!(text.contains("GRANT EXECUTE ON the_database.* TO the_user"), "{text}");
    server.create_database("bare").unwrap();
    server.sql("", "GRANT EXECUTE ON bare.* TO worker").unwrap();
    let empty = server.url_for("worker", "secret", "bare");
    let error = reported(&empty).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("install_sql()"), "{error}");
    let error = reported(&format!("{empty}?migrate=true")).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("may not create") && error.to_string().contains("install_sql()"), "{error}");
}

#[tokio::test]
async fn procedures_of_another_release_are_named_and_older_ones_replaced() {
    let server = start(MariaDbOptions::new());
    let (plain, migrating) = (server.url(DATABASE), format!("{}?migrate=true", server.url(DATABASE)));
    let set = |version: u32| {
        let about = format!("DROP PROCEDURE tenure_about; CREATE PROCEDURE tenure_about() SELECT {version}, 0");
        server.sql(DATABASE, &about).unwrap();
    };
    set(99);
    for url in [&plain, &migrating] {
        let error = MysqlDriver::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        let text = error.to_string();
        assert!(text.contains("version 99") && text.contains("newer release of tenure-mysql"), "{text}");
    }
    set(0);
    let text = MysqlDriver::connect(&plain).await.unwrap_err().to_string();
    assert!(text.contains("version 0") && text.contains("migrate=true"), "{text}");
    let (one, other) = tokio::join!(MysqlDriver::connect(&migrating), MysqlDriver::connect(&migrating));
    one.unwrap();
    other.unwrap();
    MysqlDriver::connect(&plain).await.unwrap();
}
