//! Writes the jobs to the crontab: `cron sync`, and the update after every command that changes a job.
//!
//! The block is generated from the job file each time, while the crontab is locked. The last writer has read all
//! earlier changes, so the block matches the job file regardless of the order of commands.

use crate::cron::command::{Parts, Started, command};
use crate::cron::job::{HEARTBEAT, Job};
use crate::cron::line;
use crate::cron::schedule::Schedule;
use crate::cron::store::{self, Store};
use crate::cron::table;
use crate::error::{Exit, fail, fail_hint};
use crate::ops::context::{Context, report_error};
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::job_store;
use crate::ops::jobs::time_format;
use crate::ops::jobs::timing;
use crate::ops::permissions;
use crate::settings::Settings;
use crate::sys::crontab::{self, Crontab, Trouble};
use crate::sys::{clock, env, process, test_hooks};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of directories listed in a notice about PATH entries that do not fit in a line.
const NAMED: usize = 3;

/// The jobs that get crontab lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobFilter {
    /// Our jobs, and jobs of the other program that were taken over or already have lines.
    Known,
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
    /// True if the block has any line.
    pub(crate) has_lines: bool,
    /// Jobs that cannot have a line: the name, and the reason.
    pub(crate) left_out: Vec<(String, String)>,
    /// Further notices for the user.
    pub(crate) notes: Vec<String>,
}

impl CrontabChange {
    /// True if lines differ only in their PATH.
    pub(crate) fn is_path_only(&self) -> bool {
        let Self { added, removed, .. } = self;
        let removed: Vec<_> = removed
            .iter()
            .map(|line| without_path_variable(line))
            .collect();
        let is_old = |line: &String| {
            let line = without_path_variable(line);
            line.is_some() && removed.contains(&line)
        };
        !added.is_empty() && added.len() == removed.len() && added.iter().all(is_old)
    }

    /// A notice if jobs other than `id` got another PATH. Other changes are not reported: they come from a concurrent
    /// command, or from an update that corrected wrong lines.
    pub(crate) fn others(&self, id: &str) -> Option<String> {
        let of_others = |lines: &[String]| {
            let lines = lines.iter().filter(|line| id_of(line) != Some(id));
            lines.cloned().collect::<Vec<_>>()
        };
        let others = Self {
            added: of_others(&self.added),
            removed: of_others(&self.removed),
            ..Self::default()
        };
        let ids: BTreeSet<_> = others.added.iter().map(|line| id_of(line)).collect();
        let jobs = match ids.len() {
            1 => "1 other job".to_owned(),
            jobs => format!("{jobs} other jobs"),
        };
        let words = format!("this shell's PATH now applies to {jobs} too");
        others.is_path_only().then_some(words)
    }
}

/// The schedule and command of `line` without PATH, which comes from the shell that wrote the line.
pub(crate) fn without_path_variable(line: &str) -> Option<(&str, Started)> {
    let fields = fields_of(line);
    let mut started = Started::of(line.get(fields.len() + 1..)?)?;
    started.variables.retain(|(name, _)| name != "PATH");
    Some((fields, started))
}

/// The ids of jobs that have a line and a folder, while the job file is missing.
pub(crate) fn orphans(store: &Store, lines: &[String]) -> Vec<String> {
    if store.file().exists() {
        return Vec::new();
    }
    let ids: BTreeSet<&str> = lines.iter().filter_map(|line| id_of(line)).collect();
    let is_known = |id: &&str| *id != HEARTBEAT && store.has_terms(id).unwrap_or(true);
    ids.into_iter()
        .filter(is_known)
        .map(str::to_owned)
        .collect()
}

/// The message about jobs whose job file is gone.
pub(crate) fn missing_file_message(orphans: &[String]) -> String {
    let jobs = match orphans {
        [id] => format!("1 of its jobs still has data and a crontab line: {id}"),
        ids => format!(
            "{} of its jobs still have data and crontab lines: {}",
            ids.len(),
            some(ids)
        ),
    };
    format!("the job file is missing; {jobs}")
}

/// Refuses to change the lines of jobs whose job file is missing: the file may come back.
///
/// # Errors
/// Status 78 if there are such jobs.
pub(crate) fn insist_on_file(store: &Store, lines: &[String]) -> Result<()> {
    let orphans = orphans(store, lines);
    match orphans.is_empty() {
        true => Ok(()),
        false => Err(fail_hint(
            Exit::Config,
            missing_file_message(&orphans),
            format!(
                "restore `{}`; or `nanobot cron remove ID …` to remove the jobs",
                store.file().display()
            ),
        )),
    }
}

/// The block of a workspace to write.
#[derive(Clone, Debug, Default)]
struct Block {
    lines: Vec<String>,
    left_out: Vec<(String, String)>,
    notes: Vec<String>,
}

/// Updates the crontab with all jobs, including those of the other program. With `dry_run`, only reports what would
/// change.
pub(crate) fn sync(ctx: &Context, dry_run: bool) -> Result<CrontabChange> {
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    let change = match dry_run {
        true => preview_crontab(ctx, &settings, &store)?,
        false => {
            // Taking over comes first: without a crontab, `cron run --due` relies on it.
            take_over(ctx, &store)?;
            write_crontab(ctx, &settings, &store, JobFilter::All)?
        }
    };
    warn(ctx, &change);
    for words in store.oddities()? {
        ctx.notice(&words);
    }
    Ok(change)
}

/// Takes over all jobs of the other program that can still run. The other program never runs missed slots, so a job
/// whose only time has passed is not taken over.
fn take_over(ctx: &Context, store: &Store) -> Result<()> {
    let now = ctx.clock.timestamp();
    for job in store.jobs()? {
        let has_passed = matches!(job.schedule, Ok(Schedule::At(time)) if time <= now);
        let runs = timing::effective_schedule(ctx, &job).is_ok() && !has_passed;
        if job.terms.is_none() && runs {
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
    store: &Store,
    which: JobFilter,
) -> Result<CrontabChange> {
    let name = name(settings)?;
    // Read once, under the lock. Programs that change the job file later update the crontab themselves.
    let mut jobs = None;
    let mut first = None;
    let mut block = Ok(Block::default());
    let crontab = Crontab::new(&ctx.env, &ctx.paths);
    let changed = crontab.change(&mut |table| {
        let current_lines = table::block(table, &name).unwrap_or_default();
        block = match jobs.get_or_insert_with(|| store.jobs()) {
            Ok(jobs) => insist_on_file(store, &current_lines)
                .and_then(|()| self::block(ctx, settings, store, jobs, which, &current_lines)),
            // The error is returned below.
            Err(_) => Ok(Block::default()),
        };
        first.get_or_insert(current_lines);
        match (&block, &jobs) {
            (Ok(block), Some(Ok(_))) => table::with_block(table, &name, &block.lines),
            _ => table.to_vec(),
        }
    });
    changed.map_err(Trouble::told)?;
    jobs.transpose()?;
    Ok(compared(&first.unwrap_or_default(), block?))
}

/// Computes the change that [`write_crontab`] would make for all jobs.
fn preview_crontab(ctx: &Context, settings: &Settings, store: &Store) -> Result<CrontabChange> {
    let before = lines(ctx, settings)?;
    insist_on_file(store, &before)?;
    let block = block(
        ctx,
        settings,
        store,
        &store.jobs()?,
        JobFilter::All,
        &before,
    )?;
    Ok(compared(&before, block))
}

/// The lines of this workspace's block.
pub(crate) fn lines(ctx: &Context, settings: &Settings) -> Result<Vec<String>> {
    let crontab = Crontab::new(&ctx.env, &ctx.paths);
    let table = crontab.read().map_err(Trouble::told)?;
    Ok(table::block(&table, &name(settings)?).unwrap_or_default())
}

/// The name of this workspace's block: the real path, so a symbolic link to the workspace gets the same block.
fn name(settings: &Settings) -> Result<String> {
    let path = cron_environment::real(&settings.workspace);
    let name = path.to_str();
    Ok(name
        .context("the workspace's path is not valid UTF-8, which a crontab requires")?
        .to_owned())
}

fn compared(before: &[String], block: Block) -> CrontabChange {
    let Block {
        lines,
        left_out,
        notes,
    } = block;
    let not_in = |lines: &[String], others: &[String]| -> Vec<String> {
        let others: BTreeSet<&String> = others.iter().collect();
        let news = lines.iter().filter(|line| !others.contains(line));
        news.cloned().collect()
    };
    CrontabChange {
        added: not_in(&lines, before),
        removed: not_in(before, &lines),
        has_lines: !lines.is_empty(),
        left_out,
        notes,
    }
}

/// The id of the job that `line` runs.
pub(crate) fn id_of(line: &str) -> Option<&str> {
    let (_, id) = line
        .strip_suffix(" --scheduled")?
        .rsplit_once(" cron run ")?;
    Some(id)
}

/// The five time fields of `line`.
pub(crate) fn fields_of(line: &str) -> &str {
    let fields = line.match_indices(' ').nth(4);
    fields.map_or(line, |(end, _)| &line[..end])
}

fn block(
    ctx: &Context,
    settings: &Settings,
    store: &Store,
    jobs: &[Job],
    which: JobFilter,
    before: &[String],
) -> Result<Block> {
    let known: BTreeSet<&str> = before.iter().filter_map(|line| id_of(line)).collect();
    let mut block = Block::default();
    let line_context = CronLineContext::of(ctx, settings, jobs)?;
    for job in jobs {
        let is_meant = || {
            job.terms.is_some()
                || which == JobFilter::All
                || known.contains(job.id.as_str())
                || store.is_taken_over(&job.id)
        };
        if !job.enabled || !is_meant() {
            continue;
        }
        match lines_of(ctx, &line_context, job) {
            Ok((lines, left_out)) => {
                block.lines.extend(lines);
                if !left_out.is_empty() {
                    let note = format!(
                        "the PATH in the crontab omits, for lack of space: {}",
                        some(&left_out)
                    );
                    if !block.notes.contains(&note) {
                        block.notes.push(note);
                    }
                }
            }
            Err(why) => block.left_out.push((time_format::one_line(&job.name), why)),
        }
    }
    Ok(block)
}

/// The first of `names`, and the number of the others.
fn some(names: &[String]) -> String {
    let (first, rest) = names.split_at(names.len().min(NAMED));
    let more = match rest.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    first.join(", ") + &more
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
    usual: BTreeMap<Option<PathBuf>, Option<PathBuf>>,
}

impl CronLineContext {
    /// Collects the shared parts.
    pub(crate) fn of(ctx: &Context, settings: &Settings, jobs: &[Job]) -> Result<Self> {
        let path = ctx.env.get("PATH").map(str::to_owned);
        let program = process::program(path.as_deref()).context("find this program's own path")?;
        let mut usual = BTreeMap::new();
        for job in jobs {
            let config = config_of(ctx, job);
            let path = config.clone();
            let path = path.unwrap_or_else(|| ctx.paths.usual_config());
            usual
                .entry(config)
                .or_insert_with(|| cron_environment::workspace(ctx, &path));
        }
        Ok(Self {
            home: std::path::absolute(&ctx.paths.home).context("find the home directory")?,
            root: ctx.env.get(env::HOME_DIR).map(|_| ctx.paths.root.clone()),
            path,
            program,
            workspace: settings.workspace.clone(),
            usual,
        })
    }

    /// The `--workspace` that a job with this config file needs; `None` if cron finds it by itself.
    pub(crate) fn workspace_for(&self, config: &Option<PathBuf>) -> Option<&Path> {
        let usual = self.usual.get(config).and_then(Option::as_ref);
        (usual != Some(&cron_environment::real(&self.workspace)))
            .then_some(self.workspace.as_path())
    }
}

/// The config file of `job`, if it is not the default. For a job of another program it is the one given by `--config`.
pub(crate) fn config_of(ctx: &Context, job: &Job) -> Option<PathBuf> {
    match &job.terms {
        Some(terms) => terms.config.clone(),
        None => ctx.config.as_deref().map(permissions::absolute),
    }
}

/// The lines of `job`, and the directories of PATH that do not fit in them.
///
/// # Errors
/// A message that says why the job can have no line.
pub(crate) fn lines_of(
    ctx: &Context,
    line_context: &CronLineContext,
    job: &Job,
) -> Result<(Vec<String>, Vec<String>), String> {
    if !store::is_plain(&job.id) {
        return Err("its id may only contain letters, digits, `_` and `-`".into());
    }
    let (schedule, zone) = timing::effective_schedule(ctx, job)?;
    // The other program never runs missed slots, and taking over its jobs does not change that.
    if let (Schedule::At(time), None) = (schedule, &job.terms)
        && *time <= ctx.clock.timestamp()
    {
        return Err("its time has passed".into());
    }
    let (command, left_out) = command_of(ctx, line_context, job)?;
    let (system, _) = clock::system_zone(&ctx.env);
    let fields = line::fields(schedule, job.catch_up(), job.created, &zone, &system);
    let lines = fields
        .iter()
        .map(|fields| format!("{fields} {command}"))
        .collect();
    Ok((lines, left_out))
}

/// The command in the lines of `job`, and the directories of PATH that do not fit in it.
///
/// # Errors
/// A message that says why the job can have no line.
fn command_of(
    ctx: &Context,
    line_context: &CronLineContext,
    job: &Job,
) -> Result<(String, Vec<String>), String> {
    let CronLineContext {
        home,
        root,
        path,
        program,
        workspace: _,
        usual: _,
    } = line_context;
    let config = config_of(ctx, job);
    let command = command(&Parts {
        home,
        root: root.as_deref(),
        path: path.as_deref(),
        program,
        config: config.as_deref(),
        workspace: line_context.workspace_for(&config),
        id: &job.id,
    })?;
    Ok((command.text, command.left_out))
}

/// The command of the crontab line of `job`, as cron passes it to a shell, but without `--scheduled`, so it runs now.
/// Also returns the environment that cron sets.
///
/// # Errors
/// The job can have no line.
pub(crate) fn as_cron(
    ctx: &Context,
    settings: &Settings,
    job: &Job,
) -> Result<(String, Vec<(String, String)>)> {
    if !store::is_plain(&job.id) {
        return Err(store::unusable(&job.id));
    }
    let line_context = CronLineContext::of(ctx, settings, std::slice::from_ref(job))?;
    let (command, _) = command_of(ctx, &line_context, job).map_err(|words| {
        fail(
            Exit::Config,
            format!("job `{}` cannot have a crontab line: {words}", job.name),
        )
    })?;
    // Undo the escapes that cron removes before it starts the shell.
    let command = command.replace("\\%", "%");
    let command = command.strip_suffix(" --scheduled").unwrap_or(&command);
    let user = ["LOGNAME", "USER"]
        .into_iter()
        .find_map(|name| ctx.env.get(name));
    let env = [
        ("HOME", ctx.paths.home.display().to_string()),
        ("LOGNAME", user.unwrap_or("root").to_owned()),
        ("SHELL", "/bin/sh".to_owned()),
        ("PATH", "/usr/bin:/bin".to_owned()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value));
    Ok((command.to_owned(), env.to_vec()))
}

/// Reports the crontab change after a job was edited. If the change failed, `saved_message` says what is saved nevertheless.
pub(crate) fn report_change(
    ctx: &Context,
    change: Result<CrontabChange>,
    saved_message: &str,
) -> Exit {
    let change = match change {
        Ok(change) => change,
        Err(error) => {
            let exit = report_error(&error, ctx.terminal);
            ctx.terminal.complain(&format!("  {saved_message}"));
            return match exit {
                // An I/O error of the crontab must not look like one of the job.
                Exit::Io => Exit::Failed,
                exit => exit,
            };
        }
    };
    warn(ctx, &change);
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
fn warn(ctx: &Context, change: &CrontabChange) {
    for (name, why) in &change.left_out {
        ctx.notice(&format!("`{name}` is not in the crontab: {why}"));
    }
    for text in &change.notes {
        ctx.notice(text);
    }
    if is_cron_running(ctx) == Some(false) && change.has_lines {
        ctx.notice("no cron daemon is running: nothing starts the jobs until one does");
    }
}
