//! The health check of the file, and the consequences of its findings for locks.

use async_trait::async_trait;
use rusqlite::Connection;
use tenure_core::Result;
use tenure_core::driver::{Checkup, Concern, Doctor, Finding, Topic};

use crate::driver::SqliteDriver;
use crate::error::Done;
use crate::store::Log;

/// From how many pages on the check of the whole file would keep others waiting: 16 MiB.
const MANY_PAGES: i64 = 4_096;
/// From how many bytes on the file is worth a word.
const LARGE: i64 = 1 << 30;
/// From how many bytes on a log that a reader keeps is worth a word. Without one it has a quarter of that between two checkpoints.
const LONG_LOG: u64 = 16 << 20;

/// Looks at the file in two requests.
#[async_trait]
impl Doctor for SqliteDriver {
    async fn examine(&self) -> Result<Checkup> {
        let path = self.config.path().display().to_string();
        self.worker()
            .ask(|turn| {
                turn.move_log();
                Ok(())
            })
            .await?;
        let findings = self.worker().ask(|turn| look(turn.db, turn.log())).await?;
        let finding = |(topic, concern, seen, meaning): Seen| {
            let (server, meaning) = (path.clone(), meaning.to_owned());
            Finding::new(server, topic, concern, seen, meaning)
        };
        Ok(findings.into_iter().map(finding).collect())
    }
}

type Seen = (Topic, Concern, String, &'static str);

fn look(db: &Connection, log: Log) -> Done<Vec<Seen>> {
    let number = |what: &str| -> Done<i64> { Ok(db.pragma_query_value(None, what, |row| row.get(0))?) };
    let (pages, page) = (number("page_count")?, number("page_size")?);
    let bytes = pages * page;
    let (concern, meaning) = match bytes < LARGE {
        true => (Concern::Fine, "free names take no space; messages stay until they are settled"),
        false => (Concern::Note, "messages pile up: requests take longer, and the file does not shrink by itself"),
    };
    let version = format!("SQLite {}", rusqlite::version());
    let mut findings = vec![
        (Topic::Reach, Concern::Fine, String::from("the file can be written"), "locks and messages are kept"),
        (Topic::Version, Concern::Fine, version, "any version with strict tables is supported"),
        (Topic::Storage, concern, format!("the file has {bytes} bytes"), meaning),
        (
            Topic::Persistence,
            Concern::Note,
            String::from("commits are not flushed one by one"),
            "a power cut may undo the last pushes and settlements; locks end with the machine, and fences keep growing",
        ),
        (
            Topic::Clock,
            Concern::Fine,
            String::from("leases count by the machine's own clock"),
            "no step of the wall clock ends or prolongs a lease",
        ),
    ];
    if log.length > LONG_LOG && log.kept > 0 {
        let seen =
            format!("the write-ahead log has {} bytes, and a reader keeps {} of its pages", log.length, log.kept);
        let meaning = "a transaction of another program that reads the file has not ended: the log grows until it does, and shrinks then";
        findings.push((Topic::Storage, Concern::Note, seen, meaning));
    }
    findings.push(if pages > MANY_PAGES {
        let seen = format!("the file has {pages} pages");
        (Topic::Alarms, Concern::Note, seen, "the database was not checked, because that would block other clients")
    } else {
        let said: String = db.pragma_query_value(None, "quick_check", |row| row.get(0))?;
        match said.as_str() {
            "ok" => (Topic::Alarms, Concern::Fine, String::from("the database is whole"), "nothing is damaged"),
            _ => (Topic::Alarms, Concern::Danger, said, "the database is damaged: what is read from it may be wrong"),
        }
    });
    Ok(findings)
}
