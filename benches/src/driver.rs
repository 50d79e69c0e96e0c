//! A driver under measurement: its harness, a client, and the runtime that both live on.

use std::future::Future;
use std::sync::Arc;

use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use tenure_conformance::{BoxError, CaseContext, Harness, HarnessMaker, Isolation};
use tenure_core::Client;
use tenure_core::driver::Backend;
use tokio::runtime::{Builder, Runtime};

pub(crate) struct Driver {
    pub(crate) id: String,
    pub(crate) backend: Backend,
    pub(crate) client: Client,
    runtime: Runtime,
    _harness: Box<dyn Harness>,
}

impl Driver {
    pub(crate) fn start(maker: &Arc<dyn HarnessMaker>) -> Result<Self, BoxError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let context =
            CaseContext { case: "bench", prefix: "bench".into(), seed: 1, isolation: Isolation::Shared, slack: 1.0 };
        let (harness, backend) = runtime.block_on(async {
            let mut harness = maker.make(context).await?;
            let backend = harness.backend().await?;
            Ok::<_, BoxError>((harness, backend))
        })?;
        let client = Client::new(backend.clone());
        Ok(Self { id: maker.id().to_owned(), backend, client, runtime, _harness: harness })
    }

    pub(crate) fn block_on<F: Future>(&self, work: F) -> F::Output {
        self.runtime.block_on(work)
    }

    /// Names in the report begin with the driver's, so that it can be chosen on the command line.
    pub(crate) fn group<'a>(&self, criterion: &'a mut criterion::Criterion) -> BenchmarkGroup<'a, WallTime> {
        criterion.benchmark_group(self.id.as_str())
    }
}
