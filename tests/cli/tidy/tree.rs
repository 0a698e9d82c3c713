//! All source files together: resolves each written path to its file, and so the imports between files.

use super::source::{Source, WrittenPath};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) struct SourceTree {
    pub(super) sources: Vec<Source>,
    /// Module path → index in `sources`.
    files: BTreeMap<Vec<String>, usize>,
    /// For each source, the targets of its paths.
    targets: Vec<Vec<ImportTarget>>,
}

/// The target of a written path.
pub(super) enum ImportTarget {
    /// An item of one of our crates, or a module if the item is `None`.
    Internal {
        file: usize,
        item: Option<String>,
        /// The files that re-export it, in the order of the path.
        through: Vec<usize>,
    },
    /// An absolute path into another crate.
    External(String),
}

/// One file that imports another.
pub(super) struct Import<'a> {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) path: &'a WrittenPath,
}

impl SourceTree {
    /// Parses everything in `folders` of the repository at `root` on all cores.
    pub(super) fn read(root: &Path, folders: &[&str]) -> Self {
        let mut files = Vec::new();
        for folder in folders {
            list_rust_files(&root.join(folder), &mut files);
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let sources = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cores)
                .map(|first| {
                    let share: Vec<&PathBuf> = files.iter().skip(first).step_by(cores).collect();
                    scope.spawn(move || {
                        let parse = |path: &PathBuf| {
                            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                            let text = std::fs::read_to_string(path).unwrap();
                            Source::parse(name, text)
                                .unwrap_or_else(|error| panic!("{name}: {error}"))
                        };
                        share.into_iter().map(parse).collect::<Vec<_>>()
                    })
                })
                .collect();
            let joined = threads.into_iter().flat_map(|thread| thread.join().unwrap());
            joined.collect()
        });
        Self::new(sources)
    }

    /// Leaves out the files of modules that are compiled for tests only.
    pub(super) fn new(mut sources: Vec<Source>) -> Self {
        sources.sort_by(|left, right| left.name.cmp(&right.name));
        let test_modules: BTreeSet<Vec<String>> = sources
            .iter()
            .flat_map(|source| {
                let child =
                    |name: &String| [&source.module[..], std::slice::from_ref(name)].concat();
                source.test_modules.iter().map(child).collect::<Vec<_>>()
            })
            .collect();
        sources.retain(|source| !test_modules.contains(&source.module));
        let numbered = sources.iter().enumerate();
        let files = numbered.map(|(index, source)| (source.module.clone(), index)).collect();
        let mut tree = Self { sources, files, targets: Vec::new() };
        let meant =
            |source: &Source| source.paths.iter().map(|path| tree.resolve(source, path)).collect();
        tree.targets = tree.sources.iter().map(meant).collect();
        tree
    }

    /// Every import between two files; files that only re-export do not count.
    pub(super) fn imports(&self) -> impl Iterator<Item = Import<'_>> {
        self.targets().filter_map(|(from, path, target)| match target {
            ImportTarget::Internal { file, .. } if *file != from => {
                Some(Import { from, to: *file, path })
            }
            _ => None,
        })
    }

    /// Every path of every file with its target.
    pub(super) fn targets(&self) -> impl Iterator<Item = (usize, &WrittenPath, &ImportTarget)> {
        let files = self.sources.iter().zip(&self.targets).enumerate();
        files.flat_map(|(from, (source, targets))| {
            let pairs = source.paths.iter().zip(targets);
            pairs.map(move |(path, target)| (from, path, target))
        })
    }

    fn resolve(&self, source: &Source, path: &WrittenPath) -> ImportTarget {
        let mut through = Vec::new();
        let mut absolute = match self.absolute(&source.module, &path.segments) {
            Ok(absolute) => absolute,
            Err(foreign) => return ImportTarget::External(foreign),
        };
        'again: loop {
            let mut module: Vec<String> = Vec::new();
            for (index, word) in absolute.iter().enumerate() {
                module.push(word.clone());
                if self.files.contains_key(&module) {
                    continue;
                }
                module.pop();
                let Some(file) = self.files.get(&module).copied() else {
                    return ImportTarget::External(absolute.join("::"));
                };
                // A name that the module itself imported, and so may re-export.
                if let Some(meant) = self.sources[file].bindings.get(word)
                    && through.len() < 8
                {
                    let whole = [meant, &absolute[index + 1..]].concat();
                    match self.absolute(&module, &whole) {
                        Ok(further) if further != absolute => {
                            through.push(file);
                            absolute = further;
                            continue 'again;
                        }
                        Ok(_) => {}
                        Err(foreign) => return ImportTarget::External(foreign),
                    }
                }
                let item = Some(word.clone());
                return ImportTarget::Internal { file, item, through };
            }
            return match self.files.get(&module).copied() {
                Some(file) => ImportTarget::Internal { file, item: None, through },
                None => ImportTarget::External(absolute.join("::")),
            };
        }
    }

    /// The path from the program's root, or with one of our crates first; as text if it leads into a crate of others.
    fn absolute(&self, module: &[String], path: &[String]) -> Result<Vec<String>, String> {
        let (first, rest) = path.split_first().expect("a path has a segment");
        match first.as_str() {
            "crate" => {
                let root = module.first().filter(|root| root.starts_with("nanobot_"));
                return Ok(root.into_iter().chain(rest).cloned().collect());
            }
            "nanobot" => return Ok(rest.to_vec()),
            package if package.starts_with("nanobot_") => return Ok(path.to_vec()),
            "self" => return Ok([module, rest].concat()),
            "super" => {
                let parent = module.split_last().map_or(module, |(_, parent)| parent);
                return if rest.first().is_some_and(|word| word == "super") {
                    self.absolute(parent, rest)
                } else {
                    Ok([parent, rest].concat())
                };
            }
            _ => {}
        }
        let child = [module, std::slice::from_ref(first)].concat();
        if self.files.contains_key(&child) {
            return Ok([&child, rest].concat());
        }
        let bindings = self.files.get(module).map(|file| &self.sources[*file].bindings);
        match bindings.and_then(|bindings| bindings.get(first)) {
            // `use regex::{self, Regex}` binds `regex` to itself.
            Some(meant) if meant[0] != *first => self.absolute(module, &[meant, rest].concat()),
            Some(meant) if meant.len() > 1 => Err([meant, rest].concat().join("::")),
            _ => Err(path.join("::")),
        }
    }
}

fn list_rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // An example is a program of its own.
        if path.is_dir() && !path.ends_with("examples") {
            list_rust_files(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            files.push(path);
        }
    }
}
