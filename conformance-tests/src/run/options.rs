//! The options of a run.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::case::Case;
use crate::cases;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of all random values. Default: `TENURE_SEED`, else the time of day.
    pub seed: u64,
    /// The minimum factor by which real waits are stretched. A case that begins while the machine or the server is slow
    /// stretches them further, by the time that a pair of requests takes just then. Default: `TENURE_SLACK`, else 1.
    pub slack: f64,
    /// The number of cases that run at the same time. Default: 6 on the machine's clock, 2 on a virtual one.
    pub jobs: Option<usize>,
    /// Only cases whose id contains one of these. Default: all.
    pub only: Vec<String>,
    /// Backends that must be configured. Default: `TENURE_CONFORMANCE_REQUIRE`, separated by commas.
    pub required: Vec<String>,
    /// The time limit of one case on the wall clock, before it is stretched. It applies whatever the case waits for.
    /// Default: 2 minutes.
    pub hard_limit: Duration,
    /// Receives each case when it ends.
    pub progress: Option<Progress>,
}

type Listener = Arc<dyn Fn(&'static Case, &super::CaseReport) + Send + Sync>;

/// A callback that receives each case when it ends.
#[derive(Clone)]
pub struct Progress(pub(super) Listener);

impl Progress {
    /// Calls `told` for each case.
    pub fn new(reported: impl Fn(&'static Case, &super::CaseReport) + Send + Sync + 'static) -> Self {
        Self(Arc::new(reported))
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}

impl Default for Options {
    fn default() -> Self {
        let var = |name| std::env::var(name).ok();
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let slack = var("TENURE_SLACK").and_then(|text| text.parse().ok()).unwrap_or(1.0_f64).clamp(1.0, 20.0);
        let required = var("TENURE_CONFORMANCE_REQUIRE").unwrap_or_default();
        Self {
            seed: var("TENURE_SEED").and_then(|text| text.parse().ok()).unwrap_or(clock.as_micros() as u64),
            slack,
            jobs: None,
            only: Vec::new(),
            required: required.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect(),
            hard_limit: Duration::from_secs(120),
            progress: None,
        }
    }
}

/// Refuses a filter that no id of a case contains.
///
/// # Errors
///
/// The filter, with the existing themes.
pub fn check_filters<'a>(filters: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let unknown = filters.into_iter().find(|part| !cases::all().any(|case| case.id.contains(part)));
    let Some(part) = unknown else { return Ok(()) };
    let mut themes: Vec<&str> = cases::all().map(Case::theme).collect();
    themes.sort_unstable();
    themes.dedup();
    Err(format!(
        "no case has \"{part}\" in its name; --list shows all, and these are their themes: {}",
        themes.join(", ")
    ))
}

impl Options {
    /// Whether the case is among those asked for.
    pub(super) fn wants(&self, case: &Case) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| case.id.contains(part.as_str()))
    }
}
