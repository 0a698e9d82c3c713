//! Parses the command line, with its short forms.

use super::tree;
use crate::cli::Cli;
use crate::cli::grammar::SHORTCUTS;
use crate::cli::topics::find_topic;
use crate::sys::terminal::Terminal;
use clap::FromArgMatches;
use std::ffi::OsString;

/// Parses a command line.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = tree::command_tree().try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches)
}

/// The extent of the output of `--version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionDetail {
    /// The version.
    Short,
    /// The build too, and what it finds on this system.
    Long,
}

/// Parses `nanobot --version` and `nanobot --version --verbose`, without the command tree.
pub(crate) fn parse_version(arguments: &[OsString]) -> Option<VersionDetail> {
    let is = |word: &OsString, long: &str, short: &str| word == long || word == short;
    match arguments {
        [_, one] if is(one, "--version", "-V") => Some(VersionDetail::Short),
        [_, one, other]
            if [(one, other), (other, one)]
                .iter()
                .any(|(one, other)| is(one, "--version", "-V") && is(other, "--verbose", "-v")) =>
        {
            Some(VersionDetail::Long)
        }
        _ => None,
    }
}

/// Expands the short ways in: `help COMMAND`, `help TOPIC`, `NOUN help`, the shortcuts of the grammar, a message without `agent`, `-v`
/// alone, and nothing at all on a terminal.
pub(crate) fn expand_shortcut(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_alone = arguments.len() == 2;
    let Some(first) = arguments.get(1).map(|word| word.to_string_lossy()) else {
        if Terminal::is_interactive() {
            arguments.push("repl".into());
        }
        return arguments;
    };
    let (whole, replaced): (&[&str], usize) = match &*first {
        "help" if is_topic(arguments.get(2)) || is_unknown(arguments.get(2)) => (&["topic"], 1),
        "help" => {
            arguments.remove(1);
            arguments.push("--help".into());
            return arguments;
        }
        "-v" | "--verbose" if is_alone => (&["--version"], 1),
        "-v" | "--verbose" => {
            let flag = arguments.remove(1);
            let mut arguments = expand_shortcut(arguments);
            // Only turns are verbose; other commands reject the flag.
            let is_turn = ["agent", "a", "repl"].iter().any(|name| arguments[1] == *name);
            arguments.insert(1 + usize::from(is_turn), flag);
            return arguments;
        }
        word if word.starts_with("-m") || word.starts_with("--message") => (&["agent"], 0),
        word if is_alone && word.contains(' ') && !word.starts_with('-') => {
            (&["agent", "--message"], 0)
        }
        word if arguments.get(2).is_some_and(|next| next == "help") && is_group(word) => {
            arguments.remove(2);
            arguments.push("--help".into());
            return arguments;
        }
        word => match SHORTCUTS.iter().find(|(short, _)| *short == word) {
            Some((_, whole)) => (whole, 1),
            None => return arguments,
        },
    };
    arguments.splice(1..1 + replaced, whole.iter().map(OsString::from));
    arguments
}

/// True for a command with commands of its own.
fn is_group(word: &str) -> bool {
    let mut tree = tree::command_tree();
    tree.build();
    let command = tree.find_subcommand(word);
    command.is_some_and(clap::Command::has_subcommands)
}

fn is_topic(word: Option<&OsString>) -> bool {
    word.and_then(|word| word.to_str()).is_some_and(|word| find_topic(word).is_ok())
}

/// True for a word that is neither a command nor a flag: what follows `help` is a topic then, and the error lists them.
fn is_unknown(word: Option<&OsString>) -> bool {
    let word = word.and_then(|word| word.to_str());
    word.is_some_and(|word| {
        let is_short = SHORTCUTS.iter().any(|(short, _)| *short == word);
        let tree = tree::command_tree();
        !word.starts_with('-') && !is_short && tree.find_subcommand(word).is_none()
    })
}

/// A command line without its values, as a panic report may contain it.
pub(crate) fn describe_command_line(arguments: &[OsString]) -> String {
    let mut tree = tree::command_tree();
    tree.build();
    let mut at = &tree;
    let mut words = vec![tree.get_name().to_owned()];
    for argument in arguments.iter().skip(1) {
        let text = argument.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        let flag = at.get_arguments().find_map(|known| {
            let long = known.get_long().filter(|long| name.strip_prefix("--") == Some(*long));
            let short = known.get_short().filter(|short| {
                let rest = name.strip_prefix('-');
                rest.is_some_and(|rest| rest.starts_with(*short))
            });
            long.is_some().then_some(known).or(short.map(|_| known))
        });
        words.push(match (flag, at.find_subcommand(&*text)) {
            (Some(flag), _) => {
                format!("--{}", flag.get_long().unwrap_or_else(|| flag.get_id().as_str()))
            }
            (None, Some(command)) => {
                at = command;
                command.get_name().to_owned()
            }
            (None, None) => "…".to_owned(),
        });
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{describe_command_line, expand_shortcut};
    use std::ffi::OsString;

    #[test]
    fn a_report_tells_flags_and_no_values() {
        let check = |line: &str, expect: &str| {
            let arguments: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(describe_command_line(&arguments), expect);
        };
        check("nanobot agent -m secret --json", "nanobot agent --message … --json");
        check("nanobot a -msecret", "nanobot agent --message");
        check("nanobot agent --message=secret", "nanobot agent --message");
        check("nanobot session show diary", "nanobot session show …");
        check("nanobot -q memory consolidate", "nanobot --quiet memory consolidate");
        check("nanobot --sk-live-0123", "nanobot …");
        check("nanobot", "nanobot");
    }

    #[test]
    fn short_ways_in_are_expanded() {
        let check = |words: &[&str], expect: &[&str]| {
            let given = std::iter::once("nanobot").chain(words.iter().copied());
            let expanded = expand_shortcut(given.map(OsString::from).collect());
            assert_eq!(expanded[1..], expect.iter().map(OsString::from).collect::<Vec<_>>());
        };
        check(&["help", "cron", "add"], &["cron", "add", "--help"]);
        check(&["help", "scripting"], &["topic", "scripting"]);
        check(&["cron", "help"], &["cron", "--help"]);
        check(&["cron", "help", "add"], &["cron", "add", "--help"]);
        check(&["agent", "help"], &["agent", "help"]);
        check(&["help", "nosuch"], &["topic", "nosuch"]);
        check(&["help"], &["--help"]);
        check(&["doctor", "--offline"], &["status", "--check", "--offline"]);
        check(&["ls", "a*"], &["session", "list", "a*"]);
        check(&["login", "x"], &["provider", "login", "x"]);
        check(&["chat"], &["repl"]);
        check(&["-m", "hello"], &["agent", "-m", "hello"]);
        check(&["-v", "agent", "-m", "x"], &["agent", "-v", "-m", "x"]);
        check(&["--verbose", "-m", "x"], &["agent", "--verbose", "-m", "x"]);
        check(&["-v", "hello there"], &["agent", "-v", "--message", "hello there"]);
        check(&["-v", "cron", "list"], &["-v", "cron", "list"]);
        check(&["-mhello"], &["agent", "-mhello"]);
        check(&["--message=hello"], &["agent", "--message=hello"]);
        check(&["hello there"], &["agent", "--message", "hello there"]);
        check(&["hello there", "-q"], &["hello there", "-q"]);
        check(&["--color always"], &["--color always"]);
        check(&["-v"], &["--version"]);
        check(&["-v", "agent"], &["agent", "-v"]);
        check(&["session", "ls"], &["session", "ls"]);
    }
}
