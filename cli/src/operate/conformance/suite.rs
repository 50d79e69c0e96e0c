//! The suite over the backend that a URL names: it uses the capabilities that the live driver declares, and does nothing to
//! the server.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_conformance::{
    BoxError, CaseContext, CaseReport, Declared, Harness, HarnessMaker, Options, Outcome, Progress, Selection,
    check_filters, list, run_all,
};

use crate::backend::{Backend, VARIABLE};
use crate::exit::Failure;
use crate::messages::flush;
use crate::printer::{Format, Printer};
use crate::worker;

/// How long messages are waited for when the suite is ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// What to do with the chosen cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    List,
    /// So many at a time.
    Run(usize),
}

pub(super) async fn run(filters: &[String], order: Order, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    check_filters(filters.iter().map(String::as_str)).map_err(Failure::usage)?;
    let maker: Arc<dyn HarnessMaker> = Arc::new(UrlMaker::of(backend).await?);
    let wanted = |id: &str| filters.is_empty() || filters.iter().any(|part| id.contains(part.as_str()));
    let listed: Vec<_> = list(&*maker, &[]).into_iter().filter(|listed| wanted(listed.case.id)).collect();
    if listed.is_empty() {
        return Err(Failure::usage("no case for this backend has that in its name; --list shows all"));
    }
    let Order::Run(jobs) = order else {
        for listed in listed {
            let left_out = match &listed.selection {
                Selection::Ignore(why) => Some(why.to_string()),
                Selection::Run | Selection::ExpectFail(_) => None,
            };
            let (case, proves) = (listed.case.id, listed.case.proves);
            match printer.format {
                Format::Json => printer.json(&ListedView { case, proves, left_out })?,
                Format::Text => {
                    let left_out = left_out.map(|why| format!(" (left out: {why})")).unwrap_or_default();
                    printer.print(&format!("{case}: {proves}{left_out}"))?;
                }
            }
        }
        return Ok(0);
    };
    printer.note(&format!(
        "running {} cases on {}; they write names that begin with tc-, and some stay until they expire",
        listed.len(),
        maker.id()
    ));
    let mut options = Options { only: filters.to_vec(), jobs: Some(jobs), ..Options::default() };
    if printer.format == Format::Text {
        options.progress = Some(Progress::new(move |case, report| tell(case.id, report, printer)));
    }
    // Each case has a thread and a runtime of its own; this one has nothing else to do.
    let report = run_all(&maker, &options);
    match printer.format {
        Format::Json => printer.json(&report)?,
        Format::Text => printer.print(report.to_string().trim_end())?,
    }
    Ok(if report.failed == 0 && report.passed + report.refused > 0 { 0 } else { 1 })
}

/// A case, for programs.
#[derive(Debug, serde::Serialize)]
struct ListedView {
    case: &'static str,
    proves: &'static str,
    left_out: Option<String>,
}

fn tell(id: &str, report: &CaseReport, printer: Printer) {
    let word = match report.outcome {
        Outcome::Passed => "passed",
        Outcome::Refused => "refused",
        Outcome::Ignored => "left out",
        Outcome::ExpectedFail => "expected",
        Outcome::Failed => "FAILED",
    };
    let reason = report.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    if let Err(failure) = printer.print(&format!("{word:<9} {id} ({} ms){reason}", report.ms)) {
        // The suite offers no other way to end it early.
        let exit = printer.fail(&failure);
        flush(FAREWELL);
        std::process::exit(exit.into());
    }
}

struct UrlMaker {
    backend: Backend,
    driver: &'static str,
    declared: Declared,
}

impl UrlMaker {
    /// Connects once, to learn what the driver declares.
    async fn of(backend: &Backend) -> Result<Self, Failure> {
        let backend = backend.meeting();
        let live = tenure::connect_backend(backend.url()).await?;
        let mut declared = Declared::new(live.locks().capabilities());
        if let Some(reentrant) = live.reentrant() {
            declared = declared.reentrant(reentrant.capabilities());
        }
        if let Some(permits) = live.permits() {
            declared = declared.permits(permits.capabilities());
        }
        if let Some(queue) = live.queue() {
            declared = declared.queue(queue.capabilities());
        }
        if live.queue_admin().is_none() {
            declared = declared.without_queue_admin();
        }
        if let Some(census) = live.census() {
            declared = declared.census(census.capabilities());
        }
        if !backend.is_of_this_process() {
            declared = declared.several_processes();
        }
        let driver = live.locks().driver();
        live.locks().close().await;
        Ok(Self { backend, driver, declared })
    }
}

#[async_trait]
impl HarnessMaker for UrlMaker {
    fn id(&self) -> &str {
        self.driver
    }

    fn declared(&self) -> Declared {
        self.declared.clone()
    }

    fn server(&self) -> String {
        String::from("the server of the URL")
    }

    async fn make(&self, _: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(UrlHarness { backend: self.backend.clone(), opened: Vec::new() }))
    }
}

struct UrlHarness {
    backend: Backend,
    opened: Vec<tenure::driver::Backend>,
}

#[async_trait]
impl Harness for UrlHarness {
    async fn backend(&mut self) -> Result<tenure::driver::Backend, BoxError> {
        let backend = tenure::connect_backend(self.backend.url()).await?;
        self.opened.push(backend.clone());
        Ok(backend)
    }

    /// This program again. The URL is in a variable, where a password in it is as safe as it is here.
    fn worker_command(&self) -> Option<Command> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(worker::COMMAND).env(VARIABLE, self.backend.url());
        Some(command)
    }

    async fn teardown(self: Box<Self>) -> Result<(), BoxError> {
        for backend in &self.opened {
            backend.locks().close().await;
        }
        Ok(())
    }
}
