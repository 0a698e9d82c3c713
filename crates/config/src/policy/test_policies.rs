//! Policies that tests are about, and questions to them.

use super::file_scope::{FileAccess, FileScope, ScopeRoot};
use super::net::Net;
use super::rule::{Pattern, Permission, PolicyRule, RuleEffect};
use super::{Policy, PolicyDecision, Sandbox};
use nanobot_os::deferred::Deferred;
use serde_json::{Value, json};
use std::path::Path;

/// Builds a policy from `clauses`: `deny RULE`, `allow RULE`, `TOOL=PERMISSION`, `only TOOL`, `consents`, `reads`,
/// `write PATH`, `read PATH`, `in DIRECTORY`, `home PATH`, `net HOST`, `typed ADDRESS`, `trust DIRECTORY`, `free`,
/// `net`.
pub(super) fn policy(clauses: &[&str]) -> Policy {
    let mut policy = Policy {
        file_scope: FileScope {
            directory: "/d".into(),
            workspace: "/h/w".into(),
            home: "/h".into(),
            roots: vec![
                ScopeRoot { path: "/d".into(), may_write: false },
                ScopeRoot { path: "/h/w".into(), may_write: true },
            ],
            hidden: vec!["/h/w/sessions".into()].into(),
            instruction_files: vec!["/h/w/AGENTS.md".into()],
            ..FileScope::default()
        },
        ..Policy::default()
    };
    for clause in clauses {
        match clause.split_once([' ', '=']) {
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
            Some((access @ ("write" | "read"), path)) => policy
                .file_scope
                .roots
                .push(ScopeRoot { path: path.into(), may_write: access == "write" }),
            Some(("in", path)) => {
                policy.file_scope.directory = path.into();
                policy.file_scope.roots.push(ScopeRoot { path: path.into(), may_write: false });
            }
            Some(("home", path)) => policy.file_scope.home = path.into(),
            Some(("net", host)) => {
                policy.net = Net::Hosts { hosts: vec![Pattern::new(host)], commands: Vec::new() };
            }
            Some(("commands", host)) => {
                let hosts = vec![Pattern::new(host)];
                policy.net = Net::Hosts { commands: hosts.clone(), hosts };
            }
            Some(("typed", address)) => {
                policy.explicit_addresses.push((address.parse().unwrap(), Some(80)));
            }
            Some(("trust", path)) => policy.file_scope.trusted.push(path.into()),
            Some((tool, permission)) => policy
                .permissions
                .push((Pattern::new(tool), Permission::parse(permission).unwrap())),
            None if *clause == "consents" => policy.auto_approve = true,
            None if *clause == "net" => policy.net = Net::Any,
            None if *clause == "free" => {
                policy.file_scope.is_unrestricted = true;
                policy.sandbox = Sandbox::Off;
                policy.file_scope.hidden = Deferred::default();
                policy.file_scope.instruction_files.clear();
                policy.file_scope.roots.push(ScopeRoot { path: "/".into(), may_write: true });
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

/// Every clause that the test policies are built from.
pub(super) const POLICY_CLAUSES: &[&str] = &[
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
    "commands a.example",
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
        for (tool, access) in [("read_file", FileAccess::Read), ("write_file", FileAccess::Write)] {
            let may = policy.file_scope.decide(path, access).is_ok();
            let is_allowed = verdict(policy, tool, &json!({ "path": path })) == "allow";
            ask(format!("{tool} {path}"), may && is_allowed);
        }
        ask(format!("show {path}"), policy.file_scope.is_visible(path.as_ref()));
        let path: &Path = path.as_ref();
        let mut written = policy.file_scope.command_writable_roots();
        let is_written = written.any(|root| path.starts_with(root));
        ask(format!("command {path:?}"), is_written);
        ask(format!("believe {path:?}"), policy.file_scope.is_user_instruction(path));
        // Inverted: a file that either policy closes after reading untrusted content is closed in both.
        ask(format!("change {path:?}"), !policy.file_scope.is_instruction_file(path));
    }
    for secret in ["/h/.ssh", "/e/.ssh"] {
        let is_open =
            policy.file_scope.is_unrestricted || policy.file_scope.grants_secret(secret.as_ref());
        ask(format!("open {secret}"), is_open);
    }
    for port in [22, 443] {
        let grants = policy.net.grants("a.example", Some(port));
        ask(format!("net {port}"), grants);
    }
    ask("port 22".into(), policy.net.grants_port("a.example", 22));
    ask("sockets".into(), policy.net == Net::Any);
    let is_named = policy.net.command_hosts().contains(&Pattern::new("a.example"));
    ask("commands".into(), policy.net == Net::Any || is_named);
    let typed = policy.is_explicit_address("10.0.0.1".parse().unwrap(), 80, &[80]);
    ask("typed".into(), typed);
    ask("uncontained".into(), policy.sandbox == Sandbox::Off);
    ask("changes".into(), !policy.reads_only);
    answers
}

/// Policies of one clause and of two clauses.
pub(super) fn policies() -> Vec<(String, Policy)> {
    let later = |at: usize| POLICY_CLAUSES[at..].iter();
    let pairs = (0..POLICY_CLAUSES.len())
        .flat_map(|at| later(at).map(move |other| [POLICY_CLAUSES[at], *other]));
    let named = |clauses: [&str; 2]| (clauses.join(" + "), policy(&clauses));
    pairs.map(named).collect()
}
