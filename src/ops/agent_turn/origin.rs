//! The origin of a turn: a command line, a job, or the REPL.

use crate::mcp::client::ElicitationHandler;
use crate::policy::Policy;
use crate::sys::terminal::Terminal;
use crate::tool::ask_user::UserPrompt;
use std::cell::RefCell;
use std::sync::Arc;

/// The origin of a turn.
pub(crate) enum TurnOrigin<'a> {
    CommandLine,
    Job(JobTurn<'a>),
    Repl(&'a ReplContext),
}

impl<'a> TurnOrigin<'a> {
    /// The job that runs the turn.
    pub(crate) fn job(&self) -> Option<&JobTurn<'a>> {
        match self {
            Self::Job(job) => Some(job),
            Self::CommandLine | Self::Repl(_) => None,
        }
    }

    /// The REPL that runs the turn.
    pub(crate) fn repl(&self) -> Option<&ReplContext> {
        match self {
            Self::Repl(context) => Some(context),
            Self::CommandLine | Self::Job(_) => None,
        }
    }
}

/// A turn that a job runs; no user typed its message.
pub(crate) struct JobTurn<'a> {
    /// The job's id, for the ledger.
    pub(crate) id: &'a str,
    /// A section of the system prompt about the job.
    pub(crate) job_prompt: &'a str,
    /// Upper bound on the run's permissions.
    pub(crate) policy_limit: Option<&'a Policy>,
    /// Input that is treated like piped text.
    pub(crate) input: Option<Vec<u8>>,
    /// Send only the last turn of the session's history.
    pub(crate) last_turn_only: bool,
    /// The reason why the message is untrusted content; `None` if it is trusted.
    pub(crate) untrusted_reason: Option<&'static str>,
}

/// State shared by the turns of one REPL.
pub(crate) struct ReplContext {
    /// Answers the model's questions and approves tool calls.
    pub(crate) user_prompt: Arc<dyn UserPrompt>,
    /// Answers the questions of MCP servers.
    pub(crate) elicitation: Arc<dyn ElicitationHandler>,
    /// Input that is sent with the next message, like piped text. The turn that sends it takes it.
    pub(crate) extra_input: RefCell<Option<Vec<u8>>>,
    /// Prints an error with next steps that fit the REPL.
    pub(crate) print_error: fn(&anyhow::Error, Terminal),
}
