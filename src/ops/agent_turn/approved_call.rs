//! The call that a person has approved after an earlier turn: it is made before the model is asked, and the message of the turn has its
//! result.

use super::prepare::PreparedTurn;
use crate::ops::call_approvals::DeferredApprovals;
use anyhow::Result;
use nanobot_base::message::user_text::OthersContent;
use nanobot_base::message::{
    Message, MessagePart, Origin, Reply, ToolCall, plain_text, tagged_block,
};
use nanobot_channel::approvals::{ApprovedCall, ApprovedResult, CallStart, StoredCall};
use nanobot_store::history::head_and_tail::head_and_tail;

/// The result of a call after whose begin the process was stopped.
const UNKNOWN_RESULT: &str =
    "The program was stopped while it made this call. It may have happened, and was not repeated.";
/// The result of a call that was approved and could not begin in time.
const EXPIRED_RESULT: &str = "The call was not made: it could not begin within an hour, or a file that it changes is another one now.";

/// Makes the call that was approved, if there is one, and adds its result to the message. A message that is in the session already has it.
///
/// # Errors
/// The state of the approval cannot be read or written.
pub(crate) fn add_result(
    approvals: &dyn DeferredApprovals,
    turn_id: &str,
    prepared: &mut PreparedTurn,
) -> Result<()> {
    if prepared.message.is_none() {
        return Ok(());
    }
    let Some(ApprovedCall { call, start }) = approvals.begin_approved()? else {
        return Ok(());
    };
    let without_call = |text: &str| ApprovedResult {
        text: text.to_owned(),
        origin: Origin::User,
        content: String::new(),
    };
    let result = match start {
        CallStart::Begin => {
            let result = make(&call, turn_id, prepared);
            approvals.end_approved(&result)?;
            result
        }
        CallStart::Completed(result) => result,
        CallStart::Unknown => without_call(UNKNOWN_RESULT),
        CallStart::Expired => without_call(EXPIRED_RESULT),
    };
    let provenance = &prepared.setup.shared.provenance;
    provenance.raise(result.origin, &result.content);
    let text = format!(
        "The user has approved this call, which you requested before. It is done with: do not repeat it.\n\nArguments: \
         {}\n\nResult:\n{}",
        call.arguments, result.text
    );
    let block = tagged_block("approved_call", Some(&call.tool), &text);
    if let Some(message) = &mut prepared.message {
        message.parts.push(MessagePart::Text(block));
        let sources = message.sources.get_or_insert_default();
        sources.has_model_text = true;
        if result.origin > Origin::User
            && sources.others.as_ref().is_none_or(|others| others.origin < result.origin)
        {
            sources.others = Some(OthersContent::new(result.origin, result.content));
        }
    }
    Ok(())
}

/// Makes the call with the tools of the turn.
fn make(call: &StoredCall, turn_id: &str, prepared: &PreparedTurn) -> ApprovedResult {
    let toolbox = &prepared.setup.toolbox;
    toolbox.observe(prepared.session.messages());
    let tool_call = ToolCall {
        id: format!("{turn_id}-approved"),
        name: call.tool.clone(),
        arguments: call.arguments.clone(),
    };
    let calls = [tool_call];
    // The output goes to the result alone, so no error of a receiver is possible.
    let (completed_calls, _) = toolbox.run(&calls, false, &mut |_, _| Ok(()));
    let provenance = &prepared.setup.shared.provenance;
    let mut text = String::new();
    let [tool_call] = calls;
    provenance
        .observe(&Message::Assistant(Reply { tool_calls: vec![tool_call], ..Reply::default() }));
    for completed_call in completed_calls {
        text = plain_text(&completed_call.result.parts);
        provenance.observe(&Message::Tool(completed_call.result));
    }
    let limit = prepared.settings.max_tool_result_chars;
    let gap = |count| format!("[… {count} characters left out …]");
    let text = head_and_tail(&text, limit - limit / 4, limit / 4, gap).unwrap_or(text);
    let (origin, content) = provenance.origin();
    ApprovedResult { text, origin, content }
}
