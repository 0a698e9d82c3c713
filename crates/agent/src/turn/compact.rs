//! Compaction when a conversation no longer fits: first old tool results are shortened, which costs nothing; then a
//! summary by the model replaces the messages. Without a summary the messages stay, unless the server rejects the request
//! as too long: then they are left out, if no hook forbids it.

use super::Turn;
use super::agent::Agent;
use super::ending::Ending;
use anyhow::Result;
use nanobot_base::error::{Exit, exit_for, fail, outside_turn};
use nanobot_base::event::{Event, EventSink};
use nanobot_base::message::token_estimate;
use nanobot_base::message::{FinishReason, Message, MessagePart, Reply, UserMessage};
use nanobot_model::provider::{Delta, FailureKind, ProviderError, Request};
use nanobot_store::history::compaction::{CompactedHistory, MAX_USER_TOKENS};
use nanobot_store::session::{Session, SessionStats};
use std::time::Instant;

/// Maximum number of requests for one summary. Each has half of the messages of the previous one, which were too long.
const MAX_SUMMARY_REQUESTS: u32 = 6;

/// Replaces the messages that are left out of the request for a summary.
const OMISSION_NOTE: &str = "[nanobot] Earlier messages are omitted because they do not fit.";

/// Replaces the summary when none could be made.
const NO_SUMMARY: &str = "No summary of the earlier answers and tool results could be made. Look up again what is needed.";

/// The beginning of the error of a compaction that the user asked for.
const NOT_COMPACTED: &str = "the session was not compacted";

/// The measures taken so far to make one request fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ShrinkStage {
    #[default]
    Full,
    ResultsTruncated,
    Summarized,
}

/// The outcome of a compaction that has not failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CompactionOutcome {
    /// Context size before and after it, in tokens.
    Compacted { before: u64, after: u64 },
    /// There are no messages that a summary could replace.
    NothingToCompact,
    /// A hook forbids it, for this reason.
    Forbidden(String),
}

/// Compacts a conversation now, regardless of its size. The answer describes the result.
pub fn compact_now(
    agent: &mut Agent<'_>,
    session: &mut Session,
    instructions: Option<&str>,
    sink: &mut EventSink<'_>,
) -> Ending {
    let mut turn = Turn::new(agent, session, sink);
    let compaction = turn
        .compact(instructions, 0, None)
        .map_err(|error| outside_turn(error.into_failure(), NOT_COMPACTED));
    let (text, error) = match compaction {
        Ok(CompactionOutcome::NothingToCompact) => ("Nothing to compact.".to_owned(), None),
        Ok(CompactionOutcome::Compacted { before, after }) => {
            turn.stats.context_tokens = after;
            (format!("Compacted: {before} → {after} tokens."), None)
        }
        Ok(CompactionOutcome::Forbidden(cause)) => {
            let error = outside_turn(fail(Exit::Failed, cause), NOT_COMPACTED);
            (String::new(), Some(error))
        }
        Err(error) => (String::new(), Some(error)),
    };
    let exit = error.as_ref().map_or(Exit::Answered, exit_for);
    // A manual compaction is not a turn.
    let stats = SessionStats { turns: 0, ..turn.stats.to_session_stats() };
    let mut error = error.or(turn.session.end_turn(None, exit.name(), &stats).err());
    let reply = Reply { text, ..Reply::default() };
    if error.is_none() {
        let event = Event::Assistant { reply: &reply, is_final: true };
        error = (turn.sink)(event).err();
    }
    Ending { text: reply.text, stats: turn.stats, error, ..Ending::default() }
}

impl Turn<'_, '_, '_> {
    /// Estimated tokens of the next request, corrected by the provider's last count.
    pub(super) fn context_tokens(&self) -> u64 {
        self.calibrated(self.estimated_tokens())
    }

    /// The part of these tokens that belongs to messages.
    pub(super) fn message_tokens(&self) -> u64 {
        self.calibrated(self.session.estimated_tokens())
    }

    fn calibrated(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.session.history_window().token_ratio.unwrap_or(1.0)) as u64
    }

    /// Estimated tokens of the next request, uncorrected.
    pub(super) fn estimated_tokens(&self) -> u64 {
        self.overhead_tokens + self.session.estimated_tokens()
    }

    /// Reduces a context that has reached `threshold` tokens. If that fails, the turn goes on with all messages, since the
    /// model may accept them anyway.
    pub(super) fn reduce_context(&mut self, threshold: u64) -> Result<()> {
        if self.compaction_exhausted {
            return Ok(());
        }
        let before = self.context_tokens();
        let old = newest_exchange_start(self.session.messages());
        if self.session.shorten_old_results(old) && self.context_tokens() < threshold / 10 * 7 {
            let after = self.context_tokens();
            let notice =
                format!("old tool results are truncated from now on: {before} → {after} tokens");
            return (self.sink)(Event::Notice(&notice));
        }
        let compaction = self.compact(None, threshold / 6, Some(threshold));
        self.compaction_exhausted =
            !self.report_compaction(compaction)? || self.context_tokens() >= threshold;
        Ok(())
    }

    /// Reports the outcome of a compaction. True if the context is shorter now. A failure does not end the turn, unless the
    /// run is being stopped or its budget is spent.
    fn report_compaction(
        &mut self,
        result: Result<CompactionOutcome, ProviderError>,
    ) -> Result<bool> {
        let failed =
            |cause: String| (false, format!("the session could not be compacted: {cause}"));
        let (is_compacted, notice) = match result {
            Ok(CompactionOutcome::NothingToCompact) => return Ok(false),
            Err(error @ (ProviderError::Aborted(_) | ProviderError::BudgetExceeded(_))) => {
                return Err(error.into_failure());
            }
            Ok(CompactionOutcome::Compacted { before, after }) => {
                (true, format!("the session was compacted: {before} → {after} tokens"))
            }
            Ok(CompactionOutcome::Forbidden(cause)) => failed(cause),
            Err(error) => failed(error.to_string()),
        };
        (self.sink)(Event::Notice(&notice))?;
        Ok(is_compacted)
    }

    /// Shortens a request that the server rejected as too long. True if that was possible.
    pub(super) fn shrink_request(&mut self, stage: &mut ShrinkStage) -> Result<bool> {
        if *stage == ShrinkStage::Full {
            *stage = ShrinkStage::ResultsTruncated;
            if self.session.shorten_old_results(self.session.messages().len()) {
                let notice =
                    "the session is too long for the model; long tool results are truncated";
                (self.sink)(Event::Notice(notice))?;
                return Ok(true);
            }
        }
        if *stage == ShrinkStage::ResultsTruncated {
            *stage = ShrinkStage::Summarized;
            let compaction = self.compact(None, self.session.estimated_tokens() / 4, None);
            let is_forbidden = matches!(compaction, Ok(CompactionOutcome::Forbidden(_)));
            if self.report_compaction(compaction)? {
                return Ok(true);
            }
            // Messages that must not be summarized must not be dropped either.
            if is_forbidden {
                return Ok(false);
            }
            if self.omit_old_messages()? {
                return Ok(true);
            }
        }
        self.truncate_compacted_messages()
    }

    /// Leaves out the messages that could not be summarized, except those of the user. True if there were any. Without this,
    /// a model that cannot summarize would end the conversation.
    fn omit_old_messages(&mut self) -> Result<bool> {
        let Some((old, keep)) = self.replaceable_messages(self.session.estimated_tokens() / 4)
        else {
            return Ok(false);
        };
        // The rest alone is too long.
        if token_estimate::for_messages(&old) < self.session.estimated_tokens() / 4 {
            return Ok(false);
        }
        match self.replace_messages(&old, keep, NO_SUMMARY, MAX_USER_TOKENS) {
            Ok(()) => {}
            Err(ProviderError::Aborted(error)) => return Err(error),
            Err(_) => return Ok(false),
        }
        let notice =
            "the session is too long for the model; earlier answers and tool results are left out";
        (self.sink)(Event::Notice(notice))?;
        Ok(true)
    }

    /// Halves the user's messages that an earlier compaction kept beside its summary, if they are a large part of the request. That
    /// compaction was made for a larger window. True if that was possible.
    fn truncate_compacted_messages(&mut self) -> Result<bool> {
        let Some(previous) = self.session.summary() else {
            return Ok(false);
        };
        let user_tokens = previous.user_tokens();
        if user_tokens < self.session.estimated_tokens() / 4 {
            return Ok(false);
        }
        let truncated =
            CompactedHistory::new(&previous.summary, Some(previous), &[], user_tokens / 2);
        if truncated.user_tokens() >= user_tokens {
            return Ok(false);
        }
        self.session.compact(self.session.messages().len() - 1, truncated)?;
        let notice =
            "the session is too long for the model; the user's earlier messages are truncated";
        (self.sink)(Event::Notice(notice))?;
        Ok(true)
    }

    /// Replaces all but the end of the turn by a summary; that end is kept if it has at most `max_tail_tokens` tokens.
    pub(super) fn compact(
        &mut self,
        instructions: Option<&str>,
        max_tail_tokens: u64,
        threshold: Option<u64>,
    ) -> Result<CompactionOutcome, ProviderError> {
        let Some((old, keep)) = self.replaceable_messages(max_tail_tokens) else {
            return Ok(CompactionOutcome::NothingToCompact);
        };
        let before = self.context_tokens();
        let mut instructions = instructions.map(str::to_owned);
        // A compaction that the user asked for keeps no tail.
        let is_automatic = max_tail_tokens > 0;
        if let Some(hooks) = self.agent.hooks {
            let added = match hooks.before_compaction(is_automatic, instructions.as_deref()) {
                Ok(added) => added,
                Err(cause) => return Ok(CompactionOutcome::Forbidden(cause)),
            };
            let parts: Vec<String> = instructions.into_iter().chain(added).collect();
            instructions = (!parts.is_empty()).then(|| parts.join("\n"));
        }
        let start = Event::CompactStart { tokens: before, threshold };
        (self.sink)(start).map_err(ProviderError::Aborted)?;
        let started = Instant::now();
        let summary = self.summarize(&old, instructions.as_deref());
        let result = summary.and_then(|text| {
            // Limit the user's messages, so that they leave enough room for the work.
            let budget =
                threshold.map_or(MAX_USER_TOKENS, |threshold| MAX_USER_TOKENS.min(threshold / 8));
            self.replace_messages(&old, keep, &text, budget)
        });
        let after = self.context_tokens();
        let error = result.as_ref().err().map(ToString::to_string);
        let end = Event::CompactEnd {
            before,
            after,
            error: error.as_deref(),
            duration: started.elapsed(),
        };
        (self.sink)(end).map_err(ProviderError::Aborted)?;
        result.map(|()| CompactionOutcome::Compacted { before, after })
    }

    /// The messages that a summary may replace, and the number of those after them. `None` without a reply among them: there
    /// are only messages of the user then, which must not be altered.
    fn replaceable_messages(&self, max_tail_tokens: u64) -> Option<(Vec<Message>, usize)> {
        let messages = self.session.messages();
        let (old, tail) = messages.split_at(split_index(messages, max_tail_tokens));
        let is_reply = |message: &Message| matches!(message, Message::Assistant(reply) if reply.finish_reason != FinishReason::Interrupted);
        old.iter().any(is_reply).then(|| (old.to_vec(), tail.len()))
    }

    /// Replaces `old`, which are all messages but the last `keep`, by `summary` and at most `user_budget` tokens of the
    /// user's messages.
    fn replace_messages(
        &mut self,
        old: &[Message],
        keep: usize,
        summary: &str,
        user_budget: u64,
    ) -> Result<(), ProviderError> {
        let old_tokens = token_estimate::for_messages(old);
        let budget = user_budget.min(old_tokens / 2);
        let summary = CompactedHistory::new(summary, self.session.summary(), old, budget);
        if token_estimate::for_message(&summary.to_message()) >= old_tokens {
            let cause = "the summary is not shorter than the messages it replaces";
            return Err(ProviderError::new(FailureKind::Refused, cause));
        }
        // The summary does not show the origin of the replaced messages.
        self.agent.record_origin(self.session);
        self.session.compact(keep, summary).map_err(ProviderError::Aborted)
    }

    /// Requests a summary of `messages` from the model. If they are too long for that, the older ones are left out.
    fn summarize(
        &mut self,
        messages: &[Message],
        instructions: Option<&str>,
    ) -> Result<String, ProviderError> {
        self.summary_count += 1;
        let id = format!("{}-s{}", self.session.turn(), self.summary_count);
        let prompt =
            injected_message(summary_prompt(self.agent.summary_instructions, instructions));
        let mut note = None;
        let mut remaining = messages;
        for _ in 0..MAX_SUMMARY_REQUESTS {
            let request = [note.as_slice(), remaining, std::slice::from_ref(&prompt)];
            match self.request_summary(&request.concat(), &id) {
                Err(ProviderError::Failed { kind: FailureKind::ContextExceeded, .. }) => {
                    note = Some(injected_message(OMISSION_NOTE.to_owned()));
                    remaining = newer_half(remaining);
                    // A summary of the note alone would be of nothing.
                    if remaining.is_empty() {
                        break;
                    }
                }
                Ok(reply) if reply.text.trim().is_empty() => {
                    let cause = "the model returned an empty summary";
                    return Err(ProviderError::new(FailureKind::Refused, cause));
                }
                Ok(reply)
                    if matches!(
                        reply.finish_reason,
                        FinishReason::Length | FinishReason::Refusal | FinishReason::Other(_)
                    ) =>
                {
                    let cause = "the model returned an incomplete summary";
                    return Err(ProviderError::new(FailureKind::Refused, cause));
                }
                answer => return answer.map(|reply| reply.text),
            }
        }
        let cause = "even the most recent messages are too long to summarize";
        Err(ProviderError::new(FailureKind::ContextExceeded, cause))
    }

    fn request_summary(&mut self, messages: &[Message], id: &str) -> Result<Reply, ProviderError> {
        let tools = self.agent.toolbox.requested_specs(messages);
        let request = self.agent.build_request(messages, &tools, false, id);
        let request = Request { schema: None, ..request };
        let started = Instant::now();
        let reply = self.agent.provider.reply(&request, &mut |delta| match delta {
            // The summary is not an answer, so its text is not printed.
            Delta::Text(_) | Delta::Reasoning(_) => Ok(()),
            delta => {
                if let Delta::Charged { usage, cost } = delta {
                    self.stats.add_charge(usage, cost);
                }
                (self.sink)(delta.into_event(id))
            }
        })?;
        self.stats.request_time += started.elapsed();
        self.stats.add_usage(&reply);
        (self.sink)(Event::Usage { message_id: id, usage: reply.usage, cost: reply.cost })
            .map_err(ProviderError::Aborted)?;
        Ok(reply)
    }
}

/// Our instructions for the summary.
const SUMMARY_PROMPT: &str = "[nanobot] The conversation so far will be replaced by a summary. Write this summary now, for \
    yourself, in the language of the conversation:\n\
    - the user's goals, constraints and preferences;\n\
    - what was done and learned, with the exact names, paths, commands, numbers and error messages still needed;\n\
    - which files were read or changed, and their current state;\n\
    - decisions and the reasons for them; what was tried and failed;\n\
    - open tasks, and the next step.\n\
    The user's messages are kept verbatim next to the summary: do not repeat them. Be concise, but omit nothing \
    that is still needed. Reply with the summary only; tools are not available now.";

/// The instructions for the summary: `own_text` of the config, or ours.
fn summary_prompt(own_text: Option<&str>, instructions: Option<&str>) -> String {
    let mut text = own_text.unwrap_or(SUMMARY_PROMPT).to_owned();
    if let Some(instructions) = instructions {
        text.push_str("\n\nInstructions from the user: ");
        text.push_str(instructions);
    }
    text
}

/// Index of the start of the newest exchange: the last reply with its results, or the user message.
fn newest_exchange_start(messages: &[Message]) -> usize {
    let begins = |message: &Message| !matches!(message, Message::Tool(_));
    messages.iter().rposition(begins).unwrap_or(0)
}

/// Index at which `messages` are cut. A message without a reply is always kept. Otherwise the cut is before the turn if the turn has at
/// most `max_tail_tokens` tokens, else before the newest exchange if that has no more, else after all messages.
fn split_index(messages: &[Message], max_tail_tokens: u64) -> usize {
    let turn = messages.iter().rposition(Message::begins_turn);
    let is_reply = |message: &Message| matches!(message, Message::Assistant(_));
    let is_open = turn.is_some_and(|at| !messages[at..].iter().any(is_reply));
    let fits =
        |at: &usize| is_open || token_estimate::for_messages(&messages[*at..]) <= max_tail_tokens;
    let candidates = turn.into_iter().chain([newest_exchange_start(messages)]);
    candidates.filter(|at| *at > 0 || is_open).find(fits).unwrap_or(messages.len())
}

/// The newer half of `messages`, less the tool results at its start, whose calls are not in it. May be empty.
fn newer_half(messages: &[Message]) -> &[Message] {
    let half = &messages[messages.len().div_ceil(2)..];
    let is_result = |message: &Message| matches!(message, Message::Tool(_));
    let start = half.iter().position(|message| !is_result(message));
    &half[start.unwrap_or(half.len())..]
}

fn injected_message(text: String) -> Message {
    Message::User(UserMessage {
        parts: vec![MessagePart::Text(text)],
        injected: true,
        ..UserMessage::default()
    })
}

#[cfg(test)]
mod tests {
    use super::{newer_half, split_index};
    use nanobot_base::message::{
        Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult, UserMessage,
    };
    use serde_json::json;

    /// `u`: a user, `w`: a warning, `c`: a call, `r`: its result, `a`: an answer; each of at least ten tokens.
    fn conversation(letters: &str) -> Vec<Message> {
        let parts = || vec![MessagePart::Text("x".repeat(40))];
        let message = |letter| match letter {
            'r' => Message::Tool(ToolResult {
                call_id: "c".into(),
                name: "t".into(),
                parts: parts(),
                failed: false,
                source: ResultSource::Unspecified,
            }),
            'c' => Message::Assistant(Reply {
                tool_calls: vec![ToolCall {
                    id: "c".into(),
                    name: "t".into(),
                    arguments: json!({ "x": "x".repeat(30) }),
                }],
                ..Reply::default()
            }),
            'a' => Message::Assistant(Reply { text: "x".repeat(40), ..Reply::default() }),
            letter => Message::User(UserMessage {
                parts: parts(),
                injected: letter == 'w',
                ..UserMessage::default()
            }),
        };
        letters.chars().map(message).collect()
    }

    #[test]
    fn keeps_the_current_turn_if_it_fits() {
        let check = |letters: &str, tail: u64, expect: usize| {
            assert_eq!(split_index(&conversation(letters), tail), expect, "{letters}");
        };
        check("uau", 20, 2);
        check("uau", 5, 2);
        check("uaucr", 200, 2);
        check("uaucrcrcr", 50, 7);
        check("uaucrcrcr", 10, 9);
        check("ucr", 60, 1);
        check("uauw", 60, 2);
        check("uaw", 5, 3);
        check("u", 60, 0);
        // A warning is not an answer.
        check("uauw", 5, 2);
    }

    #[test]
    fn newer_half_starts_with_no_result() {
        let check = |letters: &str, expect: usize| {
            let messages = conversation(letters);
            let half = newer_half(&messages);
            assert_eq!(half.len(), expect, "{letters}");
            assert!(messages.ends_with(half), "{letters}");
            assert!(!matches!(half.first(), Some(Message::Tool(_))), "{letters}");
        };
        check("uauaua", 3);
        check("uau", 1);
        check("ucrcrcr", 2);
        check("ua", 1);
        // Nothing is left: another request would be the same, or have no messages.
        check("a", 0);
        check("ucr", 0);
        check("ucrrrrrrrrrr", 0);
    }
}
