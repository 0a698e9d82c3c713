//! Serializes a policy as text for a later run: a scheduled job is bounded by the permissions of its creator for its
//! whole life. Every field is written and none has a default, because a truncated snapshot must not widen the policy. A
//! checksum over all fields detects manual edits. Pure.

use super::file_scope::{FileAccess, FileScope, PathRule, ScopeRoot};
use super::net::Net;
use super::rule::{Pattern, PolicyRule, RuleEffect};
use super::{CommandPatterns, Permission, Policy, Sandbox};
use crate::sys::repository::Repository;
use core::net::IpAddr;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::ffi::OsStr;
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The version of this layout.
const VERSION: u64 = 1;

impl Policy {
    /// Serializes the whole policy, with its version and checksum.
    pub fn snapshot(&self) -> Value {
        let policy = PolicyRecord::from_policy(self);
        let mark = policy.checksum();
        json!({ "v": VERSION, "policy": policy, "mark": mark })
    }

    /// Changes the fields of a snapshot, such as its paths, and returns it with its new checksum.
    ///
    /// # Errors
    /// As [`Policy::from_snapshot`], of the snapshot before and after the change.
    pub fn edit_snapshot(
        snapshot: &Value,
        edit: &mut dyn FnMut(&mut Value),
    ) -> Result<Value, String> {
        Self::from_snapshot(snapshot)?;
        let mut edited = snapshot.clone();
        edit(&mut edited["policy"]);
        let edited =
            PolicySnapshot::deserialize(&edited).map_err(|error| format!("is invalid: {error}"))?;
        let policy = edited.policy.into_policy();
        let policy = policy.map_err(|error| format!("is invalid: {error}"))?;
        Ok(policy.snapshot())
    }

    /// Restores the policy from a snapshot.
    ///
    /// # Errors
    /// A phrase to append to the snapshot's name: a later version wrote it, or it was changed since.
    pub fn from_snapshot(snapshot: &Value) -> Result<Self, String> {
        const CHANGED: &str = "was modified after it was created";
        match snapshot["v"].as_u64() {
            Some(VERSION) => {}
            Some(version) if version > VERSION => {
                return Err(format!(
                    "was written by a newer nanobot (version {version}; this one supports {VERSION})"
                ));
            }
            _ => {
                return Err(format!("{CHANGED}: its version is unknown"));
            }
        }
        let whole =
            PolicySnapshot::deserialize(snapshot).map_err(|error| format!("{CHANGED}: {error}"))?;
        let policy = whole.policy.into_policy().map_err(|error| format!("{CHANGED}: {error}"))?;
        // Compared with our own serialization, which allows the file to be reformatted.
        if PolicyRecord::from_policy(&policy).checksum() == whole.checksum {
            Ok(policy)
        } else {
            Err(CHANGED.into())
        }
    }
}

/// A snapshot as it is stored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicySnapshot {
    #[serde(rename = "v")]
    _version: u64,
    policy: PolicyRecord,
    #[serde(rename = "mark")]
    checksum: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PolicyRecord {
    profile: String,
    reach: FileScopeRecord,
    net: NetRecord,
    typed: Vec<(IpAddr, Option<u16>)>,
    sandbox: SandboxRecord,
    offered: Vec<Vec<String>>,
    permissions: Vec<(String, PermissionRecord)>,
    rules: Vec<RuleRecord>,
    consents: bool,
    reads_only: bool,
    commands: CommandPatternsRecord,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FileScopeRecord {
    directory: PathRecord,
    workspace: PathRecord,
    home: PathRecord,
    roots: Vec<RootRecord>,
    /// Without it, git changes nothing outside of the roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repository: Option<RepositoryRecord>,
    hidden: Vec<PathRecord>,
    read_only: Vec<PathRecord>,
    notes: Vec<PathRecord>,
    trusted: Vec<PathRecord>,
    denied: Vec<PathRuleRecord>,
    is_free: bool,
    allowed: Vec<String>,
    #[serde(rename = "of")]
    operands: Vec<Self>,
}

/// A path: text, or bytes if it is not UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PathRecord {
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RootRecord {
    path: PathRecord,
    may_write: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RepositoryRecord {
    top: PathRecord,
    git_dirs: Vec<PathRecord>,
    objects: Vec<PathRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PathRuleRecord {
    access: AccessRecord,
    pattern: String,
    rule: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AccessRecord {
    Read,
    Write,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NetRecord {
    Default,
    /// These hosts, and none of them for commands.
    Hosts(Vec<String>),
    /// These hosts, and those of them that commands may reach too.
    Named {
        hosts: Vec<String>,
        commands: Vec<String>,
    },
    Any,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SandboxRecord {
    Strict,
    Auto,
    Off,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PermissionRecord {
    Never,
    Ask,
    Always,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleRecord {
    effect: RuleEffectRecord,
    tool: String,
    /// Always written, even if it is `None`.
    #[serde(deserialize_with = "Option::deserialize")]
    argument: Option<String>,
    origin: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RuleEffectRecord {
    Allow,
    Deny,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandPatternsRecord {
    denied: Vec<String>,
    allowed: Vec<Vec<String>>,
}

impl PolicyRecord {
    fn from_policy(policy: &Policy) -> Self {
        let Policy {
            profile,
            file_scope: reach,
            net,
            command_hosts,
            explicit_addresses: typed,
            sandbox,
            tool_filters: offered,
            permissions,
            rules,
            auto_approve: consents,
            reads_only,
            command_patterns: CommandPatterns { denied, allowed },
        } = policy;
        let word = |(tool, permission): &(Pattern, Permission)| {
            let word = match permission {
                Permission::Never => PermissionRecord::Never,
                Permission::Ask => PermissionRecord::Ask,
                Permission::Always => PermissionRecord::Always,
            };
            (tool.text().to_owned(), word)
        };
        let sources = |list: &Vec<Regex>| list.iter().map(|it| it.as_str().to_owned()).collect();
        Self {
            profile: profile.clone(),
            reach: FileScopeRecord::from_scope(reach),
            net: match net {
                Net::Default => NetRecord::Default,
                Net::Hosts(hosts) if !command_hosts.is_empty() => NetRecord::Named {
                    hosts: pattern_texts(hosts),
                    commands: pattern_texts(command_hosts),
                },
                Net::Hosts(hosts) => NetRecord::Hosts(pattern_texts(hosts)),
                Net::Any => NetRecord::Any,
            },
            typed: typed.clone(),
            sandbox: match sandbox {
                Sandbox::Strict => SandboxRecord::Strict,
                Sandbox::Auto => SandboxRecord::Auto,
                Sandbox::Off => SandboxRecord::Off,
            },
            offered: offered.iter().map(|list| pattern_texts(list)).collect(),
            permissions: permissions.iter().map(word).collect(),
            rules: rules.iter().map(RuleRecord::from_rule).collect(),
            consents: *consents,
            reads_only: *reads_only,
            commands: CommandPatternsRecord {
                denied: sources(denied),
                allowed: allowed.iter().map(sources).collect(),
            },
        }
    }

    fn into_policy(self) -> Result<Policy, String> {
        let word = |(tool, word): (String, PermissionRecord)| {
            let permission = match word {
                PermissionRecord::Never => Permission::Never,
                PermissionRecord::Ask => Permission::Ask,
                PermissionRecord::Always => Permission::Always,
            };
            (Pattern::new(tool), permission)
        };
        let expressions = |list: Vec<String>| -> Result<Vec<Regex>, String> {
            let read = |text: String| {
                CommandPatterns::compile(&text).map_err(|error| format!("`{text}` {error}"))
            };
            list.into_iter().map(read).collect()
        };
        let allowed = self.commands.allowed.into_iter().map(expressions);
        let (net, command_hosts) = match self.net {
            NetRecord::Default => (Net::Default, Vec::new()),
            NetRecord::Hosts(hosts) => (Net::Hosts(parse_patterns(hosts)), Vec::new()),
            NetRecord::Named { hosts, commands } => {
                (Net::Hosts(parse_patterns(hosts)), parse_patterns(commands))
            }
            NetRecord::Any => (Net::Any, Vec::new()),
        };
        Ok(Policy {
            profile: self.profile,
            file_scope: self.reach.into_scope(),
            net,
            command_hosts,
            explicit_addresses: self.typed,
            sandbox: match self.sandbox {
                SandboxRecord::Strict => Sandbox::Strict,
                SandboxRecord::Auto => Sandbox::Auto,
                SandboxRecord::Off => Sandbox::Off,
            },
            tool_filters: self.offered.into_iter().map(parse_patterns).collect(),
            permissions: self.permissions.into_iter().map(word).collect(),
            rules: self.rules.into_iter().map(RuleRecord::into_rule).collect(),
            auto_approve: self.consents,
            reads_only: self.reads_only,
            command_patterns: CommandPatterns {
                allowed: allowed.collect::<Result<_, _>>()?,
                denied: expressions(self.commands.denied)?,
            },
        })
    }

    /// The checksum. It detects mistakes, not attacks: an attacker who can write the file needs no policy of ours.
    fn checksum(&self) -> String {
        let text = serde_json::to_vec(self).expect("it contains only text, numbers and lists");
        let mut hasher = SipHasher13::new();
        hasher.write(&text);
        let hash = hasher.finish128();
        format!("{:016x}{:016x}", hash.h1, hash.h2)
    }
}

impl FileScopeRecord {
    fn from_scope(file_scope: &FileScope) -> Self {
        let FileScope {
            directory,
            workspace,
            home,
            roots,
            repository,
            hidden,
            read_only,
            instruction_files: notes,
            trusted,
            denied,
            is_unrestricted: is_free,
            allowed,
            operands: of,
        } = file_scope;
        let places =
            |list: &[PathBuf]| list.iter().map(|path| PathRecord::from_path(path)).collect();
        let beneath = |root: &ScopeRoot| RootRecord {
            path: PathRecord::from_path(&root.path),
            may_write: root.may_write,
        };
        let closed = |rule: &PathRule| PathRuleRecord {
            access: match rule.access {
                FileAccess::Read => AccessRecord::Read,
                FileAccess::Write => AccessRecord::Write,
            },
            pattern: rule.pattern.text().to_owned(),
            rule: rule.rule.clone(),
        };
        Self {
            directory: PathRecord::from_path(directory),
            workspace: PathRecord::from_path(workspace),
            home: PathRecord::from_path(home),
            roots: roots.iter().map(beneath).collect(),
            repository: repository.as_ref().map(|repository| RepositoryRecord {
                top: PathRecord::from_path(&repository.top),
                git_dirs: places(&repository.git_dirs),
                objects: places(&repository.objects),
            }),
            hidden: places(hidden),
            read_only: places(read_only),
            notes: places(notes),
            trusted: places(trusted),
            denied: denied.iter().map(closed).collect(),
            is_free: *is_free,
            allowed: pattern_texts(allowed),
            operands: of.iter().map(Self::from_scope).collect(),
        }
    }

    fn into_scope(self) -> FileScope {
        let places = |list: Vec<PathRecord>| -> Vec<PathBuf> {
            list.into_iter().map(PathRecord::into_path).collect()
        };
        let root =
            |root: RootRecord| ScopeRoot { path: root.path.into_path(), may_write: root.may_write };
        let denied = |rule: PathRuleRecord| PathRule {
            access: match rule.access {
                AccessRecord::Read => FileAccess::Read,
                AccessRecord::Write => FileAccess::Write,
            },
            pattern: Pattern::new(rule.pattern),
            rule: rule.rule,
        };
        FileScope {
            directory: self.directory.into_path(),
            workspace: self.workspace.into_path(),
            home: self.home.into_path(),
            roots: self.roots.into_iter().map(root).collect(),
            repository: self.repository.map(|repository| Repository {
                top: repository.top.into_path(),
                git_dirs: places(repository.git_dirs),
                objects: places(repository.objects),
                unpinned: Vec::new(),
            }),
            hidden: places(self.hidden).into(),
            read_only: places(self.read_only).into(),
            instruction_files: places(self.notes),
            trusted: places(self.trusted),
            denied: self.denied.into_iter().map(denied).collect(),
            is_unrestricted: self.is_free,
            allowed: parse_patterns(self.allowed),
            operands: self.operands.into_iter().map(Self::into_scope).collect(),
        }
    }
}

impl PathRecord {
    fn from_path(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }

    fn into_path(self) -> PathBuf {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => OsStr::from_bytes(&bytes).into(),
        }
    }
}

impl RuleRecord {
    fn from_rule(rule: &PolicyRule) -> Self {
        let PolicyRule { effect, tool, argument, origin } = rule;
        Self {
            effect: match effect {
                RuleEffect::Allow => RuleEffectRecord::Allow,
                RuleEffect::Deny => RuleEffectRecord::Deny,
            },
            tool: tool.text().to_owned(),
            argument: argument.as_ref().map(|argument| argument.text().to_owned()),
            origin: origin.clone(),
        }
    }

    fn into_rule(self) -> PolicyRule {
        PolicyRule {
            effect: match self.effect {
                RuleEffectRecord::Allow => RuleEffect::Allow,
                RuleEffectRecord::Deny => RuleEffect::Deny,
            },
            tool: Pattern::new(self.tool),
            argument: self.argument.map(Pattern::new),
            origin: self.origin,
        }
    }
}

fn pattern_texts(patterns: &[Pattern]) -> Vec<String> {
    patterns.iter().map(|it| it.text().to_owned()).collect()
}

fn parse_patterns(texts: Vec<String>) -> Vec<Pattern> {
    texts.into_iter().map(Pattern::new).collect()
}

#[cfg(test)]
mod tests {
    use super::{PolicyRecord, VERSION};
    use crate::policy::Policy;
    use crate::policy::test_policies::{evaluate, policies, policy};
    use serde::Deserialize;
    use serde_json::{Value, json};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    /// The snapshot after a round trip through text.
    fn through_text(snapshot: &Value) -> Value {
        serde_json::from_str(&serde_json::to_string_pretty(snapshot).unwrap()).unwrap()
    }

    /// A policy with a value in every field.
    fn full_policy() -> Policy {
        let mut full = policy(&[
            "deny write_file(*.md)",
            "allow write_file(sub/*)",
            "deny exec",
            "exec=ask",
            "mcp_*=never",
            "only mcp_?",
            "net a.example:22",
            "typed ::1",
            "trust /d",
            "consents",
        ]);
        full.profile = "mine".into();
        full.explicit_addresses.push(("10.0.0.1".parse().unwrap(), None));
        let added = |paths: &[PathBuf], path: &OsStr| [paths, &[path.into()]].concat().into();
        let scope = &mut full.file_scope;
        scope.read_only = added(&scope.read_only, OsStr::new("/h/w/cron"));
        let odd = OsStr::from_bytes(b"/h/\xff");
        scope.hidden = added(&scope.hidden, odd);
        let expression = |text| super::CommandPatterns::compile(text).unwrap();
        full.command_patterns.denied.push(expression(r"\brm\s"));
        full.command_patterns.allowed.push(vec![expression("^ls"), expression("^git")]);
        full
    }

    #[test]
    fn a_policy_survives_a_round_trip() {
        let check = |name: &str, policy: &Policy| {
            let snapshot = through_text(&policy.snapshot());
            let restored = Policy::from_snapshot(&snapshot).unwrap();
            assert_eq!(format!("{restored:?}"), format!("{policy:?}"), "{name}");
        };
        for (name, policy) in &policies() {
            check(name, policy);
        }
        let (full, other) = (full_policy(), policy(&["in /e", "free"]));
        check("full", &full);
        check("both", &full.intersection(&other).intersection(&other));
        check("nothing", &Policy::default());
    }

    /// The hosts of a snapshot that names none for commands were for the web tools alone when it was stored.
    #[test]
    fn only_hosts_that_were_stored_for_commands_are_for_commands() {
        let named = policy(&["commands a.example"]);
        let kept = Policy::from_snapshot(&through_text(&named.snapshot())).unwrap();
        assert_eq!(kept.command_hosts, named.command_hosts);
        let before = policy(&["net a.example"]);
        let kept = Policy::from_snapshot(&through_text(&before.snapshot())).unwrap();
        assert!(kept.command_hosts.is_empty());
        assert!(named.intersection(&kept).command_hosts.is_empty());
    }

    #[test]
    fn a_restored_policy_bounds_a_job_like_the_original() {
        let all = policies();
        for (at, (name, creator)) in all.iter().enumerate() {
            let kept = Policy::from_snapshot(&creator.snapshot()).unwrap();
            for (now, policy) in all.iter().skip(at % 997).step_by(997) {
                let bound = evaluate(&policy.intersection(&kept));
                assert_eq!(bound, evaluate(&policy.intersection(creator)), "{now} & {name}");
            }
        }
    }

    /// Calls `change` with each variant of `value` that is altered in one place.
    fn for_each_change(value: &Value, change: &mut dyn FnMut(Value)) {
        match value {
            Value::Object(fields) => {
                for (key, inner) in fields {
                    let mut without = fields.clone();
                    without.shift_remove(key);
                    change(Value::Object(without));
                    for_each_change(inner, &mut |new| {
                        let mut fields = fields.clone();
                        fields[key] = new;
                        change(Value::Object(fields));
                    });
                }
                let mut with = fields.clone();
                with.insert("more".into(), json!([]));
                change(Value::Object(with));
            }
            Value::Array(items) => {
                for (at, inner) in items.iter().enumerate() {
                    let mut without = items.clone();
                    without.remove(at);
                    change(Value::Array(without));
                    for_each_change(inner, &mut |new| {
                        let mut items = items.clone();
                        items[at] = new;
                        change(Value::Array(items));
                    });
                }
            }
            Value::Bool(is) => change(json!(!is)),
            Value::String(text) => {
                change(json!(format!("{text}x")));
                change(json!("*"));
                change(Value::Null);
            }
            Value::Null => change(json!("x")),
            Value::Number(_) => {
                change(json!(-1));
                change(json!(VERSION + 1));
            }
        }
    }

    #[test]
    fn truncated_or_changed_snapshots_are_rejected() {
        let whole = full_policy().intersection(&full_policy()).snapshot();
        let mut count = 0;
        for_each_change(&whole, &mut |changed| {
            count += 1;
            assert!(Policy::from_snapshot(&changed).is_err(), "{changed}");
        });
        assert!(count > 300, "{count}");
        for nothing in [Value::Null, json!({}), json!([]), json!("x"), json!({"v": 1})] {
            assert!(Policy::from_snapshot(&nothing).is_err());
        }
    }

    /// Tested without the checksum too: no field has a default.
    #[test]
    fn every_field_is_needed() {
        let fields = |value: &Value| value.to_string().matches("\":").count();
        let items = |value: &Value| value.to_string().matches(['{', '[']).count();
        let whole = full_policy().snapshot()["policy"].take();
        let mut count = 0;
        for_each_change(&whole, &mut |cut| {
            // Exactly one field is missing, and no list item.
            if fields(&cut) + 1 == fields(&whole) && items(&cut) == items(&whole) {
                count += 1;
                assert!(PolicyRecord::deserialize(&cut).is_err(), "{cut}");
            }
        });
        assert!(count > 20, "{count}");
        for (key, _) in whole.as_object().unwrap() {
            let mut cut = whole.clone();
            cut.as_object_mut().unwrap().shift_remove(key);
            assert!(PolicyRecord::deserialize(&cut).is_err(), "{key}");
        }
        for (key, _) in whole["reach"].as_object().unwrap() {
            let mut cut = whole.clone();
            cut["reach"].as_object_mut().unwrap().shift_remove(key);
            assert!(PolicyRecord::deserialize(&cut).is_err(), "{key}");
        }
    }

    #[test]
    fn error_messages() {
        let check = |change: &dyn Fn(&mut Value), expect: &str| {
            let mut snapshot = full_policy().snapshot();
            change(&mut snapshot);
            let message = Policy::from_snapshot(&snapshot).unwrap_err();
            assert!(message.contains(expect), "{message}");
        };
        check(&|it| it["v"] = json!(2), "a newer nanobot (version 2");
        check(&|it| it["v"] = json!("1"), "its version is unknown");
        check(&|it| it["policy"]["sandbox"] = json!("none"), "unknown variant `none`");
        check(
            &|it| it["policy"]["commands"]["denied"] = json!(["("]),
            "is not a valid regular expression",
        );
        check(&|it| it["policy"]["consents"] = json!(false), "was modified after it was created");
    }

    /// Snapshots outlive releases: a change of the checksum or of a field's name would stop every job that has one.
    #[test]
    fn the_layout_stays_the_same() {
        let found = full_policy().snapshot();
        expect_test::expect_file!["snapshot.v1.json"]
            .assert_eq(&(serde_json::to_string_pretty(&found).unwrap() + "\n"));
    }
}
