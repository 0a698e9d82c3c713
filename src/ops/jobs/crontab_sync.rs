//! Writes the jobs to the crontab: `cron sync`, and the update after every command that changes a job.
//!
//! The block is generated from the job file each time, while the crontab is locked. The last writer has read all
//! earlier changes, so the block matches the job file regardless of the order of commands.

use crate::ops::context::{Context, report_error};
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::retry;
use crate::ops::jobs::time_format;
use crate::ops::jobs::timing;
use crate::ops::jobs::workspace_jobs;
use crate::ops::permissions;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::format::list_first;
use nanobot_config::settings::{JobStarter, Settings};
use nanobot_cron::command_line::{CommandParts, ParsedCommand, build_command};
use nanobot_cron::crontab::{self, Crontab, CrontabError};
use nanobot_cron::crontab_block;
use nanobot_cron::job::{HEARTBEAT_ID, Job};
use nanobot_cron::job_store::{self, JobStore};
use nanobot_cron::run_record::{JobDir, PendingRetry};
use nanobot_cron::schedule::Schedule;
use nanobot_cron::time_fields;
use nanobot_os::clock;
use nanobot_os::env;
use nanobot_os::test_hooks;
use nanobot_sandbox::process;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of jobs or directories that a message names.
const MAX_NAMES: usize = 3;

/// The jobs that get crontab lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobFilter {
    /// Our jobs, and jobs of the other program that were taken over or already have lines.
    Managed,
    /// All jobs.
    All,
}

/// The result of updating the crontab.
#[derive(Clone, Debug, Default)]
pub(crate) struct CrontabChange {
    /// Added lines.
    pub(crate) added: Vec<String>,
    /// Removed lines.
    pub(crate) removed: Vec<String>,
    /// Jobs that cannot have a line: the name, and the reason.
    pub(crate) skipped: Vec<(String, String)>,
    /// Further notices for the user.
    pub(crate) notices: Vec<String>,
}

impl CrontabChange {
    /// True if lines differ only in their PATH.
    pub(crate) fn is_path_only(&self) -> bool {
        let Self { added, removed, .. } = self;
        let removed: Vec<_> = removed.iter().map(|line| without_path_variable(line)).collect();
        let is_old = |line: &String| {
            let line = without_path_variable(line);
            line.is_some() && removed.contains(&line)
        };
        !added.is_empty() && added.len() == removed.len() && added.iter().all(is_old)
    }

    /// A notice if the lines of jobs other than `id` got another PATH. Other changes are not reported: they come from a concurrent command,
    /// or from an update that corrected wrong lines.
    pub(crate) fn other_jobs_notice(&self, id: &str) -> Option<String> {
        let of_others = |lines: &[String]| {
            let lines = lines.iter().filter(|line| job_id(line) != Some(id));
            lines.cloned().collect::<Vec<_>>()
        };
        let others = Self {
            added: of_others(&self.added),
            removed: of_others(&self.removed),
            ..Self::default()
        };
        let ids: BTreeSet<_> = others.added.iter().map(|line| job_id(line)).collect();
        let jobs = match ids.len() {
            1 => "1 other job".to_owned(),
            jobs => format!("{jobs} other jobs"),
        };
        others.is_path_only().then(|| format!("this shell's PATH now applies to {jobs} too"))
    }
}

/// The schedule and command of `line` without PATH, which comes from the shell that wrote the line.
pub(crate) fn without_path_variable(line: &str) -> Option<(&str, ParsedCommand)> {
    let fields = time_fields(line);
    let mut command = ParsedCommand::parse(line.get(fields.len() + 1..)?)?;
    command.variables.retain(|(name, _)| name != "PATH");
    Some((fields, command))
}

/// The ids of jobs that have a line and a directory, while the job file is missing.
pub(crate) fn find_orphans(store: &JobStore, lines: &[String]) -> Vec<String> {
    if store.job_file().exists() {
        return Vec::new();
    }
    let ids: BTreeSet<&str> = lines.iter().filter_map(|line| job_id(line)).collect();
    let has_data = |id: &&str| *id != HEARTBEAT_ID && store.has_options(id).unwrap_or(true);
    ids.into_iter().filter(has_data).map(str::to_owned).collect()
}

/// The message about jobs whose job file is gone.
pub(crate) fn missing_file_message(orphans: &[String]) -> String {
    let jobs = match orphans {
        [id] => format!("1 of its jobs still has data and a crontab line: {id}"),
        ids => format!(
            "{} of its jobs still have data and crontab lines: {}",
            ids.len(),
            list_first(ids, MAX_NAMES)
        ),
    };
    format!("the job file is missing; {jobs}")
}

/// Refuses to change the lines of jobs whose job file is missing: the file may come back.
///
/// # Errors
/// Status 78 if there are such jobs.
pub(crate) fn require_job_file(store: &JobStore, lines: &[String]) -> Result<()> {
    let orphans = find_orphans(store, lines);
    if orphans.is_empty() {
        Ok(())
    } else {
        Err(fail(Exit::Config, missing_file_message(&orphans)).with_hint(format!(
            "restore `{}`; or `nanobot cron remove ID …` to remove the jobs",
            store.job_file().display()
        )))
    }
}

/// The block of a workspace to write.
#[derive(Clone, Debug, Default)]
struct WorkspaceBlock {
    lines: Vec<String>,
    skipped: Vec<(String, String)>,
    notices: Vec<String>,
}

/// Updates the crontab with all jobs, including those of the other program. With `dry_run`, only reports what would
/// change.
pub(crate) fn sync(ctx: &Context, dry_run: bool) -> Result<CrontabChange> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    // Taking over comes first: without a crontab, `cron run --due` relies on it.
    if !dry_run {
        take_over(ctx, &store)?;
    }
    let change = if settings.job_starter == JobStarter::Other {
        remove_lines(ctx, &settings, dry_run)?
    } else if dry_run {
        preview(ctx, &settings, &store, &store.jobs()?, JobFilter::All)?
    } else {
        write_crontab(ctx, &settings, &store, JobFilter::All)?
    };
    print_warnings(ctx, &change);
    for warning in store.warnings()? {
        ctx.notice(&warning);
    }
    Ok(change)
}

/// Takes over all jobs of the other program that can still run. The other program never runs missed slots, so a job
/// whose only time has passed is not taken over.
fn take_over(ctx: &Context, store: &JobStore) -> Result<()> {
    let now = ctx.clock.timestamp();
    for job in store.jobs()? {
        let has_passed = matches!(job.schedule, Ok(Schedule::At(time)) if time <= now);
        let runs = timing::effective_schedule(ctx, &job).is_ok() && !has_passed;
        if job.options.is_none() && runs {
            store.take_over(&job.id)?;
        }
    }
    Ok(())
}

/// Writes the block of this workspace from its jobs.
///
/// # Errors
/// There is no crontab, or it cannot be changed. The jobs are kept either way.
pub(crate) fn write_crontab(
    ctx: &Context,
    settings: &Settings,
    store: &JobStore,
    filter: JobFilter,
) -> Result<CrontabChange> {
    if settings.job_starter == JobStarter::Other {
        return Ok(CrontabChange::default());
    }
    let name = block_name(settings)?;
    // Read once, under the lock. Programs that change the job file later update the crontab themselves.
    let mut jobs = None;
    let mut first_lines = None;
    let mut block_result = Ok(WorkspaceBlock::default());
    let mut zone_variable = None;
    let crontab = Crontab::new(&ctx.env, &ctx.paths);
    crontab.change(&mut |table| {
        zone_variable = crontab_block::zone_variable(table, &name);
        let current_lines = crontab_block::block_lines(table, &name).unwrap_or_default();
        block_result = match jobs.get_or_insert_with(|| store.jobs()) {
            Ok(jobs) => require_job_file(store, &current_lines)
                .and_then(|()| build_block(ctx, settings, store, jobs, filter, &current_lines)),
            // The error is returned below.
            Err(_) => Ok(WorkspaceBlock::default()),
        };
        first_lines.get_or_insert(current_lines);
        match (&block_result, &jobs) {
            (Ok(block), Some(Ok(_))) => crontab_block::with_block(table, &name, &block.lines),
            _ => table.to_vec(),
        }
    })?;
    jobs.transpose()?;
    let mut block = block_result?;
    if !block.lines.is_empty() {
        block.notices.extend(shifted_lines_message(ctx, zone_variable.as_deref()));
    }
    Ok(compare_blocks(&first_lines.unwrap_or_default(), block))
}

/// The message about lines that start at the times of another zone, because the crontab sets `CRON_TZ` above them.
pub(crate) fn shifted_lines_message(ctx: &Context, zone_variable: Option<&str>) -> Option<String> {
    let name = zone_variable?;
    let now = ctx.clock.timestamp();
    let (system, _) = clock::system_zone(&ctx.env);
    let is_same =
        clock::named_zone(name).is_some_and(|zone| time_fields::is_same_clock(&zone, &system, now));
    // Some implementations of cron ignore the variable.
    if is_same || !Crontab::new(&ctx.env, &ctx.paths).has_zone_variable() {
        return None;
    }
    Some(format!(
        "`CRON_TZ={name}` in the crontab shifts the times of all lines below it: move it below the lines of nanobot"
    ))
}

/// Removes the lines of this workspace, since another scheduler starts its jobs. Without a crontab there is nothing to do.
fn remove_lines(ctx: &Context, settings: &Settings, dry_run: bool) -> Result<CrontabChange> {
    let workspace = cron_environment::real_path(&settings.workspace);
    let (removed, _) = lines_for_removal(ctx, &workspace)?;
    if !removed.is_empty() && !dry_run {
        remove_block(ctx, &workspace)?;
    }
    Ok(CrontabChange { removed, ..CrontabChange::default() })
}

/// Computes the change that [`write_crontab`] would make if the store had these `jobs`.
///
/// # Errors
/// The crontab cannot be read.
pub(crate) fn preview(
    ctx: &Context,
    settings: &Settings,
    store: &JobStore,
    jobs: &[Job],
    filter: JobFilter,
) -> Result<CrontabChange> {
    if settings.job_starter == JobStarter::Other {
        return Ok(CrontabChange::default());
    }
    let before = read_lines(ctx, settings)?;
    require_job_file(store, &before)?;
    let block = build_block(ctx, settings, store, jobs, filter, &before)?;
    Ok(compare_blocks(&before, block))
}

/// The current block of this workspace.
pub(crate) struct PresentBlock {
    pub(crate) lines: Vec<String>,
    /// The value of `CRON_TZ` above it.
    pub(crate) zone_variable: Option<String>,
}

/// The block of this workspace.
pub(crate) fn read_block(ctx: &Context, settings: &Settings) -> Result<PresentBlock> {
    let crontab = Crontab::new(&ctx.env, &ctx.paths);
    let table = crontab.read()?;
    let name = block_name(settings)?;
    Ok(PresentBlock {
        lines: crontab_block::block_lines(&table, &name).unwrap_or_default(),
        zone_variable: crontab_block::zone_variable(&table, &name),
    })
}

/// The lines of this workspace's block.
pub(crate) fn read_lines(ctx: &Context, settings: &Settings) -> Result<Vec<String>> {
    Ok(read_block(ctx, settings)?.lines)
}

/// True if the crontab has a line of the job `id`. If crontab lines do not start the jobs of this workspace, there is none,
/// nor if this machine or this user has no crontab.
///
/// # Errors
/// The crontab cannot be read.
pub(crate) fn has_line(ctx: &Context, settings: &Settings, id: &str) -> Result<bool> {
    if settings.job_starter == JobStarter::Other {
        return Ok(false);
    }
    let table = match Crontab::new(&ctx.env, &ctx.paths).read() {
        Err(CrontabError::Missing | CrontabError::Forbidden(_)) => return Ok(false),
        table => table?,
    };
    let lines = crontab_block::block_lines(&table, &block_name(settings)?).unwrap_or_default();
    Ok(lines.iter().any(|line| job_id(line) == Some(id)))
}

/// The lines of the block of the workspace with the real path `workspace`, and the number of other lines that name this
/// program. Without a `crontab` program there are no lines.
pub(crate) fn lines_for_removal(ctx: &Context, workspace: &Path) -> Result<(Vec<String>, usize)> {
    let table = match Crontab::new(&ctx.env, &ctx.paths).read() {
        Err(CrontabError::Missing) => return Ok((Vec::new(), 0)),
        table => table?,
    };
    let name = path_name(workspace)?;
    let rest = crontab_block::without_block(&table, &name);
    let others = String::from_utf8_lossy(&rest)
        .lines()
        .filter(|line| !line.trim_start().starts_with('#') && line.contains("nanobot"))
        .count();
    let lines = crontab_block::block_lines(&table, &name).unwrap_or_default();
    Ok((lines, others))
}

/// Removes the block of the workspace with the real path `workspace`.
///
/// # Errors
/// The crontab cannot be changed.
pub(crate) fn remove_block(ctx: &Context, workspace: &Path) -> Result<()> {
    let name = path_name(workspace)?;
    let crontab = Crontab::new(&ctx.env, &ctx.paths);
    crontab.change(&mut |table| crontab_block::without_block(table, &name))?;
    Ok(())
}

/// The name of this workspace's block: the real path, so a symbolic link to the workspace gets the same block.
fn block_name(settings: &Settings) -> Result<String> {
    path_name(&cron_environment::real_path(&settings.workspace))
}

fn path_name(path: &Path) -> Result<String> {
    Ok(path
        .to_str()
        .context("the workspace's path is not valid UTF-8, which a crontab requires")?
        .to_owned())
}

fn compare_blocks(before: &[String], block: WorkspaceBlock) -> CrontabChange {
    let WorkspaceBlock { lines, skipped, notices } = block;
    let not_in = |lines: &[String], others: &[String]| -> Vec<String> {
        let others: BTreeSet<&String> = others.iter().collect();
        lines.iter().filter(|line| !others.contains(line)).cloned().collect()
    };
    CrontabChange {
        added: not_in(&lines, before),
        removed: not_in(before, &lines),
        skipped,
        notices,
    }
}

/// The id of the job that `line` runs.
pub(crate) fn job_id(line: &str) -> Option<&str> {
    let (_, id) = line.strip_suffix(" --scheduled")?.rsplit_once(" cron run ")?;
    Some(id)
}

/// The five time fields of `line`.
pub(crate) fn time_fields(line: &str) -> &str {
    let fields = line.match_indices(' ').nth(4);
    fields.map_or(line, |(end, _)| &line[..end])
}

fn build_block(
    ctx: &Context,
    settings: &Settings,
    store: &JobStore,
    jobs: &[Job],
    filter: JobFilter,
    before: &[String],
) -> Result<WorkspaceBlock> {
    let ids_with_lines: BTreeSet<&str> = before.iter().filter_map(|line| job_id(line)).collect();
    let mut block = WorkspaceBlock::default();
    let line_context = CronLineContext::new(ctx, settings, jobs)?;
    for job in jobs {
        let is_selected = || {
            filter == JobFilter::All
                || ids_with_lines.contains(job.id.as_str())
                || store.is_managed(job)
        };
        if !job.enabled || !is_selected() {
            continue;
        }
        match job_lines(ctx, &line_context, job, pending_retry(store, job)) {
            Ok((lines, omitted_dirs)) => {
                block.lines.extend(lines);
                if !omitted_dirs.is_empty() {
                    let notice = format!(
                        "the PATH in the crontab omits, for lack of space: {}",
                        list_first(&omitted_dirs, MAX_NAMES)
                    );
                    if !block.notices.contains(&notice) {
                        block.notices.push(notice);
                    }
                }
            }
            Err(error) => {
                // A job that has become unusable keeps its lines: each start then reports the reason.
                let lines = before.iter().filter(|line| job_id(line) == Some(&job.id));
                block.lines.extend(lines.cloned());
                let name = time_format::to_one_line(&job.name);
                block.skipped.push((name, error));
            }
        }
    }
    Ok(block)
}

/// The parts that all lines of a block share.
pub(crate) struct CronLineContext {
    /// The home directory.
    pub(crate) home: PathBuf,
    /// The data directory, if the environment sets one.
    pub(crate) root: Option<PathBuf>,
    /// The PATH that lines pass on.
    pub(crate) path: Option<String>,
    /// The path of this program.
    pub(crate) program: PathBuf,
    pub(crate) workspace: PathBuf,
    /// The workspaces that cron finds without `--workspace`, by config file.
    default_workspaces: BTreeMap<Option<PathBuf>, Option<PathBuf>>,
}

impl CronLineContext {
    /// Collects the shared parts.
    pub(crate) fn new(ctx: &Context, settings: &Settings, jobs: &[Job]) -> Result<Self> {
        let path = ctx.env.get("PATH").map(str::to_owned);
        let program =
            process::program_path(path.as_deref()).context("find this program's own path")?;
        let mut default_workspaces = BTreeMap::new();
        for job in jobs {
            let config = config_path(ctx, job);
            let path = config.clone().unwrap_or_else(|| ctx.paths.default_config());
            default_workspaces
                .entry(config)
                .or_insert_with(|| cron_environment::default_workspace(ctx, &path));
        }
        Ok(Self {
            home: std::path::absolute(&ctx.paths.home).context("find the home directory")?,
            root: ctx.env.get(env::HOME_DIR).map(|_| ctx.paths.root.clone()),
            path,
            program,
            workspace: settings.workspace.clone(),
            default_workspaces,
        })
    }

    /// The `--workspace` that a job with this config file needs; `None` if cron finds it by itself.
    pub(crate) fn workspace_for(&self, config: &Option<PathBuf>) -> Option<&Path> {
        let default = self.default_workspaces.get(config).and_then(Option::as_ref);
        (default != Some(&cron_environment::real_path(&self.workspace)))
            .then_some(self.workspace.as_path())
    }
}

/// The config file of `job`, if it is not the default. For a job of another program, it is the file that `--config` names.
pub(crate) fn config_path(ctx: &Context, job: &Job) -> Option<PathBuf> {
    match &job.options {
        Some(options) => options.config.clone(),
        None => ctx.config.as_deref().map(permissions::absolute),
    }
}

/// The retry that `job` waits for. If the state cannot be read, the start of the job reports that.
pub(crate) fn pending_retry(store: &JobStore, job: &Job) -> Option<PendingRetry> {
    let job_dir = store.job_dir(&job.id).ok()?;
    if job.retry_policy().limit == 0 {
        return None;
    }
    retry::pending(job, &JobDir::new(job_dir).read_state().ok()?)
}

/// The time fields of the lines of `job`, with that of `retry`.
///
/// # Errors
/// A message that says why the job never runs.
pub(crate) fn line_fields(
    ctx: &Context,
    job: &Job,
    retry: Option<PendingRetry>,
) -> Result<Vec<String>, String> {
    let (schedule, zone) = timing::effective_schedule(ctx, job)?;
    let (system, _) = clock::system_zone(&ctx.env);
    let mut fields =
        time_fields::crontab_fields(schedule, job.catch_up(), job.created, &zone, &system);
    let retry_fields =
        retry.and_then(|retry| time_fields::retry_fields(&fields, retry.at(), &system));
    fields.extend(retry_fields);
    Ok(fields)
}

/// The lines of `job`, with that of `retry`, and the directories of PATH that do not fit in them.
///
/// # Errors
/// A message that says why the job can have no line.
pub(crate) fn job_lines(
    ctx: &Context,
    line_context: &CronLineContext,
    job: &Job,
    retry: Option<PendingRetry>,
) -> Result<(Vec<String>, Vec<String>), String> {
    if !job_store::is_valid_id(&job.id) {
        return Err("its id may only contain letters, digits, `_` and `-`".into());
    }
    let (schedule, _) = timing::effective_schedule(ctx, job)?;
    // The Python program never runs missed slots, and taking over its jobs does not change that.
    if let (Schedule::At(time), None) = (schedule, &job.options)
        && *time <= ctx.clock.timestamp()
    {
        return Err("its time has passed".into());
    }
    let (command, omitted_dirs) = job_command(ctx, line_context, job)?;
    let lines =
        line_fields(ctx, job, retry)?.iter().map(|fields| format!("{fields} {command}")).collect();
    Ok((lines, omitted_dirs))
}

/// The command in the lines of `job`, and the directories of PATH that do not fit in it.
///
/// # Errors
/// A message that says why the job can have no line.
fn job_command(
    ctx: &Context,
    line_context: &CronLineContext,
    job: &Job,
) -> Result<(String, Vec<String>), String> {
    let CronLineContext { home, root, path, program, workspace: _, default_workspaces: _ } =
        line_context;
    let config = config_path(ctx, job);
    let command = build_command(&CommandParts {
        home,
        root: root.as_deref(),
        path: path.as_deref(),
        program,
        config: config.as_deref(),
        workspace: line_context.workspace_for(&config),
        id: &job.id,
    })?;
    Ok((command.text, command.omitted_dirs))
}

/// The command of the crontab line of `job`, as cron passes it to a shell, but without `--scheduled`, so it runs now.
/// Also returns the environment that cron sets.
///
/// # Errors
/// The job can have no line.
pub(crate) fn cron_command(
    ctx: &Context,
    settings: &Settings,
    job: &Job,
) -> Result<(String, Vec<(String, String)>)> {
    if !job_store::is_valid_id(&job.id) {
        return Err(job_store::invalid_id_error(&job.id));
    }
    let line_context = CronLineContext::new(ctx, settings, std::slice::from_ref(job))?;
    let (command, _) = job_command(ctx, &line_context, job).map_err(|error| {
        fail(Exit::Config, format!("job `{}` cannot have a crontab line: {error}", job.name))
    })?;
    // Undo the escapes that cron removes before it starts the shell.
    let command = command.replace("\\%", "%");
    let command = command.strip_suffix(" --scheduled").unwrap_or(&command);
    let user = ["LOGNAME", "USER"].into_iter().find_map(|name| ctx.env.get(name));
    let env = [
        ("HOME", ctx.paths.home.display().to_string()),
        ("LOGNAME", user.unwrap_or("root").to_owned()),
        ("SHELL", "/bin/sh".to_owned()),
        ("PATH", "/usr/bin:/bin".to_owned()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value));
    Ok((command.to_owned(), env.to_vec()))
}

/// Reports the crontab change after a job was edited. If the change failed, `saved_message` describes the saved state.
pub(crate) fn report_change(
    ctx: &Context,
    change: Result<CrontabChange>,
    saved_message: &str,
) -> Exit {
    let change = match change {
        Ok(change) => change,
        Err(error) => {
            let exit = report_error(&error, ctx.terminal);
            ctx.terminal.eprint(&format!("  {saved_message}"));
            return match exit {
                // An I/O error of the crontab must not look like one of the job.
                Exit::Io => Exit::Failed,
                exit => exit,
            };
        }
    };
    print_warnings(ctx, &change);
    Exit::Answered
}

/// True if a cron daemon is running; `None` if that is unknown.
pub(crate) fn is_cron_running(ctx: &Context) -> Option<bool> {
    match test_hooks::CRON_DAEMON.get(&ctx.env) {
        None => crontab::is_cron_running(),
        Some("unknown") => None,
        Some(word) => Some(word == "yes"),
    }
}

/// Reports which jobs are not in the crontab, and other reasons why they may not run.
fn print_warnings(ctx: &Context, change: &CrontabChange) {
    for (name, reason) in &change.skipped {
        ctx.notice(&format!("`{name}` is not in the crontab: {reason}"));
    }
    for notice in &change.notices {
        ctx.notice(notice);
    }
    if !change.added.is_empty() && is_cron_running(ctx) == Some(false) {
        ctx.notice("no cron daemon is running: nothing starts the jobs until one does");
    }
}
