//! The rooms of `CONTRIBUTING.md`: what each module of the crate imports is what that table says, and no module
//! imports itself by way of others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::Visit;
use syn::{ItemMod, ItemUse, UseTree, VisRestricted};

type Segments = Vec<String>;

/// The modules of `src` by path (`line::atomic_state`; that of `lib.rs` is empty), each with what it imports.
struct Crate {
    modules: BTreeMap<String, Module>,
}

/// The paths that a module names, and for those that it imports, by which name.
#[derive(Default)]
struct Module {
    imports: Vec<(Segments, Option<String>)>,
}

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

impl Visit<'_> for Module {
    fn visit_item_use(&mut self, item: &ItemUse) {
        self.import(Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let segments: Segments =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments[0] == "crate" || segments[0] == "super" {
            self.imports.push((segments, None));
        }
        syn::visit::visit_path(self, path);
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
