//! What each driver costs: `cargo bench -- <driver>`, all of them without a name.
//!
//! Every bench runs on a current-thread runtime and times whole batches inside one `block_on`: on a runtime with several
//! threads a sequential latency would mostly be that of waking another processor. The report with its plots is
//! `target/criterion/report/index.html`. Ratios against other libraries are the business of `cargo xtask compare`.

mod driver;
mod held;
mod hot;
mod pair;

use std::sync::Arc;
use std::time::Duration;

use criterion::Criterion;
use tenure_conformance::HarnessMaker;

use driver::Driver;

/// One arrangement of servers for each driver, and two quorums.
const BACKENDS: [&str; 6] =
    ["memory/virtual-time", "redis/single", "fred/single", "redlock/3-live", "redlock/5-live", "etcd/single"];

fn main() {
    #[cfg(feature = "metrics")]
    record();
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let makers = tenure_backends::makers();
    for id in BACKENDS {
        match makers.iter().find(|maker| maker.id() == id) {
            None => eprintln!("LEFT OUT: {id}: built without its feature (--features etcd)"),
            Some(maker) => bench(&mut criterion, maker),
        }
    }
    criterion.final_summary();
}

/// Installs a recorder with buckets, which a thread empties, as a service would.
#[cfg(feature = "metrics")]
fn record() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().set_buckets(&[0.000_1, 0.001, 0.01, 0.1, 1.0]);
    let handle = recorder.expect("there are buckets").install_recorder().expect("the only recorder");
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            handle.run_upkeep();
        }
    });
}

fn bench(criterion: &mut Criterion, maker: &Arc<dyn HarnessMaker>) {
    if let Err(missing) = maker.configured() {
        eprintln!("LEFT OUT: {}: {missing}", maker.id());
        return;
    }
    let driver = match Driver::start(maker) {
        Ok(driver) => driver,
        Err(error) => {
            eprintln!("LEFT OUT: {}: {error}", maker.id());
            return;
        }
    };
    pair::bench(criterion, &driver);
    hot::bench(criterion, &driver);
    held::bench(criterion, &driver);
}
