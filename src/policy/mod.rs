//! Permissions: one pure value, [`Policy`], decides for every tool. It is built from flags, config and profile at the
//! start of a run; a sub-agent gets the intersection of its own and its parent's. Decisions here are by name only: the
//! tools enforce them by opening through descriptors, and the sandbox in the kernel.

use crate::shell_quote::quote;
use call_files::{CallFile, files_of_call};
use core::net::IpAddr;
use file_scope::{FileAccess, FileScope, PathRule};
use net::Net;
use provenance::{ChangeGrants, Grant, GuardedChange};
pub use refusal::Refusal;
use regex::Regex;
use rule::{Pattern, PolicyRule, RuleEffect};
use serde_json::Value;
use tool_names::{APPLY_PATCH, EXEC, PROCESS, READ_TOOLS, WRITE_TOOLS, tools_within};

pub mod call_files;
pub mod description;
pub mod file_scope;
pub mod net;
pub mod profile;
pub mod provenance;
pub mod refusal;
pub mod rule;
pub mod secrets;
pub mod snapshot;
pub mod startup_files;
pub mod tool_names;

/// The permission to use a tool, from strictest to weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    Never,
    /// Requires approval. Means no if the run cannot prompt.
    Ask,
    Always,
}

impl Permission {
    /// Parses `never`, `ask` or `always`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "always" => Some(Self::Always),
            "ask" => Some(Self::Ask),
            "never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Parses one entry of the config map `permissions`.
    ///
    /// # Errors
    /// A phrase to append to `name`: it refers to no tool, or `word` is not a permission.
    pub fn parse_entry(name: &str, permission: &str) -> Result<(Pattern, Self), String> {
        let name = tool_names::canonical_name(name);
        tool_names::check(name)?;
        let permission = Self::parse(permission)
            .ok_or_else(|| format!("is `{permission}`, expected `always`, `ask` or `never`"))?;
        Ok((Pattern::new(name), permission))
    }
}

/// The containment of commands, from strictest to weakest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sandbox {
    /// Contained by the kernel; if that is unavailable, the run does not start.
    Strict,
    /// Contained by the kernel; if that is unavailable, commands are refused.
    #[default]
    Auto,
    /// Not contained.
    Off,
}

/// The permissions of a run.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The name of the profile it was built from.
    pub profile: String,
    pub file_scope: FileScope,
    pub net: Net,
    /// Addresses that the user typed. They may be reached even if they are not public; without a port, at the web
    /// ports.
    pub explicit_addresses: Vec<(IpAddr, Option<u16>)>,
    pub sandbox: Sandbox,
    /// Allow lists of tools. A tool is offered only if it matches an entry of every list.
    pub tool_filters: Vec<Vec<Pattern>>,
    /// Permissions by tool. The strictest matching entry applies; without a match, the permission is `Always`.
    pub permissions: Vec<(Pattern, Permission)>,
    pub rules: Vec<PolicyRule>,
    /// Answers every approval request with yes.
    pub auto_approve: bool,
    /// Forbids all changes, whatever was granted.
    pub reads_only: bool,
    /// Command patterns from the Python program's config. They catch mistakes and are not a security boundary.
    pub command_patterns: CommandPatterns,
}

/// Patterns for commands, matched against the lower-cased command as the Python program does.
#[derive(Clone, Debug, Default)]
pub struct CommandPatterns {
    pub denied: Vec<Regex>,
    /// Allow lists. A command must match an entry of every list.
    pub allowed: Vec<Vec<Regex>>,
}

/// The decision about a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyDecision {
    /// Allowed; the text names the rule.
    Allow(String),
    /// Needs approval. Holds the text of the prompt, which is also the refusal if the run cannot prompt.
    Ask(Refusal),
    Deny(Refusal),
}

/// An item that a call is about, as rules and permissions apply to it.
struct RuleSubject<'a> {
    /// The tools whose rules and permissions apply.
    tools: Vec<&'a str>,
    /// The argument that rules match against, in every form in which a rule may write it.
    forms: Vec<String>,
}

impl RuleSubject<'_> {
    fn is_covered(&self, rule: &PolicyRule) -> bool {
        self.tools.iter().any(|tool| rule.covers(tool, &self.forms))
    }
}

impl Policy {
    /// Adds `rule`. A rule about paths is added to `reach`, which also checks the targets of links.
    pub fn add(&mut self, rule: PolicyRule) {
        let Some(argument) = &rule.argument else {
            return self.rules.push(rule);
        };
        let about = |tools: &[&str]| tools.iter().any(|tool| rule.tool.matches(tool));
        let mut bind = |access: FileAccess| match rule.effect {
            RuleEffect::Deny => self.file_scope.denied.push(PathRule {
                access,
                pattern: argument.clone(),
                rule: rule.to_string(),
            }),
            // Read access depends on the roots alone, so an allow rule adds nothing.
            RuleEffect::Allow if access == FileAccess::Write => {
                self.file_scope.allowed.push(argument.clone());
            }
            RuleEffect::Allow => {}
        };
        if about(READ_TOOLS) {
            bind(FileAccess::Read);
        }
        if about(WRITE_TOOLS) {
            bind(FileAccess::Write);
        }
        self.rules.push(rule);
    }

    /// True if `tool` is offered to the model.
    pub fn is_offered(&self, tool: &str) -> bool {
        self.withheld_reason(tool).is_none()
    }

    /// True if the user named `tool` in an allow rule or a permission, and not by a pattern.
    pub fn is_named(&self, tool: &str) -> bool {
        let allows =
            |rule: &PolicyRule| rule.effect == RuleEffect::Allow && rule.tool.text() == tool;
        let permits = |(name, permission): &(Pattern, Permission)| {
            name.text() == tool && *permission != Permission::Never
        };
        self.rules.iter().any(allows) || self.permissions.iter().any(permits)
    }

    /// The reason why `tool` is not offered (a rule, permission, profile or list), or `None` if it is.
    pub fn withheld_reason(&self, tool: &str) -> Option<Refusal> {
        let required = match tool {
            // A patch mostly edits, so it is not offered where edits are forbidden.
            APPLY_PATCH => Some("edit_file"),
            PROCESS => Some(EXEC),
            _ => None,
        };
        let mut names = [tool].into_iter().chain(required);
        if let Some(refusal) = names.find_map(|name| self.forbidden_reason(name)) {
            return Some(refusal);
        }
        let is_offered = |only: &Vec<Pattern>| only.iter().any(|name| name.lists(tool));
        (!self.tool_filters.iter().all(is_offered)).then(|| {
            let message = format!("`{tool}` is not a tool of the profile `{}`", self.profile);
            Refusal::new(message)
        })
    }

    /// The rule, profile or permission that forbids every call of `tool`, if there is one.
    fn forbidden_reason(&self, tool: &str) -> Option<Refusal> {
        let denied = |rule: &&PolicyRule| {
            rule.effect == RuleEffect::Deny && rule.argument.is_none() && rule.tool.matches(tool)
        };
        if let Some(rule) = self.rules.iter().find(denied) {
            let message = format!("`{tool}` is denied by the rule `{rule}` ({})", rule.origin);
            return Some(Refusal::new(message));
        }
        if self.reads_only && WRITE_TOOLS.contains(&tool) {
            return Some(self.read_only_refusal(tool));
        }
        let is_never = |(name, permission): &&(Pattern, Permission)| {
            *permission == Permission::Never && name.matches(tool)
        };
        self.permissions.iter().find(is_never).map(|(name, _)| {
            Refusal::new(format!(
                "`{tool}` is never allowed: the permission of `{}` is `never`, set by `tools.permissions` or the profile `{}`",
                name.text(),
                self.profile
            ))
        })
    }

    /// True if a tool whose name begins with `beginning` may be offered. Errs on the side of true.
    pub fn can_offer(&self, beginning: &str) -> bool {
        let plain = |name: &Pattern| name.text().split(['*', '?']).next().map(str::len);
        let is_all = |name: &Pattern| {
            let stem = name.text().strip_suffix('*');
            stem.is_some_and(|stem| plain(name) == Some(stem.len()) && beginning.starts_with(stem))
        };
        let mut denied = self.rules.iter();
        let mut never = self.permissions.iter();
        !denied.any(|rule| {
            rule.effect == RuleEffect::Deny && rule.argument.is_none() && is_all(&rule.tool)
        }) && !never.any(|(name, permission)| *permission == Permission::Never && is_all(name))
            && self
                .tool_filters
                .iter()
                .all(|only| only.iter().any(|name| name.may_match_prefix(beginning)))
    }

    /// Marks a third-party `tool` as one that may change anything: it requires approval unless a permission is set for
    /// it, and it is withheld from a read-only policy. The mark applies to this policy only; an intersection inherits
    /// it from either operand.
    pub fn require_approval(&mut self, tool: &str) {
        let is_set = |(name, _): &(Pattern, Permission)| name.matches(tool);
        let permission = match self.reads_only {
            true => Permission::Never,
            false if self.permissions.iter().any(is_set) => return,
            false => Permission::Ask,
        };
        self.permissions.push((Pattern::new(tool), permission));
    }

    fn read_only_refusal(&self, tool: &str) -> Refusal {
        Refusal {
            message: format!(
                "`{tool}` changes {}, and the profile `{}` is read-only",
                if tool == "cron" { "jobs" } else { "files" },
                self.profile
            ),
            suggested_flag: Some("--profile default".into()),
        }
    }

    /// Decides about a call of `tool`. Paths are checked again when they are opened, see [`FileScope::decide`].
    pub fn decide(&self, tool: &str, arguments: &Value) -> PolicyDecision {
        let plans = tool == "cron" && arguments["action"] != "list";
        if self.reads_only && (plans || WRITE_TOOLS.contains(&tool)) {
            return PolicyDecision::Deny(self.read_only_refusal(tool));
        }
        let subjects = self.rule_subjects(tool, arguments);
        let with = |effect: RuleEffect| self.rules.iter().filter(move |rule| rule.effect == effect);
        // Denied paths are checked by `reach`, which also checks the targets of links.
        let of_paths = READ_TOOLS.contains(&tool) || WRITE_TOOLS.contains(&tool);
        let here = |rule: &&PolicyRule| !(of_paths && rule.argument.is_some());
        let covers_any = |rule: &&PolicyRule| subjects.iter().any(|it| it.is_covered(rule));
        if let Some(rule) = with(RuleEffect::Deny).filter(here).find(covers_any) {
            return PolicyDecision::Deny(Refusal::new(format!(
                "`{tool}` is denied by the rule `{rule}` ({})",
                rule.origin
            )));
        }
        let mut commands = subjects.iter().filter(|it| it.tools.contains(&EXEC));
        if let Some(command) = commands.next()
            && let Some(refusal) = self.command_patterns.check(&command.forms)
        {
            return PolicyDecision::Deny(refusal);
        }
        let mut verdict = PolicyDecision::Allow("permission: always".into());
        for subject in &subjects {
            for name in &subject.tools {
                match self.permission(name) {
                    Permission::Always => {}
                    Permission::Never => {
                        return PolicyDecision::Deny(Refusal::new(format!(
                            "`{name}` is never allowed in this run"
                        )));
                    }
                    Permission::Ask => {
                        let covers = |rule: &&PolicyRule| {
                            [*name, tool]
                                .iter()
                                .any(|it| rule.covers(it, &subject.forms))
                        };
                        match with(RuleEffect::Allow).find(covers) {
                            Some(_) if matches!(verdict, PolicyDecision::Ask(_)) => {}
                            Some(rule) => verdict = PolicyDecision::Allow(rule.reason()),
                            None => verdict = self.ask(tool),
                        }
                    }
                }
            }
        }
        match verdict {
            PolicyDecision::Allow(why) => self
                .decide_by_path_rule(tool, arguments)
                .unwrap_or(PolicyDecision::Allow(why)),
            verdict => verdict,
        }
    }

    /// The decision about changes that only a rule about their path allows. It must be a rule about this tool: one about
    /// `write_file` does not let `delete_file` remove what is there.
    fn decide_by_path_rule(&self, tool: &str, arguments: &Value) -> Option<PolicyDecision> {
        if self.file_scope.allowed.is_empty() || !WRITE_TOOLS.contains(&tool) {
            return None;
        }
        let without_rules = FileScope {
            allowed: Vec::new(),
            ..self.file_scope.clone()
        };
        let mut decision = None;
        for file in files_of_call(tool, arguments) {
            let allowed = self.file_scope.decide(file.path, FileAccess::Write);
            let refused = without_rules.decide(file.path, FileAccess::Write);
            let (Ok(place), Err(refusal)) = (allowed, refused) else {
                continue;
            };
            let is_about = |rule: &&PolicyRule| {
                let is_tool = rule.tool.matches(tool) || rule.tool.matches(file.tool);
                let pattern = rule.argument.as_ref();
                let root = &self.file_scope.roots[place.root].path;
                let covers = |pattern| self.file_scope.matches_beneath(pattern, &place.path, root);
                rule.effect == RuleEffect::Allow && is_tool && pattern.is_some_and(covers)
            };
            match self.rules.iter().find(is_about) {
                Some(rule) => decision = Some(PolicyDecision::Allow(rule.reason())),
                None => return Some(PolicyDecision::Ask(refusal)),
            }
        }
        decision
    }

    /// The decision about a call of `tool` that needs approval, and that no rule allows.
    fn ask(&self, tool: &str) -> PolicyDecision {
        if self.auto_approve {
            return PolicyDecision::Allow(format!(
                "profile `{}`: approved automatically",
                self.profile
            ));
        }
        let flag = format!("--allow {}", quote(tool));
        PolicyDecision::Ask(Refusal {
            message: format!(
                "`{tool}` requires approval, but this run cannot prompt; `{flag}` would allow it, and `{tool}` in \
                 `tools.allow` of the config does so in every run"
            ),
            suggested_flag: Some(flag),
        })
    }

    /// The user's decision about a change that takes effect in later runs. No glob matches the word for it.
    pub fn grant_for(&self, change: GuardedChange) -> Grant {
        let is_about =
            |rule: &&PolicyRule| rule.argument.is_none() && rule.tool.text() == change.word();
        let has = |effect| {
            self.rules
                .iter()
                .filter(is_about)
                .any(|rule| rule.effect == effect)
        };
        match () {
            () if has(RuleEffect::Deny) => Grant::Denied,
            () if self.auto_approve
                || self.file_scope.is_unrestricted
                || has(RuleEffect::Allow) =>
            {
                Grant::Allowed
            }
            () => Grant::Unset,
        }
    }

    /// The user's decisions about all changes that take effect in later runs.
    pub fn change_grants(&self) -> ChangeGrants {
        ChangeGrants {
            jobs: self.grant_for(GuardedChange::Jobs),
            notes: self.grant_for(GuardedChange::Notes),
            startup: self.grant_for(GuardedChange::Startup),
            messages: self.grant_for(GuardedChange::Messages),
        }
    }

    /// The strictest permission set for `tool`.
    pub fn permission(&self, tool: &str) -> Permission {
        let matching = self
            .permissions
            .iter()
            .filter(|(name, _)| name.matches(tool));
        matching
            .map(|(_, permission)| *permission)
            .min()
            .unwrap_or(Permission::Always)
    }

    /// True if the user typed exactly this address. An address typed without a port covers the `usual` ports.
    pub fn is_explicit_address(&self, address: IpAddr, port: u16, usual: &[u16]) -> bool {
        let is_it = |(typed, at): &(IpAddr, Option<u16>)| {
            *typed == address && at.map_or(usual.contains(&port), |at| at == port)
        };
        self.explicit_addresses.iter().any(is_it)
    }

    /// The items that a call is about: several only if it changes several files.
    fn rule_subjects<'a>(&self, tool: &'a str, arguments: &'a Value) -> Vec<RuleSubject<'a>> {
        let text = |key: &str| arguments[key].as_str();
        let files = files_of_call(tool, arguments);
        if !files.is_empty() {
            return files.iter().map(|it| self.file_subject(tool, it)).collect();
        }
        let forms = match (tool, text("command"), text("url"), text("query")) {
            (APPLY_PATCH, ..) => Vec::new(),
            ("cron", ..) => vec![text("action").unwrap_or_default().to_owned()],
            (PROCESS, ..) => vec![text("input").unwrap_or_default().to_owned()],
            (_, Some(command), ..) => vec![command.to_owned()],
            (_, _, Some(url), _) => {
                let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
                let host = rest.split(['/', '?', '#', ':']).next().unwrap_or_default();
                vec![url.to_owned(), host.to_ascii_lowercase()]
            }
            (.., Some(query)) => vec![query.to_owned()],
            _ => vec![arguments.to_string()],
        };
        let tools = match tool {
            // Reading and ending need no more than the command that was permitted.
            PROCESS if text("input").is_some() => tools_within(tool),
            tool => vec![tool],
        };
        vec![RuleSubject { tools, forms }]
    }

    /// The subject of rules about a file of a call of `tool`.
    fn file_subject<'a>(&self, tool: &'a str, file: &CallFile<'a>) -> RuleSubject<'a> {
        let path = self.file_scope.absolute(file.path);
        let beneath = path.strip_prefix(&self.file_scope.directory).ok();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let beneath = beneath.map(|beneath| beneath.to_string_lossy().into_owned());
        let whole = path.to_string_lossy().into_owned();
        let mut tools = vec![tool, file.tool];
        tools.dedup();
        RuleSubject {
            tools,
            forms: [Some(whole), beneath, name].into_iter().flatten().collect(),
        }
    }

    /// The intersection: allows what both this policy and `other` allow. Used for sub-agents and scheduled jobs.
    pub fn intersection(&self, other: &Self) -> Self {
        // Grants must be in both; denials from either apply.
        let mut rules: Vec<PolicyRule> = Vec::new();
        let theirs: Vec<PolicyRule> = other.rules_relative_to(&self.file_scope).collect();
        for (mine, yours, others) in [(&self.rules, other, &theirs), (&theirs, self, &self.rules)] {
            let holds = |rule: &&PolicyRule| {
                let same = |other: &PolicyRule| {
                    other.effect == RuleEffect::Allow
                        && other.tool == rule.tool
                        && other.argument == rule.argument
                };
                // A policy that allows the tool without approval grants as much as any allow rule.
                let names_one = !rule.tool.text().contains(['*', '?']);
                let is_always = |tool: &&str| yours.permission(tool) == Permission::Always;
                let is_free = yours.auto_approve
                    || names_one && tools_within(rule.tool.text()).iter().all(is_always);
                rule.effect == RuleEffect::Deny || is_free || others.iter().any(same)
            };
            rules.extend(mine.iter().filter(holds).cloned());
        }
        Self {
            profile: self.profile.clone(),
            file_scope: self.file_scope.intersection(&other.file_scope),
            net: self.net.intersection(&other.net),
            explicit_addresses: self
                .explicit_addresses
                .iter()
                .filter(|typed| other.explicit_addresses.contains(typed))
                .copied()
                .collect(),
            sandbox: self.sandbox.min(other.sandbox),
            tool_filters: [&self.tool_filters[..], &other.tool_filters[..]].concat(),
            permissions: [&self.permissions[..], &other.permissions[..]].concat(),
            rules,
            // If either side would need approval and does not consent, there is no consent.
            auto_approve: self.auto_approve && other.auto_approve,
            reads_only: self.reads_only || other.reads_only,
            command_patterns: CommandPatterns {
                denied: [
                    &self.command_patterns.denied[..],
                    &other.command_patterns.denied[..],
                ]
                .concat(),
                allowed: [
                    &self.command_patterns.allowed[..],
                    &other.command_patterns.allowed[..],
                ]
                .concat(),
            },
        }
    }

    /// The rules, rewritten to apply from the directory of `reach`. Allow rules about paths are anchored to the
    /// directory that they were written for.
    fn rules_relative_to(&self, file_scope: &FileScope) -> impl Iterator<Item = PolicyRule> {
        let ours = &self.file_scope;
        let moves = ours.directory != file_scope.directory;
        let moved = move |rule: &PolicyRule| {
            let is_of_paths = READ_TOOLS
                .iter()
                .chain(WRITE_TOOLS)
                .any(|it| rule.tool.matches(it));
            let Some(argument) = &rule.argument else {
                return Some(rule.clone());
            };
            if !moves || rule.effect == RuleEffect::Deny || !is_of_paths {
                return Some(rule.clone());
            }
            let argument = Some(ours.anchored(argument)?);
            Some(PolicyRule {
                argument,
                ..rule.clone()
            })
        };
        self.rules.iter().filter_map(moved)
    }
}

impl CommandPatterns {
    /// Compiles a regular expression from the config.
    ///
    /// # Errors
    /// A phrase to append to the expression.
    pub fn compile(text: &str) -> Result<Regex, String> {
        // The library's message marks the position over several lines; only the last line is the cause.
        Regex::new(text).map_err(|error| {
            let message = error.to_string();
            let last = message.lines().last().unwrap_or_default();
            let cause = last.trim_start_matches("error: ");
            format!("is not a valid regular expression: {cause}")
        })
    }

    fn check(&self, subjects: &[String]) -> Option<Refusal> {
        let command = subjects.first()?.to_lowercase();
        if let Some(denied) = self.denied.iter().find(|denied| denied.is_match(&command)) {
            return Some(Refusal::new(format!(
                "the command matches `{denied}` of `tools.exec.denyPatterns`"
            )));
        }
        let matches = |list: &Vec<Regex>| list.iter().any(|allowed| allowed.is_match(&command));
        let may = self.allowed.iter().all(matches);
        (!may).then(|| Refusal::new("the command matches none of `tools.exec.allowPatterns`"))
    }
}

#[cfg(test)]
mod tests {
    use super::file_scope::{FileAccess, FileScope, ScopeRoot};
    use super::net::Net;
    use super::profile::Profile;
    use super::rule::{Pattern, PolicyRule, RuleEffect};
    use super::{Permission, Policy, PolicyDecision, Sandbox};
    use serde_json::{Value, json};
    use std::path::Path;

    /// Builds a policy from `words`: `deny RULE`, `allow RULE`, `TOOL=PERMISSION`, `only TOOL`, `consents`, `reads`,
    /// `write PATH`, `read PATH`, `in DIRECTORY`, `home PATH`, `net HOST`, `typed ADDRESS`, `trust DIRECTORY`, `free`,
    /// `net`.
    pub(super) fn policy(words: &[&str]) -> Policy {
        let mut policy = Policy {
            file_scope: FileScope {
                directory: "/d".into(),
                workspace: "/h/w".into(),
                home: "/h".into(),
                roots: vec![
                    ScopeRoot {
                        path: "/d".into(),
                        may_write: false,
                    },
                    ScopeRoot {
                        path: "/h/w".into(),
                        may_write: true,
                    },
                ],
                hidden: vec!["/h/w/sessions".into()],
                instruction_files: vec!["/h/w/AGENTS.md".into()],
                ..FileScope::default()
            },
            ..Policy::default()
        };
        for word in words {
            match word.split_once([' ', '=']) {
                Some(("deny", rule)) => {
                    policy.add(PolicyRule::parse(rule, RuleEffect::Deny, "--deny").unwrap());
                }
                Some(("allow", rule)) => {
                    policy.add(PolicyRule::parse(rule, RuleEffect::Allow, "--allow").unwrap());
                }
                Some(("only", tool)) => {
                    if policy.tool_filters.is_empty() {
                        policy.tool_filters.push(Vec::new());
                    }
                    policy.tool_filters[0].push(Pattern::new(tool));
                }
                Some((way @ ("write" | "read"), path)) => policy.file_scope.roots.push(ScopeRoot {
                    path: path.into(),
                    may_write: way == "write",
                }),
                Some(("in", path)) => {
                    policy.file_scope.directory = path.into();
                    policy.file_scope.roots.push(ScopeRoot {
                        path: path.into(),
                        may_write: false,
                    });
                }
                Some(("home", path)) => policy.file_scope.home = path.into(),
                Some(("net", host)) => policy.net = Net::Hosts(vec![Pattern::new(host)]),
                Some(("typed", address)) => {
                    policy
                        .explicit_addresses
                        .push((address.parse().unwrap(), Some(80)));
                }
                Some(("trust", path)) => policy.file_scope.trusted.push(path.into()),
                Some((tool, permission)) => policy
                    .permissions
                    .push((Pattern::new(tool), Permission::parse(permission).unwrap())),
                None if *word == "consents" => policy.auto_approve = true,
                None if *word == "net" => policy.net = Net::Any,
                None if *word == "free" => {
                    policy.file_scope.is_unrestricted = true;
                    policy.sandbox = Sandbox::Off;
                    policy.file_scope.hidden.clear();
                    policy.file_scope.instruction_files.clear();
                    policy.file_scope.roots.push(ScopeRoot {
                        path: "/".into(),
                        may_write: true,
                    });
                }
                None => policy.reads_only = true,
            }
        }
        policy
    }

    pub(super) fn verdict(policy: &Policy, tool: &str, arguments: &Value) -> &'static str {
        let closed = |path| policy.file_scope.decide(path, FileAccess::Read).is_err();
        match policy.decide(tool, arguments) {
            _ if !policy.is_offered(tool) => "absent",
            _ if tool == "read_file" && arguments["path"].as_str().is_some_and(closed) => "deny",
            PolicyDecision::Allow(_) => "allow",
            PolicyDecision::Ask(_) => "ask",
            PolicyDecision::Deny(_) => "deny",
        }
    }

    #[test]
    fn decisions() {
        let check = |words: &[&str], tool: &str, arguments: Value, expect: &str| {
            assert_eq!(
                verdict(&policy(words), tool, &arguments),
                expect,
                "{words:?} {tool} {arguments}"
            );
        };
        let run = |command: &str| json!({ "command": command });
        let at = |path: &str| json!({ "path": path });
        check(&[], "exec", run("ls"), "allow");
        check(&["exec=ask"], "exec", run("ls"), "ask");
        check(&["exec=ask", "allow exec"], "exec", run("ls"), "allow");
        check(&["exec=ask", "consents"], "exec", run("ls"), "allow");
        check(
            &["exec=never", "allow exec", "consents"],
            "exec",
            run("ls"),
            "absent",
        );
        check(&["exec=always", "exec=ask"], "exec", run("ls"), "ask");
        check(&["deny exec"], "exec", run("ls"), "absent");
        check(&["deny exec(rm *)"], "exec", run("rm -r x"), "deny");
        check(
            &["deny exec(rm *)", "allow exec"],
            "exec",
            run("rm -r x"),
            "deny",
        );
        check(&["deny exec(rm *)"], "exec", run("ls"), "allow");
        check(
            &["mcp_*=ask", "allow mcp_git_*"],
            "mcp_git_log",
            json!({}),
            "allow",
        );
        check(
            &["mcp_*=ask", "allow mcp_git_*"],
            "mcp_web_get",
            json!({}),
            "ask",
        );
        check(
            &["deny web_fetch(*.example.org)"],
            "web_fetch",
            json!({"url": "https://a.example.org/x"}),
            "deny",
        );
        check(
            &["deny web_fetch(*.example.org)"],
            "web_fetch",
            json!({"url": "https://example.com/x"}),
            "allow",
        );
        check(&["deny read_file(.env)"], "read_file", at("a/.env"), "deny");
        check(
            &["deny read_file(sub/*)"],
            "read_file",
            at("sub/deep/x"),
            "deny",
        );
        check(
            &["deny read_file(sub/*)"],
            "read_file",
            at("other"),
            "allow",
        );
        check(&["only read_file"], "exec", run("ls"), "absent");
        let write = |input: &str| json!({ "id": "sh-1", "input": input });
        let read = || json!({ "id": "sh-1" });
        check(&[], "process", write("ls"), "allow");
        check(&["exec=ask"], "process", write("ls"), "ask");
        check(&["exec=ask"], "process", read(), "allow");
        check(&["exec=ask", "allow exec"], "process", write("ls"), "allow");
        check(
            &["exec=ask", "allow process"],
            "process",
            write("ls"),
            "allow",
        );
        check(&["process=ask"], "process", read(), "ask");
        check(&["exec=never"], "process", read(), "absent");
        check(&["deny exec"], "process", read(), "absent");
        check(&["deny process"], "exec", run("ls"), "allow");
        check(&["deny exec(rm *)"], "process", write("rm -r x"), "deny");
        check(&["deny exec(rm *)"], "process", read(), "allow");
        check(&["only exec"], "process", read(), "allow");
        check(&["only process"], "process", read(), "absent");
        check(&["only mcp_*"], "mcp_a", json!({}), "allow");
        check(&["reads"], "write_file", at("x"), "absent");
        check(&["reads"], "read_file", at("x"), "allow");
        let cron = |action: &str| json!({ "action": action, "message": "add", "command": "list" });
        check(&[], "cron", cron("add"), "allow");
        check(&["reads"], "cron", cron("add"), "deny");
        check(&["reads"], "cron", cron("remove"), "deny");
        check(&["reads"], "cron", cron("list"), "allow");
        check(&["deny cron(add)"], "cron", cron("add"), "deny");
        check(&["deny cron(add)"], "cron", cron("list"), "allow");
        check(
            &["cron=ask", "allow cron(list)"],
            "cron",
            cron("list"),
            "allow",
        );
        check(
            &["cron=ask", "allow cron(list)"],
            "cron",
            cron("remove"),
            "ask",
        );
    }

    #[test]
    fn a_patch_needs_the_permission_for_each_of_its_files() {
        let sections = "*** Add File: n/a\n*** Update File: n/b\n-x\n*** Delete File: c\n";
        let patch =
            |body: &str| json!({ "patch": format!("*** Begin Patch\n{body}*** End Patch") });
        let check = |words: &[&str], body: &str, expect: &str| {
            let found = verdict(&policy(words), "apply_patch", &patch(body));
            assert_eq!(found, expect, "{words:?} {body}");
        };
        check(&[], sections, "allow");
        check(&["reads"], sections, "absent");
        check(&["deny apply_patch"], sections, "absent");
        check(&["deny edit_file"], sections, "absent");
        check(&["only *_file"], sections, "absent");
        check(&["deny delete_file"], sections, "deny");
        check(&["delete_file=never"], sections, "deny");
        check(&["delete_file=never"], "*** Add File: a\n", "allow");
        check(&["apply_patch=ask"], sections, "ask");
        check(&["apply_patch=ask"], "not a patch", "ask");
        check(&["apply_patch=ask", "allow apply_patch"], sections, "allow");
        check(
            &["apply_patch=ask", "allow apply_patch(n/*)"],
            sections,
            "ask",
        );
        check(
            &["apply_patch=ask", "allow edit_file"],
            "*** Update File: a\n-x\n",
            "ask",
        );
        check(&["write_file=ask"], sections, "ask");
        check(&["write_file=ask"], "*** Delete File: a\n", "allow");
        check(
            &["write_file=ask"],
            "*** Update File: a\n*** Move to: b\n",
            "ask",
        );
        let rule = &["write_file=ask", "allow write_file(n/*)"][..];
        check(rule, "*** Add File: n/a\n", "allow");
        check(rule, sections, "ask");
        check(&["write_file=ask", "allow apply_patch"], sections, "allow");
        check(&["delete_file=ask", "allow write_file"], sections, "ask");
        check(&["delete_file=ask", "consents"], sections, "allow");
        // A rule of one operand does not lift what the other one asks for.
        let intersection = |ours: &[&str], theirs: &[&str], expect: &str| {
            let both = policy(ours).intersection(&policy(theirs));
            let found = verdict(&both, "apply_patch", &patch(sections));
            assert_eq!(found, expect, "{ours:?} {theirs:?}");
        };
        intersection(&["apply_patch=ask", "allow apply_patch"], &[], "allow");
        intersection(
            &["apply_patch=ask", "allow apply_patch"],
            &["edit_file=ask"],
            "ask",
        );
        intersection(
            &["edit_file=ask", "allow edit_file"],
            &["apply_patch=ask"],
            "ask",
        );
    }

    #[test]
    fn third_party_tools_require_approval() {
        let check = |words: &[&str], expect: &str| {
            let mut policy = policy(words);
            policy.require_approval("mcp_a_set");
            let found = verdict(&policy, "mcp_a_set", &json!({}));
            assert_eq!(found, expect, "{words:?}");
            let restored = Policy::from_snapshot(&policy.snapshot()).unwrap();
            assert_eq!(verdict(&restored, "mcp_a_set", &json!({})), expect);
            // A tool that needs approval in one policy still needs it in the intersection.
            let both = policy.intersection(&super::tests::policy(&["mcp_*=always", "consents"]));
            assert_eq!(verdict(&both, "mcp_a_set", &json!({})), expect);
            assert_eq!(
                verdict(&policy, "mcp_a_get", &json!({})),
                match expect {
                    "absent" if words == ["mcp_*=never"] => "absent",
                    "ask" if words == ["mcp_*=ask"] => "ask",
                    _ => "allow",
                }
            );
        };
        check(&[], "ask");
        check(&["mcp_a_set=always"], "allow");
        check(&["mcp_*=always"], "allow");
        check(&["mcp_*=ask"], "ask");
        check(&["mcp_*=never"], "absent");
        check(&["allow mcp_a_set"], "allow");
        check(&["consents"], "allow");
        check(&["reads"], "absent");
        check(&["reads", "mcp_*=always"], "absent");
        check(&["reads", "consents", "allow mcp_a_*"], "absent");
    }

    #[test]
    fn can_offer_errs_on_the_side_of_true() {
        let check = |words: &[&str], beginning: &str, expect: bool| {
            let found = policy(words).can_offer(beginning);
            assert_eq!(found, expect, "{words:?} {beginning}");
        };
        check(&[], "mcp_", true);
        check(&["mcp_*=never"], "mcp_", false);
        check(&["deny *"], "mcp_", false);
        check(&["deny mcp_*(x)"], "mcp_", true);
        check(&["deny mcp_a_*"], "mcp_", true);
        check(&["deny mcp_a_*"], "mcp_a_", false);
        check(&["deny mcp_a_?*"], "mcp_a_", true);
        check(&["only exec"], "mcp_", false);
        check(&["only mcp_a_get"], "mcp_", true);
        check(&["only mcp_a_get"], "mcp_a_", true);
        check(&["only mcp_a_get"], "mcp_b_", false);
        check(&["only mcp_*"], "mcp_b_", true);
        check(&["only *_get"], "mcp_b_", true);
        check(&["only mcp"], "mcp_", false);
        let both = policy(&["only mcp_*"]).intersection(&policy(&["only exec"]));
        assert!(!both.can_offer("mcp_"));
    }

    #[test]
    fn path_rules_apply_to_all_file_tools() {
        let policy = policy(&[
            "deny grep(*.key)",
            "allow edit_file(notes/*)",
            "deny write_file(notes/old.md)",
        ]);
        let may = |path: &str, access| policy.file_scope.decide(path, access).is_ok();
        assert!(may("a.txt", FileAccess::Read) && !may("a.key", FileAccess::Read));
        assert!(!policy.file_scope.is_visible("/d/x/a.key".as_ref()));
        assert!(may("notes/new.md", FileAccess::Write) && !may("notes/old.md", FileAccess::Write));
        assert!(!may("a.txt", FileAccess::Write));
    }

    #[test]
    fn a_rule_about_a_path_allows_the_tool_that_it_names() {
        let decide = |terms: &[&str], tool: &str, arguments: Value| match policy(terms)
            .decide(tool, &arguments)
        {
            PolicyDecision::Allow(why) => why,
            PolicyDecision::Ask(refusal) => format!("ask: {}", refusal.message),
            PolicyDecision::Deny(refusal) => format!("deny: {}", refusal.message),
        };
        let rule = &["allow write_file(sub/*)"][..];
        let at = |path: &str| json!({ "path": path });
        assert!(decide(rule, "write_file", at("sub/x")).starts_with("rule `write_file(sub/*)`"));
        for tool in ["edit_file", "delete_file"] {
            let found = decide(rule, tool, at("sub/x"));
            assert!(found.starts_with("ask: `/d/sub/x` is read-only"), "{found}");
        }
        let patch = |line: &str| {
            let text = format!("*** Begin Patch\n{line}\n*** End Patch");
            json!({ "patch": text })
        };
        let adds = decide(rule, "apply_patch", patch("*** Add File: sub/x\n+a"));
        assert!(adds.starts_with("rule"), "{adds}");
        let removes = decide(rule, "apply_patch", patch("*** Delete File: sub/x"));
        assert!(removes.starts_with("ask"), "{removes}");
        // A rule for a name is not about the directories around the root, which is `/d`.
        let both = &["allow delete_file(d*)", "allow write_file(sub/*)"][..];
        assert!(decide(both, "write_file", at("sub/x")).starts_with("rule"));
        assert!(decide(both, "delete_file", at("sub/x")).starts_with("ask"));
        let around = policy(&["allow write_file(d*)"]);
        assert!(around.file_scope.decide("x", FileAccess::Write).is_err());
        // A writable root needs no rule. Other places are refused when they are opened.
        let granted = &["allow write_file(sub/*)", "write /d"][..];
        assert_eq!(
            decide(granted, "delete_file", at("sub/x")),
            "permission: always"
        );
        assert_eq!(decide(rule, "delete_file", at("a")), "permission: always");
    }

    /// Every word that the test policies are built from.
    pub(super) const POLICY_TERMS: &[&str] = &[
        "deny exec",
        "deny exec(rm *)",
        "allow exec",
        "exec=ask",
        "exec=never",
        "consents",
        "reads",
        "only exec",
        "only *_file",
        "write /d",
        "write /d/sub",
        "write /e",
        "mcp_*=ask",
        "allow mcp_a",
        "deny write_file(*.md)",
        "allow write_file(*.md)",
        "in /e",
        "in /h/w",
        "home /e",
        "write /h",
        "read /h/.ssh",
        "write /d/.git",
        "write /d/.config",
        "write /h/w/sub",
        "free",
        "allow write_file(sub/*)",
        "deny read_file(sub/*)",
        "write_file=ask",
        "apply_patch=ask",
        "allow apply_patch",
        "only mcp_?",
        "only mcp_*",
        "net",
        "net a.example",
        "net a.example:22",
        "typed 10.0.0.1",
        "trust /d",
        "deny grep(~/sub/*)",
    ];
    pub(super) const PATHS: &[&str] = &[
        "/d/a",
        "/d/a.md",
        "/d/sub/x",
        "/d/sub/.bashrc",
        "/d/.git/config",
        "/d/.config/nvim/init.lua",
        "/d/AGENTS.md",
        "/e/x",
        "/e/sub/x",
        "/e/.ssh/id",
        "/f",
        "/h/.ssh/id",
        "/h/.bashrc",
        "/h/sub/x",
        "/h/w/x",
        "/h/w/AGENTS.md",
        "/h/w/sub/x",
        "/h/w/sessions/x",
    ];

    const SAMPLE_STRIDE: usize = 401;

    /// Evaluates a fixed set of questions against `policy`. Paths are absolute because the policies start in different
    /// directories.
    pub(super) fn evaluate(policy: &Policy) -> Vec<(String, bool)> {
        let mut answers = Vec::new();
        let mut ask = |what: String, is_allowed: bool| answers.push((what, is_allowed));
        let calls = [
            ("exec", json!({"command": "rm x"})),
            ("exec", json!({"command": "ls"})),
            ("process", json!({"id": "sh-1", "input": "rm x"})),
            ("process", json!({"id": "sh-1"})),
            ("mcp_a", json!({})),
            ("mcp_bb", json!({})),
            ("cron", json!({"action": "add"})),
            (
                "apply_patch",
                json!({"patch": "*** Begin Patch\n*** Add File: /d/a.md\n*** Delete File: /e/x\n*** End Patch"}),
            ),
        ];
        for (tool, arguments) in &calls {
            let is_allowed = verdict(policy, tool, arguments) == "allow";
            ask(format!("{tool} {arguments}"), is_allowed);
        }
        for path in PATHS {
            for (tool, access) in [
                ("read_file", FileAccess::Read),
                ("write_file", FileAccess::Write),
            ] {
                let may = policy.file_scope.decide(path, access).is_ok();
                let is_allowed = verdict(policy, tool, &json!({ "path": path })) == "allow";
                ask(format!("{tool} {path}"), may && is_allowed);
            }
            ask(
                format!("show {path}"),
                policy.file_scope.is_visible(path.as_ref()),
            );
            let path: &Path = path.as_ref();
            let mut written = policy.file_scope.command_writable_roots();
            let is_written = written.any(|root| path.starts_with(root));
            ask(format!("command {path:?}"), is_written);
            ask(
                format!("believe {path:?}"),
                policy.file_scope.is_user_instruction(path),
            );
            // Inverted: a file that either policy closes after reading untrusted content is closed in both.
            ask(
                format!("change {path:?}"),
                !policy.file_scope.is_instruction_file(path),
            );
        }
        for secret in ["/h/.ssh", "/e/.ssh"] {
            let is_open = policy.file_scope.is_unrestricted
                || policy.file_scope.grants_secret(secret.as_ref());
            ask(format!("open {secret}"), is_open);
        }
        for port in [22, 443] {
            let grants = policy.net.grants("a.example", Some(port));
            ask(format!("net {port}"), grants);
        }
        ask("port 22".into(), policy.net.grants_port("a.example", 22));
        ask("sockets".into(), policy.net == Net::Any);
        let typed = policy.is_explicit_address("10.0.0.1".parse().unwrap(), 80, &[80]);
        ask("typed".into(), typed);
        ask("uncontained".into(), policy.sandbox == Sandbox::Off);
        ask("changes".into(), !policy.reads_only);
        answers
    }

    /// Policies of one word and of two words.
    pub(super) fn policies() -> Vec<(String, Policy)> {
        let others = |at: usize| POLICY_TERMS[at..].iter();
        let pairs = (0..POLICY_TERMS.len())
            .flat_map(|at| others(at).map(move |other| [POLICY_TERMS[at], *other]));
        let named = |words: [&str; 2]| (words.join(" + "), policy(&words));
        pairs.map(named).collect()
    }

    /// Checks a sample of all pairs. With [`SAMPLE_STRIDE`] at 1 it checks every pair, which takes many minutes.
    #[test]
    fn an_intersection_allows_nothing_that_either_forbids() {
        let all = policies();
        let single: Vec<_> = all.iter().map(|(_, policy)| evaluate(policy)).collect();
        for ours in 0..all.len() {
            for theirs in (ours % SAMPLE_STRIDE..all.len()).step_by(SAMPLE_STRIDE) {
                let both = evaluate(&all[ours].1.intersection(&all[theirs].1));
                for (at, (what, is_allowed)) in both.iter().enumerate() {
                    let either = single[ours][at].1 && single[theirs][at].1;
                    let names = (&all[ours].0, &all[theirs].0);
                    assert!(!is_allowed || either, "{what}: {names:?}");
                }
            }
        }
        let plan = Profile::built_in("plan").unwrap();
        assert!(plan.reads_only);
    }

    #[test]
    fn an_intersection_allows_what_both_allow() {
        let check =
            |ours: &[&str], theirs: &[&str], path: &str, access: FileAccess, expect: bool| {
                let both = policy(ours).intersection(&policy(theirs));
                let found = both.file_scope.decide(path, access);
                assert_eq!(
                    found.is_ok(),
                    expect,
                    "{ours:?} {theirs:?} {path} {found:?}"
                );
            };
        use FileAccess::{Read, Write};
        check(&[], &[], "/d/a", Read, true);
        check(&["write /d"], &["write /d"], "a", Write, true);
        check(&["write /d"], &["write /d/sub"], "sub/x", Write, true);
        check(&["write /d"], &["write /d/sub"], "x", Write, false);
        // Relative rules of the other policy start from its own directory.
        let theirs = ["in /e", "deny read_file(sub/*)"];
        check(&["in /e", "in /d"], &theirs, "/d/sub/x", Read, true);
        check(&["in /e", "in /d"], &theirs, "/e/sub/x", Read, false);
        // A path that is closed within a root of one policy stays closed if a root of the other starts there.
        check(&["read /h"], &["read /h/.ssh"], "/h/.ssh/id", Read, false);
        check(&["free"], &["read /h/.ssh"], "/h/.ssh/id", Read, true);
        check(
            &["read /h/.ssh"],
            &["read /h/.ssh"],
            "/h/.ssh/id",
            Read,
            true,
        );
        let within = |path| check(&["write /d"], &["write /d/.config"], path, Write, false);
        within("/d/.config/nvim/init.lua");
        check(
            &["write /d"],
            &["write /d/.config"],
            "/d/.config/app/x",
            Write,
            true,
        );
    }
}
