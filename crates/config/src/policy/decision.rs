//! The decision about one call, by rules, permissions and patterns for commands.

use super::call_files::{CallFile, files_of_call};
use super::file_scope::{FileAccess, FileScope};
use super::refusal::Refusal;
use super::rule::{Permission, PolicyRule, RuleEffect, is_file_tool};
use super::tool_names::{APPLY_PATCH, CRON, EXEC, PROCESS, WRITE_TOOLS, tools_within};
use super::{Policy, PolicyDecision};
use nanobot_base::shell_quote::quote;
use serde_json::Value;
use std::borrow::Cow;
use url::Url;

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
    /// Decides about a call of `tool` by permissions and rules. Paths are not checked here, but when the tool opens them, by
    /// [`FileScope::decide`]. The exception is a change that only a rule about its path allows: the rule must name this tool.
    pub fn decide(&self, tool: &str, arguments: &Value) -> PolicyDecision {
        let changes_jobs = tool == CRON && arguments["action"] != "list";
        if self.reads_only && (changes_jobs || WRITE_TOOLS.contains(&tool)) {
            return PolicyDecision::Deny(self.read_only_refusal(tool));
        }
        let subjects = self.rule_subjects(tool, arguments);
        let rules_with =
            |effect: RuleEffect| self.rules.iter().filter(move |rule| rule.effect == effect);
        // The file scope checks denied paths, because it also checks the targets of links.
        let is_file_tool = is_file_tool(tool);
        let denies_call = |rule: &&PolicyRule| {
            let is_about_path = is_file_tool && rule.argument.is_some();
            !is_about_path && subjects.iter().any(|subject| subject.is_covered(rule))
        };
        if let Some(rule) = rules_with(RuleEffect::Deny).find(denies_call) {
            return PolicyDecision::Deny(Refusal::new(format!(
                "`{tool}` is denied by the rule `{rule}` ({})",
                rule.origin
            )));
        }
        let mut commands = subjects.iter().filter(|subject| subject.tools.contains(&EXEC));
        if let Some(command) = commands.next().and_then(|subject| subject.forms.first())
            && let Some(refusal) = self.command_patterns.check(command)
        {
            return PolicyDecision::Deny(refusal);
        }
        let mut decision = PolicyDecision::Allow("permission: always".into());
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
                            [*name, tool].iter().any(|tool| rule.covers(tool, &subject.forms))
                        };
                        match rules_with(RuleEffect::Allow).find(covers) {
                            Some(_) if matches!(decision, PolicyDecision::Ask(_)) => {}
                            Some(rule) => decision = PolicyDecision::Allow(rule.reason()),
                            None => decision = self.ask(tool),
                        }
                    }
                }
            }
        }
        if matches!(decision, PolicyDecision::Allow(_)) {
            return self.decide_by_path_rule(tool, arguments).unwrap_or(decision);
        }
        decision
    }

    /// The decision about changes that only a rule about their path allows. The rule must be about this tool: one about `write_file` does
    /// not let `delete_file` remove the file.
    fn decide_by_path_rule(&self, tool: &str, arguments: &Value) -> Option<PolicyDecision> {
        if self.file_scope.allowed.is_empty() || !WRITE_TOOLS.contains(&tool) {
            return None;
        }
        let without_rules = FileScope { allowed: Vec::new(), ..self.file_scope.clone() };
        let mut decision = None;
        for file in files_of_call(tool, arguments) {
            let allowed = self.file_scope.decide(&file.path, FileAccess::Write);
            let refused = without_rules.decide(&file.path, FileAccess::Write);
            let (Ok(resolved_path), Err(refusal)) = (allowed, refused) else {
                continue;
            };
            let path = &resolved_path.path;
            let root = &self.file_scope.roots[resolved_path.root].path;
            let allows_change = |rule: &&PolicyRule| {
                let is_tool = rule.tool.matches(tool) || rule.tool.matches(file.tool);
                let covers = |pattern| self.file_scope.matches_beneath(pattern, path, root);
                rule.effect == RuleEffect::Allow
                    && is_tool
                    && rule.argument.as_ref().is_some_and(covers)
            };
            match self.rules.iter().find(allows_change) {
                Some(rule) => decision = Some(PolicyDecision::Allow(rule.reason())),
                None => return Some(PolicyDecision::Ask(refusal)),
            }
        }
        decision
    }

    /// The decision about a call of `tool` that needs approval and that no rule allows.
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
            names_flag: true,
        })
    }

    /// The items that a call is about: several only if it changes several files.
    fn rule_subjects<'a>(&self, tool: &'a str, arguments: &'a Value) -> Vec<RuleSubject<'a>> {
        let text = |key: &str| arguments[key].as_str();
        let files = files_of_call(tool, arguments);
        if !files.is_empty() {
            return files.iter().map(|file| self.file_subject(tool, file)).collect();
        }
        let forms = match (tool, text("command"), text("url"), text("query")) {
            (APPLY_PATCH, ..) => Vec::new(),
            (CRON, ..) => vec![text("action").unwrap_or_default().to_owned()],
            (PROCESS, ..) => vec![text("input").unwrap_or_default().to_owned()],
            (_, Some(command), ..) => vec![command.to_owned()],
            (_, _, Some(url), _) => [url.to_owned()].into_iter().chain(host_of(url)).collect(),
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
        let path = self.file_scope.absolute(&file.path);
        let mut forms = vec![path.to_string_lossy().into_owned()];
        if let Ok(relative) = path.strip_prefix(&self.file_scope.directory) {
            forms.push(relative.to_string_lossy().into_owned());
        }
        if let Some(name) = path.file_name() {
            forms.push(name.to_string_lossy().into_owned());
        }
        let mut tools = vec![tool, file.tool];
        tools.dedup();
        RuleSubject { tools, forms }
    }
}

/// The host that a request for `address` reaches, in lower case. The scheme may be missing, as in an argument of a server's tool.
fn host_of(address: &str) -> Option<String> {
    let with_scheme = if address.contains("://") {
        Cow::Borrowed(address)
    } else {
        Cow::Owned(format!("https://{address}"))
    };
    Url::parse(&with_scheme).ok()?.host_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use crate::policy::PolicyDecision;
    use crate::policy::file_scope::FileAccess;
    use crate::policy::test_policies::{policy, verdict};
    use serde_json::{Value, json};

    #[test]
    fn decisions() {
        let check = |clauses: &[&str], tool: &str, arguments: Value, expect: &str| {
            assert_eq!(
                verdict(&policy(clauses), tool, &arguments),
                expect,
                "{clauses:?} {tool} {arguments}"
            );
        };
        let run = |command: &str| json!({ "command": command });
        let at = |path: &str| json!({ "path": path });
        check(&[], "exec", run("ls"), "allow");
        check(&["exec=ask"], "exec", run("ls"), "ask");
        check(&["exec=ask", "allow exec"], "exec", run("ls"), "allow");
        check(&["exec=ask", "consents"], "exec", run("ls"), "allow");
        check(&["exec=never", "allow exec", "consents"], "exec", run("ls"), "absent");
        check(&["exec=always", "exec=ask"], "exec", run("ls"), "ask");
        check(&["deny exec"], "exec", run("ls"), "absent");
        check(&["deny exec(rm *)"], "exec", run("rm -r x"), "deny");
        check(&["deny exec(rm *)", "allow exec"], "exec", run("rm -r x"), "deny");
        check(&["deny exec(rm *)"], "exec", run("ls"), "allow");
        check(&["mcp_*=ask", "allow mcp_git_*"], "mcp_git_log", json!({}), "allow");
        check(&["mcp_*=ask", "allow mcp_git_*"], "mcp_web_get", json!({}), "ask");
        let fetch = |url: &str| json!({ "url": url });
        let host_rule = &["deny web_fetch(*.example.org)"];
        check(host_rule, "web_fetch", fetch("https://a.example.org/x"), "deny");
        check(host_rule, "web_fetch", fetch("https://u:p@A.Example.org:8000?x"), "deny");
        check(host_rule, "web_fetch", fetch("a.example.org/x"), "deny");
        check(host_rule, "web_fetch", fetch("https://example.com/x"), "allow");
        check(&["deny web_fetch(Example.org)"], "web_fetch", fetch("https://example.org/"), "deny");
        check(
            &["deny web_fetch([2001:db8::1])"],
            "web_fetch",
            fetch("https://[2001:DB8::1]/"),
            "deny",
        );
        let path_rule = &["web_fetch=ask", "allow web_fetch(https://example.org/A*)"];
        check(path_rule, "web_fetch", fetch("https://example.org/Ab"), "allow");
        check(path_rule, "web_fetch", fetch("https://example.org/ab"), "ask");
        check(path_rule, "web_fetch", fetch("https://example.org:x@example.com/A"), "ask");
        check(&["deny read_file(.env)"], "read_file", at("a/.env"), "deny");
        check(&["deny read_file(sub/*)"], "read_file", at("sub/deep/x"), "deny");
        check(&["deny read_file(sub/*)"], "read_file", at("other"), "allow");
        for glob in ["**/.env", "./**/.env", "{.env,x}", "[.]env", "**/{.env,x}"] {
            let rule = format!("deny read_file({glob})");
            check(&[&rule], "read_file", at(".env"), "deny");
            check(&[&rule], "read_file", at("a.env"), "allow");
        }
        let write = |path: &str| json!({ "path": path, "content": "x" });
        let approval_clauses = ["write_file=ask", "allow write_file(**/{a,b})"];
        check(&approval_clauses, "write_file", write("b"), "allow");
        check(&approval_clauses, "write_file", write("n/a"), "allow");
        check(&approval_clauses, "write_file", write("c"), "ask");
        let glob_clauses = ["glob=ask", "allow glob(docs)"];
        check(&glob_clauses, "glob", json!({ "pattern": "docs/*" }), "allow");
        check(&glob_clauses, "glob", json!({ "pattern": "*" }), "ask");
        check(&glob_clauses, "glob", json!({ "pattern": "/etc/*", "path": "docs" }), "ask");
        check(&["only read_file"], "exec", run("ls"), "absent");
        let write = |input: &str| json!({ "id": "sh-1", "input": input });
        let read = || json!({ "id": "sh-1" });
        check(&[], "process", write("ls"), "allow");
        check(&["exec=ask"], "process", write("ls"), "ask");
        check(&["exec=ask"], "process", read(), "allow");
        check(&["exec=ask", "allow exec"], "process", write("ls"), "allow");
        check(&["exec=ask", "allow process"], "process", write("ls"), "allow");
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
        for clauses in [&[][..], &["reads"], &["sessions=ask"]] {
            check(clauses, "sessions", json!({ "action": "list" }), "ask");
        }
        for clauses in [&["allow sessions"][..], &["sessions=always"], &["consents"]] {
            check(clauses, "sessions", json!({ "action": "list" }), "allow");
        }
        let cron = |action: &str| json!({ "action": action, "message": "add", "command": "list" });
        check(&[], "cron", cron("add"), "allow");
        check(&["reads"], "cron", cron("add"), "deny");
        check(&["reads"], "cron", cron("remove"), "deny");
        check(&["reads"], "cron", cron("list"), "allow");
        check(&["deny cron(add)"], "cron", cron("add"), "deny");
        check(&["deny cron(add)"], "cron", cron("list"), "allow");
        check(&["cron=ask", "allow cron(list)"], "cron", cron("list"), "allow");
        check(&["cron=ask", "allow cron(list)"], "cron", cron("remove"), "ask");
    }

    #[test]
    fn a_patch_needs_the_permission_for_each_of_its_files() {
        let sections = "*** Add File: n/a\n*** Update File: n/b\n-x\n*** Delete File: c\n";
        let patch =
            |body: &str| json!({ "patch": format!("*** Begin Patch\n{body}*** End Patch") });
        let check = |clauses: &[&str], body: &str, expect: &str| {
            let actual = verdict(&policy(clauses), "apply_patch", &patch(body));
            assert_eq!(actual, expect, "{clauses:?} {body}");
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
        check(&["apply_patch=ask", "allow apply_patch(n/*)"], sections, "ask");
        check(&["apply_patch=ask", "allow edit_file"], "*** Update File: a\n-x\n", "ask");
        check(&["write_file=ask"], sections, "ask");
        check(&["write_file=ask"], "*** Delete File: a\n", "allow");
        check(&["write_file=ask"], "*** Update File: a\n*** Move to: b\n", "ask");
        let rule = &["write_file=ask", "allow write_file(n/*)"][..];
        check(rule, "*** Add File: n/a\n", "allow");
        check(rule, sections, "ask");
        check(&["write_file=ask", "allow apply_patch"], sections, "allow");
        check(&["delete_file=ask", "allow write_file"], sections, "ask");
        check(&["delete_file=ask", "consents"], sections, "allow");
        // A rule of one operand does not lift what the other one asks for.
        let intersection = |clauses: &[&str], other_clauses: &[&str], expect: &str| {
            let both = policy(clauses).intersection(&policy(other_clauses));
            let actual = verdict(&both, "apply_patch", &patch(sections));
            assert_eq!(actual, expect, "{clauses:?} {other_clauses:?}");
        };
        intersection(&["apply_patch=ask", "allow apply_patch"], &[], "allow");
        intersection(&["apply_patch=ask", "allow apply_patch"], &["edit_file=ask"], "ask");
        intersection(&["edit_file=ask", "allow edit_file"], &["apply_patch=ask"], "ask");
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
        let decide = |clauses: &[&str], tool: &str, arguments: Value| match policy(clauses)
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
            let actual = decide(rule, tool, at("sub/x"));
            assert!(actual.starts_with("ask: `/d/sub/x` is read-only"), "{actual}");
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
        assert_eq!(decide(granted, "delete_file", at("sub/x")), "permission: always");
        assert_eq!(decide(rule, "delete_file", at("a")), "permission: always");
    }
}
