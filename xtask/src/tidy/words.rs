//! Pages, comments and texts are in plain words: of every thousand, few belong to one of six expressions. Why: each of them
//! hides a subject or a noun, and a sentence that hides those is read twice.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::lengths::{read, tracked};
use crate::command::{Failure, Findings, Outcome};

/// How many of a thousand words of a page, or of the public docs or the texts of a package.
const IN_PUBLIC: usize = 3;
/// The same for other comments of a package.
const INSIDE: usize = 6;
/// Programs, whose doc comments are help texts, tools and examples; their comments are not counted, and neither are those of tests.
const UNPUBLISHED: &[&str] = &["backends", "benches", "cli", "compare", "examples", "models", "testkit", "xtask"];

/// A shorter text counts as one of this many words.
const LEAST: usize = 1_000;

/// The counts of a page, or of a package.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    words: usize,
    hits: Vec<String>,
}

impl Count {
    fn add(&mut self, path: &str, line: usize, text: &str) {
        let words: Vec<String> = text.split('`').step_by(2).flat_map(words).collect();
        self.words += words.len();
        self.hits.extend(expressions(&words).into_iter().map(|found| format!("{path}:{line}: {found}")));
    }

    /// Nothing if there are few enough.
    fn findings(self, of: &str, most: usize) -> Findings {
        let allowed = self.words.max(LEAST) * most / 1_000;
        if self.hits.len() <= allowed {
            return Findings::new();
        }
        let head = format!(
            "{of}: {} of {} words are of six expressions; at most {allowed} may be:",
            self.hits.len(),
            self.words
        );
        std::iter::once(head).chain(self.hits).collect()
    }
}

pub(super) fn check() -> Outcome<Findings> {
    let mut findings = Findings::new();
    for path in &tracked("*.md")? {
        let mut count = Count::default();
        for (line, text) in prose(&read(path)?) {
            count.add(path, line, &text);
        }
        findings.extend(count.findings(path, IN_PUBLIC));
    }
    let mut packages = BTreeMap::<(String, bool), Count>::new();
    let mut speakers = BTreeMap::<String, Count>::new();
    for path in tracked("*.rs")? {
        let file = read(&path)?;
        if let Some(speaker) = speaker(&path) {
            for (line, text) in texts(&file, speaker == "cli")? {
                speakers.entry(speaker.to_owned()).or_default().add(&path, line, &text);
            }
        }
        let Some(package) = package(&path) else { continue };
        for (line, is_public, text) in comments(&file) {
            packages.entry((package.to_owned(), is_public)).or_default().add(&path, line, text);
        }
    }
    for path in tracked("*.sql")?.into_iter().chain(tracked("*.lua")?) {
        let Some((package, _)) = path.split_once('/') else { continue };
        let count = packages.entry((format!("{package}, scripts"), false)).or_default();
        for (line, text) in read(&path)?.lines().enumerate() {
            if let Some((_, comment)) = text.split_once("--") {
                count.add(&path, line + 1, comment);
            }
        }
    }
    for ((package, is_public), count) in packages {
        let (of, most) = if is_public { ("public docs", IN_PUBLIC) } else { ("comments", INSIDE) };
        findings.extend(count.findings(&format!("{package}, {of}"), most));
    }
    for (speaker, count) in speakers {
        findings.extend(count.findings(&format!("{speaker}, texts"), IN_PUBLIC));
    }
    Ok(findings)
}

/// The same for the subjects of commits, all together.
pub(super) fn of_subjects<'a>(subjects: impl Iterator<Item = &'a str>) -> Findings {
    let mut count = Count::default();
    for (number, subject) in subjects.enumerate() {
        count.add("git log", number + 1, subject);
    }
    count.findings("subjects of commits", IN_PUBLIC)
}

/// The package of a file, if its comments are counted.
fn package(path: &str) -> Option<&str> {
    let (package, rest) = path.split_once('/')?;
    let counted = package == "src" || rest.starts_with("src/") && !UNPUBLISHED.contains(&package);
    counted.then_some(package)
}

/// The package of a file, if its texts are counted: what is published, and the command.
fn speaker(path: &str) -> Option<&str> {
    let package = if path.starts_with("cli/src/") { Some("cli") } else { package(path) };
    package.filter(|_| !path.ends_with("tests.rs") && !path.contains("/tests/"))
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|sign: char| !sign.is_alphanumeric() && sign != '\'').filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

fn expressions(words: &[String]) -> Vec<&'static str> {
    let one = |word: &String| match word.as_str() {
        "told" | "tells" | "tell" => Some("told"),
        "nobody" | "somebody" | "whoever" | "everybody" | "anybody" => Some("nobody, whoever"),
        "stands" | "stood" => Some("stands"),
        _ => None,
    };
    let two = |pair: &[String]| match (pair[0].as_str(), pair[1].as_str()) {
        ("go" | "goes" | "going" | "went", "on") => Some("goes on"),
        ("is" | "are" | "was" | "were", "over") => Some("is over"),
        ("what", "is" | "are" | "was" | "were" | "has" | "had" | "waits") => Some("what is"),
        _ => None,
    };
    words.iter().filter_map(one).chain(words.windows(2).filter_map(two)).collect()
}

/// The text of a page outside code, with the line of each piece.
fn prose(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (event, range) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Text(text) if !in_code => {
                found.push((page[..range.start].matches('\n').count() + 1, text.into_string()));
            }
            _ => {}
        }
    }
    found
}

/// Comments of a file: the line, whether a public item or the file itself is described, and the text without code.
fn comments(file: &str) -> Vec<(usize, bool, &str)> {
    let lines: Vec<&str> = file.lines().map(str::trim_start).collect();
    let described = |from: usize| {
        let mut below = lines[from..].iter().filter(|line| !line.starts_with("///") && !line.starts_with("#["));
        below.next().is_some_and(|line| line.starts_with("pub "))
    };
    let mut in_code = false;
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let (is_public, text) = match (line.strip_prefix("///"), line.strip_prefix("//!"), line.strip_prefix("//")) {
            (Some(text), ..) => (described(at), text),
            (None, Some(text), _) => (true, text),
            (None, None, Some(text)) => (false, text),
            _ => {
                in_code = false;
                continue;
            }
        };
        if text.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            found.push((at + 1, is_public, text));
        }
    }
    found
}

/// Literals of several words, up to the tests of a file: the line, and the text with an x for each value. Of the command, doc comments as
/// well: they are its help.
fn texts(file: &str, with_docs: bool) -> Outcome<Vec<(usize, String)>> {
    let file = file.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let tokens = file.parse().map_err(|error| Failure(format!("cannot parse the beginning of {file:?}: {error}")))?;
    literals(tokens, with_docs, &mut found);
    Ok(found)
}

fn literals(tokens: TokenStream, with_docs: bool, found: &mut Vec<(usize, String)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let is_doc = matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(word)) if word == "doc");
                if with_docs || !is_doc {
                    literals(group.stream(), with_docs, found);
                }
            }
            TokenTree::Literal(literal) => {
                let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) else { continue };
                let value = |part: &str| part.split_once('}').map_or(part.to_owned(), |(_, after)| after.to_owned());
                let text = text.value().split('{').map(value).collect::<Vec<_>>().join(" x ");
                if text.trim().contains(' ') {
                    found.push((literal.span().start().line, text));
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_six_expressions_are_found_and_code_is_not() {
        let page = "# Told\n\nThe holder is told; `nobody` goes on,\nand what is here stands: it is over.\n\n```\nnobody\n```\n";
        let found: Vec<_> = prose(page).iter().flat_map(|(_, text)| expressions(&words(text))).collect();
        assert_eq!(found, ["told", "told", "goes on", "stands", "what is", "is over"]);
        assert_eq!(prose(page).last().unwrap().0, 4);
    }

    #[test]
    fn published_sources_are_counted() {
        assert_eq!(["src/lib.rs", "core/src/a/b.rs"].map(package), [Some("src"), Some("core")]);
        assert_eq!(
            ["cli/src/main.rs", "core/tests/it/main.rs", "examples/a/src/lib.rs", "build.rs"].map(package),
            [None; 4]
        );
    }

    #[test]
    fn docs_of_public_items_are_counted_apart() {
        let file = "//! A file.\n/// One.\n#[derive(Debug)]\npub struct A;\n/// Two.\nfn b() {} // three\n// Four.\n/// ```\n/// five\n/// ```\npub fn c() {}\n";
        let found: Vec<_> = comments(file).into_iter().map(|(line, public, _)| (line, public)).collect();
        assert_eq!(found, [(1, true), (2, true), (5, false), (7, false)]);
    }

    #[test]
    fn texts_of_the_command_and_of_what_is_published_are_counted_without_tests() {
        assert_eq!(["src/lib.rs", "cli/src/main.rs"].map(speaker), [Some("src"), Some("cli")]);
        assert_eq!(["core/src/a/tests.rs", "xtask/src/main.rs"].map(speaker), [None; 2]);
        let file = "// \"a b\"\n/// y z\nconst C: [char; 2] = ['\"', '\\''];\nlet b = \"c {what} \\\"d\";\nlet e = f(r#\"f \" g\"#);\n\
                    let h = \"one\";\n#[cfg(test)]\nmod tests {\n\"i j\" }\n";
        let literals = [(4, String::from("c  x  \"d")), (5, String::from("f \" g"))];
        assert_eq!(texts(file, false).unwrap(), literals);
        assert_eq!(texts(file, true).unwrap()[1..], literals);
    }

    #[test]
    fn a_text_with_few_of_them_passes_and_another_names_each() {
        let mut count = Count::default();
        count.add("a.md", 1, "nobody tells, and whoever stood");
        assert_eq!(count.findings("a.md", 3).len(), 5);
        let mut count = Count::default();
        count.add("a.md", 1, "nobody");
        assert!(count.findings("a.md", 3).is_empty());
    }
}
