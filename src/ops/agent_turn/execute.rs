//! Runs a prepared turn and does the work at its end: usage, memory provenance, pruning.

use super::prepare::PreparedTurn;
use crate::ops::agent_turn::post_turn::{self, PlannedConsolidation};
use crate::ops::agent_turn::tool_usage::UsageRecorder;
use crate::ops::context::Context;
use crate::ops::media_service::MediaAccount;
use crate::ops::model::{self, ModelHandle};
use crate::ops::retention::prune_temporary_sessions;
use crate::ops::subagents::task::TurnContext;
use crate::ops::turn_setup::TurnSetup;
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_agent::guard::compaction::CompactionGuard;
use nanobot_agent::guard::context_warning::ContextWarning;
use nanobot_agent::guard::iteration_limit::IterationLimit;
use nanobot_agent::guard::loop_detection::LoopDetection;
use nanobot_agent::guard::orphaned_subagents::OrphanedSubagents;
use nanobot_agent::guard::plan_mode::PlanMode;
use nanobot_agent::report::Reporter;
use nanobot_agent::turn::agent::{Agent, AnswerFormat, TurnHooks};
use nanobot_agent::turn::ending::{Ending, TurnStats};
use nanobot_agent::turn::guard::Guard;
use nanobot_agent::turn::{self, compact};
use nanobot_base::error::{Exit, exit_for};
use nanobot_base::event::StopReason;
use nanobot_base::format::{format_dollars, list_first};
use nanobot_base::message::{Message, UserMessage};
use nanobot_config::policy::tool_names::runs_commands;
use nanobot_config::settings::Settings;
use nanobot_model::ledger::CallPurpose;
use nanobot_os::paths::is_generated_dir;
use nanobot_sandbox::process;
use nanobot_store::history::subagent_refs;
use nanobot_store::memory::{self, Memory, MessageRange};
use nanobot_store::session::{self, Session, SessionStore, consolidation};
use nanobot_tool::exec::background_commands;
use nanobot_tool::files::Files;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Timeout for the memory lock when the memory is labelled after a turn.
const MEMORY_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Difference of two costs, in US dollars, that may be a rounding error of their sum.
const ROUNDING_ERROR_USD: f64 = 1e-9;

/// Asks the model until the turn ends.
pub(crate) fn execute(
    ctx: &Context,
    options: &TurnOptions,
    prepared: &mut PreparedTurn,
    model: &ModelHandle,
    purpose: &CallPurpose,
    reporter: &mut Reporter,
    steering: Option<&dyn Fn() -> Option<UserMessage>>,
) -> Ending {
    let settings = &prepared.settings;
    let sampling = model::sampling(&settings.models[0], model.context_tokens);
    let mut guards = build_guards(settings, model.context_tokens, prepared.reads_only);
    let until = options.until.to_command();
    let mut agent = Agent {
        system: &prepared.system,
        provider: model.provider.as_ref(),
        toolbox: &prepared.setup.toolbox,
        guards: &mut guards,
        model: &model.model,
        sampling: &sampling,
        summary_instructions: prepared.summary_instructions.as_deref(),
        answer_format: prepared.schema.as_ref().map(|schema| schema as &dyn AnswerFormat),
        until: until.as_ref(),
        hooks: (prepared.setup.shared.hooks.as_deref()).map(|hooks| hooks as &dyn TurnHooks),
        background: Some(&prepared.subagents),
        steering,
    };
    let session = &mut prepared.session;
    let setup = &prepared.setup;
    setup.shared.mcp_tools.set_model(model);
    if let Some(search) = &setup.shared.native_search {
        search.set_turn(model, purpose, options.model.max_cost.is_some());
    }
    setup.shared.media_account.get_or_init(|| MediaAccount {
        purpose: purpose.clone(),
        run: Some(Arc::clone(&model.budget)),
    });
    session.begin_turn(&reporter.envelope.turn);
    let directory = &setup.policy.file_scope.directory;
    let private_copy = options.grants.private_copy.as_ref();
    session.record_directory(
        &private_copy.map_or_else(|| directory.clone(), |copy| copy.original_of(directory)),
    );
    if let Some(title) = &options.session.title {
        session.record_title(title.trim());
    }
    let servers: Vec<&str> = settings.servers.iter().map(|server| server.name.as_str()).collect();
    let mut usage = UsageRecorder::new(setup, &servers, prepared.message.as_ref());
    let tools = setup.toolbox.specs().iter();
    let running_subagents = prepared.subagents.begin_turn(TurnContext {
        shared: setup.shared.clone(),
        policy: Arc::clone(&setup.policy),
        tool_names: tools.map(|spec| spec.name.clone()).collect(),
        model: model.clone(),
        purpose: purpose.clone(),
        last_number: subagent_refs::last_number(session.messages()),
    });
    let mut sink = |event: nanobot_base::event::Event<'_>| {
        usage.observe(setup, &event);
        reporter.emit(event)?;
        report_hooks(setup, reporter);
        Ok(())
    };
    let ending = match &prepared.compaction {
        Some(request) => {
            compact::compact_now(&mut agent, session, request.instructions.as_deref(), &mut sink)
        }
        None => turn::run(&mut agent, session, prepared.message.take(), &mut sink),
    };
    drop(running_subagents);
    end_background_commands(setup, reporter);
    report_undo_gaps(setup, reporter);
    report_startup_files(ctx, setup, purpose, private_copy.is_none(), reporter);
    exceeded_limits(options, &ending).iter().for_each(|line| reporter.notice(line));
    if !options.recording.is_dry_run_or_replay()
        && let Err(error) = usage.record(ctx, purpose, &ending.stats)
    {
        // The answer is printed, and an incomplete count of usage does not make the turn fail.
        reporter.notice(&format!("tool usage was not recorded: {error:#}"));
    }
    ending
}

/// The limits that an answered turn has exceeded: the spending of a request is known only after it.
fn exceeded_limits(options: &TurnOptions, ending: &Ending) -> Vec<String> {
    let TurnStats { usage, cost, .. } = &ending.stats;
    let tokens = usage.input + usage.output;
    let mut exceeded = Vec::new();
    if ending.error.is_some() {
        return exceeded;
    }
    if let Some(limit) = options.limits.max_total_tokens.filter(|limit| tokens > *limit) {
        exceeded.push(format!(
            "the last request exceeded `--max-total-tokens {limit}`: {tokens} tokens in all"
        ));
    }
    if let (Some(limit), Some(cost)) = (options.model.max_cost, *cost)
        && cost - limit > ROUNDING_ERROR_USD
    {
        let dollars = format_dollars(cost);
        exceeded.push(format!("the last request exceeded `--max-cost {limit}`: ${dollars} in all"));
    }
    exceeded
}

/// Runs the hooks before the turn.
///
/// # Errors
/// A hook forbids the turn.
pub(crate) fn run_hooks_before(prepared: &mut PreparedTurn, reporter: &mut Reporter) -> Result<()> {
    let (Some(hooks), Some(message)) = (&prepared.setup.shared.hooks, &mut prepared.message) else {
        return Ok(());
    };
    let permitted = hooks.before_turn(message);
    report_hooks(&prepared.setup, reporter);
    permitted
}

/// Reports the notices of hooks to the user.
fn report_hooks(setup: &TurnSetup, reporter: &mut Reporter) {
    for notice in setup.shared.hooks.iter().flat_map(|hooks| hooks.take_notices()) {
        reporter.notice(&notice);
    }
}

/// Ends the background commands of the turn. The description of `exec` tells the model that they end with it.
fn end_background_commands(setup: &TurnSetup, reporter: &mut Reporter) {
    // A session that waits for its user has no processes.
    process::end_standby();
    let commands = setup.shared.background.iter();
    for change in commands.flat_map(|commands| commands.end_all()) {
        reporter.notice(&background_commands::describe_change(&change.path, &change.remedy));
    }
}

/// Maximum number of paths that a notice names.
const MAX_NAMED_PATHS: usize = 3;

/// Reports what commands may have changed that `nanobot undo` cannot take back.
fn report_undo_gaps(setup: &TurnSetup, reporter: &mut Reporter) {
    let gaps = setup.shared.files.end_turn();
    if gaps.is_empty() {
        return;
    }
    reporter.notice(&format!(
        "`{}undo` cannot take back all that commands changed: {}",
        reporter.command_prefix,
        list_first(&gaps, MAX_NAMED_PATHS)
    ));
}

/// Reports what was signed, and the files that were changed and that programs, agents or later runs will read on their own.
fn report_startup_files(
    ctx: &Context,
    setup: &TurnSetup,
    purpose: &CallPurpose,
    is_recorded: bool,
    reporter: &mut Reporter,
) {
    let files = &setup.shared.files;
    files.take_signatures().iter().for_each(|line| reporter.notice(line));
    for notice in startup_files_notices(
        ctx,
        files,
        is_recorded,
        purpose.job.is_some(),
        reporter.command_prefix,
    ) {
        reporter.notice(&notice);
    }
}

/// The notices about the files that were changed and that programs, agents or later runs will read on their own. `is_recorded` if
/// changes can be undone. `command_prefix` is as in [`Reporter`].
pub(crate) fn startup_files_notices(
    ctx: &Context,
    files: &Files,
    is_recorded: bool,
    is_job: bool,
    command_prefix: &str,
) -> Vec<String> {
    let scope = &files.file_scope;
    let changed = files.take_changed_startup_files().into_iter();
    let (mut notes, others): (Vec<PathBuf>, Vec<PathBuf>) =
        changed.partition(|path| path.starts_with(&scope.workspace));
    // The tasks of the heartbeat are the work of its job.
    notes.retain(|path| !is_job || !path.ends_with("HEARTBEAT.md"));
    let mut notices = Vec::new();
    for (what, paths) in [
        ("what programs and agents read on their own", others),
        ("what instructs later runs", notes),
    ] {
        if paths.is_empty() {
            continue;
        }
        let names = paths.iter().map(|path| {
            let name = match path.strip_prefix(&scope.directory) {
                Ok(relative) => relative.display().to_string(),
                Err(_) => ctx.paths.display(path),
            };
            format!("`{}`", name.replace(char::is_control, "?"))
        });
        // `undo` records no generated files, and none of git's.
        let is_unrecorded = |part: &Path| is_generated_dir(part) || part.ends_with(".git");
        let can_undo = is_recorded && !paths.iter().any(|path| path.ancestors().any(is_unrecorded));
        notices.push(format!(
            "changed {what}: {}{}",
            list_first(&names.collect::<Vec<_>>(), MAX_NAMED_PATHS),
            if can_undo {
                format!("; `{command_prefix}undo` takes it back")
            } else {
                String::new()
            }
        ));
    }
    notices
}

/// The guards of a turn, in the order in which they are called. Budgets wrap the provider instead.
pub(crate) fn build_guards(
    settings: &Settings,
    context_tokens: u32,
    reads_only: bool,
) -> Vec<Box<dyn Guard>> {
    let mut guards: Vec<Box<dyn Guard>> = vec![
        Box::new(IterationLimit { max_iterations: settings.max_tool_iterations }),
        // Before compaction: a turn that is about to end is not compacted.
        Box::new(LoopDetection),
        Box::new(OrphanedSubagents::default()),
    ];
    let output = settings.models[0].max_tokens;
    if let Some(threshold) = settings.compaction.threshold_for(context_tokens, output) {
        guards.push(Box::new(CompactionGuard { threshold }));
        if settings.compaction.is_warning_enabled {
            guards.push(Box::new(ContextWarning { threshold }));
        }
    }
    // Last: it repeats what a compaction removed.
    guards.push(Box::new(PlanMode { reads_only }));
    guards
}

/// Records the memory as a new version if a tool changed the file in this turn. It is also recorded if the file already
/// differed from the last version when the turn began, because the user edited it. Without tool calls the file cannot have
/// changed, and is not read again. If the conversation had `untrusted` content, the version is labelled with it. Returns true if the
/// turn changed the memory.
fn record_memory(
    ctx: &Context,
    prepared: &PreparedTurn,
    sessions: &SessionStore,
    has_called_tools: bool,
    untrusted: Option<&str>,
) -> Result<bool> {
    let memory = Memory::new(&prepared.settings.workspace, &ctx.clock);
    let before = &prepared.setup.memory_file;
    let is_unchanged = !has_called_tools || memory.read()?.unwrap_or_default() == *before;
    let is_recorded = match prepared.setup.memory_version {
        Some(version) => memory.read_version(version)?.as_ref() == Some(before),
        None => true,
    };
    if is_unchanged && is_recorded {
        return Ok(false);
    }
    let untrusted = if is_unchanged { None } else { untrusted };
    // A memory that cannot be written is reported when it is to be written.
    if untrusted.is_none() && memory.check_writable().is_err() {
        return Ok(!is_unchanged);
    }
    let mut advance = |range: MessageRange<'_>| {
        consolidation::advance_pointer(sessions, range.session, range.from, range.to).map(drop)
    };
    let timeout = untrusted.map_or(Duration::ZERO, |_| MEMORY_LOCK_TIMEOUT);
    match memory.lock(timeout, &mut || {}, &mut advance) {
        // The run that holds the lock records the memory before it changes it.
        Err(error) if untrusted.is_none() && exit_for(&error) == Exit::TryAgain => {}
        locked_memory => locked_memory?.record_turn(before, prepared.session.key(), untrusted)?,
    }
    Ok(!is_unchanged)
}

/// The content from outside that a change of the memory in this turn may contain. A command that can write there may have
/// copied from anywhere.
fn memory_label(setup: &TurnSetup, stats: &TurnStats) -> Option<String> {
    if let Some(content) = setup.shared.provenance.external_content() {
        return Some(content);
    }
    let scope = &setup.policy.file_scope;
    let memory = memory::file_path(&scope.workspace);
    let has_run_command = stats.tools.keys().any(|name| runs_commands(name));
    let may_have_written =
        has_run_command && scope.command_writable_roots().any(|root| memory.starts_with(root));
    may_have_written.then(|| "a command".into())
}

/// True if a turn may have done what others wrote: its message has content of theirs, or something from outside was read. A file that
/// an earlier turn has read is no reason to name what the user asks for.
fn may_follow_others(setup: &TurnSetup, session: &Session) -> bool {
    let mut messages = session.messages().iter().rev();
    let message = messages.find_map(|message| match message {
        Message::User(message) if !message.injected => Some(message),
        _ => None,
    });
    let sources = message.and_then(|message| message.sources.as_ref());
    sources.is_some_and(|sources| sources.others.is_some())
        || setup.shared.provenance.external_content().is_some()
}

/// Does the work at the end of a turn, before the caller ends the output. An answer as text is printed by then, so a failure here is
/// only added to it. Returns the consolidation that is due.
pub(crate) fn finish(
    ctx: &Context,
    options: &TurnOptions,
    prepared: &PreparedTurn,
    model: &ModelHandle,
    sessions: &SessionStore,
    ending: &mut Ending,
    reporter: &mut Reporter,
) -> Option<PlannedConsolidation> {
    let is_answered = ending.stop_reason == StopReason::Answered && ending.error.is_none();
    let PreparedTurn { setup, settings, session, .. } = prepared;
    let consolidation = if is_answered {
        post_turn::plan_consolidation(ctx, options, settings, session, Some(model))
    } else {
        None
    };
    let untrusted = memory_label(setup, &ending.stats);
    // A call that was interrupted is not counted.
    let has_called_tools =
        setup.shared.provenance.untrusted_content().is_some() || !ending.stats.tools.is_empty();
    match record_memory(ctx, prepared, sessions, has_called_tools, untrusted.as_deref()) {
        Ok(is_changed) if is_changed && may_follow_others(setup, session) => reporter.notice(&format!(
            "changed the memory, which later runs read: `{}`; `nanobot memory undo` takes it back",
            ctx.paths.display(&memory::file_path(&settings.workspace))
        )),
        Ok(_) => {}
        Err(error) => {
            ending.error.get_or_insert(error.context("record the change of the memory"));
        }
    }
    if session::is_temporary(session.key())
        && let Err(error) = prune_temporary_sessions(sessions, &settings.retention)
    {
        reporter.notice(&format!("old sessions were not removed: {error:#}"));
    }
    consolidation
}
