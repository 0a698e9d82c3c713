//! The intersection of two policies.

use super::Policy;
use super::command_patterns::CommandPatterns;
use super::file_scope::FileScope;
use super::rule::{Permission, PolicyRule, RuleEffect};
use super::tool_names::{SIGNING, tools_within};

impl Policy {
    /// The intersection: allows what both this policy and `other` allow. For sub-agents, and for jobs that a run has added.
    pub fn intersection(&self, other: &Self) -> Self {
        let other_rules: Vec<PolicyRule> = other.rules_relative_to(&self.file_scope).collect();
        let mut rules = self.rules.clone();
        rules.retain(|rule| other.upholds(rule, &other_rules));
        rules.extend(other_rules.iter().filter(|rule| self.upholds(rule, &self.rules)).cloned());
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
            // A call needs an approval if it needs one under either policy.
            auto_approve: self.auto_approve && other.auto_approve,
            reads_only: self.reads_only || other.reads_only,
            command_patterns: CommandPatterns {
                denied: [&self.command_patterns.denied[..], &other.command_patterns.denied[..]]
                    .concat(),
                allowed: [&self.command_patterns.allowed[..], &other.command_patterns.allowed[..]]
                    .concat(),
            },
        }
    }

    /// True if `rule`, which another policy has, is one of the intersection of both. A denial of either policy is; a grant must
    /// be in both. `rules` are those of this policy, from the same directory as `rule`.
    fn upholds(&self, rule: &PolicyRule, rules: &[PolicyRule]) -> bool {
        let is_same = |own: &PolicyRule| {
            own.effect == RuleEffect::Allow
                && own.tool == rule.tool
                && own.argument == rule.argument
        };
        if rule.effect == RuleEffect::Deny || rules.iter().any(is_same) {
            return true;
        }
        // Nothing but a rule allows signatures.
        if rule.tool.text() == SIGNING {
            return false;
        }
        // A policy that allows the tool without approval grants as much as any allow rule.
        let is_always = |tool: &&str| self.permission(tool) == Permission::Always;
        self.auto_approve
            || (!rule.tool.has_wildcard() && tools_within(rule.tool.text()).iter().all(is_always))
    }

    /// The rules, rewritten to apply from the directory of `file_scope`. Allow rules about paths keep referring to the directory that they
    /// were written for.
    fn rules_relative_to(&self, file_scope: &FileScope) -> impl Iterator<Item = PolicyRule> {
        let is_moved = self.file_scope.directory != file_scope.directory;
        let anchored = move |rule: &PolicyRule| {
            let Some(argument) = &rule.argument else {
                return Some(rule.clone());
            };
            if !is_moved || rule.effect == RuleEffect::Deny || !rule.tool.matches_file_tool() {
                return Some(rule.clone());
            }
            let argument = Some(self.file_scope.anchored(argument)?);
            Some(PolicyRule { argument, ..rule.clone() })
        };
        self.rules.iter().filter_map(anchored)
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::file_scope::FileAccess;
    use crate::policy::test_policies::{evaluate, policies, policy};

    /// Checks a sample of all pairs; with a stride of 1 it would check every pair, which takes many minutes.
    #[test]
    fn an_intersection_allows_nothing_that_either_forbids() {
        let all = policies();
        let stride = nanobot_base::fuzz::by_depth(1201, 401);
        let single: Vec<_> = all.iter().map(|(_, policy)| evaluate(policy)).collect();
        for index in 0..all.len() {
            for other_index in (index % stride..all.len()).step_by(stride) {
                let calls = evaluate(&all[index].1.intersection(&all[other_index].1));
                for (at, (what, is_allowed)) in calls.iter().enumerate() {
                    let both_allow = single[index][at].1 && single[other_index][at].1;
                    let names = (&all[index].0, &all[other_index].0);
                    assert!(!is_allowed || both_allow, "{what}: {names:?}");
                }
            }
        }
    }

    #[test]
    fn an_intersection_allows_what_both_allow() {
        let check = |clauses: &[&str],
                     other_clauses: &[&str],
                     path: &str,
                     access: FileAccess,
                     expect: bool| {
            let both = policy(clauses).intersection(&policy(other_clauses));
            let actual = both.file_scope.decide(path, access);
            assert_eq!(actual.is_ok(), expect, "{clauses:?} {other_clauses:?} {path} {actual:?}");
        };
        use FileAccess::{Read, Write};
        check(&[], &[], "/d/a", Read, true);
        check(&["write /d"], &["write /d"], "a", Write, true);
        check(&["write /d"], &["write /d/sub"], "sub/x", Write, true);
        check(&["write /d"], &["write /d/sub"], "x", Write, false);
        // Relative rules of the other policy start from its own directory.
        let other_clauses = ["in /e", "deny read_file(sub/*)"];
        check(&["in /e", "in /d"], &other_clauses, "/d/sub/x", Read, true);
        check(&["in /e", "in /d"], &other_clauses, "/e/sub/x", Read, false);
        // A path that is closed within a root of one policy stays closed if a root of the other starts there.
        check(&["read /h"], &["read /h/.ssh"], "/h/.ssh/id", Read, false);
        check(&["free"], &["read /h/.ssh"], "/h/.ssh/id", Read, true);
        check(&["read /h/.ssh"], &["read /h/.ssh"], "/h/.ssh/id", Read, true);
        let within = |path| check(&["write /d"], &["write /d/.config"], path, Write, false);
        within("/d/.config/nvim/init.lua");
        check(&["write /d"], &["write /d/.config"], "/d/.config/app/x", Write, true);
    }
}
