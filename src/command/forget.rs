//! `nanobot forget`: lists where a text, a session or a sender occurs, and removes it there.

use super::question::confirm_at_terminal;
use crate::cli::forget::ForgetArgs;
use crate::ops::context::Context;
use crate::ops::forget::finding::{Finding, FindingAction};
use crate::ops::forget::search::{Search, Subject};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::terminal::sanitize_line;

/// Shorter texts occur in many words by chance.
const MIN_TEXT_CHARS: usize = 4;

/// Runs `nanobot forget`.
pub fn run(ctx: &Context, arguments: &ForgetArgs) -> Result<Exit> {
    let ForgetArgs { files, dry_run, yes, .. } = arguments;
    let subject = subject(arguments)?;
    let search = Search::new(ctx, &subject, files)?;
    let findings = search.find()?;
    if findings.is_empty() {
        ctx.notice("it was not found");
        return Ok(Exit::Failed);
    }
    if !yes || *dry_run {
        ctx.terminal.print(&list(ctx, &findings, false))?;
    }
    ctx.notice(
        "what providers and chat services received, mail, histories of git and backups stay",
    );
    if *dry_run {
        return require_searched(&findings).map(|()| Exit::Answered);
    }
    if findings.iter().all(|finding| finding.action.is_kept()) {
        require_searched(&findings)?;
        ctx.notice("there is nothing that can be removed");
        return Ok(Exit::Failed);
    }
    let hint = "`--yes`, or `--dry-run` to list them only";
    if !(*yes || confirm_at_terminal(ctx, "Remove it permanently?", hint)?) {
        ctx.notice("nothing was removed");
        return Ok(Exit::Failed);
    }
    let erased = search.erase(findings)?;
    if !ctx.quiet {
        ctx.terminal.print(&list(ctx, &erased.findings, true))?;
    }
    match erased.failure {
        Some(exit) => {
            let cause = "some of it was not removed";
            Err(fail(exit, cause).with_hint("the same command again, once the causes are gone"))
        }
        None => require_searched(&erased.findings).map(|()| Exit::Answered),
    }
}

/// # Errors
/// Status 74 if a file could not be read.
fn require_searched(findings: &[Finding]) -> Result<()> {
    let is_unread = |finding: &Finding| matches!(finding.action, FindingAction::NotSearched(_));
    if findings.iter().any(is_unread) {
        let cause = "some of it was not searched";
        return Err(fail(Exit::Io, cause).with_hint("as a user who may read it"));
    }
    Ok(())
}

fn subject(arguments: &ForgetArgs) -> Result<Subject> {
    let usage_error = |cause: String, hint: &str| Err(fail(Exit::Usage, cause).with_hint(hint));
    let ForgetArgs { text, session, sender, dry_run, yes, .. } = arguments;
    if let Some(key) = session {
        return Ok(Subject::Session(key.clone()));
    }
    if let Some(sender) = sender {
        return match sender.split_once(':') {
            Some((channel, id)) if !channel.is_empty() && !id.is_empty() => {
                Ok(Subject::Sender { channel: channel.into(), id: id.into() })
            }
            _ => usage_error(
                format!("`{sender}` is not a sender"),
                "the channel and the sender's id, such as `telegram:123456`",
            ),
        };
    }
    let text = text.as_deref().unwrap_or_default().trim();
    if text.is_empty() || text.contains(char::is_control) {
        return usage_error("the text is one line".into(), "a part of it that is on one line");
    }
    if text.chars().count() < MIN_TEXT_CHARS && !(*yes || *dry_run) {
        return usage_error(
            format!("`{text}` is so short that it may occur in other words"),
            "a longer text, `--dry-run` to list where it occurs, or `--yes`",
        );
    }
    Ok(Subject::Text(text.to_owned()))
}

/// One line for each place: those that change, or have changed if `is_done`, then those that are kept.
fn list(ctx: &Context, findings: &[Finding], is_done: bool) -> String {
    let line = |finding: &Finding| {
        let verb = match (&finding.action, is_done) {
            (action, true) if action.is_kept() => "kept",
            (action, false) if action.is_kept() => "would keep",
            (FindingAction::Overwrite, true) => "overwritten",
            (FindingAction::Overwrite, false) => "would overwrite",
            (_, true) => "removed",
            (_, false) => "would remove",
        };
        let path = ctx.paths.display(&finding.path);
        let mut line = format!("{verb} {path}");
        match finding.count {
            0 => {}
            1 => line += ": once",
            count => line += &format!(": {count} times"),
        }
        // The removed text stays out of logs.
        if !finding.excerpt.is_empty() && !is_done {
            line += &format!(", \"{}\"", finding.excerpt);
        }
        match &finding.action {
            FindingAction::Keep(reason) => line += &format!(": {reason}"),
            FindingAction::NotSearched(reason) => line += &format!(": not searched: {reason}"),
            _ => {}
        }
        sanitize_line(&line) + "\n"
    };
    let is_kept = |finding: &&Finding| finding.action.is_kept();
    let changed = findings.iter().filter(|finding| !is_kept(finding));
    changed.chain(findings.iter().filter(is_kept)).map(line).collect()
}
