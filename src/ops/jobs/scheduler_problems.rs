//! Problems that stop all jobs: with the crontab, the program in its lines, the cron daemon, or the directories that a run
//! writes. Each is reported once. Problems with the lines of single jobs are in `crontab_status.rs`.

use super::crontab_sync;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use nanobot_config::settings::{JobStarter, Settings};
use nanobot_cron::command_line::ParsedCommand;
use nanobot_os::durable_file;
use nanobot_sandbox::process::{self, CommandSpec};
use std::collections::BTreeSet;
use std::time::Duration;

/// Timeout of `--version` of the program in the crontab lines.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the program's output that are kept.
const OUTPUT_LIMIT_BYTES: usize = 64 << 10;
/// Free space below which a run may not be able to write its record.
const MIN_FREE_BYTES: u64 = 1 << 20;

/// The subject of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    /// The crontab cannot be read, or does not match the jobs.
    Crontab,
    /// The program in the crontab lines cannot be run.
    Program,
    /// No cron daemon is running.
    Daemon,
    /// A variable of the crontab shifts the times of the lines.
    TimeZone,
    /// A run could not write its files.
    Disk,
}

impl ProblemKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 5] =
        [Self::Crontab, Self::Program, Self::Daemon, Self::TimeZone, Self::Disk];

    /// The name in JSON and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crontab => "crontab",
            Self::Program => "program",
            Self::Daemon => "daemon",
            Self::TimeZone => "time_zone",
            Self::Disk => "disk",
        }
    }
}

/// A problem that concerns all jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchedulerProblem {
    pub(crate) kind: ProblemKind,
    /// The problem and the next step, for the user.
    pub(crate) text: String,
}

impl SchedulerProblem {
    pub(crate) fn new(kind: ProblemKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// The problems that are found only by trying: by starting programs and reading directories. `lines` are the crontab lines of this workspace.
pub(crate) fn find<'a>(
    ctx: &Context,
    settings: &Settings,
    lines: impl IntoIterator<Item = &'a String>,
) -> Vec<SchedulerProblem> {
    let mut problems = Vec::new();
    if settings.job_starter == JobStarter::Crontab {
        problems.extend(programs(lines).iter().filter_map(|path| {
            let error = program_version(path).err()?;
            Some(SchedulerProblem::new(
                ProblemKind::Program,
                format!(
                    "the crontab starts `{path}`, which cannot be run: {error:#}; `nanobot cron sync` writes this program's path"
                ),
            ))
        }));
        if crontab_sync::is_cron_running(ctx) == Some(false) {
            let text = "no cron daemon is running: nothing starts the jobs";
            problems.push(SchedulerProblem::new(ProblemKind::Daemon, text));
        }
    }
    let disk_problems = unwritable_directories(ctx, settings).into_iter().chain(full_disk(ctx));
    problems.extend(disk_problems.map(|text| SchedulerProblem::new(ProblemKind::Disk, text)));
    problems
}

/// The programs that `lines` start.
pub(crate) fn programs<'a>(lines: impl IntoIterator<Item = &'a String>) -> BTreeSet<String> {
    let program = |line: &String| {
        let command = line.get(crontab_sync::time_fields(line).len() + 1..)?;
        ParsedCommand::parse(command)?.argv.into_iter().next()
    };
    lines.into_iter().filter_map(program).collect()
}

/// The version that the program at `path` prints.
pub(crate) fn program_version(path: &str) -> Result<String> {
    let finished = process::run(
        &CommandSpec {
            program: path.into(),
            arguments: vec!["--version".into()],
            directory: "/".into(),
            timeout: VERSION_TIMEOUT,
            capture_bytes: OUTPUT_LIMIT_BYTES,
            env: Vec::new(),
            sandbox: None,
            input: None,
        },
        &mut |_| {},
    )?;
    let output = super::time_format::to_one_line(&String::from_utf8_lossy(&finished.head));
    match finished.status {
        Some(status) if status.success() => Ok(output),
        Some(status) => Err(anyhow::anyhow!("{status}: {output}")),
        None => Err(anyhow::anyhow!("no answer to `--version`")),
    }
}

/// Messages about the directories that a run has to write and cannot.
pub(crate) fn unwritable_directories(ctx: &Context, settings: &Settings) -> Vec<String> {
    let workspace = &settings.workspace;
    let paths = [
        (ctx.paths.root.join("usage.jsonl"), "the usage ledger"),
        (ctx.paths.cron().join("any/runs.jsonl"), "job records"),
        (workspace.join("sessions/any"), "sessions"),
        (workspace.join("cron/jobs.json"), "the job file"),
    ];
    let messages = paths.iter().filter_map(|(path, content)| {
        let directory = path.parent().unwrap_or(path);
        let error = durable_file::check_can_create(directory).err()?;
        Some(format!("cannot write {content}: {error:#}"))
    });
    messages.collect()
}

/// The message about a disk without space for the records of runs.
pub(crate) fn full_disk(ctx: &Context) -> Option<String> {
    let root = &ctx.paths.root;
    match durable_file::free_bytes(root).context("read the free space of the disk") {
        Ok(free_bytes) if free_bytes < MIN_FREE_BYTES => {
            Some(format!("the disk of `{}` is full", ctx.paths.display(root)))
        }
        Ok(_) => None,
        // Before the first run there is no such directory.
        Err(_) if !root.exists() => None,
        Err(error) => Some(format!("{error:#}")),
    }
}
