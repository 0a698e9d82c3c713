//! Builds the setup of a turn: its policy, its tools, and its system prompt.

use crate::ops::channel::outbox::OutboxOutlet;
use crate::ops::context::Context;
use crate::ops::hooks::{self, HookContainment, HookedRun, Hooks};
use crate::ops::native_search::TurnSearch;
use crate::ops::permissions::{self, WorkspacePlace};
use crate::ops::prompt_files;
use crate::ops::protected_paths;
use crate::ops::session_library::StoredSessions;
use crate::ops::skills;
use crate::ops::system_prompt::{describe_extra_grants, describe_policy, platform};
use crate::options::grants::{Grants, PrivateCopy};
use anyhow::{Context as _, Result};
use deferred_approval::{DeferredApproval, QuestionPrompt};
use interactive_approval::InteractiveApproval;
use nanobot_agent::prompt::{self, DirectoryAccess, PromptInput, PromptSection};
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_base::message::Origin;
use nanobot_base::message::addresses::find_linked_hosts;
use nanobot_config::policy::file_scope::{FileAccess, FileScope};
use nanobot_config::policy::net::Net;
use nanobot_config::policy::provenance::ProvenanceTracker;
use nanobot_config::policy::rule::Pattern;
use nanobot_config::policy::tool_names::{PROGRAM_PREFIX, SESSIONS, runs_commands};
use nanobot_config::policy::{Permission, Policy, Sandbox};
use nanobot_config::settings::Settings;
use nanobot_config::settings::keys::nearest;
use nanobot_mcp::tool_name;
use nanobot_os::deferred::Deferred;
use nanobot_os::durable_file;
use nanobot_os::durable_file::format_size;
use nanobot_os::secret;
use nanobot_os::symlinks::PathResolver;
use nanobot_os::test_hooks;
use nanobot_sandbox as sandbox;
use nanobot_store::history::head_and_tail::head_and_tail;
use nanobot_store::memory::Memory;
use nanobot_store::memory::request::CHARS_PER_TOKEN;
use nanobot_store::skill::{self, FoundSkills, Skill, SkillSource, WrittenSkills};
use nanobot_store::trust::{self, DirectoryInstructions, TrustList};
use nanobot_store::workspace::{Workspace, WorkspaceNotes};
use nanobot_tool::ask_user::{self, UserPrompt};
use nanobot_tool::cron::JobScheduler;
use nanobot_tool::files::Files;
use nanobot_tool::message::MessageTool;
use nanobot_tool::program::ToolProgram;
use nanobot_tool::sessions;
use nanobot_tool::undo::journal::TurnInfo;
use nanobot_tool::undo::{ChangeRecorder, UndoStore};
use nanobot_tool::{ApprovalHandler, Tool, Toolbox};
use setup_input::{PromptRequest, SetupInput};
use shared_state::SharedState;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toolset::{CronToolParts, all_tools, can_write, hook_runner};

pub(crate) mod deferred_approval;
pub(crate) mod interactive_approval;
pub(crate) mod loaded_skills;
pub(crate) mod mcp_tools;
pub(crate) mod programs;
mod provenance_setup;
pub(crate) mod setup_input;
pub(crate) mod shared_state;
pub(crate) mod subagent_setup;
pub(crate) mod toolset;
pub(crate) mod web_tools;

/// Upper limit of the part of the memory that is sent, in budgets of the memory.
const MAX_MEMORY_BUDGETS: usize = 8;

/// The tools, policy and system prompt of a turn.
pub(crate) struct TurnSetup {
    pub(crate) toolbox: Toolbox,
    pub(crate) policy: Arc<Policy>,
    pub(crate) shared: SharedState,
    /// The parts of the system prompt.
    pub(crate) sections: Vec<PromptSection>,
    /// The skills that the model may read, and their paths.
    pub(crate) skills: Vec<(String, PathBuf)>,
    /// The names of the skills whose text the run has from the start, as flags ask.
    pub(crate) loaded_skills: Vec<String>,
    /// The list of skills in the system prompt.
    pub(crate) skill_list: String,
    /// The instructions of the directory.
    pub(crate) instructions: DirectoryInstructions,
    /// The file of the memory as it was when the turn began.
    pub(crate) memory_file: Vec<u8>,
    /// The version of the memory that was in force.
    pub(crate) memory_version: Option<u64>,
}

/// Builds the setup of a turn. `own_tools` are tools of the caller, offered like the others.
pub(crate) fn build(
    ctx: &Context,
    input: &SetupInput<'_>,
    own_tools: Vec<Arc<dyn Tool>>,
    notice: &mut dyn FnMut(&str),
) -> Result<TurnSetup> {
    let settings = input.settings;
    let workspace = WorkspacePlace::find(&input.workspace.root);
    let mut policy =
        permissions::build_policy(ctx, input.grants, settings, input.profile, &workspace)?;
    policy.file_scope.read_only = with_server_files(&policy.file_scope, settings);
    let is_bare = input.prompt.is_bare;
    let private_copy = input.grants.private_copy.as_ref();
    let mut instructions = project_instructions(ctx, &workspace.path, &mut policy, private_copy)?;
    let has_skills = !is_bare || !input.prompt.skills.is_empty();
    let found_skills = if has_skills {
        skills::find_with(ctx, settings, &input.workspace.root, &instructions)?
    } else {
        FoundSkills::default()
    };
    if !input.is_dry_run_or_replay {
        skills::pin_first_used(ctx, &found_skills)?;
    }
    let loaded_skills = loaded_skills::load(ctx, input, &found_skills, notice)?;
    let shared = found_skills.skills.iter().filter(|skill| skill.is_shared());
    loaded_skills::trust_pinned(ctx, loaded_skills.iter().chain(shared), &mut policy)?;
    trust_own(&found_skills, &mut policy);
    if is_bare {
        // The policy protects these files all the same.
        instructions = DirectoryInstructions::default();
    }
    let programs = programs_of_run(ctx, input, &policy, &instructions, notice);
    if !settings.servers.is_empty() {
        // A server may change files before the first call, so the scope is fixed before it starts.
        policy.file_scope.settle();
    }
    let mcp_tools = mcp_tools::load_mcp_tools(ctx, input, &policy, notice)?;
    mcp_tools.add_to_policy(&mut policy);
    if let Some(policy_limit) = input.policy_limit {
        policy = policy.intersection(policy_limit);
    }
    let policy = Arc::new(policy);
    let directory_notice = permissions::replaced_directory_notice(
        ctx,
        input.grants,
        settings,
        &policy,
        input.announces_directory
            && input.last_directory != Some(policy.file_scope.directory.as_path()),
    );
    directory_notice.iter().for_each(|text| notice(text));
    let host_traffic = Arc::default();
    let provenance =
        provenance_setup::new_provenance_tracker(settings, &policy, &mcp_tools, &host_traffic);
    if let Some(reason) = mcp_tools.untrusted_descriptions(settings) {
        provenance.raise(Origin::External, &reason);
    }
    let files = Arc::new(open_files(ctx, input, &policy, &provenance, &instructions)?);
    let mut notes = input.workspace.read_notes()?;
    if is_bare {
        // Notes that are not sent raise no origin, and need no notice.
        notes.memory = None;
    }
    let memory_version = raise_by_memory(ctx, input.workspace, &notes, &provenance)?;
    shorten_memory(settings, &mut notes, notice);
    notes.bootstrap.extend(instructions.texts());
    loaded_skills::observe(&loaded_skills, &provenance);
    let skills = if is_bare {
        Vec::new()
    } else {
        found_skills.notices().iter().for_each(|text| notice(text));
        found_skills.skills
    };
    let hosts = settings.web.config_hosts.iter().cloned();
    let own_hosts = hosts_of_skills(ctx, skills.iter().chain(&loaded_skills))?;
    let hooks = hooks_of_run(ctx, input, &policy, &files, &provenance)?;
    let shared = SharedState {
        provenance,
        files,
        hosts: hosts.chain(own_hosts).collect(),
        offline: input.offline,
        mcp_tools,
        native_search: TurnSearch::new(ctx, settings, input.offline),
        explicitly_named_tools: input.explicitly_named_tools(),
        background: Some(Arc::default()),
        host_traffic,
        programs,
        hooks,
        media_account: Arc::default(),
    };
    let toolbox = build_toolbox(ctx, input, &policy, &shared, own_tools)?;
    let skill_list = if toolbox.specs().is_empty() {
        String::new()
    } else {
        skill::render_list(&skills, settings.skills.budget_tokens).text
    };
    let mut sections = if is_bare {
        let own_text = input.prompt.own_text.as_deref();
        prompt::bare_sections(own_text, !toolbox.specs().is_empty())
    } else {
        let own_text = match &input.prompt.own_text {
            Some(text) => Some(text.clone()),
            None => prompt_files::read(ctx, "system", settings.prompt_files.system.as_deref())?,
        };
        prompt_sections(input, &policy, &toolbox, &notes, &skills, &skill_list, own_text.as_deref())
    };
    sections.extend(loaded_section(&loaded_skills, &skills));
    sections.extend(shared.mcp_tools.instructions_section());
    Ok(TurnSetup {
        toolbox,
        policy,
        shared,
        sections,
        skills: skills.into_iter().map(|skill| (skill.name, skill.location)).collect(),
        loaded_skills: loaded_skills.into_iter().map(|skill| skill.name).collect(),
        skill_list,
        instructions,
        memory_file: notes.memory_file,
        memory_version,
    })
}

/// The paths that no run changes, with the files of its servers: they decide what the next run starts.
fn with_server_files(scope: &FileScope, settings: &Settings) -> Deferred<Vec<PathBuf>> {
    let files = settings.servers.iter().filter_map(|server| server.file.clone());
    let files: Vec<PathBuf> = files.collect();
    if files.is_empty() {
        return scope.read_only.clone();
    }
    let read_only = scope.read_only.clone();
    Deferred::new(move || {
        let mut paths = PathResolver::default();
        let files = files.iter().flat_map(|file| [file.clone(), paths.resolve(file)]);
        read_only.iter().cloned().chain(files).collect()
    })
}

/// Adds the user's own folder of skills to what counts as the user's. No run changes it.
fn trust_own(found_skills: &FoundSkills, policy: &mut Policy) {
    let folder = found_skills.skills.iter().find_map(|skill| match &skill.source {
        SkillSource::Own(folder) => Some(folder.clone()),
        _ => None,
    });
    policy.file_scope.trusted.extend(folder);
}

/// The section of the skills that flags load. A skill of the run that is always active is in the prompt already.
fn loaded_section(loaded_skills: &[Skill], skills: &[Skill]) -> Option<PromptSection> {
    let is_active = |loaded: &Skill| {
        skills.iter().any(|skill| skill.is_active() && skill.location == loaded.location)
    };
    let bodies = skill::join_bodies(loaded_skills.iter().filter(|skill| !is_active(skill)));
    (!bodies.is_empty()).then(|| prompt::loaded_skills_section(&bodies))
}

/// The programs that are tools of this run.
fn programs_of_run(
    ctx: &Context,
    input: &SetupInput<'_>,
    policy: &Policy,
    instructions: &DirectoryInstructions,
    notice: &mut dyn FnMut(&str),
) -> Arc<[ToolProgram]> {
    let listed_names = input.grants.tools.as_ref();
    let may_list = |name: &String| Pattern::new(name.as_str()).may_match_prefix(PROGRAM_PREFIX);
    if input.grants.no_tools || listed_names.is_some_and(|names| !names.iter().any(may_list)) {
        return Arc::default();
    }
    let stores = !input.is_dry_run_or_replay;
    programs::load(ctx, input.settings, policy, &instructions.programs, stores, notice)
}

/// The user's hooks around this run.
fn hooks_of_run(
    ctx: &Context,
    input: &SetupInput<'_>,
    policy: &Policy,
    files: &Arc<Files>,
    provenance: &Arc<ProvenanceTracker>,
) -> Result<Option<Arc<Hooks>>> {
    if !input.is_dry_run_or_replay {
        hooks::announce_locations(ctx, input.settings);
    }
    let containment = || {
        let exec = hook_runner(ctx, input.settings, policy, files);
        HookContainment::of_run(ctx, input.settings, policy, exec, Some(Arc::clone(provenance)))
    };
    Hooks::for_run(ctx, input.settings, containment, || HookedRun {
        session_key: input.session_key.to_owned(),
        transcript: input.transcript.map(Path::to_owned),
        directory: policy.file_scope.directory.clone(),
        profile: input.profile.name.clone(),
        is_subagent: false,
    })
}

/// Opens what the file tools of turns with these grants may read, for content that comes with their messages.
///
/// # Errors
/// As [`permissions::build_policy`]; its directories cannot be opened.
pub(crate) fn open_for_reading(ctx: &Context, grants: &Grants) -> Result<Files> {
    let settings = ctx.settings()?;
    durable_file::create_dir(&settings.workspace)?;
    let policy = permissions::policy_of(ctx, grants, &settings)?;
    Files::new(policy.file_scope).context("open the directories")
}

/// Builds the containment of the hooks at the end of a job with these grants, whose policy is at most `policy_limit`.
///
/// # Errors
/// As [`permissions::build_policy`]; its directories cannot be opened.
pub(crate) fn containment_of_job(
    ctx: &Context,
    settings: &Settings,
    grants: &Grants,
    policy_limit: Option<&Policy>,
) -> Result<HookContainment> {
    let mut policy = permissions::policy_of(ctx, grants, settings)?;
    if let Some(policy_limit) = policy_limit {
        policy = policy.intersection(policy_limit);
    }
    let files = Arc::new(Files::new(policy.file_scope.clone()).context("open the directories")?);
    let exec = hook_runner(ctx, settings, &policy, &files);
    Ok(HookContainment::of_run(ctx, settings, &policy, exec, None))
}

/// The parts of the system prompt.
fn prompt_sections(
    input: &SetupInput<'_>,
    policy: &Policy,
    toolbox: &Toolbox,
    notes: &WorkspaceNotes,
    skills: &[Skill],
    skill_list: &str,
    own_text: Option<&str>,
) -> Vec<PromptSection> {
    let is_interactive = input.user_prompt.is_some();
    let own_prompt = input.profile.prompt.as_deref();
    prompt::sections(&PromptInput {
        own_text,
        platform: &platform(),
        workspace: &policy.file_scope.workspace,
        directory: &policy.file_scope.directory,
        directory_access: if can_write(policy) {
            DirectoryAccess::Write
        } else if is_interactive && !policy.reads_only {
            DirectoryAccess::Ask
        } else {
            DirectoryAccess::Read
        },
        may_write_workspace: !input.profile.reads_only,
        extra_directories: &describe_extra_grants(policy),
        is_interactive,
        has_tools: !toolbox.specs().is_empty(),
        policy: &describe_policy(policy, toolbox, is_interactive),
        profile: own_prompt.map(|text| (input.profile.name.as_str(), text)),
        bootstrap_files: &notes.bootstrap,
        memory: notes.memory.as_deref(),
        active_skills: &skill::active_bodies(skills),
        skills: skill_list,
    })
}

/// The instruction files and skills of the working directory, if the user trusts it. The policy then protects these
/// files from changes.
fn project_instructions(
    ctx: &Context,
    workspace: &Path,
    policy: &mut Policy,
    private_copy: Option<&PrivateCopy>,
) -> Result<DirectoryInstructions> {
    let scope = &mut policy.file_scope;
    let mut instructions = if scope.directory == workspace {
        DirectoryInstructions::default()
    } else {
        let mut list = TrustList::load(&ctx.paths.trust())?;
        if let Some(PrivateCopy { original, path }) = private_copy {
            list.add_copies(original, path);
        }
        list.read_instructions(&scope.directory)?
    };
    for directory in &instructions.trusted {
        scope.instruction_files.extend(trust::instruction_paths(directory));
    }
    // Instructions in files that a rule denies to read are not sent.
    instructions.texts.retain(|(path, _)| scope.find_denial(path, FileAccess::Read).is_none());
    let agents = instructions.texts.iter().map(|(path, _)| path);
    scope.trusted.extend(agents.chain(&instructions.skill_files).cloned());
    Ok(instructions)
}

/// Opens the directories that the file tools may use, with a journal for `undo`.
fn open_files(
    ctx: &Context,
    input: &SetupInput<'_>,
    policy: &Policy,
    provenance: &Arc<ProvenanceTracker>,
    instructions: &DirectoryInstructions,
) -> Result<Files> {
    let directory = &policy.file_scope.directory;
    let mut files = Files::new(policy.file_scope.clone())
        .with_context(|| format!("open `{}`", directory.display()))?
        .with_provenance(
            Arc::clone(provenance),
            policy,
            WrittenSkills::new(ctx.paths.written_skills()),
        );
    if let Some(nested) = instructions.nested.clone() {
        files = files.with_instructions(Arc::new(move |path| nested.read(path)));
    }
    if test_hooks::NO_OPENAT2.get(&ctx.env).is_some() {
        files = files.without_openat2();
    }
    let turn_info = TurnInfo {
        turn: input.turn_id.to_owned(),
        session: input.session_key.to_owned(),
        directory: directory.clone(),
        started_in: PathBuf::new(),
        time: ctx.clock.local_timestamp(),
    };
    // The current directory is looked up with the first change.
    let turn_info = Deferred::new(move || TurnInfo {
        started_in: std::env::current_dir().unwrap_or_default(),
        ..turn_info
    });
    // The changes of a private copy end with it.
    if input.grants.private_copy.is_none() {
        let own_state_paths = find_own_state_paths(ctx, &policy.file_scope);
        let undo = UndoStore::new(ctx.paths.undo(), input.settings.retention.undo);
        files.record_changes(ChangeRecorder::new(undo, turn_info, own_state_paths));
    }
    Ok(files)
}

/// The paths of nanobot's own state. A policy without limits does not list them.
fn find_own_state_paths(ctx: &Context, scope: &FileScope) -> Deferred<Vec<PathBuf>> {
    let (hidden, read_only) = if scope.is_unrestricted {
        protected_paths::protected_paths(ctx, &scope.workspace)
    } else {
        (scope.hidden.clone(), scope.read_only.clone())
    };
    Deferred::new(move || [&hidden[..], &read_only].concat())
}

/// Leaves out the middle of a memory that is far beyond its budget. Whole, it might exceed the context window.
fn shorten_memory(settings: &Settings, notes: &mut WorkspaceNotes, notice: &mut dyn FnMut(&str)) {
    let limit = settings.memory.budget_tokens.saturating_mul(CHARS_PER_TOKEN * MAX_MEMORY_BUDGETS);
    let gap = |count| format!("[… {count} characters left out; the file has them …]");
    let Some(text) = notes.memory.as_deref() else {
        return;
    };
    if let Some(shortened) = head_and_tail(text, limit - limit / 4, limit / 4, gap) {
        let (size, sent_size) =
            (format_size(text.len() as u64), format_size(shortened.len() as u64));
        notice(&format!(
            "MEMORY.md has {size}, of which {sent_size} are sent; shorten it: `nanobot memory edit`"
        ));
        notes.memory = Some(shortened);
    }
}

/// Raises the origin of the run if the memory may contain content by others. Returns the version of the memory; `None` if there is
/// no memory.
fn raise_by_memory(
    ctx: &Context,
    workspace: &Workspace,
    notes: &WorkspaceNotes,
    provenance: &ProvenanceTracker,
) -> Result<Option<u64>> {
    if notes.memory.is_none() {
        return Ok(None);
    }
    let version = Memory::new(&workspace.root, &ctx.clock).current_version()?;
    if version.as_ref().is_some_and(|version| version.untrusted.is_some()) {
        provenance.raise(Origin::Project, "the memory, which has content from outside");
    }
    Ok(version.map(|version| version.id))
}

/// The hosts that the user's own skills link to. Built-in skills, those of a project and those that a run wrote after
/// content by others are not the user's choice, and a skill that is not offered allows nothing.
fn hosts_of_skills<'a>(
    ctx: &Context,
    skills: impl Iterator<Item = &'a Skill>,
) -> Result<Vec<String>> {
    let written_skills = WrittenSkills::new(ctx.paths.written_skills());
    let mut skill_hosts = Vec::new();
    for skill in skills {
        let is_own = matches!(skill.source, SkillSource::Workspace | SkillSource::Own(_));
        let is_chosen = is_own && skill.is_offered && skill.is_available();
        let mut hosts = find_linked_hosts(&skill.body).peekable();
        if is_chosen && hosts.peek().is_some() {
            let text = durable_file::read(&skill.location)?.unwrap_or_default();
            if !written_skills.contains(&text)? {
                skill_hosts.extend(hosts);
            }
        }
    }
    Ok(skill_hosts)
}

/// The setup of a turn with these grants, for commands that do not run a turn. A dry run creates nothing. Commands that need the
/// caller's tools of a turn, or its scheduler, pass `own_tools` and `scheduler`.
pub(crate) fn build_without_turn(
    ctx: &Context,
    grants: &Grants,
    offline: bool,
    is_dry_run: bool,
    own_tools: Vec<Arc<dyn Tool>>,
    scheduler: Option<Arc<dyn JobScheduler>>,
) -> Result<TurnSetup> {
    let settings = ctx.settings()?;
    if !is_dry_run {
        durable_file::create_dir(&settings.workspace)?;
    }
    let profile = permissions::resolve_profile(ctx, grants, &settings)?;
    let input = SetupInput {
        grants,
        settings: &settings,
        workspace: &Workspace::new(&settings.workspace),
        profile: &profile,
        prompt: &PromptRequest::default(),
        turn_id: &secret::random_hex(5),
        session_key: "tool",
        chat_key: "tool",
        transcript: None,
        max_parallel: 1,
        offline,
        is_dry_run_or_replay: is_dry_run,
        announces_directory: false,
        last_directory: None,
        policy_limit: None,
        user_prompt: None,
        elicitation: None,
        deferred_approvals: None,
        answer_chat: None,
        replied_jobs: &[],
        scheduler,
    };
    build(ctx, &input, own_tools, &mut |text| ctx.notice(text))
}

/// The tools allowed by the policy and `--tools`, wrapped in the approval check.
fn build_toolbox(
    ctx: &Context,
    input: &SetupInput<'_>,
    policy: &Arc<Policy>,
    shared: &SharedState,
    own_tools: Vec<Arc<dyn Tool>>,
) -> Result<Toolbox> {
    let mut tools = all_tools(ctx, input.settings, policy, shared);
    tools.extend(own_tools);
    let jobs = input.scheduler.as_ref().map(|scheduler| {
        let names = tools.iter().map(|tool| tool.spec().name.as_str());
        let names = names.filter(|name| input.is_listed(name));
        CronToolParts {
            scheduler: Arc::clone(scheduler),
            limit: Arc::new(job_upper_bound(policy, names, input.offline)),
            chat_key: input.chat_key.to_owned(),
            replied_jobs: input.replied_jobs.to_vec(),
        }
    });
    tools.extend(jobs.as_ref().map(|jobs| jobs.tool(policy, shared)));
    if input.user_prompt.is_some() || policy.is_named(SESSIONS) {
        let sessions = StoredSessions::new(ctx.session_store(input.settings)?, input.session_key);
        tools.push(Arc::new(sessions::tool(Arc::new(sessions))));
    }
    if !input.settings.channels.is_empty() {
        tools.push(Arc::new(MessageTool::new(
            Arc::new(OutboxOutlet::new(ctx, input.offline, input.chat_key)),
            Arc::clone(&shared.files),
            Arc::clone(&shared.provenance),
            policy.change_grants(),
            input.chat_key,
            input.answer_chat.clone(),
        )));
    }
    if let Some(user_prompt) = &input.user_prompt {
        tools.push(Arc::new(ask_user::tool(Arc::clone(user_prompt))));
    }
    keep_listed(&mut tools, input.grants, shared)?;
    tools.retain(|tool| policy.is_offered(&tool.spec().name));
    if input.grants.no_tools {
        tools.clear();
    }
    if policy.sandbox == Sandbox::Strict
        && tools.iter().any(|tool| runs_commands(&tool.spec().name))
        && let Err(error) = sandbox::check_available()
    {
        let cause = format!("a sandbox is required but unavailable: {error}");
        let hint = "`--no-tools`, or `--tools` without `exec`";
        return Err(fail(Exit::NoSandbox, cause).with_hint(hint));
    }
    let granting = |user_prompt: Arc<dyn UserPrompt>| InteractiveApproval {
        user_prompt,
        ctx: ctx.clone(),
        settings: input.settings.clone(),
        profile: input.profile.clone(),
        grants: input.grants.clone(),
        policy: Arc::clone(policy),
        shared: shared.clone(),
        jobs,
    };
    let approval: Option<Arc<dyn ApprovalHandler>> =
        match (&input.user_prompt, &input.deferred_approvals) {
            (Some(user_prompt), _) => Some(Arc::new(granting(Arc::clone(user_prompt)))),
            (None, Some(approvals)) => {
                let approvals = Arc::clone(approvals);
                let provenance = Arc::clone(&shared.provenance);
                let prompt = Arc::new(QuestionPrompt { approvals, provenance });
                Some(Arc::new(DeferredApproval { granting: granting(prompt) }))
            }
            (None, None) => None,
        };
    Ok(Toolbox::new(tools, input.max_parallel, Arc::clone(policy))
        .with_provenance(Arc::clone(&shared.provenance))
        .with_approval(approval)
        .with_hooks(shared.call_hooks()))
}

/// Keeps only the tools that `--tools` lists.
///
/// # Errors
/// It lists a tool that does not exist. A pattern for the tools of servers may match none.
fn keep_listed(
    tools: &mut Vec<Arc<dyn Tool>>,
    grants: &Grants,
    shared: &SharedState,
) -> Result<()> {
    let Some(names) = &grants.tools else {
        return Ok(());
    };
    let tool_names: Vec<String> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
    let is_unknown = |name: &&String| {
        let pattern = Pattern::new(name.as_str());
        let may_be_missing = if pattern.has_wildcard() {
            name.starts_with(tool_name::PREFIX)
        } else {
            shared.mcp_tools.is_missing(name)
        };
        !may_be_missing && !tool_names.iter().any(|tool| pattern.matches(tool))
    };
    if let Some(name) = names.iter().find(is_unknown) {
        let hint = match nearest(name, tool_names.iter().map(String::as_str)) {
            _ if name.as_str() == "none" => "`--no-tools`, in a prompt file `tools: []`".to_owned(),
            Some(similar) => format!("`{similar}`"),
            None => tool_names.join(", "),
        };
        let cause = format!("there is no tool `{name}`");
        return Err(fail(Exit::Usage, cause).with_hint(hint));
    }
    tools.retain(|tool| grants.lists_tool(&tool.spec().name));
    Ok(())
}

/// The upper bound on the permissions of a job created by a run under `policy`: those of the run itself. Some of the
/// run's flags are not part of its policy, so they are added here.
fn job_upper_bound<'a>(
    policy: &Policy,
    tools: impl Iterator<Item = &'a str>,
    offline: bool,
) -> Policy {
    let mut bound = policy.clone();
    bound.tool_filters.push(tools.map(Pattern::new).collect());
    if offline {
        bound.net = Net::Default;
        let never = |name: &str| (Pattern::new(name), Permission::Never);
        bound.permissions.extend(["web_search", "web_fetch"].map(never));
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::job_upper_bound;
    use nanobot_config::policy::Policy;
    use nanobot_config::policy::net::Net;

    #[test]
    fn job_permissions_are_bounded_by_the_creating_run() {
        let run = Policy { net: Net::Any, ..Policy::default() };
        let check = |offline: bool, expect: &[&str]| {
            let bound = job_upper_bound(&run, ["read_file", "web_fetch"].into_iter(), offline);
            let job = Policy::from_snapshot(&bound.snapshot()).unwrap();
            let job = Policy::default().intersection(&job);
            let tools = ["read_file", "write_file", "exec", "web_fetch", "cron"];
            let offered: Vec<&str> = tools.into_iter().filter(|it| job.is_offered(it)).collect();
            assert_eq!(offered, expect);
            assert_eq!(bound.net == Net::Any, !offline);
        };
        check(false, &["read_file", "web_fetch"]);
        check(true, &["read_file"]);
    }
}
