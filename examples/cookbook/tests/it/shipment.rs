//! Anna is paused past her lease while she packs, and Bert ships the order. A real PostgreSQL.

use cookbook_example::shipment::{Shipped, TABLE, ship};
use tenure::Client;
use tenure_testkit::{PostgresOptions, PostgresServer};
use tokio_postgres::NoTls;

async fn shop() -> (PostgresServer, String) {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    server
        .sql(
            "postgres",
            &format!("{TABLE}; INSERT INTO shop_order (id) VALUES (7)"),
        )
        .unwrap();
    let url = server.url("postgres");
    (server, url)
}

async fn database(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

async fn locks(url: &str) -> Client {
    tenure::connect(&format!("{url}?migrate=true")).await.unwrap()
}

#[tokio::test]
async fn who_packs_for_too_long_ships_nothing_and_pushes_nothing() {
    let (server, url) = shop().await;
    let (anna, bert) = (locks(&url).await, locks(&url).await);
    let (mut hers, mut his) = (database(&url).await, database(&url).await);
    let paused = async || {
        server
            .sql(
                "postgres",
                "UPDATE tenure.lock SET until = since WHERE name = 'orders/7'",
            )
            .unwrap();
        assert_eq!(
            ship(&bert.lock("orders/7"), &mut his, 7, async || ())
                .await
                .unwrap(),
            Shipped::Yes
        );
    };
    assert_eq!(
        ship(&anna.lock("orders/7"), &mut hers, 7, paused).await.unwrap(),
        Shipped::Overtaken
    );
    assert_eq!(
        ship(&anna.lock("orders/7"), &mut hers, 7, async || ()).await.unwrap(),
        Shipped::Already
    );
    let labels = bert.queue_of_bytes("labels").unwrap();
    let label = labels
        .try_receive()
        .await
        .unwrap()
        .expect("the message is there since the commit");
    assert_eq!(label.payload().as_bytes(), b"7");
    label.ack().await.unwrap();
    assert!(
        labels.try_receive().await.unwrap().is_none(),
        "one shipment, one label"
    );
}
