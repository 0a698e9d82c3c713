//! Approval of tool calls by a person who answers after the turn, as in a chat: the call becomes a question, and is refused for now. What
//! that person cannot decide is refused as in a run without a user.

use crate::ops::call_approvals::DeferredApprovals;
use crate::ops::call_details;
use crate::ops::turn_setup::interactive_approval::InteractiveApproval;
use nanobot_channel::approvals::{FileFingerprint, QuestionDraft, StoredCall};
use nanobot_config::policy::call_files::files_of_call;
use nanobot_config::policy::provenance::ProvenanceTracker;
use nanobot_config::policy::refusal::SuggestedFlag;
use nanobot_config::policy::tool_names::{SIGNING, WRITE_TOOLS};
use nanobot_os::secret::redact_all;
use nanobot_os::symlinks::PathResolver;
use nanobot_tool::ask_user::UserPrompt;
use nanobot_tool::{Approval, ApprovalHandler, ApprovalRequest, ToolError, Toolbox};
use std::sync::Arc;

/// Asks the person about denied calls.
pub(crate) struct DeferredApproval {
    /// Grants what was approved. Its prompt is [`QuestionPrompt`].
    pub(crate) granting: InteractiveApproval,
}

/// Turns a request for approval into a question.
pub(crate) struct QuestionPrompt {
    pub(crate) approvals: Arc<dyn DeferredApprovals>,
    pub(crate) provenance: Arc<ProvenanceTracker>,
}

impl DeferredApproval {
    /// Refuses what a person may not approve in this way: what needs another network, another sandbox or a signature, what the profile
    /// forbids, a hook's question, a call that was made already, and one that has keys.
    fn check(&self, request: &ApprovalRequest<'_>) -> Result<(), ToolError> {
        let flag = request.refusal.suggested_flag.as_deref();
        let arguments = request.arguments.to_string();
        let may_ask = flag.is_some_and(is_approvable)
            && !self.granting.policy.reads_only
            && !request.is_retry
            && request.withheld.is_empty()
            && redact_all(&arguments) == arguments;
        if may_ask { Ok(()) } else { Err(ToolError::Denied(request.refusal.clone())) }
    }
}

/// True if a person may grant for one call what `flag` does.
fn is_approvable(flag: &str) -> bool {
    let Some(SuggestedFlag { name, value }) = SuggestedFlag::parse(flag) else {
        return false;
    };
    match name {
        "--allow" => value.is_some_and(|rule| !rule.is_empty() && rule != SIGNING),
        "--write" | "--read" => true,
        _ => false,
    }
}

impl ApprovalHandler for DeferredApproval {
    fn approve(&self, request: &ApprovalRequest<'_>) -> Result<Approval, ToolError> {
        self.check(request)?;
        self.granting.approve(request)
    }

    fn with_grant(&self, request: &ApprovalRequest<'_>) -> Result<(Toolbox, Approval), ToolError> {
        self.check(request)?;
        self.granting.with_grant(request)
    }

    fn answers_at_once(&self) -> bool {
        false
    }
}

impl UserPrompt for QuestionPrompt {
    fn answer(&self, _: &str, _: &[String]) -> Result<String, ToolError> {
        Err(ToolError::Declined("the user cannot be asked now; decide yourself".into()))
    }

    fn approve(&self, request: &ApprovalRequest<'_>) -> Result<Approval, ToolError> {
        let denial = || ToolError::Denied(request.refusal.clone());
        let content = self.provenance.untrusted_content();
        // Whatever cannot be shown as a whole cannot be approved.
        let details = call_details::describe(request, content.as_deref()).ok_or_else(denial)?;
        let mut files = Vec::new();
        if WRITE_TOOLS.contains(&request.tool) {
            for file in files_of_call(request.tool, request.arguments) {
                let path = request.file_scope.absolute(&file.path);
                // The other questions do not name the file behind a link.
                if !["write_file", "edit_file"].contains(&request.tool)
                    && PathResolver::default().resolve(&path) != path
                {
                    return Err(denial());
                }
                files.push(FileFingerprint::compute(&path).map_err(|_| denial())?);
            }
        }
        let draft = QuestionDraft {
            call: StoredCall {
                tool: request.tool.to_owned(),
                arguments: request.arguments.clone(),
                flag: request.refusal.suggested_flag.clone().ok_or_else(denial)?,
            },
            details,
            permission: call_details::lasting_permission(request),
            files,
        };
        self.approvals.decide(draft, request.refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::is_approvable;

    #[test]
    fn only_some_permissions_can_be_approved() {
        for flag in [
            "--allow cron",
            "--allow notes",
            "--allow 'mcp_x'",
            "--write",
            "--write=/a",
            "--read=/b",
        ] {
            assert!(is_approvable(flag), "{flag}");
        }
        for flag in [
            "",
            "--net",
            "--net=example.org",
            "--sandbox off",
            "--allow signing",
            "--allow 'signing'",
            "--allow",
            "--allow '",
            "--profile default",
            "nanobot mcp accept x",
            "nanobot config set tools.x on",
        ] {
            assert!(!is_approvable(flag), "{flag}");
        }
    }
}
