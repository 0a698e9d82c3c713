//! The answer of a hook: its exit status and its output, in the fields of any of the three programs.

use nanobot_config::settings::hooks::{HookDialect, HookEvent};
use serde_json::Value;

/// The exit status of a denial, except in Vibe. Its reason is on standard error.
const DENY_STATUS: i32 = 2;

/// The reason of a denial if the hook gives none.
const NO_REASON: &str = "it gave no reason";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum HookDecision {
    #[default]
    Allow,
    /// The user must approve.
    Ask(String),
    Deny(String),
}

/// The answer of a hook.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HookReply {
    pub(super) decision: HookDecision,
    /// The new arguments of the call, under the names of the hook's dialect.
    pub(super) arguments: Option<Value>,
    /// The text that replaces a tool's result.
    pub(super) output: Option<String>,
    /// A comment for the model.
    pub(super) context: Option<String>,
    /// A notice for the user.
    pub(super) notice: Option<String>,
}

/// The output of a hook's command.
pub(super) struct HookOutput<'a> {
    /// `None` if a signal ended it.
    pub(super) status: Option<i32>,
    pub(super) stdout: &'a str,
    pub(super) stderr: &'a str,
}

impl HookReply {
    /// Reads the answer of a hook of `dialect` for `event`.
    ///
    /// # Errors
    /// The hook failed: a phrase for the user.
    pub(super) fn parse(
        dialect: HookDialect,
        event: HookEvent,
        output: &HookOutput<'_>,
    ) -> Result<Self, String> {
        match output.status {
            Some(0) => {}
            // In Vibe, status 2 is a failure like any other.
            Some(DENY_STATUS) if dialect != HookDialect::Vibe => {
                let reason = match output.stderr.trim() {
                    "" => NO_REASON.to_owned(),
                    reason => reason.to_owned(),
                };
                // After a call, scripts for Claude Code comment on its result. They do not withhold it.
                return Ok(match (dialect, event) {
                    (HookDialect::ClaudeCode, HookEvent::PostTool) => {
                        Self { context: Some(reason), ..Self::default() }
                    }
                    _ => Self { decision: HookDecision::Deny(reason), ..Self::default() },
                });
            }
            Some(status) => {
                let line = output.stderr.trim().lines().next().unwrap_or_default();
                let colon = if line.is_empty() { "" } else { ": " };
                return Err(format!("failed with exit status {status}{colon}{line}"));
            }
            None => return Err("was killed".into()),
        }
        let text = output.stdout.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        if !text.starts_with('{') {
            return match (event, dialect) {
                (HookEvent::PreTurn, _) => {
                    Ok(Self { context: Some(text.to_owned()), ..Self::default() })
                }
                // The answer has no effect, or that program ignores it.
                (HookEvent::JobEnd, _) | (_, HookDialect::ClaudeCode) => Ok(Self::default()),
                _ => Err("printed something that is not a JSON object".into()),
            };
        }
        let answer: Value = serde_json::from_str(text)
            .map_err(|error| format!("printed JSON that cannot be read: {error}"))?;
        Self::from_json(dialect, event, &answer)
    }

    fn from_json(dialect: HookDialect, event: HookEvent, answer: &Value) -> Result<Self, String> {
        let specific = match &answer["hookSpecificOutput"] {
            Value::Null => &answer["hook_specific_output"],
            specific => specific,
        };
        let text =
            |value: &Value| value.as_str().map(str::to_owned).filter(|text| !text.is_empty());
        let first = |values: &[&Value]| values.iter().find_map(|value| text(value));
        let reason = first(&[
            &specific["permissionDecisionReason"],
            &answer["reason"],
            &answer["stopReason"],
        ]);
        let reason = reason.unwrap_or_else(|| NO_REASON.into());
        let name = first(&[&specific["permissionDecision"], &answer["decision"]]);
        let ends_turn = answer["continue"] == Value::Bool(false);
        let decision = if ends_turn {
            HookDecision::Deny(reason.clone())
        } else {
            match name.as_deref() {
                None | Some("allow" | "approve") => HookDecision::Allow,
                Some("ask") => HookDecision::Ask(reason.clone()),
                Some("deny" | "block") => HookDecision::Deny(reason.clone()),
                Some(other) => return Err(format!("answered with the unknown decision `{other}`")),
            }
        };
        let arguments = [&answer["arguments"], &specific["updatedInput"], &specific["tool_input"]];
        let arguments = arguments.into_iter().find(|value| !value.is_null()).cloned();
        if arguments.as_ref().is_some_and(|value| !value.is_object()) {
            return Err("answered with arguments that are not an object".into());
        }
        let mut reply = Self {
            decision,
            arguments,
            output: first(&[&answer["output"], &specific["updatedToolOutput"]]),
            context: first(&[
                &answer["context"],
                &specific["additionalContext"],
                &specific["additional_context"],
            ]),
            notice: first(&[
                &answer["notice"],
                &answer["systemMessage"],
                &answer["system_message"],
            ]),
        };
        let is_comment =
            dialect == HookDialect::ClaudeCode && event == HookEvent::PostTool && !ends_turn;
        if is_comment && reply.decision != HookDecision::Allow {
            reply.decision = HookDecision::Allow;
            reply.context = Some(match reply.context {
                Some(context) => format!("{reason}\n{context}"),
                None => reason,
            });
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::{HookDecision, HookOutput, HookReply};
    use nanobot_config::settings::hooks::HookDialect::{self, ClaudeCode, Nanobot, Vibe};
    use nanobot_config::settings::hooks::HookEvent::{self, PostTool, PreTool, PreTurn};

    fn parse(
        dialect: HookDialect,
        event: HookEvent,
        status: i32,
        stdout: &str,
    ) -> Result<HookReply, String> {
        let output = HookOutput { status: Some(status), stdout, stderr: "on stderr\n" };
        HookReply::parse(dialect, event, &output)
    }

    #[test]
    fn decisions() {
        let check = |dialect, event, status, stdout: &str, expect: &str| {
            let shown = match parse(dialect, event, status, stdout) {
                Err(cause) => format!("failed: {cause}"),
                Ok(reply) => match reply.decision {
                    HookDecision::Allow => "allow".into(),
                    HookDecision::Ask(reason) => format!("ask: {reason}"),
                    HookDecision::Deny(reason) => format!("deny: {reason}"),
                },
            };
            assert!(shown.starts_with(expect), "{stdout}: {shown}");
        };
        check(Nanobot, PreTool, 0, "", "allow");
        check(Nanobot, PreTool, 0, r#"{"decision": "allow"}"#, "allow");
        check(Nanobot, PreTool, 0, r#"{"decision": "deny", "reason": "no"}"#, "deny: no");
        check(Nanobot, PreTool, 0, r#"{"decision": "ask", "reason": "sure?"}"#, "ask: sure?");
        check(Nanobot, PreTool, 2, "", "deny: on stderr");
        check(Nanobot, PreTool, 1, "", "failed: failed with exit status 1: on stderr");
        check(Nanobot, PreTool, 0, "hello", "failed: printed something");
        check(Nanobot, PreTool, 0, "{", "failed: printed JSON");
        check(
            Nanobot,
            PreTool,
            0,
            r#"{"decision": "perhaps"}"#,
            "failed: answered with the unknown",
        );
        check(Nanobot, PreTool, 0, r#"{"arguments": 1}"#, "failed: answered with arguments");
        check(Vibe, PreTool, 2, "", "failed: failed with exit status 2");
        check(Vibe, PreTool, 0, r#"{"decision": "deny"}"#, "deny: it gave no reason");
        check(ClaudeCode, PreTool, 0, "hello", "allow");
        check(ClaudeCode, PreTool, 0, r#"{"decision": "block", "reason": "no"}"#, "deny: no");
        check(ClaudeCode, PreTool, 0, r#"{"continue": false, "stopReason": "end"}"#, "deny: end");
        check(
            ClaudeCode,
            PreTool,
            0,
            r#"{"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}"#,
            "deny: no",
        );
        check(ClaudeCode, PostTool, 2, "", "allow");
        check(Nanobot, PostTool, 2, "", "deny: on stderr");
    }

    #[test]
    fn words_and_changes() {
        let reply = parse(ClaudeCode, PreTurn, 0, "today is Monday").unwrap();
        assert_eq!(reply.context.as_deref(), Some("today is Monday"));
        let text = r#"{"hook_specific_output": {"tool_input": {"command": "ls"}, "additional_context": "x"}, "system_message": "y"}"#;
        let reply = parse(Vibe, PreTool, 0, text).unwrap();
        assert_eq!(reply.arguments, Some(serde_json::json!({"command": "ls"})));
        assert_eq!((reply.context.as_deref(), reply.notice.as_deref()), (Some("x"), Some("y")));
        let text = r#"{"decision": "block", "reason": "lint failed", "hookSpecificOutput": {"additionalContext": "line 3"}}"#;
        let reply = parse(ClaudeCode, PostTool, 0, text).unwrap();
        assert_eq!(reply.context.as_deref(), Some("lint failed\nline 3"));
    }
}
