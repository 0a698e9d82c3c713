//! The questions of a conversation on disk, and the call that its turn makes because a person has approved it. Chats and named pipes have
//! them.

use anyhow::Result;
use nanobot_channel::approvals::{
    ApprovalFile, ApprovedCall, ApprovedResult, CallStart, QuestionDraft, StoredCall,
};
use nanobot_config::policy::Refusal;
use nanobot_os::clock::Clock;
use nanobot_tool::{Approval, ToolError};
use parking_lot::Mutex;
use std::path::PathBuf;

/// The result of a call that became a question.
const ASKED: &str = "Tool call denied for now: the call needs the user's approval. The program asks the user itself, after your answer, \
    and shows the whole call. Do not repeat the call, do not try another way, and do not ask for the approval yourself. If the user approves, \
    the program makes the call and gives you its result in a later message.";

/// The questions of a conversation, and the call that its turn makes because a person has approved it.
pub(crate) trait DeferredApprovals: Send + Sync {
    /// Approves a call that the person has approved before, or records the question. `refusal` is the reason for it.
    ///
    /// # Errors
    /// The call is not made now.
    fn decide(&self, draft: QuestionDraft, refusal: &Refusal) -> Result<Approval, ToolError>;

    /// Begins the call that was approved; `None` if this turn has none.
    ///
    /// # Errors
    /// The state cannot be read or written. The call must not be made then.
    fn begin_approved(&self) -> Result<Option<ApprovedCall>>;

    /// Records the result of the call that was begun.
    ///
    /// # Errors
    /// The state cannot be written.
    fn end_approved(&self, result: &ApprovedResult) -> Result<()>;
}

/// The approvals of a turn.
pub(crate) struct CallApprovals {
    path: PathBuf,
    clock: Clock,
    session: String,
    /// The sender whose message the turn answers; `None` for a program.
    sender: Option<String>,
    /// The id of that message; the last one, if the turn answers several.
    message: String,
    /// The question whose call the turn makes.
    approved_id: Option<String>,
    /// The approved call, while it is made.
    running_call: Mutex<Option<StoredCall>>,
}

impl CallApprovals {
    /// The approvals of a turn in `session` that answers the message with the id `message` of `sender`, in the file at `path`.
    /// `approved_id` names the question that the message has approved.
    pub(crate) fn new(
        path: PathBuf,
        clock: Clock,
        session: &str,
        sender: Option<&str>,
        message: &str,
        approved_id: Option<String>,
    ) -> Self {
        Self {
            path,
            clock,
            session: session.to_owned(),
            sender: sender.map(str::to_owned),
            message: message.to_owned(),
            approved_id,
            running_call: Mutex::default(),
        }
    }

    fn now(&self) -> i64 {
        self.clock.timestamp().as_millisecond()
    }
}

impl DeferredApprovals for CallApprovals {
    fn decide(&self, draft: QuestionDraft, refusal: &Refusal) -> Result<Approval, ToolError> {
        let denial = || ToolError::Denied(refusal.clone());
        if let Some(running_call) = &*self.running_call.lock() {
            // The approval is for exactly this call and this permission.
            return if *running_call == draft.call { Ok(Approval::Asked) } else { Err(denial()) };
        }
        let (session, sender, now) = (&self.session, self.sender.as_deref(), self.now());
        let decision = ApprovalFile::change(&self.path, now, |file| {
            if file.has_lasting(session, sender, &draft.call) {
                return Ok(Approval::Earlier);
            }
            let is_asked = file.ask(session, sender, &self.message, draft, now).is_some();
            Err(if is_asked { ToolError::Declined(ASKED.into()) } else { denial() })
        });
        decision.unwrap_or_else(|error| {
            log::warn!(target: "channel", "no approval can be asked for: {error:#}");
            Err(denial())
        })
    }

    fn begin_approved(&self) -> Result<Option<ApprovedCall>> {
        let Some(id) = &self.approved_id else {
            return Ok(None);
        };
        let approved_call = ApprovalFile::change(&self.path, self.now(), |file| file.begin(id))?;
        if let Some(ApprovedCall { call, start: CallStart::Begin }) = &approved_call {
            *self.running_call.lock() = Some(call.clone());
        }
        Ok(approved_call)
    }

    fn end_approved(&self, result: &ApprovedResult) -> Result<()> {
        *self.running_call.lock() = None;
        let Some(id) = &self.approved_id else {
            return Ok(());
        };
        ApprovalFile::change(&self.path, self.now(), |file| file.end(id, result.clone()))
    }
}
