//! The tools that a run offers to its model, by rules, permissions and lists.

use super::Policy;
use super::refusal::Refusal;
use super::rule::{Pattern, Permission, PolicyRule, RuleEffect};
use super::tool_names::{APPLY_PATCH, EXEC, PROCESS, WRITE_TOOLS};

impl Policy {
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
        let is_listed = |list: &Vec<Pattern>| list.iter().any(|name| name.lists(tool));
        (!self.tool_filters.iter().all(is_listed)).then(|| {
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

    /// True if a tool whose name begins with `prefix` may be offered. Errs on the side of true.
    pub fn can_offer(&self, prefix: &str) -> bool {
        let covers_all = |name: &Pattern| {
            let stem = name.text().strip_suffix('*');
            stem.is_some_and(|stem| !stem.contains(['*', '?']) && prefix.starts_with(stem))
        };
        let is_denied = self.rules.iter().any(|rule| {
            rule.effect == RuleEffect::Deny && rule.argument.is_none() && covers_all(&rule.tool)
        });
        let is_never = (self.permissions.iter())
            .any(|(name, permission)| *permission == Permission::Never && covers_all(name));
        let may_be_listed =
            |list: &Vec<Pattern>| list.iter().any(|name| name.may_match_prefix(prefix));
        !is_denied && !is_never && self.tool_filters.iter().all(may_be_listed)
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::test_policies::policy;

    #[test]
    fn can_offer_errs_on_the_side_of_true() {
        let check = |clauses: &[&str], prefix: &str, expect: bool| {
            let actual = policy(clauses).can_offer(prefix);
            assert_eq!(actual, expect, "{clauses:?} {prefix}");
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
}
