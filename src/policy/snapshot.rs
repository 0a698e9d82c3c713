//! Serializes a policy as text for a later run: a scheduled job is bounded by the permissions of its creator for its
//! whole life. Every field is written and none has a default, because a truncated snapshot must not widen the policy. A
//! checksum over all fields detects manual edits. Pure.

use super::net::Net;
use super::reach::{Access, PathRule, Reach, Root};
use super::rule::{Effect, Pattern, Rule};
use super::{Commands, Permission, Policy, Sandbox};
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
        let policy = Written::of(self);
        let mark = policy.mark();
        json!({ "v": VERSION, "policy": policy, "mark": mark })
    }

    /// Restores the policy from a snapshot.
    ///
    /// # Errors
    /// A phrase to append to the snapshot's name: a later version wrote it, or it was changed since.
    pub fn restored(snapshot: &Value) -> Result<Self, String> {
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
            Snapshot::deserialize(snapshot).map_err(|error| format!("{CHANGED}: {error}"))?;
        let policy = whole
            .policy
            .policy()
            .map_err(|error| format!("{CHANGED}: {error}"))?;
        // Compared with our own serialization, which allows the file to be reformatted.
        match Written::of(&policy).mark() == whole.mark {
            true => Ok(policy),
            false => Err(CHANGED.into()),
        }
    }
}

/// A snapshot as it is stored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    #[serde(rename = "v")]
    _version: u64,
    policy: Written,
    #[serde(rename = "mark")]
    mark: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    profile: String,
    reach: Places,
    net: Reached,
    typed: Vec<(IpAddr, Option<u16>)>,
    sandbox: Containment,
    offered: Vec<Vec<String>>,
    permissions: Vec<(String, Word)>,
    rules: Vec<Line>,
    consents: bool,
    reads_only: bool,
    commands: Expressions,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Places {
    directory: Place,
    workspace: Place,
    home: Place,
    roots: Vec<Beneath>,
    hidden: Vec<Place>,
    read_only: Vec<Place>,
    notes: Vec<Place>,
    trusted: Vec<Place>,
    denied: Vec<Closed>,
    is_free: bool,
    allowed: Vec<String>,
    #[serde(rename = "of")]
    of: Vec<Self>,
}

/// A path: text, or bytes if it is not UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Place {
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Beneath {
    path: Place,
    may_write: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Closed {
    access: Way,
    pattern: String,
    rule: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    Read,
    Write,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reached {
    Default,
    Hosts(Vec<String>),
    Any,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Containment {
    Strict,
    Auto,
    Off,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Never,
    Ask,
    Always,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    effect: Does,
    tool: String,
    /// Always written, even if it is `None`.
    #[serde(deserialize_with = "Option::deserialize")]
    argument: Option<String>,
    origin: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Does {
    Allow,
    Deny,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expressions {
    denied: Vec<String>,
    allowed: Vec<Vec<String>>,
}

impl Written {
    fn of(policy: &Policy) -> Self {
        let Policy {
            profile,
            reach,
            net,
            typed,
            sandbox,
            offered,
            permissions,
            rules,
            consents,
            reads_only,
            commands: Commands { denied, allowed },
        } = policy;
        let word = |(tool, permission): &(Pattern, Permission)| {
            let word = match permission {
                Permission::Never => Word::Never,
                Permission::Ask => Word::Ask,
                Permission::Always => Word::Always,
            };
            (tool.text().to_owned(), word)
        };
        let sources = |list: &Vec<Regex>| list.iter().map(|it| it.as_str().to_owned()).collect();
        Self {
            profile: profile.clone(),
            reach: Places::of(reach),
            net: match net {
                Net::Default => Reached::Default,
                Net::Hosts(hosts) => Reached::Hosts(texts(hosts)),
                Net::Any => Reached::Any,
            },
            typed: typed.clone(),
            sandbox: match sandbox {
                Sandbox::Strict => Containment::Strict,
                Sandbox::Auto => Containment::Auto,
                Sandbox::Off => Containment::Off,
            },
            offered: offered.iter().map(|list| texts(list)).collect(),
            permissions: permissions.iter().map(word).collect(),
            rules: rules.iter().map(Line::of).collect(),
            consents: *consents,
            reads_only: *reads_only,
            commands: Expressions {
                denied: sources(denied),
                allowed: allowed.iter().map(sources).collect(),
            },
        }
    }

    fn policy(self) -> Result<Policy, String> {
        let word = |(tool, word): (String, Word)| {
            let permission = match word {
                Word::Never => Permission::Never,
                Word::Ask => Permission::Ask,
                Word::Always => Permission::Always,
            };
            (Pattern::new(tool), permission)
        };
        let expressions = |list: Vec<String>| -> Result<Vec<Regex>, String> {
            let read = |text: String| {
                Commands::expression(&text).map_err(|error| format!("`{text}` {error}"))
            };
            list.into_iter().map(read).collect()
        };
        let allowed = self.commands.allowed.into_iter().map(expressions);
        Ok(Policy {
            profile: self.profile,
            reach: self.reach.reach(),
            net: match self.net {
                Reached::Default => Net::Default,
                Reached::Hosts(hosts) => Net::Hosts(patterns(hosts)),
                Reached::Any => Net::Any,
            },
            typed: self.typed,
            sandbox: match self.sandbox {
                Containment::Strict => Sandbox::Strict,
                Containment::Auto => Sandbox::Auto,
                Containment::Off => Sandbox::Off,
            },
            offered: self.offered.into_iter().map(patterns).collect(),
            permissions: self.permissions.into_iter().map(word).collect(),
            rules: self.rules.into_iter().map(Line::rule).collect(),
            consents: self.consents,
            reads_only: self.reads_only,
            commands: Commands {
                allowed: allowed.collect::<Result<_, _>>()?,
                denied: expressions(self.commands.denied)?,
            },
        })
    }

    /// The checksum. It detects mistakes, not attacks: an attacker who can write the file needs no policy of ours.
    fn mark(&self) -> String {
        let text = serde_json::to_vec(self).expect("it contains only text, numbers and lists");
        let mut hasher = SipHasher13::new();
        hasher.write(&text);
        let hash = hasher.finish128();
        format!("{:016x}{:016x}", hash.h1, hash.h2)
    }
}

impl Places {
    fn of(reach: &Reach) -> Self {
        let Reach {
            directory,
            workspace,
            home,
            roots,
            hidden,
            read_only,
            notes,
            trusted,
            denied,
            is_free,
            allowed,
            of,
        } = reach;
        let places = |list: &[PathBuf]| list.iter().map(|path| Place::of(path)).collect();
        let beneath = |root: &Root| Beneath {
            path: Place::of(&root.path),
            may_write: root.may_write,
        };
        let closed = |rule: &PathRule| Closed {
            access: match rule.access {
                Access::Read => Way::Read,
                Access::Write => Way::Write,
            },
            pattern: rule.pattern.text().to_owned(),
            rule: rule.rule.clone(),
        };
        Self {
            directory: Place::of(directory),
            workspace: Place::of(workspace),
            home: Place::of(home),
            roots: roots.iter().map(beneath).collect(),
            hidden: places(hidden),
            read_only: places(read_only),
            notes: places(notes),
            trusted: places(trusted),
            denied: denied.iter().map(closed).collect(),
            is_free: *is_free,
            allowed: texts(allowed),
            of: of.iter().map(Self::of).collect(),
        }
    }

    fn reach(self) -> Reach {
        let places = |list: Vec<Place>| list.into_iter().map(Place::path).collect();
        let root = |root: Beneath| Root {
            path: root.path.path(),
            may_write: root.may_write,
        };
        let denied = |rule: Closed| PathRule {
            access: match rule.access {
                Way::Read => Access::Read,
                Way::Write => Access::Write,
            },
            pattern: Pattern::new(rule.pattern),
            rule: rule.rule,
        };
        Reach {
            directory: self.directory.path(),
            workspace: self.workspace.path(),
            home: self.home.path(),
            roots: self.roots.into_iter().map(root).collect(),
            hidden: places(self.hidden),
            read_only: places(self.read_only),
            notes: places(self.notes),
            trusted: places(self.trusted),
            denied: self.denied.into_iter().map(denied).collect(),
            is_free: self.is_free,
            allowed: patterns(self.allowed),
            of: self.of.into_iter().map(Self::reach).collect(),
        }
    }
}

impl Place {
    fn of(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }

    fn path(self) -> PathBuf {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => OsStr::from_bytes(&bytes).into(),
        }
    }
}

impl Line {
    fn of(rule: &Rule) -> Self {
        let Rule {
            effect,
            tool,
            argument,
            origin,
        } = rule;
        Self {
            effect: match effect {
                Effect::Allow => Does::Allow,
                Effect::Deny => Does::Deny,
            },
            tool: tool.text().to_owned(),
            argument: argument.as_ref().map(|argument| argument.text().to_owned()),
            origin: origin.clone(),
        }
    }

    fn rule(self) -> Rule {
        Rule {
            effect: match self.effect {
                Does::Allow => Effect::Allow,
                Does::Deny => Effect::Deny,
            },
            tool: Pattern::new(self.tool),
            argument: self.argument.map(Pattern::new),
            origin: self.origin,
        }
    }
}

fn texts(patterns: &[Pattern]) -> Vec<String> {
    patterns.iter().map(|it| it.text().to_owned()).collect()
}

fn patterns(texts: Vec<String>) -> Vec<Pattern> {
    texts.into_iter().map(Pattern::new).collect()
}

#[cfg(test)]
mod tests {
    use super::{VERSION, Written};
    use crate::policy::Policy;
    use crate::policy::tests::{answers, policies, policy};
    use serde::Deserialize;
    use serde_json::{Value, json};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// The snapshot after a round trip through text.
    fn through_text(snapshot: &Value) -> Value {
        serde_json::from_str(&serde_json::to_string_pretty(snapshot).unwrap()).unwrap()
    }

    /// A policy with a value in every field.
    fn full() -> Policy {
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
        full.typed.push(("10.0.0.1".parse().unwrap(), None));
        full.reach.read_only.push("/h/w/cron".into());
        let odd = OsStr::from_bytes(b"/h/\xff");
        full.reach.hidden.push(odd.into());
        let expression = |text| super::Commands::expression(text).unwrap();
        full.commands.denied.push(expression(r"\brm\s"));
        full.commands
            .allowed
            .push(vec![expression("^ls"), expression("^git")]);
        full
    }

    #[test]
    fn a_policy_comes_back_as_it_was() {
        let check = |name: &str, policy: &Policy| {
            let snapshot = through_text(&policy.snapshot());
            let restored = Policy::restored(&snapshot).unwrap();
            assert_eq!(format!("{restored:?}"), format!("{policy:?}"), "{name}");
        };
        for (name, policy) in &policies() {
            check(name, policy);
        }
        let (full, other) = (full(), policy(&["in /e", "free"]));
        check("full", &full);
        check("both", &full.and(&other).and(&other));
        check("nothing", &Policy::default());
    }

    #[test]
    fn a_job_is_bound_by_what_was_kept_as_by_its_creator() {
        let all = policies();
        for (at, (name, creator)) in all.iter().enumerate() {
            let kept = Policy::restored(&creator.snapshot()).unwrap();
            for (now, policy) in all.iter().skip(at % 997).step_by(997) {
                let bound = answers(&policy.and(&kept));
                assert_eq!(bound, answers(&policy.and(creator)), "{now} & {name}");
            }
        }
    }

    /// Calls `change` with each variant of `value` that is altered in one place.
    fn each(value: &Value, change: &mut dyn FnMut(Value)) {
        match value {
            Value::Object(fields) => {
                for (key, inner) in fields {
                    let mut without = fields.clone();
                    without.shift_remove(key);
                    change(Value::Object(without));
                    each(inner, &mut |new| {
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
                    each(inner, &mut |new| {
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
    fn what_was_cut_or_changed_is_refused() {
        let whole = full().and(&full()).snapshot();
        let mut count = 0;
        each(&whole, &mut |changed| {
            count += 1;
            assert!(Policy::restored(&changed).is_err(), "{changed}");
        });
        assert!(count > 300, "{count}");
        for nothing in [
            Value::Null,
            json!({}),
            json!([]),
            json!("x"),
            json!({"v": 1}),
        ] {
            assert!(Policy::restored(&nothing).is_err());
        }
    }

    /// Tested without the checksum too: no field has a default.
    #[test]
    fn every_field_is_needed() {
        let fields = |value: &Value| value.to_string().matches("\":").count();
        let items = |value: &Value| value.to_string().matches(['{', '[']).count();
        let whole = full().snapshot()["policy"].take();
        let mut count = 0;
        each(&whole, &mut |cut| {
            // Exactly one field is missing, and no list item.
            if fields(&cut) + 1 == fields(&whole) && items(&cut) == items(&whole) {
                count += 1;
                assert!(Written::deserialize(&cut).is_err(), "{cut}");
            }
        });
        assert!(count > 20, "{count}");
        for (key, _) in whole.as_object().unwrap() {
            let mut cut = whole.clone();
            cut.as_object_mut().unwrap().shift_remove(key);
            assert!(Written::deserialize(&cut).is_err(), "{key}");
        }
        for (key, _) in whole["reach"].as_object().unwrap() {
            let mut cut = whole.clone();
            cut["reach"].as_object_mut().unwrap().shift_remove(key);
            assert!(Written::deserialize(&cut).is_err(), "{key}");
        }
    }

    #[test]
    fn words() {
        let check = |change: &dyn Fn(&mut Value), expect: &str| {
            let mut snapshot = full().snapshot();
            change(&mut snapshot);
            let message = Policy::restored(&snapshot).unwrap_err();
            assert!(message.contains(expect), "{message}");
        };
        check(&|it| it["v"] = json!(2), "a newer nanobot (version 2");
        check(&|it| it["v"] = json!("1"), "its version is unknown");
        check(
            &|it| it["policy"]["sandbox"] = json!("none"),
            "unknown variant `none`",
        );
        check(
            &|it| it["policy"]["commands"]["denied"] = json!(["("]),
            "is not a valid regular expression",
        );
        check(
            &|it| it["policy"]["consents"] = json!(false),
            "was modified after it was created",
        );
    }

    /// Snapshots outlive releases: a change of the checksum or of a field's name would stop every job that has one.
    #[test]
    fn the_layout_stays_the_same() {
        let found = full().snapshot();
        expect_test::expect_file!["snapshot.v1.json"]
            .assert_eq(&(serde_json::to_string_pretty(&found).unwrap() + "\n"));
    }
}
