//! The selection of cases for a backend, decided before the suite connects to anything.

use super::{Case, Need, Verdict};
use crate::cases;
use crate::harness::{Declared, HarnessMaker, Isolation};

/// A case as it is listed for one backend.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The case.
    pub case: &'static Case,
    /// Its selection.
    pub selection: Selection,
}

/// The treatment of a listed case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// It runs and must pass.
    Run,
    /// It runs and must fail, because of this issue.
    ExpectFail(&'static str),
    /// It does not run, for this reason.
    Ignore(String),
}

/// Every case for this backend. `required` are the backends that must be configured; `all` requires each.
#[must_use]
pub fn list(maker: &dyn HarnessMaker, required: &[String]) -> Vec<Listed> {
    let declared = maker.declared();
    let missing = maker.configured().err().filter(|_| !is_required(maker.id(), required));
    let expected = maker.expected_failures();
    let mut listed: Vec<Listed> = cases::all()
        .filter_map(|case| {
            let mut selection = select(case, &declared)?;
            if let (Selection::Run, Some((_, issue))) = (&selection, expected.iter().find(|(id, _)| *id == case.id)) {
                selection = Selection::ExpectFail(issue);
            }
            if let Some(missing) = &missing {
                selection = Selection::Ignore(format!("not configured: {missing}"));
            }
            Some(Listed { case, selection })
        })
        .collect();
    listed.sort_by_key(|entry| entry.case.id);
    listed
}

fn select(case: &Case, declared: &Declared) -> Option<Selection> {
    let mut selection = Selection::Run;
    for need in case.needs {
        match need.judge(declared) {
            Verdict::Met => {}
            Verdict::Elsewhere => return None,
            Verdict::Unmet(why) => selection = Selection::Ignore(why.to_owned()),
        }
    }
    Some(selection)
}

fn is_required(id: &str, required: &[String]) -> bool {
    required.iter().any(|name| name == id || name == "all")
}

impl Case {
    /// Whether the case may share its server with others: not if it harms the server, nor if it makes fences begin
    /// elsewhere.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        let alone = |need: &Need| match need {
            Need::Fault(kind) => !kind.is_local(),
            need => *need == Need::FenceFloors,
        };
        if self.needs.iter().any(alone) { Isolation::Exclusive } else { Isolation::Shared }
    }
}
