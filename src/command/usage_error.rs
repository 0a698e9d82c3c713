//! The output for command-line errors, and for `--help` and `--version`.

use super::tree::{command_tree, command_tree_with_help};
use crate::cli::pages::HelpLength;
use crate::ops::context::report_error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_base::shell_quote::quote;
use nanobot_os::terminal::Terminal;
use std::ffi::OsString;

/// Prints help and version to standard output with status 0, or an error to standard error with status 2.
pub(crate) fn report(error: clap::Error, arguments: &[OsString], terminal: Terminal) -> Exit {
    let help = help(&error, arguments);
    let mut error = help.unwrap_or(error);
    let replacement = suggest_replacement(&error, arguments);
    // The parser finds one-letter aliases similar to most words.
    let suggested = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(mut names)) => {
            names.retain(|name| name.len() > 1);
            (!names.is_empty()).then_some(ContextValue::Strings(names))
        }
        other => other,
    };
    if let Some(names) = suggested {
        error.insert(ContextKind::SuggestedSubcommand, names);
    }
    if replacement.is_some() {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
    }
    let error = &error;
    if error.kind() == ErrorKind::InvalidUtf8 {
        terminal.eprint(&format!("error: {}", invalid_text(arguments)));
        return Exit::Usage;
    }
    if error.use_stderr() {
        terminal.eprint(error.render().to_string().trim_end());
        let meant = suggest_joined_flag(error, arguments)
            .or(replacement)
            .or_else(|| suggest_repl(error, arguments))
            .or_else(|| suggest_all(error, arguments))
            .or_else(|| suggest_message(error, arguments));
        if let Some(meant) = meant {
            terminal.eprint(&format!("  try: {meant}"));
        }
        return Exit::Usage;
    }
    match terminal.print(&error.render().to_string()) {
        Ok(()) => Exit::Answered,
        Err(error) => report_error(&error, terminal),
    }
}

/// The message about the argument that is not UTF-8. Only paths may have other bytes.
fn invalid_text(arguments: &[OsString]) -> String {
    let at = arguments.iter().position(|word| word.to_str().is_none());
    let show = |word: &OsString| quote(&word.to_string_lossy());
    match at.and_then(|at| Some((arguments.get(at.checked_sub(1)?)?, &arguments[at]))) {
        Some((before, word)) if before.to_str().is_some_and(|flag| flag.starts_with('-')) => {
            format!("the value {} of {} is not UTF-8", show(word), show(before))
        }
        Some((_, word)) => format!("the argument {} is not UTF-8", show(word)),
        None => "an argument is not UTF-8".into(),
    }
}

/// Renders the help with all its texts, if it was requested or a command is missing.
fn help(error: &clap::Error, arguments: &[OsString]) -> Option<clap::Error> {
    let is_help = [ErrorKind::DisplayHelp, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand]
        .contains(&error.kind());
    let form = if arguments.iter().any(|word| word == "--help") {
        HelpLength::Long
    } else {
        HelpLength::Short
    };
    let again = || command_tree_with_help(form).try_get_matches_from(arguments).err();
    is_help.then(again).flatten()
}

/// Replacements for words of the Python program and of other agents that do not exist here.
const REPLACEMENTS: &[(&str, &str)] = &[
    (
        "--install-completion",
        "nanobot completions bash, or zsh, or fish: a script for that shell to load",
    ),
    ("--show-completion", "nanobot completions bash, or zsh, or fish"),
    ("channels", "`nanobot channel list`"),
    ("topics", "`nanobot --help` for the topics"),
    ("serve", "a pipe or a crontab line with `nanobot agent -m`: nanobot is not a server"),
    ("webui", "nanobot repl"),
    ("sessions", "nanobot session"),
    ("trigger", "nanobot cron run JOB"),
    ("plugins", "nanobot tool list"),
    ("--yolo", "`--profile full`, which has no limits"),
    ("--dangerously-skip-permissions", "`--profile full`, which has no limits"),
    (
        "--full-auto",
        "`--profile auto-approve`, or `--write` to change files in this directory only",
    ),
];

fn suggest_replacement(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let is_unknown = [ErrorKind::InvalidSubcommand, ErrorKind::UnknownArgument];
    let first = arguments.get(1).filter(|_| is_unknown.contains(&error.kind()))?;
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => flag,
        _ => "",
    };
    let known = REPLACEMENTS.iter().find(|(word, _)| first == word || flag == *word);
    known.map(|(_, here)| (*here).to_owned())
}

/// Suggests `--all` where a name is missing.
fn suggest_all(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let mut tree = command_tree();
    tree.build();
    let (mut command, mut line) = (&tree, "nanobot".to_owned());
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        if let Some(below) = command.find_subcommand(word) {
            command = below;
            line = format!("{line} {word}");
        }
    }
    let has_all = command.get_arguments().any(|arg| arg.get_id() == "all");
    has_all.then(|| format!("{line} --all"))
}

/// Suggests `repl` for flags that it would take, where no command is named.
fn suggest_repl(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let (program, flags) = arguments.split_first()?;
    let is_flag = flags.first()?.to_str()?.starts_with('-');
    if error.kind() != ErrorKind::UnknownArgument || !is_flag {
        return None;
    }
    let words = flags.iter().map(|word| word.to_str()).collect::<Option<Vec<_>>>()?;
    let repl = OsString::from("repl");
    let line = [program, &repl].into_iter().chain(flags);
    command_tree().try_get_matches_from(line).ok()?;
    let words: Vec<String> = words.into_iter().map(quote).collect();
    Some(format!("nanobot repl {}", words.join(" ")))
}

/// Suggests that unknown words without a flag are a message, unless they resemble a command.
fn suggest_message(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let is_agent =
        arguments.get(1).is_some_and(|word| ["agent", "a", "repl"].iter().any(|name| word == name));
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument if is_agent => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(stray)) = error.get(kind) else {
        return None;
    };
    let at = arguments.iter().position(|word| word == stray.as_str())?;
    let words: Option<Vec<&str>> = arguments[at..].iter().map(|word| word.to_str()).collect();
    let words = words?;
    let is_known = error.get(ContextKind::SuggestedSubcommand).is_some();
    if is_known || !(is_agent || at == 1) || words.iter().any(|word| word.starts_with('-')) {
        return None;
    }
    let words = quote(&words.join(" "));
    let words = if words.contains('\'') { words } else { format!("'{words}'") };
    let message = format!("nanobot agent -m {words}");
    // A single word is rather a command that does not exist.
    Some(if is_agent || words.contains(' ') {
        message
    } else {
        format!("`nanobot --help`; as a message: {message}")
    })
}

/// Flags whose value must be joined with `=`.
const JOINED_FLAGS: &[&str] = &["--write", "--net", "--dry-run"];

/// Suggests the joined form for a flag whose value was given as a separate word.
fn suggest_joined_flag(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(stray)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let pair = arguments
        .windows(2)
        .find(|pair| pair[1] == **stray && JOINED_FLAGS.iter().any(|flag| pair[0] == *flag))?;
    Some(format!("{}={}", pair[0].display(), quote(stray)))
}

/// The error of `nanobot gateway`, a command of the Python program.
pub(crate) fn no_gateway() -> anyhow::Error {
    fail_with_hint(
        Exit::Usage,
        "there is no gateway: nanobot is not a server, and runs once for each message",
        "`nanobot channel poll --wait 60` in a crontab line for chats, `nanobot cron` for jobs, `nanobot pipe` for programs",
    )
}
