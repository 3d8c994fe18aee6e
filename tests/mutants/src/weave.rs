//! All mutants in one copy of the sources: each a branch that is taken if it is switched on.

use std::collections::{BTreeSet, HashMap};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A mutant of cargo-mutants.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub id: usize,
    pub file: String,
    pub name: String,
    pub genre: String,
    pub replacement: String,
    /// The line and the column, from one.
    pub start: (usize, usize),
    pub end: (usize, usize),
}

impl Mutant {
    /// The source with the mutant in it.
    pub fn applied_to(&self, source: &str) -> String {
        let [start, end] = [self.start, self.end].map(|place| byte(source, place));
        format!("{}{}{}", &source[..start], self.replacement, &source[end..])
    }
}

/// The byte at a line and a column.
fn byte(source: &str, (line, column): (usize, usize)) -> usize {
    let start = source.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
    let of_line = source[start..].char_indices().nth(column - 1);
    start + of_line.map_or(source.len() - start, |(at, _)| at)
}

/// Text that is inserted, and where.
struct Insert {
    at: usize,
    /// Of insertions at one place, a lower one comes first.
    order: (i8, i64),
    text: String,
}

/// An expression with its mutants.
pub struct Site {
    /// The mutants, with the text of each within the site.
    ids: Vec<usize>,
    start: usize,
    end: usize,
}

/// A file with its mutants woven in.
pub struct Woven {
    pub text: String,
    pub ids: BTreeSet<usize>,
    /// Mutants that are no Rust.
    pub unviable: BTreeSet<usize>,
    /// Where the code of each mutant is in the text.
    branches: Vec<(usize, std::ops::Range<usize>)>,
    /// Where the expressions with mutants are in the text.
    sites: Vec<(Vec<usize>, std::ops::Range<usize>)>,
}

impl Woven {
    /// The mutants that may be to blame for an error at these bytes of the text.
    pub fn blame(&self, at: std::ops::Range<usize>) -> Vec<usize> {
        let within =
            |range: &std::ops::Range<usize>| range.start <= at.start && at.end <= range.end;
        let branches: Vec<_> =
            self.branches.iter().filter(|(_, range)| within(range)).map(|&(id, _)| id).collect();
        if !branches.is_empty() {
            return branches;
        }
        let around = self.sites.iter().filter(|(_, range)| within(range));
        if let Some((ids, _)) = around.min_by_key(|(_, range)| range.len()) {
            return ids.clone();
        }
        let inside =
            |range: &std::ops::Range<usize>| at.start <= range.start && range.end <= at.end;
        let inside = self.sites.iter().filter(|(_, range)| inside(range));
        inside.flat_map(|(ids, _)| ids.clone()).collect()
    }
}

/// Weaves the mutants of one file into it.
pub fn weave<'a>(
    source: &'a str,
    mutants: &[&'a Mutant],
    inserts: impl Iterator<Item = (usize, &'a str)>,
) -> Woven {
    let mut wanted: HashMap<(usize, &str), Vec<&Mutant>> = HashMap::new();
    for mutant in mutants {
        let at = byte(source, mutant.start);
        wanted.entry((at, mutant.genre.as_str())).or_default().push(mutant);
    }
    let file = syn::parse_file(source).expect("a source file");
    let mut weaver = Weaver {
        source,
        wanted,
        sites: vec![],
        inserts: vec![],
        unviable: BTreeSet::new(),
        is_const: false,
    };
    weaver.visit_file(&file);
    for (at, text) in inserts {
        weaver.inserts.push(Insert { at, order: (1, i64::MAX), text: text.to_owned() });
    }
    weaver.finish()
}

struct Weaver<'a> {
    source: &'a str,
    wanted: HashMap<(usize, &'a str), Vec<&'a Mutant>>,
    sites: Vec<Site>,
    inserts: Vec<Insert>,
    /// Mutants that are no Rust.
    unviable: BTreeSet<usize>,
    /// In code that the compiler runs, where no branch can depend on the environment.
    is_const: bool,
}

fn bytes(spanned: &impl Spanned) -> std::ops::Range<usize> {
    spanned.span().byte_range()
}

/// Before and after the code of a mutant.
const MARKS: [&str; 2] = ["\u{1}", "\u{2}"];

impl<'a> Weaver<'a> {
    fn take(&mut self, at: usize, genre: &'a str) -> Vec<&'a Mutant> {
        self.wanted.remove(&(at, genre)).unwrap_or_default()
    }

    /// An expression that has another value for each of some mutants.
    fn choose(&mut self, at: std::ops::Range<usize>, others: &[(usize, String)]) {
        if others.is_empty() || self.is_const {
            return;
        }
        let mut open = String::from("(");
        for (id, text) in others {
            open += &format!(
                "if crate::mutants::on({id}) {{{}{id}\u{3}{text}{}}} else ",
                MARKS[0], MARKS[1]
            );
        }
        open.push('{');
        let length = i64::try_from(at.len()).expect("a file");
        // Of what begins at one place the longest is the outermost; what ends there comes before all of them.
        self.inserts.push(Insert { at: at.start, order: (1, -length), text: open });
        self.inserts.push(Insert { at: at.end, order: (0, length), text: "})".to_owned() });
        let ids = others.iter().map(|&(id, _)| id).collect();
        self.sites.push(Site { ids, start: at.start, end: at.end });
    }

    fn constant(&mut self, expr: Option<&syn::Expr>) {
        self.is_const = true;
        expr.into_iter().for_each(|expr| self.visit_expr(expr));
        self.is_const = false;
    }

    fn function(&mut self, output: &syn::ReturnType, block: &syn::Block) {
        let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) else { return };
        let (at, end) = (bytes(first).start, bytes(last).end);
        let mut mutants = self.take(at, "FnValue");
        let output = &self.source[bytes(output)];
        // All values of an opaque type have one type: here each is one of two.
        let is_iterator = output.contains("impl Iterator");
        if is_iterator && output.replace("&mut ", "").contains('&') {
            // An item that is leaked is mutable, and another type.
            let leaked = mutants.extract_if(.., |mutant| mutant.replacement.contains("Box::leak"));
            self.unviable.extend(leaked.map(|mutant| mutant.id));
        }
        let ids: Vec<_> = mutants.iter().map(|mutant| mutant.id).collect();
        if mutants.is_empty() || output.contains("impl ") && !is_iterator {
            return;
        }
        let mut depth = 0;
        let mut nested = |text: &str| {
            let (open, close) = ("crate::mutants::Either::Right(".repeat(depth), ")".repeat(depth));
            depth += 1;
            format!("{open}crate::mutants::Either::Left({text}){close}")
        };
        let mut text = String::new();
        for mutant in &mutants {
            let value = &mutant.replacement;
            let value = if is_iterator { nested(value) } else { value.clone() };
            text += &format!(
                "if crate::mutants::on({id}) {{{}{id}\u{3}return {value};{}}} ",
                MARKS[0],
                MARKS[1],
                id = mutant.id,
            );
        }
        if is_iterator {
            text += "return ";
            text += &"crate::mutants::Either::Right(".repeat(mutants.len());
            text += "{ ";
            let text = format!(" }}{};", ")".repeat(mutants.len()));
            self.inserts.push(Insert { at: end, order: (0, i64::MAX), text });
        }
        self.inserts.push(Insert { at, order: (1, i64::MIN), text });
        self.sites.push(Site { ids, start: at, end: if is_iterator { end } else { at } });
    }

    /// A closure in a constant that calls the function of the same field of `rest` for each of some mutants.
    fn choose_in(&mut self, closure: &syn::ExprClosure, others: &[(usize, String)]) {
        if others.is_empty() {
            return;
        }
        let mut arguments = Vec::new();
        for (index, input) in closure.inputs.iter().enumerate() {
            arguments.push(if matches!(input, syn::Pat::Wild(_)) {
                let (at, name) = (bytes(input).start, format!("mutants_{index}"));
                self.inserts.push(Insert { at, order: (1, 0), text: format!("{name} @ ") });
                name
            } else {
                self.source[bytes(input)].to_owned()
            });
        }
        let arguments = arguments.join(", ");
        let called: Vec<_> =
            others.iter().map(|(id, text)| (*id, format!("({text})({arguments})"))).collect();
        self.choose(bytes(&closure.body), &called);
    }

    fn finish(mut self) -> Woven {
        self.inserts.sort_by_key(|insert| (insert.at, insert.order));
        let mut text = String::new();
        let mut from = 0;
        // The end of each insertion, for where a byte of the source is in the text.
        let mut moved: Vec<(usize, usize)> = Vec::new();
        let (mut branches, mut ids) = (Vec::new(), BTreeSet::new());
        for insert in &self.inserts {
            text += &self.source[from..insert.at];
            from = insert.at;
            let mut open = None;
            let mut rest = insert.text.as_str();
            while let Some(at) = rest.find(['\u{1}', '\u{2}']) {
                text += &rest[..at];
                if rest[at..].starts_with(MARKS[0]) {
                    let (id, code) = rest[at + 1..].split_once('\u{3}').expect("an id");
                    open = Some((id.parse().expect("an id"), text.len()));
                    rest = code;
                } else {
                    let (id, start): (usize, usize) = open.take().expect("an open mark");
                    branches.push((id, start..text.len()));
                    ids.insert(id);
                    rest = &rest[at + 1..];
                }
            }
            text += rest;
            moved.push((insert.at, text.len()));
        }
        text += &self.source[from..];
        let place = |at: usize| {
            let last = moved.partition_point(|&(before, _)| before <= at);
            last.checked_sub(1).map_or(at, |last| moved[last].1 + at - moved[last].0)
        };
        let sites = self
            .sites
            .iter()
            .map(|site| (site.ids.clone(), place(site.start)..place(site.end)))
            .collect();
        Woven { text, ids, unviable: self.unviable, branches, sites }
    }
}

/// Whether this is a chain with a `let`, which is no expression.
fn has_let(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast, 'a> Visit<'ast> for Weaver<'a> {
    fn visit_expr_binary(&mut self, i: &'ast syn::ExprBinary) {
        let mutants = self.take(bytes(&i.op).start, "BinaryOperator");
        if has_let(&i.left) || has_let(&i.right) {
            // `||` does not go with `let`.
            self.unviable.extend(mutants.iter().map(|mutant| mutant.id));
        } else {
            let source = self.source;
            let (left, right) = (&source[bytes(&i.left)], &source[bytes(&i.right)]);
            let others: Vec<_> = mutants
                .iter()
                .map(|mutant| (mutant.id, format!("{left} {} {right}", mutant.replacement)))
                .collect();
            self.choose(bytes(i), &others);
        }
        visit::visit_expr_binary(self, i);
    }

    fn visit_expr_unary(&mut self, i: &'ast syn::ExprUnary) {
        let mutants = self.take(bytes(&i.op).start, "UnaryOperator");
        let text = &self.source[bytes(&i.expr)];
        let others: Vec<_> = mutants.iter().map(|mutant| (mutant.id, text.to_owned())).collect();
        self.choose(bytes(i), &others);
        visit::visit_expr_unary(self, i);
    }

    fn visit_expr_match(&mut self, i: &'ast syn::ExprMatch) {
        for arm in &i.arms {
            let mutants = self.take(bytes(arm).start, "MatchArm");
            for mutant in mutants.into_iter().filter(|_| !self.is_const) {
                let text = format!(
                    " if {}{id}\u{3}!crate::mutants::on({id}){}",
                    MARKS[0],
                    MARKS[1],
                    id = mutant.id,
                );
                self.inserts.push(Insert { at: bytes(&arm.pat).end, order: (1, 0), text });
                let (start, end) = (bytes(i).start, bytes(i).end);
                self.sites.push(Site { ids: vec![mutant.id], start, end });
            }
        }
        visit::visit_expr_match(self, i);
    }

    fn visit_arm(&mut self, i: &'ast syn::Arm) {
        if let syn::Pat::Guard(syn::PatGuard { guard, .. }) = &i.pat {
            let mutants = self.take(bytes(guard).start, "MatchArmGuard");
            if !has_let(guard) {
                let others: Vec<_> =
                    mutants.iter().map(|mutant| (mutant.id, mutant.replacement.clone())).collect();
                self.choose(bytes(guard), &others);
            }
            self.visit_expr(guard);
        }
        self.visit_expr(&i.body);
    }

    fn visit_expr_struct(&mut self, i: &'ast syn::ExprStruct) {
        for field in &i.fields {
            let mutants = self.take(bytes(field).start, "StructField");
            if let (Some(rest), syn::Member::Named(name)) = (&i.rest, &field.member) {
                let rest = &self.source[bytes(rest)];
                let others: Vec<_> =
                    mutants.iter().map(|mutant| (mutant.id, format!("({rest}).{name}"))).collect();
                if let (true, syn::Expr::Closure(closure)) = (self.is_const, &field.expr) {
                    self.is_const = false;
                    self.choose_in(closure, &others);
                    self.is_const = true;
                    continue;
                }
                if field.colon_token.is_none() && !others.is_empty() && !self.is_const {
                    let (at, text) = (bytes(field).start, format!("{name}: "));
                    self.inserts.push(Insert { at, order: (1, i64::MIN), text });
                }
                self.choose(bytes(&field.expr), &others);
            }
        }
        visit::visit_expr_struct(self, i);
    }

    fn visit_item_fn(&mut self, i: &'ast syn::ItemFn) {
        if i.sig.constness.is_none() {
            self.function(&i.sig.output, &i.block);
            visit::visit_block(self, &i.block);
        }
    }

    fn visit_impl_item_fn(&mut self, i: &'ast syn::ImplItemFn) {
        if i.sig.constness.is_none() {
            self.function(&i.sig.output, &i.block);
            visit::visit_block(self, &i.block);
        }
    }

    fn visit_trait_item_fn(&mut self, i: &'ast syn::TraitItemFn) {
        if let (None, Some(block)) = (&i.sig.constness, &i.default) {
            self.function(&i.sig.output, block);
            visit::visit_block(self, block);
        }
    }

    fn visit_expr_closure(&mut self, i: &'ast syn::ExprClosure) {
        let outer = std::mem::replace(&mut self.is_const, false);
        self.visit_expr(&i.body);
        self.is_const = outer;
    }

    fn visit_expr_repeat(&mut self, i: &'ast syn::ExprRepeat) {
        self.visit_expr(&i.expr);
    }

    fn visit_item_const(&mut self, i: &'ast syn::ItemConst) {
        self.constant(Some(&i.expr));
    }

    fn visit_item_static(&mut self, i: &'ast syn::ItemStatic) {
        self.constant(Some(&i.expr));
    }

    fn visit_impl_item_const(&mut self, i: &'ast syn::ImplItemConst) {
        self.constant(Some(&i.expr));
    }

    fn visit_trait_item_const(&mut self, i: &'ast syn::TraitItemConst) {
        self.constant(i.default.as_ref().map(|(_, expr)| expr));
    }

    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
}
