//! The tools that a model can call: the trait, and the collection of tools of a run.
//!
//! A tool is constructed with everything it needs (paths, limits, deadline), so there is no shared context object. A
//! failing tool is a result for the model, not an error of the program. A new tool is one file, a row in
//! `policy/tool_names.rs` of `nanobot-config`, and a line in the list that a turn builds (`src/ops/turn_setup/toolset.rs` of the program).
//!
//! `nanobot-config` decides what is allowed, and `nanobot-sandbox` contains commands. Start with [`Tool`] and [`Toolbox`]; a
//! small tool is [`delete_file`].

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod attach;
pub mod undo;

use nanobot_base::diff::Diff;
use nanobot_base::event::{Denial, ToolOutcome};
use nanobot_base::message::{
    Message, MessagePart, Origin, ResultSource, ToolCall, ToolResult, ToolSpec, Usage, plain_text,
};
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::provenance::{MessageCursor, ProvenanceTracker};
use nanobot_config::policy::refusal::{DENIED, SuggestedFlag};
use nanobot_config::policy::{Policy, PolicyDecision, Refusal};
use nanobot_os::cancel;
use nanobot_os::secret::{self, redact_all};
use parking_lot::Mutex;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Instant;

pub mod apply_patch;
pub mod archive;
pub mod arguments;
pub mod ask_user;
pub mod call_hooks;
mod call_result;
pub mod cron;
mod dangerous_command;
pub mod delete_file;
pub mod edit_file;
pub mod exec;
pub mod files;
pub mod function_tool;
pub mod generate_image;
pub mod git_patch;
pub mod glob;
pub mod grep;
mod hidden_files;
pub mod host_proxy;
pub mod list_dir;
pub mod masked_text;
pub mod mcp;
pub mod message;
pub mod program;
pub mod read_file;
pub mod sandbox_spec;
pub mod sessions;
pub mod spawn;
pub mod todo;
mod walk;
pub mod web;
pub mod web_fetch;
pub mod web_search;
pub mod write_file;

use call_hooks::{CallHooks, ExecutedCall};
use call_result::{MissingGrant, redact_parts};

pub use call_result::{
    CallEffect, CompletedCall, ToolError, ToolOutput, WithheldChanges, WithheldFile,
};

/// The end of every refusal, so that the model does not try another way.
const DENIAL_SUFFIX: &str = "This is final; continue without it.";

/// A tool that a model can call.
pub trait Tool: Send + Sync {
    /// The name, a description in one sentence, and the schema of the arguments.
    fn spec(&self) -> &ToolSpec;

    /// Runs the tool. The error is text for the model and says what to do next.
    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError>;

    /// The effect of a call with these arguments, exactly as the model gave them. A call runs alone unless the tool says
    /// otherwise: the next one may need what it leaves behind.
    fn effect(&self, _arguments: &Value) -> CallEffect {
        CallEffect::Writes
    }

    /// Converts the arguments that a model sent to those that the tool takes.
    ///
    /// # Errors
    /// The arguments are wrong. The error is a text for the model.
    fn parse_arguments(&self, arguments: &Value) -> Result<Value, String> {
        arguments::cast_and_check(&self.spec().parameters, arguments)
    }

    /// Checks a call without making it, for reasons that the policy cannot know. Called to explain the policy only: [`run`](Self::run)
    /// makes the same check itself.
    fn check_call(&self, _arguments: &Value) -> Result<(), ToolError> {
        Ok(())
    }

    /// True if requests have the tool only once the conversation has called or found it.
    fn is_searched(&self) -> bool {
        false
    }

    /// The names of the searched tools that a call with these arguments finds. The same call finds the same tools.
    fn found_tools(&self, _arguments: &Value) -> Vec<String> {
        Vec::new()
    }

    /// True if the tool has given the answer of this turn to the user, so that no final text is needed.
    fn has_answered(&self) -> bool {
        false
    }
}

/// A call that a tool is to make.
pub struct Call<'a> {
    /// The id of the model's tool call, for later messages about work that continues after the call.
    pub id: &'a str,
    /// An object already cast to and checked against the schema.
    pub arguments: &'a Value,
    /// Receives live output.
    pub on_output: &'a mut dyn FnMut(&str),
    /// Receives the usage of each model reply that the call causes, with its cost in US dollars if that is known. A call that
    /// fails is charged too.
    pub charges: &'a mut Vec<(Usage, Option<f64>)>,
}

/// Makes a call that no model has asked for, without live output.
///
/// # Errors
/// The errors of [`Tool::run`].
pub fn run_alone(tool: &dyn Tool, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let (on_output, charges) = (&mut |_: &str| {}, &mut Vec::new());
    tool.run(&mut Call { id: "", arguments, on_output, charges })
}

/// Asks the user about calls that the policy does not allow by itself. A run without a user has none.
pub trait ApprovalHandler: Send + Sync {
    /// Asks for consent to a call that the policy leaves to the user.
    ///
    /// # Errors
    /// The user declined.
    fn approve(&self, request: &ApprovalRequest<'_>) -> Result<Approval, ToolError>;

    /// Asks the user to grant what the call was refused for, and returns the tools with that permission.
    ///
    /// # Errors
    /// The user declined.
    fn with_grant(&self, request: &ApprovalRequest<'_>) -> Result<(Toolbox, Approval), ToolError>;

    /// False if the user answers after the turn. A denial is then reported as in a run without a user.
    fn answers_at_once(&self) -> bool {
        true
    }
}

/// The way in which a call was approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// The user was asked.
    Asked,
    /// An earlier answer covers it.
    Earlier,
}

/// A call that needs approval, and the reason.
pub struct ApprovalRequest<'a> {
    pub tool: &'a str,
    pub arguments: &'a Value,
    pub refusal: &'a Refusal,
    /// True if the call was made and failed for lack of this permission, so it would be repeated.
    pub is_retry: bool,
    /// The changes of files by the call that wait for consent. If there are any, the call has been made.
    pub withheld: &'a [WithheldFile],
    /// The paths that the run may use.
    pub file_scope: &'a FileScope,
}

/// The facts about an attempt at a call, for its report.
struct CallAttempt {
    /// The start of the attempt. The time for which the user is asked does not count.
    started: Instant,
    was_asked: bool,
    /// True if the call was carried out although it is reported as denied. The text about it may then quote the result.
    was_carried_out: bool,
    /// True if the user could not be asked whether to repeat the call with more access.
    could_not_ask: bool,
    /// Like [`Call::charges`].
    charges: Vec<(Usage, Option<f64>)>,
}

impl CallAttempt {
    /// Records that the call was approved, and starts its time anew.
    fn record_approval(&mut self, approval: Approval) {
        self.started = Instant::now();
        self.was_asked |= approval == Approval::Asked;
    }
}

/// The tools of a run, in the order in which the model gets them.
pub struct Toolbox {
    tools: Vec<Arc<dyn Tool>>,
    specs: Vec<ToolSpec>,
    max_parallel: usize,
    policy: Arc<Policy>,
    provenance: Option<(Arc<ProvenanceTracker>, Mutex<MessageCursor>)>,
    approval_handler: Option<Arc<dyn ApprovalHandler>>,
    hooks: Option<Arc<dyn CallHooks>>,
}

impl Toolbox {
    /// Creates a toolbox that runs at most `max_parallel` tools at a time, under `policy`.
    pub fn new(tools: Vec<Arc<dyn Tool>>, max_parallel: usize, policy: Arc<Policy>) -> Self {
        let specs = tools.iter().map(|tool| tool.spec().clone()).collect();
        Self {
            tools,
            specs,
            max_parallel: max_parallel.max(1),
            policy,
            provenance: None,
            approval_handler: None,
            hooks: None,
        }
    }

    /// Adds the user's hooks around calls.
    pub fn with_hooks(self, hooks: Option<Arc<dyn CallHooks>>) -> Self {
        Self { hooks, ..self }
    }

    /// Adds a way to ask the user for approval.
    pub fn with_approval(self, approval_handler: Option<Arc<dyn ApprovalHandler>>) -> Self {
        Self { approval_handler, ..self }
    }

    /// Adds the provenance of the conversation's content. The decisions of some tools depend on it.
    pub fn with_provenance(self, provenance: Arc<ProvenanceTracker>) -> Self {
        Self { provenance: Some((provenance, Mutex::default())), ..self }
    }

    /// Records the provenance of new messages. Called before a batch of their calls runs.
    pub fn observe(&self, messages: &[Message]) {
        if let Some((provenance, cursor)) = &self.provenance {
            let mut cursor = cursor.lock();
            provenance.observe_all(&mut cursor, messages);
        }
    }

    /// Records the provenance of a result that goes to the model in a user's message. Returns the origin of the conversation with it.
    pub fn observe_result(&self, result: &ToolResult) -> Origin {
        let Some((provenance, _)) = &self.provenance else {
            return Origin::External;
        };
        provenance.observe(&Message::Tool(result.clone()));
        provenance.origin().0
    }

    /// True if a tool has given the answer of this turn to the user.
    pub fn has_answered(&self) -> bool {
        self.tools.iter().any(|tool| tool.has_answered())
    }

    /// The origin of the conversation, and its first content of that origin as a phrase; `None` if it is not tracked. What was not
    /// observed yet is observed now, such as the last results of a turn, which no call follows. `messages` is the full list to be sent, and `of_turn` the part of it that belongs to this turn.
    pub fn origin(&self, messages: &[Message], of_turn: &[Message]) -> Option<(Origin, String)> {
        let (provenance, cursor) = self.provenance.as_ref()?;
        let mut cursor = cursor.lock();
        // The session has the origin of earlier turns. The content of their messages matters only for calls, which most turns
        // do not make, so it is not read here.
        if provenance.is_complete() && cursor.is_at_start() {
            of_turn.iter().for_each(|message| provenance.observe(message));
        } else {
            provenance.observe_all(&mut cursor, messages);
        }
        Some(provenance.origin())
    }

    /// The descriptions of all tools for the model.
    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// The descriptions of the tools that a request with `messages` has: those that are not searched, and those that the messages
    /// have called or found, in this order.
    pub fn requested_specs(&self, messages: &[Message]) -> Cow<'_, [ToolSpec]> {
        if !self.tools.iter().any(|tool| tool.is_searched()) {
            return Cow::Borrowed(&self.specs);
        }
        let tools = self.tools.iter().filter(|tool| !tool.is_searched());
        let mut specs: Vec<ToolSpec> = tools.map(|tool| tool.spec().clone()).collect();
        let replies = messages.iter().filter_map(|message| match message {
            Message::Assistant(reply) => Some(&reply.tool_calls),
            Message::User(_) | Message::Tool(_) => None,
        });
        let mut names = BTreeSet::new();
        for call in replies.flatten() {
            let tool_names = self.find(&call.name).map(|tool| tool.found_tools(&call.arguments));
            for name in tool_names.into_iter().flatten().chain([call.name.clone()]) {
                if let Some(tool) = self.find(&name)
                    && tool.is_searched()
                    && names.insert(name)
                {
                    specs.push(tool.spec().clone());
                }
            }
        }
        Cow::Owned(specs)
    }

    /// The names of all tools.
    pub fn names(&self) -> Vec<&str> {
        self.specs.iter().map(|spec| spec.name.as_str()).collect()
    }

    /// Finds a tool by name.
    pub fn find(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.iter().find(|tool| tool.spec().name == name).map(AsRef::as_ref)
    }

    /// Splits `calls` into groups that run one after another: adjacent reading calls together, a writing call alone.
    pub fn batches<'c>(&self, calls: &'c [ToolCall]) -> impl Iterator<Item = &'c [ToolCall]> {
        let reads = |call: &ToolCall| {
            self.find(&call.name)
                .is_none_or(|tool| tool.effect(&call.arguments) == CallEffect::Reads)
        };
        calls
            .chunk_by(move |call, next| reads(call) && reads(next))
            .flat_map(|group| group.chunks(self.max_parallel))
    }

    /// Runs the calls of a batch in parallel; the results are in call order. `is_truncated` is true if the output limit
    /// ended the reply, which explains arguments that are not JSON. `on_output` is called on this thread. If it fails, the
    /// running tools still run to their end, and its error is returned beside their results.
    pub fn run(
        &self,
        batch: &[ToolCall],
        is_truncated: bool,
        on_output: &mut dyn FnMut(&ToolCall, &str) -> anyhow::Result<()>,
    ) -> (Vec<CompletedCall>, anyhow::Result<()>) {
        self.policy.file_scope.settle();
        if let [call] = batch {
            let mut output_result = Ok(());
            let completed_call = self.run_one(call, is_truncated, &mut |text| {
                if output_result.is_ok() {
                    output_result = on_output(call, text);
                }
            });
            return (vec![completed_call], output_result);
        }
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel::<(usize, String)>();
            let threads: Vec<_> = batch
                .iter()
                .enumerate()
                .map(|(index, call)| {
                    let sender = sender.clone();
                    let token = cancel::current();
                    let run_call = move || {
                        // The receiver outlives the threads, so sending cannot fail.
                        let mut send = |text: &str| drop(sender.send((index, text.to_owned())));
                        cancel::scope(token, || self.run_one(call, is_truncated, &mut send))
                    };
                    // At the user's limit of processes, the call runs on this thread.
                    let thread = std::thread::Builder::new().spawn_scoped(scope, run_call.clone());
                    thread.map_err(|_| Box::new(run_call()))
                })
                .collect();
            drop(sender);
            let mut output_result = Ok(());
            for (index, text) in &receiver {
                output_result = output_result.and_then(|()| on_output(&batch[index], &text));
            }
            let completed_calls = threads.into_iter().map(|thread| match thread {
                Ok(thread) => thread.join().expect("a panic ends the process"),
                Err(completed_call) => *completed_call,
            });
            (completed_calls.collect(), output_result)
        })
    }

    fn run_one(
        &self,
        call: &ToolCall,
        is_truncated: bool,
        on_output: &mut dyn FnMut(&str),
    ) -> CompletedCall {
        let mut attempt = CallAttempt {
            started: Instant::now(),
            was_asked: false,
            was_carried_out: false,
            could_not_ask: false,
            charges: Vec::new(),
        };
        let mut denial = None;
        let mut command_failed = false;
        let mut refused_part = None;
        let mut missing_program = None;
        let mut diff = None;
        let mut source = ResultSource::NotMade;
        // Keys are redacted in all output, wherever the tool read them.
        let mut redactor = secret::StreamRedactor::for_all_keys();
        let mut emit = |text: &str| {
            if !text.is_empty() {
                on_output(text);
            }
        };
        let emit_redacted = &mut |text: &str| emit(&redactor.feed(text));
        let mut deny = |refusal, suffix: &str| {
            let (Refusal { message, suggested_flag, names_flag }, text) =
                redact_refusal(refusal, &self.policy.file_scope.directory, &call.name, suffix);
            denial = Some(Denial {
                call_id: call.id.clone(),
                tool_name: call.name.clone(),
                message,
                suggested_flag,
                names_flag,
            });
            (ToolOutcome::Denied, vec![MessagePart::Text(text)])
        };
        // A missing permission is reported as a denial, unless a person was asked for it during the call, as for what a flag grants.
        let is_reported = self
            .approval_handler
            .as_ref()
            .is_none_or(|approval_handler| !approval_handler.answers_at_once());
        let (outcome, parts) = match self.resolve_call(call, is_truncated) {
            Err(message) => (ToolOutcome::Skipped, vec![MessagePart::Text(message)]),
            Ok((tool, arguments)) => {
                match self.execute(call, &mut attempt, tool, &arguments, emit_redacted) {
                    Ok(output) => {
                        command_failed = output.command_failed;
                        missing_program = output.missing_program;
                        diff = output.diff.map(|diff| redact_all(&diff).into_owned());
                        source = output.source;
                        match output.missing_grant {
                            Some(grant) if !command_failed => {
                                refused_part = Some(describe_refused_part(&grant));
                            }
                            Some(MissingGrant { refusal, is_certain: true })
                                if is_reported
                                    || attempt.could_not_ask
                                    || refusal.suggested_flag.is_none() =>
                            {
                                // The command ran, so its result stands.
                                deny(refusal, "");
                            }
                            _ => {}
                        }
                        (ToolOutcome::Ok, output.parts)
                    }
                    Err(ToolError::Failed(message)) => {
                        source = ResultSource::Unspecified;
                        (ToolOutcome::Failed, vec![MessagePart::Text(message)])
                    }
                    Err(ToolError::NothingRead(message)) => {
                        (ToolOutcome::Failed, vec![MessagePart::Text(message)])
                    }
                    Err(ToolError::Denied(refusal)) => deny(refusal, &format!(". {DENIAL_SUFFIX}")),
                    Err(ToolError::DeniedDuringCall { refusal, .. }) => {
                        source = ResultSource::Unspecified;
                        deny(refusal, &format!(". {DENIAL_SUFFIX}"))
                    }
                    Err(ToolError::Rejected(refusal)) => deny(refusal, ""),
                    // A user who declined does not need a report about it.
                    Err(ToolError::Declined(message)) => {
                        (ToolOutcome::Denied, vec![MessagePart::Text(message)])
                    }
                }
            }
        };
        if attempt.was_carried_out {
            source = ResultSource::Unspecified;
        }
        emit(&redactor.finish());
        let failed = outcome != ToolOutcome::Ok;
        let duration = attempt.started.elapsed();
        log::info!(target: "tool", "`{}` ended after {} ms: {outcome:?}", call.name, duration.as_millis());
        let result = ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            parts: redact_parts(parts),
            failed,
            source,
        };
        CompletedCall {
            result,
            outcome,
            denial,
            duration,
            command_failed,
            refused_part,
            missing_program,
            diff,
            was_asked: attempt.was_asked,
            charges: attempt.charges,
        }
    }

    /// Makes the call if the policy allows it, or if the user approves, with the hooks before and after it.
    fn execute(
        &self,
        call: &ToolCall,
        attempt: &mut CallAttempt,
        tool: &dyn Tool,
        arguments: &Value,
        on_output: &mut dyn FnMut(&str),
    ) -> Result<ToolOutput, ToolError> {
        let Some(hooks) = &self.hooks else {
            return self.decide_and_run(call, attempt, tool, arguments, None, on_output);
        };
        let check = |arguments: &Value| tool.parse_arguments(arguments);
        let before = hooks.before_call(call, arguments, &check)?;
        let arguments = before.arguments.as_ref().unwrap_or(arguments);
        let mut result = self.decide_and_run(
            call,
            attempt,
            tool,
            arguments,
            before.refusal_unless_approved,
            on_output,
        );
        let (text, failed) = match &result {
            Ok(output) => (plain_text(&output.parts), output.command_failed),
            Err(ToolError::Failed(text) | ToolError::NothingRead(text)) => (text.clone(), true),
            // The call was made before it was denied.
            Err(ToolError::DeniedDuringCall { refusal, .. }) => (refusal.message.clone(), true),
            Err(ToolError::Declined(text)) if attempt.was_carried_out => (text.clone(), true),
            Err(_) => return result,
        };
        let duration = attempt.started.elapsed();
        let executed = ExecutedCall { text: &text, failed, duration };
        let mut after = hooks.after_call(call, arguments, &executed);
        after.comments.splice(0..0, before.comments);
        after.apply(&mut result);
        result
    }

    /// Decides about the call and makes it, as [`Self::execute`] does, without hooks. `refusal_unless_approved` is set if a hook requires the user's
    /// approval; it is the text of the question.
    fn decide_and_run(
        &self,
        call: &ToolCall,
        attempt: &mut CallAttempt,
        tool: &dyn Tool,
        arguments: &Value,
        refusal_unless_approved: Option<Refusal>,
        on_output: &mut dyn FnMut(&str),
    ) -> Result<ToolOutput, ToolError> {
        let request = ApprovalRequest {
            tool: &call.name,
            arguments,
            refusal: &Refusal::new(""),
            is_retry: false,
            withheld: &[],
            file_scope: &self.policy.file_scope,
        };
        self.permit(attempt, &request, refusal_unless_approved)?;
        let mut result = tool.run(&mut Call {
            id: &call.id,
            arguments,
            on_output,
            charges: &mut attempt.charges,
        });
        let Some(approval_handler) = &self.approval_handler else {
            return result;
        };
        let withheld_changes = match &mut result {
            Err(ToolError::DeniedDuringCall { withheld, .. }) => withheld.take(),
            _ => None,
        };
        match &result {
            Err(
                ToolError::Denied(refusal @ Refusal { suggested_flag: Some(flag), .. })
                | ToolError::DeniedDuringCall {
                    refusal: refusal @ Refusal { suggested_flag: Some(flag), .. },
                    ..
                },
            ) => {
                let withheld = withheld_changes
                    .as_ref()
                    .map_or_else(Vec::new, |withheld_changes| withheld_changes.allowed_by(flag));
                let was_made = matches!(&result, Err(ToolError::DeniedDuringCall { .. }));
                let question_start = Instant::now();
                let grant = approval_handler.with_grant(&ApprovalRequest {
                    refusal,
                    is_retry: was_made && withheld.is_empty(),
                    withheld: &withheld,
                    ..request
                });
                let (toolbox, approval) = match grant {
                    Ok(grant) => grant,
                    // A denial of a call that was made stays one.
                    Err(error)
                        if withheld.is_empty()
                            && !(was_made && matches!(error, ToolError::Denied(_))) =>
                    {
                        return Err(error);
                    }
                    // The call was made, and its result says which changes were undone.
                    Err(ToolError::Declined(answer)) => {
                        attempt.started += question_start.elapsed();
                        attempt.was_carried_out = true;
                        let outcome = &refusal.message;
                        return Err(ToolError::Declined(format!("{outcome}\n({answer})")));
                    }
                    // The user cannot be asked about it.
                    Err(_) => return result,
                };
                attempt.record_approval(approval);
                match withheld_changes {
                    Some(withheld_changes) if !withheld.is_empty() => withheld_changes.make(flag),
                    _ => toolbox.retry(call, attempt, arguments, on_output),
                }
            }
            Ok(ToolOutput {
                missing_grant: Some(MissingGrant { refusal, .. }),
                command_failed: true,
                ..
            }) => {
                let question_start = Instant::now();
                match approval_handler.with_grant(&ApprovalRequest {
                    refusal,
                    is_retry: true,
                    ..request
                }) {
                    Ok((toolbox, approval)) => {
                        attempt.record_approval(approval);
                        toolbox.retry(call, attempt, arguments, on_output)
                    }
                    // The call was made, so its result stands, with the user's answer. The time of the question is not counted.
                    Err(error) => {
                        attempt.started += question_start.elapsed();
                        match (&mut result, error) {
                            (Ok(output), ToolError::Declined(answer)) => {
                                output.parts.push(MessagePart::Text(format!("({answer})")));
                            }
                            (_, ToolError::Denied(_)) => attempt.could_not_ask = true,
                            _ => {}
                        }
                        result
                    }
                }
            }
            _ => result,
        }
    }

    /// Decides on a call by the policy, or asks the user. With `refusal_unless_approved`, a call that the policy allows needs
    /// approval too.
    fn permit(
        &self,
        attempt: &mut CallAttempt,
        request: &ApprovalRequest<'_>,
        refusal_unless_approved: Option<Refusal>,
    ) -> Result<(), ToolError> {
        let decision =
            match (self.policy.decide(request.tool, request.arguments), refusal_unless_approved) {
                (PolicyDecision::Allow(_), Some(refusal)) => PolicyDecision::Ask(refusal),
                (decision, _) => decision,
            };
        match (decision, &self.approval_handler) {
            (PolicyDecision::Allow(reason), _) => {
                log::info!(target: "policy", "`{}` is allowed: {reason}", request.tool);
            }
            (PolicyDecision::Ask(refusal), Some(approval_handler)) => {
                attempt.record_approval(
                    approval_handler.approve(&ApprovalRequest { refusal: &refusal, ..*request })?,
                );
            }
            // Without a user to ask, a call that needs approval is refused.
            (PolicyDecision::Ask(refusal) | PolicyDecision::Deny(refusal), _) => {
                log::info!(target: "policy", "`{}` is refused: {}", request.tool, refusal.message);
                return Err(refusal.into());
            }
        }
        Ok(())
    }

    /// Repeats a refused call with the tools of this toolbox.
    fn retry(
        &self,
        call: &ToolCall,
        attempt: &mut CallAttempt,
        arguments: &Value,
        on_output: &mut dyn FnMut(&str),
    ) -> Result<ToolOutput, ToolError> {
        match self.find(&call.name) {
            Some(tool) => tool.run(&mut Call {
                id: &call.id,
                arguments,
                on_output,
                charges: &mut attempt.charges,
            }),
            None => Err(format!("`{}` is no longer available", call.name).into()),
        }
    }

    /// Finds the tool that `call` names, and casts and checks its arguments. The error is text for the model.
    fn resolve_call(
        &self,
        call: &ToolCall,
        is_truncated: bool,
    ) -> Result<(&dyn Tool, Value), String> {
        let Some(tool) = self.find(&call.name) else {
            let names = self.names();
            return Err(if names.is_empty() {
                format!(
                    "there is no tool `{}`; this run has no tools, so answer without them",
                    call.name
                )
            } else {
                format!("there is no tool `{}`; the tools are: {}", call.name, names.join(", "))
            });
        };
        if is_truncated && !call.arguments.is_object() {
            return Err(
                "the output limit cut this call before it was complete; split it into smaller parts"
                    .into(),
            );
        }
        Ok((tool, tool.parse_arguments(&call.arguments)?))
    }
}

/// A note on what was refused to a command that succeeded.
fn describe_refused_part(MissingGrant { refusal, is_certain }: &MissingGrant) -> String {
    let perhaps = if *is_certain { "" } else { "perhaps " };
    match &refusal.suggested_flag {
        Some(flag) => {
            format!("{perhaps}the sandbox refused a part of it; `{flag}` would allow that")
        }
        None => redact_all(&refusal.message).into_owned(),
    }
}

/// The refusal of a call of `tool` in `directory` without keys, and the text about it for the model, which ends in `suffix`. Only the
/// refusal, which people read, tells whether a path exists.
fn redact_refusal(
    mut refusal: Refusal,
    directory: &Path,
    tool: &str,
    suffix: &str,
) -> (Refusal, String) {
    let text = refusal.for_model(tool);
    let text = format!("{DENIED}{}{suffix}", redact_all(&text));
    let flag = refusal.suggested_flag.as_deref().and_then(SuggestedFlag::parse);
    if let Some(SuggestedFlag { name: "--write", value: Some(path) }) = flag
        && !directory.join(&path).exists()
    {
        refusal.message.push_str(", and is granted only once it exists (`touch` it)");
    }
    let message = redact_all(&refusal.message).into_owned();
    (Refusal { message, ..refusal }, text)
}

/// Maximum size in bytes of a text for which a diff is made.
const MAX_DIFF_BYTES: usize = 256 << 10;

/// The change to a file as a diff, for people who follow the run.
fn make_diff(old: &str, new: &str) -> Option<String> {
    let is_short = old.len().max(new.len()) <= MAX_DIFF_BYTES;
    is_short.then(|| Diff::new(old, new).unified(2))
}

#[cfg(test)]
mod tests {
    use super::{Call, CallEffect, Tool, ToolError, ToolOutput, Toolbox};
    use nanobot_base::message::ToolCall;
    use nanobot_base::message::ToolSpec;
    use nanobot_config::policy::Policy;
    use nanobot_os::deferred::Deferred;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Named(ToolSpec, CallEffect);

    impl Tool for Named {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn effect(&self, _: &Value) -> CallEffect {
            self.1
        }
        fn run(&self, _: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
            Ok(self.0.name.clone().into())
        }
    }

    fn named(name: &str, effect: CallEffect) -> Arc<dyn Tool> {
        let spec = ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object"}).into(),
        };
        Arc::new(Named(spec, effect))
    }

    #[test]
    fn protected_paths_are_found_out_before_the_first_call() {
        let was_settled = Arc::new(AtomicBool::new(false));
        let paths = || {
            let was_settled = Arc::clone(&was_settled);
            Deferred::new(move || {
                was_settled.store(true, Ordering::Relaxed);
                Vec::new()
            })
        };
        let mut policy = Policy::default();
        policy.file_scope.read_only = paths();
        policy.file_scope.hidden = paths();
        let toolbox = Toolbox::new(Vec::new(), 1, Arc::new(policy));
        assert!(!was_settled.load(Ordering::Relaxed));
        let call = ToolCall { id: String::new(), name: "read_file".into(), arguments: Value::Null };
        toolbox.run(&[call], false, &mut |_, _| Ok(())).1.unwrap();
        assert!(was_settled.load(Ordering::Relaxed));
    }

    #[test]
    fn readers_run_together_and_writers_alone() {
        let toolbox = Toolbox::new(
            vec![named("r", CallEffect::Reads), named("w", CallEffect::Writes)],
            3,
            Arc::default(),
        );
        let check = |calls: &str, expect: &str| {
            let call = |name: char| ToolCall {
                id: String::new(),
                name: name.into(),
                arguments: Value::Null,
            };
            let calls: Vec<ToolCall> = calls.chars().map(call).collect();
            let name = |call: &ToolCall| call.name.clone();
            let batches: Vec<String> =
                toolbox.batches(&calls).map(|batch| batch.iter().map(name).collect()).collect();
            assert_eq!(batches.join(" "), expect);
        };
        check("", "");
        check("r", "r");
        check("rr", "rr");
        check("rrwrr", "rr w rr");
        check("ww", "w w");
        check("rrrrr", "rrr rr");
        check("rxw", "rx w");
    }
}
