//! Where a mistake can be made in a file. Tests, constants, macros and what is written for people are left alone, and so is
//! what nobody can notice by rule: room that is made ahead, and whether a bound that a running clock is compared with
//! belongs to what is before or after it.

mod swaps;
mod values;

use std::collections::HashSet;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, Attribute, BinOp, Block, Expr, ExprBinary, Pat, Signature, Stmt, UnOp};

use super::edit::Mutant;

/// What is in a file.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) mutants: Vec<Mutant>,
    /// The modules that have files of their own, as paths where they are in modules without one.
    pub(crate) modules: Vec<String>,
}

/// Every mistake that can be made in a file; they are numbered from `first` on.
pub(crate) fn find(file: &str, source: &str, first: u32) -> syn::Result<Found> {
    let parsed = syn::parse_file(source)?;
    let mut finder = Finder {
        file,
        source,
        first,
        functions: Vec::new(),
        returns_nothing: false,
        forced: HashSet::new(),
        inside: Vec::new(),
        found: Found { mutants: Vec::new(), modules: Vec::new() },
    };
    finder.visit_file(&parsed);
    Ok(finder.found)
}

struct Finder<'a> {
    file: &'a str,
    source: &'a str,
    first: u32,
    /// Those around, the innermost last.
    functions: Vec<(String, Range<usize>)>,
    /// Whether the last expression of a block may be a statement.
    returns_nothing: bool,
    /// What is made true and false already.
    forced: HashSet<Range<usize>>,
    /// The modules around, of those that are in this file.
    inside: Vec<String>,
    found: Found,
}

impl Finder<'_> {
    fn text(&self, piece: &Range<usize>) -> &str {
        &self.source[piece.clone()]
    }

    /// `around` is given what asks whether the mistake is on, and returns what stands before and after the piece.
    fn add(&mut self, piece: Range<usize>, now: &str, around: impl FnOnce(&str) -> (String, &'static str)) {
        let Some((function, within)) = self.functions.last().cloned() else { return };
        let id = self.first + u32::try_from(self.found.mutants.len()).unwrap_or(u32::MAX);
        let (before, after) = around(&format!("crate::__mutants::on({id})"));
        let line = self.source[..piece.start].matches('\n').count() + 1;
        let (was, now) = (on_one_line(self.text(&piece)), on_one_line(now));
        let file = self.file.to_owned();
        self.found.mutants.push(Mutant { id, file, line, function, within, piece, before, after, was, now });
    }

    /// A condition that is always true.
    fn always(&mut self, condition: &Expr) {
        self.add(bytes(condition), "true", |on| (format!("({on} || ("), "))"));
    }

    fn never(&mut self, condition: &Expr) {
        self.add(bytes(condition), "false", |on| (format!("(!{on} && ("), "))"));
    }

    fn opposite(&mut self, piece: Range<usize>) {
        if !self.forced.contains(&piece) {
            let now = format!("!({})", self.text(&piece));
            self.add(piece, &now, |on| (format!("({on} != ("), "))"));
        }
    }

    /// Another text in place of the piece.
    fn instead(&mut self, piece: Range<usize>, other: &str) {
        self.add(piece, other, |on| (format!("(if {on} {{ {other} }} else {{ "), " })"));
    }

    fn omit(&mut self, piece: Range<usize>) {
        self.add(piece, "nothing", |on| (format!("if !{on} {{ "), " }"));
    }

    /// What decides which way is taken.
    fn condition(&mut self, condition: &Expr) {
        let condition = bare(condition);
        if has_let(condition) {
            // A pattern is not made to match. Nothing more has to hold than that, too.
            let end = bytes(condition).end;
            let shown = format!("{} && false", self.text(&bytes(condition)));
            self.add(end..end, &shown, |on| (format!(" && !{on}"), ""));
            return;
        }
        if matches!(condition, Expr::Lit(_)) {
            return;
        }
        self.always(condition);
        self.never(condition);
        self.forced.insert(bytes(condition));
    }

    /// One of several that are joined by the same operator: as if it were not there.
    fn operand(&mut self, operand: &Expr, op: &BinOp) {
        let operand = bare(operand);
        match (operand, op) {
            (Expr::Let(_), _) => return,
            (Expr::Binary(ExprBinary { op: BinOp::And(_), .. }), BinOp::And(_)) => return,
            (Expr::Binary(ExprBinary { op: BinOp::Or(_), .. }), BinOp::Or(_)) => return,
            (_, BinOp::And(_)) => self.always(operand),
            _ => self.never(operand),
        }
        self.forced.insert(bytes(operand));
    }

    fn body(&mut self, name: &str, signature: &Signature, block: &Block) {
        let around = (name.to_owned(), block.span().byte_range());
        let before = std::mem::replace(&mut self.returns_nothing, matches!(signature.output, syn::ReturnType::Default));
        self.functions.push(around);
        let start = block.span().byte_range().start + 1;
        let text = on_one_line(self.text(&block.span().byte_range()));
        for value in values::of(&signature.output).iter().filter(|value| text != format!("{{ {value} }}")) {
            if !block.stmts.is_empty() {
                let now = format!("return {value}").trim().to_owned();
                self.add(start..start, &now, |on| (format!(" if {on} {{ {now}; }}"), ""));
            }
        }
        visit::visit_block(self, block);
        self.statements(block);
        self.functions.pop();
        self.returns_nothing = before;
    }

    /// The statements of a block that can be left out.
    fn statements(&mut self, block: &Block) {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Expr(expr, Some(_)) if is_deed(expr) => self.omit(stmt.span().byte_range()),
                Stmt::Expr(expr, None) if self.returns_nothing && is_deed(expr) => self.omit(bytes(expr)),
                _ => {}
            }
        }
    }

    fn function(&mut self, attrs: &[Attribute], signature: &Signature, block: &Block) {
        let name = signature.ident.to_string();
        if signature.constness.is_none() && !for_tests(attrs) {
            let around = self.functions.last().map(|(around, _)| format!("{around}::{name}"));
            self.body(&around.unwrap_or(name), signature, block);
        }
    }

    /// Arms that are taken for another one when they are left out.
    fn arms(&mut self, arms: &[Arm]) {
        let Some((last, others)) = arms.split_last().filter(|(last, _)| takes_all(&last.pat)) else { return };
        for arm in others {
            let same = self.text(&bytes(&arm.body)) == self.text(&bytes(&last.body));
            if !matches!(arm.pat, Pat::Guard(_)) && !same {
                let end = arm.pat.span().byte_range().end;
                let pattern = on_one_line(self.text(&arm.pat.span().byte_range()));
                self.add(end..end, &format!("no {pattern}"), |on| (format!(" if !{on}"), ""));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if for_tests(&module.attrs) {
            return;
        }
        self.inside.push(module.ident.to_string());
        if module.content.is_none() {
            self.found.modules.push(self.inside.join("/"));
        }
        visit::visit_item_mod(self, module);
        self.inside.pop();
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = item.trait_.as_ref().and_then(|(name, _)| name.segments.last()).map(|last| last.ident.to_string());
        let is_told = name.is_some_and(|name| ["Debug", "Display"].contains(&name.as_str()));
        if is_told || for_tests(&item.attrs) {
            return;
        }
        let name = on_one_line(self.text(&item.self_ty.span().byte_range()));
        let short = name.split('<').next().unwrap_or_default().to_owned();
        self.functions.push((short, item.span().byte_range()));
        visit::visit_item_impl(self, item);
        self.functions.pop();
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.attrs, &function.sig, block);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        visit::visit_block(self, block);
        self.statements(block);
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.condition(&expr.cond);
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_while(&mut self, expr: &'ast syn::ExprWhile) {
        self.condition(&expr.cond);
        visit::visit_expr_while(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        self.arms(&expr.arms);
        visit::visit_expr_match(self, expr);
    }

    fn visit_pat_guard(&mut self, guarded: &'ast syn::PatGuard) {
        self.condition(&guarded.guard);
        visit::visit_pat_guard(self, guarded);
    }

    fn visit_expr_binary(&mut self, expr: &'ast ExprBinary) {
        if matches!(expr.op, BinOp::And(_) | BinOp::Or(_)) {
            self.operand(&expr.left, &expr.op);
            self.operand(&expr.right, &expr.op);
        } else if let Some(other) = swaps::operator(&expr.op).filter(|_| !is_for_emptiness(expr)) {
            let (left, right) = (self.text(&bytes(&expr.left)), self.text(&bytes(&expr.right)));
            if swaps::is_bound(&expr.op) && [left, right].iter().any(|side| swaps::reads_clock(side)) {
                return visit::visit_expr_binary(self, expr);
            }
            let other = format!("{left} {other} {right}");
            self.instead(bytes(expr), &other);
        } else if matches!(expr.op, BinOp::Eq(_) | BinOp::Ne(_)) || is_for_emptiness(expr) {
            self.opposite(bytes(expr));
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if matches!(expr.op, UnOp::Not(_)) {
            self.opposite(bytes(expr));
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_macro(&mut self, expr: &'ast syn::ExprMacro) {
        if expr.mac.path.is_ident("matches") {
            self.opposite(bytes(expr));
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = call.method.to_string();
        if ["then", "then_some"].contains(&name.as_str()) {
            self.condition(&call.receiver);
        }
        if let (true, Some(Expr::Closure(closure))) = (swaps::takes_predicate(&name), call.args.last())
            && !matches!(*closure.body, Expr::Block(_))
        {
            self.condition(&closure.body);
        }
        if swaps::is_question(&name) {
            self.opposite(bytes(call));
        }
        if let Some(other) = swaps::method(&name) {
            let (all, at) = (bytes(call), call.method.span().byte_range());
            let other = format!("{}{other}{}", &self.source[all.start..at.start], &self.source[at.end..all.end]);
            self.instead(all, &other);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let before = std::mem::replace(&mut self.returns_nothing, false);
        visit::visit_expr_closure(self, closure);
        self.returns_nothing = before;
    }

    fn visit_expr_async(&mut self, expr: &'ast syn::ExprAsync) {
        let before = std::mem::replace(&mut self.returns_nothing, false);
        visit::visit_expr_async(self, expr);
        self.returns_nothing = before;
    }

    fn visit_expr_repeat(&mut self, expr: &'ast syn::ExprRepeat) {
        self.visit_expr(&expr.expr); // its length is a constant
    }

    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

/// Without parentheses.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(paren) => bare(&paren.expr),
        _ => expr,
    }
}

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => has_let(left) || has_let(right),
        _ => false,
    }
}

/// Whether it is done for what it does.
fn is_deed(expr: &Expr) -> bool {
    match expr {
        Expr::Await(inner) => is_deed(&inner.base),
        Expr::Try(inner) => is_deed(&inner.expr),
        Expr::Binary(binary) => swaps::is_assignment(&binary.op),
        Expr::MethodCall(call) => !swaps::makes_room(&call.method.to_string()),
        Expr::Assign(_) | Expr::Call(_) => true,
        _ => false,
    }
}

/// `count > 0`, of which the opposite is a mistake and `>=` is always true.
fn is_for_emptiness(expr: &ExprBinary) -> bool {
    let is_zero =
        matches!(&*expr.right, Expr::Lit(lit) if matches!(&lit.lit, syn::Lit::Int(int) if int.base10_digits() == "0"));
    is_zero && matches!(expr.op, BinOp::Gt(_))
}

fn takes_all(pat: &Pat) -> bool {
    match pat {
        Pat::Wild(_) => true,
        Pat::Ident(ident) => ident.subpat.is_none() && ident.ident.to_string().starts_with(char::is_lowercase),
        Pat::Tuple(tuple) => tuple.elems.iter().all(takes_all),
        _ => false,
    }
}

fn for_tests(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let tokens = match &attr.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        attr.path().is_ident("cfg") && tokens.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
    })
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
