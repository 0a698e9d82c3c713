//! The tools that a run or a sub-agent can have, built for one policy.

use crate::ops::changeable_paths::changeable_paths;
use crate::ops::context::Context;
use crate::ops::image_generation;
use crate::ops::transcription;
use crate::ops::turn_setup::shared_state::SharedState;
use crate::ops::turn_setup::web_tools;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::net::Net;
use nanobot_config::policy::tool_names::{APPLY_PATCH, PROCESS};
use nanobot_config::policy::{Policy, Sandbox};
use nanobot_config::settings::Settings;
use nanobot_os::durable_file;
use nanobot_os::symlinks::PathResolver;
use nanobot_os::test_hooks;
use nanobot_sandbox::process;
use nanobot_store::workspace::Workspace;
use nanobot_tool::Tool;
use nanobot_tool::apply_patch;
use nanobot_tool::attach::TranscribeRecording;
use nanobot_tool::cron::{CronTool, JobScheduler, RepliedJob};
use nanobot_tool::delete_file;
use nanobot_tool::edit_file;
use nanobot_tool::exec::process_tool::ProcessTool;
use nanobot_tool::exec::signer::Signer;
use nanobot_tool::exec::{ExecContainment, ExecLimits, ExecTool};
use nanobot_tool::files::Files;
use nanobot_tool::generate_image::{ImageRequest, ImageTool};
use nanobot_tool::glob;
use nanobot_tool::grep;
use nanobot_tool::host_proxy::CommandHosts;
use nanobot_tool::list_dir;
use nanobot_tool::program::ProgramTool;
use nanobot_tool::read_file;
use nanobot_tool::todo::Todo;
use nanobot_tool::write_file;
use std::sync::Arc;

/// All tools that a run or a sub-agent can have, except those that `build_toolbox` adds for the run alone: `spawn`, `cron`, `sessions`,
/// `message` and `ask_user`. The tools of the Python program come in its order.
pub(crate) fn all_tools(
    ctx: &Context,
    settings: &Settings,
    policy: &Arc<Policy>,
    shared: &SharedState,
) -> Vec<Arc<dyn Tool>> {
    let files = &shared.files;
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    if settings.tools.files {
        let transcribe = transcribe_recordings(ctx, shared);
        tools.push(Arc::new(read_file::tool(Arc::clone(files), ctx.env.get("PATH"), transcribe)));
        tools.push(Arc::new(write_file::tool(Arc::clone(files))));
        tools.push(Arc::new(edit_file::tool(Arc::clone(files))));
        tools.push(Arc::new(delete_file::tool(Arc::clone(files))));
        let model = settings.models[0].model.as_deref().unwrap_or_default();
        if apply_patch::is_trained_model(model)
            || shared.explicitly_named_tools.contains(APPLY_PATCH)
        {
            tools.push(Arc::new(apply_patch::tool(Arc::clone(files))));
        }
        tools.push(Arc::new(list_dir::tool(Arc::clone(files))));
        tools.push(Arc::new(glob::tool(Arc::clone(files))));
        tools.push(Arc::new(grep::tool(Arc::clone(files))));
    }
    if settings.exec.enabled {
        let exec = exec_tool(ctx, settings, policy, files);
        let exec =
            exec.with_hosts(command_hosts(ctx, settings, policy, shared), &shared.host_traffic);
        let exec = with_workspace(exec, settings, policy);
        match &shared.background {
            Some(commands) if policy.is_offered(PROCESS) => {
                let exec = Arc::new(exec.with_background(Arc::clone(commands)));
                let process = ProcessTool::new(Arc::clone(&exec), Arc::clone(commands));
                tools.push(exec);
                tools.push(Arc::new(process));
            }
            _ => tools.push(Arc::new(exec)),
        }
    }
    tools.extend(program_tools(ctx, settings, policy, shared));
    tools.push(Arc::new(Todo::new()));
    tools.extend(web_tools::tools(ctx, settings, policy, shared));
    tools.extend(image_tool(ctx, settings, shared));
    let allowed_hosts = shared.allowed_hosts(policy);
    tools.extend(shared.mcp_tools.tools(ctx, &shared.provenance, &allowed_hosts, &shared.files));
    tools
}

/// The tool that makes pictures, if the config enables it.
fn image_tool(ctx: &Context, settings: &Settings, shared: &SharedState) -> Option<Arc<dyn Tool>> {
    let image_settings = settings.tools.images.clone()?;
    let (ctx, media_account) = (ctx.clone(), Arc::clone(&shared.media_account));
    let offline = shared.offline;
    let max_images = image_settings.max_images;
    let generate = move |request: &ImageRequest<'_>| {
        let media_account = media_account.get().cloned().unwrap_or_default();
        let settings = ctx.settings()?;
        image_generation::generate(
            &ctx,
            &settings,
            &image_settings,
            offline,
            media_account,
            request,
        )
    };
    let tool = ImageTool::new(Arc::clone(&shared.files), max_images, Box::new(generate));
    Some(Arc::new(tool))
}

/// The reader of recordings. It reads the config when it is first needed.
fn transcribe_recordings(ctx: &Context, shared: &SharedState) -> Box<TranscribeRecording<'static>> {
    let (ctx, media_account) = (ctx.clone(), Arc::clone(&shared.media_account));
    let offline = shared.offline;
    Box::new(move |recording| {
        let media_account = media_account.get().cloned().unwrap_or_default();
        transcription::transcribe_file(&ctx, &ctx.settings()?, offline, media_account, recording)
    })
}

/// The programs of the user. They run like commands.
fn program_tools(
    ctx: &Context,
    settings: &Settings,
    policy: &Policy,
    shared: &SharedState,
) -> Vec<Arc<dyn Tool>> {
    if shared.programs.is_empty() {
        return Vec::new();
    }
    let paths = shared.programs.iter().map(|program| program.path.clone());
    let exec = exec_tool(ctx, settings, policy, &shared.files)
        .with_programs(paths.collect())
        .with_hosts(command_hosts(ctx, settings, policy, shared), &shared.host_traffic);
    let exec = Arc::new(with_workspace(exec, settings, policy));
    let tool = |program| Arc::new(ProgramTool::new(program, &exec)) as Arc<dyn Tool>;
    shared.programs.iter().map(tool).collect()
}

/// The tool that runs the user's hooks in the sandbox. They see the programs in their directory, and the targets of its links.
pub(crate) fn hook_runner(
    ctx: &Context,
    settings: &Settings,
    policy: &Policy,
    files: &Arc<Files>,
) -> ExecTool {
    let directory = PathResolver::default().resolve(&ctx.paths.hooks());
    let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let links = entries.map(|entry| entry.path()).filter(|path| path.is_symlink());
    let targets = links.filter_map(|link| link.canonicalize().ok()).collect::<Vec<_>>();
    let programs = targets.into_iter().chain([directory]).collect();
    let exec = exec_tool(ctx, settings, policy, files).with_programs(programs);
    with_workspace(exec, settings, policy)
}

/// The hosts that the commands of a run may reach.
fn command_hosts(
    ctx: &Context,
    settings: &Settings,
    policy: &Policy,
    shared: &SharedState,
) -> CommandHosts {
    if shared.offline {
        return CommandHosts::default();
    }
    CommandHosts {
        hosts: policy.net.command_hosts().iter().map(|host| host.text().to_owned()).collect(),
        allowed_ranges: settings.web.allowed_ranges.clone(),
        test_hosts: test_hooks::HOSTS.get(&ctx.env).map(str::to_owned),
    }
}

/// The tool that runs commands. Before the first one, it creates the files of the workspace that the sandbox protects: only existing files
/// can be mounted read-only.
fn with_workspace(exec: ExecTool, settings: &Settings, policy: &Policy) -> ExecTool {
    if !is_workspace_writable_by_commands(&policy.file_scope) {
        return exec;
    }
    let workspace = Workspace::new(&settings.workspace);
    exec.with_before_first_run(Box::new(move || {
        let created = workspace.create()?;
        durable_file::create_dir(&workspace.root.join("cron"))?;
        Ok(!created.is_empty())
    }))
}

/// The parts of the `cron` tool, which only turns that a person starts can have.
pub(crate) struct CronToolParts {
    pub(crate) scheduler: Arc<dyn JobScheduler>,
    /// The upper bound of its jobs' permissions.
    pub(crate) limit: Arc<Policy>,
    pub(crate) chat_key: String,
    pub(crate) replied_jobs: Vec<RepliedJob>,
}

impl CronToolParts {
    /// The tool in a run under `policy`.
    pub(crate) fn tool(&self, policy: &Policy, shared: &SharedState) -> Arc<dyn Tool> {
        Arc::new(CronTool::new(
            Arc::clone(&self.scheduler),
            Arc::clone(&self.limit),
            Arc::clone(&shared.provenance),
            policy.change_grants(),
            &self.chat_key,
            self.replied_jobs.clone(),
        ))
    }
}

/// The tool that runs commands.
pub(crate) fn exec_tool(
    ctx: &Context,
    settings: &Settings,
    policy: &Policy,
    files: &Arc<Files>,
) -> ExecTool {
    let limits = ExecLimits {
        timeout: settings.exec.timeout,
        memory_bytes: settings.exec.memory_bytes,
        max_result_chars: settings.max_tool_result_chars,
        path_prepend: settings.exec.path_prepend.clone(),
        path_append: settings.exec.path_append.clone(),
        allowed_env_keys: settings.exec.allowed_env_keys.clone(),
    };
    let containment = ExecContainment {
        is_sandboxed: policy.sandbox != Sandbox::Off,
        has_network: policy.net == Net::Any,
        reads_only: policy.reads_only,
    };
    let is_sandboxed = containment.is_sandboxed;
    let tool = ExecTool::new(Arc::clone(files), &limits, &ctx.env, containment)
        .with_locks(ctx.paths.write_locks());
    let tool = match ctx.trace.clone() {
        Some(trace) => tool.with_call_trace(Arc::new(move |call_id| trace.call_context(call_id))),
        None => tool,
    };
    match process::program_path(ctx.env.get("PATH")) {
        Ok(program) if is_sandboxed && policy.allows_signing() => {
            let changeable_paths = changeable_paths(ctx, settings, policy);
            let signer = Signer::new(&ctx.env, &ctx.paths.home, program, changeable_paths);
            tool.with_signing(Arc::new(signer))
        }
        _ => tool,
    }
}

/// True if commands may change files in the workspace outside the protected paths.
fn is_workspace_writable_by_commands(scope: &FileScope) -> bool {
    let mut roots = scope.command_writable_roots();
    !scope.is_unrestricted && roots.any(|root| scope.workspace.starts_with(root))
}

/// True if files in the working directory may be changed.
pub(crate) fn can_write(policy: &Policy) -> bool {
    let mut roots = policy.file_scope.roots.iter();
    roots.any(|root| root.path == policy.file_scope.directory && root.may_write)
        && !policy.reads_only
}
