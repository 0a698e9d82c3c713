//! `mcp accept`: shows the tools of a server, and its instructions, that have changed or were never accepted, or what a prompt of it
//! says, and accepts them after confirmation.

use crate::command::question::ask_yes;
use crate::ops::mcp_servers::{McpContext, find_tool};
use crate::ops::server_prompts::{self, ServerPrompt};
use anyhow::Result;
use console::Style;
use nanobot_base::diff::Diff;
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_base::shell_quote::quote;
use nanobot_mcp::pin::{self, ToolChange};
use nanobot_mcp::protocol::ToolInfo;
use nanobot_mcp::sanitize;
use nanobot_os::hidden_chars::strip;
use nanobot_os::terminal::{StdoutWriter, Terminal};
use std::borrow::Cow;

/// Context lines around a difference.
const CONTEXT_LINES: usize = 3;
/// Context lines if the rest of the tool was never accepted either: all of it is shown.
const ALL_LINES: usize = 1 << 24;

/// Runs `mcp accept`.
pub(super) fn run(mcp: &McpContext<'_>, server: &str, tools: &[String], yes: bool) -> Result<()> {
    let server = mcp.server(server)?;
    let view = mcp.query(server)?;
    mcp.catalog.shut_down();
    let features = &*view.features;
    let to_name = |tool: &String| Ok(find_tool(server, features, tool)?.0.name.clone());
    let selected: Vec<String> = if tools.is_empty() {
        features.pinned_texts().map(|tool| tool.name.clone()).collect()
    } else {
        tools.iter().map(to_name).collect::<Result<_>>()?
    };
    let is_new = |tool: &Cow<'_, ToolInfo>| {
        let is_changed = view.changed.iter().any(|change| change.name == tool.name);
        view.unaccepted.contains(&tool.name) && !is_changed
    };
    let new_tools = features.pinned_texts().filter(is_new).map(|tool| ToolChange {
        name: tool.name.clone(),
        old: None,
        new: tool.into_owned(),
    });
    let changes = view.changed.iter().cloned().chain(new_tools);
    let changes: Vec<ToolChange> =
        changes.filter(|change| selected.contains(&change.name)).collect();
    if changes.is_empty() {
        mcp.ctx.notice("nothing has changed");
        return Ok(());
    }
    for change in &changes {
        let was_accepted = !view.unaccepted.contains(&change.name);
        show_change(mcp, change, if was_accepted { CONTEXT_LINES } else { ALL_LINES })?;
    }
    let count = match changes.len() {
        1 => "1 tool".to_owned(),
        count => format!("{count} tools"),
    };
    if !yes {
        let hint = format!("{} --yes", server.accept_command());
        require_yes(mcp, &format!("{count} of `{}`", server.name), hint)?;
    }
    let names: Vec<String> = changes.iter().map(|change| change.name.clone()).collect();
    mcp.catalog.accept(&server.name, Some(&names))?;
    mcp.ctx.notice(&format!("{count} of `{}` accepted", server.name));
    Ok(())
}

/// Runs `mcp accept --prompt`. `text` is the name of the prompt, with its arguments.
pub(super) fn accept_prompt(
    mcp: &McpContext<'_>,
    server: &str,
    text: &str,
    yes: bool,
) -> Result<()> {
    let server = mcp.server(server)?;
    let prompt = ServerPrompt::of_server(&server.name, text.trim());
    let filled = server_prompts::fill(&mcp.catalog, server, &prompt)?;
    mcp.catalog.shut_down();
    if server_prompts::is_accepted(&mcp.catalog, server, &filled.digest)? {
        mcp.ctx.notice("what the prompt says is accepted already");
        return Ok(());
    }
    let shown_text = filled.shown_text();
    let lines = shown_text.lines().map(|line| format!("{}\n", escape_invisible(line)));
    mcp.ctx.terminal.print(&lines.collect::<String>())?;
    let name = format!("the prompt `{}` of `{}`", prompt.name(), server.name);
    if !yes {
        let hint = format!("{} --prompt {} --yes", server.accept_command(), quote(text.trim()));
        require_yes(mcp, &name, hint)?;
    }
    mcp.catalog.accept_prompt(server, &filled.digest)?;
    mcp.ctx.notice(&format!("{name} accepted"));
    Ok(())
}

/// Asks the person to accept `what` as it was shown.
///
/// # Errors
/// Status 77: the user says no, or cannot be asked, and `hint` says how to accept it.
fn require_yes(mcp: &McpContext<'_>, what: &str, hint: String) -> Result<()> {
    if !Terminal::can_prompt() {
        let cause = format!("{what} changed or new, and nothing was accepted");
        return Err(fail(Exit::Refused, cause).with_hint(hint));
    }
    if !ask_yes(mcp.ctx, &format!("Accept {what} as shown?"))? {
        return Err(fail(Exit::Refused, format!("{what} not accepted")));
    }
    Ok(())
}

fn show_change(mcp: &McpContext<'_>, change: &ToolChange, context_lines: usize) -> Result<()> {
    let old = change.old.as_ref().map(pin::format_tool).unwrap_or_default();
    let new = pin::format_tool(&change.new);
    let mut writer = StdoutWriter::new(mcp.ctx.terminal);
    writer.write_styled(&sanitize::single_line(&change.name, 200), &Style::new().bold())?;
    writer.write("\n")?;
    for line in Diff::new(&old, &new).unified(context_lines).lines() {
        let style = match line.as_bytes().first() {
            Some(b'+') => Style::new().green(),
            Some(b'-') => Style::new().red(),
            _ => Style::new(),
        };
        writer.write_styled(&escape_invisible(line), &style)?;
        writer.write("\n")?;
    }
    writer.finish()
}

/// Replaces invisible characters in `line` by their numbers, since they may be the only change.
fn escape_invisible(line: &str) -> String {
    let escape = |character: char| {
        let text = character.to_string();
        let is_visible = character == '\t' || (!character.is_control() && strip(&text).1 == 0);
        if is_visible { text } else { character.escape_unicode().to_string() }
    };
    line.chars().map(escape).collect()
}
