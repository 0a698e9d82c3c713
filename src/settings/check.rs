//! Checks a whole config: errors, unknown keys, and keys that have no effect. Unlike `resolve`, it also covers parts
//! that the run does not use.

use super::expand::refers;
use super::file::{Config, KeyPath};
use super::keys::{Branch, Key, OLD_TOP, Stage, nearest};
use super::kind::{Kind, name_of};
use super::layers::{Layers, Origin};
use super::{Overrides, Settings, rules};
use crate::sys::env::Env;
use crate::sys::paths::Paths;
use serde_json::Value;
use std::fmt;
use std::os::unix::fs::MetadataExt;

/// A finding about the config, to be reported to the user.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub weight: Weight,
    /// The message, which starts with the location it refers to.
    pub text: String,
    /// Byte offset in the file, used for sorting; findings without a location come last.
    at: usize,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Stops every run that uses the value.
    Error,
    /// Probably a mistake.
    Warning,
    /// Has no effect in this program.
    Note,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weight = match self.weight {
            Weight::Error => "error",
            Weight::Warning => "warning",
            Weight::Note => "note",
        };
        write!(f, "{weight}: {}", self.text)
    }
}

/// All findings about `config` under `env`, in the order of the file.
pub fn findings(config: &Config, env: &Env, paths: &Paths) -> Vec<Finding> {
    let layers = Layers::new(config, env);
    let mut checker = Checker {
        config,
        layers: &layers,
        found: Vec::new(),
    };
    checker.value(&mut KeyPath::new(), Some(Branch::root()), layers.value());
    checker.remarks();
    checker.strays();
    checker.permissions();
    let mut found = checker.found;
    // Resolving also finds errors that belong to no key of the file, such as an invalid limit in an environment
    // variable.
    if let Err(error) = Settings::resolve(config, env, &Overrides::default(), paths) {
        let text = format!("{error:#}");
        if !found.iter().any(|finding| finding.text == text) {
            found.push(Finding {
                weight: Weight::Error,
                text,
                at: usize::MAX,
            });
        }
    }
    found.sort_by_key(|finding| finding.at);
    found
}

struct Checker<'a> {
    config: &'a Config,
    layers: &'a Layers<'a>,
    found: Vec<Finding>,
}

impl Checker<'_> {
    fn value(&mut self, path: &mut KeyPath, branch: Option<Branch>, value: &Value) {
        let Some(branch) = branch else {
            return self.unknown(path);
        };
        match (branch.key(), value) {
            (_, Value::Null) => {}
            (Some(key), value) => self.key(path, key, value),
            (None, Value::Object(members)) => {
                for (name, member) in members {
                    path.push(name.clone());
                    self.value(path, branch.child(name), member);
                    self.new_top(path);
                    path.pop();
                }
            }
            (None, other) => {
                let error = self.layers.mismatch(path, name_of(other), "an object");
                self.push_error(path, &error);
            }
        }
    }

    fn key(&mut self, path: &[String], key: &Key, value: &Value) {
        let typed = match self.layers.typed(path, value, key.kind) {
            Ok(typed) => typed,
            Err(error) => return self.push_error(path, &error),
        };
        let blank = typed.as_str() == Some("") && key.default == "null";
        if typed == key.default_value() || blank {
            return;
        }
        let joined = path.join(".");
        if let Some(words) = rules::objection(path, &typed) {
            return self.push(Weight::Error, path, &words);
        }
        if let Some(words) = rules::doubt(&joined, &typed) {
            self.push(Weight::Warning, path, &words);
        }
        if joined == "tools.restrictToWorkspace" {
            let words = format!(
                "`{joined}` means here that the directory is the workspace, wherever a run is started, and that no other place \
                 can be granted"
            );
            self.push(Weight::Note, path, &words);
        }
        match key.stage {
            Stage::Used | Stage::Written => {}
            Stage::Later => self.push(
                Weight::Note,
                path,
                &format!("`{joined}` is understood, and not used by this release"),
            ),
            Stage::Ignored => self.push(
                Weight::Note,
                path,
                &format!("`{joined}` has no effect: {}", key.doc),
            ),
        }
    }

    fn unknown(&mut self, path: &[String]) {
        let Some((name, above)) = path.split_last() else {
            return;
        };
        let known = Branch::at(above).map(Branch::names).unwrap_or_default();
        let meant = nearest(name, known)
            .map(|meant| format!("; did you mean `{meant}`?"))
            .unwrap_or_default();
        let refused = match above {
            [] => ", and nanobot 0.1.4 refuses the whole file for it",
            _ => "",
        };
        let words = format!("unknown key `{}`{refused}{meant}", path.join("."));
        self.push(Weight::Warning, path, &words);
    }

    /// Reports a top-level key that nanobot 0.1.4 does not know.
    fn new_top(&mut self, path: &[String]) {
        let [name] = path else {
            return;
        };
        let in_file = self.config.offset(path).is_some();
        let known = Branch::root().child(name).is_some();
        if in_file && known && !OLD_TOP.contains(&name.as_str()) {
            let words = format!(
                "nanobot 0.1.4 refuses the whole file for `{name}`, which it does not know"
            );
            self.push(Weight::Note, path, &words);
        }
    }

    fn remarks(&mut self) {
        for remark in self.config.remarks() {
            self.found.push(Finding {
                weight: Weight::Warning,
                text: format!("{}: {}", self.config.place(remark.at), remark.text),
                at: remark.at,
            });
        }
    }

    fn strays(&mut self) {
        for stray in self.layers.strays() {
            let meant = stray
                .nearest
                .as_ref()
                .map(|meant| format!("; did you mean `{meant}`?"))
                .unwrap_or_default();
            self.found.push(Finding {
                weight: Weight::Warning,
                text: format!("{}: names no key of the config{meant}", stray.variable),
                at: usize::MAX,
            });
        }
    }

    /// Warns about API keys in a config file that other users can read.
    fn permissions(&mut self) {
        let Ok(metadata) = self.config.path().metadata() else {
            return;
        };
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 && holds_key(&mut KeyPath::new(), self.config.value()) {
            let path = self.config.path().display();
            self.found.push(Finding {
                weight: Weight::Warning,
                text: format!("{path}: holds a key and has mode {mode:04o}, so others can use it; chmod 600 it"),
                at: usize::MAX,
            });
        }
    }

    fn push(&mut self, weight: Weight, path: &[String], words: &str) {
        let place = match self.layers.origin(path) {
            Origin::Variable(name) => format!("{name}: "),
            Origin::File(place) => format!("{place}: "),
            Origin::Flag(_) | Origin::Default => String::new(),
        };
        self.found.push(Finding {
            weight,
            text: format!("{place}{words}"),
            at: self.offset(path),
        });
    }

    fn push_error(&mut self, path: &[String], error: &anyhow::Error) {
        self.found.push(Finding {
            weight: Weight::Error,
            text: error.to_string(),
            at: self.offset(path),
        });
    }

    fn offset(&self, path: &[String]) -> usize {
        match self.layers.origin(path) {
            Origin::File(_) => self.config.offset(path).unwrap_or(usize::MAX),
            _ => usize::MAX,
        }
    }
}

/// True if `value` contains a literal secret instead of a reference to an environment variable.
fn holds_key(path: &mut KeyPath, value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, member)| {
            path.push(name.clone());
            let holds = holds_key(path, member);
            path.pop();
            holds
        }),
        Value::String(text) => {
            Branch::kind_at(path).is_some_and(Kind::is_secret) && !text.is_empty() && !refers(text)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Weight, findings};
    use crate::settings::Config;
    use crate::sys::env::Env;
    use crate::sys::paths::Paths;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn told(config: &Config, variables: &[(&str, &str)]) -> Vec<String> {
        let env: Env = [("HOME", "/home/u")]
            .iter()
            .chain(variables)
            .copied()
            .collect();
        let paths = Paths::resolve(&env, None).unwrap();
        findings(config, &env, &paths)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn everything_is_found_with_its_place() {
        let check = |text: &str, expect: &[&str]| {
            let config = Config::parse(Path::new("c.json"), text).unwrap();
            assert_eq!(told(&config, &[]), expect, "{text}");
        };
        check("{}", &[]);
        check(
            r#"{"agents": {"defaults": {"modle": "x"}}}"#,
            &["warning: c.json:1:35: unknown key `agents.defaults.modle`; did you mean `model`?"],
        );
        check(
            "{\"agent\":\n 1}",
            &[
                "warning: c.json:2:2: unknown key `agent`, and nanobot 0.1.4 refuses the whole file for it; did you mean `agents`?",
            ],
        );
        check(
            r#"{"agents": {"defaults": {"maxTokens": 0, "timezone": "UTC"}}}"#,
            &[
                "error: c.json:1:39: `agents.defaults.maxTokens` is 0, expected a whole number from 1 to 10000000",
            ],
        );
        check(
            r#"{"channels": {"telegram": {"enabled": true, "token": ""}}}"#,
            &[
                "note: c.json:1:39: `channels.telegram.enabled` is understood, and not used by this release",
            ],
        );
        check(
            r#"{"gateway": {"port": 1}, "tools": {"exec": [] }}"#,
            &[
                "note: c.json:1:22: `gateway.port` has no effect: there is no gateway here",
                "error: c.json:1:44: `tools.exec` is a list, expected an object",
            ],
        );
        check(
            r#"{"providers": {"x": {"apiKey": "${NO}"}}}"#,
            &[
                "error: c.json:1:32: `providers.x.apiKey` refers to the variable `NO`, which is not set",
            ],
        );
        check(
            r#"{"tools": {"permissions": {"exec": "sometimes"}, "allow": ["foo("], "exec": {"denyPatterns": ["("]}}}"#,
            &[
                "error: c.json:1:27: `tools.permissions.exec` is `sometimes`, expected `always`, `ask` or `never`",
                "error: c.json:1:59: `tools.allow`: `foo(` has no closing `)`",
                "error: c.json:1:94: `tools.exec.denyPatterns`: `(` is not a valid regular expression: unclosed group",
            ],
        );
        check(
            r#"{"tools": {"net": ["http://x/"], "deny": ["exce"]}}"#,
            &[
                "error: c.json:1:19: `tools.net`: `http://x/` is not a host; expected `example.org`, `*.example.org` or `example.org:8000`",
                "error: c.json:1:42: `tools.deny`: `exce` is not a tool; did you mean `exec`?",
            ],
        );
        check(
            r#"{"tools": {"ssrfWhitelist": ["10.0.0.0/8", "0.0.0.0/0"]}}"#,
            &[
                "warning: c.json:1:29: `tools.ssrfWhitelist` has `0.0.0.0/0`, so a page can send the agent to nearly every machine in reach, this one and the metadata of a cloud included; name the ranges that you need",
            ],
        );
        check(
            r#"{"session": {"sync": "none"}}"#,
            &[
                "note: c.json:1:13: nanobot 0.1.4 refuses the whole file for `session`, which it does not know",
            ],
        );
        check(
            r#"{"tools": {"exec": {"restrictToWorkspace": true}}}"#,
            &[
                "note: c.json:1:44: `tools.restrictToWorkspace` means here that the directory is the workspace, wherever a run is started, and that no other place can be granted",
                "warning: c.json:1:44: `tools.exec.restrictToWorkspace` is an older name of `tools.restrictToWorkspace`",
            ],
        );
    }

    #[test]
    fn variables_are_checked_too() {
        let config = Config::missing(Path::new("c.json"));
        let check = |variable: (&str, &str), expect: &str| {
            assert_eq!(told(&config, &[variable]), [expect]);
        };
        check(
            ("NANOBOT_AGENTS__DEFAULTS__TEMPERATURE", "9"),
            "error: NANOBOT_AGENTS__DEFAULTS__TEMPERATURE: `agents.defaults.temperature` is text, expected a number from 0 to 2",
        );
        check(
            ("NANOBOT_AGENTS__DEFAULT__MODEL", "x"),
            "warning: NANOBOT_AGENTS__DEFAULT__MODEL: names no key of the config; did you mean `agents.defaults`?",
        );
        check(
            ("NANOBOT_LLM_TIMEOUT_S", "x"),
            "error: `NANOBOT_LLM_TIMEOUT_S` is `x`, expected seconds from 0 to 86400",
        );
    }

    #[test]
    fn an_open_file_with_a_key_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let check = |text: &str, mode: u32, expect: bool| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let env: Env = [("HOME", "/home/u"), ("K", "k")].into_iter().collect();
            let paths = Paths::resolve(&env, None).unwrap();
            let found = findings(&Config::load(&path).unwrap(), &env, &paths);
            let told = found.iter().any(|finding| finding.text.contains("mode 06"));
            assert_eq!(told, expect, "{text} {mode:o}");
            assert!(
                found
                    .iter()
                    .all(|finding| finding.weight == Weight::Warning)
            );
        };
        let literal = r#"{"providers": {"openai": {"apiKey": "sk-1"}}}"#;
        check(literal, 0o644, true);
        check(literal, 0o600, false);
        check(
            r#"{"providers": {"openai": {"apiKey": "${K}"}}}"#,
            0o644,
            false,
        );
        check(
            r#"{"providers": {"openai": {"extraHeaders": {"A": "b"}}}}"#,
            0o640,
            true,
        );
    }
}
