//! Exports jobs, and the service of the channels, as files for other schedulers and for service managers.

use crate::ops::channel::open_channel::find_named;
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync::{self, CronLineContext};
use crate::ops::jobs::timing;
use crate::ops::jobs::workspace_jobs;
use crate::ops::notify_target;
use crate::ops::permissions;
use crate::options::grants::Grants;
use crate::options::job::ExportFormat;
use anyhow::{Context as _, Result, anyhow};
use jiff::tz::TimeZone;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::hooks::HookLocation;
use nanobot_config::settings::keys::{ConfigKey, KEYS};
use nanobot_config::settings::{LayeredConfig, Settings};
use nanobot_cron::export::channel_poll::{self, ChannelPoll};
use nanobot_cron::export::{
    EXPORT_MARK, ExportFile, ExportSettings, HEADER, ScheduledJob, crontab_file, kubernetes,
    systemd,
};
use nanobot_cron::job::{AnswerDestination, Job};
use nanobot_cron::job_store::{JobStore, is_valid_id};
use nanobot_model::provider::registry::find_provider;
use nanobot_os::clock;
use nanobot_os::durable_file as files;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Mode of the files: other users' programs read them, and they contain no secret.
const FILE_MODE: u32 = 0o644;

/// The files of some jobs.
pub(crate) struct ExportedJobs {
    pub(crate) files: Vec<ExportFile>,
    /// True if a job could not be exported, which was reported.
    pub(crate) has_failed: bool,
}

/// Makes the files for the jobs that `names` name, or for all enabled jobs if `names` is empty. `image` is the
/// container image for Kubernetes.
pub(crate) fn export(
    ctx: &Context,
    names: &[String],
    format: ExportFormat,
    image: &str,
) -> Result<ExportedJobs> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let all_jobs = store.jobs()?;
    let jobs = select_jobs(ctx, &store, &all_jobs, names)?;
    let mut has_failed = false;
    let mut fail = |cause: &str| {
        has_failed = true;
        ctx.terminal.eprint_failure(cause);
    };
    let site = ExportSite::new(ctx, &settings, &jobs)?;
    let line_context = &site.line_context;
    let site = site.settings(ctx);
    let mut output_files = Vec::new();
    let mut lines = Vec::new();
    let mut omitted_dirs: Vec<String> = Vec::new();
    for job in &jobs {
        let followers = workspace_jobs::followers(&all_jobs, &job.id);
        let followers: Vec<String> = followers.map(|job| job.id.clone()).collect();
        let result = with_planned_job(ctx, line_context, job, &followers, |planned| {
            match format {
                ExportFormat::Systemd => output_files.extend(systemd::unit_files(&site, planned)?),
                ExportFormat::Kubernetes => {
                    output_files.push(kubernetes::manifest_file(&site, planned, image)?);
                }
                ExportFormat::Crontab => {
                    let (job_lines, omitted) =
                        crontab_sync::job_lines(ctx, line_context, job, None)?;
                    lines.extend(job_lines);
                    let is_new = |directory: &String| !omitted_dirs.contains(directory);
                    let omitted: Vec<String> = omitted.into_iter().filter(is_new).collect();
                    omitted_dirs.extend(omitted);
                }
            }
            Ok(())
        });
        if let Err(error) = result {
            let name = quote(&job.name);
            fail(&format!("job {name} cannot be exported: {error}"));
        }
    }
    match format {
        ExportFormat::Kubernetes if !output_files.is_empty() => {
            output_files.insert(0, kubernetes::shared_file(&site));
        }
        ExportFormat::Crontab if !lines.is_empty() => {
            match crontab_file(&line_context.workspace, &lines) {
                Ok(file) => output_files.push(file),
                Err(error) => fail(&error),
            }
        }
        _ => {}
    }
    if !omitted_dirs.is_empty() {
        ctx.notice(&format!(
            "the PATH in the crontab omits, for lack of space: {}",
            omitted_dirs.join(", ")
        ));
    }
    Ok(ExportedJobs { files: output_files, has_failed })
}

/// Makes the files for the service of the channels that `names` name, or of all enabled channels if `names` is empty.
///
/// # Errors
/// The service cannot be exported, or a name is that of no channel.
pub(crate) fn export_channels(
    ctx: &Context,
    names: &[String],
    format: ExportFormat,
    image: &str,
) -> Result<ExportedJobs> {
    let settings = ctx.settings()?;
    for name in names {
        find_named(name)?;
    }
    let site = ExportSite::new(ctx, &settings, &[])?;
    let site = site.settings(ctx);
    let absolute = |path: &PathBuf| permissions::absolute(path);
    let (config, workspace) =
        (ctx.config.as_ref().map(absolute), ctx.workspace.as_ref().map(absolute));
    let is_served = |channel: &&str| names.is_empty() || names.iter().any(|name| name == channel);
    let served: Vec<&str> = settings.channels.iter().copied().filter(is_served).collect();
    let profile = permissions::resolve_profile(ctx, &Grants::default(), &settings)?;
    let servers = settings.servers.iter().flat_map(|server| &server.write_paths);
    let writable = settings.tools.write.iter().chain(&profile.write).chain(servers);
    let writable = writable.filter(|path| *path != ".");
    let writable: Vec<PathBuf> = writable.map(|path| absolute(&ctx.paths.expand(path))).collect();
    let poll = ChannelPoll {
        names,
        config: config.as_deref(),
        workspace: workspace.as_deref(),
        writable: &writable.iter().map(PathBuf::as_path).collect::<Vec<_>>(),
        has_user_commands: has_user_commands(ctx, &settings, &served)?,
    };
    let files = match format {
        ExportFormat::Kubernetes => channel_poll::manifest_file(&site, &poll, image)
            .map(|file| vec![kubernetes::shared_file(&site), file]),
        ExportFormat::Systemd | ExportFormat::Crontab => {
            channel_poll::unit_file(&site, &poll).map(|file| vec![file])
        }
    };
    let files = files.map_err(|error| anyhow!("the channels cannot be exported: {error}"))?;
    Ok(ExportedJobs { files, has_failed: false })
}

/// True if the process that serves the channels `served` runs programs of the user outside of the sandbox.
fn has_user_commands(ctx: &Context, settings: &Settings, served: &[&str]) -> Result<bool> {
    let config = ctx.load_config()?;
    let layers = LayeredConfig::new(&config, &ctx.env);
    let is_run = |key: &ConfigKey| match key.path.split('.').collect::<Vec<_>>()[..] {
        ["channels", channel, "command" | "tokenCommand"] => served.contains(&channel),
        ["transcription" | "speech", "command"] => true,
        _ => false,
    };
    for key in KEYS.iter().filter(|key| is_run(key)) {
        let value = layers.read_key(key)?;
        if value.is_some_and(|value| value.as_str().is_some_and(|text| !text.trim().is_empty())) {
            return Ok(true);
        }
    }
    let has_hooks = settings
        .hooks
        .as_ref()
        .is_ok_and(|hooks| hooks.commands.iter().any(|hook| hook.location == HookLocation::Home));
    let has_free_servers = settings.servers.iter().any(|server| server.is_unsandboxed);
    let notifies = matches!(notify_target::find(settings), Some(AnswerDestination::Command(_)));
    Ok(has_hooks || has_free_servers || notifies)
}

/// The values that the settings of an export borrow.
struct ExportSite {
    line_context: CronLineContext,
    keys: Vec<&'static str>,
    has_key_command: bool,
    zone: TimeZone,
    zone_name: Option<String>,
}

impl ExportSite {
    fn new(ctx: &Context, settings: &Settings, jobs: &[Job]) -> Result<Self> {
        let (keys, has_key_command) = key_variables(settings);
        let (zone, zone_name) = clock::system_zone(&ctx.env);
        let line_context = CronLineContext::new(ctx, settings, jobs)?;
        Ok(Self { line_context, keys, has_key_command, zone, zone_name })
    }

    fn settings<'a>(&'a self, ctx: &'a Context) -> ExportSettings<'a> {
        let line_context = &self.line_context;
        ExportSettings {
            home: &line_context.home,
            root: &ctx.paths.root,
            is_root_set: line_context.root.is_some(),
            path: line_context.path.as_deref(),
            program: &line_context.program,
            workspace: &line_context.workspace,
            keys: &self.keys,
            has_key_command: self.has_key_command,
            system_zone: &self.zone,
            system_zone_name: self.zone_name.as_deref(),
            now: ctx.clock.timestamp(),
        }
    }
}

/// The jobs that `names` name, or all enabled jobs if `names` is empty.
fn select_jobs(
    ctx: &Context,
    store: &JobStore,
    all_jobs: &[Job],
    names: &[String],
) -> Result<Vec<Job>> {
    let mut jobs: Vec<Job> = Vec::new();
    if names.is_empty() {
        jobs.extend(all_jobs.iter().filter(|job| job.enabled).cloned());
    }
    for name in names {
        let job = workspace_jobs::find_usable(store, name)?;
        if !job.enabled {
            ctx.notice(&format!(
                "job {} is disabled: it does not run until `nanobot cron enable {}`",
                quote(&job.name),
                quote(&job.id)
            ));
        }
        if jobs.iter().all(|listed| listed.id != job.id) {
            jobs.push(job);
        }
    }
    if jobs.is_empty() {
        return Err(fail(Exit::NoInput, "no enabled jobs").with_hint("nanobot cron add"));
    }
    Ok(jobs)
}

/// The variables of the keys that runs may need, and true if a command provides a key.
fn key_variables(settings: &Settings) -> (Vec<&'static str>, bool) {
    let configured = settings.providers.iter().filter(|(_, provider)| {
        provider.api_key.is_some() || provider.api_key_file.is_some() || provider.api_base.is_some()
    });
    let selected = settings.models.iter().map(|model| model.provider.as_str());
    let mut variables: Vec<&'static str> = configured
        .map(|(name, _)| name.as_str())
        .chain(selected)
        .filter_map(|name| find_provider(name)?.key_variables.first().copied())
        .collect();
    variables.sort_unstable();
    variables.dedup();
    let has_key_command =
        settings.providers.values().any(|provider| provider.api_key_command.is_some());
    (variables, has_key_command)
}

/// Calls `action` with the schedule and command of a job. `followers` are the ids of the jobs that run after it.
///
/// # Errors
/// A message that says why the job has no schedule, or why `action` failed.
fn with_planned_job(
    ctx: &Context,
    line_context: &CronLineContext,
    job: &Job,
    followers: &[String],
    action: impl FnOnce(&ScheduledJob) -> Result<(), String>,
) -> Result<(), String> {
    if !is_valid_id(&job.id) {
        return Err("its id may only contain letters, digits, `_` and `-`".into());
    }
    let (schedule, zone) = timing::effective_schedule(ctx, job)?;
    let config = crontab_sync::config_path(ctx, job);
    action(&ScheduledJob {
        job,
        schedule,
        zone: &zone,
        config: config.as_deref(),
        workspace: line_context.workspace_for(&config),
        followers,
    })
}

/// Writes the files into `directory`, but never overwrites files that another program created. Returns the written paths.
pub(crate) fn write_files(
    ctx: &Context,
    directory: &Path,
    exported: &mut ExportedJobs,
) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("create the directory `{}`", directory.display()))?;
    let mut paths = Vec::new();
    for ExportFile { name, text } in &exported.files {
        let path = directory.join(name);
        let is_foreign =
            files::read(&path)?.is_some_and(|bytes| !bytes.starts_with(EXPORT_MARK.as_bytes()));
        if is_foreign {
            exported.has_failed = true;
            ctx.terminal.eprint_failure(&format!(
                "not overwriting `{}`: it was not created by this program",
                path.display()
            ));
            continue;
        }
        files::replace(&path, text.as_bytes())?;
        std::fs::set_permissions(&path, Permissions::from_mode(FILE_MODE))
            .with_context(|| format!("set the permissions of `{}`", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

/// The names of files in `directory` that an earlier export left and that are not in `exported`.
pub(crate) fn leftover_files(
    format: ExportFormat,
    directory: &Path,
    exported: &[ExportFile],
) -> Result<Vec<String>> {
    let endings: &[&str] = match format {
        ExportFormat::Systemd => &[".service", ".timer"],
        ExportFormat::Kubernetes => &[".yaml"],
        ExportFormat::Crontab => return Ok(Vec::new()),
    };
    let context = || format!("read the directory `{}`", directory.display());
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(context)? {
        let name = entry.with_context(context)?.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with("nanobot-")) else {
            continue;
        };
        let has_ending = endings.iter().any(|ending| name.ends_with(ending));
        if has_ending && exported.iter().all(|file| file.name != name) {
            let path = directory.join(name);
            let is_file = std::fs::metadata(&path).is_ok_and(|metadata| metadata.is_file());
            let is_own = |bytes: Vec<u8>| bytes.starts_with(HEADER.as_bytes());
            if is_file && files::read(&path)?.is_some_and(is_own) {
                names.push(name.to_owned());
            }
        }
    }
    names.sort();
    Ok(names)
}
