//! What a report says of a case that failed: whose fault it was, with causes, and the last calls of the driver.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_conformance::mutants::{self, MutantMaker};
use tenure_conformance::{
    BoxError, CaseContext, Declared, Harness, HarnessMaker, Inspector, Options, Outcome, Residue, check_filters,
    run_all,
};
use tenure_core::LockName;
use tenure_core::driver::Backend;

/// An error with a cause.
#[derive(Debug)]
struct Failing(&'static str, Option<&'static Failing>);

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Failing {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.map(|cause| cause as _)
    }
}

fn failing(what: &'static str) -> BoxError {
    Box::new(Failing(what, Some(&Failing("connection refused", None))))
}

/// The in-process driver behind a harness that fails itself.
struct Broken {
    inner: Arc<dyn HarnessMaker>,
    makes: bool,
}

#[async_trait]
impl HarnessMaker for Broken {
    fn id(&self) -> &str {
        "broken"
    }

    fn declared(&self) -> Declared {
        self.inner.declared()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let inner = self.inner.make(context).await?;
        if self.makes { Ok(Box::new(Blind(inner))) } else { Err(failing("no server answers")) }
    }
}

/// A harness whose inspector fails.
struct Blind(Box<dyn Harness>);

#[async_trait]
impl Harness for Blind {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        self.0.backend().await
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(FailingLook))
    }
}

struct FailingLook;

#[async_trait]
impl Inspector for FailingLook {
    async fn residue(&self, _name: &LockName) -> Result<Residue, BoxError> {
        Err(failing("cannot read the store"))
    }

    async fn names(&self) -> Result<usize, BoxError> {
        Err(failing("cannot read the store"))
    }
}

/// Why this case fails.
fn reason(maker: Arc<dyn HarnessMaker>, case: &str) -> String {
    let report = run_all(&maker, &Options { seed: 7, only: vec![case.to_owned()], ..Options::default() });
    let case = report.case(case).expect("it was listed");
    assert_eq!(case.outcome, Outcome::Failed);
    case.reason.clone().expect("a reason")
}

#[test]
fn what_failed_in_the_harness_is_reported_as_that_with_its_cause() {
    let broken = |makes| Arc::new(Broken { inner: crate::memory::maker(), makes });
    let unmade = reason(broken(false), "hygiene/guard-dropped-outside-a-runtime");
    assert!(unmade.contains("no harness: no server answers: connection refused"), "{unmade}");
    let blind = reason(broken(true), "hygiene/guard-dropped-outside-a-runtime");
    let reported = "nothing is left in the store; the last look failed: unexpected error: the inspector of the harness \
                failed: cannot read the store: connection refused";
    assert!(blind.contains(reported), "{blind}");
}

#[test]
fn a_case_that_failed_tells_the_last_calls_of_the_driver() {
    let mutant = mutants::all().find(|mutant| !mutant.killed_by.is_empty()).expect("there are mutants");
    let case = mutant.killed_by[0];
    let reported = reason(Arc::new(MutantMaker::new(crate::memory::maker(), mutant)), case);
    let calls: Vec<&str> = reported.lines().skip_while(|line| !line.contains("calls of the driver:")).collect();
    assert!((2..=11).contains(&calls.len()), "{reported}");
    assert!(calls[1..].iter().all(|line| line.contains(" s  client ") && line.contains(": ")), "{reported}");
    assert!(reported.contains("acquire") || reported.contains("push"), "{reported}");
}

#[test]
fn a_filter_that_matches_no_case_is_refused() {
    check_filters(["lease/", "queue/worker-extends"]).unwrap();
    let refused = check_filters(["lease/", "exclusion/"]).unwrap_err();
    assert!(refused.contains("\"exclusion/\"") && refused.contains("lease"), "{refused}");
}
