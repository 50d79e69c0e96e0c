//! The same with sqlx, on a real PostgreSQL that keeps the locks as well.

use cookbook_example::payment::{Payment, TABLES};
use cookbook_example::payment_sqlx::pay;
use sqlx::PgPool;
use tenure_testkit::{PostgresOptions, PostgresServer};

use crate::payment::{Bank, payment};

#[tokio::test]
async fn a_payment_that_is_overtaken_begins_again_and_charges_once() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let tables = TABLES.replace("INTEGER", "bigint");
    server
        .sql(
            "postgres",
            &format!(
                "{tables} INSERT INTO account (id, balance) VALUES ('7', 100)"
            ),
        )
        .unwrap();
    let url = server.url("postgres");
    let (db, bank) = (PgPool::connect(&url).await.unwrap(), Bank::default());
    let anna = tenure::connect(&format!("{url}?migrate=true")).await.unwrap();
    let bert = tenure::connect(&url).await.unwrap();
    let (hers, his) = (payment("hers", 10), payment("his", 5));
    let paused = async |payment: &Payment| {
        bank.charge(payment)?;
        if bank.calls("hers") == 1 {
            server.sql(
                "postgres",
                "UPDATE tenure.lock SET until = since WHERE name = 'account/7'",
            )?;
            pay(&bert, &db, &his, async |payment| bank.charge(payment)).await?;
        }
        Ok(())
    };
    pay(&anna, &db, &hers, paused).await.unwrap();
    assert_eq!(
        (bank.calls("hers"), bank.calls("his"), bank.charged()),
        (2, 1, 15),
        "the same key, charged once"
    );
    let state = "SELECT balance, (SELECT count(*) FROM payment) FROM account";
    assert_eq!(
        sqlx::query_as::<_, (i64, i64)>(state).fetch_one(&db).await.unwrap(),
        (115, 2)
    );
    pay(&anna, &db, &hers, async |payment| bank.charge(payment)).await.unwrap();
    assert_eq!(bank.calls("hers"), 2, "what is booked is not paid again");
}
