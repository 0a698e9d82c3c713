//! Builds the setup of a turn: its policy, its tools, and its system prompt.

use crate::error::{Exit, fail_hint};
use crate::memory::Memory;
use crate::ops::context::Context;
use crate::ops::interactive_approval::InteractiveApproval;
use crate::ops::mcp_tools;
use crate::ops::permissions::{self, Grants};
use crate::ops::setup_input::SetupInput;
use crate::ops::shared_state::SharedState;
use crate::ops::system_prompt::{describe_extra_grants, describe_policy, platform};
use crate::ops::toolset::{all_tools, may_write};
use crate::ops::web_tools;
use crate::policy::net::Net;
use crate::policy::rule::Pattern;
use crate::policy::seen::Seen;
use crate::policy::seen::addresses::linked_hosts;
use crate::policy::{Permission, Policy, Sandbox};
use crate::prompt::{self, Brief, Section};
use crate::settings::Config;
use crate::settings::keys::nearest;
use crate::skill::{self, Shelves, Skill, Source};

use crate::sys::paths::Real;
use crate::sys::{sandbox, secret, store, test_hooks};
use crate::tool::ask_user::AskUser;
use crate::tool::cron::Cron;
use crate::tool::files::Files;
use crate::tool::{Appeals, Tool, Toolbox};
use crate::trust::{self, Notes, Trust};
use crate::undo::journal::About;
use crate::undo::{Keeper, Undo};
use crate::workspace::{self, Workspace};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tools, policy and system prompt of a turn.
pub(crate) struct TurnSetup {
    pub(crate) toolbox: Toolbox,
    pub(crate) policy: Arc<Policy>,
    pub(crate) shared: SharedState,
    /// The parts of the system prompt.
    pub(crate) sections: Vec<Section>,
    /// The skills that the model may read, and their paths.
    pub(crate) skills: Vec<(String, PathBuf)>,
    /// The list of skills in the system prompt.
    pub(crate) skill_list: String,
    /// Instruction files that were not read because their directory is not trusted.
    pub(crate) ignored: Vec<PathBuf>,
}

/// Builds the setup of a turn. `own_tools` are tools of the caller, offered like the others.
pub(crate) fn prepare(
    ctx: &Context,
    input: &SetupInput<'_>,
    own_tools: Vec<Box<dyn Tool>>,
    notice: &mut dyn FnMut(&str),
) -> Result<TurnSetup> {
    let (settings, profile) = (input.settings, input.profile);
    if !input.is_dry_run_or_replay {
        store::create_dir(&input.workspace.root)?;
    }
    let home = Real::default().of(&permissions::absolute(&input.workspace.root));
    let mut policy = permissions::policy(ctx, input.grants, settings, profile, &home)?;
    let project = project_notes(ctx, &home, &mut policy)?;
    let mcp_tools = mcp_tools::offered(ctx, input, &policy, notice)?;
    mcp_tools.add_to_policy(&mut policy);
    if let Some(limit) = input.policy_limit {
        policy = policy.and(limit);
    }
    let policy = Arc::new(policy);
    if let Some(text) = permissions::home_directory_notice(ctx, input.grants, settings, &policy) {
        notice(&text);
    }
    let seen = web_tools::seen(settings, &policy);
    if let Some(reason) = mcp_tools.untrusted_descriptions() {
        seen.taint(&reason);
    }
    let files = Arc::new(open_files(ctx, input, &policy, &seen)?);
    let mut notes = input.workspace.notes()?;
    if notes.memory.is_some() {
        taint_by_memory(ctx, input.workspace, &seen)?;
    }
    notes.bootstrap.extend(project.texts);
    let found = skill::find(Shelves {
        workspace: &input.workspace.root,
        further: &project.skills,
        disabled: &settings.skills.disabled,
        env: &ctx.env,
    });
    found.notices().iter().for_each(|text| notice(text));
    let skills = found.skills;
    let shared = SharedState {
        seen,
        files,
        hosts: settings
            .web
            .hosts
            .iter()
            .cloned()
            .chain(hosts_of_skills(&skills))
            .collect(),
        offline: input.offline,
        mcp_tools,
    };
    let toolbox = toolbox(ctx, input, &policy, &shared, own_tools)?;
    let skill_list = match toolbox.specs().is_empty() {
        true => String::new(),
        false => skill::summary(&skills, settings.skills.budget).text,
    };
    let sections = prompt_sections(input, &policy, &toolbox, &notes, (&skills, &skill_list));
    Ok(TurnSetup {
        toolbox,
        policy,
        shared,
        sections,
        skills: skills
            .into_iter()
            .map(|skill| (skill.name, skill.location))
            .collect(),
        skill_list,
        ignored: project.ignored,
    })
}

/// The parts of the system prompt.
fn prompt_sections(
    input: &SetupInput<'_>,
    policy: &Policy,
    toolbox: &Toolbox,
    notes: &workspace::Notes,
    (skills, skill_list): (&[Skill], &str),
) -> Vec<Section> {
    let attended = input.person.is_some();
    let own_prompt = input.profile.prompt.as_deref();
    prompt::sections(&Brief {
        platform: &platform(),
        workspace: &policy.reach.workspace,
        directory: &policy.reach.directory,
        may_write: may_write(policy),
        may_note: !input.profile.reads_only,
        grants: &describe_extra_grants(policy),
        attended,
        has_tools: !toolbox.specs().is_empty(),
        policy: &describe_policy(policy, toolbox, attended),
        profile: own_prompt.map(|text| (input.profile.name.as_str(), text)),
        bootstrap: &notes.bootstrap,
        memory: notes.memory.as_deref(),
        active_skills: &skill::active(skills),
        skills: skill_list,
    })
}

/// The instruction files and skills of the working directory, if the user trusts it. The policy then protects these
/// files from changes.
fn project_notes(ctx: &Context, workspace: &Path, policy: &mut Policy) -> Result<Notes> {
    let reach = &mut policy.reach;
    let notes = match reach.directory == workspace {
        true => Notes::default(),
        false => Trust::load(&ctx.paths.trust())?.notes(&reach.directory)?,
    };
    for place in &notes.trusted {
        reach.notes.extend(trust::speaking(place));
    }
    reach.trusted.extend(notes.trusted.iter().take(1).cloned());
    Ok(notes)
}

/// Opens the directories that the file tools may use, with a journal for `undo`.
fn open_files(
    ctx: &Context,
    input: &SetupInput<'_>,
    policy: &Policy,
    seen: &Arc<Seen>,
) -> Result<Files> {
    let directory = &policy.reach.directory;
    let mut files = Files::new(policy.reach.clone())
        .with_context(|| format!("open `{}`", directory.display()))?
        .minding(Arc::clone(seen));
    if test_hooks::NO_OPENAT2.get(&ctx.env).is_some() {
        files = files.by_steps();
    }
    let about = About {
        turn: input.turn.to_owned(),
        session: input.session.to_owned(),
        directory: directory.clone(),
        from: std::env::current_dir().unwrap_or_default(),
        time: ctx.clock.stamp(),
    };
    files.keep(Keeper::new(Undo::new(ctx.paths.undo()), about));
    Ok(files)
}

/// Marks the run as having read untrusted content if the memory may contain some.
fn taint_by_memory(ctx: &Context, workspace: &Workspace, seen: &Seen) -> Result<()> {
    if let Some(what) = Memory::new(&workspace.root, &ctx.clock).untrusted()? {
        seen.taint(&format!(
            "the memory, written in a conversation with {what}; review it with `nanobot memory edit` to trust it"
        ));
    }
    Ok(())
}

/// The hosts that the user's own skills link to. Built-in skills are not the user's choice, and a skill that is not
/// offered allows nothing.
fn hosts_of_skills(skills: &[Skill]) -> impl Iterator<Item = String> {
    let chosen = skills.iter().filter(|skill| {
        skill.source != Source::BuiltIn && skill.is_offered && skill.is_available()
    });
    chosen.flat_map(|skill| linked_hosts(&skill.body))
}

/// The setup of a turn with these grants, for commands that do not run a turn. A dry run creates nothing.
pub(crate) fn without_turn(
    ctx: &Context,
    grants: &Grants,
    offline: bool,
    is_dry_run: bool,
) -> Result<TurnSetup> {
    let config = Config::load(&ctx.paths.config)?;
    let settings = ctx.settings()?;
    let secrets = crate::settings::secrets::all(&config, &ctx.env);
    secrets.iter().for_each(secret::remember);
    let profile = permissions::profile(ctx, grants, &settings)?;
    let input = SetupInput {
        grants,
        settings: &settings,
        workspace: &Workspace::new(&settings.workspace),
        profile: &profile,
        turn: &secret::random_hex(5),
        session: "tool",
        parallel: 1,
        offline,
        is_dry_run_or_replay: is_dry_run,
        policy_limit: None,
        person: None,
        answers: None,
        scheduler: None,
    };
    prepare(ctx, &input, Vec::new(), &mut |text| ctx.notice(text))
}

/// The tools allowed by the policy and `--tools`, wrapped in the approval check.
fn toolbox(
    ctx: &Context,
    input: &SetupInput<'_>,
    policy: &Arc<Policy>,
    shared: &SharedState,
    own_tools: Vec<Box<dyn Tool>>,
) -> Result<Toolbox> {
    let mut tools = all_tools(ctx, input.settings, policy, shared);
    tools.extend(own_tools);
    if let Some(scheduler) = &input.scheduler {
        let names = tools.iter().map(|tool| tool.spec().name.as_str());
        let names = names.filter(|name| input.is_listed(name));
        let limit = Arc::new(job_upper_bound(policy, names, input.offline));
        let seen = Arc::clone(&shared.seen);
        let cron = Cron::new(Arc::clone(scheduler), limit, seen, input.session);
        tools.push(Box::new(cron));
    }
    if let Some(person) = &input.person {
        tools.push(Box::new(AskUser::new(Arc::clone(person))));
    }
    keep_listed(&mut tools, input.grants, shared)?;
    tools.retain(|tool| policy.offers(&tool.spec().name));
    if input.grants.no_tools {
        tools.clear();
    }
    if policy.sandbox == Sandbox::Strict
        && tools.iter().any(|tool| tool.spec().name == "exec")
        && let Err(lack) = sandbox::available()
    {
        return Err(fail_hint(
            Exit::NoSandbox,
            format!("a sandbox is required but unavailable: {lack}"),
            "`--no-tools`, or `--tools` without `exec`",
        ));
    }
    let approval = input.person.as_ref().map(|person| {
        let approval = InteractiveApproval {
            person: Arc::clone(person),
            ctx: ctx.clone(),
            settings: input.settings.clone(),
            profile: input.profile.clone(),
            grants: input.grants.clone(),
            policy: Arc::clone(policy),
            shared: shared.clone(),
        };
        Arc::new(approval) as Arc<dyn Appeals>
    });
    Ok(Toolbox::new(tools, input.parallel, Arc::clone(policy))
        .seeing(Arc::clone(&shared.seen))
        .asking(approval))
}

/// Keeps only the tools that `--tools` names.
///
/// # Errors
/// It names a tool that does not exist.
fn keep_listed(
    tools: &mut Vec<Box<dyn Tool>>,
    grants: &Grants,
    shared: &SharedState,
) -> Result<()> {
    let Some(names) = &grants.tools else {
        return Ok(());
    };
    let known: Vec<String> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
    let is_unknown = |name: &&String| !known.contains(name) && !shared.mcp_tools.is_missing(name);
    if let Some(name) = names.iter().find(is_unknown) {
        let hint = match nearest(name, known.iter().map(String::as_str)) {
            Some(meant) => format!("`{meant}`"),
            None => known.join(", "),
        };
        let cause = format!("there is no tool `{name}`");
        return Err(fail_hint(Exit::Usage, cause, hint));
    }
    tools.retain(|tool| names.contains(&tool.spec().name));
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
    bound.offered.push(tools.map(Pattern::new).collect());
    if offline {
        bound.net = Net::Default;
        let never = |name: &str| (Pattern::new(name), Permission::Never);
        bound
            .permissions
            .extend(["web_search", "web_fetch"].map(never));
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::job_upper_bound;
    use crate::policy::Policy;
    use crate::policy::net::Net;

    #[test]
    fn a_job_has_no_more_than_the_run_that_makes_it() {
        let run = Policy {
            net: Net::Any,
            ..Policy::default()
        };
        let check = |offline: bool, expect: &[&str]| {
            let bound = job_upper_bound(&run, ["read_file", "web_fetch"].into_iter(), offline);
            let job = Policy::restored(&bound.snapshot()).unwrap();
            let job = Policy::default().and(&job);
            let tools = ["read_file", "write_file", "exec", "web_fetch", "cron"];
            let offered: Vec<&str> = tools.into_iter().filter(|it| job.offers(it)).collect();
            assert_eq!(offered, expect);
            assert_eq!(bound.net == Net::Any, !offline);
        };
        check(false, &["read_file", "web_fetch"]);
        check(true, &["read_file"]);
    }
}
