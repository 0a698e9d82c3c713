//! `nanobot completions`: prints the scripts for shells, and answers them when Tab is pressed.
//!
//! A script contains no commands or flags. It passes the typed line on, and prints the answer in the format of its shell, so it
//! need not be reloaded after an update. The first line of an answer is the type of the rest: `values`, each with a tab and a
//! description, or `files` or `dirs`, which the shell completes better itself. After an error the answer is empty, since a
//! message would appear in the middle of the typed line.

use crate::cli::completions::{CompletionShell, CompletionsArgs};
use crate::cli::topics::TOPICS;
use crate::command::parse;
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
    let CompletionsArgs { shell, script_arguments } = arguments;
    if script_arguments.is_empty() {
        terminal.print(script(*shell))?;
    } else {
        let answer = complete_line(env, terminal, *shell, script_arguments);
        terminal.print(&answer.unwrap_or_default())?;
    }
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

/// The answer to the script. `None` on any error.
fn complete_line(
    env: Env,
    terminal: Terminal,
    shell: CompletionShell,
    script_arguments: &[OsString],
) -> Option<String> {
    let line = TypedLine::from_script(shell, script_arguments)?;
    let ctx = context_of_line(env, terminal, &line.arguments)?;
    let values = Arc::new(ValueSource::new(NameSource::new(ctx, line.arguments.clone())));
    let mut command = candidates::attach_candidates(crate::command::tree::command_tree(), &values);
    let (current, typed) = line.arguments.split_last()?;
    let mut arguments: Vec<OsString> = typed.iter().map(OsString::from).collect();
    parse::replace_names(&mut arguments);
    arguments.push(current.into());
    let current_index = arguments.len() - 1;
    let mut candidates = complete(&mut command, arguments, current_index, None).ok()?;
    // Flags are offered if nothing else fits, or if the user has begun to type one. Files fit, which the shell knows.
    let has_others = values.word_type() != WordType::Values || !candidates.iter().all(is_flag);
    if line.current().is_empty() && has_others {
        candidates.retain(|candidate| !is_flag(candidate));
    }
    if let [_, help] = typed
        && help == "help"
    {
        candidates.extend(topic_candidates(line.current()));
    }
    let word_type = match values.word_type() {
        WordType::Values => "values",
        WordType::Files => "files",
        WordType::Directories => "dirs",
    };
    let rows = candidates.iter().filter_map(|candidate| format_candidate(shell, &line, candidate));
    let rows: String = rows.take(MAX_VALUES).collect();
    Some(format!("{word_type}\n{rows}"))
}

/// The topics whose names begin with `prefix`.
fn topic_candidates(prefix: &str) -> impl Iterator<Item = CompletionCandidate> {
    let topics = TOPICS.iter().filter(move |topic| topic.name.starts_with(prefix));
    topics.map(|topic| CompletionCandidate::new(topic.name).help(Some(topic.summary.into())))
}

fn is_flag(candidate: &CompletionCandidate) -> bool {
    candidate.get_value().as_encoded_bytes().starts_with(b"-")
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
fn context_of_line(env: Env, terminal: Terminal, arguments: &[String]) -> Option<Context> {
    let value = |short: &str, long: &str| {
        arguments.windows(2).rev().find_map(|pair| {
            let joined = pair[0].strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
            let separate = || (pair[0] == short || pair[0] == long).then_some(pair[1].as_str());
            joined.or_else(separate)
        })
    };
    // The shell has not expanded a tilde yet.
    let paths = Paths::resolve(&env, None).ok()?;
    let options = GlobalOptions {
        config: value("-c", "--config").map(|path| paths.expand(path)),
        workspace: value("-w", "--workspace").map(|path| paths.expand(path)),
        quiet: true,
    };
    Context::new(options, env, terminal).ok()
}
