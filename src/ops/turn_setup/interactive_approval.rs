//! Approval of denied tool calls by the user, in the REPL (`src/repl/approval.rs` asks) and in an editor
//! (`src/ops/acp/permission.rs`).

use crate::ops::context::Context;
use crate::ops::permissions::{self, WorkspacePlace};
use crate::ops::turn_setup::shared_state::SharedState;
use crate::ops::turn_setup::toolset::{CronToolParts, all_tools};
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_channel::approvals::FileFingerprint;
use nanobot_config::policy::Policy;
use nanobot_config::policy::call_files::files_of_call;
use nanobot_config::policy::profile::Profile;
use nanobot_config::policy::tool_names::WRITE_TOOLS;
use nanobot_config::settings::Settings;
use nanobot_tool::ask_user::UserPrompt;
use nanobot_tool::{Approval, ApprovalHandler, ApprovalRequest, ToolError, Toolbox};
use std::path::PathBuf;
use std::sync::Arc;

/// Asks the user about a denied call. The user may grant for it what a flag would.
pub(crate) struct InteractiveApproval {
    pub(crate) user_prompt: Arc<dyn UserPrompt>,
    pub(crate) ctx: Context,
    pub(crate) settings: Settings,
    pub(crate) profile: Profile,
    pub(crate) grants: Grants,
    pub(crate) policy: Arc<Policy>,
    pub(crate) shared: SharedState,
    /// `None` if the run cannot change jobs.
    pub(crate) jobs: Option<CronToolParts>,
}

/// Replaces the path of a new file by its nearest existing directory, which can be granted. The approved call writes its own files
/// only.
fn use_existing_ancestor(path: &mut PathBuf) {
    while path.symlink_metadata().is_err() && path.pop() {}
}

/// The files that a call would change, as the question about it shows them. One that cannot be read is not shown.
fn displayed_files(request: &ApprovalRequest<'_>) -> Vec<FileFingerprint> {
    if !WRITE_TOOLS.contains(&request.tool) {
        return Vec::new();
    }
    let files = files_of_call(request.tool, request.arguments).into_iter();
    files
        .filter_map(|file| FileFingerprint::compute(&request.file_scope.absolute(&file.path)).ok())
        .collect()
}

impl ApprovalHandler for InteractiveApproval {
    fn approve(&self, request: &ApprovalRequest<'_>) -> Result<Approval, ToolError> {
        let files = displayed_files(request);
        let approval = self.user_prompt.approve(request)?;
        // A person, or another program, can change a file while the question waits. The answer is about the change that was shown.
        match files.iter().find(|file| !file.is_current()) {
            Some(file) => Err(ToolError::Failed(format!(
                "`{}` was changed while the user was asked about it, and nothing was done; read it, and make the change anew",
                file.path.display()
            ))),
            None => Ok(approval),
        }
    }

    fn with_grant(&self, request: &ApprovalRequest<'_>) -> Result<(Toolbox, Approval), ToolError> {
        let denial = || ToolError::Denied(request.refusal.clone());
        let flag = request.refusal.suggested_flag.as_deref().ok_or_else(denial)?;
        let mut grants = self.grants.clone();
        permissions::add_flag(&mut grants, flag).ok_or_else(denial)?;
        if WRITE_TOOLS.contains(&request.tool) {
            grants.write.iter_mut().for_each(use_existing_ancestor);
        }
        // A denial that no flag can lift in this run is final, so the user is not asked.
        let workspace = WorkspacePlace::of_run(&self.policy.file_scope.workspace);
        let mut policy = permissions::build_policy(
            &self.ctx,
            &grants,
            &self.settings,
            &self.profile,
            &workspace,
        )
        .map_err(|_| denial())?;
        self.shared.mcp_tools.add_to_policy(&mut policy);
        let approval = self.approve(request)?;
        policy.file_scope.instruction_files.clone_from(&self.policy.file_scope.instruction_files);
        policy.file_scope.trusted.clone_from(&self.policy.file_scope.trusted);
        if let Some(hooks) = &self.shared.hooks {
            hooks.hide_also(&policy.file_scope);
        }
        let policy = Arc::new(policy);
        let files = self
            .shared
            .files
            .with_policy(&policy)
            .map_err(|error| format!("open the granted directories: {error}"))?;
        let shared = SharedState {
            files: Arc::new(files),
            // The permission is for this call only. A command in the background would outlast it, and take input without another.
            background: None,
            ..self.shared.clone()
        };
        let mut tools = all_tools(&self.ctx, &self.settings, &policy, &shared);
        tools.extend(self.jobs.as_ref().map(|jobs| jobs.tool(&policy, &shared)));
        Ok((Toolbox::new(tools, 1, policy), approval))
    }
}
