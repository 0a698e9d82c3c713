//! `nanobot agent`: one turn, from the command line to the status.

use crate::answer::Schema;
use crate::attach::{self, Accepts, ImageLimits, Origin, Terms};
use crate::error::{Exit, Stop, exit_of, fail, fail_hint};
use crate::event::{Event, StopReason};
use crate::guard::compaction::Compaction;
use crate::guard::iterations::Iterations;
use crate::guard::lost::Lost;
use crate::guard::plan::Plan;
use crate::guard::repeats::Repeats;
use crate::guard::warning::Warning;
use crate::history::spawned;
use crate::ledger::Account;
use crate::mcp::client::Answers;
use crate::memory::Memory;
use crate::message::{Part, User};
use crate::ops::after_turn::{self, Afterwards};
use crate::ops::context::Context;
use crate::ops::dry_run::DryRunForm;
use crate::ops::jobs::scheduler::Keeper;
use crate::ops::model;
use crate::ops::permissions;
use crate::ops::subagents::{Crew, Stage};
use crate::ops::toolset::{self, SetupInput};
use crate::ops::turn_options::TurnOptions;
use crate::policy::Policy;
use crate::policy::seen::PIPED;
use crate::prompt;
use crate::report::{Form, Level, Progress, Report, json};
use crate::session::{self, Place, Session, consolidation};
use crate::settings::{Overrides, Settings};
use crate::sys;
use crate::sys::input::{self, Reading};
use crate::sys::secret::random_hex;
use crate::sys::signal;
use crate::sys::terminal::Terminal;
use crate::tool::ask_user::Person;
use crate::turn;
use crate::turn::agent::Agent;
use crate::turn::ending::{DECLINED, Ending, exit_status};
use crate::turn::guard::Guard;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A turn that nobody typed: a job's.
pub(crate) struct JobTurn<'a> {
    /// The job's id, for the ledger.
    pub(crate) id: &'a str,
    /// What the model is told of it besides the message.
    pub(crate) job_prompt: &'a str,
    /// More than this it may not do.
    pub(crate) policy_limit: Option<&'a Policy>,
    /// What came in with it, as if it had been piped in.
    pub(crate) input: Option<Vec<u8>>,
    /// Of what was said before, only the last turn is sent.
    pub(crate) last_turn_only: bool,
    /// In words, why the message is no word of the user's.
    pub(crate) untrusted_reason: Option<&'static str>,
}

/// By which way a turn came in.
enum TurnOrigin<'a> {
    /// A command line of its own.
    CommandLine,
    /// A job.
    Job(JobTurn<'a>),
    /// A conversation at a terminal.
    Repl(&'a ReplContext),
}

impl<'a> TurnOrigin<'a> {
    fn job(&self) -> Option<&JobTurn<'a>> {
        match self {
            Self::Job(job) => Some(job),
            Self::CommandLine | Self::Repl(_) => None,
        }
    }
}

/// What the turns of a conversation at a terminal share.
pub(crate) struct ReplContext {
    /// Who answers the model's questions, and decides about what it may not do by itself.
    pub(crate) person: Arc<dyn Person>,
    /// And what servers want to know.
    pub(crate) answers: Arc<dyn Answers>,
    /// What goes extra_input with the message, as if it had been piped in. It is taken when it is used.
    pub(crate) extra_input: RefCell<Option<Vec<u8>>>,
    /// Prints an error with the next steps of a conversation.
    pub(crate) print_error: fn(&anyhow::Error, Terminal),
}

/// What became of a turn of a conversation.
pub(crate) struct ReplOutcome {
    pub(crate) exit: Exit,
    /// What was answered.
    pub(crate) text: String,
}

/// How a turn went.
pub(crate) struct TurnOutcome {
    pub(crate) ending: Ending,
    pub(crate) exit: Exit,
    pub(crate) about: json::Run,
    pub(crate) turn: String,
    afterwards: Option<Afterwards>,
}

/// Run the turn, print what is to be printed, and say how it ended.
pub(crate) fn run(ctx: &Context, arguments: &TurnOptions, form: Form) -> Exit {
    let mut report = report(ctx, arguments, form);
    let TurnOutcome {
        ending,
        mut exit,
        about,
        afterwards,
        ..
    } = run_caught(ctx, arguments, TurnOrigin::CommandLine, &mut report);
    if arguments.dry_run.is_some() && ending.error.is_none() {
        return exit;
    }
    // What a budget cut short was paid for all the same.
    let printed = exit == Exit::Budget && ending.partial && form == Form::Text && !ctx.terminal.out;
    if printed
        && let Err(error) = ctx
            .terminal
            .print(&format!("{}\n", ending.text.trim_end_matches('\n')))
    {
        exit = crate::ops::context::report_error(&error, ctx.terminal);
    }
    if let Err(error) = report.finish(&json::result(&ending, exit, &about, &report.stamp))
        && exit == Exit::Answered
    {
        // What went wrong before is the truer cause.
        exit = crate::ops::context::report_error(&error, ctx.terminal);
    }
    if let Some(error) = &ending.error {
        crate::ops::context::report_error(error, ctx.terminal);
        if printed {
            ctx.terminal
                .complain("nanobot: what was printed is not a whole answer");
        }
    }
    // The answer is out: nobody waits for their end, and what follows needs none of them.
    ctx.servers.end();
    if let Some(afterwards) = afterwards {
        afterwards.run(ctx, exit, level(ctx, arguments) == Level::Lines);
    }
    exit
}

/// Run a turn of which nothing is printed but what goes on; the answer is for whoever asked.
pub(crate) fn run_job_turn(
    ctx: &Context,
    arguments: &TurnOptions,
    job: JobTurn<'_>,
) -> TurnOutcome {
    let mut report = report(ctx, arguments, Form::Held);
    let gone = run_caught(ctx, arguments, TurnOrigin::Job(job), &mut report);
    // Nothing is printed in this form, so that nothing can fail; the log has the result.
    drop(report.finish(&json::result(
        &gone.ending,
        gone.exit,
        &gone.about,
        &report.stamp,
    )));
    gone
}

/// Run a turn of a conversation: its answer is printed as it comes.
pub(crate) fn run_repl_turn(
    ctx: &Context,
    arguments: &TurnOptions,
    talk: &ReplContext,
) -> ReplOutcome {
    let mut report = report(ctx, arguments, Form::Text);
    let gone = run_caught(ctx, arguments, TurnOrigin::Repl(talk), &mut report);
    let TurnOutcome {
        ending,
        exit,
        about,
        afterwards,
        ..
    } = gone;
    let result = json::result(&ending, exit, &about, &report.stamp);
    for error in report.finish(&result).err().iter().chain(&ending.error) {
        (talk.print_error)(error, ctx.terminal);
    }
    if let Some(afterwards) = afterwards {
        afterwards.run(ctx, exit, false);
    }
    ReplOutcome {
        exit,
        text: ending.text,
    }
}

/// Who would be asked with `arguments`.
pub(crate) fn provider_name(ctx: &Context, arguments: &TurnOptions) -> Result<String> {
    let settings = ctx.settings_with(overrides(arguments))?;
    let way = model::resolve_endpoint(ctx, &settings, &settings.asked[0], arguments.offline, true)?;
    Ok(way.choice.provider)
}

impl TurnOutcome {
    /// Do what is left to do once the answer is where it belongs.
    pub(crate) fn tidy(&self, ctx: &Context) {
        ctx.servers.end();
        if let Some(afterwards) = &self.afterwards {
            afterwards.run(ctx, self.exit, false);
        }
    }
}

fn level(ctx: &Context, arguments: &TurnOptions) -> Level {
    match (ctx.quiet, arguments.verbose) {
        (true, _) => Level::Quiet,
        (_, true) => Level::Lines,
        _ => Level::Notices,
    }
}

fn report(ctx: &Context, arguments: &TurnOptions, form: Form) -> Report {
    let stamp = json::Stamp {
        session: String::new(),
        turn: random_hex(5),
        clock: ctx.clock.clone(),
    };
    let progress = Progress::new(ctx.terminal, level(ctx, arguments));
    let mut report = Report::new(ctx.terminal, form, progress, stamp);
    if arguments.schema.is_some() {
        report.show_whole();
    }
    if arguments.no_markdown {
        report.show_as_written();
    }
    if let Some(path) = ctx.env.get(sys::env::LOG)
        && sys::log::is_file(path)
    {
        report.log_to(Path::new(path));
    }
    report
}

/// Run the turn, whatever happens: a defect of ours ends as every failure does, with its status, and with a result where one
/// is printed.
fn run_caught(
    ctx: &Context,
    arguments: &TurnOptions,
    origin: TurnOrigin<'_>,
    report: &mut Report,
) -> TurnOutcome {
    let started = Instant::now();
    let mut about = json::Run::default();
    let mut afterwards = None;
    let form = report.form();
    let ending = catch_unwind(AssertUnwindSafe(|| {
        run_turn(ctx, arguments, origin, report, &mut about, &mut afterwards)
    }));
    let ending = ending.unwrap_or_else(|_| Err(Stop(Exit::Defect).into()));
    let mut ending = ending.unwrap_or_else(|error| Ending {
        cause: StopReason::Failed,
        error: Some(error),
        ..Ending::default()
    });
    if ending.error.is_none() {
        ending.error = shortfall(&ending, arguments, about.max_iterations);
    }
    // The answer as text is out by now; the result object is not.
    if ending.error.is_none() && form != Form::Text {
        ending.error = signal::check().err().map(Into::into);
    }
    if ending.error.is_some() {
        signal::last_words();
    }
    about.has_schema = arguments.schema.is_some();
    about.duration = started.elapsed();
    TurnOutcome {
        exit: ending.error.as_ref().map_or(Exit::Answered, exit_of),
        ending,
        about,
        turn: report.stamp.turn.clone(),
        afterwards,
    }
}

/// What to say of an answer that is not a whole one, or not all that was asked for.
fn shortfall(
    ending: &Ending,
    arguments: &TurnOptions,
    max_iterations: u32,
) -> Option<anyhow::Error> {
    let exit = exit_status(ending.cause);
    match ending.cause {
        StopReason::Answered if arguments.strict => ending.tally.denials.first().map(|denial| {
            let cause = format!(
                "`{}` was denied something, which `--strict` forbids",
                denial.tool
            );
            match &denial.grant {
                Some(flag) => fail_hint(Exit::Denied, cause, format!("`{flag}`")),
                None => fail(Exit::Denied, cause),
            }
        }),
        StopReason::Answered => None,
        StopReason::IterationLimit => Some(fail_hint(
            exit,
            format!("stopped by the limit of {max_iterations} requests"),
            "a higher `--max-iterations`, or a smaller task",
        )),
        StopReason::OutputLimit => Some(fail_hint(
            exit,
            "the answer was cut by the output limit",
            "a higher `--max-tokens`",
        )),
        StopReason::Refused => ending.tally.denials.last().map(|denial| {
            let cause = format!(
                "stopped because the same call of `{}` kept being refused",
                denial.tool
            );
            match &denial.grant {
                Some(flag) => fail_hint(exit, cause, format!("`{flag}`")),
                None => fail(exit, cause),
            }
        }),
        StopReason::RepeatedFailure => {
            Some(fail(exit, "stopped because the same call kept failing"))
        }
        StopReason::Declined => Some(fail(exit, DECLINED)),
        StopReason::Failed => Some(fail(exit, "failed")),
    }
}

/// From the command line to the end of the turn.
fn run_turn(
    ctx: &Context,
    arguments: &TurnOptions,
    mut origin: TurnOrigin<'_>,
    report: &mut Report,
    about: &mut json::Run,
    afterwards: &mut Option<Afterwards>,
) -> Result<Ending> {
    if matches!(origin, TurnOrigin::CommandLine) {
        signal::arm(arguments.timeout).context("wait for signals")?;
    }
    assert!(
        ctx.env.get(sys::env::TEST_DEFECT).is_none(),
        "asked for by {}",
        sys::env::TEST_DEFECT
    );
    let schema = arguments.schema.as_deref().map(read_schema).transpose()?;
    let piped = match &mut origin {
        TurnOrigin::Job(job) => job.input.take(),
        TurnOrigin::CommandLine => read_piped(ctx, arguments, report)?,
        TurnOrigin::Repl(talk) => talk.extra_input.take(),
    };
    let job = origin.job();
    let mut flags = overrides(arguments);
    let mut settings = ctx.settings_with(flags.clone())?;
    let profile = permissions::profile(ctx, &arguments.grants, &settings)?;
    if profile.model.is_some() || profile.max_iterations.is_some() {
        flags.model = flags.model.or_else(|| profile.model.clone());
        flags.max_iterations = flags.max_iterations.or(profile.max_iterations);
        settings = ctx.settings_with(flags)?;
    }
    about.max_iterations = settings.max_tool_iterations;
    log::info!(target: "config", "workspace `{}`", settings.workspace.display());

    let key = session_key(arguments, piped.is_some());
    report.stamp.session.clone_from(&key);
    // Text that was piped in with no word beside it is a message, and still nobody knows who wrote it.
    let is_bare = arguments.message.as_deref().is_none_or(|text| text == "-");
    let untrusted_reason = job.and_then(|job| job.untrusted_reason);
    let mark = match piped.is_some() && is_bare || untrusted_reason.is_some() {
        true => PIPED,
        false => "0",
    };
    let parts = message(ctx, arguments, &settings, piped, report)?;
    let command = single_text(&parts)
        .map(str::trim)
        .filter(|_| arguments.message.is_some() && job.is_none());
    if command == Some("/help") {
        return print_canned_reply(HELP, report);
    }

    let workspace = Workspace::new(&settings.workspace);
    let place = ctx.session_place(&settings)?;
    let limit = settings.max_tool_result_chars;
    let mut session = open_session(ctx, arguments, &place, &key, limit, report)?;
    report.stamp.session = session.key().to_owned();
    let sent = session.messages().len();
    log::info!(target: "session", "`{}`: {} messages, {sent} of them sent{}", session.key(), session.outline().count,
               if session.is_kept() { ", locked for this turn" } else { "; nothing is kept" });
    if arguments.new || command == Some("/new") {
        session.start_afresh()?;
    }
    if command == Some("/new") {
        *afterwards = after_turn::due(arguments, &settings, &session, None);
        return print_canned_reply("New session started.", report);
    }
    if job.is_some_and(|job| job.last_turn_only) {
        session.keep_last_turn()?;
    }
    let compact = command.and_then(compacts);
    if compact.is_some() && session.interrupted() {
        return Err(fail_hint(
            Exit::Usage,
            "the last turn was interrupted, and a summary would end it",
            "`nanobot agent --resume`, or `--new`",
        ));
    }
    let is_look = matches!(
        arguments.dry_run,
        Some(DryRunForm::Table | DryRunForm::TableJson)
    );
    if parts.is_empty() && !arguments.resume && !is_look {
        return Err(fail_hint(
            Exit::NoInput,
            "no message",
            "`nanobot agent -m \"…\"`, or pipe some text in",
        ));
    }
    if arguments.resume && parts.is_empty() && !session.interrupted() {
        return Err(fail_hint(
            Exit::NoInput,
            format!("session `{}` has no interrupted turn", session.key()),
            "a message with `-m`: its last turn has ended",
        ));
    }

    let crew = Crew::new(ctx, arguments, &settings);
    let turn = report.stamp.turn.clone();
    let rehearsal = arguments.is_dry_run_or_replay();
    let cast = SetupInput {
        grants: &arguments.grants,
        settings: &settings,
        workspace: &workspace,
        profile: &profile,
        turn: &turn,
        session: session.key(),
        parallel: arguments.max_parallel,
        offline: arguments.offline,
        rehearsal,
        crew: Some(&crew),
        bound: job.and_then(|job| job.policy_limit),
        person: match &origin {
            TurnOrigin::Repl(talk) => Some(Arc::clone(&talk.person)),
            TurnOrigin::CommandLine | TurnOrigin::Job(_) => None,
        },
        answers: match &origin {
            TurnOrigin::Repl(talk) => Some(Arc::clone(&talk.answers)),
            TurnOrigin::CommandLine | TurnOrigin::Job(_) => None,
        },
        // A job makes no jobs: they would grow without end.
        planner: match job {
            Some(_) => None,
            None => Some(Arc::new(Keeper::new(ctx, &settings))),
        },
    };
    let mut scene = toolset::prepare(ctx, &cast, &mut |text| report.notice(text))?;
    log::info!(target: "policy", "profile `{}` in `{}`; tools: {}", profile.name, scene.policy.reach.directory.display(),
               scene.toolbox.names().join(", "));
    for root in &scene.policy.reach.roots {
        let may = if root.may_write && !scene.policy.reads_only {
            "read and change"
        } else {
            "read"
        };
        log::debug!(target: "policy", "may {may} `{}`", root.path.display());
    }
    if let Some(path) = scene.ignored.first() {
        about.ignored.clone_from(&scene.ignored);
        if ctx.terminal.err {
            let more = match scene.ignored.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let path = path.display();
            report.notice(&format!(
                "`{path}`{more} ignored: read it, and then say `nanobot trust`, if it is to be heeded"
            ));
        }
    }
    if let Some(job) = job {
        scene.sections.push(prompt::job(job.job_prompt));
    }
    if let Some(what) = untrusted_reason {
        scene.common.seen.taint(what);
    }
    let input = (!parts.is_empty()).then(|| User {
        id: format!("{}-{mark}", report.stamp.turn),
        parts,
        facts: prompt::facts(&ctx.clock.now(), session.key()),
        injected: false,
    });
    let sampling = model::sampling(&settings.asked[0]);
    let system = match &schema {
        Some(schema) => format!("{}\n\n{}", prompt::joined(&scene.sections), schema.words()),
        None => prompt::joined(&scene.sections),
    };
    let answer = schema
        .as_ref()
        .map(|schema| schema as &dyn turn::agent::Answer);
    if arguments.dry_run.is_some() {
        let said = (system.as_str(), answer);
        crate::ops::dry_run::show(ctx, arguments, &settings, &scene, said, session, input)?;
        return Ok(Ending::default());
    }
    let account = Account {
        session: session.key().to_owned(),
        turn: report.stamp.turn.clone(),
        job: job.map(|job| job.id.to_owned()),
        cause: "turn",
    };
    let chosen = model::choose(ctx, arguments, &settings, &account, report)?;
    about.provider.clone_from(&chosen.provider);
    about.model.clone_from(&chosen.model);
    let mut guards = guards(&settings, chosen.context, profile.reads_only);
    let mut agent = Agent {
        system: &system,
        provider: chosen.answers.as_ref(),
        toolbox: &scene.toolbox,
        guards: &mut guards,
        model: &chosen.model,
        sampling: &sampling,
        answer,
        beside: Some(&crew),
    };
    session.begin(&report.stamp.turn);
    let names: Vec<&str> = settings.servers.iter().map(|it| it.name.as_str()).collect();
    let mut watch = crate::ops::tool_usage::Watch::new(&scene, &names);
    let open = crew.open(Stage {
        common: scene.common.clone(),
        policy: Arc::clone(&scene.policy),
        tools: scene
            .toolbox
            .specs()
            .iter()
            .map(|spec| spec.name.clone())
            .collect(),
        chosen: chosen.clone(),
        account: account.clone(),
        last: spawned::last_number(session.messages()),
    });
    let mut tell = |event: Event<'_>| {
        watch.see(&scene, &event);
        report.tell(event)
    };
    let memory = Memory::new(&settings.workspace, &ctx.clock);
    let remembered = memory.read()?.unwrap_or_default();
    let mut ending = match compact {
        Some(instructions) => {
            turn::compact::now(&mut agent, &mut session, instructions.as_deref(), &mut tell)
        }
        None => turn::run(&mut agent, &mut session, input, &mut tell),
    };
    drop(open);
    if !rehearsal && let Err(error) = watch.record(ctx, &account, &ending.tally) {
        // The answer is out, and a number that is too small is no failure.
        report.notice(&format!("what was used is not written down: {error:#}"));
    }
    if ending.cause == StopReason::Answered && ending.error.is_none() {
        *afterwards = after_turn::due(arguments, &settings, &session, Some(&chosen));
    }
    if let Some(what) = scene.common.seen.untrusted() {
        // Whoever changed it, a tool of ours or a command. The answer is out, and given all the same.
        let labelled = memory.read().and_then(|text| {
            let is_changed = text.unwrap_or_default() != remembered;
            match is_changed {
                true => label(&memory, &remembered, &place, &what),
                false => Ok(()),
            }
        });
        if let Err(error) = labelled {
            let error = error.context("note that the memory may be a untrusted_reason's");
            ending.error = ending.error.or(Some(error));
        }
    }
    if key.starts_with("pipe:") {
        // The answer is out: what is in the way of tidying up is no failure of this run.
        if let Err(error) = session::prune(&place) {
            report.notice(&format!("old sessions stay: {error:#}"));
        }
    }
    Ok(ending)
}

/// Note with the version of the memory that this turn has made what strangers had said before.
fn label(memory: &Memory, before: &[u8], place: &Place, what: &str) -> Result<()> {
    let mut advance = |key: &str, from, to| consolidation::advance(place, key, from, to).map(drop);
    let patience = Duration::from_secs(10);
    let held = memory.hold(patience, &mut || {}, &mut advance)?;
    held.label(before, what)
}

/// What may stop or bend the turn, in the order in which it is asked. Budgets wrap the provider.
fn guards(settings: &Settings, context: u32, reads_only: bool) -> Vec<Box<dyn Guard>> {
    let mut guards: Vec<Box<dyn Guard>> = vec![
        Box::new(Iterations {
            limit: settings.max_tool_iterations,
        }),
        // What is to end is not made smaller before.
        Box::new(Repeats),
        Box::new(Lost::default()),
    ];
    let output = settings.asked[0].max_tokens;
    if let Some(threshold) = settings.compaction.at(context, output) {
        guards.push(Box::new(Compaction { threshold }));
        if settings.compaction.warns {
            guards.push(Box::new(Warning { threshold }));
        }
    }
    // Last: what a compaction swept away is said again.
    guards.push(Box::new(Plan { reads_only }));
    guards
}

/// The schema in a file of that name, or in the text itself.
fn read_schema(text: &str) -> Result<Schema> {
    let path = Path::new(text);
    if text.trim_start().starts_with('{') || !path.is_file() {
        return Schema::parse(text);
    }
    let bytes = input::read_file(path, text, input::LIMIT)?;
    Schema::parse(&String::from_utf8_lossy(&bytes))
}

/// Whether a message is `/compact`, and what is to be heeded.
fn compacts(command: &str) -> Option<Option<String>> {
    let instructions = command.strip_prefix("/compact")?;
    let begins_anew = instructions.is_empty() || instructions.starts_with(char::is_whitespace);
    let instructions = instructions.trim();
    begins_anew.then(|| (!instructions.is_empty()).then(|| instructions.to_owned()))
}

/// What `/help` prints: the commands that work as a message.
const HELP: &str = "/new      start the conversation afresh\n/compact  sum the conversation up; what follows is heeded in the summary\n\
     /help     this list\n\nFor all else: nanobot agent --help";

/// A word of our own as the answer.
fn print_canned_reply(text: &str, report: &mut Report) -> Result<Ending> {
    report.show_as_written();
    let reply = crate::message::Reply {
        text: text.into(),
        ..crate::message::Reply::default()
    };
    report.tell(Event::Assistant {
        reply: &reply,
        last: true,
    })?;
    Ok(Ending {
        text: reply.text,
        ..Ending::default()
    })
}

fn overrides(arguments: &TurnOptions) -> Overrides {
    Overrides {
        model: arguments.model.clone(),
        max_tokens: arguments.max_tokens,
        temperature: arguments.temperature,
        reasoning_effort: arguments.reasoning_effort.clone(),
        max_iterations: arguments.max_iterations,
        workspace: None,
    }
}

fn read_piped(
    ctx: &Context,
    arguments: &TurnOptions,
    report: &mut Report,
) -> Result<Option<Vec<u8>>> {
    let never =
        arguments.no_stdin || (ctx.env.get(sys::env::STDIN) == Some("never") && !arguments.stdin);
    let reading = match (arguments.message.as_deref(), arguments.stdin, never) {
        _ if attaches_stdin(arguments)? => Reading::Always,
        (Some("-"), ..) | (_, true, _) => Reading::Always,
        (_, _, true) => Reading::Never,
        _ => Reading::Auto,
    };
    let silence = ctx.env.seconds(
        sys::env::STDIN_SILENCE,
        input::GIVE_UP_AFTER.as_secs(),
        86_400,
    )?;
    input::read(reading, silence, &mut |text| report.notice(text))
}

/// Piped input gets a conversation of its own, so that filters neither share nor grow one.
fn session_key(arguments: &TurnOptions, piped: bool) -> String {
    match (&arguments.session, &arguments.fork) {
        (Some(key), _) => key.clone(),
        (None, Some(_)) => format!("fork:{}", random_hex(4)),
        (None, None) if piped && !arguments.resume => format!("pipe:{}", random_hex(6)),
        (None, None) => "cli:direct".into(),
    }
}

fn open_session(
    ctx: &Context,
    arguments: &TurnOptions,
    place: &Place,
    key: &str,
    limit: usize,
    report: &mut Report,
) -> Result<Session> {
    let rehearsal = arguments.is_dry_run_or_replay();
    let patience = arguments.wait;
    // All that takes time there is another run's lock.
    let mut tell = |text: &str| {
        report.notice(text);
        report.wait("giving up", patience);
    };
    if arguments.ephemeral
        || (rehearsal && arguments.session.is_none())
        || arguments.dry_run.is_some()
    {
        let source = arguments.fork.as_ref().or(arguments.session.as_ref());
        return match source {
            Some(source) => Ok(Session::read(place, source, &mut tell)?.under(key)),
            None => Ok(Session::ephemeral(key, limit)),
        };
    }
    let Some(source) = &arguments.fork else {
        return Session::open(place, key, patience, &mut tell);
    };
    // The same as `session fork`, so that the copy has all that was said, and a summary where there is one.
    session::fork(place, source, key, None)?;
    let session = Session::open(place, key, patience, &mut tell)?;
    if arguments.session.is_none() && !ctx.quiet {
        report.notice(&format!("the copy of `{source}` is `{key}`"));
    }
    Ok(session)
}

/// Whether standard input is an attachment, and so no part of the message.
fn attaches_stdin(arguments: &TurnOptions) -> Result<bool> {
    let times = arguments.attach.iter().filter(|given| *given == "-");
    let wrong = match times.count() {
        0 => return Ok(false),
        1 if arguments.no_stdin => {
            "`--attach -` is standard input, which `--no-stdin` leaves unread"
        }
        1 if arguments.message.as_deref().is_none_or(|text| text == "-") => {
            "`--attach -` takes standard input, so the message must be given with `-m`"
        }
        1 => return Ok(true),
        _ => "standard input can be attached once",
    };
    Err(fail(Exit::Usage, wrong))
}

/// The turn's message: images and documents first, then the text, what is attached after it.
fn message(
    ctx: &Context,
    arguments: &TurnOptions,
    settings: &Settings,
    piped: Option<Vec<u8>>,
    report: &mut Report,
) -> Result<Vec<Part>> {
    // What is no text is known by its first bytes; only then it matters what the model takes.
    let is_text = |bytes: &[u8]| input::image_type(bytes).is_none() && !bytes.starts_with(b"%PDF-");
    let (accepts, images) =
        match arguments.attach.is_empty() && piped.as_deref().is_none_or(is_text) {
            true => (Accepts::default(), ImageLimits::default()),
            false => model::accepts(ctx, settings),
        };
    let terms = Terms {
        accepts,
        images,
        offline: arguments.offline,
        env: &ctx.env,
    };
    let mut tell = |text: &str| report.notice(text);
    let (mut piped, mut attached) = match attaches_stdin(arguments)? {
        true => (None, piped),
        false => (piped, None),
    };
    let mut parts = Vec::new();
    if let Some(bytes) = &piped
        && let Some(part) = attach::other_than_text(bytes, Origin::Stdin, &terms, &mut tell)?
    {
        parts.push(part);
        piped = None;
    }
    let piped = match piped {
        Some(bytes) => {
            let decoded = input::decode(bytes, "standard input")?;
            decoded.notice.iter().for_each(|notice| tell(notice));
            Some(decoded.text)
        }
        None => None,
    };
    let words = arguments.message.as_deref().filter(|text| *text != "-");
    let is_blank = |text: &str| text.trim().is_empty();
    if words.is_none() && piped.as_deref().is_some_and(is_blank) {
        let hint = "a message with `-m`, or a command in front that prints something";
        return Err(fail_hint(Exit::NoInput, "standard input was empty", hint));
    }
    let text = prompt::with_piped(words, piped.as_deref());
    if !is_blank(&text) {
        parts.insert(0, Part::Text(text));
    }
    for given in &arguments.attach {
        parts.push(match attached.take_if(|_| given == "-") {
            Some(bytes) => attach::of_bytes(bytes, Origin::Stdin, &terms, &mut tell)?,
            None => attach::read(given, &terms, &mut tell)?,
        });
    }
    let (mut sorted, mut texts) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Part::Text(text) => texts.push(text),
            other => sorted.push(other),
        }
    }
    if !texts.is_empty() {
        sorted.push(Part::Text(texts.join("\n\n")));
    }
    Ok(sorted)
}

fn single_text(parts: &[Part]) -> Option<&str> {
    match parts {
        [Part::Text(text)] => Some(text),
        _ => None,
    }
}
