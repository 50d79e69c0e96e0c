//! Files do not depend on each other in a circle. Why: what hangs together in a circle can only be read, moved and tested as
//! one.
//!
//! An arrow is a path that begins with `crate`, `self`, `super` or a module of the file, in a `use` or in code, outside of
//! tests. It leads to the file that defines the named item, through `pub use`, which itself is no arrow: handing names on is not
//! depending on them.

use std::collections::{BTreeMap, BTreeSet};

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

use super::lengths::{read, tracked};
use crate::command::Findings;
use crate::command::{Failure, Outcome};

/// A module, from the root of its crate on.
type Path = Vec<String>;

#[derive(Default)]
struct Module {
    /// What it names.
    uses: Vec<Path>,
    /// What it hands on, by the name under which it does.
    exports: BTreeMap<String, Path>,
}

pub(super) fn check() -> Outcome<Findings> {
    let mut sources: BTreeMap<String, BTreeMap<Path, Module>> = BTreeMap::new();
    for file in tracked("*.rs")? {
        let Some((package, inner)) = split(&file) else { continue };
        sources.entry(package).or_default().insert(inner, Module::default());
    }
    let mut findings = Findings::new();
    for (package, modules) in &mut sources {
        let known: BTreeSet<Path> = modules.keys().cloned().collect();
        for file in tracked(&format!("{package}/src/*.rs").replace("./", ""))? {
            let Some((_, path)) = split(&file) else { continue };
            modules.insert(path.clone(), module(&file, &path, &known)?);
        }
        let circles = circles(&arrows(modules));
        for circle in circles {
            let within = within(modules, &circle).join("\n  ");
            findings.push(format!("{package}: {} files depend on each other in a circle:\n  {within}", circle.len()));
        }
    }
    Ok(findings)
}

/// The package's folder and the module that a file is; `None` for a file that is not the source of a library or program.
fn split(file: &str) -> Option<(String, Path)> {
    let (package, inner) = file.strip_prefix("src/").map(|inner| (".", inner)).or_else(|| file.split_once("/src/"))?;
    if inner.starts_with("bin/") || package.contains('/') && !package.starts_with("examples/") {
        return None;
    }
    let mut path: Path = inner.strip_suffix(".rs")?.split('/').map(String::from).collect();
    if path.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        path.pop();
    }
    Some((package.to_owned(), path))
}

fn module(file: &str, path: &Path, known: &BTreeSet<Path>) -> Outcome<Module> {
    let syntax = syn::parse_file(&read(file)?).map_err(|error| Failure(format!("cannot parse {file}: {error}")))?;
    let mut reader = Reader { path, known, module: Module::default() };
    reader.visit_file(&syntax);
    Ok(reader.module)
}

struct Reader<'a> {
    path: &'a Path,
    known: &'a BTreeSet<Path>,
    module: Module,
}

impl Reader<'_> {
    /// The path from the root of the crate; nothing if it leads out of the crate.
    fn absolute(&self, segments: &[String]) -> Option<Path> {
        let (first, rest) = segments.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([self.path.as_slice(), rest].concat()),
            "super" => {
                let ups = segments.iter().take_while(|segment| *segment == "super").count();
                let base = self.path.get(..self.path.len().checked_sub(ups)?)?;
                Some([base, &segments[ups..]].concat())
            }
            _ => {
                let child = [self.path.as_slice(), std::slice::from_ref(first)].concat();
                self.known.contains(&child).then(|| [self.path.as_slice(), segments].concat())
            }
        }
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &mut Vec<String>, public: bool) {
        let (name, last) = match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(&path.tree, before, public);
                before.pop();
                return;
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.tree(item, before, public));
                return;
            }
            syn::UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            syn::UseTree::Rename(rename) => (rename.rename.to_string(), rename.ident.to_string()),
            syn::UseTree::Glob(_) => (String::from("*"), String::new()),
        };
        let mut whole = before.clone();
        whole.extend((!last.is_empty() && last != "self").then_some(last));
        let Some(path) = self.absolute(&whole) else { return };
        if public {
            self.module.exports.insert(name, path);
        } else {
            self.module.uses.push(path);
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Meta>().is_ok_and(|condition| needs_tests(&condition))
    })
}

/// `test`, or `all(…)` with it.
fn needs_tests(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::List(all) if all.path.is_ident("all") => all
            .parse_args_with(Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated)
            .is_ok_and(|conditions| conditions.iter().any(needs_tests)),
        condition => condition.path().is_ident("test"),
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        if !is_for_tests(&item.attrs) {
            self.tree(&item.tree, &mut Vec::new(), public);
        }
    }

    /// Who may see an item is not what the item depends on.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1
            && let Some(path) = self.absolute(&segments)
        {
            self.module.uses.push(path);
        }
        visit::visit_path(self, path);
    }
}

/// Which file defines what this path names.
fn home(modules: &BTreeMap<Path, Module>, path: &[String], steps: usize) -> Option<Path> {
    let at = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
    let (file, rest) = path.split_at(at);
    let further = rest.first().and_then(|name| modules[file].exports.get(name));
    match further {
        Some(further) if steps > 0 => home(modules, &[further.as_slice(), &rest[1..]].concat(), steps - 1),
        _ => Some(file.to_vec()),
    }
}

fn name(path: &Path) -> String {
    if path.is_empty() { String::from("the root") } else { path.join("/") }
}

fn arrows(modules: &BTreeMap<Path, Module>) -> BTreeMap<String, BTreeSet<String>> {
    let arrows = modules.iter().map(|(path, module)| {
        let to = module.uses.iter().filter_map(|used| home(modules, used, 8)).filter(|to| to != path);
        (name(path), to.map(|to| name(&to)).collect())
    });
    arrows.collect()
}

/// The arrows inside a circle, with the items that each names: these have to move for the circle to open.
fn within(modules: &BTreeMap<Path, Module>, circle: &[String]) -> Vec<String> {
    let mut arrows: BTreeMap<(String, String), BTreeSet<&str>> = BTreeMap::new();
    for (path, module) in modules.iter().filter(|(path, _)| circle.contains(&name(path))) {
        for used in &module.uses {
            if let Some(to) = home(modules, used, 8).filter(|to| to != path && circle.contains(&name(to))) {
                arrows.entry((name(path), name(&to))).or_default().extend(used.last().map(String::as_str));
            }
        }
    }
    let line = |((from, to), names): ((String, String), BTreeSet<&str>)| {
        format!("{from} -> {to} ({})", names.into_iter().collect::<Vec<_>>().join(", "))
    };
    arrows.into_iter().map(line).collect()
}

/// The files that can be reached from each other.
fn circles(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        arrows.keys().map(|from| (from, reached(arrows, from))).collect();
    let mut circles = Vec::new();
    let mut done = BTreeSet::new();
    for from in arrows.keys() {
        let circle: Vec<_> =
            reached[from].iter().filter(|to| reached[**to].contains(from)).map(|to| (*to).clone()).collect();
        if circle.len() > 1 && done.insert(circle.clone()) {
            circles.push(circle);
        }
    }
    circles
}

fn reached<'a>(arrows: &'a BTreeMap<String, BTreeSet<String>>, from: &'a String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&String> = arrows[from].iter().collect();
    while let Some(to) = left.pop() {
        if reached.insert(to) {
            left.extend(&arrows[to]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(of: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        of.iter().map(|(from, to)| ((*from).to_owned(), to.iter().map(ToString::to_string).collect())).collect()
    }

    #[test]
    fn what_can_be_reached_both_ways_is_a_circle() {
        let found = circles(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &["a"])]));
        assert_eq!(found, [["b", "c"]]);
        assert!(circles(&graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
    }

    #[test]
    fn a_circle_is_reported_by_what_its_arrows_name() {
        let path = |text: &str| vec![text.to_owned()];
        let uses = |of: &str, what: &str| vec![vec![of.to_owned(), what.to_owned()]];
        let module = |uses| Module { uses, exports: BTreeMap::new() };
        let modules = [(path("a"), module(uses("b", "Deep"))), (path("b"), module(uses("a", "High")))].into();
        let found = within(&modules, &["a".to_owned(), "b".to_owned()]);
        assert_eq!(found, ["a -> b (Deep)", "b -> a (High)"]);
    }

    #[test]
    fn a_path_leads_to_the_file_that_defines_it() {
        let path = |text: &str| text.split("::").filter(|part| !part.is_empty()).map(String::from).collect::<Path>();
        let known: BTreeSet<Path> = ["", "high", "low", "low::deep"].map(path).into();
        let text = "use super::low::{Deep, other}; pub(in crate::nowhere) struct S; pub use super::low::Deep as Handed;
            fn f() -> crate::low::deep::Type { super::low::Deep } #[cfg(test)] mod tests { use crate::nowhere::X; }
            #[cfg(all(unix, test))] mod more { use crate::low::X; }";
        let mut reader = Reader { path: &path("high"), known: &known, module: Module::default() };
        reader.visit_file(&syn::parse_file(text).unwrap());
        let mut modules: BTreeMap<Path, Module> = known.iter().map(|path| (path.clone(), Module::default())).collect();
        let exports = [(String::from("Deep"), path("low::deep::Deep"))].into();
        modules.insert(path("low"), Module { uses: Vec::new(), exports });
        let homes: Vec<_> = reader.module.uses.iter().map(|used| home(&modules, used, 8).unwrap().join("/")).collect();
        assert_eq!(homes, ["low/deep", "low", "low/deep", "low/deep"]);
        assert_eq!(reader.module.exports["Handed"], path("low::Deep"));
    }
}
