//! The rooms of `CONTRIBUTING.md`: what each module of the crate imports is what that table says, and no module
//! imports itself by way of others.
//!
//! An `impl X` outside of the file of `X` calls the rest of `X` through `self`, which needs no import. Such calls
//! count as well: no file calls one that calls it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::Visit;
use syn::{
    Expr, ExprMethodCall, ImplItemFn, ItemEnum, ItemImpl, ItemMod, ItemStruct, ItemUse, Type,
    UseTree, VisRestricted,
};

type Segments = Vec<String>;

/// The modules of `src` by path (`line::atomic_state`; that of `lib.rs` is empty), each with what it imports.
struct Crate {
    modules: BTreeMap<String, Module>,
}

/// The paths that a module names, and for those that it imports, by which name; the types that it defines; the
/// methods that it gives to types, its own or others; and what it calls of types.
#[derive(Default)]
struct Module {
    imports: Vec<(Segments, Option<String>)>,
    types: BTreeSet<String>,
    methods: BTreeSet<Method>,
    calls: BTreeSet<Method>,
    /// The type of the `impl` that is visited.
    this: Option<Segments>,
}

/// The path of a type as a module names it, and the name of a method.
type Method = (Segments, String);

impl Crate {
    fn read() -> Self {
        let mut modules = BTreeMap::new();
        read_modules(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../src")), "", &mut modules);
        Self { modules }
    }

    /// The module in which `path`, as `from` names it, is defined. `None` for other crates.
    fn resolve(&self, from: &str, path: &[String]) -> Option<&str> {
        let mut base: Segments =
            from.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &rest[1..]),
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
            }
            "self" => rest = &rest[1..],
            // A module of its own, or another crate.
            child => {
                let child: Segments = base.iter().cloned().chain([child.to_owned()]).collect();
                self.modules.get(&child.join("::"))?;
            }
        }
        base.extend_from_slice(rest);
        let modules = (0..=base.len()).rev().map(|length| (length, base[..length].join("::")));
        let (length, module) =
            modules.into_iter().find(|(_, name)| self.modules.contains_key(name))?;
        let (module, found) = self.modules.get_key_value(&module)?;
        let exported = base.get(length).filter(|_| module != from).and_then(|name| {
            let imports = found.imports.iter();
            imports.filter(|(_, known)| known.as_ref() == Some(name)).map(|(path, _)| path).next()
        });
        match exported {
            Some(path) => self.resolve(module, path).or(Some(module)),
            None => Some(module),
        }
    }

    /// What each module imports of others.
    fn graph(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let imports = |(name, module): (&'_ String, &Module)| {
            let paths = module.imports.iter().filter_map(|(path, _)| self.resolve(name, path));
            paths.filter(|target| target != name && !target.is_empty()).map(str::to_owned).collect()
        };
        let modules = self.modules.iter().filter(|(name, _)| !name.is_empty());
        modules
            .map(|(name, module)| {
                let targets: BTreeSet<String> = imports((name, module));
                let targets =
                    targets.iter().filter_map(|target| self.modules.get_key_value(target));
                (name.as_str(), targets.map(|(target, _)| target.as_str()).collect())
            })
            .collect()
    }
}

impl Crate {
    /// The module that defines a type, and its name. `None` for types of other crates and parameters.
    fn home(&self, from: &str, path: &[String]) -> Option<(&str, String)> {
        let (name, first) = (path.last()?.clone(), path.first()?);
        let (from, module) = self.modules.get_key_value(from)?;
        let import = module.imports.iter().find(|(_, known)| known.as_ref() == Some(first));
        let home = match import {
            _ if path.len() == 1 && module.types.contains(&name) => from,
            Some((import, _)) => self.resolve(from, &[import, &path[1..]].concat())?,
            None => self.resolve(from, path)?,
        };
        self.modules[home].types.contains(&name).then_some((home, name))
    }

    /// The modules that each module calls in its `impl X`: those with the other methods of `X`.
    fn calls(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut places: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for (name, module) in &self.modules {
            for (path, method) in &module.methods {
                let place = self.home(name, path).map(|home| (home, method));
                place.map(|place| places.entry(place).or_default().insert(name));
            }
        }
        let called = |(name, module): (&String, &Module)| {
            let calls = module.calls.iter();
            let found = calls.filter_map(|(path, method)| {
                let found = places.get(&(self.home(name, path)?, method))?;
                Some(found).filter(|found| !found.contains(name.as_str()))
            });
            found.flatten().copied().collect()
        };
        self.modules.iter().map(|module| (module.0.as_str(), called(module))).collect()
    }
}

/// Leaves of a graph what is in a circle.
fn leave_circles(graph: &mut BTreeMap<&str, BTreeSet<&str>>) {
    // A module that imports nothing of what is left, or that nothing left imports, is in no circle.
    loop {
        let imported: BTreeSet<_> = graph.values().flatten().copied().collect();
        let is_free = |(name, imports): &(&&str, &BTreeSet<&str>)| {
            imports.is_empty() || !imported.contains(**name)
        };
        let Some(module) = graph.iter().find(is_free).map(|(&name, _)| name) else { break };
        graph.remove(module);
        graph.values_mut().for_each(|imports| _ = imports.remove(module));
    }
}

fn read_modules(folder: &Path, parent: &str, modules: &mut BTreeMap<String, Module>) {
    for entry in fs::read_dir(folder).expect("src is there") {
        let path = entry.expect("readable").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("plain names").to_owned();
        let name = match (parent, stem.as_str()) {
            ("", "lib") => String::new(),
            ("", stem) => stem.to_owned(),
            (parent, stem) => format!("{parent}::{stem}"),
        };
        if ["tests", "loom", "testing"].contains(&stem.as_str()) {
            continue;
        } else if path.is_dir() {
            read_modules(&path, &name, modules);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("readable");
            let mut module = Module::default();
            module.visit_file(&syn::parse_file(&text).expect("Rust"));
            modules.insert(name, module);
        }
    }
}

impl Module {
    fn import(&mut self, mut path: Segments, tree: &UseTree) {
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.import(path, &tree.tree);
            }
            UseTree::Name(tree) => {
                path.push(tree.ident.to_string());
                self.imports.push((path, Some(tree.ident.to_string())));
            }
            UseTree::Rename(tree) => {
                path.push(tree.ident.to_string());
                self.imports.push((path, Some(tree.rename.to_string())));
            }
            UseTree::Glob(_) => self.imports.push((path, None)),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(path.clone(), tree);
                }
            }
        }
    }
}

impl Module {
    /// In an `impl` of a type another method or function of it is called.
    fn call(&mut self, method: &str) {
        self.calls.extend(self.this.clone().map(|this| (this, method.to_owned())));
    }
}

impl Visit<'_> for Module {
    fn visit_item_use(&mut self, item: &ItemUse) {
        self.import(Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let segments: Segments =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments[0] == "crate" || segments[0] == "super" {
            self.imports.push((segments.clone(), None));
        }
        if let [this, method] = segments.as_slice()
            && (this == "Self" || self.this.as_ref().is_some_and(|path| path.last() == Some(this)))
        {
            self.call(method);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_struct(&mut self, item: &ItemStruct) {
        self.types.insert(item.ident.to_string());
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &ItemEnum) {
        self.types.insert(item.ident.to_string());
        syn::visit::visit_item_enum(self, item);
    }

    fn visit_item_impl(&mut self, item: &ItemImpl) {
        if let Type::Path(this) = &*item.self_ty {
            let names = this.path.segments.iter().map(|segment| segment.ident.to_string());
            self.this = Some(names.collect());
        }
        syn::visit::visit_item_impl(self, item);
        self.this = None;
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        if let Some(this) = &self.this {
            self.methods.insert((this.clone(), item.sig.ident.to_string()));
        }
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        if matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident("self")) {
            self.call(&call.method.to_string());
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    /// `syn` does not read what is inside.
    fn visit_macro(&mut self, item: &syn::Macro) {
        let tokens = item.tokens.to_string().replace(' ', "");
        for text in tokens.split("self.").skip(1) {
            let name = text.split(|letter: char| letter != '_' && !letter.is_alphanumeric()).next();
            self.call(name.unwrap_or_default());
        }
        syn::visit::visit_macro(self, item);
    }

    /// `pub(super)` imports nothing.
    fn visit_vis_restricted(&mut self, _: &VisRestricted) {}

    /// Tests may import anything. `super` in a module within the file is the file itself.
    fn visit_item_mod(&mut self, item: &ItemMod) {
        if item.ident != "tests" {
            let mut inner = Self::default();
            syn::visit::visit_item_mod(&mut inner, item);
            inner.imports.retain(|(path, _)| path[0] != "super");
            self.imports.extend(inner.imports.into_iter().map(|(path, _)| (path, None)));
        }
    }
}

/// The rooms of the table, in its order: a module path, and the rooms that it imports.
fn rooms() -> Vec<(String, BTreeSet<String>)> {
    let table = include_str!("../../CONTRIBUTING.md");
    let rows = table.lines().skip_while(|line| !line.starts_with("| room ")).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let imports = cells[3].split(',').map(str::trim).filter(|room| *room != "nothing");
            (cells[1].trim_matches('`').to_owned(), imports.map(str::to_owned).collect())
        })
        .collect()
}

/// The room of a module: that with the longest name.
fn room_of<'a>(rooms: &'a [(String, BTreeSet<String>)], module: &str) -> &'a str {
    let is_in = |room: &str| module == room || module.starts_with(&format!("{room}::"));
    let rooms = rooms.iter().map(|(room, _)| room.as_str()).filter(|room| is_in(room));
    rooms.max_by_key(|room| room.len()).unwrap_or_else(|| panic!("{module} is in no room"))
}

#[test]
fn the_rooms_import_what_the_table_says() {
    let (source, rooms) = (Crate::read(), rooms());
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (module, imports) in source.graph() {
        let room = room_of(&rooms, module);
        let of_others = imports.iter().map(|import| room_of(&rooms, import));
        let of_others = of_others.filter(|&other| other != room).map(str::to_owned);
        found.entry(room).or_default().extend(of_others);
    }
    for (place, (room, imports)) in rooms.iter().enumerate() {
        assert_eq!(found.get(room.as_str()), Some(imports), "what `{room}` imports");
        for import in imports {
            let above = rooms[..place].iter().any(|(other, _)| other == import);
            assert!(above, "`{room}` imports `{import}`, which is not above it in the table");
        }
    }
}

#[test]
fn no_module_imports_itself_by_way_of_others() {
    let source = Crate::read();
    let mut graph = source.graph();
    leave_circles(&mut graph);
    assert!(graph.is_empty(), "circles among {graph:#?}");
}

#[test]
fn no_file_calls_itself_by_way_of_others() {
    let source = Crate::read();
    let mut calls = source.calls();
    let is_mutual = |(caller, called): &(&str, &str)| calls[called].contains(caller);
    let pairs =
        calls.iter().flat_map(|(&caller, called)| called.iter().map(move |&it| (caller, it)));
    let pairs = pairs.filter(|(caller, called)| caller < called).filter(is_mutual);
    let pairs: Vec<_> = pairs.map(|(caller, called)| format!("{caller} <-> {called}")).collect();
    assert_eq!(pairs, [""; 0], "files that call each other");
    leave_circles(&mut calls);
    assert!(calls.is_empty(), "circles among {calls:#?}");
}

/// The table of `redis/line.rs`.
#[test]
fn no_part_of_the_line_of_a_key_knows_another() {
    let source = Crate::read();
    let rows = include_str!("../../src/redis/line.rs").lines();
    let names = rows.filter_map(|row| row.strip_prefix("//! | [`")?.split('`').next());
    let parts: Vec<_> = names.map(|name| format!("redis::line::{name}")).collect();
    assert_eq!(parts.len(), 8);
    let graph = source.graph();
    for part in &parts {
        let known = parts.iter().find(|other| graph[part.as_str()].contains(other.as_str()));
        assert_eq!(known, None, "{part} imports it");
    }
}
