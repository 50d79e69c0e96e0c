//! The statements of `docs/fencing-in-sql.md`, as they are there, in the orders that they are for. SQLite takes the numbered
//! parameters of PostgreSQL as names.

use rusqlite::{Connection, OptionalExtension as _, ToSql};

const PAGE: &str = include_str!("../../../../docs/fencing-in-sql.md");

/// A table, and the statements that use it.
struct Page {
    claim: &'static str,
    write: &'static str,
    blind: &'static str,
    sharing: &'static str,
    create: &'static str,
}

fn page() -> (Connection, Page) {
    let blocks: Vec<&str> = PAGE
        .split("```sql\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .map(str::trim)
        .collect();
    let [table, claim, write, blind, sharing, create, guard] = blocks[..]
    else {
        panic!("seven blocks of SQL: {blocks:#?}")
    };
    assert!(
        guard.contains("tenure.guard("),
        "that of PostgreSQL is the driver's test"
    );
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(table).unwrap();
    db.execute("INSERT INTO account (id, balance) VALUES ('7', 100)", [])
        .unwrap();
    (db, Page { claim, write, blind, sharing, create })
}

/// The balance, if the row was claimed.
fn read(db: &Connection, sql: &str, fence: i64, id: &str) -> Option<i64> {
    let params: [(&str, &dyn ToSql); 2] = [("$1", &fence), ("$2", &id)];
    db.query_row(sql, &params, |row| row.get(0)).optional().unwrap()
}

/// How many rows were written.
fn write(db: &Connection, sql: &str, fence: i64, to: i64) -> usize {
    let params: [(&str, &dyn ToSql); 3] =
        [("$1", &fence), ("$2", &"7"), ("$3", &to)];
    db.execute(sql, &params).unwrap()
}

#[test]
fn nobody_loses_the_update_of_the_next_holder() {
    let (db, page) = page();
    let (anna, bert) = (41, 42);
    assert_eq!(read(&db, page.claim, anna, "7"), Some(100));
    assert_eq!(
        read(&db, page.claim, bert, "7"),
        Some(100),
        "Anna is paused past her lease"
    );
    assert_eq!(write(&db, page.write, anna, 110), 0);
    assert_eq!(write(&db, page.write, bert, 105), 1);
    assert_eq!(
        read(&db, page.claim, anna, "7"),
        None,
        "and she claims no more"
    );
    assert_eq!(read(&db, page.claim, bert, "7"), Some(105));
}

#[test]
fn a_write_that_depends_on_nothing_is_one_statement() {
    let (db, page) = page();
    assert_eq!(
        [
            write(&db, page.blind, 42, 1),
            write(&db, page.blind, 41, 2),
            write(&db, page.blind, 42, 3)
        ],
        [1, 0, 1]
    );
    assert_eq!(read(&db, page.claim, 42, "7"), Some(3));
}

#[test]
fn a_row_is_claimed_and_created_in_one_statement() {
    let (db, page) = page();
    assert_eq!(read(&db, page.create, 42, "8"), Some(0), "it is created");
    assert_eq!(
        read(&db, page.create, 41, "8"),
        None,
        "an earlier holder comes too late"
    );
    assert_eq!(
        read(&db, page.create, 43, "8"),
        Some(0),
        "a later one claims it"
    );
    assert_eq!(read(&db, page.claim, 42, "8"), None);
    assert_eq!(
        read(&db, page.create, 44, "7"),
        Some(100),
        "what is there stays"
    );
}

#[test]
fn readers_share_and_a_paused_holder_is_refused() {
    let (db, page) = page();
    db.execute_batch(
        "CREATE TABLE page (id, text, views DEFAULT 0, alone DEFAULT 0, fence DEFAULT 0); \
         INSERT INTO page (id, text) VALUES ('7', '')",
    )
    .unwrap();
    let (writer, reader) = page.sharing.split_once(';').unwrap();
    let writes = |fence: i64| {
        let params: [(&str, &dyn ToSql); 3] =
            [("$1", &fence), ("$2", &"7"), ("$3", &"new")];
        db.execute(writer, &params).unwrap() == 1
    };
    let reads = |fence: i64| {
        let params: [(&str, &dyn ToSql); 2] = [("$1", &fence), ("$2", &"7")];
        db.execute(reader.trim(), &params).unwrap() == 1
    };
    assert!(
        writes(1) && reads(3) && reads(2),
        "readers do not refuse each other"
    );
    assert!(!writes(1), "a writer that was paused is refused after readers");
    assert!(writes(4) && writes(4));
    assert!(!reads(3), "a reader that was paused is refused after a writer");
    assert!(reads(5) && !writes(4));
}
