//! `nanobot completions`: the scripts for shells, and the answers to them when Tab is pressed.
//!
//! A script knows no commands or flags. It passes on the typed line and prints the answer in its shell's format, so it
//! need not be reloaded after an update. The first line of an answer gives the type of the rest: `values`, each
//! followed by a tab and a description, or `files` or `dirs`, which the shell completes better itself. Any error gives
//! an empty answer without a message, which would appear in the middle of the typed line.

use crate::cli::completions::{CompletionShell, CompletionsArgs};
use crate::ops::completion_names::NameSource;
use crate::ops::context::{Context, GlobalOptions};
use anyhow::Result;
use candidates::{ValueSource, WordType};
use clap_complete::engine::{CompletionCandidate, complete};
use nanobot_base::error::Exit;
use nanobot_os::env::Env;
use nanobot_os::paths::Paths;
use nanobot_os::shell::UserShell;
use nanobot_os::terminal::{Terminal, sanitize};
use std::ffi::OsString;
use std::sync::Arc;
use typed_line::TypedLine;

mod candidates;
mod typed_line;

/// Maximum number of values in an answer.
const MAX_VALUES: usize = 400;

/// Runs `nanobot completions`: prints a script, or answers one.
pub fn run(env: Env, terminal: Terminal, arguments: &CompletionsArgs) -> Result<Exit> {
    let CompletionsArgs { shell, words } = arguments;
    let text = match words[..] {
        [] => script(*shell).to_owned(),
        _ => complete_line(env, terminal, *shell, words).unwrap_or_default(),
    };
    terminal.print(&text)?;
    Ok(Exit::Answered)
}

/// The script for a shell; packages contain it too.
fn script(shell: CompletionShell) -> &'static str {
    match shell {
        CompletionShell::Bash => include_str!("../../../completions/nanobot.bash"),
        CompletionShell::Zsh => include_str!("../../../completions/_nanobot"),
        CompletionShell::Fish => include_str!("../../../completions/nanobot.fish"),
        CompletionShell::Elvish => include_str!("../../../completions/nanobot.elv"),
        CompletionShell::Powershell => include_str!("../../../completions/nanobot.ps1"),
    }
}

/// The script that `onboard` installs for `shell`.
pub(super) fn script_of(shell: UserShell) -> &'static str {
    script(match shell {
        UserShell::Bash => CompletionShell::Bash,
        UserShell::Zsh => CompletionShell::Zsh,
        UserShell::Fish => CompletionShell::Fish,
    })
}

/// The answer for the typed line. `None` on any error.
fn complete_line(
    env: Env,
    terminal: Terminal,
    shell: CompletionShell,
    words: &[OsString],
) -> Option<String> {
    let line = TypedLine::from_script(shell, words)?;
    let typed = line.arguments.clone();
    let ctx = context_of_line(env, terminal, &typed)?;
    let values = Arc::new(ValueSource::new(NameSource::new(ctx, typed)));
    let mut command = candidates::attach_candidates(crate::command::tree::command_tree(), &values);
    let words: Vec<OsString> = line.arguments.iter().map(OsString::from).collect();
    let at = words.len() - 1;
    let found = complete(&mut command, words, at, None).ok()?;
    let found = drop_flags(found, line.current());
    let kind = match values.word_type() {
        WordType::Values => "values",
        WordType::Files => "files",
        WordType::Directories => "dirs",
    };
    let rows = found.iter().filter_map(|candidate| format_candidate(shell, &line, candidate));
    let rows: String = rows.take(MAX_VALUES).collect();
    Some(format!("{kind}\n{rows}"))
}

/// Keeps flags only if nothing else fits, or if the user has begun to type one.
fn drop_flags(mut found: Vec<CompletionCandidate>, current: &str) -> Vec<CompletionCandidate> {
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
fn format_candidate(
    shell: CompletionShell,
    line: &TypedLine,
    candidate: &CompletionCandidate,
) -> Option<String> {
    let value = candidate.get_value().to_str()?;
    if value.chars().any(char::is_control) || sanitize(value) != value {
        return None;
    }
    let help = candidate.get_help().map(ToString::to_string);
    let help = help.as_deref().and_then(|help| help.lines().next());
    let help = sanitize(help.unwrap_or_default()).replace('\t', " ");
    let value = line.format_value(shell, value)?;
    Some(if help.is_empty() || shell == CompletionShell::Bash {
        format!("{value}\n")
    } else {
        format!("{value}\t{help}\n")
    })
}

/// The context for the typed line, with the config and the workspace that its flags name.
fn context_of_line(env: Env, terminal: Terminal, typed: &[String]) -> Option<Context> {
    let flag = |short: &str, long: &str| {
        typed.windows(2).rev().find_map(|pair| {
            let joined = pair[0].strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
            let apart = || (pair[0] == short || pair[0] == long).then_some(pair[1].as_str());
            joined.or_else(apart).map(str::to_owned)
        })
    };
    // The shell has not expanded a tilde yet.
    let home = Paths::resolve(&env, None).ok()?;
    let path = |short, long| flag(short, long).map(|path| home.expand(&path));
    let config = path("-c", "--config");
    let options = GlobalOptions { workspace: path("-w", "--workspace"), quiet: true, config };
    Context::new(options, env, terminal).ok()
}
