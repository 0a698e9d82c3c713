//! The input for building the tools and the prompt of a turn, and the part of it that flags of the prompt give.

use crate::ops::call_approvals::DeferredApprovals;
use crate::options::grants::Grants;
use nanobot_config::policy::Policy;
use nanobot_config::policy::profile::Profile;
use nanobot_config::settings::Settings;
use nanobot_mcp::client::ElicitationHandler;
use nanobot_store::workspace::Workspace;
use nanobot_tool::ask_user::UserPrompt;
use nanobot_tool::cron::{JobScheduler, RepliedJob};
use nanobot_tool::message::ChatTarget;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The system prompt that flags request.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptRequest {
    /// Send nothing of the user's notes, skills, directories and machine.
    pub(crate) is_bare: bool,
    /// Takes the place of identity and working rules.
    pub(crate) own_text: Option<String>,
    /// Follows all else.
    pub(crate) added_text: Option<String>,
    /// Names and directories of the skills that are loaded at the start.
    pub(crate) skills: Vec<String>,
}

/// The input for building the tools and the prompt of a turn.
pub(crate) struct SetupInput<'a> {
    pub(crate) grants: &'a Grants,
    pub(crate) settings: &'a Settings,
    pub(crate) workspace: &'a Workspace,
    pub(crate) profile: &'a Profile,
    pub(crate) prompt: &'a PromptRequest,
    /// The turn's id, which the undo journal records.
    pub(crate) turn_id: &'a str,
    /// The key of the turn's session: for the undo journal, hooks and the `sessions` tool.
    pub(crate) session_key: &'a str,
    /// The key of the chat that the turn answers; otherwise that of the session. Messages and jobs belong to it.
    pub(crate) chat_key: &'a str,
    /// The file of the session, for hooks; `None` if nothing is stored.
    pub(crate) transcript: Option<&'a Path>,
    /// Maximum number of tools that run concurrently.
    pub(crate) max_parallel: usize,
    /// Connect to loopback addresses only.
    pub(crate) offline: bool,
    /// The run stores nothing about tools: no MCP server is started, one that is not cached is reported as missing, no
    /// program of a tool is recorded, and no hook is announced.
    pub(crate) is_dry_run_or_replay: bool,
    /// Print a notice if the workspace replaces the current directory.
    pub(crate) announces_directory: bool,
    /// The working directory of the last turn, if the conversation goes on.
    pub(crate) last_directory: Option<&'a Path>,
    /// Upper bound on the run's permissions.
    pub(crate) policy_limit: Option<&'a Policy>,
    /// Approves tool calls and requests of MCP servers for the model; `None` except in the REPL and in an editor. Without it,
    /// the model gets no tool to ask the user.
    pub(crate) user_prompt: Option<Arc<dyn UserPrompt>>,
    /// Answers the questions of MCP servers; `None` except in the REPL and in an editor.
    pub(crate) elicitation: Option<Arc<dyn ElicitationHandler>>,
    /// Records calls that need approval as questions, which the user answers after the turn; `None` if the user cannot.
    pub(crate) deferred_approvals: Option<Arc<dyn DeferredApprovals>>,
    /// The chat that gets the final text, if it is not the session's chat.
    pub(crate) answer_chat: Option<ChatTarget>,
    /// The jobs whose messages the user replies to.
    pub(crate) replied_jobs: &'a [RepliedJob],
    /// Stores the jobs that the model schedules; `None` if it may not schedule any.
    pub(crate) scheduler: Option<Arc<dyn JobScheduler>>,
}

impl SetupInput<'_> {
    /// The names that `--tools` and the profile list, for tools that are offered only if they are named. Such a tool must be
    /// listed by its whole name: the pattern `*` does not ask for it.
    pub(crate) fn explicitly_named_tools(&self) -> BTreeSet<String> {
        let flag = self.grants.tools.iter().flatten().cloned();
        let profile = self.profile.tools.iter().flatten();
        flag.chain(profile.map(|name| name.text().to_owned())).collect()
    }

    /// True if `--tools` has the tool's name or a pattern for it, or is not given.
    pub(crate) fn is_listed(&self, tool: &str) -> bool {
        self.grants.tools.is_none() || self.grants.lists_tool(tool)
    }
}
