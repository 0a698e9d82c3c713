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
    place: &SessionStore,
    keys: &[String],
    is_dry_run: bool,
    as_json: bool,
) -> Result<Exit> {
    let named = keys.iter().map(|key| -> Result<(String, PathBuf)> {
        Ok((key.clone(), session::summarize(place, key)?.path))
    });
    let files = if keys.is_empty() {
        session::list_files(place)?
    } else {
        named.collect::<Result<Vec<_>>>()?
    };
    let mut page = StdoutWriter::new(ctx.terminal);
    let mut failures = Vec::new();
    let mut odd = 0;
    signal::install(None).context("wait for signals")?;
    let bar = Bar::new(ctx.terminal, ctx.quiet, files.len());
    for (key, path) in &files {
        signal::check()?;
        bar.set_item(key);
        match session::repair(place, key, path, !is_dry_run) {
            Ok(findings) => {
                odd += usize::from(!findings.is_empty());
                for finding in findings {
                    if as_json {
                        let object = json!({ "session": key, "problem": finding.problem, "repair": finding.repair });
                        page.write(&format!("{object}\n"))?;
                        continue;
                    }
                    let line = describe_finding(&finding, is_dry_run);
                    page.write(&format!("{}: ", single_line(key)))?;
                    page.write(&format!("{line}\n"))?;
                }
            }
            Err(error) if keys.len() == 1 => return Err(error),
            Err(error) => failures.push(error),
        }
        bar.advance(1);
    }
    drop(bar);
    page.finish()?;
    let (all, left) = (files.len(), failures.len());
    let fine = all - odd - left;
    ctx.notice(&format!("sessions checked: {}, ok: {fine}", all - left));
    Ok(report_failures(ctx, &failures))
}

fn describe_finding(finding: &RepairFinding, is_dry_run: bool) -> String {
    let RepairFinding { problem: what, repair: cure } = finding;
    match cure {
        None => what.clone(),
        Some(cure) if is_dry_run => format!("{what}; would be {cure}"),
        Some(cure) => format!("{what}; {cure}"),
    }
}
