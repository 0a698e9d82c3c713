//! `nanobot completions`: the scripts for shells, and the answers to them when Tab is pressed.
//!
//! A script knows no commands or flags. It passes on the typed line and prints the answer in its shell's format, so it
//! need not be reloaded after an update. The first line of an answer gives the type of the rest: `values`, each
//! followed by a tab and a description, or `files` or `dirs`, which the shell completes better itself. Any error gives
//! an empty answer without a message, which would appear in the middle of the typed line.

use crate::cli::completions::{Completions, Shell};
use crate::error::Exit;
use crate::ops::context::{Context, GlobalOptions};
use crate::sys::env::Env;
use crate::sys::paths::Paths;
use crate::sys::terminal::{Terminal, harmless};
use anyhow::Result;
use clap_complete::engine::{CompletionCandidate, complete};
use line::Line;
use names::{Names, Wanted};
use std::ffi::OsString;
use std::sync::Arc;

mod line;
mod names;

/// Maximum number of values in an answer.
const MOST: usize = 400;

/// Runs `nanobot completions`: prints a script, or answers one.
pub fn run(env: Env, terminal: Terminal, arguments: &Completions) -> Result<Exit> {
    let Completions { shell, words } = arguments;
    let text = match words[..] {
        [] => script(*shell).to_owned(),
        _ => answer(env, terminal, *shell, words).unwrap_or_default(),
    };
    terminal.print(&text)?;
    Ok(Exit::Answered)
}

/// The script for a shell; packages contain it too.
fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("../../../completions/nanobot.bash"),
        Shell::Zsh => include_str!("../../../completions/_nanobot"),
        Shell::Fish => include_str!("../../../completions/nanobot.fish"),
        Shell::Elvish => include_str!("../../../completions/nanobot.elv"),
        Shell::Powershell => include_str!("../../../completions/nanobot.ps1"),
    }
}

/// The answer for the typed line. `None` on any error.
fn answer(env: Env, terminal: Terminal, shell: Shell, words: &[OsString]) -> Option<String> {
    let line = Line::read(shell, words)?;
    let typed = line.words.clone();
    let ctx = ctx(env, terminal, &typed)?;
    let names = Arc::new(Names::new(ctx, typed));
    let mut command = names::attached(crate::command::tree::bare(), &names);
    let words: Vec<OsString> = line.words.iter().map(OsString::from).collect();
    let at = words.len() - 1;
    let found = complete(&mut command, words, at, None).ok()?;
    let found = chosen(found, line.current());
    let kind = match names.wanted() {
        Wanted::Values => "values",
        Wanted::Files => "files",
        Wanted::Directories => "dirs",
    };
    let rows = found
        .iter()
        .filter_map(|candidate| row(shell, &line, candidate));
    let rows: String = rows.take(MOST).collect();
    Some(format!("{kind}\n{rows}"))
}

/// Keeps flags only if nothing else fits, or if the user has begun to type one.
fn chosen(mut found: Vec<CompletionCandidate>, current: &str) -> Vec<CompletionCandidate> {
    let is_flag = |candidate: &CompletionCandidate| {
        candidate.get_value().as_encoded_bytes().starts_with(b"-")
    };
    if current.is_empty() && !found.iter().all(is_flag) {
        found.retain(|candidate| !is_flag(candidate));
    }
    found
}

/// Formats a candidate for the shell. `None` if it contains characters that a terminal cannot display, since they
/// cannot be typed either.
fn row(shell: Shell, line: &Line, candidate: &CompletionCandidate) -> Option<String> {
    let value = candidate.get_value().to_str()?;
    if value.chars().any(char::is_control) || harmless(value) != value {
        return None;
    }
    let help = candidate.get_help().map(ToString::to_string);
    let help = help.as_deref().and_then(|help| help.lines().next());
    let help = harmless(help.unwrap_or_default()).replace('\t', " ");
    let value = line.written(shell, value)?;
    Some(match help.is_empty() || shell == Shell::Bash {
        true => format!("{value}\n"),
        false => format!("{value}\t{help}\n"),
    })
}

/// The context for the typed line, with the config and the workspace that its flags name.
fn ctx(env: Env, terminal: Terminal, typed: &[String]) -> Option<Context> {
    let flag = |short: &str, long: &str| {
        typed.windows(2).rev().find_map(|pair| {
            let joined = pair[0]
                .strip_prefix(long)
                .and_then(|rest| rest.strip_prefix('='));
            let apart = || (pair[0] == short || pair[0] == long).then_some(pair[1].as_str());
            joined.or_else(apart).map(str::to_owned)
        })
    };
    // The shell has not expanded a tilde yet.
    let home = Paths::resolve(&env, None).ok()?;
    let path = |short, long| flag(short, long).map(|path| home.expand(&path));
    let config = path("-c", "--config");
    let options = GlobalOptions {
        workspace: path("-w", "--workspace"),
        quiet: true,
        config,
    };
    Context::new(options, env, terminal).ok()
}
