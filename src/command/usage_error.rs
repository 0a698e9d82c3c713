//! The output for errors of the command line, for `--help` and for `--version`.

use super::tree::{command_tree, command_tree_with_help};
use crate::cli::pages::HelpLength;
use crate::ops::context::report_error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use nanobot_base::error::{Exit, fail, fail_with_hint};
use nanobot_base::shell_quote::quote;
use nanobot_os::terminal::Terminal;
use std::ffi::OsString;

/// Prints help and version to standard output with status 0, or an error to standard error with status 2.
pub(crate) fn report(error: clap::Error, arguments: &[OsString], terminal: Terminal) -> Exit {
    let mut error = render_help(&error, arguments).unwrap_or(error);
    let replacement = suggest_replacement(&error, arguments);
    // For clap, one-letter aliases are similar to most words.
    let suggestion = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(mut names)) => {
            names.retain(|name| name.len() > 1);
            (!names.is_empty()).then_some(ContextValue::Strings(names))
        }
        other => other,
    };
    if replacement.is_some() {
        error.remove(ContextKind::SuggestedArg);
    } else if let Some(suggestion) = suggestion {
        error.insert(ContextKind::SuggestedSubcommand, suggestion);
    }
    let error = &error;
    if error.kind() == ErrorKind::InvalidUtf8 {
        terminal.eprint(&format!("error: {}", invalid_text(arguments)));
        return Exit::Usage;
    }
    if error.use_stderr() {
        terminal.eprint(error.render().to_string().trim_end());
        let hint = suggest_joined_flag(error, arguments)
            .or(replacement)
            .or_else(|| suggest_repl(error, arguments))
            .or_else(|| suggest_all(error, arguments))
            .or_else(|| suggest_message(error, arguments));
        if let Some(hint) = hint {
            terminal.eprint(&format!("  try: {hint}"));
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
    let display = |argument: &OsString| quote(&argument.to_string_lossy());
    let pair = arguments.windows(2).find(|pair| pair[1].to_str().is_none());
    match pair {
        Some([flag, value]) if flag.to_str().is_some_and(|flag| flag.starts_with('-')) => {
            format!("the value {} of {} is not UTF-8", display(value), display(flag))
        }
        Some([_, argument]) => format!("the argument {} is not UTF-8", display(argument)),
        _ => "an argument is not UTF-8".into(),
    }
}

/// Parses the arguments again with all texts of the help, if the help was requested or a command is missing. The tree that parsed
/// them first has none of these texts.
fn render_help(error: &clap::Error, arguments: &[OsString]) -> Option<clap::Error> {
    let kinds = [ErrorKind::DisplayHelp, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if !kinds.contains(&error.kind()) {
        return None;
    }
    let length = if arguments.iter().any(|argument| argument == "--help") {
        HelpLength::Long
    } else {
        HelpLength::Short
    };
    command_tree_with_help(length).try_get_matches_from(arguments).err()
}

/// Commands and flags of the Python program and of other agents that do not exist here, and what to use in their stead.
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
    if ![ErrorKind::InvalidSubcommand, ErrorKind::UnknownArgument].contains(&error.kind()) {
        return None;
    }
    let first = arguments.get(1)?;
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => flag,
        _ => "",
    };
    let (_, replacement) = REPLACEMENTS.iter().find(|(name, _)| first == name || flag == *name)?;
    Some((*replacement).to_owned())
}

/// Suggests `--all` if a name is missing.
fn suggest_all(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let mut tree = command_tree();
    tree.build();
    let (mut command, mut line) = (&tree, "nanobot".to_owned());
    for argument in arguments.iter().skip(1).filter_map(|argument| argument.to_str()) {
        if let Some(subcommand) = command.find_subcommand(argument) {
            command = subcommand;
            line = format!("{line} {argument}");
        }
    }
    let has_all = command.get_arguments().any(|arg| arg.get_id() == "all");
    has_all.then(|| format!("{line} --all"))
}

/// Suggests `repl` if no command is named, and `repl` would take the flags.
fn suggest_repl(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let (program, flags) = arguments.split_first()?;
    let is_flag = flags.first()?.to_str()?.starts_with('-');
    if error.kind() != ErrorKind::UnknownArgument || !is_flag {
        return None;
    }
    let quoted = flags.iter().map(|flag| flag.to_str().map(quote)).collect::<Option<Vec<_>>>()?;
    let repl = OsString::from("repl");
    let line = [program, &repl].into_iter().chain(flags);
    command_tree().try_get_matches_from(line).ok()?;
    Some(format!("nanobot repl {}", quoted.join(" ")))
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
    let Some(ContextValue::String(unexpected)) = error.get(kind) else {
        return None;
    };
    let index = arguments.iter().position(|argument| argument == unexpected.as_str())?;
    let rest: Option<Vec<&str>> =
        arguments[index..].iter().map(|argument| argument.to_str()).collect();
    let rest = rest?;
    let resembles_command = error.get(ContextKind::SuggestedSubcommand).is_some();
    let has_flag = rest.iter().any(|argument| argument.starts_with('-'));
    if resembles_command || !(is_agent || index == 1) || has_flag {
        return None;
    }
    let message = quote(&rest.join(" "));
    let message = if message.contains('\'') { message } else { format!("'{message}'") };
    let command = format!("nanobot agent -m {message}");
    // A single word is rather a command that does not exist.
    Some(if is_agent || message.contains(' ') {
        command
    } else {
        format!("`nanobot --help`; as a message: {command}")
    })
}

/// Flags whose value must be joined with `=`.
const JOINED_FLAGS: &[&str] = &["--write", "--net", "--dry-run"];

/// Suggests the joined form for a flag whose value was given as a separate word.
fn suggest_joined_flag(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let mut pairs = arguments.windows(2).filter(|pair| pair[1] == **value);
    let flag = pairs.find_map(|pair| JOINED_FLAGS.iter().find(|flag| pair[0] == **flag))?;
    Some(format!("{flag}={}", quote(value)))
}

/// Converts an error about a line of the REPL, which has no room for the usage. The possible values of a flag stay.
pub(super) fn to_error(error: &clap::Error) -> anyhow::Error {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim);
    let cause = lines.next().unwrap_or_default().trim_start_matches("error: ");
    match lines.find(|line| line.starts_with("[possible values")) {
        Some(values) => fail(Exit::Usage, format!("{cause} {values}")),
        None => fail(Exit::Usage, cause.to_owned()),
    }
}

/// The error of `nanobot gateway`, a command of the Python program.
pub(crate) fn no_gateway() -> anyhow::Error {
    fail_with_hint(
        Exit::Usage,
        "there is no gateway: nanobot is not a server, and runs once for each message",
        "`nanobot channel poll --wait 60` in a crontab line for chats, `nanobot cron` for jobs, `nanobot pipe` for programs",
    )
}
