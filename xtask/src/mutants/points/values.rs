//! What a function may return in place of what it works out.

use syn::{GenericArgument, PathArguments, ReturnType, Type};

const NUMBERS: &[&str] =
    &["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64"];

/// Each as an expression; the empty text for a function that returns nothing.
pub(super) fn of(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec![String::new()],
        ReturnType::Type(_, ty) => of_type(ty),
    }
}

fn of_type(ty: &Type) -> Vec<String> {
    match ty {
        Type::Tuple(tuple) if tuple.elems.is_empty() => vec!["()".into()],
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return Vec::new() };
            named(&last.ident.to_string(), &last.arguments)
        }
        _ => Vec::new(),
    }
}

fn named(name: &str, arguments: &PathArguments) -> Vec<String> {
    match name {
        "bool" => vec!["true".into(), "false".into()],
        "Option" => vec!["None".into()],
        "String" => vec!["String::new()".into()],
        "Vec" => vec!["Vec::new()".into()],
        "Duration" => vec!["::std::time::Duration::ZERO".into()],
        "Result" => first(arguments).map(of_type).unwrap_or_default().iter().map(|of| format!("Ok({of})")).collect(),
        _ if NUMBERS.contains(&name) => vec!["0 as _".into(), "1 as _".into()],
        _ => Vec::new(),
    }
}

fn first(arguments: &PathArguments) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}
