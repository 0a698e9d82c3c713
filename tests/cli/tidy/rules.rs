//! The rules, each a function from the sources to its violations. Every message says where and what to do.

use super::source::{Source, WrittenPath};
use super::tree::{Import, ImportTarget, SourceTree};
use super::vocabulary;
use super::{LAYERS, NO_IO_IN_OS, ONLY_IN, PURE, TURN, TURN_IMPORTS};
use nanobot_os::log::TOPICS;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

#[derive(Clone)]
pub(super) struct Violation {
    /// The subject of a violation, as exceptions name it: a file, `file::function`, or `module→module`.
    pub(super) subject: String,
    pub(super) message: String,
}

pub(super) type Rule = fn(&SourceTree) -> Vec<Violation>;

pub(super) const RULES: &[(&str, Rule)] = &[
    ("layers", layers),
    ("cycles", cycles),
    ("folder cycles", folder_cycles),
    ("one place", one_place),
    ("no I/O", no_io),
    ("turn imports", turn_imports),
    ("module comment", module_comment),
    ("log topics", log_topics),
    ("names", vocabulary::names),
    ("locals", vocabulary::locals),
    ("renamed fields", vocabulary::renamed_fields),
    ("signatures", vocabulary::signatures),
    ("parameters", vocabulary::parameters),
    ("doc words", vocabulary::doc_words),
    ("unique types", vocabulary::unique_types),
    ("units", vocabulary::units),
    ("comments", vocabulary::comments),
    ("messages", vocabulary::messages),
];

/// The top-level module of a file of the program, or its crate; `lib` for the program's root.
fn top_module(source: &Source) -> &str {
    source.module.first().map_or("lib", String::as_str)
}

fn place(source: &Source, path: &WrittenPath) -> String {
    format!("{}:{}: `{}`", source.name, path.line, path.segments.join("::"))
}

/// True if `name` is one of the files, or in one of the directories, in `files`.
fn is_in_any(name: &str, files: &[&str]) -> bool {
    let is_there =
        |file: &&str| Path::new(name).starts_with(file) || name.strip_suffix(".rs") == Some(*file);
    files.iter().any(is_there)
}

fn layers(tree: &SourceTree) -> Vec<Violation> {
    let row = |module: &str| LAYERS.iter().position(|(name, _)| *name == module);
    let mut violations = Vec::new();
    for source in tree.sources.iter().filter(|source| source.name.starts_with("src/")) {
        let own = top_module(source);
        if row(own).is_none() {
            violations.push(Violation {
                subject: own.to_owned(),
                message: format!(
                    "{}: `{own}` has no row in LAYERS: add one at its height",
                    source.name
                ),
            });
        }
    }
    let mut reported = BTreeSet::new();
    for (from, path, target) in tree.targets() {
        let ImportTarget::Internal { file, through, .. } = target else {
            continue;
        };
        let source = &tree.sources[from];
        let own = top_module(source);
        let Some(own_row) = row(own) else { continue };
        let allowed = LAYERS[own_row].1;
        for passed in through.iter().chain([file]) {
            let other = top_module(&tree.sources[*passed]);
            let is_lower = allowed.split(' ').any(|name| name == other);
            let is_crate = other.starts_with("nanobot_");
            if other == own || is_crate || is_lower || !reported.insert((from, other)) {
                continue;
            }
            let advice = match row(other) {
                Some(other_row) if other_row < own_row => {
                    "is in a higher layer: move the item down, or have it passed in as an argument"
                }
                _ => {
                    "is not among its imports in LAYERS: have it passed in, or add it if the design says so"
                }
            };
            violations.push(Violation {
                subject: format!("{own}→{other}"),
                message: format!("{}: `{other}` {advice}", place(source, path)),
            });
        }
    }
    violations
}

fn cycles(tree: &SourceTree) -> Vec<Violation> {
    let edges = tree.imports().map(|import| Edge { from: import.from, to: import.to, import });
    let names: Vec<&str> = tree.sources.iter().map(|source| source.name.as_str()).collect();
    find_cycles(tree, edges, &names, "what these files share into a file below them")
}

/// Cycles between neighbours: files and folders of one folder, where a folder counts with everything in it.
fn folder_cycles(tree: &SourceTree) -> Vec<Violation> {
    let mut names: Vec<String> = Vec::new();
    let mut number = |path: &[String]| {
        let name = path.join("/");
        names.iter().position(|other| *other == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        })
    };
    let mut edges = Vec::new();
    for import in tree.imports() {
        let (from, to) = (&tree.sources[import.from].module, &tree.sources[import.to].module);
        let shared = from.iter().zip(to).take_while(|(one, other)| one == other).count();
        // A file and those in the folder of its name are one unit.
        if shared < from.len().min(to.len()) {
            let (from, to) = (number(&from[..=shared]), number(&to[..=shared]));
            edges.push(Edge { from, to, import });
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    find_cycles(tree, edges.into_iter(), &names, "what these folders share below them")
}

/// An import between two nodes of a graph: files, or neighbours.
struct Edge<'t> {
    from: usize,
    to: usize,
    import: Import<'t>,
}

/// For each node, the nodes that it imports, with one of the imports.
type Graph<'t> = BTreeMap<usize, BTreeMap<usize, Edge<'t>>>;

/// Disjoint cycles, the shortest first, until the remaining nodes import each other in one direction.
fn find_cycles<'t>(
    tree: &SourceTree,
    edges: impl Iterator<Item = Edge<'t>>,
    names: &[&str],
    shared: &str,
) -> Vec<Violation> {
    let mut graph: Graph = BTreeMap::new();
    for edge in edges {
        graph.entry(edge.to).or_default();
        graph.entry(edge.from).or_default().entry(edge.to).or_insert(edge);
    }
    let mut violations = Vec::new();
    loop {
        remove_acyclic_nodes(&mut graph);
        let cycles = graph.keys().filter_map(|node| shortest_cycle(&graph, *node));
        let Some(cycle) = cycles.min_by_key(Vec::len) else {
            return violations;
        };
        let mut nodes: Vec<&str> = cycle.iter().map(|edge| names[edge.from]).collect();
        nodes.sort_unstable();
        let arrows = cycle.iter().map(|Edge { import, .. }| {
            let importer = place(&tree.sources[import.from], import.path);
            format!("\n    {importer} imports {}", tree.sources[import.to].name)
        });
        violations.push(Violation {
            subject: nodes.join(" "),
            message: format!(
                "{}: cycle: move {shared}, or pass it in:{}",
                nodes[0],
                arrows.collect::<String>()
            ),
        });
        let broken: Vec<usize> = cycle.iter().map(|edge| edge.from).collect();
        for node in broken {
            graph.remove(&node);
        }
    }
}

/// Repeatedly removes nodes without remaining imports: they are in no cycle.
fn remove_acyclic_nodes(graph: &mut Graph) {
    loop {
        let before = graph.len();
        let left: Vec<usize> = graph.keys().copied().collect();
        for imports in graph.values_mut() {
            imports.retain(|to, _| left.binary_search(to).is_ok());
        }
        graph.retain(|_, imports| !imports.is_empty());
        if graph.len() == before {
            return;
        }
    }
}

fn shortest_cycle<'g, 't>(graph: &'g Graph<'t>, start: usize) -> Option<Vec<&'g Edge<'t>>> {
    let mut reached: BTreeMap<usize, &Edge> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for (to, edge) in &graph[&node] {
            if !reached.contains_key(to) {
                reached.insert(*to, edge);
                queue.push_back(*to);
            }
        }
    }
    let mut cycle = vec![*reached.get(&start)?];
    while cycle[cycle.len() - 1].from != start {
        cycle.push(reached[&cycle[cycle.len() - 1].from]);
    }
    cycle.reverse();
    Some(cycle)
}

fn one_place(tree: &SourceTree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (from, path, target) in tree.targets() {
        let ImportTarget::External(meant) = target else {
            continue;
        };
        let source = &tree.sources[from];
        for (prefix, files) in ONLY_IN {
            if meant.starts_with(prefix) && !is_in_any(&source.name, files) {
                violations.push(Violation {
                    subject: source.name.clone(),
                    message: match files {
                        [] => format!(
                            "{}: `{prefix}` stands nowhere in this program: use `nanobot_os`",
                            place(source, path)
                        ),
                        _ => format!(
                            "{}: `{prefix}` stands only in {}: call that",
                            place(source, path),
                            files.join(", ")
                        ),
                    },
                });
            }
        }
    }
    violations
}

/// Loops in tests that accept connections: they do not end with what they serve.
pub(super) fn accept_loops(tree: &SourceTree) -> Vec<Violation> {
    let call = format!(".{}()", "incoming");
    let sources = tree.sources.iter().filter(|source| source.text.contains(&call));
    let violation = |source: &Source| Violation {
        subject: source.name.clone(),
        message: format!("{}: use the `Listener` of tests/cli/listener.rs", source.name),
    };
    sources.map(violation).collect()
}

fn no_io(tree: &SourceTree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (from, path, target) in tree.targets() {
        let source = &tree.sources[from];
        let does_io = match target {
            ImportTarget::Internal { file, .. } => {
                let meant = &tree.sources[*file];
                let may_do_io = ["nanobot_os", "nanobot_sandbox", "nanobot_net"];
                may_do_io.contains(&top_module(meant)) && !is_in_any(&meant.name, NO_IO_IN_OS)
            }
            ImportTarget::External(meant) => ["std::fs", "std::net", "std::process", "std::io"]
                .iter()
                .any(|module| meant.starts_with(module)),
        };
        if does_io && is_in_any(&source.name, PURE) {
            violations.push(Violation {
                subject: source.name.clone(),
                message: format!(
                    "{}: no I/O here: do it in the caller and pass the result in",
                    place(source, path)
                ),
            });
        }
    }
    violations
}

fn turn_imports(tree: &SourceTree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (from, path, target) in tree.targets() {
        let source = &tree.sources[from];
        let ImportTarget::Internal { file, item, .. } = target else {
            continue;
        };
        let other = &tree.sources[*file].name;
        let Some((directory, names)) =
            TURN_IMPORTS.iter().find(|(directory, _)| is_in_any(other, &[directory]))
        else {
            continue;
        };
        let is_interface =
            item.as_ref().is_some_and(|item| names.split(' ').any(|name| name == item));
        if is_in_any(&source.name, &[TURN]) && !is_interface {
            violations.push(Violation {
                subject: source.name.clone(),
                message: format!("{}: the turn takes only {names} from {directory}: bring a feature in as a tool, guard, provider or event sink", place(source, path)),
            });
        }
    }
    violations
}

fn module_comment(tree: &SourceTree) -> Vec<Violation> {
    let bare = tree.sources.iter().filter(|source| !source.text.starts_with("//! "));
    bare.map(|source| Violation {
        subject: source.name.clone(),
        message: format!("{}: open it with a `//!` comment that says what it is for", source.name),
    })
    .collect()
}

/// A line of the log whose target is no topic is never shown.
fn log_topics(tree: &SourceTree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in &tree.sources {
        for (number, line) in source.production_lines() {
            let rest = line.split_once("target: \"").map_or("", |(_, rest)| rest);
            if let Some((target, _)) = rest.split_once('"')
                && !TOPICS.contains(&target)
            {
                violations.push(Violation {
                    subject: source.name.clone(),
                    message: format!(
                        "{}:{number}: `{target}` is no topic of the log: use one of `nanobot_os::log::TOPICS`, or add it",
                        source.name
                    ),
                });
            }
        }
    }
    violations
}
