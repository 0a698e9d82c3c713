//! Names for the paths of this machine in a recording, so that it can be replayed on another machine and in another directory. No I/O.

use serde_json::Value;
use std::path::Path;

/// Paths, and the names that replace them in a recording.
#[derive(Clone, Debug, Default)]
pub struct PathNames(Vec<(String, &'static str)>);

impl PathNames {
    /// Creates the names. Paths that are empty, relative or the root are left out; the first of equal paths is used.
    pub fn new(paths: &[(&Path, &'static str)]) -> Self {
        let mut names: Vec<(String, &'static str)> = Vec::new();
        for (path, name) in paths {
            let Some(text) = path.to_str() else { continue };
            let is_usable = path.is_absolute() && path.parent().is_some();
            if is_usable && names.iter().all(|(other, _)| other != text) {
                names.push((text.to_owned(), name));
            }
        }
        // A path inside another one comes first, or its beginning would be replaced.
        names.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(names)
    }

    /// Replaces the paths by their names in all texts of `value`.
    pub(super) fn to_names(&self, value: &mut Value) {
        self.replace_in(value, &|text, (path, name)| replace_path(text, path, name));
    }

    /// Replaces the names by their paths in all texts of `value`.
    pub(super) fn to_paths(&self, value: &mut Value) {
        self.replace_in(value, &|text, (path, name)| text.replace(name, path));
    }

    fn replace_in(
        &self,
        value: &mut Value,
        replace: &dyn Fn(&str, &(String, &'static str)) -> String,
    ) {
        match value {
            Value::String(text) => {
                *text = self.0.iter().fold(std::mem::take(text), |text, name| replace(&text, name));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace_in(item, replace)),
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.replace_in(member, replace));
            }
            _ => {}
        }
    }
}

/// Replaces `path` by `name` where the whole path occurs: not the start of a longer file name, nor the end of another path
/// or of an address, as in `https://example.com/app`.
fn replace_path(text: &str, path: &str, name: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(path) {
        let (before, after) = rest.split_at(at);
        let after = &after[path.len()..];
        let is_name_char = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
        out.push_str(before);
        // A relative path or an address continues before it, or the name that has replaced a path.
        let continues = |letter: char| is_name_char(letter) || matches!(letter, '.' | '~' | '}');
        let is_whole = !after.starts_with(is_name_char) && !out.ends_with(continues);
        out.push_str(if is_whole { name } else { path });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::PathNames;
    use serde_json::json;
    use std::path::Path;

    #[test]
    fn paths_are_named_and_found_again() {
        let names = |home: &str, work: &str| {
            PathNames::new(&[
                (Path::new(work), "${nanobot.directory}"),
                (Path::new(home), "${nanobot.home}"),
                (Path::new("/"), "${nanobot.root}"),
            ])
        };
        let mut value =
            json!({ "system": ["in /home/a/work, not /home/a/work2", 5], "n": "/home/a/x" });
        names("/home/a", "/home/a/work").to_names(&mut value);
        let expect = json!({
            "system": ["in ${nanobot.directory}, not ${nanobot.home}/work2", 5], "n": "${nanobot.home}/x",
        });
        assert_eq!(value, expect);
        names("/h", "/w").to_paths(&mut value);
        assert_eq!(value, json!({ "system": ["in /w, not /h/work2", 5], "n": "/h/x" }));
        for text in ["https://a.example/app/x", "/srv/app", "./app", "~/app", "/app_2"] {
            let mut value = json!(text);
            names("/home/a", "/app").to_names(&mut value);
            assert_eq!(value, text);
        }
        let mut twice = json!("file:///app/app /app:/app");
        names("/home/a", "/app").to_names(&mut twice);
        let name = "${nanobot.directory}";
        assert_eq!(twice, json!(format!("file://{name}/app {name}:{name}")));
    }
}
