//! `session repair`: reports problems in session files, and repairs them.

use super::list::report_failures;
use crate::command::name_pattern::single_line;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use nanobot_agent::report::Bar;
use nanobot_base::error::Exit;
use nanobot_os::signal;
use nanobot_os::terminal::StdoutWriter;
use nanobot_store::session::{self, RepairFinding, SessionStore};
use serde_json::json;
use std::path::PathBuf;

/// Checks `keys`, or every file, and repairs what it can, unless it is a dry run.
pub(super) fn run(
    ctx: &Context,
    store: &SessionStore,
    keys: &[String],
    is_dry_run: bool,
    as_json: bool,
) -> Result<Exit> {
    let files: Vec<(String, PathBuf)> = if keys.is_empty() {
        session::list_files(store)?
    } else {
        let path = |key: &String| Ok((key.clone(), session::summarize(store, key)?.path));
        keys.iter().map(path).collect::<Result<_>>()?
    };
    let mut writer = StdoutWriter::new(ctx.terminal);
    let mut failures = Vec::new();
    let mut defective = 0;
    signal::install(None).context("wait for signals")?;
    let bar = Bar::new(ctx.terminal, ctx.quiet, files.len());
    for (key, path) in &files {
        signal::check()?;
        bar.set_item(key);
        match session::repair(store, key, path, !is_dry_run) {
            Ok(findings) => {
                defective += usize::from(!findings.is_empty());
                for finding in findings {
                    if as_json {
                        let object = json!({ "session": key, "problem": finding.problem, "repair": finding.repair });
                        writer.write_json(&object)?;
                    } else {
                        let description = describe_finding(&finding, is_dry_run);
                        writer.write(&format!("{}: {description}\n", single_line(key)))?;
                    }
                }
            }
            Err(error) if keys.len() == 1 => return Err(error),
            Err(error) => failures.push(error),
        }
        bar.advance(1);
    }
    drop(bar);
    writer.finish()?;
    let checked = files.len() - failures.len();
    ctx.notice(&format!("sessions checked: {checked}, ok: {}", checked - defective));
    Ok(report_failures(ctx, &failures))
}

fn describe_finding(finding: &RepairFinding, is_dry_run: bool) -> String {
    let RepairFinding { problem, repair, is_file_mode: _ } = finding;
    match repair {
        None => problem.clone(),
        Some(repair) if is_dry_run => format!("{problem}; would be {repair}"),
        Some(repair) => format!("{problem}; {repair}"),
    }
}
