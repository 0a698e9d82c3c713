//! Hooks of the config: commands of the user that run at certain points of a turn. Three notations are read, so that
//! blocks written for other programs can be pasted: our own (`"hooks": {"pre_tool": [{"match": …, "command": …}]}`), Claude
//! Code's (`"PreToolUse": [{"matcher": …, "hooks": […]}]`), and Vibe's (`"hooks": [{"type": "before_tool", …}]`, the list of
//! its `hooks.toml`). Values are not expanded: a variable in a command is the shell's.

use super::key_spelling::snake_case;
use super::keys::nearest;
use crate::policy::rule::Pattern;
use crate::policy::tool_names::{self, BUILT_IN_TOOLS, EXTERNAL_PREFIXES};
use regex::Regex;
use serde_json::{Map, Value};
use std::time::Duration;

/// The time limit of a hook that has none of its own.
const DEFAULT_TIMEOUT_SECS: f64 = 60.0;
/// Upper bound of a hook's time limit. A call waits for its hooks.
const MAX_TIMEOUT_SECS: f64 = 600.0;

/// The longest name that is made of a command, in characters.
const MAX_NAME_CHARS: usize = 40;

/// A point at which hooks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookEvent {
    PreTool,
    PostTool,
    PreTurn,
    PostTurn,
    PreCompact,
    JobEnd,
}

/// The program whose names and fields a hook's command expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookDialect {
    Nanobot,
    Vibe,
    ClaudeCode,
}

/// The location in which a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookLocation {
    /// As a command of the run: in its sandbox, in the directory.
    Sandbox,
    /// Outside of the sandbox, in the home directory. The paths that the run may change are hidden from it.
    Home,
}

impl HookLocation {
    /// The location as the config names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Home => "home",
        }
    }

    /// The location of a hook that names none. Scripts for other programs expect the directory; ours have always started in
    /// the home directory.
    fn default_of(dialect: HookDialect) -> Self {
        match dialect {
            HookDialect::Nanobot => Self::Home,
            HookDialect::Vibe | HookDialect::ClaudeCode => Self::Sandbox,
        }
    }
}

/// A name of an event in one dialect.
#[derive(Clone, Copy, Debug)]
struct NamedEvent {
    dialect: HookDialect,
    name: &'static str,
    /// `None` for an event of Claude Code that has no counterpart here. Hooks for it are accepted and never run.
    event: Option<HookEvent>,
}

const fn named_event(
    dialect: HookDialect,
    name: &'static str,
    event: Option<HookEvent>,
) -> NamedEvent {
    NamedEvent { dialect, name, event }
}

/// The names of events: ours, those of both generations of Vibe, and Claude Code's.
const EVENT_NAMES: &[NamedEvent] = &[
    named_event(HookDialect::Nanobot, "pre_tool", Some(HookEvent::PreTool)),
    named_event(HookDialect::Nanobot, "post_tool", Some(HookEvent::PostTool)),
    named_event(HookDialect::Nanobot, "pre_turn", Some(HookEvent::PreTurn)),
    named_event(HookDialect::Nanobot, "post_turn", Some(HookEvent::PostTurn)),
    named_event(HookDialect::Nanobot, "pre_compact", Some(HookEvent::PreCompact)),
    named_event(HookDialect::Nanobot, "job_end", Some(HookEvent::JobEnd)),
    named_event(HookDialect::Vibe, "pre_tool", Some(HookEvent::PreTool)),
    named_event(HookDialect::Vibe, "post_tool", Some(HookEvent::PostTool)),
    named_event(HookDialect::Vibe, "post_agent", Some(HookEvent::PostTurn)),
    named_event(HookDialect::Vibe, "before_tool", Some(HookEvent::PreTool)),
    named_event(HookDialect::Vibe, "after_tool", Some(HookEvent::PostTool)),
    named_event(HookDialect::Vibe, "post_agent_turn", Some(HookEvent::PostTurn)),
    named_event(HookDialect::ClaudeCode, "PreToolUse", Some(HookEvent::PreTool)),
    named_event(HookDialect::ClaudeCode, "PostToolUse", Some(HookEvent::PostTool)),
    named_event(HookDialect::ClaudeCode, "PostToolUseFailure", Some(HookEvent::PostTool)),
    named_event(HookDialect::ClaudeCode, "UserPromptSubmit", Some(HookEvent::PreTurn)),
    named_event(HookDialect::ClaudeCode, "Stop", Some(HookEvent::PostTurn)),
    named_event(HookDialect::ClaudeCode, "PreCompact", Some(HookEvent::PreCompact)),
    named_event(HookDialect::ClaudeCode, "SessionStart", None),
    named_event(HookDialect::ClaudeCode, "SessionEnd", None),
    named_event(HookDialect::ClaudeCode, "SubagentStart", None),
    named_event(HookDialect::ClaudeCode, "SubagentStop", None),
    named_event(HookDialect::ClaudeCode, "Notification", None),
    named_event(HookDialect::ClaudeCode, "PermissionRequest", None),
    named_event(HookDialect::ClaudeCode, "PostCompact", None),
];

/// A hook as configured.
#[derive(Clone, Debug)]
pub struct HookCommand {
    pub event: HookEvent,
    /// The event as the config names it; the command receives this name.
    pub event_name: &'static str,
    pub dialect: HookDialect,
    /// The name for messages: its own, or the beginning of its command.
    pub name: String,
    pub matcher: HookMatcher,
    /// A shell command.
    pub command: String,
    pub timeout: Duration,
    /// True if a failure of the hook is treated as a refusal.
    pub is_strict: bool,
    pub location: HookLocation,
    /// True if the config names the location.
    pub names_location: bool,
}

/// The tools that a hook is for.
#[derive(Clone, Debug)]
pub enum HookMatcher {
    Every,
    /// Names of tools, any of which matches; a glob each, compared without case.
    Names(Vec<Pattern>),
    Regex(Regex),
}

impl HookMatcher {
    /// True if any of `names`, which denote one tool, matches.
    pub fn matches<S: AsRef<str>>(&self, names: &[S]) -> bool {
        let mut names = names.iter().map(AsRef::as_ref);
        match self {
            Self::Every => true,
            Self::Names(globs) => {
                names.any(|name| globs.iter().any(|glob| glob.matches(&name.to_lowercase())))
            }
            Self::Regex(regex) => names.any(|name| regex.is_match(name)),
        }
    }

    /// Parses a matcher. Claude Code's is a list of names separated by `|`, or a regular expression; the others are a glob,
    /// or a regular expression after `re:`.
    fn parse(text: &str, dialect: HookDialect) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text == "*" {
            return Ok(Self::Every);
        }
        let regex = |text: &str| {
            let regex = regex::RegexBuilder::new(text)
                .case_insensitive(dialect != HookDialect::ClaudeCode)
                .build();
            regex.map(Self::Regex).map_err(|error| {
                let cause = error.to_string();
                let cause = cause.lines().last().unwrap_or_default();
                format!("its matcher `{text}` is not a regular expression: {cause}")
            })
        };
        let globs = |text: &str| {
            let names = text.split('|').map(|name| Pattern::new(name.trim().to_lowercase()));
            Self::Names(names.collect())
        };
        let is_in_list = |letter: char| letter.is_ascii_alphanumeric() || "_-| ".contains(letter);
        match (dialect, text.strip_prefix("re:")) {
            (HookDialect::ClaudeCode, _) if text.chars().all(is_in_list) => Ok(globs(text)),
            (HookDialect::ClaudeCode, _) => regex(text),
            (_, Some(text)) => regex(&format!("^(?:{text})$")),
            (_, None) => Ok(globs(text)),
        }
    }
}

/// The hooks of the config, in its order, and remarks about parts that have no effect or seem wrong.
#[derive(Clone, Debug, Default)]
pub struct HookSettings {
    pub commands: Vec<HookCommand>,
    pub(crate) remarks: Vec<String>,
}

impl HookSettings {
    /// Reads the value of `hooks`.
    ///
    /// # Errors
    /// The first mistake in it, as a phrase.
    pub fn parse(value: &Value) -> Result<Self, String> {
        let mut hooks = Self::default();
        match value {
            Value::Null => {}
            Value::Object(events) => {
                for (key, entries) in events {
                    let event = find_key(key)?;
                    let entries =
                        entries.as_array().ok_or_else(|| format!("`hooks.{key}` is not a list"))?;
                    for entry in entries {
                        hooks.add_entry(event, entry)?;
                    }
                }
            }
            Value::Array(entries) => {
                for entry in entries {
                    let kind = entry["type"].as_str().unwrap_or_default();
                    let event = find_event(kind, |dialect| dialect == HookDialect::Vibe);
                    let event = event.ok_or_else(|| unknown_event("`type`", kind))?;
                    hooks.add(event, entry, &entry["match"])?;
                }
            }
            _ => return Err("`hooks` is neither an object nor a list".into()),
        }
        Ok(hooks)
    }

    /// Adds an entry of the object notation: a hook, or a matcher with several.
    fn add_entry(&mut self, event: NamedEvent, entry: &Value) -> Result<(), String> {
        let matcher = match &entry["matcher"] {
            Value::Null => &entry["match"],
            matcher => matcher,
        };
        match entry["hooks"].as_array() {
            None => self.add(event, entry, matcher),
            Some(hooks) => hooks.iter().try_for_each(|hook| self.add(event, hook, matcher)),
        }
    }

    fn add(&mut self, event: NamedEvent, entry: &Value, matcher: &Value) -> Result<(), String> {
        let NamedEvent { dialect, name: event_name, event } = event;
        let Some(fields) = entry.as_object() else {
            return Err(format!("a hook for `{event_name}` is not an object"));
        };
        let Some(event) = event else {
            self.remarks
                .push(format!("hooks for `{event_name}` never run: there is no such event here"));
            return Ok(());
        };
        let kind = fields.get("type").and_then(Value::as_str);
        if dialect != HookDialect::Vibe && kind.is_some_and(|kind| kind != "command") {
            let kind = kind.unwrap_or_default();
            self.remarks.push(format!(
                "a hook for `{event_name}` of type `{kind}` never runs: only commands do"
            ));
            return Ok(());
        }
        let hook = parse_hook(dialect, event_name, event, fields, matcher);
        let hook = hook.map_err(|cause| format!("a hook for `{event_name}`: {cause}"))?;
        self.remarks.extend(advice(&hook));
        if matches!(hook.event, HookEvent::PreTool | HookEvent::PostTool) {
            self.remarks.extend(unknown_tool(&hook));
        }
        self.commands.push(hook);
        Ok(())
    }
}

fn parse_hook(
    dialect: HookDialect,
    event_name: &'static str,
    event: HookEvent,
    fields: &Map<String, Value>,
    matcher: &Value,
) -> Result<HookCommand, String> {
    const FIELD_NAMES: [&str; 10] = [
        "command",
        "description",
        "in",
        "match",
        "matcher",
        "name",
        "statusMessage",
        "strict",
        "timeout",
        "type",
    ];
    // A misspelt limit would be ignored. Blocks for other programs may have fields that only they know.
    if dialect == HookDialect::Nanobot
        && let Some(name) = fields.keys().find(|name| !FIELD_NAMES.contains(&name.as_str()))
    {
        let suggestion = nearest(name, FIELD_NAMES);
        let suggestion = suggestion.map(|name| format!("; did you mean `{name}`?"));
        return Err(format!("unknown key `{name}`{}", suggestion.unwrap_or_default()));
    }
    let command = fields.get("command").and_then(Value::as_str).unwrap_or_default().trim();
    if command.is_empty() {
        return Err("it has no `command`".into());
    }
    let timeout = match fields.get("timeout") {
        None | Some(Value::Null) => DEFAULT_TIMEOUT_SECS,
        Some(value) => value
            .as_f64()
            .filter(|seconds| *seconds > 0.0)
            .ok_or("its `timeout` is not a number of seconds")?,
    };
    let is_strict = match fields.get("strict") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(is_strict)) => *is_strict,
        Some(_) => return Err("its `strict` is neither true nor false".into()),
    };
    let location = match fields.get("in").map(Value::as_str) {
        None => None,
        Some(Some("sandbox")) => Some(HookLocation::Sandbox),
        Some(Some("home")) => Some(HookLocation::Home),
        Some(_) => return Err("its `in` is neither `sandbox` nor `home`".into()),
    };
    let matcher = match matcher {
        Value::Null => HookMatcher::Every,
        Value::String(text) => HookMatcher::parse(text, dialect)?,
        _ => return Err("its matcher is not a text".into()),
    };
    let name = fields.get("name").and_then(Value::as_str);
    let name = name.map_or_else(|| command.chars().take(MAX_NAME_CHARS).collect(), str::to_owned);
    Ok(HookCommand {
        event,
        event_name,
        dialect,
        name,
        matcher,
        command: command.to_owned(),
        timeout: Duration::from_secs_f64(timeout.min(MAX_TIMEOUT_SECS)),
        is_strict,
        location: location.unwrap_or(HookLocation::default_of(dialect)),
        names_location: location.is_some(),
    })
}

/// A remark about the tools of a hook in our own notation, if one of them is no tool: for that one the hook never runs. Blocks for other
/// programs may have tools that only these have.
fn unknown_tool(hook: &HookCommand) -> Option<String> {
    if hook.dialect != HookDialect::Nanobot {
        return None;
    }
    let matches_built_in =
        |matcher: &HookMatcher| BUILT_IN_TOOLS.iter().any(|tool| matcher.matches(&[tool.name]));
    let (text, cause) = match &hook.matcher {
        HookMatcher::Every => return None,
        HookMatcher::Names(globs) => globs.iter().find_map(|glob| {
            let text = glob.text();
            let (start, is_glob) = match text.find(['*', '?']) {
                Some(end) => (&text[..end], true),
                None => (text, false),
            };
            // Servers and programs of the user have tools of any name after these.
            let is_external = EXTERNAL_PREFIXES
                .iter()
                .any(|prefix| prefix.starts_with(start) || start.starts_with(prefix));
            if !is_glob {
                return tool_names::check(text).err().map(|cause| (text, cause));
            }
            let is_known = is_external || matches_built_in(&HookMatcher::Names(vec![glob.clone()]));
            (!is_known).then(|| (text, "matches no tool".to_owned()))
        })?,
        HookMatcher::Regex(regex) => {
            let text = regex.as_str();
            let is_known = matches_built_in(&hook.matcher)
                || text.contains('.')
                || EXTERNAL_PREFIXES.iter().any(|prefix| text.contains(prefix));
            (!is_known).then(|| (text, "matches no tool".to_owned()))?
        }
    };
    Some(format!("hook `{}` never runs for `{text}`, which {cause}", hook.name))
}

/// Words of commands that work on the files of the directory.
const DIRECTORY_WORDS: &[&str] = &[
    "NANOBOT_DIRECTORY",
    "CLAUDE_PROJECT_DIR",
    "git",
    "prettier",
    "eslint",
    "biome",
    "black",
    "ruff",
    "isort",
    "mypy",
    "pyright",
    "flake8",
    "pylint",
    "gofmt",
    "goimports",
    "rustfmt",
    "cargo",
    "clang-format",
    "shellcheck",
    "shfmt",
    "npm",
    "npx",
    "pnpm",
    "yarn",
    "make",
    "pytest",
    "pre-commit",
    "tsc",
];
/// Words of commands that need the network, the desktop or files of the home.
const HOME_WORDS: &[&str] = &[
    "curl",
    "wget",
    "ssh",
    "scp",
    "notify-send",
    "mail",
    "sendmail",
    "msmtp",
    "logger",
    "osascript",
    "say",
    "paplay",
    "aplay",
    "wall",
    "dbus-send",
    "gh",
    "HOME",
    "~",
];

/// Advises another location for a hook, if its command seems to need that. This is a guess from the words of the command, so it is only
/// used for advice.
fn advice(hook: &HookCommand) -> Option<String> {
    let is_in_word = |letter: char| letter.is_alphanumeric() || "_-~".contains(letter);
    // Programs of hooks can be run in both locations.
    let command = hook.command.replace("~/.nanobot/hooks", "").replace("$HOME/.nanobot/hooks", "");
    let command_words: Vec<&str> = command.split(|letter| !is_in_word(letter)).collect();
    let find =
        |list: &[&'static str]| list.iter().copied().find(|word| command_words.contains(word));
    let (location, word, need) = match (find(DIRECTORY_WORDS), find(HOME_WORDS)) {
        (Some(word), None) => (HookLocation::Sandbox, word, "the files of the directory"),
        (None, Some(word)) => {
            (HookLocation::Home, word, "the home directory, the desktop or the network")
        }
        _ => return None,
    };
    (location != hook.location).then(|| {
        format!(
            "hook `{}` runs `in: {}`, but `{word}` in its command seems to need {need}: `\"in\": \"{}\"`",
            hook.name,
            hook.location.name(),
            location.name()
        )
    })
}

/// The event that the key `name` of the object notation denotes.
fn find_key(name: &str) -> Result<NamedEvent, String> {
    let spelling = snake_case(name);
    let event = find_event(name, |_| true)
        .or_else(|| find_event(&spelling, |dialect| dialect == HookDialect::Nanobot));
    event.ok_or_else(|| unknown_event("`hooks` key", name))
}

/// True if `value` names an event, in the object notation or in the list notation.
pub(crate) fn has_events(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.keys().any(|name| find_key(name).is_ok()),
        Value::Array(items) => items.iter().any(|item| item.get("command").is_some()),
        _ => false,
    }
}

/// The event called `name` in the first dialect that `is_dialect` accepts.
fn find_event(name: &str, is_dialect: impl Fn(HookDialect) -> bool) -> Option<NamedEvent> {
    let mut events = EVENT_NAMES.iter().copied();
    events.find(|event| event.name == name && is_dialect(event.dialect))
}

/// The error for `name`, which is not an event; `label` says where it is.
fn unknown_event(label: &str, name: &str) -> String {
    let suggestion = match nearest(name, EVENT_NAMES.iter().map(|event| event.name)) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "the events are pre_tool, post_tool, pre_turn, post_turn, pre_compact and job_end"
            .into(),
    };
    format!("{label} `{name}` is not an event; {suggestion}")
}

#[cfg(test)]
mod tests {
    use super::{HookDialect, HookEvent, HookLocation, HookSettings};
    use serde_json::json;

    #[test]
    fn three_notations_are_read() {
        let check = |value, expect: Result<(HookEvent, HookDialect, &[&str]), &str>| {
            let hooks = HookSettings::parse(&value);
            match (hooks, expect) {
                (Ok(hooks), Ok((event, dialect, matching))) => {
                    let hook = &hooks.commands[0];
                    assert_eq!((hook.event, hook.dialect), (event, dialect), "{value}");
                    for name in matching {
                        match name.strip_prefix('!') {
                            Some(name) => assert!(!hook.matcher.matches(&[name]), "{value} {name}"),
                            None => assert!(hook.matcher.matches(&[name]), "{value} {name}"),
                        }
                    }
                }
                (Err(cause), Err(part)) => assert!(cause.contains(part), "{value}: {cause}"),
                (found, _) => panic!("{value}: {found:?}"),
            }
        };
        use HookDialect::{ClaudeCode, Nanobot, Vibe};
        check(
            json!({"pre_tool": [{"match": "web_*|exec", "command": "a"}]}),
            Ok((HookEvent::PreTool, Nanobot, &["web_fetch", "exec", "!execute"])),
        );
        check(
            json!({"preTool": [{"match": "re:r.*e", "command": "a"}]}),
            Ok((HookEvent::PreTool, Nanobot, &["read_file", "!grep", "!read_files"])),
        );
        check(
            json!({"PreToolUse": [{"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "a"}]}]}),
            Ok((HookEvent::PreTool, ClaudeCode, &["Edit", "Write", "!Bash", "!NotebookEdit"])),
        );
        check(
            json!({"PostToolUse": [{"matcher": "Notebook.*", "hooks": [{"type": "command", "command": "a"}]}]}),
            Ok((HookEvent::PostTool, ClaudeCode, &["NotebookEdit", "!Edit"])),
        );
        check(
            json!([{"name": "x", "type": "before_tool", "match": "BASH", "command": "a", "strict": true}]),
            Ok((HookEvent::PreTool, Vibe, &["bash", "!read"])),
        );
        check(
            json!([{"name": "x", "type": "post_agent", "command": "a"}]),
            Ok((HookEvent::PostTurn, Vibe, &["anything"])),
        );
        check(json!({"pre_tool": [{"command": "a", "in": "cellar"}]}), Err("its `in` is neither"));
        check(json!({"pre_tol": []}), Err("did you mean `pre_tool`?"));
        check(json!({"pre_tol": [{"command": "a"}]}), Err("did you mean `pre_tool`?"));
        check(json!({"pre_tool": [{"match": "x"}]}), Err("it has no `command`"));
        check(
            json!({"pre_tool": [{"comand": "x", "command": "a"}]}),
            Err("did you mean `command`?"),
        );
        check(
            json!({"pre_tool": [{"match": "re:(", "command": "a"}]}),
            Err("not a regular expression"),
        );
        check(json!({"pre_tool": [{"command": "a", "timeout": -1}]}), Err("seconds"));
        check(json!({"pre_tool": {"command": "a"}}), Err("is not a list"));
        check(json!("x"), Err("neither an object nor a list"));
        check(json!([{"type": "x", "command": "a"}]), Err("is not an event"));
    }

    #[test]
    fn the_location_of_a_hook() {
        use HookLocation::{Home, Sandbox};
        let check = |value, expect: HookLocation, advised: &str| {
            let hooks = HookSettings::parse(&value).unwrap();
            assert_eq!(hooks.commands[0].location, expect, "{value}");
            let remark = hooks.remarks.first().map_or("", String::as_str);
            let is_advised =
                if advised.is_empty() { remark.is_empty() } else { remark.ends_with(advised) };
            assert!(is_advised, "{value}: {remark}");
        };
        let own = |command: &str| json!({ "post_tool": [{ "command": command }] });
        let claude = |command: &str| json!({ "Stop": [{ "hooks": [{ "command": command }] }] });
        check(own("~/.nanobot/hooks/no-rm"), Home, "");
        check(own("cat >> ~/audit.log"), Home, "");
        check(own("cd $NANOBOT_DIRECTORY && ./fmt"), Home, "`\"in\": \"sandbox\"`");
        check(own("ruff format ."), Home, "`\"in\": \"sandbox\"`");
        check(claude("npx prettier --write ."), Sandbox, "");
        check(claude("notify-send done"), Sandbox, "`\"in\": \"home\"`");
        check(claude("git push && curl https://ci"), Sandbox, "");
        check(json!({ "pre_tool": [{ "command": "make", "in": "sandbox" }] }), Sandbox, "");
        check(json!([{ "type": "pre_tool", "command": "a", "in": "home" }]), Home, "");
    }

    #[test]
    fn tools_that_do_not_exist_are_remarked() {
        let check = |matcher: &str, expect: &str| {
            let hooks = json!({ "pre_tool": [{ "match": matcher, "command": "a" }] });
            let hooks = HookSettings::parse(&hooks).unwrap();
            let remark = hooks.remarks.first().map_or("", String::as_str);
            assert_eq!(remark, expect, "{matcher}");
        };
        check(
            "wirte_file",
            "hook `a` never runs for `wirte_file`, which is not a tool; did you mean `write_file`?",
        );
        check(
            "exec|exec(",
            "hook `a` never runs for `exec(`, which is not a tool; did you mean `exec`?",
        );
        check("wirte_*", "hook `a` never runs for `wirte_*`, which matches no tool");
        check(
            "re:wirte_(file|x)",
            "hook `a` never runs for `^(?:wirte_(file|x))$`, which matches no tool",
        );
        for matcher in [
            "",
            "*",
            "Exec",
            "exec",
            "write_file | edit_file",
            "web_*",
            "mcp_*",
            "m*",
            "mcp_x_y",
            "tool_weather",
            "re:(write|edit)_file",
            "re:mcp_.*",
            "re:.*x",
        ] {
            check(matcher, "");
        }
        let hooks = json!({ "PreToolUse": [{ "matcher": "NotebookEdit", "command": "a" }] });
        assert!(HookSettings::parse(&hooks).unwrap().remarks.is_empty());
        let hooks = json!({ "job_end": [{ "match": "x", "command": "a" }] });
        assert!(HookSettings::parse(&hooks).unwrap().remarks.is_empty());
    }

    #[test]
    fn events_without_a_counterpart_are_remarked() {
        let hooks = HookSettings::parse(&json!({
            "Notification": [{"hooks": [{"type": "command", "command": "a"}]}],
            "Stop": [{"hooks": [{"type": "prompt", "prompt": "a"}]}],
        }));
        let hooks = hooks.unwrap();
        assert!(hooks.commands.is_empty());
        assert_eq!(hooks.remarks.len(), 2);
    }
}
