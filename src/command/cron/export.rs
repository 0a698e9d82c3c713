//! `nanobot cron export`: the jobs for other schedulers, printed or written into a directory.

use crate::cli::cron::{Export, Fleet};
use crate::cron::export::{File, MARK, Planned, Site, crontab, kubernetes, systemd};
use crate::cron::job::Job;
use crate::cron::store::is_plain;
use crate::error::{Exit, fail_hint};
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync::{self, Surroundings};
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

/// Other users' programs read them, and there is no secret in them.
const MODE: u32 = 0o644;

pub(super) fn run(ctx: &Context, arguments: &Export) -> Result<Exit> {
    let Export {
        jobs: wanted,
        format,
        output,
        image,
    } = arguments;
    let settings = ctx.settings()?;
    let jobs = jobs(ctx, &settings, wanted)?;
    let mut failed = false;
    let mut complain = |cause: &str| {
        failed = true;
        ctx.terminal.fail(cause);
    };
    let surroundings = Surroundings::of(ctx, &settings, &jobs)?;
    let (keys, asks_command) = keys(&settings);
    let (system, system_name) = clock::system_zone(&ctx.env);
    let site = Site {
        home: &surroundings.home,
        root: &ctx.paths.root,
        root_is_named: surroundings.root.is_some(),
        path: surroundings.path.as_deref(),
        program: &surroundings.program,
        workspace: &surroundings.workspace,
        keys: &keys,
        asks_command,
        system: &system,
        system_name: system_name.as_deref(),
        now: ctx.clock.timestamp(),
    };
    let (mut made, mut lines, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for job in &jobs {
        let exported = planned(ctx, &surroundings, job, |planned| {
            match format {
                Fleet::Systemd => made.extend(systemd::files(&site, planned)?),
                Fleet::Kubernetes => made.push(kubernetes::file(&site, planned, image)?),
                Fleet::Crontab => {
                    let (more, lacks) = crontab_sync::lines_of(ctx, &surroundings, job)?;
                    lines.extend(more);
                    left_out = lacks;
                }
            }
            Ok(())
        });
        if let Err(why) = exported {
            let name = quoted(&job.name);
            complain(&format!("the job {name} cannot be exported: {why}"));
        }
    }
    match format {
        Fleet::Kubernetes if !made.is_empty() => made.insert(0, kubernetes::shared(&site)),
        Fleet::Crontab if !lines.is_empty() => match crontab::file(&surroundings.workspace, &lines)
        {
            Ok(file) => made.push(file),
            Err(why) => complain(&why),
        },
        _ => {}
    }
    if !left_out.is_empty() {
        ctx.notice(&format!(
            "the PATH of cron's runs lacks {}",
            left_out.join(", ")
        ));
    }
    match output {
        None => ctx.terminal.print(&together(*format, &made))?,
        Some(directory) => {
            let written = write(directory, &made, &mut complain)?;
            let mut text: String = written
                .iter()
                .map(|path| format!("wrote {}\n", quoted(&path.display().to_string())))
                .collect();
            text.extend(next(*format, directory, &written).map(|next| format!("then: {next}\n")));
            ctx.terminal.print(&text)?;
            if wanted.is_empty() {
                left_over(ctx, *format, directory, &made)?;
            }
        }
    }
    Ok(if failed { Exit::Failed } else { Exit::Answered })
}

/// The jobs that `words` name; all that are enabled where there are none.
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
                "{} is disabled: its runs do nothing until `nanobot cron enable {}`",
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
            "there is no job that is enabled",
            "nanobot cron add",
        ));
    }
    Ok(jobs)
}

/// The variables of the keys that runs may need, and whether a command gives one.
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

/// Do `work` with a job that has times.
///
/// # Errors
/// In words, why it has none, or why the work cannot be done.
fn planned(
    ctx: &Context,
    surroundings: &Surroundings,
    job: &Job,
    work: impl FnOnce(&Planned) -> Result<(), String>,
) -> Result<(), String> {
    if !is_plain(&job.id) {
        return Err("its id is no word of letters, digits, `_` and `-`".into());
    }
    let (schedule, zone) = timing::effective_schedule(ctx, job)?;
    let config = crontab_sync::config_of(ctx, job);
    work(&Planned {
        job,
        schedule,
        zone: &zone,
        config: config.as_deref(),
        workspace: surroundings.workspace_for(&config),
    })
}

/// All files as one text.
fn together(format: Fleet, made: &[File]) -> String {
    match format {
        Fleet::Crontab => made.iter().map(|file| file.text.as_str()).collect(),
        Fleet::Kubernetes | Fleet::Systemd => {
            let between = if format == Fleet::Kubernetes {
                "---\n"
            } else {
                ""
            };
            let texts = made.iter().map(|file| {
                let File { name, text } = file;
                format!("{between}# {name}\n{text}")
            });
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

/// Write the files into `directory`, but over no file of others. Those that were written.
fn write(directory: &Path, made: &[File], complain: &mut dyn FnMut(&str)) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("make the directory `{}`", directory.display()))?;
    let mut written = Vec::new();
    for File { name, text } in made {
        let path = directory.join(name);
        let is_foreign = files::read(&path)?.is_some_and(|bytes| !is_ours(&bytes));
        if is_foreign {
            complain(&format!(
                "`{}` is left as it is: it was not made by `nanobot cron export`",
                path.display()
            ));
            continue;
        }
        files::replace(&path, text.as_bytes())?;
        std::fs::set_permissions(&path, Permissions::from_mode(MODE))
            .with_context(|| format!("let others read `{}`", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

fn is_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK.as_bytes())
}

/// What makes the files count.
fn next(format: Fleet, directory: &Path, written: &[PathBuf]) -> Option<String> {
    let shown = |path: &Path| quoted(&path.display().to_string());
    let first = written.first()?;
    Some(match format {
        Fleet::Systemd => {
            let names = written.iter().filter_map(|path| path.file_name()?.to_str());
            let timers: Vec<&str> = names.filter(|name| name.ends_with(".timer")).collect();
            format!(
                "systemctl --user daemon-reload && systemctl --user enable --now {}",
                timers.join(" ")
            )
        }
        Fleet::Kubernetes => format!("kubectl apply -f {}", shown(directory)),
        Fleet::Crontab => format!(
            "crontab {}, where that user's table has nothing else",
            shown(first)
        ),
    })
}

/// Tell of files that were made here for jobs which are no more.
fn left_over(ctx: &Context, format: Fleet, directory: &Path, made: &[File]) -> Result<()> {
    let endings: &[&str] = match format {
        Fleet::Systemd => &[".service", ".timer"],
        Fleet::Kubernetes => &[".yaml"],
        Fleet::Crontab => return Ok(()),
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
    if !names.is_empty() {
        ctx.notice(&format!(
            "no job of now is in {}: remove them where they are enabled too",
            names.join(", ")
        ));
    }
    Ok(())
}
