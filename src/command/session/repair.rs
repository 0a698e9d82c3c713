//! `session repair`: reports problems in session files, and repairs them.

use super::keys::single_line;
use super::list::tell;
use crate::error::Exit;
use crate::ops::context::Context;
use crate::report::Bar;
use crate::session::{self, Finding, Place};
use crate::sys::signal;
use crate::sys::terminal::Page;
use anyhow::{Context as _, Result};
use std::path::PathBuf;

/// Checks `keys`, or every file, and repairs what it can, unless it is a dry run.
pub(super) fn run(
    ctx: &Context,
    place: &Place,
    keys: &[String],
    is_dry_run_or_replay: bool,
) -> Result<Exit> {
    let named = keys.iter().map(|key| -> Result<(String, PathBuf)> {
        Ok((key.clone(), session::look(place, key)?.path))
    });
    let files = match keys.is_empty() {
        true => session::every(place)?,
        false => named.collect::<Result<Vec<_>>>()?,
    };
    let mut page = Page::on(ctx.terminal);
    let mut failures = Vec::new();
    let mut odd = 0;
    signal::arm(None).context("wait for signals")?;
    let bar = Bar::new(ctx.terminal, ctx.quiet, files.len());
    for (key, path) in &files {
        signal::check()?;
        bar.at(key);
        match session::repair(place, key, path, !is_dry_run_or_replay) {
            Ok(findings) => {
                odd += usize::from(!findings.is_empty());
                for finding in findings {
                    let line = line(&finding, is_dry_run_or_replay);
                    page.put(&format!("{}: ", single_line(key)))?;
                    page.put(&format!("{line}\n"))?;
                }
            }
            Err(error) if keys.len() == 1 => return Err(error),
            Err(error) => failures.push(error),
        }
        bar.add(1);
    }
    drop(bar);
    page.end()?;
    let (all, left) = (files.len(), failures.len());
    let fine = all - odd - left;
    ctx.notice(&format!("sessions checked: {}, ok: {fine}", all - left));
    Ok(tell(ctx, &failures))
}

fn line(finding: &Finding, is_dry_run_or_replay: bool) -> String {
    let Finding { what, cure } = finding;
    match cure {
        None => what.clone(),
        Some(cure) if is_dry_run_or_replay => format!("{what}; would be {cure}"),
        Some(cure) => format!("{what}; {cure}"),
    }
}
