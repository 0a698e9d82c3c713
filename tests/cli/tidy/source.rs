//! The facts that the rules check, read from one source file: every path in its production code.
//!
//! The syntax tree is dropped once the facts are taken, because it cannot leave the thread that parsed it.

use super::definitions::{Definition, definitions};
use super::locals::{Bindings, bindings};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, ItemFn, ItemMod, ItemUse, Macro, Meta, UseTree, VisRestricted};

pub(super) struct Source {
    /// Below the repository: `crates/cron/src/job.rs`.
    pub(super) name: String,
    /// `["nanobot_cron", "job"]`; without a crate in the program, and so empty for its `lib.rs`.
    pub(super) module: Vec<String>,
    pub(super) text: String,
    /// As written, in imports, expressions, types, attributes and macros. A macro's own path ends with `!`.
    pub(super) paths: Vec<WrittenPath>,
    /// The meaning of each imported name, except for those of inline modules.
    pub(super) bindings: BTreeMap<String, Vec<String>>,
    /// Modules that are compiled for tests only.
    pub(super) test_modules: Vec<String>,
    /// Everything that the file names, outside its tests.
    pub(super) definitions: Vec<Definition>,
    /// Parameters and locals, outside its tests.
    pub(super) locals: Bindings,
    /// First and last lines of items that are compiled for tests only.
    test_lines: Vec<(usize, usize)>,
}

pub(super) struct WrittenPath {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
}

impl Source {
    pub(super) fn parse(name: &str, text: String) -> syn::Result<Self> {
        let file = syn::parse_file(&text)?;
        let mut reader = SourceVisitor {
            source: Self {
                name: name.to_owned(),
                module: module_of(name),
                paths: Vec::new(),
                bindings: BTreeMap::new(),
                test_modules: Vec::new(),
                definitions: definitions(&file),
                locals: bindings(&file),
                test_lines: Vec::new(),
                text,
            },
            inline_depth: 0,
        };
        reader.visit_file(&file);
        Ok(reader.source)
    }

    /// The lines outside tests, with their numbers.
    pub(super) fn production_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_tested = |line: usize| {
            (self.test_lines.iter()).any(|(first, last)| (*first..=*last).contains(&line))
        };
        (1..).zip(self.text.lines()).filter(move |(line, _)| !is_tested(*line))
    }
}

/// True if one of the attributes is `#[cfg(test)]`, or names the feature of the tests.
pub(super) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, Meta::List(list) if
                ["test", r#"feature = "test-hooks""#].contains(&list.tokens.to_string().as_str()))
    })
}

/// `crates/cron/src/job.rs` → `["nanobot_cron", "job"]`; `src/ops/mod.rs` → `["ops"]`; `src/lib.rs` → `[]`.
fn module_of(name: &str) -> Vec<String> {
    let stem = name.trim_end_matches(".rs").trim_end_matches("/mod");
    let stem = stem.trim_start_matches("tests/cli/").trim_start_matches("src/");
    let (root, stem) = match stem.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"))
    {
        Some((package, stem)) => (Some(format!("nanobot_{package}")), stem),
        None => (None, stem),
    };
    let segments = stem.split('/').filter(|segment| *segment != "lib").map(str::to_owned);
    root.into_iter().chain(segments).collect()
}

struct SourceVisitor {
    source: Source,
    /// Number of `mod name { … }` around the current item.
    inline_depth: usize,
}

impl SourceVisitor {
    /// Records the lines of a test item. Its contents are not read.
    fn is_test(&mut self, attributes: &[Attribute], end: Span) -> bool {
        let is_test = is_test_only(attributes);
        if is_test {
            let start = attributes[0].pound_token.span.start();
            self.source.test_lines.push((start.line, end.end().line));
        }
        is_test
    }

    fn add_path(&mut self, mut segments: Vec<String>, line: usize) {
        // For an inline module, the file's module is `super`.
        let supers = segments.iter().take_while(|word| *word == "super").count();
        let inside = supers.min(self.inline_depth);
        if inside > 0 {
            segments.drain(..inside);
            if supers == inside {
                segments.insert(0, "self".to_owned());
            }
        }
        self.source.paths.push(WrittenPath { segments, line });
    }

    fn add_use(&mut self, prefix: &[String], tree: &UseTree) {
        let mut import = |ident: &Ident, name: &Ident| {
            let mut path = prefix.to_vec();
            if ident != "self" {
                path.push(ident.to_string());
            }
            let bound = if name == "self" {
                path.last().cloned().unwrap_or_default()
            } else {
                name.to_string()
            };
            if self.inline_depth == 0 {
                self.source.bindings.insert(bound, path.clone());
            }
            self.add_path(path, ident.span().start().line);
        };
        match tree {
            UseTree::Path(path) => {
                let prefix = [prefix, &[path.ident.to_string()]].concat();
                self.add_use(&prefix, &path.tree);
            }
            UseTree::Name(name) => import(&name.ident, &name.ident),
            UseTree::Rename(rename) => import(&rename.ident, &rename.rename),
            UseTree::Glob(glob) => {
                self.add_path(prefix.to_vec(), glob.star_token.span.start().line);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(prefix, tree);
                }
            }
        }
    }

    /// Paths in the unparsed tokens of a macro or an attribute: words joined by `::`.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut segments: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_path(&mut segments, line);
                        line = ident.span().start().line;
                    }
                    segments.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.end_path(&mut segments, line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.end_path(&mut segments, line);
    }

    fn end_path(&mut self, segments: &mut Vec<String>, line: usize) {
        let segments = std::mem::take(segments);
        if segments.len() > 1 {
            self.add_path(segments, line);
        }
    }
}

/// A path's segments without generic arguments, and the line of the first.
fn path_segments(path: &syn::Path) -> (Vec<String>, usize) {
    let names = path.segments.iter().map(|part| part.ident.to_string());
    (names.collect(), path.segments[0].ident.span().start().line)
}

impl<'ast> Visit<'ast> for SourceVisitor {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let end = match &item.content {
            Some((braces, _)) => braces.span.close(),
            None => item.ident.span(),
        };
        if self.is_test(&item.attrs, end) {
            self.source.test_modules.push(item.ident.to_string());
            return;
        }
        let is_inline = usize::from(item.content.is_some());
        self.inline_depth += is_inline;
        visit::visit_item_mod(self, item);
        self.inline_depth -= is_inline;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !self.is_test(&item.attrs, item.semi_token.span) {
            self.add_use(&[], &item.tree);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let end = item.block.brace_token.span.close();
        if !self.is_test(&item.attrs, end) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        let end = item.block.brace_token.span.close();
        if !self.is_test(&item.attrs, end) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let (segments, line) = path_segments(path);
            self.add_path(segments, line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let (mut segments, line) = path_segments(&call.path);
        if let Some(name) = segments.last_mut() {
            name.push('!');
        }
        self.add_path(segments, line);
        self.add_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.add_tokens(list.tokens.clone());
        }
    }

    /// `pub(in crate::report)` sets the visibility of an item; it imports nothing.
    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
}
