//! Checks a whole config: errors, unknown keys, and keys that have no effect. Unlike `resolve`, it also covers parts
//! that the run does not use.

use super::channels::ChannelConfig;
use super::config::Config;
use super::config_file::{ConfigFile, KeyPath, get_in};
use super::expand::has_reference;
use super::hooks::HookSettings;
use super::key_node::KeyNode;
use super::key_spelling::format_path;
use super::key_type::{KeyType, type_name};
use super::keys::{ConfigKey, KeySupport};
use super::layers::{LayeredConfig, SettingOrigin, UnknownKey};
use super::model_keys::unknown_model_keys;
use super::own_keys::KeyHome;
use super::system_file::paths_along;
use super::{FlagOverrides, Settings, validation};
use nanobot_os::env::Env;
use nanobot_os::paths::Paths;
use serde_json::Value;
use std::fmt;
use std::os::unix::fs::MetadataExt;

/// The top-level keys that nanobot 0.1.4 knows. It rejects the whole file if there is any other.
const TOP_LEVEL_KEYS_0_1_4: &[&str] = &["agents", "channels", "providers", "gateway", "tools"];

/// The rank of a finding without a location.
const LAST: (usize, usize) = (usize::MAX, 0);

/// A finding about the config, to be reported to the user.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigFinding {
    pub severity: ConfigSeverity,
    /// The message, which starts with the location it refers to.
    pub text: String,
    /// The position in the files, used for sorting; findings without a location come last.
    rank: (usize, usize),
}

impl ConfigFinding {
    /// A finding without a location.
    pub fn new(severity: ConfigSeverity, text: String) -> Self {
        Self { severity, text, rank: LAST }
    }
}

/// The options of a check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// True for the name of a built-in provider, in any spelling.
    pub is_provider: fn(&str) -> bool,
    /// Name the keys for which the Python program 0.1.4 rejects the file.
    pub for_python: bool,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSeverity {
    /// Stops every run that uses the value.
    Error,
    /// Probably a mistake.
    Warning,
    /// Has no effect in this program.
    Note,
}

impl ConfigSeverity {
    /// The severity as printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl fmt::Display for ConfigFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity.name(), self.text)
    }
}

/// All findings about `config` under `env`, in the order of the file.
pub fn check_config(
    config: &Config,
    env: &Env,
    paths: &Paths,
    options: CheckOptions,
) -> Vec<ConfigFinding> {
    let layers = LayeredConfig::new(config, env);
    let mut checker = ConfigChecker { config, layers: &layers, options, findings: Vec::new() };
    checker.check_value(&mut KeyPath::new(), Some(KeyNode::root()), layers.value());
    checker.report_remarks();
    checker.report_misplaced_keys();
    checker.report_unknown_variables();
    checker.report_locked_keys();
    config.existing_files().for_each(|file| checker.check_file_mode(file));
    let mut findings = checker.findings;
    // Resolving also finds errors that belong to no key of the file, such as an invalid limit in an environment
    // variable.
    match Settings::resolve(config, env, &FlagOverrides::default(), paths) {
        Ok(settings) => findings.extend(check_channels(&layers, &settings)),
        Err(error) => {
            let text = format!("{error:#}");
            if !findings.iter().any(|finding| finding.text == text) {
                findings.push(ConfigFinding::new(ConfigSeverity::Error, text));
            }
        }
    }
    findings.sort_by_key(|finding| finding.rank);
    findings
}

/// Findings about enabled channels that behave differently from the Python program, with the value that changes it.
pub fn check_channels(layers: &LayeredConfig<'_>, settings: &Settings) -> Vec<ConfigFinding> {
    let mut findings = Vec::new();
    for name in &settings.channels {
        let config = ChannelConfig::read(layers, name);
        let is_empty = |config: &ChannelConfig| config.list("allowFrom").is_empty();
        if *name != "webhook" && config.as_ref().is_ok_and(is_empty) {
            let consequence = match *name {
                "email" => "no sender is answered",
                _ => "only senders with an approved pairing code are answered",
            };
            findings.push(ConfigFinding::new(
                ConfigSeverity::Warning,
                format!(
                    "`channels.{name}.allowFrom` is empty: {consequence}; the Python program 0.1.4 answers every sender, as \
                     `[\"*\"]` does"
                ),
            ));
        }
        if *name == "email"
            && let Some(text) = config.as_ref().ok().and_then(check_mail)
        {
            findings.push(ConfigFinding::new(ConfigSeverity::Warning, text.to_owned()));
        }
        if config.is_ok_and(|config| config.flag("e2EeEnabled")) {
            let path = ["channels", "matrix", "e2EeEnabled"].map(str::to_owned);
            let severity = match layers.origin(&path) {
                SettingOrigin::Default => ConfigSeverity::Note,
                _ => ConfigSeverity::Warning,
            };
            let text = "`channels.matrix.e2EeEnabled`: encrypted rooms cannot be read, except with a proxy that decrypts \
                        them as `homeserver`; without it, the value has the same effect as `false`";
            findings.push(ConfigFinding::new(severity, text.to_owned()));
        }
    }
    findings
}

/// The setting that prevents all mail from being answered, as a message, if there is one.
fn check_mail(config: &ChannelConfig) -> Option<&'static str> {
    let allowed = config.list("allowFrom");
    let is_verified = config.flag("verifyDkim") || config.flag("verifySpf");
    let has_servers = !config.list("trustedAuthservIds").is_empty();
    if !config.flag("consentGranted") {
        Some(
            "`channels.email.consentGranted` is false: no mail is read or sent until the owner of the mailbox agrees",
        )
    } else if is_verified && !has_servers && !allowed.iter().any(|entry| entry == "*") {
        Some(
            "`channels.email.trustedAuthservIds` is empty: no mail is answered, since addresses of senders can be forged; \
             `nanobot channel check email` names the servers that verify them",
        )
    } else {
        None
    }
}

struct ConfigChecker<'a> {
    config: &'a Config,
    layers: &'a LayeredConfig<'a>,
    options: CheckOptions,
    findings: Vec<ConfigFinding>,
}

impl ConfigChecker<'_> {
    fn check_value(&mut self, path: &mut KeyPath, node: Option<KeyNode>, value: &Value) {
        let Some(node) = node else {
            return self.report_unknown_key(path, value);
        };
        match (node.key(), value) {
            (_, Value::Null) => {}
            (Some(key), value) => self.check_key(path, key, value),
            (None, Value::Object(members)) => {
                for (name, member) in members {
                    path.push(name.clone());
                    self.check_value(path, node.child(name), member);
                    self.report_new_top_level_key(path);
                    path.pop();
                }
            }
            (None, other) => {
                let error = self.layers.type_error(path, type_name(other), "an object");
                self.push_error(path, &error);
            }
        }
    }

    fn check_key(&mut self, path: &[String], key: &ConfigKey, value: &Value) {
        let value = match self.layers.to_typed(path, value, key.kind) {
            Ok(value) => value,
            Err(error) => return self.push_error(path, &error),
        };
        for secret in self.layers.secrets_of(path, key.kind, &value) {
            if let Err(error) = secret.resolve() {
                self.push(ConfigSeverity::Error, path, &format!("{error:#}"));
            }
        }
        if let Some(message) = self.layers.name_error(path, &value, self.options.is_provider) {
            // Blank text means that the value is absent.
            let severity = if value.as_str().is_some_and(|text| text.trim().is_empty()) {
                ConfigSeverity::Warning
            } else {
                ConfigSeverity::Error
            };
            return self.push(severity, path, &message);
        }
        let is_blank = value.as_str() == Some("") && key.default == "null";
        if value == key.default_value() || is_blank {
            return;
        }
        let path_text = format_path(path);
        if path_text == "hooks" {
            let hooks = HookSettings::parse(&value).unwrap_or_default();
            for remark in hooks.remarks {
                self.push(ConfigSeverity::Warning, path, &remark);
            }
        }
        if path_text == "models" {
            for path in unknown_model_keys(path, &value) {
                self.report_unknown_key(&path, &Value::Null);
            }
        }
        if let Some(message) = validation::validate(path, &value) {
            return self.push(ConfigSeverity::Error, path, &message);
        }
        if let Some(message) = validation::warn(&path_text, &value) {
            self.push(ConfigSeverity::Warning, path, &message);
        }
        if path_text == "tools.restrictToWorkspace" {
            let message = format!(
                "`{path_text}` makes the workspace the working directory of every run, and no other path can be granted"
            );
            self.push(ConfigSeverity::Note, path, &message);
        }
        match key.support {
            KeySupport::Used | KeySupport::UsedAndWritten => {}
            KeySupport::Later => self.push(
                ConfigSeverity::Note,
                path,
                &format!("`{path_text}` is valid, but not used by this release"),
            ),
            KeySupport::Ignored => self.push(
                ConfigSeverity::Note,
                path,
                &format!("`{path_text}` has no effect: {}", key.doc),
            ),
        }
    }

    fn report_unknown_key(&mut self, path: &[String], value: &Value) {
        let key = UnknownKey::new(path, value);
        let severity =
            if key.may_be_limit { ConfigSeverity::Error } else { ConfigSeverity::Warning };
        let note = match path {
            [_] if self.options.for_python => {
                " (the Python program 0.1.4 rejects the whole file for it)"
            }
            _ => "",
        };
        self.push(severity, path, &format!("{}{note}", key.description));
    }

    /// Reports a top-level key that the Python program 0.1.4 does not know.
    fn report_new_top_level_key(&mut self, path: &[String]) {
        let [name] = path else {
            return;
        };
        let [shared_file, _] = self.config.files();
        let is_in_file = self.options.for_python && shared_file.offset(path).is_some();
        let is_shared_key =
            KeyNode::root().child(name).is_some() && KeyHome::find(path) != KeyHome::Own;
        if is_in_file && is_shared_key && !TOP_LEVEL_KEYS_0_1_4.contains(&name.as_str()) {
            let message = format!(
                "the Python program 0.1.4 does not know `{name}` and rejects the whole file"
            );
            self.push(ConfigSeverity::Note, path, &message);
        }
    }

    fn report_remarks(&mut self) {
        for (number, file) in self.config.all_files().enumerate() {
            for remark in file.remarks() {
                self.findings.push(ConfigFinding {
                    severity: ConfigSeverity::Warning,
                    text: format!("{}: {}", file.position(remark.offset), remark.text),
                    rank: (number, remark.offset),
                });
            }
        }
    }

    /// Reports our own keys in the file that the Python program reads.
    fn report_misplaced_keys(&mut self) {
        let misplaced_keys = self.config.misplaced_keys();
        if misplaced_keys.is_empty() || !self.options.for_python {
            return;
        }
        let keys: Vec<String> = misplaced_keys.iter().map(|path| format_path(path)).collect();
        let [shared_path, own_path] = self.config.files().map(|file| file.path().display());
        let text = format!(
            "{shared_path}: the Python program rejects the file for some of these keys, or drops them: `{}`; `nanobot config check \
             --fix` moves them to `{own_path}`",
            keys.join("`, `")
        );
        self.findings.push(ConfigFinding::new(ConfigSeverity::Note, text));
    }

    fn report_unknown_variables(&mut self) {
        for variable in self.layers.unknown_variables() {
            self.findings.push(ConfigFinding {
                severity: ConfigSeverity::Error,
                text: variable.to_string(),
                rank: LAST,
            });
        }
    }

    /// Reports values of the user that do not apply, since the system-wide file locks their keys.
    fn report_locked_keys(&mut self) {
        let variables = self.layers.locked_variables().iter();
        let mut sources: Vec<(String, KeyPath)> =
            variables.map(|(path, variable)| (variable.clone(), path.clone())).collect();
        for file in self.config.files() {
            let paths = self.config.locked_keys().iter();
            for path in paths.flat_map(|locked| paths_along(file.value(), locked)) {
                let is_set = get_in(file.value(), &path).is_some_and(|value| !value.is_null());
                let offset = file.offset(&path).filter(|_| is_set);
                sources.extend(offset.map(|offset| (file.position(offset), path)));
            }
        }
        for file in self.config.files().into_iter().filter(|file| !file.value()["locked"].is_null())
        {
            let position = file.position(file.offset(&["locked".to_owned()]).unwrap_or_default());
            let text = format!("{position}: `locked` has an effect in the system-wide config only");
            self.findings.push(ConfigFinding::new(ConfigSeverity::Warning, text));
        }
        for (source, path) in sources {
            let lock = self.config.lock_position(&path).unwrap_or_default();
            let text = format!("{source}: `{}` has no effect: {lock} locks it", format_path(&path));
            self.findings.push(ConfigFinding::new(ConfigSeverity::Note, text));
        }
    }

    /// Warns about API keys in a config file that other users can read.
    fn check_file_mode(&mut self, file: &ConfigFile) {
        let Ok(metadata) = file.path().metadata() else {
            return;
        };
        let path = file.path().display();
        if let Some(exposure) = file.exposure() {
            self.findings.push(ConfigFinding {
                severity: ConfigSeverity::Warning,
                text: format!("{path}: it decides what runs, and {exposure}"),
                rank: LAST,
            });
        }
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 && contains_literal_secret(&mut KeyPath::new(), file.value()) {
            self.findings.push(ConfigFinding {
                severity: ConfigSeverity::Warning,
                text: format!("{path}: contains a key and is readable by other users (mode {mode:04o}); run `chmod 600`"),
                rank: LAST,
            });
        }
    }

    fn push(&mut self, severity: ConfigSeverity, path: &[String], text: &str) {
        let prefix = self.layers.position_prefix(path);
        self.findings.push(ConfigFinding {
            severity,
            text: format!("{prefix}{text}"),
            rank: self.rank(path),
        });
    }

    fn push_error(&mut self, path: &[String], error: &anyhow::Error) {
        self.findings.push(ConfigFinding {
            severity: ConfigSeverity::Error,
            text: error.to_string(),
            rank: self.rank(path),
        });
    }

    fn rank(&self, path: &[String]) -> (usize, usize) {
        match self.layers.origin(path) {
            SettingOrigin::File(_) | SettingOrigin::Lock(_) => {
                self.config.rank(path).unwrap_or(LAST)
            }
            _ => LAST,
        }
    }
}

/// True if `value` contains a literal secret instead of a reference to an environment variable.
fn contains_literal_secret(path: &mut KeyPath, value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, member)| {
            path.push(name.clone());
            let is_secret = contains_literal_secret(path, member);
            path.pop();
            is_secret
        }),
        Value::String(text) => {
            KeyNode::kind_at(path).is_some_and(KeyType::is_secret)
                && !text.is_empty()
                && !has_reference(text)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{CheckOptions, ConfigSeverity, check_config};
    use crate::settings::Config;
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    const OPTIONS: CheckOptions =
        CheckOptions { is_provider: |name| name == "openai", for_python: true };

    fn messages(config: &Config, variables: &[(&str, &str)]) -> Vec<String> {
        let env: Env = [("HOME", "/home/u")].iter().chain(variables).copied().collect();
        let paths = Paths::resolve(&env, None).unwrap();
        check_config(config, &env, &paths, OPTIONS).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn findings_have_positions() {
        let check = |text: &str, expect: &[&str]| {
            let config = Config::parse(Path::new("c.json"), text).unwrap();
            assert_eq!(messages(&config, &[]), expect, "{text}");
        };
        check("{}", &[]);
        check(
            r#"{"agents": {"defaults": {"modle": "x"}}}"#,
            &["warning: c.json:1:35: unknown key `agents.defaults.modle`; did you mean `model`?"],
        );
        check(
            "{\"agent\":\n 1}",
            &[
                "warning: c.json:2:2: unknown key `agent`; did you mean `agents`? (the Python program 0.1.4 rejects the whole file for it)",
            ],
        );
        check(
            r#"{"agents": {"defaults": {"provider": "nope", "model": ""}}}"#,
            &[
                "error: c.json:1:38: there is no provider `nope`",
                "warning: c.json:1:55: `agents.defaults.model` is empty",
            ],
        );
        check(
            r#"{"agents": {"defaults": {"provider": "my_own"}}, "providers": {"myOwn": {}}}"#,
            &[],
        );
        check(
            r#"{"models": {"m": {"contextWindow": 8000, "max_output_tokens": 1, "price": {"inptu": 1, "input": 1, "output": 2}}}}"#,
            &[
                "warning: c.json:1:36: unknown key `models.m.contextWindow`; did you mean `contextWindowTokens`?",
                "warning: c.json:1:85: unknown key `models.m.price.inptu`; did you mean `input`?",
                "note: c.json: the Python program rejects the file for some of these keys, or drops them: `models`; `nanobot config check --fix` moves them to `c.nanobot.json`",
            ],
        );
        check(
            r#"{"agents": {"defaults": {"maxTokens": 0, "timezone": "UTC"}}}"#,
            &[
                "error: c.json:1:39: `agents.defaults.maxTokens` is 0, expected an integer from 1 to 10000000",
            ],
        );
        check(
            r#"{"channels": {"telegram": {"inlineKeyboards": true}}}"#,
            &[
                "note: c.json:1:47: `channels.telegram.inlineKeyboards` is valid, but not used by this release",
            ],
        );
        check(
            r#"{"gateway": {"port": 1}, "tools": {"exec": [] }}"#,
            &[
                "note: c.json:1:22: `gateway.port` has no effect: there is no gateway",
                "error: c.json:1:44: `tools.exec` is a list, expected an object",
            ],
        );
        check(
            r#"{"providers": {"x": {"apiKey": "${NO}"}}}"#,
            &["error: c.json:1:32: `providers.x.apiKey` refers to `NO`, which is not set"],
        );
        check(
            r#"{"tools": {"permissions": {"exec": "sometimes"}, "allow": ["foo("], "exec": {"denyPatterns": ["("]}}}"#,
            &[
                "error: c.json:1:27: `tools.permissions.exec` is `sometimes`, expected `always`, `ask` or `never`",
                "error: c.json:1:59: `tools.allow`: `foo(` has no closing `)`",
                "error: c.json:1:94: `tools.exec.denyPatterns`: `(` is not a valid regular expression: unclosed group",
                "note: c.json: the Python program rejects the file for some of these keys, or drops them: `tools.permissions`, `tools.allow`; `nanobot config check --fix` moves them to `c.nanobot.json`",
            ],
        );
        check(
            r#"{"tools": {"net": ["http://x/"], "deny": ["exce"]}}"#,
            &[
                "error: c.json:1:19: `tools.net`: `http://x/` is not a host; expected `example.org`, `*.example.org` or `example.org:8000`",
                "error: c.json:1:42: `tools.deny`: `exce` is not a tool; did you mean `exec`?",
                "note: c.json: the Python program rejects the file for some of these keys, or drops them: `tools.net`, `tools.deny`; `nanobot config check --fix` moves them to `c.nanobot.json`",
            ],
        );
        check(
            r#"{"tools": {"ssrfWhitelist": ["10.0.0.0/8", "0.0.0.0/0"]}}"#,
            &[
                "warning: c.json:1:29: `tools.ssrfWhitelist` contains `0.0.0.0/0`: a web page could direct the agent to almost any reachable host, including this machine and cloud metadata; list only the ranges that you need",
            ],
        );
        check(
            r#"{"modelPresets": {}, "session": {"sync": "none"}, "tools": {"read": []}}"#,
            &[
                "note: c.json:1:18: the Python program 0.1.4 does not know `modelPresets` and rejects the whole file",
                "note: c.json: the Python program rejects the file for some of these keys, or drops them: `session.sync`, `tools.read`; `nanobot config check --fix` moves them to `c.nanobot.json`",
            ],
        );
        check(
            r#"{"tools": {"exec": {"restrictToWorkspace": true}}}"#,
            &[
                "note: c.json:1:44: `tools.restrictToWorkspace` makes the workspace the working directory of every run, and no other path can be granted",
                "warning: c.json:1:44: `tools.exec.restrictToWorkspace` is an old name of `tools.restrictToWorkspace`",
            ],
        );
    }

    #[test]
    fn variables_are_checked_too() {
        let config = Config::missing(Path::new("c.json"));
        let check = |variable: (&str, &str), expect: &str| {
            assert_eq!(messages(&config, &[variable]), [expect]);
        };
        check(
            ("NANOBOT_AGENTS__DEFAULTS__TEMPERATURE", "9"),
            "error: NANOBOT_AGENTS__DEFAULTS__TEMPERATURE: `agents.defaults.temperature` is 9, expected a number from 0 to 2",
        );
        check(
            ("NANOBOT_AGENTS__DEFAULT__MODEL", "x"),
            "error: NANOBOT_AGENTS__DEFAULT__MODEL: does not match any config key; did you mean `agents.defaults`?",
        );
        check(
            ("NANOBOT_LLM_TIMEOUT_S", "x"),
            "error: `NANOBOT_LLM_TIMEOUT_S` is `x`, expected seconds from 0 to 86400",
        );
    }

    #[test]
    fn a_readable_file_with_a_key_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let check = |text: &str, mode: u32, expect: bool| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let env: Env = [("HOME", "/home/u"), ("K", "k")].into_iter().collect();
            let paths = Paths::resolve(&env, Some(&path)).unwrap();
            let findings = check_config(&Config::load(&paths).unwrap(), &env, &paths, OPTIONS);
            let is_reported = findings.iter().any(|finding| finding.text.contains("mode 06"));
            assert_eq!(is_reported, expect, "{text} {mode:o}");
            assert!(findings.iter().all(|finding| finding.severity == ConfigSeverity::Warning));
        };
        let literal = r#"{"providers": {"openai": {"apiKey": "sk-1"}}}"#;
        check(literal, 0o644, true);
        check(literal, 0o600, false);
        check(r#"{"providers": {"openai": {"apiKey": "${K}"}}}"#, 0o644, false);
        check(r#"{"providers": {"openai": {"extraHeaders": {"A": "b"}}}}"#, 0o640, true);
    }
}
