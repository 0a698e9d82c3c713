//! What a turn works with: its places, its tools, and the system text that tells of them.

use crate::error::{Exit, fail_hint};
use crate::mcp::client::Answers;
use crate::memory::Memory;
use crate::ops::context::Context;
use crate::ops::mcp_tools::McpTools;
use crate::ops::permissions;
use crate::ops::permissions::Grants;
use crate::ops::subagents::Crew;
use crate::ops::{mcp_tools, web_tools};
use crate::policy::net::Net;
use crate::policy::profile::Profile;
use crate::policy::reach::Reach;
use crate::policy::rule::Pattern;
use crate::policy::seen::Seen;
use crate::policy::seen::addresses::linked_hosts;
use crate::policy::{Permission, Policy, Sandbox};
use crate::prompt::{self, Brief, Section};
use crate::settings::Config;
use crate::settings::Settings;
use crate::settings::keys::nearest;
use crate::skill::{self, Shelves, Source};
use crate::sys;
use crate::sys::paths::Real;
use crate::sys::secret;
use crate::sys::{sandbox, store};
use crate::tool::ask_user::{AskUser, Person};
use crate::tool::cron::{Cron, Planner};
use crate::tool::delete_file;
use crate::tool::edit_file;
use crate::tool::exec::{Containment, Exec, Limits};
use crate::tool::files::Files;
use crate::tool::glob::Glob;
use crate::tool::grep::Grep;
use crate::tool::list_dir::ListDir;
use crate::tool::read_file::ReadFile;
use crate::tool::spawn::Spawn;
use crate::tool::todo::Todo;
use crate::tool::write_file;
use crate::tool::{Appeals, Case, Failure, Tool, Toolbox};
use crate::trust::{self, Trust};
use crate::undo::journal::About;
use crate::undo::{Keeper, Undo};
use crate::workspace::Workspace;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// The tools, and the text about them and all else.
pub(crate) struct TurnSetup {
    pub(crate) toolbox: Toolbox,
    pub(crate) policy: Arc<Policy>,
    pub(crate) common: SharedState,
    /// What the system text is made of.
    pub(crate) sections: Vec<Section>,
    /// The skills that the model may read, and where.
    pub(crate) skills: Vec<(String, PathBuf)>,
    /// What the system text says of them.
    pub(crate) taught: String,
    /// Files about the work that were not read, since nobody trusts their directory.
    pub(crate) ignored: Vec<PathBuf>,
}

/// What a turn and its sub-agents share: what is kept aside of files, what has been seen, and who may be asked all the same.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(crate) files: Arc<Files>,
    pub(crate) seen: Arc<Seen>,
    /// Hosts that the config and the skills name.
    pub(crate) hosts: BTreeSet<String>,
    /// Nothing beyond this machine is reached.
    pub(crate) offline: bool,
    /// What MCP servers offer.
    pub(crate) mcp_tools: McpTools,
}

/// Who asks for a scene.
pub(crate) struct SetupInput<'a> {
    pub(crate) grants: &'a Grants,
    pub(crate) settings: &'a Settings,
    pub(crate) workspace: &'a Workspace,
    pub(crate) profile: &'a Profile,
    /// The turn and its session, for what is kept aside of files.
    pub(crate) turn: &'a str,
    pub(crate) session: &'a str,
    /// How many tools may run side by side.
    pub(crate) parallel: usize,
    /// Nothing beyond this machine is reached.
    pub(crate) offline: bool,
    /// Nothing is made: it is only shown what would be.
    pub(crate) rehearsal: bool,
    /// Who starts sub-agents; `None` where there is no turn that could hear of them.
    pub(crate) crew: Option<&'a Crew>,
    /// What the run may do at most, whatever its flags say.
    pub(crate) bound: Option<&'a Policy>,
    /// Who can be asked meanwhile; `None` where nobody sits there.
    pub(crate) person: Option<Arc<dyn Person>>,
    /// Who can be asked by servers; `None` where nobody sits there.
    pub(crate) answers: Option<Arc<dyn Answers>>,
    /// Who keeps the jobs that the model plans; `None` where it may plan none, as in a job's own run.
    pub(crate) planner: Option<Arc<dyn Planner>>,
}

/// Set the scene of a turn.
pub(crate) fn prepare(
    ctx: &Context,
    cast: &SetupInput<'_>,
    notice: &mut dyn FnMut(&str),
) -> Result<TurnSetup> {
    let SetupInput {
        grants,
        settings,
        workspace,
        profile,
        ..
    } = *cast;
    if !cast.rehearsal {
        store::create_dir(&workspace.root)?;
    }
    let mut real = Real::default();
    let home = real.of(&permissions::absolute(&workspace.root));
    let mut policy = permissions::policy(ctx, grants, settings, profile, &home)?;
    let directory = policy.reach.directory.clone();
    // What lies around the work speaks only where somebody said that it may; and then it is not changed by what it reads.
    let around = match directory == home {
        true => trust::Notes::default(),
        false => Trust::load(&ctx.paths.trust())?.notes(&directory)?,
    };
    for place in &around.trusted {
        policy.reach.notes.extend(trust::speaking(place));
    }
    policy
        .reach
        .trusted
        .extend(around.trusted.iter().take(1).cloned());
    let mcp_tools = mcp_tools::offered(ctx, cast, &policy, notice)?;
    mcp_tools.add_to_policy(&mut policy);
    if let Some(bound) = cast.bound {
        policy = policy.and(bound);
    }
    let policy = Arc::new(policy);
    if let Some(instead) = permissions::home_directory_notice(ctx, grants, settings, &policy) {
        notice(&instead);
    }
    let granted = describe_extra_grants(&policy);
    let seen = web_tools::seen(settings, &policy);
    if let Some(what) = mcp_tools.untrusted_descriptions() {
        seen.taint(&what);
    }
    let mut files = Files::new(policy.reach.clone())
        .with_context(|| format!("open `{}`", directory.display()))?
        .minding(Arc::clone(&seen));
    if ctx.env.get(sys::env::TEST_STEPS).is_some() {
        files = files.by_steps();
    }
    let about = About {
        turn: cast.turn.to_owned(),
        session: cast.session.to_owned(),
        directory: directory.clone(),
        from: std::env::current_dir().unwrap_or_default(),
        time: ctx.clock.stamp(),
    };
    files.keep(Keeper::new(Undo::new(ctx.paths.undo()), about));
    let files = Arc::new(files);
    let mut notes = workspace.notes()?;
    // What strangers may have put into the memory is theirs in this run too.
    if notes.memory.is_some()
        && let Some(what) = Memory::new(&workspace.root, &ctx.clock).untrusted()?
    {
        seen.taint(&format!(
            "the memory, which comes from a conversation with {what}; once `nanobot memory edit` has it as you want it, it is \
             yours"
        ));
    }
    notes.bootstrap.extend(around.texts);
    let found = skill::find(Shelves {
        workspace: &workspace.root,
        further: &around.skills,
        disabled: &settings.skills.disabled,
        env: &ctx.env,
    });
    found.notices().iter().for_each(|text| notice(text));
    let skills = found.skills;
    // What comes with the program is no choice of the user's, and what the model is not to use frees nothing.
    let chosen = skills.iter().filter(|skill| {
        skill.source != Source::BuiltIn && skill.is_offered && skill.is_available()
    });
    let taught = chosen.flat_map(|skill| linked_hosts(&skill.body));
    let common = SharedState {
        seen,
        files,
        hosts: settings.web.hosts.iter().cloned().chain(taught).collect(),
        offline: cast.offline,
        mcp_tools,
    };
    let toolbox = toolbox(ctx, cast, &policy, &common)?;
    let platform = platform();
    let has_tools = !toolbox.specs().is_empty();
    let summary = match has_tools {
        true => skill::summary(&skills, settings.skills.budget).text,
        false => String::new(),
    };
    let rules = rules(&policy, &toolbox, cast.person.is_some());
    let sections = prompt::sections(&Brief {
        platform: &platform,
        workspace: &home,
        directory: &directory,
        may_write: may_write(&policy),
        may_note: !profile.reads_only,
        grants: &granted,
        attended: cast.person.is_some(),
        has_tools,
        policy: &rules,
        profile: profile
            .prompt
            .as_deref()
            .map(|text| (profile.name.as_str(), text)),
        bootstrap: &notes.bootstrap,
        memory: notes.memory.as_deref(),
        active_skills: &skill::active(&skills),
        skills: &summary,
    });
    Ok(TurnSetup {
        toolbox,
        policy,
        common,
        sections,
        skills: skills
            .into_iter()
            .map(|skill| (skill.name, skill.location))
            .collect(),
        taught: summary,
        ignored: around.ignored,
    })
}

/// The scene as a turn with these flags would have it; `rehearsal` makes nothing.
pub(crate) fn without_turn(
    ctx: &Context,
    grants: &Grants,
    offline: bool,
    rehearsal: bool,
) -> Result<TurnSetup> {
    let config = Config::load(&ctx.paths.config)?;
    let settings = ctx.settings()?;
    let secrets = crate::settings::secrets::all(&config, &ctx.env);
    secrets.iter().for_each(secret::remember);
    let profile = permissions::profile(ctx, grants, &settings)?;
    let cast = SetupInput {
        grants,
        settings: &settings,
        workspace: &Workspace::new(&settings.workspace),
        profile: &profile,
        turn: &secret::random_hex(5),
        session: "tool",
        parallel: 1,
        offline,
        rehearsal,
        crew: None,
        bound: None,
        person: None,
        answers: None,
        planner: None,
    };
    prepare(ctx, &cast, &mut |text| ctx.notice(text))
}

/// Whether commands may change what is in the workspace, but for what is kept there.
fn is_open_to_commands(reach: &Reach) -> bool {
    let mut writes = reach.written_by_commands();
    !reach.is_free && writes.any(|root| reach.workspace.starts_with(root))
}

/// The tool that runs commands.
pub(crate) fn exec(
    ctx: &Context,
    settings: &Settings,
    policy: &Policy,
    files: &Arc<Files>,
) -> Exec {
    let limits = Limits {
        timeout: settings.exec.timeout,
        result: settings.max_tool_result_chars,
        path_prepend: settings.exec.path_prepend.clone(),
        path_append: settings.exec.path_append.clone(),
        allowed_env_keys: settings.exec.allowed_env_keys.clone(),
    };
    let containment = Containment {
        fenced: policy.sandbox != Sandbox::Off,
        net: policy.net == Net::Any,
    };
    Exec::new(Arc::clone(files), &limits, &ctx.env, containment)
}

/// Whether files in the directory may be changed.
pub(crate) fn may_write(policy: &Policy) -> bool {
    let mut roots = policy.reach.roots.iter();
    roots.any(|root| root.path == policy.reach.directory && root.may_write) && !policy.reads_only
}

/// The places besides directory and workspace, in words.
fn describe_extra_grants(policy: &Policy) -> Vec<String> {
    let Reach {
        directory,
        workspace,
        roots,
        ..
    } = &policy.reach;
    roots
        .iter()
        .filter(|root| root.path != *directory && root.path != *workspace)
        .map(|root| {
            format!(
                "{} ({})",
                root.path.display(),
                if root.may_write && !policy.reads_only {
                    "read and change"
                } else {
                    "read"
                }
            )
        })
        .collect()
}

/// What the tools may do, in words.
fn rules(policy: &Policy, toolbox: &Toolbox, attended: bool) -> String {
    let names: Vec<&str> = toolbox
        .specs()
        .iter()
        .map(|spec| spec.name.as_str())
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => policy.for_model(&names, attended),
    }
}

fn platform() -> String {
    let system = capital(std::env::consts::OS);
    format!("{system} {}", std::env::consts::ARCH)
}

/// The scene of a sub-agent under `policy`: those of its parent's tools that the policy offers, and the text about them.
pub(crate) fn prepare_subagent(
    ctx: &Context,
    settings: &Settings,
    policy: &Arc<Policy>,
    profile: Option<&Profile>,
    common: &SharedState,
    (names, parallel): (&[String], usize),
) -> Result<(Toolbox, String)> {
    let files = common.files.beside(policy.reach.clone());
    let common = SharedState {
        files: Arc::new(files.context("open the places")?),
        ..common.clone()
    };
    let mut tools = all_tools(ctx, settings, policy, &common);
    tools.retain(|tool| {
        let name = &tool.spec().name;
        names.contains(name) && policy.offers(name)
    });
    let toolbox = Toolbox::new(tools, parallel, Arc::clone(policy)).seeing(common.seen);
    let prompt = profile.and_then(|profile| Some((profile, profile.prompt.as_deref()?)));
    let system = prompt::subagent(&Brief {
        platform: &platform(),
        workspace: &policy.reach.workspace,
        directory: &policy.reach.directory,
        may_write: may_write(policy),
        may_note: !policy.reads_only,
        grants: &describe_extra_grants(policy),
        attended: false,
        has_tools: !toolbox.specs().is_empty(),
        policy: &rules(policy, &toolbox, false),
        profile: prompt.map(|(profile, text)| (profile.name.as_str(), text)),
        bootstrap: &[],
        memory: None,
        active_skills: "",
        skills: "",
    });
    Ok((toolbox, system))
}

/// Every tool that a run or a sub-agent can have but `spawn` and `cron`, those of the Python program in its order.
fn all_tools(
    ctx: &Context,
    settings: &Settings,
    policy: &Arc<Policy>,
    common: &SharedState,
) -> Vec<Box<dyn Tool>> {
    let files = &common.files;
    let mut tools: Vec<Box<dyn Tool>> = Vec::new();
    if settings.tools.files {
        tools.push(Box::new(ReadFile::new(Arc::clone(files))));
        tools.push(Box::new(write_file::tool(Arc::clone(files))));
        tools.push(Box::new(edit_file::tool(Arc::clone(files))));
        tools.push(Box::new(delete_file::tool(Arc::clone(files))));
        tools.push(Box::new(ListDir::new(Arc::clone(files))));
        tools.push(Box::new(Glob::new(Arc::clone(files))));
        tools.push(Box::new(Grep::new(Arc::clone(files))));
    }
    if settings.exec.enabled {
        let mut exec = exec(ctx, settings, policy, files);
        if is_open_to_commands(&policy.reach) {
            let workspace = Workspace::new(&settings.workspace);
            exec = exec.making_whole(Box::new(move || {
                workspace.create()?;
                store::create_dir(&workspace.root.join("cron"))
            }));
        }
        tools.push(Box::new(exec));
    }
    tools.push(Box::new(Todo::new()));
    tools.extend(web_tools::tools(ctx, settings, policy, common));
    tools.extend(common.mcp_tools.tools(ctx, policy, common));
    tools
}

/// The tools of this run.
fn toolbox(
    ctx: &Context,
    cast: &SetupInput<'_>,
    policy: &Arc<Policy>,
    common: &SharedState,
) -> Result<Toolbox> {
    let SetupInput {
        grants,
        settings,
        crew,
        session,
        ..
    } = *cast;
    let mut tools = all_tools(ctx, settings, policy, common);
    if let Some(crew) = crew {
        tools.push(Box::new(Spawn::new(crew.clone(), &crew.profiles())));
    }
    if let Some(planner) = &cast.planner {
        let is_chosen = |name: &str| {
            let listed = grants.tools.as_ref();
            listed.is_none_or(|names| names.iter().any(|it| it == name))
        };
        let names = tools.iter().map(|tool| tool.spec().name.as_str());
        let policy = Arc::new(job_upper_bound(
            policy,
            names.filter(|name| is_chosen(name)),
            cast.offline,
        ));
        let seen = Arc::clone(&common.seen);
        let cron = Cron::new(Arc::clone(planner), policy, seen, session);
        tools.push(Box::new(cron));
    }
    if let Some(person) = &cast.person {
        tools.push(Box::new(AskUser::new(Arc::clone(person))));
    }
    if let Some(names) = &grants.tools {
        let known: Vec<String> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
        let is_unknown =
            |name: &&String| !known.contains(name) && !common.mcp_tools.is_missing(name);
        if let Some(name) = names.iter().find(is_unknown) {
            let hint = match nearest(name, known.iter().map(String::as_str)) {
                Some(meant) => format!("`{meant}`"),
                None => known.join(", "),
            };
            let cause = format!("there is no tool `{name}`");
            return Err(fail_hint(Exit::Usage, cause, hint));
        }
        tools.retain(|tool| names.contains(&tool.spec().name));
    }
    tools.retain(|tool| policy.offers(&tool.spec().name));
    if grants.no_tools {
        tools.clear();
    }
    if policy.sandbox == Sandbox::Strict
        && tools.iter().any(|tool| tool.spec().name == "exec")
        && let Err(lack) = sandbox::available()
    {
        return Err(fail_hint(
            Exit::NoSandbox,
            format!("a sandbox is required, and here is none: {lack}"),
            "`--no-tools`, or `--tools` without `exec`",
        ));
    }
    let appeals = cast.person.as_ref().map(|person| {
        let appeal = InteractiveApproval {
            person: Arc::clone(person),
            ctx: ctx.clone(),
            settings: settings.clone(),
            profile: cast.profile.clone(),
            grants: grants.clone(),
            policy: Arc::clone(policy),
            common: common.clone(),
        };
        Arc::new(appeal) as Arc<dyn Appeals>
    });
    let seen = Arc::clone(&common.seen);
    Ok(Toolbox::new(tools, cast.parallel, Arc::clone(policy))
        .seeing(seen)
        .asking(appeals))
}

/// What is said for a call that was refused: it is heard by a person, who may grant for it what a flag would.
struct InteractiveApproval {
    person: Arc<dyn Person>,
    ctx: Context,
    settings: Settings,
    profile: Profile,
    grants: Grants,
    policy: Arc<Policy>,
    common: SharedState,
}

impl Appeals for InteractiveApproval {
    fn consents(&self, case: &Case<'_>) -> Result<(), Failure> {
        self.person.judge(case)
    }

    fn widened(&self, case: &Case<'_>) -> Result<Toolbox, Failure> {
        let refused = || Failure::Denied(case.refusal.clone());
        let flag = case.refusal.grant.as_deref().ok_or_else(refused)?;
        let mut grants = self.grants.clone();
        permissions::add(&mut grants, flag).ok_or_else(refused)?;
        // What no flag can lift for this run is not asked about.
        let workspace = &self.policy.reach.workspace;
        let policy =
            permissions::policy(&self.ctx, &grants, &self.settings, &self.profile, workspace);
        let mut policy = policy.map_err(|_| refused())?;
        self.common.mcp_tools.add_to_policy(&mut policy);
        self.person.judge(case)?;
        policy.reach.notes.clone_from(&self.policy.reach.notes);
        policy.reach.trusted.clone_from(&self.policy.reach.trusted);
        let policy = Arc::new(policy);
        let files = self.common.files.beside(policy.reach.clone());
        let files = files.map_err(|error| format!("the places cannot be opened: {error}"))?;
        let common = SharedState {
            files: Arc::new(files),
            ..self.common.clone()
        };
        let tools = all_tools(&self.ctx, &self.settings, &policy, &common);
        Ok(Toolbox::new(tools, 1, policy))
    }
}

/// What a job may do that a run under `policy` makes: no more than the run itself, whose flags are not all the policy's.
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

fn capital(word: &str) -> String {
    match word {
        "macos" => "macOS".into(),
        _ => word[..1].to_uppercase() + &word[1..],
    }
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
