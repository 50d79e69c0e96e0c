//! What a page of Markdown links to, and what can be linked to on it.

use std::collections::BTreeSet;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A page, as far as links are concerned.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// Where its links and pictures lead, as they are written.
    pub(crate) links: Vec<String>,
    /// Its headings, as fragments of an address.
    pub(crate) anchors: BTreeSet<String>,
}

pub(crate) fn page(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let again = (1..).map(|times| format!("{anchor}-{times}"));
                let free = std::iter::once(anchor.clone()).chain(again).find(|name| !page.anchors.contains(name));
                page.anchors.extend(free);
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    page
}

/// The fragment of a heading, as hosts of repositories and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|sign| sign.is_alphanumeric() || " -_".contains(*sign));
    kept.flat_map(char::to_lowercase).map(|sign| if sign == ' ' { '-' } else { sign }).collect()
}

/// The file of the repository that a link of another one leads to, and the fragment. Nothing for an address elsewhere.
pub(crate) fn target(from: &str, link: &str) -> Option<(String, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, fragment) = link.split_once('#').map_or((link, None), |(file, fragment)| (file, Some(fragment)));
    if file.is_empty() {
        return Some((from.to_owned(), fragment.map(str::to_owned)));
    }
    let mut path: Vec<&str> = from.split('/').collect();
    path.pop();
    for part in file.trim_end_matches('/').split('/').filter(|part| *part != ".") {
        if part == ".." && path.last().is_some_and(|last| *last != "..") {
            path.pop();
        } else {
            path.push(part);
        }
    }
    Some((path.join("/"), fragment.map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_pictures_and_headings_are_found_and_code_is_not() {
        let text = "# A `b`, c?\n\n[d](e.md#f) ![g](h.svg) `[i](j)`\n\n## A b c\n\n```\n[k](l)\n# m\n```\n\n| [n](o) |\n|---|\n";
        let page = page(text);
        assert_eq!(page.links, ["e.md#f", "h.svg", "o"]);
        assert_eq!(page.anchors, ["a-b-c", "a-b-c-1"].map(String::from).into());
    }

    #[test]
    fn a_link_is_resolved_from_the_page_that_has_it() {
        let file =
            |from, link| target(from, link).map(|(file, fragment)| format!("{file}#{}", fragment.unwrap_or_default()));
        assert_eq!(file("docs/a.md", "b.md#c").unwrap(), "docs/b.md#c");
        assert_eq!(file("docs/a.md", "../core/").unwrap(), "core#");
        assert_eq!(file("docs/a.md", "#c").unwrap(), "docs/a.md#c");
        assert_eq!(file("a.md", "../b.md").unwrap(), "../b.md#", "outside of the repository");
        assert_eq!(file("a.md", "https://docs.rs/tenure"), None);
    }
}
