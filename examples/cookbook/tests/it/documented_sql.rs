//! The statements in the documentation of `FenceGate`, exactly as they are there, with the pauses that they are for. SQLite
//! takes the numbered parameters of PostgreSQL as names.

use rusqlite::{Connection, OptionalExtension as _, ToSql};

const DOCUMENTED: &str = include_str!("../../../../core/src/fence.rs");

/// The claim and the write.
fn statements() -> [&'static str; 2] {
    let sql = DOCUMENTED
        .split("/// ```sql\n")
        .nth(1)
        .and_then(|rest| rest.split("/// ```").next());
    let lines = sql
        .expect("a block of SQL")
        .lines()
        .map(|line| line.trim_start_matches("/// "));
    lines.collect::<Vec<_>>().try_into().expect("two statements")
}

/// The one for a write that depends on nothing, with its table and column filled in.
fn blind_write() -> String {
    let line =
        DOCUMENTED.lines().find_map(|line| line.strip_prefix("/// `UPDATE … "));
    let rest =
        line.and_then(|line| line.split('`').next()).expect("the blind write");
    format!("UPDATE account {rest}").replace("SET …,", "SET balance = $3,")
}

/// One account with 100, whose column for fences is the documented one.
fn books() -> Connection {
    const COLUMN: &str = "fence bigint NOT NULL DEFAULT 0";
    let text: Vec<&str> = DOCUMENTED
        .lines()
        .map(|line| line.trim_start_matches("/// "))
        .collect();
    assert!(text.join(" ").contains(COLUMN));
    let db = Connection::open_in_memory().unwrap();
    let table = format!(
        "CREATE TABLE account (id text PRIMARY KEY, balance bigint, {COLUMN})"
    );
    db.execute_batch(&format!(
        "{table}; INSERT INTO account (id, balance) VALUES ('7', 100)"
    ))
    .unwrap();
    db
}

/// The balance, if the row was claimed.
fn claim(db: &Connection, fence: i64) -> Option<i64> {
    let params: [(&str, &dyn ToSql); 2] = [("$1", &fence), ("$2", &"7")];
    db.query_row(statements()[0], &params, |row| row.get(0)).optional().unwrap()
}

/// How many rows were written.
fn write(db: &Connection, sql: &str, fence: i64, to: i64) -> usize {
    let params: [(&str, &dyn ToSql); 3] =
        [("$1", &fence), ("$2", &"7"), ("$3", &to)];
    db.execute(sql, &params).unwrap()
}

fn balance(db: &Connection) -> i64 {
    db.query_row("SELECT balance FROM account", [], |row| row.get(0)).unwrap()
}

/// The order that loses an update where only the write is checked: Anna reads, Bert reads, Anna writes, Bert writes.
#[test]
fn who_is_paused_between_read_and_write_loses_no_update_of_the_next_holder() {
    let (db, write_sql) = (books(), statements()[1]);
    let (anna, bert) = (7, 8);
    assert_eq!(claim(&db, anna), Some(100));
    assert_eq!(claim(&db, bert), Some(100), "Anna is paused past her lease");
    assert_eq!(write(&db, write_sql, anna, 110), 0, "and finds out");
    assert_eq!(write(&db, write_sql, bert, 105), 1);
    assert_eq!(write(&db, write_sql, anna, 110), 0, "also later");
    assert_eq!(balance(&db), 105);
}

#[test]
fn who_is_paused_before_the_claim_reads_nothing() {
    let db = books();
    assert_eq!(claim(&db, 8), Some(100));
    assert_eq!(claim(&db, 7), None);
    assert_eq!(claim(&db, 8), Some(100), "the same holder may read again");
}

#[test]
fn a_blind_write_of_an_earlier_holder_is_refused() {
    let (db, sql) = (books(), blind_write());
    assert_eq!(write(&db, &sql, 8, 1), 1);
    assert_eq!(write(&db, &sql, 7, 2), 0);
    assert_eq!(write(&db, &sql, 8, 3), 1);
    assert_eq!(balance(&db), 3);
}
