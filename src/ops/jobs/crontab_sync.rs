//! The jobs in the crontab: `cron sync`, and what every other command does when it has changed a job.
//!
//! The block is made from the job file each time, while the crontab is locked: whoever comes last has seen what all others
//! wrote, so that no order of commands leaves another block than the file says.

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
use crate::sys::{clock, env, process};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How many directories are named that a line has no room for.
const NAMED: usize = 3;

/// Which jobs stand in the crontab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobFilter {
    /// Ours, and those of the other program that were taken over, or stand there already.
    Known,
    /// All.
    All,
}

/// What became of the crontab.
#[derive(Clone, Debug, Default)]
pub(crate) struct CrontabChange {
    /// The lines that came, and those that went.
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    /// Whether there is any.
    pub(crate) has_lines: bool,
    /// Jobs that cannot stand there: the name, and why.
    pub(crate) left_out: Vec<(String, String)>,
    /// What else there is to say.
    pub(crate) notes: Vec<String>,
}

impl CrontabChange {
    /// Whether lines were written anew for the sake of another PATH alone.
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

    /// What to say where others than the job `id` have another PATH in their lines now. Whatever else has changed is the work
    /// of whoever changes them at the same time, or of a look that found them wrong.
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
        let words =
            format!("{jobs} will run with this shell's PATH too, as the crontab has it now");
        others.is_path_only().then_some(words)
    }
}

/// What `line` starts and when, but for the PATH: that is of the shell in which it was written.
pub(crate) fn without_path_variable(line: &str) -> Option<(&str, Started)> {
    let fields = fields_of(line);
    let mut started = Started::of(line.get(fields.len() + 1..)?)?;
    started.variables.retain(|(name, _)| name != "PATH");
    Some((fields, started))
}

/// The jobs that have a line and a folder, while the file that names them is gone.
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

/// What to say of jobs whose file is gone.
pub(crate) fn missing_file_message(orphans: &[String]) -> String {
    let jobs = match orphans {
        [id] => format!("1 job of it is known by its folder and its line: {id}"),
        ids => format!(
            "{} jobs of it are known by their folders and lines: {}",
            ids.len(),
            some(ids)
        ),
    };
    format!("the job file is gone; {jobs}")
}

/// Nothing becomes of jobs whose file is gone: it may come back.
///
/// # Errors
/// Status 78 where there are such jobs.
pub(crate) fn insist_on_file(store: &Store, lines: &[String]) -> Result<()> {
    let orphans = orphans(store, lines);
    match orphans.is_empty() {
        true => Ok(()),
        false => Err(fail_hint(
            Exit::Config,
            missing_file_message(&orphans),
            format!(
                "put `{}` back; or `nanobot cron remove ID …`, which lets them go",
                store.file().display()
            ),
        )),
    }
}

/// The block of a workspace, as it is to be.
#[derive(Clone, Debug, Default)]
struct Block {
    lines: Vec<String>,
    left_out: Vec<(String, String)>,
    notes: Vec<String>,
}

/// Brings the crontab up to date with all jobs, those of the other program included; with `dry_run`, says only what would change.
pub(crate) fn sync(ctx: &Context, dry_run: bool) -> Result<CrontabChange> {
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    let change = match dry_run {
        true => preview_crontab(ctx, &settings, &store)?,
        false => {
            // First: where there is no crontab, `cron run --due` goes by this.
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

/// Let all jobs of the other program be run from here too. It never runs a time that was missed, so that neither do we.
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

/// Make the block of this workspace as its jobs are.
///
/// # Errors
/// There is no crontab, or it cannot be changed; the jobs are what they are all the same.
pub(crate) fn write_crontab(
    ctx: &Context,
    settings: &Settings,
    store: &Store,
    which: JobFilter,
) -> Result<CrontabChange> {
    let name = name(settings)?;
    // Read once, under the lock: what others write to the file meanwhile they bring into the crontab themselves.
    let mut jobs = None;
    let mut first = None;
    let mut block = Ok(Block::default());
    let crontab = Crontab::new(&ctx.env, &ctx.paths);
    let changed = crontab.change(&mut |table| {
        let there = table::block(table, &name).unwrap_or_default();
        block = match jobs.get_or_insert_with(|| store.jobs()) {
            Ok(jobs) => insist_on_file(store, &there)
                .and_then(|()| self::block(ctx, settings, store, jobs, which, &there)),
            // It is told below.
            Err(_) => Ok(Block::default()),
        };
        first.get_or_insert(there);
        match (&block, &jobs) {
            (Ok(block), Some(Ok(_))) => table::with_block(table, &name, &block.lines),
            _ => table.to_vec(),
        }
    });
    changed.map_err(Trouble::told)?;
    jobs.transpose()?;
    Ok(compared(&first.unwrap_or_default(), block?))
}

/// What [`write_crontab`] would do with all jobs.
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

/// What the block of this workspace is called: a link to it leads to the same block.
fn name(settings: &Settings) -> Result<String> {
    let path = cron_environment::real(&settings.workspace);
    let name = path.to_str();
    Ok(name
        .context("the workspace's path is no text, which a crontab cannot name")?
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

/// The id of the job that `line` stands for.
pub(crate) fn id_of(line: &str) -> Option<&str> {
    let (_, id) = line
        .strip_suffix(" --scheduled")?
        .rsplit_once(" cron run ")?;
    Some(id)
}

/// The five fields of `line`.
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
                    let note = format!("the PATH of cron's runs lacks {}", some(&left_out));
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

/// The first of `names`.
fn some(names: &[String]) -> String {
    let (first, rest) = names.split_at(names.len().min(NAMED));
    let more = match rest.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    first.join(", ") + &more
}

/// What all lines of a block share.
pub(crate) struct CronLineContext {
    pub(crate) home: PathBuf,
    pub(crate) root: Option<PathBuf>,
    pub(crate) path: Option<String>,
    pub(crate) program: PathBuf,
    pub(crate) workspace: PathBuf,
    /// The workspaces that cron finds without being told, by the config.
    usual: BTreeMap<Option<PathBuf>, Option<PathBuf>>,
}

impl CronLineContext {
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

    /// The workspace that a job has to be told, where its config is this one.
    pub(crate) fn workspace_for(&self, config: &Option<PathBuf>) -> Option<&Path> {
        let usual = self.usual.get(config).and_then(Option::as_ref);
        (usual != Some(&cron_environment::real(&self.workspace)))
            .then_some(self.workspace.as_path())
    }
}

/// The config file of `job`, where it is not the usual one. Of another program's job that is what was typed.
pub(crate) fn config_of(ctx: &Context, job: &Job) -> Option<PathBuf> {
    match &job.terms {
        Some(terms) => terms.config.clone(),
        None => ctx.config.as_deref().map(permissions::absolute),
    }
}

/// The lines of `job`, and the directories of the PATH that have no room in them.
///
/// # Errors
/// In words, why it can have none.
pub(crate) fn lines_of(
    ctx: &Context,
    line_context: &CronLineContext,
    job: &Job,
) -> Result<(Vec<String>, Vec<String>), String> {
    if !store::is_plain(&job.id) {
        return Err("its id is no word of letters, digits, `_` and `-`".into());
    }
    let (schedule, zone) = timing::effective_schedule(ctx, job)?;
    // The other program never runs a time that was missed; taking its jobs over is no reason to.
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

/// What the lines of `job` start, and the directories of the PATH that have no room in them.
///
/// # Errors
/// In words, why it can have none.
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

/// What the crontab's line of `job` starts, told a shell, but now and whether it is due or not; and the environment that cron
/// gives it.
///
/// # Errors
/// It can have no line.
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
            format!("`{}` can have no line: {words}", job.name),
        )
    })?;
    // What cron would take away before a shell sees it.
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

/// Say what became of the crontab after a job was changed; `kept` says what holds all the same.
pub(crate) fn report_change(ctx: &Context, change: Result<CrontabChange>, kept: &str) -> Exit {
    let change = match change {
        Ok(change) => change,
        Err(error) => {
            let exit = report_error(&error, ctx.terminal);
            ctx.terminal.complain(&format!("  {kept}"));
            return match exit {
                // It is no word about the job.
                Exit::Io => Exit::Failed,
                exit => exit,
            };
        }
    };
    warn(ctx, &change);
    Exit::Answered
}

/// Whether a cron runs here; `None` where that cannot be known.
pub(crate) fn is_cron_running(ctx: &Context) -> Option<bool> {
    match ctx.env.get(env::TEST_DAEMON) {
        None => crontab::is_cron_running(),
        Some("unknown") => None,
        Some(word) => Some(word == "yes"),
    }
}

/// Say which jobs are not in the crontab, and whatever else keeps them from running.
fn warn(ctx: &Context, change: &CrontabChange) {
    for (name, why) in &change.left_out {
        ctx.notice(&format!("`{name}` is not in the crontab: {why}"));
    }
    for text in &change.notes {
        ctx.notice(text);
    }
    if is_cron_running(ctx) == Some(false) && change.has_lines {
        ctx.notice("no cron runs on this machine: until one does, nothing starts the jobs");
    }
}
