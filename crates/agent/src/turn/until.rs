//! The command of `--until`: it has to succeed before an answer ends the turn. It runs as a call of `exec`, so that the policy, the
//! sandbox, the hooks and the journal of changes treat it like every other command of the run. While it fails, its output is
//! the next message.

use super::agent::UntilCommand;
use super::ending::Round;
use super::{LoopEnd, Turn};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::event::{Event, StopReason, ToolOutcome};
use nanobot_base::message::user_text::{MessageSources, OthersContent};
use nanobot_base::message::{
    Message, MessagePart, Reply, ResultSource, ToolCall, UserMessage, plain_text, tagged_block,
};
use nanobot_config::policy::tool_names::EXEC;
use nanobot_os::signal;
use nanobot_tool::CompletedCall;
use serde_json::json;

impl Turn<'_, '_, '_> {
    /// Runs the command before the turn. True if it succeeds, so that there is nothing to do.
    ///
    /// # Errors
    /// The run may not run the command, or there is no such program for it.
    pub(super) fn is_done_already(&mut self) -> Result<bool> {
        let Some(until) = self.agent.until else {
            return Ok(false);
        };
        let call = self.run_until_command(until)?;
        if let Some(program) = &call.missing_program
            && !until.is_forced
        {
            let (cause, remedy) = if program.contains('/') {
                (
                    format!("commands of the run do not see `{program}`"),
                    format!("`--read={program}`"),
                )
            } else {
                (format!("there is no program `{program}`"), "another command".to_owned())
            };
            return Err(fail(
                Exit::Usage,
                format!("the command of `--until` cannot succeed: {cause}"),
            )
            .with_hint(format!("{remedy}; `--force` sends the message all the same")));
        }
        Ok(has_succeeded(&call) && !until.is_forced)
    }

    /// Accepts `reply` as the answer if the command succeeds. `None` if the model is to be asked again.
    pub(super) fn accept_by_command(
        &mut self,
        stop_reason: StopReason,
        reply: Reply,
    ) -> Result<Option<LoopEnd>> {
        let Some(until) = self.agent.until.filter(|_| stop_reason == StopReason::Answered) else {
            return Ok(Some(LoopEnd { stop_reason, reply: Some(reply) }));
        };
        let call = match self.run_until_command(until) {
            Ok(call) => call,
            Err(error) => {
                // The answer is paid for.
                let (_, message) = self.complete_answer(reply);
                self.session.push(message)?;
                return Err(error);
            }
        };
        let output = plain_text(&call.result.parts);
        let has_succeeded = has_succeeded(&call);
        let failure = (!has_succeeded).then(|| last_line(&output).to_owned());
        self.rounds.push(Round { failure, duration: call.duration });
        if has_succeeded {
            return Ok(Some(LoopEnd { stop_reason, reply: Some(reply) }));
        }
        if self.rounds.len() >= until.max_rounds as usize {
            return Ok(Some(LoopEnd { stop_reason: StopReason::RoundLimit, reply: Some(reply) }));
        }
        let (reply, message) = self.complete_answer(reply);
        self.cut_count = 0;
        self.session.push(message)?;
        self.emit_reply(&reply, false)?;
        let origin = self.agent.toolbox.observe_result(&call.result);
        let text = format!(
            "[nanobot] The task is done when `{}` succeeds. It failed after your answer:\n\n{}",
            until.command,
            tagged_block("output", None, &output)
        );
        let user = UserMessage {
            id: self.until_id(),
            parts: vec![MessagePart::Text(text)],
            injected: true,
            sources: Some(MessageSources {
                others: Some(OthersContent::new(origin, "the output of `--until`")),
                ..MessageSources::default()
            }),
            ..UserMessage::default()
        };
        self.session.push(Message::User(user.clone()))?;
        (self.sink)(Event::User(&user))?;
        Ok(None)
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// The run may not run it, or was stopped.
    fn run_until_command(&mut self, until: &UntilCommand) -> Result<CompletedCall> {
        let toolbox = self.agent.toolbox;
        if toolbox.find(EXEC).is_none() {
            return Err(fail(
                Exit::Refused,
                "`--until` runs a command as `exec` does, and this run has no `exec`",
            )
            .with_hint("`nanobot tool list` with the same flags lists the tools"));
        }
        let call = ToolCall {
            id: self.until_id(),
            name: EXEC.to_owned(),
            arguments: json!({ "command": until.command }),
        };
        toolbox.observe(self.session.messages());
        (self.sink)(Event::ToolCall(&call))?;
        let mut on_output = |call: &ToolCall, text: &str| {
            (self.sink)(Event::ToolOutput { call_id: &call.id, text })
        };
        let (calls, sink_result) = toolbox.run(std::slice::from_ref(&call), false, &mut on_output);
        let call = calls.into_iter().next().expect("one call has one result");
        sink_result?;
        if call.result.source == ResultSource::NotMade {
            return Err(refusal_error(&call));
        }
        self.stats.count_call(&call);
        (self.sink)(call.event())?;
        signal::check()?;
        Ok(call)
    }

    /// The id of the call after the latest answer, and of the message about it.
    fn until_id(&self) -> String {
        format!("{}-until{}", self.session.turn(), self.stats.iterations)
    }
}

fn has_succeeded(call: &CompletedCall) -> bool {
    call.outcome == ToolOutcome::Ok && !call.command_failed
}

fn last_line(output: &str) -> &str {
    output.trim_end().lines().next_back().unwrap_or_default()
}

/// The error for a command that was not run.
fn refusal_error(call: &CompletedCall) -> anyhow::Error {
    let Some(denial) = &call.denial else {
        let text = plain_text(&call.result.parts);
        return fail(Exit::Refused, format!("`--until` cannot run its command: {text}"));
    };
    let cause = format!("`--until` may not run its command: {}", denial.message);
    match &denial.suggested_flag {
        Some(flag) => fail(Exit::Refused, cause).with_hint(format!("`{flag}`")),
        None => fail(Exit::Refused, cause),
    }
}
