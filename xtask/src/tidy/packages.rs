//! What a registry gets is whole, and nothing more. Why: a release cannot be taken back, and a package without its licence, or
//! whose versions exclude a third party's driver, is found out by strangers.

use std::collections::BTreeSet;

use cargo_metadata::{Dependency, DependencyKind, Metadata, Package};
use serde_json::json;

use crate::command::{Findings, Outcome, cargo, output};

/// What a published package consists of: these files, and everything in these folders.
const SHIPPED: &[&str] =
    &["CHANGELOG.md", "Cargo.lock", "Cargo.toml", "Cargo.toml.orig", ".cargo_vcs_info.json", "docs/features.md"];
const FOLDERS: &[&str] = &["examples/", "man/", "sql/", "src/"];
const NEEDED: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The packages that are required in one exact version, since they share with their users items without a promise of stability.
const PINNED: &[&str] = &["tenure-redis-support"];

pub(super) fn check(metadata: &Metadata) -> Outcome<Findings> {
    let members = metadata.workspace_packages();
    let published: Vec<&Package> = members.iter().copied().filter(|package| is_published(package)).collect();
    let names: BTreeSet<&str> = published.iter().map(|package| package.name.as_str()).collect();
    let mut findings = Findings::new();
    for package in &published {
        let name = package.name.as_str();
        findings.extend(about(package).into_iter().map(|what| format!("{name}: {what} in its Cargo.toml")));
        let internal = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
        let wrong = internal.filter_map(|dependency| version(dependency, &names, &package.version.to_string()));
        findings.extend(wrong.map(|what| format!("{name}: {what}")));
        if comes_back(name, &published) {
            findings.push(format!(
                "{name}: a circle of dependencies with versions, tests' ones included; leave out the version of one"
            ));
        }
        let listed = output(&mut cargo(&["package", "--list", "--allow-dirty", "--quiet", "--package", name]))?;
        findings.extend(files(&listed).into_iter().map(|what| format!("{name}: {what}")));
    }
    Ok(findings)
}

fn is_published(package: &Package) -> bool {
    package.publish.as_ref().is_none_or(|registries| !registries.is_empty())
}

/// What a registry and docs.rs show of a package, as far as it is missing.
fn about(package: &Package) -> Findings {
    let docs =
        json!({ "all-features": true, "rustdoc-args": ["--cfg", "docsrs"], "targets": ["x86_64-unknown-linux-gnu"] });
    let is_library = package.targets.iter().any(|target| target.is_lib());
    [
        (package.description.is_none(), "no description"),
        (package.license.is_none(), "no license.workspace = true"),
        (package.repository.is_none(), "no repository.workspace = true"),
        (package.readme.is_none(), "no readme"),
        (package.keywords.is_empty() || package.keywords.len() > 5, "not one to five keywords"),
        (package.categories.is_empty() || package.categories.len() > 5, "not one to five categories"),
        (is_library && package.metadata["docs"]["rs"] != docs, "no [package.metadata.docs.rs] like that of core"),
    ]
    .into_iter()
    .filter(|(wrong, _)| *wrong)
    .map(|(_, what)| what.to_owned())
    .collect()
}

/// A published package takes the workspace's version or a later compatible one of another. Unpublished packages are used
/// by tests only, without a version: cargo leaves those out of the package.
fn version(dependency: &Dependency, published: &BTreeSet<&str>, current: &str) -> Option<String> {
    let (name, required) = (dependency.name.as_str(), dependency.req.to_string());
    let for_tests = dependency.kind == DependencyKind::Development;
    let wanted = format!("{}{current}", if PINNED.contains(&name) { "=" } else { "^" });
    match required.as_str() {
        "*" if for_tests => None,
        _ if !published.contains(name) => Some(format!("depends on {name}, which is not published")),
        _ if required == wanted => None,
        _ => Some(format!("asks for {name} {required}, not {wanted}")),
    }
}

/// Whether a package depends on itself through what a registry has to have before it.
fn comes_back(name: &str, published: &[&Package]) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![name]);
    while let Some(at) = next.pop() {
        let package = published.iter().find(|package| package.name.as_str() == at);
        let dependencies = package.into_iter().flat_map(|package| &package.dependencies);
        for dependency in dependencies.filter(|d| d.path.is_some() && d.req.to_string() != "*") {
            if dependency.name == name {
                return true;
            }
            if seen.insert(dependency.name.as_str()) {
                next.push(&dependency.name);
            }
        }
    }
    false
}

/// The missing and the superfluous entries in the list of a package's files.
fn files(listed: &str) -> Findings {
    let missing = NEEDED.iter().filter(|needed| !listed.lines().any(|line| line == **needed));
    let missing = missing.map(|needed| match *needed {
        "README.md" => String::from("ships no README.md"),
        licence => format!("ships no {licence}: ln -s ../{licence} in its folder, and name it in `include`"),
    });
    let allowed = |line: &&str| {
        NEEDED.contains(line) || SHIPPED.contains(line) || FOLDERS.iter().any(|folder| line.starts_with(folder))
    };
    let extra = listed.lines().filter(|line| !allowed(line));
    missing.chain(extra.map(|line| format!("ships {line}; see `include`"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(name: &str, required: &str, kind: &str) -> Dependency {
        let value = json!({
            "name": name, "source": null, "req": required, "kind": kind, "optional": false,
            "uses_default_features": true, "features": [], "target": null, "registry": null, "path": "/p",
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn versions_are_compatible_ones_but_where_a_pin_is_known() {
        let published = BTreeSet::from(["tenure-core", "tenure-redis-support"]);
        let wrong = |name, required, kind| version(&dependency(name, required, kind), &published, "0.1.2");
        assert_eq!(wrong("tenure-core", "^0.1.2", "normal"), None);
        assert_eq!(wrong("tenure-redis-support", "=0.1.2", "normal"), None);
        assert_eq!(wrong("tenure-testkit", "*", "dev"), None);
        assert_eq!(wrong("tenure-core", "=0.1.2", "normal").unwrap(), "asks for tenure-core =0.1.2, not ^0.1.2");
        assert!(wrong("tenure-core", "^0.1.1", "normal").is_some(), "an older one is not what was tested");
        assert!(wrong("tenure-core", "*", "normal").is_some());
        assert!(wrong("tenure-testkit", "^0.1.2", "dev").unwrap().contains("not published"));
    }

    #[test]
    fn a_package_has_its_licences_and_no_tests() {
        let whole = "Cargo.toml\nLICENSE-APACHE\nLICENSE-MIT\nREADME.md\nsrc/lib.rs\nsql/lock.sql\n";
        assert!(files(whole).is_empty());
        let found = files("Cargo.toml\nLICENSE-MIT\nREADME.md\nsrc/lib.rs\ntests/it.rs\n");
        assert!(found[0].contains("no LICENSE-APACHE") && found[1].contains("ships tests/it.rs"), "{found:?}");
    }
}
