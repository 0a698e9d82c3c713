//! The table of config keys as a tree: the objects of the config, and the keys in them.
//!
//! An object is a slice of the table. Every run reads some sixty keys, so the look-ups are prepared at compile time.

use super::key_spelling::{camel_case, format_path, is_same_provider, parse_path};
use super::key_type::KeyType;
use super::key_type::KeyType::{Any, Map, Object, Secret, SecretMap, Text};
use super::keys::{ConfigKey, KEYS, RENAMED_KEYS};

/// Maximum number of names in a path of the table.
const MAX_DEPTH: usize = 4;

/// For each row and depth, the index after the last row with the same names down to that depth. A search for a name steps
/// from object to object, not from row to row.
static GROUP_ENDS: [[u16; MAX_DEPTH]; KEYS.len()] = group_ends();

const fn group_ends() -> [[u16; MAX_DEPTH]; KEYS.len()] {
    let mut ends = [[KEYS.len() as u16; MAX_DEPTH]; KEYS.len()];
    let mut row = KEYS.len() - 1;
    while row > 0 {
        row -= 1;
        let shared = shared_names(KEYS[row].path.as_bytes(), KEYS[row + 1].path.as_bytes());
        let mut depth = 0;
        while depth < MAX_DEPTH {
            ends[row][depth] = if depth < shared { ends[row + 1][depth] } else { row as u16 + 1 };
            depth += 1;
        }
    }
    ends
}

/// Counts the names that two paths have in common at their start.
const fn shared_names(path: &[u8], other_path: &[u8]) -> usize {
    let mut count = 0;
    let mut index = 0;
    while index < path.len() && index < other_path.len() && path[index] == other_path[index] {
        if path[index] == b'.' {
            count += 1;
        }
        index += 1;
    }
    count
}

/// A node in the tree of keys: a key, or an object that contains keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyNode {
    /// The rows of the table from `first` to before `end`.
    first: usize,
    end: usize,
    /// Number of names in the path of this node.
    depth: usize,
    /// Offset in each row's path at which the names below this node start.
    start: usize,
}

impl KeyNode {
    /// Returns the root of the table.
    pub fn root() -> Self {
        Self { first: 0, end: KEYS.len(), depth: 0, start: 0 }
    }

    /// Returns the node at `path`. A path below a key that holds an object leads to that key's own node.
    pub fn at(path: &[impl AsRef<str>]) -> Option<Self> {
        let mut node = Self::root();
        for name in path {
            if let Some(ConfigKey { kind: Map | SecretMap | Object | Any, .. }) = node.key() {
                return Some(node);
            }
            node = node.child(name.as_ref())?;
        }
        Some(node)
    }

    /// Returns the type of the value at `path`; `None` if the table has no such key or an object of keys.
    pub fn kind_at(path: &[impl AsRef<str>]) -> Option<KeyType> {
        let key = Self::at(path)?.key()?;
        let is_member = path.len() > key.path.split('.').count();
        Some(match key.kind {
            Map if is_member => Text,
            SecretMap if is_member => Secret,
            Object if is_member => Any,
            kind => kind,
        })
    }

    /// Converts `spelling`, a path with names in any spelling and possibly obsolete, to the table's path; `None` if the
    /// table has no such key.
    pub fn canonical_path(spelling: &str) -> Option<Vec<String>> {
        let mut path: Vec<String> = Vec::new();
        let mut next_node = Some(Self::root());
        for part in parse_path(spelling)? {
            let node = next_node?;
            let is_chosen_by_user = match node.key().map(|key| key.kind) {
                Some(Object | Any) => true,
                // The values of a map are texts, which have no keys.
                Some(Map | SecretMap) => path.len() == node.depth,
                _ => false,
            };
            if is_chosen_by_user {
                path.push(part);
                continue;
            }
            let name = node.canonical(&part);
            next_node = node.child(&name);
            path.push(name);
        }
        if next_node.is_some() {
            return Some(path);
        }
        let path_text = format_path(&path);
        let (_, new) = RENAMED_KEYS.iter().find(|(old, _)| *old == path_text)?;
        Some(new.split('.').map(str::to_owned).collect())
    }

    /// Returns the key at this node, if the node is a key.
    pub fn key(self) -> Option<&'static ConfigKey> {
        let first = &KEYS[self.first];
        (self.start > first.path.len()).then_some(first)
    }

    /// All keys at and below this node.
    pub fn keys(self) -> &'static [ConfigKey] {
        &KEYS[self.first..self.end]
    }

    /// Returns the child node called `name`, which must be in the table's spelling.
    pub fn child(self, name: &str) -> Option<Self> {
        self.exact_child(name).or_else(|| self.exact_child("*"))
    }

    /// Returns the names of the children without duplicates; `*` if the user chooses them.
    pub fn names(self) -> Vec<&'static str> {
        self.children().map(|(name, _)| name).collect()
    }

    /// Converts `spelling` to the table's spelling; camelCase and snake_case are accepted.
    pub fn canonical(self, spelling: &str) -> String {
        if self.exact_child(spelling).is_some() {
            return spelling.to_owned();
        }
        let camel = camel_case(spelling);
        // Names of MCP servers and headers are the user's own and stay as written; provider names are fixed keys.
        if self.holds_providers() || self.exact_child(&camel).is_some() || self.is_renamed(&camel) {
            return camel;
        }
        spelling.to_owned()
    }

    /// True if `spelling` is one of `name`, which is in the table's spelling or that of the user.
    pub fn is_same_name(self, spelling: &str, name: &str) -> bool {
        self.canonical(spelling) == name
            || self.holds_providers() && is_same_provider(spelling, name)
    }

    fn holds_providers(self) -> bool {
        let key = &KEYS[self.first];
        key.path.starts_with("providers.") && self.child_name(key) == Some("*")
    }

    /// True if `name` is an obsolete key at this node.
    fn is_renamed(self, name: &str) -> bool {
        let Some(prefix) = KEYS[self.first].path.get(..self.start) else {
            return false;
        };
        RENAMED_KEYS.iter().any(|(old, _)| old.strip_prefix(prefix) == Some(name))
    }

    fn exact_child(self, name: &str) -> Option<Self> {
        self.children().find_map(|(child_name, child)| (child_name == name).then_some(child))
    }

    /// The child nodes with their names.
    pub(super) fn children(self) -> impl Iterator<Item = (&'static str, Self)> {
        let Self { mut first, depth, start, .. } = self;
        std::iter::from_fn(move || {
            if first >= self.end {
                return None;
            }
            let end = usize::from(*GROUP_ENDS[first].get(depth)?);
            let name = self.child_name(&KEYS[first])?;
            let child = Self { first, end, depth: depth + 1, start: start + name.len() + 1 };
            first = end;
            Some((name, child))
        })
    }

    fn child_name(self, key: &'static ConfigKey) -> Option<&'static str> {
        let rest = key.path.get(self.start..)?;
        let end = rest.bytes().position(|byte| byte == b'.');
        Some(&rest[..end.unwrap_or(rest.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::{ConfigKey, KEYS, KeyNode, RENAMED_KEYS, camel_case, format_path};
    use crate::settings::key_spelling::snake_case;
    use crate::settings::keys::{config_key, nearest};
    use std::collections::HashSet;

    #[test]
    fn paths_are_unique_and_grouped() {
        let mut closed: HashSet<&str> = HashSet::new();
        let mut previous = "";
        for row in KEYS {
            for (dot, _) in row.path.match_indices('.').chain([(row.path.len(), "")]) {
                let prefix = &row.path[..dot];
                let goes_on = previous == prefix
                    || previous.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
                if !goes_on {
                    assert!(closed.insert(prefix), "`{prefix}` is torn apart");
                }
            }
            assert_ne!(previous, row.path);
            previous = row.path;
        }
    }

    #[test]
    fn defaults_match_their_types() {
        for row in KEYS {
            let default = row.default_value();
            assert!(
                default.is_null() || row.kind.accept(&default) == Some(default),
                "{}",
                row.path
            );
            assert!(!row.doc.is_empty() && !row.doc.ends_with('.'), "{}", row.path);
        }
    }

    #[test]
    fn renamed_keys_exist() {
        let find = |path: &str| {
            let names: Vec<&str> = path.split('.').collect();
            KeyNode::at(&names).and_then(KeyNode::key).map(|key| key.path)
        };
        for (old, new) in RENAMED_KEYS {
            assert_eq!(find(new), Some(*new));
            assert_eq!(find(old), None);
        }
    }

    #[test]
    fn paths_are_found() {
        let check = |path: &str, expect: Option<&str>| {
            let names: Vec<&str> = path.split('.').collect();
            let actual = KeyNode::at(&names).and_then(KeyNode::key).map(|key| key.path);
            assert_eq!(actual, expect, "{path}");
        };
        check("agents.defaults.model", Some("agents.defaults.model"));
        check("agents.defaults", None);
        check("agents.defaults.mode", None);
        check("providers.openai.apiKey", Some("providers.*.apiKey"));
        check("providers.openai.extraHeaders.X-A", Some("providers.*.extraHeaders"));
        check("agents.defaults.model.x", None);
        check("modelPresets.a.b", Some("modelPresets"));
    }

    #[test]
    fn every_key_is_found_by_its_names() {
        for row in KEYS {
            let mut here = KeyNode::root();
            let mut above = String::new();
            for name in row.path.split('.') {
                assert!(here.key().is_none(), "`{above}` is a key and an object");
                here = here.child(name).unwrap();
                above.push_str(name);
                let is_below = |row: &&ConfigKey| {
                    let rest = row.path.strip_prefix(above.as_str());
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                let expect: Vec<&str> = KEYS.iter().filter(is_below).map(|row| row.path).collect();
                let actual: Vec<&str> = here.keys().iter().map(|row| row.path).collect();
                assert_eq!(actual, expect, "{above}");
                above.push('.');
            }
            assert_eq!(here.key().map(|key| key.path), Some(row.path));
            assert!(here.child("more").is_none());
            assert_eq!(config_key(row.path).path, row.path);
        }
        assert!(KeyNode::root().child("agents.defaults").is_none());
    }

    #[test]
    fn spellings() {
        let check = |path: &[&str], written: &str, expect: &str| {
            assert_eq!(KeyNode::at(path).unwrap().canonical(written), expect);
        };
        check(&["agents", "defaults"], "max_tokens", "maxTokens");
        check(&["agents", "defaults"], "maxTokens", "maxTokens");
        check(&["agents", "defaults"], "my_own", "my_own");
        check(&["providers"], "openai_codex", "openaiCodex");
        check(&["tools", "mcpServers"], "my_server", "my_server");
        check(&["tools"], "mcp_servers", "mcpServers");
        assert_eq!(camel_case("interval_s"), "intervalS");
        assert_eq!(snake_case("openaiCodex"), "openai_codex");
        assert_eq!(snake_case("lm-studio"), "lm_studio");
    }

    #[test]
    fn paths_as_typed() {
        let check = |written: &str, expect: Option<&str>| {
            let path = KeyNode::canonical_path(written).map(|path| format_path(&path));
            assert_eq!(path.as_deref(), expect, "{written}");
        };
        check("agents.defaults.max_tokens", Some("agents.defaults.maxTokens"));
        check("agents.defaults", Some("agents.defaults"));
        check("agents.defaults.max_iterations", Some("agents.defaults.maxToolIterations"));
        check("tools.exec.restrictToWorkspace", Some("tools.restrictToWorkspace"));
        check("providers.lm_studio.extra_headers.X_A", Some("providers.lmStudio.extraHeaders.X_A"));
        check("modelPresets.a_b.c_d", Some("modelPresets.a_b.c_d"));
        check("modelPresets.a.b.c", Some("modelPresets.a.b.c"));
        check("providers.custom.extraHeaders.X.A", None);
        for written in [
            "providers.custom.extraHeaders.\"X.A\"",
            "providers.\"my.own\".apiKey",
            "models.\"gpt-4.1\".price",
        ] {
            check(written, Some(written));
        }
        check("\"agents\".\"defaults\"", Some("agents.defaults"));
        check("agents.\"defaults.maxIterations\"", None);
        check("models.\"gpt", None);
        check("tools.permissions.exec.x", None);
        check("agents.defaults.model.x", None);
        check("agents.defaults.modle", None);
        check("agents.maxIterations", None);
        check("", None);
    }

    #[test]
    fn misspellings_are_recognized() {
        let names = KeyNode::at(&["agents", "defaults"]).unwrap().names();
        assert_eq!(nearest("modle", names.clone()), Some("model"));
        assert_eq!(nearest("zzz", names), None);
    }
}
