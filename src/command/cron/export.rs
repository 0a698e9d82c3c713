//! `nanobot cron export`: prints the jobs in the format of another scheduler, or writes them to a directory.

use crate::cli::cron::CronExportArgs;
use crate::ops::context::Context;
use crate::ops::jobs::export::{self, ExportedJobs};
use crate::options::job::ExportFormat;
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_base::shell_quote::quote;
use nanobot_cron::export::ExportFile;
use nanobot_cron::export::channel_poll::UNIT_FILE;
use std::path::{Path, PathBuf};

/// Runs `cron export`.
pub(super) fn run(ctx: &Context, arguments: &CronExportArgs) -> Result<Exit> {
    let CronExportArgs { jobs, format, output, image } = arguments;
    let mut exported = export::export(ctx, jobs, *format, image)?;
    print_or_write(ctx, *format, output.as_deref(), &mut exported)?;
    if let Some(directory) = output.as_deref().filter(|_| jobs.is_empty()) {
        let names = export::leftover_files(*format, directory, &exported.files)?;
        if !names.is_empty() {
            ctx.notice(&format!(
                "files of jobs that no longer exist: {}; disable and remove them",
                names.join(", ")
            ));
        }
    }
    Ok(if exported.has_failed { Exit::Failed } else { Exit::Answered })
}

/// Prints the files, or writes them to `output`, with the command that activates them.
pub(crate) fn print_or_write(
    ctx: &Context,
    format: ExportFormat,
    output: Option<&Path>,
    exported: &mut ExportedJobs,
) -> Result<()> {
    match output {
        None => ctx.terminal.print(&join_files(format, &exported.files))?,
        Some(directory) => {
            let written = export::write_files(ctx, directory, exported)?;
            let lines = written.iter().map(|path| format!("wrote {}\n", quote_path(path)));
            let mut text: String = lines.collect();
            if let Some(command) = activation_command(format, directory, &written) {
                text.push_str(&format!("then: {command}\n"));
            }
            ctx.terminal.print(&text)?;
        }
    }
    Ok(())
}

/// Joins all files into one text.
fn join_files(format: ExportFormat, files: &[ExportFile]) -> String {
    let separator = match format {
        ExportFormat::Crontab => return files.iter().map(|file| file.text.as_str()).collect(),
        ExportFormat::Kubernetes => "---\n",
        ExportFormat::Systemd => "",
    };
    let texts =
        files.iter().map(|ExportFile { name, text }| format!("{separator}# {name}\n{text}"));
    texts.collect::<Vec<_>>().join("\n")
}

/// The commands that activate the exported files.
fn activation_command(
    format: ExportFormat,
    directory: &Path,
    written: &[PathBuf],
) -> Option<String> {
    let first = written.first()?;
    Some(match format {
        ExportFormat::Systemd => {
            let names = written.iter().filter_map(|path| path.file_name()?.to_str());
            let (timers, services): (Vec<&str>, Vec<&str>) =
                names.partition(|name| name.ends_with(".timer"));
            // The service of a job is started by its timer, or by the job that it runs after.
            let units = match timers.as_slice() {
                [] => services.into_iter().filter(|name| *name == UNIT_FILE).collect(),
                _ => timers,
            };
            let reload = "systemctl --user daemon-reload";
            match units.as_slice() {
                [] => reload.to_owned(),
                units => format!("{reload} && systemctl --user enable --now {}", units.join(" ")),
            }
        }
        ExportFormat::Kubernetes => format!("kubectl apply -f {}", quote_path(directory)),
        ExportFormat::Crontab => {
            format!("crontab {}, if that user's crontab has nothing else", quote_path(first))
        }
    })
}

fn quote_path(path: &Path) -> String {
    quote(&path.display().to_string())
}
