//! One agent turn, from options to exit status: read the request, open the session, prepare, execute, finish.
//!
//! Command lines, jobs, chats, editors and the REPL have a function `run…` each. Every failure inside a turn ends in a [`TurnOutcome`];
//! a panic ends the process.

use crate::ops::connection_test;
use crate::ops::context::{Context, report_error};
use crate::ops::default_session::default_session_key;
use crate::ops::model::{self, Endpoint};
use crate::ops::permissions;
use crate::ops::proposal::Proposal;
use crate::ops::retention::RetentionSweep;
use crate::options::turn::{OutputOptions, TurnOptions};
use anyhow::{Context as _, Result};
use nanobot_agent::report::short_text::count_noun;
use nanobot_agent::report::{
    EventObserver, ProgressDisplay, ProgressLevel, ReportFormat, Reporter, json,
};
use nanobot_agent::turn::ending::{DECLINED, Ending, exit_status};
use nanobot_base::error::{
    Exit, NextStep, Stop, WithHint as _, exit_for, fail, fail_with_parts, fail_with_step, hint_for,
    hint_parts,
};
use nanobot_base::event::{Event, StopReason};
use nanobot_base::format::list_first;
use nanobot_base::message::{MessagePart, Reply, UserMessage};
use nanobot_base::shell_quote;
use nanobot_config::settings::Settings;
use nanobot_model::provider::ProviderError;
use nanobot_model::provider::registry::SelectedProvider;
use nanobot_os::durable_file;
use nanobot_os::panic_report;
use nanobot_os::secret::random_hex;
use nanobot_os::signal;
use nanobot_os::terminal::Terminal;
use nanobot_store::session::Session;
use nanobot_tool::git_patch::copy::CopyChanges;
use post_turn::{OutputUse, PostTurnWork};
use request::{TurnCommand, TurnRequest};
use source::{ChatTurn, InteractiveContext, JobTurn, SteeringMessage, TurnSource};
use span_export::SpanExport;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod approved_call;
mod conversation;
pub(crate) mod dry_run;
pub(crate) mod execute;
pub(crate) mod git_facts;
mod message_size;
pub(crate) mod post_turn;
pub(crate) mod prepare;
mod request;
pub(crate) mod source;
mod span_export;
mod stop;
pub(crate) mod tool_usage;

/// Time for a provider's list of models, for which a person waits.
const MODEL_LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the lock of the session of a chat or an editor, which another program may use: that of `agent`.
pub(crate) const CHAT_LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum number of files that a notice names.
const MAX_NAMED_FILES: usize = 10;

/// The result of a turn.
pub(crate) struct TurnOutcome {
    pub(crate) ending: Ending,
    pub(crate) exit: Exit,
    /// Facts about the run for its JSON result.
    pub(crate) run_metadata: json::RunMetadata,
    /// The turn's id.
    pub(crate) turn_id: String,
    post_turn: PostTurnWork,
}

/// The result of a turn of the REPL.
pub(crate) struct ReplOutcome {
    pub(crate) exit: Exit,
    /// The answer.
    pub(crate) text: String,
}

/// Runs the turn of a command line, and prints its result in `format`. Returns the exit status.
pub(crate) fn run(ctx: &Context, options: &TurnOptions, format: ReportFormat) -> Exit {
    let mut reporter = new_reporter(ctx, options, format);
    if format != ReportFormat::Text {
        set_panic_result(&reporter);
    }
    let TurnOutcome { ending, mut exit, run_metadata, post_turn, .. } =
        run_to_outcome(ctx, options, TurnSource::CommandLine, &mut reporter);
    if options.recording.dry_run.is_some() && ending.error.is_none() {
        return exit;
    }
    // A partial answer that exceeded a budget was paid for, so it is printed.
    let prints_partial = exit == Exit::Budget
        && ending.is_partial
        && format == ReportFormat::Text
        && !ctx.terminal.stdout_is_tty;
    if prints_partial {
        let text = ending.text.trim_end_matches('\n');
        if options.propose {
            ctx.terminal.eprint(text);
        } else if let Err(error) = ctx.terminal.print(&format!("{text}\n")) {
            exit = report_error(&error, ctx.terminal);
        }
    }
    // A patch is printed where an answer would be.
    let has_answer = [Exit::Answered, Exit::Limit, Exit::Budget, Exit::Denied].contains(&exit);
    if let Some(patch) = run_metadata.patch.as_deref().filter(|_| format == ReportFormat::Text) {
        if patch.is_empty() && has_answer {
            ctx.notice("nothing was changed, so there is no patch");
        } else if !patch.is_empty() && !has_answer {
            ctx.notice("the patch is not printed, because the run failed");
        } else if let Err(error) = ctx.terminal.print_bytes(patch.as_bytes()) {
            exit = report_error(&error, ctx.terminal);
        }
    }
    if let Err(error) =
        reporter.finish(|envelope| json::result_json(&ending, exit, &run_metadata, envelope))
        && exit == Exit::Answered
    {
        // The error of the turn is the actual cause, so its status takes precedence.
        exit = report_error(&error, ctx.terminal);
    }
    if let Some(error) = &ending.error {
        report_error(error, ctx.terminal);
        if prints_partial {
            ctx.terminal.eprint("nanobot: the printed answer is incomplete");
        }
    }
    // The answer is printed, and the post-turn work needs no MCP servers.
    ctx.servers.shut_down();
    let keeps_errors = progress_level(ctx, &options.output) == ProgressLevel::Lines;
    post_turn.run(ctx, exit, OutputUse::Ended { keeps_errors });
    exit
}

/// Sets the result that is printed on standard output if this process panics.
fn set_panic_result(reporter: &Reporter) {
    let error = Some(Stop(Exit::Defect).into());
    let ending = Ending { stop_reason: StopReason::Failed, error, ..Ending::default() };
    let run_metadata = json::RunMetadata::default();
    let result = json::result_json(&ending, Exit::Defect, &run_metadata, &reporter.envelope);
    panic_report::set_result(result.to_string());
}

/// Runs the turn of a job. Prints progress only: the job delivers the answer.
pub(crate) fn run_job_turn(ctx: &Context, options: &TurnOptions, job: JobTurn<'_>) -> TurnOutcome {
    let reporter = new_reporter(ctx, options, ReportFormat::Unprinted);
    run_unprinted(ctx, options, TurnSource::Job(job), reporter)
}

/// Runs the turn of a chat message. Prints progress only: the channel sends the answer.
///
/// `observer` receives the events, if there is one.
pub(crate) fn run_chat_turn(
    ctx: &Context,
    options: &TurnOptions,
    chat: ChatTurn<'_>,
    observer: Option<EventObserver>,
) -> TurnOutcome {
    let mut reporter = new_reporter(ctx, options, ReportFormat::Unprinted);
    chat.turn_id.clone_into(&mut reporter.envelope.turn);
    if let Some(observer) = observer {
        reporter.observe(observer);
    }
    run_unprinted(ctx, options, TurnSource::Chat(chat), reporter)
}

/// Runs a turn whose answer the caller prints or sends.
fn run_unprinted(
    ctx: &Context,
    options: &TurnOptions,
    source: TurnSource<'_>,
    mut reporter: Reporter,
) -> TurnOutcome {
    let outcome = run_to_outcome(ctx, options, source, &mut reporter);
    // Nothing is printed in this format, so this cannot fail. The log gets the result.
    drop(reporter.finish(|envelope| {
        json::result_json(&outcome.ending, outcome.exit, &outcome.run_metadata, envelope)
    }));
    outcome
}

/// Runs a turn of an editor, whose events go to `observer`. Prints progress only.
pub(crate) fn run_editor_turn(
    ctx: &Context,
    options: &TurnOptions,
    context: &InteractiveContext,
    observer: EventObserver,
) -> TurnOutcome {
    let mut reporter = new_reporter(ctx, options, ReportFormat::Unprinted);
    reporter.stream_to(observer);
    run_unprinted(ctx, options, TurnSource::Interactive(context), reporter)
}

/// Runs a turn of the REPL, and streams its answer. `print_error` prints an error with next steps that fit the REPL.
pub(crate) fn run_repl_turn(
    ctx: &Context,
    options: &TurnOptions,
    context: &InteractiveContext,
    print_error: fn(&anyhow::Error, Terminal),
) -> ReplOutcome {
    let mut reporter = new_reporter(ctx, options, ReportFormat::Text);
    reporter.progress.show_status_line();
    reporter.command_prefix = "/";
    let TurnOutcome { ending, exit, run_metadata, post_turn, .. } =
        run_to_outcome(ctx, options, TurnSource::Interactive(context), &mut reporter);
    let printed =
        reporter.finish(|envelope| json::result_json(&ending, exit, &run_metadata, envelope));
    for error in printed.err().iter().chain(&ending.error) {
        print_error(error, ctx.terminal);
    }
    post_turn.run(ctx, exit, OutputUse::GoesOn);
    ReplOutcome { exit, text: ending.text }
}

/// Prints what the next turn of the REPL would send, in the form of a dry run that `options` name.
///
/// # Errors
/// The turn could not be prepared.
pub(crate) fn show_repl_request(
    ctx: &Context,
    options: &TurnOptions,
    context: &InteractiveContext,
) -> Result<()> {
    let mut reporter = new_reporter(ctx, options, ReportFormat::Text);
    let source = TurnSource::Interactive(context);
    let TurnOutcome { ending, .. } = run_to_outcome(ctx, options, source, &mut reporter);
    ending.error.map_or(Ok(()), Err)
}

/// Selects the model and the provider that a turn with these options uses.
pub(crate) fn select_provider(ctx: &Context, options: &TurnOptions) -> Result<SelectedProvider> {
    let (settings, _) =
        permissions::settings_with_profile(ctx, &options.grants, options.model.overrides())?;
    Ok(resolve_endpoint(ctx, options, &settings)?.choice)
}

/// The endpoint of the first model of `settings`.
fn resolve_endpoint(ctx: &Context, options: &TurnOptions, settings: &Settings) -> Result<Endpoint> {
    let streams = !options.model.no_stream;
    model::resolve_endpoint(ctx, settings, &settings.models[0], options.limits.offline, streams)
}

/// True if the provider of turns with `options` lists its models, and that of `choice` is not among them. It is not asked about a model
/// of the table. Not every server has a list.
pub(crate) fn is_unlisted(ctx: &Context, choice: &SelectedProvider, options: &TurnOptions) -> bool {
    choice.model_info.is_none()
        && list_models(ctx, options)
            .is_ok_and(|models| !models.is_empty() && !models.contains(&choice.model))
}

/// The models that the provider of turns with `options` lists; none for a replay, which needs no server.
///
/// # Errors
/// The settings cannot be used, or the server has no list.
pub(crate) fn list_models(ctx: &Context, options: &TurnOptions) -> Result<Vec<String>> {
    if options.recording.replay.is_some() {
        return Ok(Vec::new());
    }
    let (settings, _) =
        permissions::settings_with_profile(ctx, &options.grants, options.model.overrides())?;
    let settings = connection_test::with_short_timeouts(&settings, MODEL_LIST_TIMEOUT);
    let endpoint = resolve_endpoint(ctx, options, &settings)?;
    let models =
        endpoint.http_provider.list_models(&mut |text| log::info!(target: "http", "{text}"));
    let models = models.map_err(ProviderError::into_failure)?;
    endpoint.store_models(ctx, &models);
    Ok(models)
}

impl TurnOutcome {
    /// Ends the MCP servers of `ctx`, and does the post-turn work, after the answer is delivered.
    pub(crate) fn finish(&self, ctx: &Context) {
        ctx.servers.shut_down();
        self.do_post_turn_work(ctx);
    }

    /// Does the post-turn work after the answer is delivered. The MCP servers of `ctx` keep running.
    pub(crate) fn do_post_turn_work(&self, ctx: &Context) {
        self.post_turn.run(ctx, self.exit, OutputUse::GoesOn);
    }
}

fn no_code_error(language: Option<&str>) -> anyhow::Error {
    let cause = match language {
        Some(language) => format!("the answer has no code block of `{language}`"),
        None => "the answer has no code block".to_owned(),
    };
    fail(Exit::BadInput, cause).with_hint("a message that requests code in a fenced block")
}

fn progress_level(ctx: &Context, output: &OutputOptions) -> ProgressLevel {
    if ctx.quiet {
        ProgressLevel::Quiet
    } else if output.is_verbose() {
        ProgressLevel::Lines
    } else {
        ProgressLevel::Notices
    }
}

fn new_reporter(ctx: &Context, options: &TurnOptions, format: ReportFormat) -> Reporter {
    let envelope = json::EventEnvelope {
        session: String::new(),
        turn: random_hex(5),
        clock: ctx.clock.clone(),
    };
    let progress = ProgressDisplay::new(ctx.terminal, progress_level(ctx, &options.output));
    let mut reporter = Reporter::new(ctx.terminal, format, progress, envelope);
    if options.schema.is_some() {
        reporter.buffer_answer();
    }
    if let Some(selection) = options.output.code_selection() {
        reporter.extract_code(selection);
    }
    if options.propose {
        reporter.print_beside_patch();
    }
    if options.output.no_markdown {
        reporter.disable_markdown();
    }
    // The config may name another file. This one is opened first, so that it records a failure to read the config.
    if let Some(path) = nanobot_os::log::event_file(&ctx.env) {
        reporter.log_to(&path);
    }
    reporter
}

/// Runs the turn, and turns errors into an outcome with a status, and with a result if the format prints one.
fn run_to_outcome(
    ctx: &Context,
    options: &TurnOptions,
    source: TurnSource<'_>,
    reporter: &mut Reporter,
) -> TurnOutcome {
    let started = Instant::now();
    let mut run_metadata = json::RunMetadata::default();
    let mut post_turn = PostTurnWork::default();
    let format = reporter.format();
    let is_job = source.job().is_some();
    let ending = run_steps(ctx, options, source, reporter, &mut run_metadata, &mut post_turn);
    let mut ending = ending.unwrap_or_else(|error| Ending {
        stop_reason: StopReason::Failed,
        error: Some(error),
        ..Ending::default()
    });
    if ending.error.is_none() {
        ending.error = ending_error(&ending, options, run_metadata.max_iterations, is_job);
    }
    if let Some(selection) = options.output.code_selection()
        && ending.error.is_none()
    {
        run_metadata.code = selection.find(&ending.text);
        if run_metadata.code.is_none() {
            ending.error = Some(no_code_error(selection.language.as_deref()));
        }
    }
    // The answer as text is printed by now; the result object is not.
    if ending.error.is_none() && format != ReportFormat::Text {
        ending.error = signal::check().err().map(Into::into);
    }
    if ending.error.is_some() {
        signal::begin_shutdown_if_stopped();
    }
    run_metadata.has_schema = options.schema.is_some();
    run_metadata.duration = started.elapsed();
    let exit = ending.error.as_ref().map_or(Exit::Answered, exit_for);
    if let Some(export) = &post_turn.span_export {
        export.end_turn(exit, ending.stats.usage, &run_metadata);
    }
    TurnOutcome { exit, ending, run_metadata, turn_id: reporter.envelope.turn.clone(), post_turn }
}

/// Runs the steps of a turn. Fills `run_metadata` and `post_turn` step by step, so that both are there after a failure too.
fn run_steps(
    ctx: &Context,
    options: &TurnOptions,
    mut source: TurnSource<'_>,
    reporter: &mut Reporter,
    run_metadata: &mut json::RunMetadata,
    post_turn: &mut PostTurnWork,
) -> Result<Ending> {
    if matches!(source, TurnSource::CommandLine) {
        signal::install(options.limits.timeout).context("wait for signals")?;
    }
    panic_if_requested(ctx);
    let request = request::read(ctx, options, &mut source, reporter)?;
    if request.command.is_some() && options.until.command.is_some() {
        let cause = "`--until` needs a task, and the message is a command";
        return Err(fail(Exit::Usage, cause).with_hint("the command without `--until`"));
    }
    run_metadata.max_iterations = request.settings.max_tool_iterations;
    log::info!(target: "config", "workspace `{}`", request.settings.workspace.display());
    let sessions = ctx.session_store(&request.settings)?;
    match request.command {
        Some(TurnCommand::Help) => return print_canned_reply(HELP_TEXT, reporter),
        Some(TurnCommand::Stop) => {
            return print_canned_reply(&stop::stop_run(&sessions, &request.key)?, reporter);
        }
        _ => {}
    }
    if !options.recording.is_dry_run_or_replay() {
        create_workspace(ctx, options, &request)?;
    }
    conversation::check_message(options, &request)?;
    let mut session = conversation::open(ctx, options, &source, &request, &sessions, reporter)?;
    reporter.envelope.session = session.key().to_owned();
    log_session(&session);
    if options.session.resume {
        session.restore_rejected_turn();
    }
    let is_new = request.command == Some(TurnCommand::New);
    if options.session.new || is_new {
        session.start_new_conversation()?;
        if let Some(interactive) = source.interactive() {
            interactive.has_new_conversation.set(true);
        }
    }
    if is_new {
        post_turn.consolidation =
            post_turn::plan_consolidation(ctx, options, &request.settings, &session, None);
        return print_canned_reply("New session started.", reporter);
    }
    if source.job().is_some_and(|job| job.last_turn_only) {
        session.drop_earlier_turns()?;
    }
    conversation::check_session(options, &request, &session)?;
    conversation::announce(options, &source, &request, &session, reporter);
    if !options.recording.is_dry_run_or_replay() {
        post_turn.sweep = RetentionSweep::plan(ctx, &request.settings, &sessions);
    }
    conversation::restore_images(ctx, options, &request.settings, &mut session);

    post_turn.span_export = SpanExport::begin(ctx, options, &request, reporter);
    let span_export = post_turn.span_export.as_ref();
    let traced_ctx = span_export.map(|export| ctx.with_trace(Arc::clone(&export.trace)));
    let ctx = traced_ctx.as_ref().unwrap_or(ctx);

    let propose = || Proposal::create(ctx, options, &request.settings, &request.profile);
    let proposal = options.propose.then(propose).transpose()?;
    let copy_options = proposal.as_ref().map(|proposal| proposal.options(options));
    let run_options = copy_options.as_ref().unwrap_or(options);
    let mut prepared =
        prepare::prepare(ctx, run_options, &source, request, session, reporter, run_metadata)?;
    if options.recording.dry_run.is_some() {
        prepared.session.begin_turn(&reporter.envelope.turn);
        dry_run::show(ctx, options, prepared)?;
        return Ok(Ending::default());
    }
    let purpose = source.call_purpose(prepared.session.key(), &reporter.envelope.turn);
    let model = model::choose(ctx, options, &prepared.settings, &purpose, reporter)?;
    message_size::check(
        prepared.message.as_ref(),
        model.known_max_tokens,
        prepared.settings.context_window,
    )?;
    run_metadata.provider.clone_from(&model.provider_name);
    run_metadata.model.clone_from(&model.model);
    reporter.progress.set_context_window(model.context_tokens);
    execute::run_hooks_before(&mut prepared, reporter)?;
    if let Some(approvals) = source.chat().and_then(|chat| chat.approvals.as_deref()) {
        approved_call::add_result(approvals, &reporter.envelope.turn, &mut prepared)?;
    }

    let is_file = prepare::is_existing_file(ctx, &prepared.setup.policy);
    let steering = || {
        let SteeringMessage { label, text } = source.next_steering_message()?;
        let sources = Some(text.sources(&is_file));
        let parts = vec![MessagePart::Text(text.as_str().to_owned())];
        Some(UserMessage { id: label, parts, sources, ..UserMessage::default() })
    };
    let mut ending = execute::execute(
        ctx,
        run_options,
        &mut prepared,
        &model,
        &purpose,
        reporter,
        Some(&steering),
    );
    if let Some(proposal) = &proposal {
        match proposal.changes(&prepared.setup.shared.files.written_paths()) {
            Ok(changes) => {
                report_left_out(&changes, reporter);
                run_metadata.patch = Some(changes.patch);
            }
            Err(error) => drop(ending.error.get_or_insert(error)),
        }
    }
    if let Some(command) = options.until.command.as_deref().filter(|_| ending.is_unneeded) {
        let force = match source {
            TurnSource::CommandLine => "; `--force` sends the message",
            _ => "",
        };
        reporter.notice(&format!("`{command}` succeeds already, so nothing was sent{force}"));
    }
    run_metadata.origin = prepared.session.origin().map(|origin| origin.level);
    run_metadata.hosts = prepared.setup.shared.host_connections();
    let session = &prepared.session;
    let default_key =
        default_session_key(ctx, &prepared.settings, options.grants.directory.as_deref());
    if session.is_stored()
        && session.is_interrupted()
        && proposal.is_none()
        && let Some(command) = source.resume_command(session.key(), &default_key)
    {
        let is_left_out = ending.is_left_out;
        // The REPL has a line of its own for it, and a script knows what it has done.
        let says_interrupted =
            matches!(source, TurnSource::CommandLine) && ctx.terminal.stderr_is_tty;
        let command = match &options.until.command {
            Some(until) => format!("{command} --until {}", shell_quote::quote(until)),
            None => command,
        };
        ending.error = ending
            .error
            .map(|error| with_next_step(error, &command, is_left_out, says_interrupted));
    }
    if prepared.compaction.is_none() {
        post_turn.title =
            post_turn::plan_title(options, &prepared.settings, &source, session, &model);
    }
    post_turn.consolidation =
        execute::finish(ctx, options, &prepared, &model, &sessions, &mut ending, reporter);
    prepare::report_nested_files(&prepared.setup, reporter, run_metadata);
    Ok(ending)
}

/// Reports new files and directories that are not in the patch, and changes that only git can apply.
fn report_left_out(changes: &CopyChanges, reporter: &mut Reporter) {
    let list = |paths: &mut dyn Iterator<Item = &PathBuf>| {
        let names: Vec<String> = paths.map(|path| format!("`{}`", path.display())).collect();
        list_first(&names, MAX_NAMED_FILES)
    };
    if !changes.left_out.is_empty() {
        let names = list(&mut changes.left_out.iter());
        reporter.notice(&format!("dependencies and build results are not in the patch: {names}"));
    }
    if !changes.ignored.is_empty() {
        let names = list(&mut changes.ignored.iter());
        reporter.notice(&format!(
            "not in the patch, since a `.gitignore` that the run has changed ignores it: {names}"
        ));
    }
    if !changes.only_for_git.is_empty() {
        let names = list(&mut changes.only_for_git.iter());
        reporter.notice(&format!(
            "`git apply` takes this patch, and `nanobot apply` does not: {names}"
        ));
    }
}

/// Creates the workspace of a first run. A run that cannot send its request creates nothing.
fn create_workspace(ctx: &Context, options: &TurnOptions, request: &TurnRequest) -> Result<()> {
    let workspace = &request.settings.workspace;
    if workspace.is_dir() {
        return Ok(());
    }
    if request.command.is_none() {
        resolve_endpoint(ctx, options, &request.settings)?;
    }
    if let Err(error) = durable_file::create_dir(workspace) {
        if !options.session.ephemeral {
            return Err(error);
        }
        log::info!(target: "config", "{error:#}");
    }
    Ok(())
}

/// Adds to the hint of `error` that `command` continues the turn.
fn with_next_step(
    error: anyhow::Error,
    command: &str,
    is_left_out: bool,
    says_interrupted: bool,
) -> anyhow::Error {
    let exit = exit_for(&error);
    let step = if is_left_out {
        format!(
            "`{command}` sends this message again, to another model perhaps; until then it is left out"
        )
    } else {
        match exit {
            Exit::Interrupted if !says_interrupted => return error,
            Exit::Timeout | Exit::Budget | Exit::Interrupted => {
                format!("`{command}` continues where this run stopped")
            }
            // Until the user has followed the hint, another attempt would fail the same way.
            Exit::Unavailable if hint_for(&error).is_some() => return error,
            Exit::Unavailable => format!("`{command}` continues this turn"),
            // The hint repeats the command, which would send the message twice.
            Exit::TryAgain => format!("`{command}` continues this turn, later"),
            _ => return error,
        }
    };
    let mut parts = if exit == Exit::TryAgain { Vec::new() } else { hint_parts(&error) };
    if !parts.is_empty() {
        parts.push("; ".into());
    }
    parts.push(step.into());
    fail_with_parts(exit, format!("{error:#}"), parts)
}

/// Panics if a test requests it.
fn panic_if_requested(ctx: &Context) {
    assert!(
        nanobot_os::test_hooks::PANIC.get(&ctx.env).is_none(),
        "requested by {}",
        nanobot_os::test_hooks::PANIC
    );
}

fn log_session(session: &Session) {
    let (total, sent) = (session.history_window().count, session.messages().len());
    let lock = if session.is_stored() { ", locked for this turn" } else { "; nothing is stored" };
    log::info!(target: "session", "`{}`: {total} messages, {sent} of them sent{lock}", session.key());
}

/// The error of a turn that ended without a complete answer, or with a denial under `--strict`, which each job has. It decides the exit status.
fn ending_error(
    ending: &Ending,
    options: &TurnOptions,
    max_iterations: u32,
    is_job: bool,
) -> Option<anyhow::Error> {
    let exit = exit_status(ending.stop_reason);
    match ending.stop_reason {
        StopReason::Answered if options.limits.strict => {
            ending.stats.denials.first().map(|denial| {
                let tool = &denial.tool_name;
                let reason = if is_job { "a job" } else { "`--strict`" };
                let cause = format!("a call of `{tool}` was denied, which {reason} does not allow");
                denial_error(Exit::Denied, cause, denial.suggested_flag.as_deref())
            })
        }
        StopReason::Answered => None,
        StopReason::IterationLimit => {
            let limit = count_noun(max_iterations as usize, "request");
            let hint = "a higher `--max-iterations`, or a smaller task";
            Some(fail(exit, format!("stopped at the limit of {limit}")).with_hint(hint))
        }
        StopReason::OutputLimit => Some(
            fail(exit, "the answer was truncated by the output limit")
                .with_hint("a higher `--max-tokens`"),
        ),
        StopReason::RoundLimit => {
            let command = options.until.command.as_deref().unwrap_or_default();
            let rounds = count_noun(ending.rounds.len(), "round");
            let failure = ending.rounds.last().and_then(|round| round.failure.as_deref());
            let failure = failure.unwrap_or_default();
            let cause = format!("`{command}` still fails after {rounds}: {failure}");
            Some(fail(exit, cause).with_hint("a higher `--max-rounds`, or a smaller task"))
        }
        StopReason::RepeatedDenial => ending.stats.denials.last().map(|denial| {
            let tool = &denial.tool_name;
            let cause = format!("stopped because the same call of `{tool}` was repeatedly denied");
            denial_error(exit, cause, denial.suggested_flag.as_deref())
        }),
        StopReason::RepeatedFailure => {
            Some(fail(exit, "stopped because the same call failed repeatedly"))
        }
        StopReason::RepeatedCall => {
            Some(fail(exit, "stopped because the model repeated a call that gave the same result"))
        }
        StopReason::Declined => Some(fail(exit, DECLINED)),
        StopReason::Failed => Some(fail(exit, "failed")),
    }
}

fn denial_error(exit: Exit, cause: String, suggested_flag: Option<&str>) -> anyhow::Error {
    match suggested_flag {
        Some(flag) => fail_with_step(exit, cause, NextStep::GrantFlag(flag.to_owned())),
        None => fail(exit, cause),
    }
}

/// The output of `/help`: the messages that are commands.
const HELP_TEXT: &str = "/new      start a new conversation\n/stop     end the run in progress in this session, as Ctrl-C does\n/compact  summarize the conversation; text after it instructs the summary\n\
     /NAME     use the skill NAME, or with /SERVER:NAME a prompt of an MCP server; any other text that begins with a slash is a message\n/help     show this list\n\nFor command-line options: nanobot agent --help";

/// Prints a built-in text as the answer.
fn print_canned_reply(text: &str, reporter: &mut Reporter) -> Result<Ending> {
    reporter.disable_markdown();
    let reply = Reply { text: text.into(), ..Reply::default() };
    reporter.emit(Event::Assistant { reply: &reply, is_final: true })?;
    Ok(Ending { text: reply.text, ..Ending::default() })
}
