//! The source of a turn: a command line, a job, a chat, or the user at the REPL or in an editor.

use crate::ops::call_approvals::DeferredApprovals;
use nanobot_agent::prompt::{self, PromptSection};
use nanobot_base::message::user_text::UserText;
use nanobot_base::shell_quote;
use nanobot_config::policy::Policy;
use nanobot_mcp::client::ElicitationHandler;
use nanobot_model::ledger::CallPurpose;
use nanobot_tool::ask_user::UserPrompt;
use nanobot_tool::cron::RepliedJob;
use nanobot_tool::message::ChatTarget;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// The source of a turn: what starts it. What its text comes from is the provenance.
pub(crate) enum TurnSource<'a> {
    CommandLine,
    Job(JobTurn<'a>),
    Chat(ChatTurn<'a>),
    Interactive(&'a InteractiveContext),
}

impl<'a> TurnSource<'a> {
    /// The job that runs the turn.
    pub(crate) fn job(&self) -> Option<&JobTurn<'a>> {
        match self {
            Self::Job(job) => Some(job),
            Self::CommandLine | Self::Chat(_) | Self::Interactive(_) => None,
        }
    }

    /// The chat whose message the turn answers.
    pub(crate) fn chat(&self) -> Option<&ChatTurn<'a>> {
        match self {
            Self::Chat(chat) => Some(chat),
            Self::CommandLine | Self::Job(_) | Self::Interactive(_) => None,
        }
    }

    /// The purpose of the model calls of its turn, for the ledger.
    pub(crate) fn call_purpose(&self, session_key: &str, turn_id: &str) -> CallPurpose {
        let sender = match self {
            Self::Chat(chat) => chat.sender,
            Self::Job(job) => job.binding,
            Self::CommandLine | Self::Interactive(_) => None,
        };
        CallPurpose {
            session: self.chat_key().unwrap_or(session_key).to_owned(),
            turn: turn_id.to_owned(),
            job: self.job().map(|job| job.job_id.to_owned()),
            sender: sender.map(str::to_owned),
            cause: "turn",
        }
    }

    /// The key of the chat that the turn answers, if its session is that of several chats.
    pub(crate) fn chat_key(&self) -> Option<&'a str> {
        match self {
            Self::Chat(chat) => chat.chat_key,
            Self::CommandLine | Self::Job(_) | Self::Interactive(_) => None,
        }
    }

    /// The section of the system prompt about it.
    pub(crate) fn prompt_section(&self) -> Option<PromptSection> {
        match self {
            Self::Job(job) => Some(prompt::job_section(job.job_prompt)),
            Self::Chat(chat) => Some(prompt::chat_section(chat.chat_prompt)),
            Self::CommandLine | Self::Interactive(_) => None,
        }
    }

    /// The flag or the slash command that continues an interrupted turn; a flag has the session before it, unless that is the
    /// default. `None` if nothing continues a turn of this source.
    pub(crate) fn resume_command(
        &self,
        session_key: &str,
        default_session_key: &str,
    ) -> Option<String> {
        match self {
            Self::CommandLine if session_key == default_session_key => Some("--resume".into()),
            Self::CommandLine => Some(format!("-s {} --resume", shell_quote::quote(session_key))),
            Self::Interactive(context) => context.resume_command.map(str::to_owned),
            Self::Job(_) | Self::Chat(_) => None,
        }
    }

    /// Content that comes with the message.
    pub(crate) fn attached(&self) -> &[AttachedContent] {
        match self {
            Self::Interactive(context) => &context.attached,
            Self::Chat(chat) => &chat.attached,
            Self::CommandLine | Self::Job(_) => &[],
        }
    }

    /// The next message that the user has for the running turn.
    pub(crate) fn next_steering_message(&self) -> Option<SteeringMessage> {
        match self {
            Self::Interactive(context) => {
                let text = UserText::typed((context.next_steering_message)()?);
                Some(SteeringMessage { label: String::new(), text })
            }
            Self::Chat(chat) => (chat.next_steering_message.as_ref()?)(),
            Self::CommandLine | Self::Job(_) => None,
        }
    }

    /// The user at the REPL or in an editor whose message the turn answers.
    pub(crate) fn interactive(&self) -> Option<&InteractiveContext> {
        match self {
            Self::Interactive(context) => Some(context),
            Self::CommandLine | Self::Job(_) | Self::Chat(_) => None,
        }
    }
}

/// A turn that a job runs; no user typed its message.
pub(crate) struct JobTurn<'a> {
    /// The job's id, for the ledger.
    pub(crate) job_id: &'a str,
    /// A section of the system prompt about the job.
    pub(crate) job_prompt: &'a str,
    /// Upper bound on the run's permissions.
    pub(crate) policy_limit: Option<&'a Policy>,
    /// Input that is sent with the message, like piped text.
    pub(crate) extra_input: Option<Vec<u8>>,
    /// Send only the last turn of the session's history.
    pub(crate) last_turn_only: bool,
    /// The chat that gets the answer.
    pub(crate) answer_chat: Option<ChatTarget>,
    /// The bound chat or sender that made the job, as `CHANNEL:ID`, for the ledger.
    pub(crate) binding: Option<&'a str>,
}

/// A turn that answers a message of a chat service, or of a program that writes to `nanobot serve pipe`.
pub(crate) struct ChatTurn<'a> {
    /// The turn's id, which is on disk before the turn begins.
    pub(crate) turn_id: &'a str,
    /// The key of the chat, as of a session of its own; `None` if its session has it.
    pub(crate) chat_key: Option<&'a str>,
    /// The sender, as `CHANNEL:ID`, for the ledger; `None` for a program.
    pub(crate) sender: Option<&'a str>,
    /// A section of the system prompt about the chat.
    pub(crate) chat_prompt: &'a str,
    /// Content that comes with the message, like `--attach`.
    pub(crate) attached: Vec<AttachedContent>,
    /// The approvals of calls; `None` if no person can approve one.
    pub(crate) approvals: Option<Arc<dyn DeferredApprovals>>,
    /// The chat or sender whose binding limits the turn, as `CHANNEL:ID`. It limits the jobs that the turn makes, too.
    pub(crate) binding: Option<String>,
    /// The jobs whose messages the sender replies to.
    pub(crate) replied_jobs: Vec<RepliedJob>,
    /// Returns the next message that the sender has written since; `None` if the turn takes none.
    pub(crate) next_steering_message: Option<Box<dyn Fn() -> Option<SteeringMessage> + 'a>>,
}

/// A message that goes into a running turn.
pub(crate) struct SteeringMessage {
    /// Its name in the session; empty if it is not looked up there.
    pub(crate) label: String,
    pub(crate) text: UserText,
}

/// Content that was sent with a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AttachedContent {
    /// The name of its source.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// True if the content comes from outside, such as a web page, rather than from the user or their files.
    pub(crate) is_external: bool,
    /// The file that it was read from, where later turns find an image again.
    pub(crate) path: Option<PathBuf>,
}

/// The user at the REPL or in an editor whose message a turn answers.
pub(crate) struct InteractiveContext {
    /// Answers the model's questions and approves tool calls.
    pub(crate) user_prompt: Arc<dyn UserPrompt>,
    /// Answers the questions of MCP servers.
    pub(crate) elicitation: Arc<dyn ElicitationHandler>,
    /// Input that is sent with the message, like piped text. The turn takes it when it sends it. The REPL keeps what is left
    /// after a turn that failed earlier, and sends it with the next message.
    pub(crate) extra_input: RefCell<Option<Vec<u8>>>,
    /// True once the turn has started a new conversation, which it does not if it fails before it opens the session.
    pub(crate) has_new_conversation: Cell<bool>,
    /// The notice about instruction files that the conversation has shown last.
    pub(crate) reported_notice: Rc<RefCell<Option<String>>>,
    /// Content that comes with the message, like `--attach`.
    pub(crate) attached: Vec<AttachedContent>,
    /// The slash command that continues an interrupted turn, if there is one.
    pub(crate) resume_command: Option<&'static str>,
    /// Returns the next message that the user has for the running turn.
    pub(crate) next_steering_message: Box<dyn Fn() -> Option<String>>,
}
