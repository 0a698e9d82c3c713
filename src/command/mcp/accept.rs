//! `mcp accept`: shows the tools of a server that have changed or were never accepted, and accepts them if the user
//! confirms.

use super::show;
use crate::diff::Diff;
use crate::error::{Exit, fail, fail_hint};
use crate::mcp::offer::Offered;
use crate::mcp::pin::{self, Change};
use crate::mcp::words;
use crate::ops::mcp_servers::McpContext;
use crate::sys::invisible::strip;
use crate::sys::terminal::{Page, Terminal};
use anyhow::Result;
use console::Style;

/// Context lines around a difference.
const AROUND: u32 = 3;
/// Context lines if the rest of the tool was never accepted either: all of it is shown.
const ALL: u32 = 1 << 24;

/// Runs `mcp accept`.
pub(super) fn run(
    desk: &McpContext<'_>,
    server: &str,
    tools: &[String],
    yes: bool,
) -> Result<Exit> {
    let server = desk.server(server)?;
    let look = desk.reach(server)?;
    desk.roster.end();
    let offer = &*look.offer;
    let wanted: Vec<&Offered> = match tools.is_empty() {
        true => offer.tools.iter().collect(),
        false => tools
            .iter()
            .map(|tool| show::find(server, offer, tool))
            .collect::<Result<_>>()?,
    };
    let is_new = |tool: &&Offered| {
        let is_changed = look.changed.iter().any(|change| change.tool == tool.name);
        look.unaccepted.contains(&tool.name) && !is_changed
    };
    let news = offer.tools.iter().filter(is_new).map(|tool| Change {
        tool: tool.name.clone(),
        old: None,
        new: tool.clone(),
    });
    let changes = look.changed.iter().cloned().chain(news);
    let changed: Vec<Change> = changes
        .filter(|change| wanted.iter().any(|tool| tool.name == change.tool))
        .collect();
    if changed.is_empty() {
        desk.ctx.notice("nothing has changed");
        return Ok(Exit::Answered);
    }
    for change in &changed {
        let around = match look.unaccepted.contains(&change.tool) {
            true => ALL,
            false => AROUND,
        };
        show_change(desk, change, around)?;
    }
    let count = match changed.len() {
        1 => "1 tool".to_owned(),
        count => format!("{count} tools"),
    };
    if !yes && !Terminal::is_attended() {
        let cause = format!(
            "{count} of `{}` changed or new, and nothing was accepted",
            server.name
        );
        let hint = format!("nanobot mcp accept {} --yes", server.name);
        return Err(fail_hint(Exit::Refused, cause, hint));
    }
    if !yes {
        let question = format!("Accept {count} of `{}` as shown? [y/N] ", server.name);
        let answer = desk.ctx.terminal.ask(&question)?.unwrap_or_default();
        if !["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            let cause = format!("{count} of `{}` not accepted", server.name);
            return Err(fail(Exit::Refused, cause));
        }
    }
    let names: Vec<String> = changed.iter().map(|change| change.tool.clone()).collect();
    desk.roster.accept(&server.name, Some(&names))?;
    desk.ctx
        .notice(&format!("{count} of `{}` accepted", server.name));
    Ok(Exit::Answered)
}

fn show_change(desk: &McpContext<'_>, change: &Change, around: u32) -> Result<()> {
    let old = change.old.as_ref().map(pin::text).unwrap_or_default();
    let new = pin::text(&change.new);
    let mut page = Page::on(desk.ctx.terminal);
    page.paint(&words::line(&change.tool, 200), &Style::new().bold())?;
    page.put("\n")?;
    for line in Diff::between(&old, &new).unified(around).lines() {
        let style = match line.as_bytes().first() {
            Some(b'+') => Style::new().green(),
            Some(b'-') => Style::new().red(),
            _ => Style::new(),
        };
        page.paint(&marked(line), &style)?;
        page.put("\n")?;
    }
    page.end()
}

/// Replaces invisible characters in `line` by their numbers, since they may be the only change.
fn marked(line: &str) -> String {
    let one = |letter: char| {
        let text = letter.to_string();
        let is_seen = letter == '\t' || (!letter.is_control() && strip(&text).1 == 0);
        match is_seen {
            true => text,
            false => letter.escape_unicode().to_string(),
        }
    };
    line.chars().map(one).collect()
}
