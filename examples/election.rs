//! An election in a few seconds: two candidates, and an observer that is no candidate. In one process on the memory driver, or in as many
//! as you start on a backend of your own:
//!
//! ```sh
//! cargo run --example election
//! cargo run --example election --features redis -- redis://127.0.0.1/ node-1
//! ```

#![allow(clippy::print_stdout, reason = "this is a program that tells a story")]

use std::time::Duration;

use tenure::election::{Candidate, View};
use tenure::{Client, Result};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let reported = match &*arguments {
        [] => rehearse().await,
        [url] => run(url, &std::process::id().to_string()).await,
        [url, label, ..] => run(url, label).await,
    };
    if let Err(error) = reported {
        eprintln!("{error:?}");
        std::process::exit(1);
    }
}

/// Both candidates in one process.
async fn rehearse() -> Result<()> {
    let clients = [
        tenure::connect("memory:election").await?,
        tenure::connect("memory:election").await?,
    ];
    let aside = tenure::connect("memory:election").await?;
    let observing = tokio::spawn(observe(aside.clone()));
    tokio::try_join!(
        one_term(candidate(&clients[0], "node-1".into())),
        one_term(candidate(&clients[1], "node-2".into()))
    )?;
    sleep(SECOND).await;
    for client in clients {
        client.close(SECOND).await?;
    }
    aside.close(SECOND).await?;
    observing.await.expect("it does not panic")
}

/// One candidate of many: it leads for a while whenever it is its turn, until the program is ended.
async fn run(url: &str, label: &str) -> Result<()> {
    let client = tenure::connect(url).await?;
    let observing = tokio::spawn(observe(client.clone()));
    while !observing.is_finished() {
        one_term(candidate(&client, label.to_owned())).await?;
    }
    Ok(())
}

fn candidate(client: &Client, label: String) -> Candidate {
    client.election("example").ttl(3 * SECOND).candidate(label)
}

async fn one_term(candidate: Candidate) -> Result<()> {
    let leadership = candidate.campaign().await?;
    println!("in office: term {}", leadership.term());
    leadership.run(sleep(2 * SECOND)).await?; // the work of a leader; dropped when the term is over
    leadership.resign().await
}

async fn observe(client: Client) -> Result<()> {
    let mut observer = client.election("example").observe()?.every(SECOND / 10);
    while let Some(view) = observer.next().await {
        match view {
            View::Leader(leader) => {
                let label =
                    leader.label.as_ref().map_or("?", |label| label.as_str());
                println!("observed:  {label} leads in term {}", leader.term);
            }
            View::Nobody => println!("observed:  nobody leads"),
            View::Unknown(error) => {
                println!("observed:  nobody knows who leads: {error}")
            }
        }
    }
    Ok(())
}
