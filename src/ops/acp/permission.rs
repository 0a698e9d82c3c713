//! Asks the user of the editor: approval of tool calls, and the model's questions.

use super::client::EditorClient;
use super::session::EditorSession;
use super::updates::{TurnUpdates, call_title, tool_kind};
use crate::ops::approval_text;
use crate::ops::change_preview::ChangePreview;
use crate::ops::context::Context;
use crate::ops::permanent_rule;
use nanobot_mcp::client::ElicitationHandler;
use nanobot_os::secret::random_hex;
use nanobot_os::terminal::sanitize;
use nanobot_tool::ask_user::UserPrompt;
use nanobot_tool::{Approval, ApprovalRequest, ToolError};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Asks the user of the editor.
pub(super) struct EditorPrompter {
    pub(super) ctx: Context,
    pub(super) client: Arc<EditorClient>,
    pub(super) session: Arc<EditorSession>,
    pub(super) updates: Arc<TurnUpdates>,
}

impl EditorPrompter {
    /// Lets the user choose one of `options`, and returns its id. `None` if there was no answer.
    fn choose(&self, call: &Value, options: &[Value]) -> Option<String> {
        let params = json!({ "sessionId": self.session.key, "toolCall": call, "options": options });
        let answer = self.client.ask(&self.session.key, "session/request_permission", &params)?;
        let outcome = &answer["outcome"];
        if outcome["outcome"] != "selected" {
            return None;
        }
        outcome["optionId"].as_str().map(str::to_owned)
    }

    /// The call in the form of the question.
    fn describe(&self, request: &ApprovalRequest<'_>) -> Value {
        let id = self.updates.call_id(request.tool, request.arguments);
        let mut content = Vec::new();
        if ["write_file", "edit_file"].contains(&request.tool) {
            let path = request.arguments["path"].as_str().unwrap_or_default();
            let change = ChangePreview::for_request(request);
            let old_text = (!ChangePreview::is_new_file(request)).then_some(change.before);
            content.push(json!({
                "type": "diff", "path": request.file_scope.absolute(path).to_string_lossy(), "oldText": old_text, "newText": change.after,
            }));
        }
        for change in request.withheld {
            content.push(json!({
                "type": "diff", "path": change.path.to_string_lossy(), "oldText": change.before, "newText": change.after,
            }));
        }
        let file = ChangePreview::named_file(request);
        let headline = approval_text::headline(request, &file);
        let target = file.target.map(|target| format!("\n\nchanges: {}", sanitize(&target)));
        let reason = approval_text::reason(request).map(|reason| format!("\n\n{reason}"));
        let text = [headline, target.unwrap_or_default(), reason.unwrap_or_default()].concat();
        content.push(json!({ "type": "content", "content": { "type": "text", "text": text } }));
        json!({
            "toolCallId": id.unwrap_or_else(|| format!("approval-{}", random_hex(4))),
            "title": call_title(request.tool, request.arguments), "kind": tool_kind(request.tool), "status": "pending",
            "rawInput": request.arguments, "content": content,
        })
    }
}

fn option(id: &str, name: &str, kind: &str) -> Value {
    json!({ "optionId": id, "name": name, "kind": kind })
}

impl UserPrompt for EditorPrompter {
    fn answer(&self, question: &str, options: &[String]) -> Result<String, ToolError> {
        if options.is_empty() {
            return Err(ToolError::Declined(
                "the editor has no field for free answers; put the question at the end of your answer, or decide yourself"
                    .into(),
            ));
        }
        let call = json!({
            "toolCallId": format!("question-{}", random_hex(4)), "title": question, "kind": "other", "status": "pending",
        });
        let choices = options.iter().enumerate();
        let choices = choices.map(|(number, text)| option(&number.to_string(), text, "allow_once"));
        let choice = self.choose(&call, &choices.collect::<Vec<_>>());
        let choice = choice.and_then(|id| options.get(id.parse::<usize>().ok()?));
        choice
            .cloned()
            .ok_or_else(|| ToolError::Declined("the user gave no answer; decide yourself".into()))
    }

    fn approve(&self, request: &ApprovalRequest<'_>) -> Result<Approval, ToolError> {
        // A hook asks about one call, which no grant can answer.
        let grant = request.refusal.suggested_flag.clone();
        let grant = grant.map(|flag| (request.tool.to_owned(), flag));
        if grant.as_ref().is_some_and(|grant| self.session.state().granted.contains(grant)) {
            return Ok(Approval::Earlier);
        }
        let profile = self.session.state().profile.clone();
        let rule = if grant.is_some() {
            permanent_rule::rule_for(&self.ctx, Some(&profile), request)
        } else {
            None
        };
        let mut options = vec![if approval_text::is_yes_lasting(request) {
            option("once", "Allow from now on", "allow_always")
        } else {
            option("once", "Allow once", "allow_once")
        }];
        if grant.is_some() {
            let name = format!("In this session: {}", approval_text::permission(request));
            options.push(option("session", &name, "allow_always"));
        }
        if let Some(rule) = &rule {
            let name = format!("Always, in every run: the rule {}", rule.description);
            options.push(option("always", &name, "allow_always"));
        }
        options.push(option("no", "Reject", "reject_once"));
        let choice = self.choose(&self.describe(request), &options);
        match (choice.as_deref(), rule, grant) {
            (Some("once"), ..) => {}
            (Some("session"), _, Some(grant)) => {
                self.session.state().granted.insert(grant);
            }
            (Some("always"), Some(rule), Some(grant)) => {
                if let Err(error) = rule.write(&self.ctx) {
                    log::warn!(target: "acp", "cannot save the rule: {error:#}");
                }
                self.session.state().granted.insert(grant);
            }
            (None, ..) => {
                return Err(ToolError::Declined(
                    "Tool call denied: the user did not answer. Continue without it.".into(),
                ));
            }
            _ => {
                return Err(ToolError::Declined(
                    "Tool call denied: the user said no. Continue without it.".into(),
                ));
            }
        }
        Ok(Approval::Asked)
    }
}

/// The editor has no form for the questions of MCP servers, so the user declines. It has no part of the session, which has the servers.
pub(super) struct NoForms;

impl ElicitationHandler for NoForms {
    fn ask_user(&self, _: &str, _: &str, _: &Value) -> Option<Map<String, Value>> {
        None
    }
}
