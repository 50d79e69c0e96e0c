//! Queues in a table of PostgreSQL, as river and pgmq keep them; their loops, without their libraries.

use std::time::Duration;

use tokio_postgres::Statement;
use tokio_postgres::types::Type;

use super::super::sql::connect;
use super::throughput::Subject;
use crate::job::{Job, Outcome};

/// The statements of one kind: store, take, settle.
struct Statements {
    push: &'static str,
    take: &'static str,
    settle: &'static str,
}

/// Jobs by priority and time; a finished one stays as a row until a sweep.
const RIVER: Statements = Statements {
    push: "INSERT INTO river_like (scheduled_at, args) SELECT clock_timestamp() + make_interval(secs => $2), a FROM unnest($1) a",
    take: "WITH chosen AS (SELECT id FROM river_like WHERE state = 'available' AND queue = 'q' AND scheduled_at <= now() \
             ORDER BY priority, scheduled_at, id LIMIT $1 FOR UPDATE SKIP LOCKED) \
           UPDATE river_like r SET state = 'running', attempt = attempt + 1, attempted_at = now() FROM chosen \
             WHERE r.id = chosen.id RETURNING r.id, r.args",
    settle: "UPDATE river_like SET state = 'completed', finalized_at = now() WHERE id = ANY ($1) AND state = 'running'",
};

/// Messages in the order of their ids; a settled one is deleted by its id alone.
const PGMQ: Statements = Statements {
    push: "INSERT INTO pgmq_like (vt, message) SELECT clock_timestamp() + make_interval(secs => $2), a FROM unnest($1) a",
    take: "WITH chosen AS (SELECT msg_id FROM pgmq_like WHERE vt <= clock_timestamp() ORDER BY msg_id LIMIT $1 \
             FOR UPDATE SKIP LOCKED) \
           UPDATE pgmq_like m SET vt = clock_timestamp() + '30 s', read_ct = read_ct + 1 FROM chosen \
             WHERE m.msg_id = chosen.msg_id RETURNING m.msg_id, m.message",
    settle: "DELETE FROM pgmq_like WHERE msg_id = ANY ($1)",
};

/// Four connections that pipeline what the tasks ask, as the driver has.
#[derive(Clone)]
pub(super) struct Rows {
    connections: std::sync::Arc<[Connection]>,
}

struct Connection {
    client: tokio_postgres::Client,
    push: Statement,
    take: Statement,
    settle: Statement,
}

const CONNECTIONS: usize = 4;

impl Rows {
    fn one(&self) -> &Connection {
        &self.connections[fastrand::usize(..CONNECTIONS)]
    }
}

impl Subject for Rows {
    async fn open(job: &Job) -> Outcome<Self> {
        let statements = if job.subject == "river-like" { &RIVER } else { &PGMQ };
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = connect(job).await?;
            let push = client.prepare_typed(statements.push, &[Type::BYTEA_ARRAY, Type::FLOAT8]).await?;
            let take = client.prepare_typed(statements.take, &[Type::INT8]).await?;
            let settle = client.prepare_typed(statements.settle, &[Type::INT8_ARRAY]).await?;
            connections.push(Connection { client, push, take, settle });
        }
        Ok(Self { connections: connections.into() })
    }

    async fn push(&self, payloads: Vec<Vec<u8>>, delay: Duration) -> Outcome {
        let Connection { client, push, .. } = self.one();
        client.execute(push, &[&payloads, &delay.as_secs_f64()]).await?;
        Ok(())
    }

    async fn drain(&self, most: usize) -> Outcome<usize> {
        let Connection { client, take, settle, .. } = self.one();
        let rows = client.query(take, &[&i64::try_from(most)?]).await?;
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if !ids.is_empty() {
            client.execute(settle, &[&ids]).await?;
        }
        Ok(ids.len())
    }
}
