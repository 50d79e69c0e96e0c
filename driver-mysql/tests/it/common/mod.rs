//! A server with the tables and procedures, and clients of it.

#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mysql_async::Conn;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, DistributedLock, Grant, Hold, Lease, NewMessage, Payload, QueueAdmin,
    ReceiveRequest, Ttl,
};
use tenure_core::queue::QueueName;
use tenure_core::{LockName, OwnerToken};
use tenure_mysql::{MysqlDriver, install_sql};
use tenure_testkit::{MariaDbOptions, MariaDbServer};

/// Where the tables are.
pub(crate) const DATABASE: &str = "app";

/// A server with the tables: MariaDB, or the MySQL whose unpacked folder `TENURE_MYSQL` names.
pub(crate) fn start(options: MariaDbOptions) -> MariaDbServer {
    let options = std::env::var_os("TENURE_MYSQL").into_iter().fold(options, MariaDbOptions::mysql);
    let server = MariaDbServer::start(options).unwrap();
    server.create_database(DATABASE).unwrap();
    server.script(DATABASE, &install_sql()).unwrap();
    server
}

/// The unpacked folder of MySQL 8.0: that of the program which `mysql-8.0` leads to, in the folder that `TENURE_SERVERS` names, or where
/// `cargo xtask test` puts it.
pub(crate) fn mysql_8() -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/servers");
    let link = std::env::var_os("TENURE_SERVERS").map_or(usual, PathBuf::from).join("mysql-8.0");
    let program = link.canonicalize().unwrap_or_else(|error| panic!("no MySQL at {}: {error}", link.display()));
    program.ancestors().nth(2).unwrap().to_owned()
}

/// Another client of the server.
pub(crate) async fn backend(server: &MariaDbServer) -> Backend {
    MysqlDriver::connect(&format!("{}?connections=1", server.url(DATABASE))).await.unwrap().into()
}

pub(crate) async fn locks(server: &MariaDbServer) -> Arc<dyn DistributedLock> {
    Arc::clone(backend(server).await.locks())
}

pub(crate) async fn queue(server: &MariaDbServer) -> Arc<dyn QueueAdmin> {
    Arc::clone(backend(server).await.queue_admin().unwrap())
}

/// A session of a user's own.
pub(crate) async fn session(server: &MariaDbServer) -> Conn {
    Conn::new(mysql_async::Opts::from_url(&server.url(DATABASE)).unwrap()).await.unwrap()
}

pub(crate) fn request(name: &str, ttl: Duration) -> AcquireRequest {
    AcquireRequest::new(LockName::new(name).unwrap(), OwnerToken::random(), Ttl::new(ttl).unwrap())
}

pub(crate) fn hold(request: &AcquireRequest) -> Hold {
    Hold::new(request.name.clone(), request.token)
}

pub(crate) async fn granted(locks: &Arc<dyn DistributedLock>, request: &AcquireRequest) -> Grant {
    match locks.acquire(request).await.unwrap() {
        Acquisition::Granted(grant) => grant,
        Acquisition::Busy(busy) => panic!("{:?} is busy: {busy:?}", request.name),
    }
}

pub(crate) fn message(bytes: impl AsRef<[u8]>) -> NewMessage {
    NewMessage::new(Payload::new(bytes.as_ref()).unwrap())
}

pub(crate) fn receive(queue: &QueueName, max: usize) -> ReceiveRequest {
    ReceiveRequest::new(queue.clone(), max, Lease::DEFAULT)
}
