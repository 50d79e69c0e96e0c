//! MariaDB: ours, `GET_LOCK`, and a row that is updated under a condition.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Statement};
use tenure_core::driver::Backend;
use tenure_mysql::MysqlDriver;

use super::super::ours::{OurLane, client_of};
use super::super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::Job;

/// What row libraries do while the lock is taken.
const PERIOD: Duration = Duration::from_millis(5);

fn url(job: &Job) -> String {
    format!("mysql://root@127.0.0.1:{}/compare", job.ports[0])
}

async fn mysql(job: &Job) -> Outcome<Backend> {
    Ok(MysqlDriver::connect(&url(job)).await?.into())
}

async fn connect(job: &Job) -> Outcome<Conn> {
    Ok(Conn::from_url(url(job)).await?)
}

client_of!(
    /// The MySQL driver.
    Mysql,
    mysql
);

/// A row of a token and a time: no fence, no order, and waiters ask again.
pub(crate) struct BareMysqlRow {
    job: Job,
}

impl Subject for BareMysqlRow {
    type Lane = BareMysqlRowLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { job: job.clone() })
    }

    async fn lane(&self, name: &str) -> Outcome<BareMysqlRowLane> {
        let mut conn = connect(&self.job).await?;
        conn.exec_drop("INSERT IGNORE INTO bare (name, until) VALUES (?, SYSDATE(6))", (name,)).await?;
        let take = "UPDATE bare SET token = ?, until = SYSDATE(6) + INTERVAL 30 SECOND \
                    WHERE name = ? AND (token IS NULL OR until < SYSDATE(6))";
        let take = conn.prep(take).await?;
        let give = conn.prep("UPDATE bare SET token = NULL WHERE name = ? AND token = ?").await?;
        Ok(BareMysqlRowLane { conn, take, give, name: name.to_owned(), token: format!("{:x}", fastrand::u128(..)) })
    }
}

pub(crate) struct BareMysqlRowLane {
    conn: Conn,
    take: Statement,
    give: Statement,
    name: String,
    token: String,
}

impl Lane for BareMysqlRowLane {
    type Held = ();

    async fn take(&mut self) -> Outcome<((), u64)> {
        loop {
            self.conn.exec_drop(&self.take, (&self.token, &self.name)).await?;
            if self.conn.affected_rows() == 1 {
                return Ok(((), 0));
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn give(&mut self, (): ()) -> Outcome {
        self.conn.exec_drop(&self.give, (&self.name, &self.token)).await?;
        match self.conn.affected_rows() {
            1 => Ok(()),
            _ => Err("not given back".into()),
        }
    }
}

/// `GET_LOCK`, on a connection for each waiter: no lease and no fence.
pub(crate) struct NamedLock {
    job: Job,
}

impl Subject for NamedLock {
    type Lane = NamedLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { job: job.clone() })
    }

    async fn lane(&self, name: &str) -> Outcome<NamedLane> {
        let mut conn = connect(&self.job).await?;
        let take = conn.prep("SELECT GET_LOCK(?, 60)").await?;
        let give = conn.prep("SELECT RELEASE_LOCK(?)").await?;
        Ok(NamedLane { conn, take, give, name: name.to_owned() })
    }
}

pub(crate) struct NamedLane {
    conn: Conn,
    take: Statement,
    give: Statement,
    name: String,
}

impl Lane for NamedLane {
    type Held = ();

    async fn take(&mut self) -> Outcome<((), u64)> {
        match self.conn.exec_first::<i64, _, _>(&self.take, (&self.name,)).await? {
            Some(1) => Ok(((), 0)),
            _ => Err("not given".into()),
        }
    }

    async fn give(&mut self, (): ()) -> Outcome {
        match self.conn.exec_first::<i64, _, _>(&self.give, (&self.name,)).await? {
            Some(1) => Ok(()),
            _ => Err("not given back".into()),
        }
    }
}
