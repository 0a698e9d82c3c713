//! Exports jobs as files for other schedulers.

use crate::cron::export::{File, MARK, Planned, Site, crontab, kubernetes, systemd};
use crate::cron::job::Job;
use crate::cron::store::is_plain;
use crate::error::{Exit, fail_hint};
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync::{self, CronLineContext};
use crate::ops::jobs::job_store;
use crate::ops::jobs::timing;
use crate::provider::registry::entry;
use crate::settings::Settings;
use crate::shell_quote::quoted;
use crate::sys::{clock, store as files};
use anyhow::{Context as _, Result};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Mode of the files: other users' programs read them, and they contain no secret.
const MODE: u32 = 0o644;

/// The scheduler that the files are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    Systemd,
    Kubernetes,
    Crontab,
}

/// The files of some jobs.
pub(crate) struct ExportedJobs {
    pub(crate) files: Vec<File>,
    /// True if a job could not be exported, which was reported.
    pub(crate) has_failed: bool,
}

/// Makes the files for the jobs that `names` name, or for all enabled jobs if `names` is empty. `image` is the
/// container image for Kubernetes.
pub(crate) fn export(
    ctx: &Context,
    words: &[String],
    format: ExportFormat,
    image: &str,
) -> Result<ExportedJobs> {
    let settings = ctx.settings()?;
    let jobs = jobs(ctx, &settings, words)?;
    let mut has_failed = false;
    let mut fail = |cause: &str| {
        has_failed = true;
        ctx.terminal.fail(cause);
    };
    let line_context = CronLineContext::of(ctx, &settings, &jobs)?;
    let (keys, asks_command) = keys(&settings);
    let (system, system_name) = clock::system_zone(&ctx.env);
    let site = Site {
        home: &line_context.home,
        root: &ctx.paths.root,
        root_is_named: line_context.root.is_some(),
        path: line_context.path.as_deref(),
        program: &line_context.program,
        workspace: &line_context.workspace,
        keys: &keys,
        asks_command,
        system: &system,
        system_name: system_name.as_deref(),
        now: ctx.clock.timestamp(),
    };
    let (mut output_files, mut lines, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for job in &jobs {
        let exported = planned(ctx, &line_context, job, |planned| {
            match format {
                ExportFormat::Systemd => output_files.extend(systemd::files(&site, planned)?),
                ExportFormat::Kubernetes => {
                    output_files.push(kubernetes::file(&site, planned, image)?)
                }
                ExportFormat::Crontab => {
                    let (more, missing) = crontab_sync::lines_of(ctx, &line_context, job)?;
                    lines.extend(more);
                    left_out = missing;
                }
            }
            Ok(())
        });
        if let Err(why) = exported {
            let name = quoted(&job.name);
            fail(&format!("job {name} cannot be exported: {why}"));
        }
    }
    match format {
        ExportFormat::Kubernetes if !output_files.is_empty() => {
            output_files.insert(0, kubernetes::shared(&site))
        }
        ExportFormat::Crontab if !lines.is_empty() => {
            match crontab::file(&line_context.workspace, &lines) {
                Ok(file) => output_files.push(file),
                Err(why) => fail(&why),
            }
        }
        _ => {}
    }
    if !left_out.is_empty() {
        ctx.notice(&format!(
            "the PATH in the crontab omits, for lack of space: {}",
            left_out.join(", ")
        ));
    }
    Ok(ExportedJobs {
        files: output_files,
        has_failed,
    })
}

/// The jobs that `names` name, or all enabled jobs if `names` is empty.
fn jobs(ctx: &Context, settings: &Settings, words: &[String]) -> Result<Vec<Job>> {
    let store = job_store::open(ctx, settings);
    let mut jobs: Vec<Job> = Vec::new();
    if words.is_empty() {
        jobs.extend(store.jobs()?.into_iter().filter(|job| job.enabled));
    }
    for word in words {
        let job = job_store::find(&store, word)?;
        if !job.enabled {
            ctx.notice(&format!(
                "job {} is disabled: it does not run until `nanobot cron enable {}`",
                quoted(&job.name),
                quoted(&job.id)
            ));
        }
        if jobs.iter().all(|known| known.id != job.id) {
            jobs.push(job);
        }
    }
    if jobs.is_empty() {
        return Err(fail_hint(
            Exit::NoInput,
            "no enabled jobs",
            "nanobot cron add",
        ));
    }
    Ok(jobs)
}

/// The variables of the keys that runs may need, and true if a command provides a key.
fn keys(settings: &Settings) -> (Vec<&'static str>, bool) {
    let blocks = settings.providers.iter();
    let used = blocks.filter(|(_, block)| {
        block.api_key.is_some() || block.api_key_file.is_some() || block.api_base.is_some()
    });
    let asked = settings.asked.iter().map(|asked| asked.provider.as_str());
    let names = used.map(|(name, _)| name.as_str()).chain(asked);
    let mut keys: Vec<&'static str> = names
        .filter_map(|name| entry(name)?.key_variables.first().copied())
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let mut blocks = settings.providers.values();
    (keys, blocks.any(|block| block.api_key_command.is_some()))
}

/// Calls `action` with the schedule and command of a job.
///
/// # Errors
/// A message that says why the job has no schedule, or why `action` failed.
fn planned(
    ctx: &Context,
    line_context: &CronLineContext,
    job: &Job,
    work: impl FnOnce(&Planned) -> Result<(), String>,
) -> Result<(), String> {
    if !is_plain(&job.id) {
        return Err("its id may only contain letters, digits, `_` and `-`".into());
    }
    let (schedule, zone) = timing::effective_schedule(ctx, job)?;
    let config = crontab_sync::config_of(ctx, job);
    work(&Planned {
        job,
        schedule,
        zone: &zone,
        config: config.as_deref(),
        workspace: line_context.workspace_for(&config),
    })
}

/// Writes the files into `directory`, but never overwrites files of others. Returns the written paths.
pub(crate) fn write(
    ctx: &Context,
    directory: &Path,
    exported: &mut ExportedJobs,
) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("create the directory `{}`", directory.display()))?;
    let mut written = Vec::new();
    for File { name, text } in &exported.files {
        let path = directory.join(name);
        let is_foreign = files::read(&path)?.is_some_and(|bytes| !is_ours(&bytes));
        if is_foreign {
            exported.has_failed = true;
            ctx.terminal.fail(&format!(
                "not overwriting `{}`: it was not created by `nanobot cron export`",
                path.display()
            ));
            continue;
        }
        files::replace(&path, text.as_bytes())?;
        std::fs::set_permissions(&path, Permissions::from_mode(MODE))
            .with_context(|| format!("set the permissions of `{}`", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

/// The names of files in `directory` that an earlier export left and that are not in `exported`.
pub(crate) fn left_over(
    format: ExportFormat,
    directory: &Path,
    made: &[File],
) -> Result<Vec<String>> {
    let endings: &[&str] = match format {
        ExportFormat::Systemd => &[".service", ".timer"],
        ExportFormat::Kubernetes => &[".yaml"],
        ExportFormat::Crontab => return Ok(Vec::new()),
    };
    let what = || format!("read the directory `{}`", directory.display());
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(what)? {
        let name = entry.with_context(what)?.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with("nanobot-")) else {
            continue;
        };
        let is_meant = endings.iter().any(|ending| name.ends_with(ending));
        if is_meant && made.iter().all(|file| file.name != name) {
            let path = directory.join(name);
            let is_file = std::fs::metadata(&path).is_ok_and(|about| about.is_file());
            if is_file && files::read(&path)?.is_some_and(|bytes| is_ours(&bytes)) {
                names.push(name.to_owned());
            }
        }
    }
    names.sort();
    Ok(names)
}

fn is_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK.as_bytes())
}
