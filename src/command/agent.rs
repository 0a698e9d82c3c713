//! `nanobot agent`: one turn, from the command line to the status.

use crate::World;
use crate::answer::Schema;
use crate::attach::{self, Accepts, ImageLimits, Origin, Terms};
use crate::cli::{Agent as Arguments, DryRun, OutputFormat};
use crate::command::crew::{Crew, Stage};
use crate::command::cron::planner::Keeper;
use crate::command::{asker, granted};
use crate::error::{Exit, Stop, exit_of, fail, fail_hint};
use crate::event::Event;
use crate::guard::Guard;
use crate::guard::compaction::Compaction;
use crate::guard::iterations::Iterations;
use crate::guard::lost::Lost;
use crate::guard::plan::Plan;
use crate::guard::repeats::Repeats;
use crate::guard::warning::Warning;
use crate::history::spawned;
use crate::ledger::Account;
use crate::mcp::client::ElicitationHandler;
use crate::memory::Memory;
use crate::message::{Part, User};
use crate::policy::Policy;
use crate::policy::seen::PIPED;
use crate::prompt;
use crate::report::{Form, Level, Progress, Report, json};
use crate::session::{self, Place, Session, consolidation};
use crate::settings::{Config, Overrides, Settings};
use crate::sys;
use crate::sys::input::{self, Reading};
use crate::sys::secret::random_hex;
use crate::sys::signal;
use crate::tool::ask_user::Person;
use crate::turn;
use crate::turn::agent::Agent;
use crate::turn::ending::{Cause, DECLINED, Ending};
use crate::workspace::Workspace;
use afterwards::Afterwards;
use anyhow::{Context, Result};
use places::Cast;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod afterwards;
mod outlay;
pub(super) mod places;
mod rehearsal;
mod servers;
mod used;
mod web;

/// A turn that nobody typed: a job's.
pub(super) struct Duty<'a> {
    /// The job's id, for the ledger.
    pub(super) job: &'a str,
    /// What the model is told of it besides the message.
    pub(super) briefing: &'a str,
    /// More than this it may not do.
    pub(super) bound: Option<&'a Policy>,
    /// What came in with it, as if it had been piped in.
    pub(super) input: Option<Vec<u8>>,
    /// Of what was said before, only the last turn is sent.
    pub(super) last_turn_only: bool,
    /// In words, why the message is no word of the user's.
    pub(super) stranger: Option<&'static str>,
}

/// By which way a turn came in.
enum Door<'a> {
    /// A command line of its own.
    Line,
    /// A job.
    Job(Duty<'a>),
    /// A conversation at a terminal.
    Talk(&'a Talk),
}

impl<'a> Door<'a> {
    fn duty(&self) -> Option<&Duty<'a>> {
        match self {
            Self::Job(duty) => Some(duty),
            Self::Line | Self::Talk(_) => None,
        }
    }
}

/// What the turns of a conversation at a terminal share.
pub(super) struct Talk {
    /// Who answers the model's questions, and decides about what it may not do by itself.
    pub(super) person: Arc<dyn Person>,
    /// And what servers want to know.
    pub(super) answers: Arc<dyn ElicitationHandler>,
    /// What goes along with the message, as if it had been piped in. It is taken when it is used.
    pub(super) along: RefCell<Option<Vec<u8>>>,
}

/// What became of a turn of a conversation.
pub(super) struct Spoken {
    pub(super) exit: Exit,
    /// What was answered.
    pub(super) text: String,
}

/// How a turn went.
pub(super) struct Gone {
    pub(super) ending: Ending,
    pub(super) exit: Exit,
    pub(super) about: json::Run,
    pub(super) turn: String,
    afterwards: Option<Afterwards>,
}

/// Run the turn, print what is to be printed, and say how it ended.
pub fn run(world: &World, arguments: &Arguments) -> Exit {
    if is_conversation(world, arguments) {
        return super::repl::converse(world, arguments.clone())
            .unwrap_or_else(|error| crate::report(&error, world.terminal));
    }
    let form = match (arguments.json, arguments.output_format) {
        (true, _) | (_, OutputFormat::Json) => Form::Json,
        (_, OutputFormat::StreamJson) => Form::StreamJson,
        (_, OutputFormat::Text) => Form::Text,
    };
    let mut report = report(world, arguments, form);
    let Gone {
        ending,
        mut exit,
        about,
        afterwards,
        ..
    } = attempt(world, arguments, Door::Line, &mut report);
    if arguments.dry_run.is_some() && ending.error.is_none() {
        return exit;
    }
    // What a budget cut short was paid for all the same.
    let printed =
        exit == Exit::Budget && ending.partial && form == Form::Text && !world.terminal.out;
    if printed
        && let Err(error) = world
            .terminal
            .print(&format!("{}\n", ending.text.trim_end_matches('\n')))
    {
        exit = crate::report(&error, world.terminal);
    }
    if let Err(error) = report.finish(&json::result(&ending, exit, &about, &report.stamp))
        && exit == Exit::Answered
    {
        // What went wrong before is the truer cause.
        exit = crate::report(&error, world.terminal);
    }
    if let Some(error) = &ending.error {
        crate::report(error, world.terminal);
        if printed {
            world
                .terminal
                .complain("nanobot: what was printed is not a whole answer");
        }
    }
    // The answer is out: nobody waits for their end, and what follows needs none of them.
    world.servers.end();
    if let Some(afterwards) = afterwards {
        afterwards.run(world, exit, level(world, arguments) == Level::Lines);
    }
    exit
}

/// Whether there is nothing to do, and somebody who could say what.
fn is_conversation(world: &World, arguments: &Arguments) -> bool {
    let is_plain = !arguments.json
        && arguments.output_format == OutputFormat::Text
        && arguments.schema.is_none()
        && arguments.dry_run.is_none()
        && arguments.record.is_none()
        && arguments.timeout.is_none()
        && !arguments.resume
        && !arguments.ephemeral;
    let says_nothing = arguments.message.is_none() && arguments.attach.is_empty();
    is_plain && says_nothing && !arguments.stdin && world.terminal.converses()
}

/// Run a turn of which nothing is printed but what goes on; the answer is for whoever asked.
pub(super) fn work(world: &World, arguments: &Arguments, duty: Duty<'_>) -> Gone {
    let mut report = report(world, arguments, Form::Held);
    let gone = attempt(world, arguments, Door::Job(duty), &mut report);
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
pub(super) fn say(world: &World, arguments: &Arguments, talk: &Talk) -> Spoken {
    let mut report = report(world, arguments, Form::Text);
    let gone = attempt(world, arguments, Door::Talk(talk), &mut report);
    let Gone {
        ending,
        exit,
        about,
        afterwards,
        ..
    } = gone;
    let result = json::result(&ending, exit, &about, &report.stamp);
    for error in report.finish(&result).err().iter().chain(&ending.error) {
        super::repl::hints::report(error, world.terminal);
    }
    if let Some(afterwards) = afterwards {
        afterwards.run(world, exit, false);
    }
    Spoken {
        exit,
        text: ending.text,
    }
}

/// Who would be asked with `arguments`.
pub(super) fn asked(world: &World, arguments: &Arguments) -> Result<String> {
    let config = Config::load(&world.paths.config)?;
    let flags = overrides(world, arguments);
    let settings = Settings::resolve(&config, &world.env, &flags, &world.paths)?;
    let way = asker::way(
        world,
        &settings,
        &settings.asked[0],
        arguments.offline,
        true,
    )?;
    Ok(way.choice.provider)
}

impl Gone {
    /// Do what is left to do once the answer is where it belongs.
    pub(super) fn tidy(&self, world: &World) {
        world.servers.end();
        if let Some(afterwards) = &self.afterwards {
            afterwards.run(world, self.exit, false);
        }
    }
}

fn level(world: &World, arguments: &Arguments) -> Level {
    match (world.shared.quiet, arguments.verbose || arguments.logs) {
        (true, _) => Level::Quiet,
        (_, true) => Level::Lines,
        _ => Level::Notices,
    }
}

fn report(world: &World, arguments: &Arguments, form: Form) -> Report {
    let stamp = json::Stamp {
        session: String::new(),
        turn: random_hex(5),
        clock: world.clock.clone(),
    };
    let progress = Progress::new(world.terminal, level(world, arguments));
    let mut report = Report::new(world.terminal, form, progress, stamp);
    if arguments.schema.is_some() {
        report.show_whole();
    }
    if arguments.no_markdown {
        report.show_as_written();
    }
    if let Some(path) = world.env.get(sys::env::LOG)
        && sys::log::is_file(path)
    {
        report.log_to(Path::new(path));
    }
    report
}

/// Run the turn, whatever happens: a defect of ours ends as every failure does, with its status, and with a result where one
/// is printed.
fn attempt(world: &World, arguments: &Arguments, door: Door<'_>, report: &mut Report) -> Gone {
    let started = Instant::now();
    let mut about = json::Run::default();
    let mut afterwards = None;
    let form = report.form();
    let ending = catch_unwind(AssertUnwindSafe(|| {
        answer(world, arguments, door, report, &mut about, &mut afterwards)
    }));
    let ending = ending.unwrap_or_else(|_| Err(Stop(Exit::Defect).into()));
    let mut ending = ending.unwrap_or_else(|error| Ending {
        cause: Cause::Failed,
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
    Gone {
        exit: ending.error.as_ref().map_or(Exit::Answered, exit_of),
        ending,
        about,
        turn: report.stamp.turn.clone(),
        afterwards,
    }
}

/// What to say of an answer that is not a whole one, or not all that was asked for.
fn shortfall(ending: &Ending, arguments: &Arguments, max_iterations: u32) -> Option<anyhow::Error> {
    let exit = ending.cause.exit();
    match ending.cause {
        Cause::Answered if arguments.strict => ending.tally.denials.first().map(|denial| {
            let cause = format!(
                "`{}` was denied something, which `--strict` forbids",
                denial.tool
            );
            match &denial.grant {
                Some(flag) => fail_hint(Exit::Denied, cause, format!("`{flag}`")),
                None => fail(Exit::Denied, cause),
            }
        }),
        Cause::Answered => None,
        Cause::IterationLimit => Some(fail_hint(
            exit,
            format!("stopped by the limit of {max_iterations} requests"),
            "a higher `--max-iterations`, or a smaller task",
        )),
        Cause::OutputLimit => Some(fail_hint(
            exit,
            "the answer was cut by the output limit",
            "a higher `--max-tokens`",
        )),
        Cause::Refused => ending.tally.denials.last().map(|denial| {
            let cause = format!(
                "stopped because the same call of `{}` kept being refused",
                denial.tool
            );
            match &denial.grant {
                Some(flag) => fail_hint(exit, cause, format!("`{flag}`")),
                None => fail(exit, cause),
            }
        }),
        Cause::RepeatedFailure => Some(fail(exit, "stopped because the same call kept failing")),
        Cause::Declined => Some(fail(exit, DECLINED)),
        Cause::Failed => Some(fail(exit, "failed")),
    }
}

/// From the command line to the end of the turn.
fn answer(
    world: &World,
    arguments: &Arguments,
    mut door: Door<'_>,
    report: &mut Report,
    about: &mut json::Run,
    afterwards: &mut Option<Afterwards>,
) -> Result<Ending> {
    if matches!(door, Door::Line) {
        signal::arm(arguments.timeout).context("wait for signals")?;
    }
    assert!(
        world.env.get(sys::env::TEST_DEFECT).is_none(),
        "asked for by {}",
        sys::env::TEST_DEFECT
    );
    let schema = arguments.schema.as_deref().map(read_schema).transpose()?;
    let piped = match &mut door {
        Door::Job(duty) => duty.input.take(),
        Door::Line => read_piped(world, arguments, report)?,
        Door::Talk(talk) => talk.along.take(),
    };
    let duty = door.duty();
    let config = Config::load(&world.paths.config)?;
    let mut flags = overrides(world, arguments);
    let resolve = |flags: &Overrides| Settings::resolve(&config, &world.env, flags, &world.paths);
    let mut settings = resolve(&flags)?;
    let profile = granted::profile(world, &arguments.grants, &settings)?;
    if profile.model.is_some() || profile.max_iterations.is_some() {
        flags.model = flags.model.or_else(|| profile.model.clone());
        flags.max_iterations = flags.max_iterations.or(profile.max_iterations);
        settings = resolve(&flags)?;
    }
    about.max_iterations = settings.max_tool_iterations;
    log::info!(target: "config", "workspace `{}`", settings.workspace.display());

    let key = session_key(arguments, piped.is_some());
    report.stamp.session.clone_from(&key);
    // Text that was piped in with no word beside it is a message, and still nobody knows who wrote it.
    let is_bare = arguments.message.as_deref().is_none_or(|text| text == "-");
    let stranger = duty.and_then(|duty| duty.stranger);
    let mark = match piped.is_some() && is_bare || stranger.is_some() {
        true => PIPED,
        false => "0",
    };
    let parts = message(world, arguments, &settings, piped, report)?;
    let command = single_text(&parts)
        .map(str::trim)
        .filter(|_| arguments.message.is_some() && duty.is_none());
    if command == Some("/help") {
        return said(HELP, report);
    }

    let workspace = Workspace::new(&settings.workspace);
    let place = super::session::place(world, &settings)?;
    let limit = settings.max_tool_result_chars;
    let mut session = open_session(world, arguments, &place, &key, limit, report)?;
    report.stamp.session = session.key().to_owned();
    let sent = session.messages().len();
    log::info!(target: "session", "`{}`: {} messages, {sent} of them sent{}", session.key(), session.outline().count,
               if session.is_kept() { ", locked for this turn" } else { "; nothing is kept" });
    if arguments.new || command == Some("/new") {
        session.start_afresh()?;
    }
    if command == Some("/new") {
        *afterwards = afterwards::due(arguments, &settings, &session, None);
        return said("New session started.", report);
    }
    if duty.is_some_and(|duty| duty.last_turn_only) {
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
    let is_look = matches!(arguments.dry_run, Some(DryRun::Table | DryRun::TableJson));
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

    let crew = Crew::new(world, arguments, &settings);
    let turn = report.stamp.turn.clone();
    let rehearsal = arguments.replay.is_some() || arguments.dry_run.is_some();
    let cast = Cast {
        grants: &arguments.grants,
        settings: &settings,
        workspace: &workspace,
        profile: &profile,
        turn: &turn,
        session: session.key(),
        parallel: arguments.max_parallel as usize,
        offline: arguments.offline,
        rehearsal,
        crew: Some(&crew),
        bound: duty.and_then(|duty| duty.bound),
        person: match &door {
            Door::Talk(talk) => Some(Arc::clone(&talk.person)),
            Door::Line | Door::Job(_) => None,
        },
        answers: match &door {
            Door::Talk(talk) => Some(Arc::clone(&talk.answers)),
            Door::Line | Door::Job(_) => None,
        },
        // A job makes no jobs: they would grow without end.
        planner: match duty {
            Some(_) => None,
            None => Some(Arc::new(Keeper::new(world, &settings))),
        },
    };
    let mut scene = places::set(world, &cast, &mut |text| report.notice(text))?;
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
        if world.terminal.err {
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
    if let Some(duty) = duty {
        scene.sections.push(prompt::job(duty.briefing));
    }
    if let Some(what) = stranger {
        scene.common.seen.taint(what);
    }
    let input = (!parts.is_empty()).then(|| User {
        id: format!("{}-{mark}", report.stamp.turn),
        parts,
        facts: prompt::facts(&world.clock.now(), session.key()),
        injected: false,
    });
    let sampling = asker::sampling(&settings.asked[0]);
    let system = match &schema {
        Some(schema) => format!("{}\n\n{}", prompt::joined(&scene.sections), schema.words()),
        None => prompt::joined(&scene.sections),
    };
    let answer = schema
        .as_ref()
        .map(|schema| schema as &dyn turn::agent::Answer);
    if arguments.dry_run.is_some() {
        let said = (system.as_str(), answer);
        rehearsal::show(world, arguments, &settings, &scene, said, session, input)?;
        return Ok(Ending::default());
    }
    let account = Account {
        session: session.key().to_owned(),
        turn: report.stamp.turn.clone(),
        job: duty.map(|duty| duty.job.to_owned()),
        cause: "turn",
    };
    let chosen = asker::choose(world, arguments, &settings, &account, report)?;
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
    let mut watch = used::Watch::new(&scene, &names);
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
    let memory = Memory::new(&settings.workspace, &world.clock);
    let remembered = memory.read()?.unwrap_or_default();
    let mut ending = match compact {
        Some(instructions) => {
            turn::compact::now(&mut agent, &mut session, instructions.as_deref(), &mut tell)
        }
        None => turn::run(&mut agent, &mut session, input, &mut tell),
    };
    drop(open);
    if !rehearsal && let Err(error) = watch.record(world, &account, &ending.tally) {
        // The answer is out, and a number that is too small is no failure.
        report.notice(&format!("what was used is not written down: {error:#}"));
    }
    if ending.cause == Cause::Answered && ending.error.is_none() {
        *afterwards = afterwards::due(arguments, &settings, &session, Some(&chosen));
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
            let error = error.context("note that the memory may be a stranger's");
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
fn said(text: &str, report: &mut Report) -> Result<Ending> {
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

fn overrides(world: &World, arguments: &Arguments) -> Overrides {
    Overrides {
        model: arguments.model.clone(),
        max_tokens: arguments.max_tokens,
        temperature: arguments.temperature,
        reasoning_effort: arguments.reasoning_effort.clone(),
        max_iterations: arguments.max_iterations,
        workspace: world.shared.workspace.clone(),
    }
}

fn read_piped(
    world: &World,
    arguments: &Arguments,
    report: &mut Report,
) -> Result<Option<Vec<u8>>> {
    let never =
        arguments.no_stdin || (world.env.get(sys::env::STDIN) == Some("never") && !arguments.stdin);
    let reading = match (arguments.message.as_deref(), arguments.stdin, never) {
        _ if attaches_stdin(arguments)? => Reading::Always,
        (Some("-"), ..) | (_, true, _) => Reading::Always,
        (_, _, true) => Reading::Never,
        _ => Reading::Auto,
    };
    let silence = world.env.seconds(
        sys::env::STDIN_SILENCE,
        input::GIVE_UP_AFTER.as_secs(),
        86_400,
    )?;
    input::read(reading, silence, &mut |text| report.notice(text))
}

/// Piped input gets a conversation of its own, so that filters neither share nor grow one.
fn session_key(arguments: &Arguments, piped: bool) -> String {
    match (&arguments.session, &arguments.fork) {
        (Some(key), _) => key.clone(),
        (None, Some(_)) => format!("fork:{}", random_hex(4)),
        (None, None) if piped && !arguments.resume => format!("pipe:{}", random_hex(6)),
        (None, None) => "cli:direct".into(),
    }
}

fn open_session(
    world: &World,
    arguments: &Arguments,
    place: &Place,
    key: &str,
    limit: usize,
    report: &mut Report,
) -> Result<Session> {
    let rehearsal = arguments.replay.is_some() || arguments.dry_run.is_some();
    let patience = Duration::from_secs(arguments.wait);
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
    if arguments.session.is_none() && !world.shared.quiet {
        report.notice(&format!("the copy of `{source}` is `{key}`"));
    }
    Ok(session)
}

/// Whether standard input is an attachment, and so no part of the message.
fn attaches_stdin(arguments: &Arguments) -> Result<bool> {
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
    world: &World,
    arguments: &Arguments,
    settings: &Settings,
    piped: Option<Vec<u8>>,
    report: &mut Report,
) -> Result<Vec<Part>> {
    // What is no text is known by its first bytes; only then it matters what the model takes.
    let is_text = |bytes: &[u8]| input::image_type(bytes).is_none() && !bytes.starts_with(b"%PDF-");
    let (accepts, images) =
        match arguments.attach.is_empty() && piped.as_deref().is_none_or(is_text) {
            true => (Accepts::default(), ImageLimits::default()),
            false => asker::accepts(world, settings),
        };
    let terms = Terms {
        accepts,
        images,
        offline: arguments.offline,
        env: &world.env,
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
