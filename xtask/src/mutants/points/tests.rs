//! Code, and the mistakes that can be made in it.

use super::super::edit;
use super::*;

fn changes(source: &str) -> Vec<String> {
    find("src/f.rs", source, 1).unwrap().mutants.iter().map(Mutant::change).collect()
}

/// The text with all mistakes in it, with `1` for what asks for the first.
fn edited(source: &str) -> String {
    let found = find("src/f.rs", source, 1).unwrap();
    let text = edit::apply(source, &found.mutants.iter().collect::<Vec<_>>()).text;
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    text.replace("crate::__mutants::on", "on")
}

#[test]
fn conditions_and_their_operands() {
    assert_eq!(
        changes("fn f() -> T { if a() && (b || c) { 1 } else { 2 } }"),
        ["a() && (b || c) → true", "a() && (b || c) → false", "a() → true", "b || c → true", "b → false", "c → false"]
    );
    assert_eq!(
        edited("fn f() -> T { if a && b { 1 } else { 2 } }"),
        "fn f() -> T { if (on(1) || ((!on(2) && ((on(3) || (a)) && (on(4) || (b)))))) { 1 } else { 2 } }"
    );
    assert_eq!(changes("fn f() -> T { while x.y { } }"), ["x.y → true", "x.y → false"]);
    assert_eq!(changes("fn f() -> T { c.then_some(1) }"), ["c → true", "c → false"]);
    assert_eq!(changes("fn f() -> T { x.filter(|a| a.b) }"), ["a.b → true", "a.b → false"]);
}

#[test]
fn patterns_do_not_match() {
    assert_eq!(
        changes("fn f() -> T { if let Some(a) = b { a } else { c } }"),
        ["→ let Some(a) = b && false".replace("→", " →")]
    );
    assert_eq!(
        edited("fn f() -> T { if let Some(a) = b && c { a } else { d } }"),
        "fn f() -> T { if let Some(a) = b && (on(2) || (c)) && !on(1) { a } else { d } }"
    );
    assert_eq!(
        edited("fn f() -> T { match a { B => 1, C if d => 2, E | F => 3, _ => 3 } }"),
        "fn f() -> T { match a { B if !on(1) => 1, C if (on(2) || ((!on(3) && (d)))) => 2, E | F => 3, _ => 3 } }"
    );
    assert_eq!(changes("fn f() -> T { match a { B => 1, C => 2 } }"), [""; 0]);
}

#[test]
fn what_nobody_can_notice_is_left_alone() {
    for source in ["v.reserve(2);", "if Instant::now() >= a { }", "if a.elapsed() < b { }"] {
        let all = changes(&format!("fn f() -> T {{ {source} }}"));
        assert!(all.iter().all(|change| change.ends_with("→ true") || change.ends_with("→ false")), "{all:?}");
    }
    assert_eq!(changes("fn f() -> T { now >= a }"), ["now >= a → now > a"]);
}

#[test]
fn operators() {
    assert_eq!(
        edited("fn f() -> T { a < b + 1 }"),
        "fn f() -> T { (if on(1) { a <= b + 1 } else { a < (if on(2) { b - 1 } else { b + 1 }) }) }"
    );
    assert_eq!(changes("fn f() -> T { g(a == b, !c) }"), ["a == b → !(a == b)", "!c → !(!c)"]);
    assert_eq!(
        changes("fn f() -> T { a.min(b).saturating_add(1) }"),
        ["a.min(b).saturating_add(1) → a.min(b).saturating_sub(1)", "a.min(b) → a.max(b)"]
    );
    assert_eq!(changes("fn f() -> T { g(matches!(a, B)) }"), ["matches!(a, B) → !(matches!(a, B))"]);
}

#[test]
fn statements_are_left_out() {
    assert_eq!(
        edited("fn f() -> T { g(a)?; let b = g(); b.c = d; loop { e.h().await; } }"),
        "fn f() -> T { if !on(2) { g(a)?; } let b = g(); if !on(3) { b.c = d; } loop { if !on(1) { e.h().await; } } }"
    );
    assert_eq!(
        edited("fn f() { if a { g() } }"),
        "fn f() { if on(1) { return; } if (on(2) || ((!on(3) && (a)))) { if !on(4) { g() } } }"
    );
    assert_eq!(changes("fn f() -> T { return g(); }"), [""; 0]);
}

#[test]
fn bodies_return_at_once() {
    let bodies = |output: &str| changes(&format!("fn f(){output} {{ x }}"));
    assert_eq!(bodies(""), [" → return"]);
    assert_eq!(bodies(" -> bool"), [" → return true", " → return false"]);
    assert_eq!(bodies(" -> Result<Option<T>>"), [" → return Ok(None)"]);
    assert_eq!(bodies(" -> u32"), [" → return 0 as _", " → return 1 as _"]);
    assert_eq!(bodies(" -> T"), [""; 0]);
    assert_eq!(changes("fn f() -> Option<T> { None }"), [""; 0]);
    assert_eq!(changes("fn f() {}"), [""; 0]);
}

#[test]
fn what_is_no_code_of_ours_to_break_is_left_alone() {
    for source in [
        "const A: bool = !B;",
        "const fn f() -> bool { !B }",
        "static A: u8 = 1 + 1;",
        "#[cfg(test)] mod tests { fn f() { g(); } }",
        "#[cfg(any(test, feature = \"a\"))] fn f() { g(); }",
        "impl Debug for A { fn fmt(&self) -> R { g(1 + 1) } }",
        "fn f() -> T { m!(1 + 1) }",
        "enum A { B = 1 + 1 }",
        "fn f(a: [u8; 1 + 1]) -> T { a }",
    ] {
        assert_eq!(changes(source), [""; 0], "{source}");
    }
}

#[test]
fn a_mistake_tells_where_it_is() {
    let found = find("src/f.rs", "mod a;\nimpl A<B> {\n    fn f(&self) -> T {\n        a + b\n    }\n}", 7).unwrap();
    let [mutant] = &found.mutants[..] else { panic!("{found:?}") };
    assert_eq!((mutant.id, mutant.line, mutant.function.as_str()), (7, 4, "A::f"));
    assert_eq!(found.modules, ["a"]);
    assert_eq!(
        find("src/f.rs", "mod a { mod b; mod c { mod d; } }\nmod e;", 0).unwrap().modules,
        ["a/b", "a/c/d", "e"]
    );
}
