//! Permissions: one value, [`Policy`], decides for every tool. It is built from flags, config and profile at the
//! start of a run; a sub-agent gets the intersection of its own and its parent's. Decisions here are by name only: the
//! tools enforce them by opening through descriptors, and the sandbox in the kernel.

use core::net::IpAddr;
use file_scope::{FileAccess, FileScope, PathRule};
use net::Net;
use provenance::{ChangeGrants, Grant, GuardedChange};
use rule::{Pattern, PolicyRule, RuleEffect};
use serde::{Deserialize, Serialize};
use tool_names::{CRON, READ_TOOLS, SESSIONS, SIGNING, WRITE_TOOLS};

pub use command_patterns::{CommandPattern, CommandPatterns};
pub use refusal::Refusal;
pub use rule::Permission;

pub mod call_files;
mod command_patterns;
mod decision;
pub mod description;
pub mod file_scope;
mod intersection;
pub mod net;
mod offered_tools;
pub mod path_glob;
mod path_pattern;
pub mod profile;
pub mod provenance;
pub mod refusal;
pub mod rule;
pub mod secrets;
pub mod snapshot;
pub mod startup_files;
#[cfg(test)]
mod test_policies;
pub mod tool_names;

/// The containment of commands, from strictest to weakest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
///
/// The serialized names and the order of the fields, here and in the types of the fields, are those of stored policies, and
/// none has a default: see [`snapshot`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Policy {
    /// The name of the profile it was built from.
    pub profile: String,
    #[serde(rename = "reach")]
    pub file_scope: FileScope,
    pub net: Net,
    /// Addresses that the user typed. They may be reached even if they are not public; without a port, at the web
    /// ports.
    #[serde(rename = "typed")]
    pub explicit_addresses: Vec<(IpAddr, Option<u16>)>,
    pub sandbox: Sandbox,
    /// Allow lists of tools. A tool is offered only if it matches an entry of every list.
    #[serde(rename = "offered")]
    pub tool_filters: Vec<Vec<Pattern>>,
    /// Permissions by tool. The strictest matching entry applies; [`Policy::permission`] has those without a match.
    pub permissions: Vec<(Pattern, Permission)>,
    pub rules: Vec<PolicyRule>,
    /// Answers every approval request with yes.
    #[serde(rename = "consents")]
    pub auto_approve: bool,
    /// Forbids all changes, whatever was granted.
    pub reads_only: bool,
    /// Command patterns from the Python program's config. They catch mistakes and are not a security boundary.
    #[serde(rename = "commands")]
    pub command_patterns: CommandPatterns,
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

impl Policy {
    /// Adds `rule`. A rule about paths is added to the file scope too, which also checks the targets of links.
    pub fn add(&mut self, rule: PolicyRule) {
        let Some(argument) = &rule.argument else {
            return self.rules.push(rule);
        };
        let argument = path_pattern::normalize(argument.text())
            .map_or_else(|_| argument.clone(), Pattern::new);
        for (tools, access) in [(READ_TOOLS, FileAccess::Read), (WRITE_TOOLS, FileAccess::Write)] {
            if !tools.iter().any(|tool| rule.tool.matches(tool)) {
                continue;
            }
            match rule.effect {
                RuleEffect::Deny => self.file_scope.denied.push(PathRule {
                    access,
                    pattern: argument.clone(),
                    rule: rule.to_string(),
                }),
                RuleEffect::Allow if access == FileAccess::Write => {
                    self.file_scope.allowed.push(argument.clone());
                }
                // Read access depends on the roots alone, so an allow rule adds nothing.
                RuleEffect::Allow => {}
            }
        }
        self.rules.push(rule);
    }

    /// Marks a third-party `tool` as one that may change anything: it requires approval unless a permission is set for
    /// it, and it is withheld from a read-only policy. The mark applies to this policy only; an intersection inherits
    /// it from either operand.
    pub fn require_approval(&mut self, tool: &str) {
        let is_set = |(name, _): &(Pattern, Permission)| name.matches(tool);
        let permission = if self.reads_only {
            Permission::Never
        } else if self.permissions.iter().any(is_set) {
            return;
        } else {
            Permission::Ask
        };
        self.permissions.push((Pattern::new(tool), permission));
    }

    fn read_only_refusal(&self, tool: &str) -> Refusal {
        Refusal {
            message: format!(
                "`{tool}` changes {}, and the profile `{}` is read-only",
                if tool == CRON { "jobs" } else { "files" },
                self.profile
            ),
            suggested_flag: Some("--profile default".into()),
            names_flag: false,
        }
    }

    /// True if a rule with this effect names `word`, which no glob matches, and has no argument.
    fn has_rule(&self, word: &str, effect: RuleEffect) -> bool {
        self.rules.iter().any(|rule| {
            rule.effect == effect && rule.argument.is_none() && rule.tool.text() == word
        })
    }

    /// The user's decision about a change that takes effect in later runs.
    pub(crate) fn grant_for(&self, change: GuardedChange) -> Grant {
        let allows_all = self.auto_approve || self.file_scope.is_unrestricted;
        if self.has_rule(change.word(), RuleEffect::Deny) {
            Grant::Denied
        } else if allows_all || self.has_rule(change.word(), RuleEffect::Allow) {
            Grant::Allowed
        } else if self.reads_only && change == GuardedChange::Messages {
            // The other changes have tools that the profile denies.
            Grant::ReadOnly
        } else {
            Grant::Unset
        }
    }

    /// True if git in commands may sign with the user's key. Only a rule of that name allows it: no profile that approves, no
    /// glob, and no missing sandbox does.
    pub fn allows_signing(&self) -> bool {
        self.has_rule(SIGNING, RuleEffect::Allow) && !self.has_rule(SIGNING, RuleEffect::Deny)
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

    /// The strictest permission set for `tool`. Without one, only other conversations need approval: what was said there
    /// was not said to this one.
    pub fn permission(&self, tool: &str) -> Permission {
        let matching = self.permissions.iter().filter(|(name, _)| name.matches(tool));
        let default = if tool == SESSIONS { Permission::Ask } else { Permission::Always };
        matching.map(|(_, permission)| *permission).min().unwrap_or(default)
    }

    /// True if the user typed exactly this address. An address typed without a port covers the `default_ports`.
    pub fn is_explicit_address(&self, address: IpAddr, port: u16, default_ports: &[u16]) -> bool {
        self.explicit_addresses.iter().any(|(typed_address, typed_port)| {
            let is_port = typed_port.map_or(default_ports.contains(&port), |typed| typed == port);
            *typed_address == address && is_port
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Policy;
    use super::test_policies::{policy, verdict};
    use serde_json::json;

    #[test]
    fn third_party_tools_require_approval() {
        let check = |clauses: &[&str], expect: &str| {
            let mut policy = policy(clauses);
            policy.require_approval("mcp_a_set");
            let actual = verdict(&policy, "mcp_a_set", &json!({}));
            assert_eq!(actual, expect, "{clauses:?}");
            let restored = Policy::from_snapshot(&policy.snapshot()).unwrap();
            assert_eq!(verdict(&restored, "mcp_a_set", &json!({})), expect);
            // A tool that needs approval in one policy still needs it in the intersection.
            let both =
                policy.intersection(&super::test_policies::policy(&["mcp_*=always", "consents"]));
            assert_eq!(verdict(&both, "mcp_a_set", &json!({})), expect);
            assert_eq!(
                verdict(&policy, "mcp_a_get", &json!({})),
                match expect {
                    "absent" if clauses == ["mcp_*=never"] => "absent",
                    "ask" if clauses == ["mcp_*=ask"] => "ask",
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
}
