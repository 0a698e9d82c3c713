//! Stores a policy as text for a later run: a scheduled job is bounded by the permissions of its creator for its whole
//! life. Every field is written and none has a default, because a truncated snapshot must not widen the policy. A checksum over all fields
//! detects manual edits. No I/O.

use super::Policy;
use serde::Deserialize;
use serde_json::{Value, json};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// The version of the layout, which [`Policy`] and the types of its fields declare.
const VERSION: u64 = 1;

/// A snapshot as it is stored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicySnapshot {
    #[serde(rename = "v")]
    _version: u64,
    policy: Policy,
    #[serde(rename = "mark")]
    checksum: String,
}

impl Policy {
    /// Serializes the whole policy, with its version and checksum.
    pub fn snapshot(&self) -> Value {
        json!({ "v": VERSION, "policy": self, "mark": self.checksum() })
    }

    /// Changes the fields of a snapshot, such as its paths, and returns it with its new checksum.
    ///
    /// # Errors
    /// The errors of [`Policy::from_snapshot`], of the snapshot before and after the change.
    pub fn edit_snapshot(
        snapshot: &Value,
        edit: &mut dyn FnMut(&mut Value),
    ) -> Result<Value, String> {
        Self::from_snapshot(snapshot)?;
        let mut edited = snapshot.clone();
        edit(&mut edited["policy"]);
        let edited =
            PolicySnapshot::deserialize(&edited).map_err(|error| format!("is invalid: {error}"))?;
        Ok(edited.policy.snapshot())
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
        let PolicySnapshot { policy, checksum, .. } =
            PolicySnapshot::deserialize(snapshot).map_err(|error| format!("{CHANGED}: {error}"))?;
        // Compared with our own serialization, which allows the file to be reformatted.
        if policy.checksum() == checksum { Ok(policy) } else { Err(CHANGED.into()) }
    }

    /// The checksum. It detects mistakes, not attacks: an attacker who can write the file is not bound by the policy anyway.
    fn checksum(&self) -> String {
        let text = serde_json::to_vec(self).expect("it contains only text, numbers and lists");
        let mut hasher = SipHasher13::new();
        hasher.write(&text);
        let hash = hasher.finish128();
        format!("{:016x}{:016x}", hash.h1, hash.h2)
    }
}

#[cfg(test)]
mod tests {
    use super::VERSION;
    use crate::policy::test_policies::{evaluate, policies, policy};
    use crate::policy::{CommandPattern, Policy};
    use nanobot_os::repository::Repository;
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
        let expression = |text| CommandPattern::compile(text).unwrap();
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
        let restored = Policy::from_snapshot(&through_text(&named.snapshot())).unwrap();
        assert_eq!(restored.net, named.net);
        let before = policy(&["net a.example"]);
        assert_eq!(before.snapshot()["policy"]["net"], json!({ "hosts": ["a.example"] }));
        let restored = Policy::from_snapshot(&through_text(&before.snapshot())).unwrap();
        assert!(restored.net.command_hosts().is_empty());
        assert!(named.intersection(&restored).net.command_hosts().is_empty());
    }

    #[test]
    fn a_restored_policy_bounds_a_job_like_the_original() {
        let all = policies();
        let stride = nanobot_base::fuzz::by_depth(2999, 997);
        for (at, (name, creator)) in all.iter().enumerate() {
            let restored = Policy::from_snapshot(&creator.snapshot()).unwrap();
            for (now, policy) in all.iter().skip(at % stride).step_by(stride) {
                let bound = evaluate(&policy.intersection(&restored));
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
                assert!(Policy::deserialize(&cut).is_err(), "{cut}");
            }
        });
        assert!(count > 20, "{count}");
        for (key, _) in whole.as_object().unwrap() {
            let mut cut = whole.clone();
            cut.as_object_mut().unwrap().shift_remove(key);
            assert!(Policy::deserialize(&cut).is_err(), "{key}");
        }
        for (key, _) in whole["reach"].as_object().unwrap() {
            let mut cut = whole.clone();
            cut["reach"].as_object_mut().unwrap().shift_remove(key);
            assert!(Policy::deserialize(&cut).is_err(), "{key}");
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
        check(&|snapshot| snapshot["v"] = json!(2), "a newer nanobot (version 2");
        check(&|snapshot| snapshot["v"] = json!("1"), "its version is unknown");
        check(&|snapshot| snapshot["policy"]["sandbox"] = json!("none"), "unknown variant `none`");
        check(
            &|snapshot| snapshot["policy"]["commands"]["denied"] = json!(["("]),
            "is not a valid regular expression",
        );
        check(
            &|snapshot| snapshot["policy"]["consents"] = json!(false),
            "was modified after it was created",
        );
    }

    /// Snapshots outlive releases: a change of the checksum or of a field's name would stop every job that has one.
    #[test]
    fn the_layout_stays_the_same() {
        let mut full = full_policy();
        full.net = policy(&["commands a.example:22"]).net;
        full.file_scope.repository = Some(Repository {
            top: "/d".into(),
            git_dirs: vec!["/d/.git".into()],
            objects: vec!["/o".into()],
            unpinned: Vec::new(),
        });
        let actual = full.snapshot();
        expect_test::expect_file!["snapshot.v1.json"]
            .assert_eq(&(serde_json::to_string_pretty(&actual).unwrap() + "\n"));
    }
}
