//! A turn that is ready to run: its session, tools, system prompt and message.

use super::request::{TurnCommand, TurnRequest, with_text_last};
use super::source::TurnSource;
use crate::ops::agent_turn::git_facts::git_facts;
use crate::ops::context::Context;
use crate::ops::jobs::scheduler::StoreScheduler;
use crate::ops::prompt_files;
use crate::ops::repository;
use crate::ops::server_content::ServerContentReader;
use crate::ops::subagents::pool::SubagentPool;
use crate::ops::turn_setup::setup_input::SetupInput;
use crate::ops::turn_setup::{self, TurnSetup};
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_agent::answer_schema::AnswerSchema;
use nanobot_agent::prompt;
use nanobot_agent::report::{ReportFormat, Reporter, json};
use nanobot_base::message::UserMessage;
use nanobot_config::policy::Policy;
use nanobot_config::settings::Settings;
use nanobot_store::session::{RecordedOrigin, Session};
use nanobot_store::trust::DirectoryInstructions;
use nanobot_store::workspace::Workspace;
use nanobot_tool::cron::JobScheduler;
use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Maximum number of entries of the directory whose names are compared with the words of a message.
const MAX_NAMES: usize = 20_000;

/// A turn that is ready to run.
pub(crate) struct PreparedTurn {
    pub(crate) settings: Arc<Settings>,
    pub(crate) session: Session,
    pub(crate) setup: TurnSetup,
    /// The sub-agents of the turn.
    pub(crate) subagents: SubagentPool,
    /// The schema that the answer must satisfy.
    pub(crate) schema: Option<AnswerSchema>,
    /// The system prompt.
    pub(crate) system: String,
    /// The user's message; `None` when an interrupted turn is resumed.
    pub(crate) message: Option<UserMessage>,
    /// Set if the session is compacted instead of running a turn.
    pub(crate) compaction: Option<CompactionRequest>,
    /// The instructions for all summaries, from the user's prompt file.
    pub(crate) summary_instructions: Option<String>,
    /// True if the profile forbids changes.
    pub(crate) reads_only: bool,
}

/// A `/compact` command.
pub(crate) struct CompactionRequest {
    /// The user's instructions for this summary.
    pub(crate) instructions: Option<String>,
}

/// Builds tools, policy and prompt for `request`.
pub(crate) fn prepare(
    ctx: &Context,
    options: &TurnOptions,
    source: &TurnSource<'_>,
    request: TurnRequest,
    session: Session,
    reporter: &mut Reporter,
    run_metadata: &mut json::RunMetadata,
) -> Result<PreparedTurn> {
    let TurnRequest {
        settings,
        profile,
        prompt: prompt_request,
        schema,
        mut parts,
        mut text,
        server_content,
        command,
        key: _,
    } = request;
    let (job, interactive) = (source.job(), source.interactive());
    let subagents = SubagentPool::new(ctx, options, &settings);
    let mut setup = {
        let input = SetupInput {
            grants: &options.grants,
            settings: &settings,
            workspace: &Workspace::new(&settings.workspace),
            profile: &profile,
            prompt: &prompt_request,
            turn_id: &reporter.envelope.turn.clone(),
            session_key: session.key(),
            chat_key: source.chat_key().unwrap_or(session.key()),
            transcript: session.path(),
            max_parallel: options.limits.max_parallel as usize,
            offline: options.limits.offline,
            is_dry_run_or_replay: options.recording.is_dry_run_or_replay(),
            announces_directory: announces_directory(ctx, source, reporter.format()),
            last_directory: session.directory().filter(|_| !session.messages().is_empty()),
            policy_limit: job.and_then(|job| job.policy_limit),
            user_prompt: interactive.map(|interactive| Arc::clone(&interactive.user_prompt)),
            elicitation: interactive.map(|interactive| Arc::clone(&interactive.elicitation)),
            deferred_approvals: source.chat().and_then(|chat| chat.approvals.clone()),
            answer_chat: job.and_then(|job| job.answer_chat.clone()),
            replied_jobs: source.chat().map_or(&[], |chat| &chat.replied_jobs),
            // A job creates no jobs, which could multiply without end. One that is created by a run which only proposes changes would
            // outlast that run.
            scheduler: (job.is_none() && options.grants.private_copy.is_none()).then(|| {
                let binding = source.chat().and_then(|chat| chat.binding.clone());
                Arc::new(StoreScheduler::new(ctx, &settings, binding)) as Arc<dyn JobScheduler>
            }),
        };
        let spawn = subagents.tool();
        let servers = settings.servers.iter().filter(|server| !server.is_disabled);
        if let Some(timeout) = servers.map(|server| server.start_timeout).max() {
            reporter.progress.show_wait("starting MCP servers; giving up", timeout);
        }
        turn_setup::build(ctx, &input, vec![spawn], &mut |text| reporter.notice(text))?
    };
    if !server_content.is_empty() {
        let elicitation = interactive.map(|interactive| Arc::clone(&interactive.elicitation));
        let (offline, scope) = (options.limits.offline, &setup.policy.file_scope);
        let mcp_tools = &setup.shared.mcp_tools;
        let reader = ServerContentReader {
            ctx,
            settings: &settings,
            catalog: mcp_tools.catalog(ctx, &settings, offline, elicitation, scope),
            user_prompt: interactive.map(|interactive| &*interactive.user_prompt),
            // Others write in chats, and jobs have the permissions that they were created with.
            policy: (source.chat().is_some() || source.job().is_some()).then_some(&setup.policy),
            is_dry_run_or_replay: options.recording.is_dry_run_or_replay(),
        };
        parts.extend(reader.read(&server_content, &mut |text| reporter.notice(text))?);
        parts = with_text_last(parts);
        server_content.raise_origin(&settings, &mut text);
    }
    setup.shared.files.keep_git_history(ctx.paths.git_objects());
    restore_origin(&session, &setup);
    log_policy(&profile.name, &setup);
    report_ignored_files(ctx, options, source, &setup, reporter, run_metadata);
    setup.sections.extend(source.prompt_section());
    setup.sections.extend(options.until.command.as_deref().map(prompt::until_section));
    if let Some(copy) = options.grants.private_copy.as_ref().filter(|_| !prompt_request.is_bare) {
        let directory = copy.original_of(&setup.policy.file_scope.directory);
        setup.sections.push(prompt::proposal_section(&directory));
    }
    setup.sections.extend(prompt_request.added_text.as_deref().map(prompt::added_section));
    let runtime_facts = if prompt_request.is_bare {
        String::new()
    } else {
        let now = ctx.clock.now_in(settings.timezone.as_deref());
        let facts = std::iter::once(prompt::runtime_facts(
            &now,
            source.chat_key().unwrap_or(session.key()),
        ))
        .chain(git_facts(ctx, &settings, &setup, session.messages()))
        .chain(session.undo_notes().iter().cloned());
        facts.collect::<Vec<_>>().join("\n\n")
    };
    let message = (!parts.is_empty()).then(|| UserMessage {
        id: format!("{}-0", reporter.envelope.turn),
        parts,
        runtime_facts,
        sources: Some(text.sources(&is_existing_file(ctx, &setup.policy))),
        ..UserMessage::default()
    });
    let sections = prompt::join_sections(&setup.sections);
    let system = match &schema {
        Some(schema) => format!("{sections}\n\n{}", schema.instructions()),
        None => sections,
    };
    let compaction_file = settings.prompt_files.compaction.as_deref();
    Ok(PreparedTurn {
        summary_instructions: prompt_files::read(ctx, "compaction", compaction_file)?,
        settings,
        session,
        setup,
        subagents,
        schema,
        system,
        message,
        compaction: match command {
            Some(TurnCommand::Compact(instructions)) => Some(CompactionRequest { instructions }),
            _ => None,
        },
        reads_only: profile.reads_only,
    })
}

/// True if the turn reports which directory takes the place of the current one. A script that prints text, as in a line of cron, has it
/// in each run, and cron would mail it.
fn announces_directory(ctx: &Context, source: &TurnSource<'_>, format: ReportFormat) -> bool {
    let is_shown = match format {
        ReportFormat::Text => ctx.terminal.stderr_is_tty,
        ReportFormat::Json | ReportFormat::StreamJson => true,
        ReportFormat::Unprinted => false,
    };
    is_shown && source.job().is_none()
}

/// Returns a check of whether a path in a message is that of an existing file, relative to the directory of the turn or to the
/// current one. People often write only the name of a file that is deeper in the directory.
pub(crate) fn is_existing_file(ctx: &Context, policy: &Policy) -> impl Fn(&str) -> bool + use<> {
    let (paths, directory) = (ctx.paths.clone(), policy.file_scope.directory.clone());
    let names = OnceLock::new();
    move |text| {
        let path = paths.expand(text);
        let exists =
            [directory.join(&path), path].iter().any(|path| path.symlink_metadata().is_ok());
        let is_name = !text.contains('/');
        exists
            || is_name
                && names.get_or_init(|| names_beneath(&directory)).contains(&text.to_lowercase())
    }
}

/// The names of files and directories beneath `directory`, in lower case as hosts are, level by level up to a limit.
fn names_beneath(directory: &Path) -> HashSet<String> {
    let mut names = HashSet::new();
    let mut entry_count = 0;
    let mut queue = VecDeque::from([directory.to_owned()]);
    while let Some(directory) = queue.pop_front() {
        // A directory that cannot be read is searched by no tool either.
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry_count == MAX_NAMES {
                return names;
            }
            entry_count += 1;
            let name = entry.file_name();
            if name != ".git" && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                queue.push_back(entry.path());
            }
            names.insert(name.to_string_lossy().to_lowercase());
        }
    }
    names
}

/// Restores the origin of the earlier turns.
fn restore_origin(session: &Session, setup: &TurnSetup) {
    let provenance = &setup.shared.provenance;
    if let Some(RecordedOrigin { level, content, .. }) = session.origin() {
        if session.is_origin_complete() {
            provenance.restore(*level, content);
        } else {
            provenance.raise(*level, content);
        }
    }
}

fn log_policy(profile: &str, setup: &TurnSetup) {
    let Policy { file_scope, reads_only, .. } = &*setup.policy;
    let tools = setup.toolbox.names().join(", ");
    log::info!(target: "policy", "profile `{profile}` in `{}`; tools: {tools}", file_scope.directory.display());
    for root in &file_scope.roots {
        let access = if root.may_write && !reads_only { "read and change" } else { "read" };
        log::debug!(target: "policy", "may {access} `{}`", root.path.display());
    }
}

/// Reports the instruction files that were found in the turn and not read, because they are not trusted as they are.
pub(crate) fn report_nested_files(
    setup: &TurnSetup,
    reporter: &mut Reporter,
    run_metadata: &mut json::RunMetadata,
) {
    if let Some((stale, notice)) =
        setup.instructions.nested_stale(&format!("{}trust", reporter.command_prefix))
    {
        reporter.notice(&notice);
        run_metadata.ignored_files.extend(stale);
    }
}

/// Reports the instruction files that were not read because their directory is not trusted. A conversation repeats no notice.
fn report_ignored_files(
    ctx: &Context,
    options: &TurnOptions,
    source: &TurnSource<'_>,
    setup: &TurnSetup,
    reporter: &mut Reporter,
    run_metadata: &mut json::RunMetadata,
) {
    if setup.toolbox.names().contains(&"exec")
        && let Some(repository) = &setup.policy.file_scope.repository
        && let Some(notice) = repository::unpinned_notice(ctx, repository)
    {
        reporter.notice(&notice);
    }
    run_metadata.ignored_files.clone_from(&setup.instructions.ignored);
    let command = format!("{}trust", reporter.command_prefix);
    let names_untrusted = ctx.terminal.stderr_is_tty || options.output.is_verbose();
    let notice = ignored_notice(&setup.instructions, names_untrusted, &command);
    let last = source.interactive().map(|interactive| &interactive.reported_notice);
    let last = last.and_then(|reported| reported.replace(notice.clone()));
    if let Some(notice) = notice.filter(|notice| last.as_ref() != Some(notice)) {
        reporter.notice(&notice);
    }
}

/// The notice about the instruction files that are not read. Those of a trusted directory are reported in a pipe too: the user relies on
/// them. `command` is that of `trust`.
pub(crate) fn ignored_notice(
    instructions: &DirectoryInstructions,
    names_untrusted: bool,
    command: &str,
) -> Option<String> {
    let untrusted_notice = || {
        let path = instructions.ignored.first().filter(|_| names_untrusted)?;
        let more = match instructions.ignored.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let path = path.display();
        Some(format!(
            "`{path}`{more} ignored: not trusted; read it, then run `{command}` to use it"
        ))
    };
    instructions.stale_notice(command).or_else(untrusted_notice)
}
