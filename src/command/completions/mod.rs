//! `nanobot completions`: the scripts that shells load, and what they are told when TAB is pressed.
//!
//! A script knows nothing of commands and flags. It passes on what was typed, and prints the answer in its shell's way: so it
//! need not be loaded anew with a new release. The first line of an answer says what the others are: `values`, each with what
//! it means behind a tab, or that `files` or `dirs` are wanted, which a shell completes better by itself. Whatever goes wrong,
//! there is nothing to complete then, and nothing is said: words would appear in the middle of the line that is typed.

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

/// At most so many are offered: nobody reads more.
const MOST: usize = 400;

pub fn run(env: Env, terminal: Terminal, arguments: &Completions) -> Result<Exit> {
    let Completions { shell, words } = arguments;
    let text = match words[..] {
        [] => script(*shell).to_owned(),
        _ => answer(env, terminal, *shell, words).unwrap_or_default(),
    };
    terminal.print(&text)?;
    Ok(Exit::Answered)
}

/// The script, which packages carry too.
fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("../../../completions/nanobot.bash"),
        Shell::Zsh => include_str!("../../../completions/_nanobot"),
        Shell::Fish => include_str!("../../../completions/nanobot.fish"),
        Shell::Elvish => include_str!("../../../completions/nanobot.elv"),
        Shell::Powershell => include_str!("../../../completions/nanobot.ps1"),
    }
}

/// What can stand where somebody is typing.
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

/// Flags are offered when nothing else can stand there, or when one was begun.
fn chosen(mut found: Vec<CompletionCandidate>, current: &str) -> Vec<CompletionCandidate> {
    let is_flag = |candidate: &CompletionCandidate| {
        candidate.get_value().as_encoded_bytes().starts_with(b"-")
    };
    if current.is_empty() && !found.iter().all(is_flag) {
        found.retain(|candidate| !is_flag(candidate));
    }
    found
}

/// A line for the shell. What a terminal could not show as it is, nobody could type either.
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

/// The world that the typed line would run in: with the config and the workspace that it names.
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
    // The shell has not opened a tilde yet.
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
