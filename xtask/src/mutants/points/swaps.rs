//! Operators and methods, and what stands for them in a mistake.

use syn::BinOp;

/// The other operator, where an operation goes wrong by another one that has the same types.
pub(super) fn operator(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::Add(_) => "-",
        BinOp::Sub(_) => "+",
        BinOp::Mul(_) => "/",
        BinOp::Div(_) => "*",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        _ => return None,
    })
}

/// The other method.
pub(super) fn method(name: &str) -> Option<&'static str> {
    const PAIRS: &[(&str, &str)] = &[
        ("min", "max"),
        ("saturating_add", "saturating_sub"),
        ("checked_add", "checked_sub"),
        ("wrapping_add", "wrapping_sub"),
        ("any", "all"),
        ("is_some_and", "is_none_or"),
        ("first", "last"),
        ("pop_front", "pop_back"),
        ("push_front", "push_back"),
        ("min_by_key", "max_by_key"),
    ];
    PAIRS.iter().find_map(|(one, other)| match name {
        _ if name == *one => Some(*other),
        _ if name == *other => Some(*one),
        _ => None,
    })
}

/// Whether it returns a bool that is told wrong by its opposite.
pub(super) fn is_question(method: &str) -> bool {
    ["is_some", "is_none", "is_ok", "is_err", "is_empty", "contains", "contains_key", "is_zero"].contains(&method)
}

/// Whether it takes a closure that returns a bool.
pub(super) fn takes_predicate(method: &str) -> bool {
    const NAMES: &[&str] = &[
        "filter",
        "any",
        "all",
        "find",
        "position",
        "retain",
        "is_some_and",
        "is_none_or",
        "is_ok_and",
        "take_while",
        "skip_while",
        "partition",
        "take_if",
        "pop_if",
    ];
    NAMES.contains(&method)
}

pub(super) fn is_assignment(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitXorAssign(_)
    )
}

/// Whether it only makes room for what may come.
pub(super) fn makes_room(method: &str) -> bool {
    ["reserve", "reserve_exact", "shrink_to", "shrink_to_fit"].contains(&method)
}

pub(super) fn is_bound(op: &BinOp) -> bool {
    matches!(op, BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_))
}

/// Whether this is what a clock shows in the moment: it shows no nanosecond that a test could ask for.
pub(super) fn reads_clock(expr: &str) -> bool {
    ["Instant::now()", ".elapsed()", ".remaining()", ".waited()"].iter().any(|read| expr.contains(read))
}
