//! `tenure ping`: whether the backend can be reached.

use std::time::Duration;

use serde::Serialize;
use tenure::{Client, ErrorKind};
use tokio::time::{Instant, sleep, timeout_at};

use crate::backend::Backend;
use crate::exit::{Failure, UNAVAILABLE};
use crate::printer::{Format, Printer};

/// Connect, ask once, and show how long it took
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 the backend answers, 69 it does not.")]
pub(crate) struct Ping {
    /// Try again until the backend answers, for this long [default: once]
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    wait: Option<Duration>,
}

#[derive(Debug, Serialize)]
struct Answer {
    driver: &'static str,
    connected_us: u128,
    /// None where a driver cannot look at a lock.
    round_trip_us: Option<u128>,
}

/// The lock that is looked at.
const NAME: &str = "tenure-ping";
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a connection is closed.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) async fn ping(command: &Ping, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    let end = command.wait.map(|wait| Instant::now() + wait);
    let mut last = Failure::new(UNAVAILABLE, "the backend does not answer");
    let answer = loop {
        let asked = match end {
            None => break ask(backend).await?,
            Some(end) => timeout_at(end, ask(backend)).await,
        };
        match asked {
            Ok(Ok(answer)) => break answer,
            Ok(Err(failure)) if failure.exit == UNAVAILABLE => last = failure,
            Ok(Err(failure)) => return Err(failure),
            Err(_) => return Err(last),
        }
        if end.is_some_and(|end| Instant::now() + PAUSE >= end) {
            return Err(last);
        }
        sleep(PAUSE).await;
    };
    match printer.format {
        Format::Json => printer.json(&answer)?,
        Format::Text => printer.print(&answer.text())?,
    }
    Ok(0)
}

async fn ask(backend: &Backend) -> Result<Answer, Failure> {
    let begun = Instant::now();
    let client = backend.client().await?;
    let connected_us = begun.elapsed().as_micros();
    let round_trip_us = round_trip(&client).await;
    let _ = client.close(FAREWELL).await;
    Ok(Answer { driver: client.driver(), connected_us, round_trip_us: round_trip_us? })
}

async fn round_trip(client: &Client) -> Result<Option<u128>, Failure> {
    let begun = Instant::now();
    match client.lock(NAME).inspect().await {
        Ok(_) => Ok(Some(begun.elapsed().as_micros())),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Answer {
    fn text(&self) -> String {
        let millis = |micros: u128| format!("{:.1} ms", micros as f64 / 1e3);
        let round_trip = self.round_trip_us.map_or_else(|| String::from("unknown"), millis);
        format!("{} answers: connected in {}, round trip {round_trip}", self.driver, millis(self.connected_us))
    }
}
