//! The output for errors of the command line, for `--help` and for `--version`.

use super::tree::{command_tree, command_tree_with_help};
use crate::cli::pages::HelpLength;
use crate::ops::context::report_error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::shell_quote::quote;
use nanobot_os::terminal::Terminal;
use std::ffi::OsString;
use std::path::Path;

/// Prints help and version to standard output with status 0, or an error to standard error with status 2.
pub(crate) fn report(error: clap::Error, arguments: &[OsString], terminal: Terminal) -> Exit {
    let error = render_help(&error, arguments).unwrap_or(error);
    if error.kind() == ErrorKind::InvalidUtf8 {
        terminal.eprint_failure(&invalid_text(arguments));
        return Exit::Usage;
    }
    if !error.use_stderr() {
        return match terminal.print(&error.render().to_string()) {
            Ok(()) => Exit::Answered,
            Err(error) => report_error(&error, terminal),
        };
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        terminal.eprint(error.render().to_string().trim_end());
        if arguments.len() == 1 {
            // A terminal would have started the REPL, so there may be a message on standard input.
            terminal.eprint_failure(
                "a command is missing; `nanobot agent` answers the text on standard input",
            );
        }
        return Exit::Usage;
    }
    let hint = suggest_extract(arguments)
        .or_else(|| suggest_joined_flag(&error, arguments))
        .or_else(|| suggest_continue(&error, arguments))
        .or_else(|| suggest_replacement(&error, arguments))
        .or_else(|| suggest_repl(&error, arguments))
        .or_else(|| suggest_all(&error, arguments))
        .or_else(|| suggest_message(&error, arguments))
        .or_else(|| suggest_similar(&error))
        .or_else(|| describe_flag(&error, arguments))
        .unwrap_or_else(|| match named_command(arguments).0.as_str() {
            // `help WORD` is this command, which is not listed.
            "nanobot topic" => "nanobot --help".to_owned(),
            command => format!("{command} --help"),
        });
    terminal.eprint_failure(&cause(&error));
    terminal.eprint(&format!("  try: {hint}"));
    Exit::Usage
}

/// The cause of an error of the parser in one line, without its prefix and its tips.
pub(crate) fn cause(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let cause = lines.collect::<Vec<_>>().join(" ");
    // The words of `std` for a number.
    cause
        .trim_start_matches("error: ")
        .replace("invalid digit found in string", "not a whole number")
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

/// Commands and flags of the Python program and of other agents that do not exist here, with their replacements. A flag with the same
/// meaning as one of ours is an alias of it instead. No row names a flag that permits more: a user who looks for one should first read what
/// a run may do.
const REPLACEMENTS: &[(&str, &str)] = &[
    ("--add-dir", PERMISSIONS_TOPIC),
    ("--allowed-tools", PERMISSIONS_TOPIC),
    ("--allowedTools", PERMISSIONS_TOPIC),
    ("--approval-mode", PERMISSIONS_TOPIC),
    ("--ask-for-approval", PERMISSIONS_TOPIC),
    ("--chat", "`--session KEY`"),
    ("--conversation", "`--session KEY`"),
    ("--dangerously-bypass-approvals-and-sandbox", PERMISSIONS_TOPIC),
    ("--dangerously-skip-permissions", PERMISSIONS_TOPIC),
    ("--debug", "`--verbose`, or NANOBOT_LOG=debug"),
    ("--disallowed-tools", "`--deny RULE`, or `--disabled-tools LIST`"),
    ("--disallowedTools", "`--deny RULE`, or `--disabled-tools LIST`"),
    ("--full-auto", PERMISSIONS_TOPIC),
    ("--include-directories", PERMISSIONS_TOPIC),
    ("--input-format", "nanobot serve pipe, which reads messages as JSON lines"),
    (
        "--install-completion",
        "nanobot completions bash, or zsh, or fish: a script for that shell to load",
    ),
    ("--list-models", "nanobot model list"),
    ("--list-sessions", "nanobot session list"),
    ("--log-level", "`--verbose`, or NANOBOT_LOG=debug"),
    ("--no-color", "`--color never`"),
    ("--no-session-persistence", "`--ephemeral`"),
    ("--output-last-message", "`> FILE`: standard output is the answer and nothing else"),
    ("--permission-mode", PERMISSIONS_TOPIC),
    ("--provider", "`--model PROVIDER/MODEL`"),
    ("--resume", "nanobot agent --resume, or nanobot repl --session KEY"),
    ("--session-id", "`--session KEY`"),
    ("--set", "nanobot config set KEY VALUE"),
    ("--show-completion", "nanobot completions bash, or zsh, or fish"),
    ("--skip-git-repo-check", "the same without it: a run works in any directory"),
    ("--stream-json", "`--output-format stream-json`"),
    ("--yolo", PERMISSIONS_TOPIC),
    ("ask", "nanobot agent -m TEXT"),
    ("auth", "nanobot model provider login"),
    ("channels", "`nanobot channel list`"),
    ("configure", "nanobot onboard"),
    ("cron rename", "nanobot cron edit JOB --name NAME"),
    ("continue", "nanobot agent --continue -m TEXT"),
    ("delete", "`rm`"),
    ("exec", "nanobot agent -m TEXT, or nanobot tool run exec JSON"),
    ("history", "nanobot session list"),
    ("hooks", "nanobot help hooks"),
    ("init", "nanobot onboard"),
    ("install", "nanobot onboard; for a skill nanobot skill add"),
    ("job", "nanobot cron"),
    ("jobs", "nanobot cron list"),
    ("keys", "nanobot model provider list"),
    ("logout", "nanobot model provider logout"),
    ("logs", "nanobot session show, or nanobot cron logs"),
    ("models", "nanobot model list"),
    ("permissions", "nanobot policy explain"),
    ("plugins", "nanobot tool list"),
    ("print", "nanobot agent -m TEXT"),
    ("memory add", MEMORY_ADVICE),
    ("memory set", MEMORY_ADVICE),
    ("prompt", "nanobot agent -m TEXT"),
    ("providers", "nanobot model provider list"),
    ("resume", "nanobot agent --resume, or nanobot repl --session KEY"),
    ("sessions", "nanobot session"),
    ("schedule", "nanobot cron add"),
    ("setup", "nanobot onboard"),
    ("skills", "nanobot skill list"),
    ("tools", "nanobot tool list"),
    ("topics", "`nanobot --help` for the topics"),
    ("trigger", "nanobot cron run JOB"),
    ("update", "the package manager that installed it"),
    ("upgrade", "the package manager that installed it"),
    ("version", "nanobot --version"),
    ("webui", "nanobot repl"),
];

/// Flags of turns in other agents, which may be something else in other commands, with their replacements.
const TURN_REPLACEMENTS: &[(&str, &str)] = &[
    ("--output", "`--json`, or `--output-format stream-json`"),
    ("-f", "`--attach FILE`"),
    ("-y", PERMISSIONS_TOPIC),
];

const MEMORY_ADVICE: &str =
    "`nanobot memory edit`, or tell the agent: `nanobot agent -m 'Remember that …'`";
const PERMISSIONS_TOPIC: &str =
    "nanobot help permissions: what a run may do, and what permits more";

fn suggest_replacement(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let unknown = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(unknown)) = error.get(unknown) else { return None };
    let first = arguments.get(1)?;
    // `--flag=value` is reported with its value.
    let unknown = unknown.split('=').next().unwrap_or_default();
    let of_turns = if names_turn(arguments) { TURN_REPLACEMENTS } else { &[] };
    let both = format!("{} {unknown}", first.to_string_lossy());
    let is_named = |name: &str| unknown == name || first == name || both == name;
    let (_, replacement) = REPLACEMENTS.iter().chain(of_turns).find(|(name, _)| is_named(name))?;
    Some((*replacement).to_owned())
}

/// Suggests a command, a flag or a value with almost the same spelling. A flag that permits more is never suggested, since the user
/// did not ask for it.
fn suggest_similar(error: &clap::Error) -> Option<String> {
    let pairs = [
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ];
    pairs.into_iter().find_map(|(invalid, suggested)| {
        let Some(ContextValue::String(typed)) = error.get(invalid) else { return None };
        let suggestions = match error.get(suggested)? {
            ContextValue::String(suggestion) => std::slice::from_ref(suggestion),
            ContextValue::Strings(suggestions) => suggestions.as_slice(),
            _ => return None,
        };
        let errors = |suggestion: &&String| strsim::osa_distance(typed, suggestion);
        let best = suggestions
            .iter()
            // One-letter aliases are similar to most words.
            .filter(|suggestion| suggestion.len() > 1)
            .filter(|suggestion| !PERMITTING_FLAGS.contains(&suggestion.as_str()))
            .min_by_key(errors)
            // In a short word, every letter counts.
            .filter(|best| {
                errors(best) <= MAX_TYPING_ERRORS.min(typed.trim_start_matches('-').len() / 3)
            })?;
        Some(format!("`{best}`"))
    })
}

/// The flags that permit more than a run without them may do.
const PERMITTING_FLAGS: [&str; 8] =
    ["--allow", "--mcp", "--net", "--profile", "--read", "--sandbox", "--send-keys", "--write"];
/// The number of letters that a misspelled word may lack, have too many, or have in another order.
const MAX_TYPING_ERRORS: usize = 2;

/// True if the command line runs turns.
fn names_turn(arguments: &[OsString]) -> bool {
    let command = arguments.get(1);
    command.is_some_and(|word| ["agent", "a", "repl", "run"].iter().any(|name| word == name))
}

/// The command that a command line names, as typed in full, and its arguments.
fn named_command(arguments: &[OsString]) -> (String, clap::Command) {
    named_command_in(command_tree(), arguments)
}

fn named_command_in(mut command: clap::Command, arguments: &[OsString]) -> (String, clap::Command) {
    command.build();
    let mut line = "nanobot".to_owned();
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        if let Some(below) = command.find_subcommand(word) {
            let below = below.clone();
            line = format!("{line} {}", below.get_name());
            command = below;
        }
    }
    (line, command)
}

/// Describes the flag whose value cannot be used.
fn describe_flag(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let (_, command) = named_command_in(command_tree_with_help(HelpLength::Long), arguments);
    let arg = command.get_arguments().find(|arg| arg.to_string() == *flag)?;
    Some(format!("`{flag}`: {}", arg.get_help()?))
}

/// Suggests the flag that `-c` is in other agents, if its value is missing here.
fn suggest_continue(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let is_config = error.get(ContextKind::InvalidArg).is_some_and(
        |arg| matches!(arg, ContextValue::String(flag) if flag.starts_with("--config")),
    );
    let is_short = arguments.iter().any(|argument| argument == "-c");
    (error.kind() == ErrorKind::InvalidValue && is_config && is_short && names_turn(arguments))
        .then(|| "`--continue` for the last session; `-c FILE` names a config".to_owned())
}

/// Suggests `--all` where a name is missing.
fn suggest_all(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let (line, command) = named_command(arguments);
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
    // `agent` takes the first word of a message before it finds the second.
    let follows_text = index > 2 && !arguments[index - 1].to_string_lossy().starts_with('-');
    let is_turn = is_agent && arguments[1] != "repl";
    let index = if is_turn && follows_text { index - 1 } else { index };
    let rest: Option<Vec<&str>> =
        arguments[index..].iter().map(|argument| argument.to_str()).collect();
    let rest = rest?;
    let resembles_command = suggest_similar(error).is_some();
    let has_flag = rest.iter().any(|argument| argument.starts_with('-'));
    if resembles_command || !(is_agent || index == 1) || has_flag {
        return None;
    }
    let message = quote(&rest.join(" "));
    let message = if message.contains('\'') { message } else { format!("'{message}'") };
    let command = format!("nanobot agent -m {message}");
    if arguments[1] == "repl" {
        return Some(format!("`nanobot repl`, and type it there; {command} answers once"));
    }
    // A single word is more likely a command that does not exist.
    Some(if is_agent || message.contains(' ') {
        command
    } else {
        format!("`nanobot --help`; as a message: {command}")
    })
}

/// True for `-x` with letters after it that are no short flags of a turn: `-xpython` would be `-x -p ython`.
pub(crate) fn is_extract_with_letters(argument: &OsString) -> bool {
    let letters = argument.to_str().and_then(|argument| argument.strip_prefix("-x"));
    letters.is_some_and(|letters| {
        letters.len() > 1
            && letters
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "+#-_.".contains(letter))
            && !letters.chars().all(|letter| "qvm".contains(letter))
    })
}

/// Suggests the form of `-x` with a language.
fn suggest_extract(arguments: &[OsString]) -> Option<String> {
    let argument = arguments.iter().find(|argument| is_extract_with_letters(argument))?;
    let language = argument.to_str()?.strip_prefix("-x")?;
    names_turn(arguments).then(|| format!("`-x={language}`"))
}

/// Flags whose value must be joined with `=`.
const JOINED_FLAGS: &[&str] = &["--write", "--net", "--dry-run", "--extract", "-x"];

/// The flag whose value `text` may be meant to be: a message of one word, or a path or a list of hosts with blanks, right after a flag
/// whose value must be joined. Taken as the message, it would leave the flag without its value, and `--write` and `--net` permit more then.
pub(super) fn flag_before_value<'a>(arguments: &'a [OsString], text: &str) -> Option<&'a str> {
    let is_word = |text: &str| !text.contains(char::is_whitespace);
    let is_path = || text.starts_with(['~', '.']) || Path::new(text).exists();
    let is_host = |item: &str| is_word(item) && item.contains(['.', ':']);
    let is_value = is_word(text) || is_path() || text.split(',').map(str::trim).all(is_host);
    let mut pairs = arguments.windows(2).filter(|_| is_value);
    pairs.find_map(|pair| {
        let flag = pair[0].to_str().filter(|flag| JOINED_FLAGS.contains(flag))?;
        (pair[1] == text).then_some(flag)
    })
}

/// The error about a message that may be the value of `flag`. The hint is the joined form.
pub(super) fn separate_value_error(flag: &str, text: &str) -> clap::Error {
    let cause = format!("`{text}` would be the message, not the value of `{flag}`");
    let mut error = clap::Error::raw(ErrorKind::ArgumentConflict, cause);
    error.insert(ContextKind::InvalidArg, ContextValue::String("[TEXT]".into()));
    error
}

/// Suggests the joined form for a flag whose value was given as a separate argument. `agent` takes that argument for its message, so
/// the error is about it, about the next one, or about the second message.
fn suggest_joined_flag(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(unexpected)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let (index, _) = arguments.windows(2).enumerate().find(|(_, pair)| {
        let is_joined = JOINED_FLAGS.iter().any(|flag| pair[0] == **flag);
        is_joined && !pair[1].to_string_lossy().starts_with('-')
    })?;
    let is_about_it = match error.kind() {
        ErrorKind::UnknownArgument => {
            let mut following = arguments[index + 1..].iter().take(2);
            !unexpected.starts_with('-')
                && following.any(|argument| argument == unexpected.as_str())
        }
        ErrorKind::ArgumentConflict => {
            let prior = error.get(ContextKind::PriorArg).map(ToString::to_string);
            prior.is_some_and(|prior| prior == "[TEXT]") || unexpected == "[TEXT]"
        }
        _ => false,
    };
    if !is_about_it {
        return None;
    }
    let following = arguments[index + 1..].iter().map_while(|word| word.to_str());
    let following: Vec<&str> = following.take_while(|word| !word.starts_with('-')).collect();
    let is_message = following.len() > 1 && !following.iter().any(|word| word.contains(' '));
    if is_message && names_turn(arguments) && arguments[1] != "run" {
        let flags: Option<Vec<&str>> =
            arguments[1..=index].iter().map(|word| word.to_str()).collect();
        return Some(format!("nanobot {} -m '{}'", flags?.join(" "), following.join(" ")));
    }
    let value = quote(arguments[index + 1].to_str()?);
    Some(format!("{}={value}", arguments[index].to_string_lossy()))
}

/// Converts an error about a line of the REPL. The usage does not fit there.
pub(super) fn to_error(error: &clap::Error) -> anyhow::Error {
    fail(Exit::Usage, cause(error))
}

/// The error of `nanobot gateway`, a command of the Python program.
pub(crate) fn no_gateway() -> anyhow::Error {
    fail(Exit::Usage, "there is no gateway: nanobot is not a server, and runs once for each message")
        .with_hint("`nanobot channel poll --wait 60` in a crontab line for chats, `nanobot cron` for jobs, `nanobot serve pipe` for programs")
}
