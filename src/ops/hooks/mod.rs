//! Runs the hooks of the config: the user's commands, with JSON on standard input. A hook can deny a call, change it or comment
//! on it. It cannot allow what the policy denies.
//!
//! A hook runs in the sandbox, as a command of the run, or outside of it. Outside, the paths that the run may change are hidden from it,
//! because it could execute a file that the run wrote.
//!
//! A hook that fails (a status other than 0 and, except in Vibe, 2; a timeout; an answer that cannot be read) is reported, and the
//! run continues. If the hook is `strict`, its failure is a denial. Hooks do not run inside of hooks.

mod containment;
mod dialect;
mod reply;

pub(crate) use containment::HookContainment;

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_agent::turn::agent::TurnHooks;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::message::{ToolCall, UserMessage};
use nanobot_config::policy::Refusal;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::settings::Settings;
use nanobot_config::settings::hooks::{HookCommand, HookDialect, HookEvent, HookLocation};
use nanobot_os::env::INSIDE_HOOK;
use nanobot_os::secret::redact_all;
use nanobot_sandbox::process::{self, CommandResult, CommandSpec};
use nanobot_tool::ToolError;
use nanobot_tool::call_hooks::{CallAmendment, CallHooks, ExecutedCall, ResultAmendment};
use nanobot_tool::exec::hook_call::HookCall;
use parking_lot::Mutex;
use reply::{HookDecision, HookOutput, HookReply};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of a hook's output that are read, of each stream.
const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// The exit statuses of a shell for a program that it cannot execute, and for one that it does not find (POSIX).
const SHELL_CANNOT_EXECUTE: i32 = 126;
const SHELL_NOT_FOUND: i32 = 127;

/// The hooks of a run.
pub(crate) struct Hooks {
    commands: Vec<HookCommand>,
    /// The names of the MCP servers.
    servers: Vec<String>,
    ctx: Context,
    run: HookedRun,
    containment: HookContainment,
    /// Notices for the user that are not reported yet.
    notices: Mutex<Vec<String>>,
}

/// The facts about a run that each hook receives.
#[derive(Clone, Default)]
pub(crate) struct HookedRun {
    pub(crate) session_key: String,
    /// The file of the session, if it is stored.
    pub(crate) transcript: Option<PathBuf>,
    pub(crate) directory: PathBuf,
    pub(crate) profile: String,
    /// True if a sub-agent of the session runs.
    pub(crate) is_subagent: bool,
}

impl Hooks {
    /// The hooks of the config for a run; `None` if there are none, or if the run itself was started by a hook.
    ///
    /// # Errors
    /// Status 78 if `hooks` of the config cannot be used, or if a hook outside of the sandbox would see paths that the run may change.
    pub(crate) fn for_run(
        ctx: &Context,
        settings: &Settings,
        create_containment: impl FnOnce() -> HookContainment,
        run: impl FnOnce() -> HookedRun,
    ) -> Result<Option<Arc<Self>>> {
        let hooks = settings.hooks.as_ref().map_err(|cause| {
            let hint = "`nanobot help hooks`, and `nanobot config check`";
            fail(Exit::Config, format!("`hooks` of the config: {cause}")).with_hint(hint)
        })?;
        if hooks.commands.is_empty() || ctx.env.get(INSIDE_HOOK).is_some() {
            return Ok(None);
        }
        let mut containment = create_containment();
        if let Some(hook) = hooks.commands.iter().find(|hook| hook.location == HookLocation::Home) {
            containment.require_hiding().map_err(|reason| {
                let cause = format!(
                    "hook `{}` runs outside of the sandbox, and this system cannot hide from it what the run may change: {reason}",
                    hook.name
                );
                fail(Exit::Config, cause).with_hint("`\"in\": \"sandbox\"` in its entry")
            })?;
        }
        let servers = settings.servers.iter().filter(|server| !server.is_disabled);
        Ok(Some(Arc::new(Self {
            commands: hooks.commands.clone(),
            servers: servers.map(|server| server.name.clone()).collect(),
            ctx: ctx.clone(),
            run: run(),
            containment,
            notices: Mutex::default(),
        })))
    }

    /// The same hooks, for the sub-agents of the run.
    pub(crate) fn for_subagent(&self) -> Arc<Self> {
        Arc::new(Self {
            commands: self.commands.clone(),
            servers: self.servers.clone(),
            ctx: self.ctx.clone(),
            run: HookedRun { is_subagent: true, ..self.run.clone() },
            containment: self.containment.clone(),
            notices: Mutex::default(),
        })
    }

    /// Also hides the paths that `scope` lets the run change from the hooks outside of the sandbox. Called when the user has approved a
    /// change.
    pub(crate) fn hide_also(&self, scope: &FileScope) {
        self.containment.hide_also(scope);
    }

    /// Returns the notices since the last call.
    pub(crate) fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock())
    }

    /// True if there are hooks for `event`.
    pub(crate) fn has(&self, event: HookEvent) -> bool {
        self.commands.iter().any(|hook| hook.event == event)
    }

    /// The facts that every hook receives.
    fn common_fields(&self, hook: &HookCommand) -> Map<String, Value> {
        let HookedRun { session_key, transcript, directory, profile, is_subagent } = &self.run;
        let parent = is_subagent.then_some(session_key);
        // A path need not be UTF-8, which JSON is.
        let transcript = transcript.as_ref().map(|path| path.to_string_lossy());
        let mut fields = json!({
            "hook_event_name": hook.event_name, "session_id": session_key, "parent_session_id": parent,
            "transcript_path": transcript, "cwd": directory.to_string_lossy(), "profile": profile,
        });
        if hook.dialect == HookDialect::ClaudeCode {
            fields["permission_mode"] = match profile.as_str() {
                "plan" => "plan",
                "accept-edits" => "acceptEdits",
                "auto-approve" | "full" => "bypassPermissions",
                _ => "default",
            }
            .into();
        }
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    /// Runs `hook` with `fields` on its standard input.
    ///
    /// # Errors
    /// The hook failed: a phrase for the user.
    fn run(&self, hook: &HookCommand, fields: Value) -> Result<HookReply, String> {
        let mut input = self.common_fields(hook);
        if let Value::Object(fields) = fields {
            input.extend(fields);
        }
        let input = Value::Object(input).to_string().into_bytes();
        log::info!(target: "hook", "`{}` runs for {}", hook.name, hook.event_name);
        let (finished, stderr) = match hook.location {
            HookLocation::Sandbox => self.run_in_sandbox(hook, input)?,
            HookLocation::Home => self.run_at_home(hook, input)?,
        };
        if finished.stop.is_some() {
            return Err("was ended with the run".into());
        }
        let Some(status) = finished.status else {
            return Err(format!("timed out after {} s", hook.timeout.as_secs_f64()));
        };
        if finished.omitted_bytes > 0 || !finished.tail.is_empty() {
            return Err("printed more than 1 MiB".into());
        }
        let output = HookOutput {
            status: status.code(),
            stdout: &String::from_utf8_lossy(&finished.head),
            stderr: &String::from_utf8_lossy(&stderr),
        };
        let result = HookReply::parse(hook.dialect, hook.event, &output);
        result.map_err(|cause| match (output.status, hook.location) {
            (Some(SHELL_CANNOT_EXECUTE | SHELL_NOT_FOUND), HookLocation::Sandbox) => format!(
                "{cause} (it runs `in: sandbox`, which sees only what the run may read, and ~/.nanobot/hooks)"
            ),
            (Some(SHELL_CANNOT_EXECUTE | SHELL_NOT_FOUND), HookLocation::Home) => format!(
                "{cause} (it runs `in: home`, which does not see what the run may change; programs of hooks belong in ~/.nanobot/hooks)"
            ),
            _ => cause,
        })
    }

    /// Runs a hook as a command of the run. Its output has the origin of a command's output.
    fn run_in_sandbox(
        &self,
        hook: &HookCommand,
        input: Vec<u8>,
    ) -> Result<(CommandResult, Vec<u8>), String> {
        let exec = self.containment.exec.as_ref();
        let exec = exec.ok_or("could not be started: the permissions of the run are unknown")?;
        let result = exec.run_hook(HookCall {
            command: &hook.command,
            input,
            variables: self.variables(hook),
            timeout: hook.timeout,
            capture_bytes: MAX_OUTPUT_BYTES,
        });
        let finished = result.map_err(|cause| format!("could not be started: {cause}"))?;
        if let Some(undone) = finished.undone {
            self.notify(format!("hook `{}`: {undone}", hook.name));
        }
        self.containment.raise_origin(&hook.name);
        Ok((finished.result, finished.stderr))
    }

    /// Runs a hook outside of the sandbox.
    fn run_at_home(
        &self,
        hook: &HookCommand,
        input: Vec<u8>,
    ) -> Result<(CommandResult, Vec<u8>), String> {
        let inherited =
            self.ctx.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let home = &self.ctx.paths.home;
        let spec = CommandSpec {
            // The files of the directory could influence which programs are run.
            directory: if home.is_absolute() && home.is_dir() { home.clone() } else { "/".into() },
            env: inherited.chain(self.variables(hook)).collect(),
            capture_bytes: MAX_OUTPUT_BYTES,
            input: Some(input),
            ..CommandSpec::shell(&hook.command, hook.timeout)
        };
        let result = match self.containment.hidden_paths() {
            Some(hidden) => process::run_split_stderr_hiding(&spec, &hidden),
            None => process::run_split_stderr(&spec),
        };
        result.map_err(|error| format!("could not be started: {error}"))
    }

    /// The variables that a hook gets.
    fn variables(&self, hook: &HookCommand) -> Vec<(String, String)> {
        let directory = self.run.directory.display().to_string();
        let mut variables = vec![
            (INSIDE_HOOK.to_owned(), hook.event_name.to_owned()),
            ("NANOBOT_DIRECTORY".to_owned(), directory.clone()),
        ];
        if hook.dialect == HookDialect::ClaudeCode {
            variables.push(("CLAUDE_PROJECT_DIR".to_owned(), directory));
        }
        variables
    }

    /// Runs the hooks for `event` that `is_meant` selects one after another, as long as `consume` returns true. `fields` makes
    /// the input of each. A failure is reported, and is a denial if the hook is strict.
    fn run_all(
        &self,
        event: HookEvent,
        is_meant: &dyn Fn(&HookCommand) -> bool,
        consume: &mut dyn FnMut(&HookCommand, HookReply) -> bool,
        fields: &mut dyn FnMut(&HookCommand) -> Value,
    ) {
        let hooks = self.commands.iter();
        for hook in hooks.filter(|hook| hook.event == event && is_meant(hook)) {
            let reply = match self.run(hook, fields(hook)) {
                Ok(reply) => reply,
                Err(cause) => {
                    self.notify(format!("hook `{}` {}", hook.name, redact_all(&cause)));
                    if !hook.is_strict {
                        continue;
                    }
                    HookReply {
                        decision: HookDecision::Deny(format!("it {cause}")),
                        ..HookReply::default()
                    }
                }
            };
            if let Some(notice) = &reply.notice {
                self.notify(format!("hook `{}`: {}", hook.name, redact_all(notice)));
            }
            if !consume(hook, reply) {
                return;
            }
        }
    }

    fn is_for_tool(&self, hook: &HookCommand, tool: &str) -> bool {
        hook.matcher.matches(&dialect::tool_names(hook.dialect, tool, &self.servers))
    }

    /// The fields about a call.
    fn call_fields(&self, hook: &HookCommand, call: &ToolCall, arguments: &Value) -> Value {
        json!({
            "tool_name": dialect::tool_names(hook.dialect, &call.name, &self.servers).first(),
            "tool_call_id": call.id, "tool_use_id": call.id,
            "tool_input": dialect::to_dialect(hook.dialect, &call.name, arguments),
        })
    }

    fn notify(&self, text: String) {
        self.notices.lock().push(text);
    }

    /// Runs the hooks before a turn. Their comments are added to the message.
    ///
    /// # Errors
    /// Status 77: a hook denies the turn.
    pub(crate) fn before_turn(&self, message: &mut UserMessage) -> Result<()> {
        let prompt = nanobot_base::message::plain_text(&message.parts);
        let mut denial = None;
        let mut consume = |hook: &HookCommand, reply: HookReply| {
            if let HookDecision::Deny(reason) | HookDecision::Ask(reason) = reply.decision {
                denial = Some(format!("hook `{}`: {}", hook.name, redact_all(&reason)));
                return false;
            }
            if let Some(context) = reply.context {
                let facts = &mut message.runtime_facts;
                *facts = format!("{facts}\n\n{}", comment(hook, &context));
            }
            true
        };
        self.run_all(
            HookEvent::PreTurn,
            &|_| true,
            &mut consume,
            &mut |_| json!({ "prompt": prompt }),
        );
        match denial {
            Some(cause) => Err(fail(Exit::Refused, cause)),
            None => Ok(()),
        }
    }

    /// Runs the hooks at the end of a job; `fields` describe its run.
    pub(crate) fn after_job(&self, fields: &Value) {
        let mut consume = |_: &HookCommand, _: HookReply| true;
        self.run_all(HookEvent::JobEnd, &|_| true, &mut consume, &mut |_| fields.clone());
    }
}

/// Notifies the user once that hooks run in the sandbox or outside of it, unless the config says where each hook runs.
pub(crate) fn announce_locations(ctx: &Context, settings: &Settings) {
    let mut hooks = settings.hooks.iter().flat_map(|hooks| &hooks.commands);
    if hooks.all(|hook| hook.names_location) {
        return;
    }
    ctx.notice_once(
        &ctx.paths.hooks_announced(),
        "a hook runs `in: sandbox` or `in: home`, where it does not see what the run may change; `nanobot config check` says which \
         a hook seems to need, and `nanobot help hooks` what each is",
    );
}

/// A comment of a hook for the model, under the hook's name.
fn comment(hook: &HookCommand, text: &str) -> String {
    format!("[hook {}] {}", hook.name, redact_all(text))
}

impl CallHooks for Hooks {
    fn before_call(
        &self,
        call: &ToolCall,
        arguments: &Value,
        check: &dyn Fn(&Value) -> Result<Value, String>,
    ) -> Result<CallAmendment, ToolError> {
        let mut amendment = CallAmendment::default();
        let current = Mutex::new(arguments.clone());
        let mut denial = None;
        let mut consume = |hook: &HookCommand, reply: HookReply| {
            let reject =
                |reason: &str| Some(Refusal::new(format!("hook `{}`: {reason}", hook.name)));
            match reply.decision {
                HookDecision::Allow => {}
                HookDecision::Ask(reason) => amendment.refusal_unless_approved = reject(&reason),
                HookDecision::Deny(reason) => {
                    denial = reject(&reason);
                    return false;
                }
            }
            if let Some(changed) = reply.arguments {
                let changed = dialect::from_dialect(hook.dialect, &call.name, &changed);
                match check(&changed) {
                    Err(cause) => {
                        denial =
                            reject(&format!("it changed the arguments to invalid ones: {cause}"));
                        return false;
                    }
                    Ok(changed) => {
                        let mut current = current.lock();
                        if *current != changed {
                            // The model's own call stays unchanged in the conversation.
                            let text = format!("changed the arguments to {changed}");
                            amendment.comments.push(comment(hook, &text));
                            *current = changed;
                        }
                    }
                }
            }
            amendment.comments.extend(reply.context.map(|context| comment(hook, &context)));
            true
        };
        let is_meant = |hook: &HookCommand| self.is_for_tool(hook, &call.name);
        self.run_all(HookEvent::PreTool, &is_meant, &mut consume, &mut |hook| {
            self.call_fields(hook, call, &current.lock())
        });
        if let Some(refusal) = denial {
            return Err(ToolError::Rejected(refusal));
        }
        let changed = current.into_inner();
        amendment.arguments = (changed != *arguments).then_some(changed);
        Ok(amendment)
    }

    fn after_call(
        &self,
        call: &ToolCall,
        arguments: &Value,
        executed: &ExecutedCall<'_>,
    ) -> ResultAmendment {
        let mut amendment = ResultAmendment::default();
        let mut consume = |hook: &HookCommand, reply: HookReply| {
            if let HookDecision::Deny(reason) | HookDecision::Ask(reason) = reply.decision {
                amendment.output = Some(comment(hook, &format!("withheld the result: {reason}")));
                amendment.comments.extend(reply.context.map(|context| comment(hook, &context)));
                return false;
            }
            if let Some(output) = reply.output {
                amendment.output = Some(output);
            }
            amendment.comments.extend(reply.context.map(|context| comment(hook, &context)));
            true
        };
        let is_meant = |hook: &HookCommand| {
            let is_for_failures = hook.event_name == "PostToolUseFailure";
            let is_for_successes = hook.event_name == "PostToolUse";
            self.is_for_tool(hook, &call.name)
                && !(is_for_failures && !executed.failed || is_for_successes && executed.failed)
        };
        let text = redact_all(executed.text);
        self.run_all(HookEvent::PostTool, &is_meant, &mut consume, &mut |hook| {
            let mut fields = self.call_fields(hook, call, arguments);
            fields["duration_ms"] = json!(executed.duration.as_millis());
            fields["tool_status"] = if executed.failed { "failure" } else { "success" }.into();
            fields["tool_output_text"] = json!(text);
            fields["tool_error"] = json!(executed.failed.then_some(&text));
            fields["tool_output"] = json!({ "text": text });
            fields["tool_response"] = match call.name.as_str() {
                "exec" => json!({ "stdout": text, "stderr": "", "interrupted": false }),
                _ => json!(text),
            };
            fields
        });
        amendment
    }
}

impl TurnHooks for Hooks {
    fn check_answer(&self, text: &str, rejections: u32) -> Result<(), String> {
        let mut rejection = None;
        let mut consume = |hook: &HookCommand, reply: HookReply| {
            if let HookDecision::Deny(reason) | HookDecision::Ask(reason) = reply.decision {
                rejection = Some(comment(hook, &reason));
                return false;
            }
            true
        };
        self.run_all(HookEvent::PostTurn, &|_| true, &mut consume, &mut |_| {
            json!({
                "answer": text, "last_assistant_message": text, "rejections": rejections,
                "stop_hook_active": rejections > 0,
            })
        });
        rejection.map_or(Ok(()), Err)
    }

    fn before_compaction(
        &self,
        is_automatic: bool,
        instructions: Option<&str>,
    ) -> Result<Option<String>, String> {
        let mut comments = Vec::new();
        let mut denial = None;
        let mut consume = |hook: &HookCommand, reply: HookReply| {
            if let HookDecision::Deny(reason) | HookDecision::Ask(reason) = reply.decision {
                denial = Some(format!("hook `{}`: {reason}", hook.name));
                return false;
            }
            comments.extend(reply.context);
            true
        };
        let trigger = if is_automatic { "auto" } else { "manual" };
        self.run_all(HookEvent::PreCompact, &|_| true, &mut consume, &mut |_| {
            json!({ "trigger": trigger, "custom_instructions": instructions.unwrap_or_default() })
        });
        match denial {
            Some(cause) => Err(cause),
            None => Ok((!comments.is_empty()).then(|| comments.join("\n"))),
        }
    }
}
