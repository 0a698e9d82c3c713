//! Parses the command line: with clap, or with a fast path for the most common ones.

use super::tree;
use super::usage_error::{flag_before_value, is_extract_with_letters, separate_value_error};
use crate::cli::agent::AgentArgs;
use crate::cli::cron::{CronCommand, CronRunArgs};
use crate::cli::grammar::{OLD_NAMES, SHORTCUTS};
use crate::cli::topics::find_topic;
use crate::cli::{Cli, CliCommand, GlobalArgs};
use crate::options::grants::SandboxMode;
use crate::options::turn::{DEFAULT_LOCK_TIMEOUT, SessionChoice, TurnOptions};
use clap::error::ErrorKind;
use clap::{FromArgMatches, ValueEnum};
use nanobot_base::message::user_text::UserText;
use nanobot_cron::job_store;
use nanobot_os::home::expand_argument;
use nanobot_os::terminal::Terminal;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Parses a command line.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    parse_fast(arguments).map_or_else(|| parse_with_clap(arguments), Ok)
}

/// The extent of the output of `--version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionDetail {
    /// The version.
    Short,
    /// The version, the build, and the layers of the sandbox that this system has.
    Long,
}

/// Parses `nanobot --version` and `nanobot --version --verbose`, without the command tree.
pub(crate) fn parse_version(arguments: &[OsString]) -> Option<VersionDetail> {
    let is_version = |argument: &OsString| argument == "--version" || argument == "-V";
    let is_verbose = |argument: &OsString| argument == "--verbose" || argument == "-v";
    match arguments {
        [_, flag] if is_version(flag) => Some(VersionDetail::Short),
        [_, version, verbose] | [_, verbose, version]
            if is_version(version) && is_verbose(verbose) =>
        {
            Some(VersionDetail::Long)
        }
        _ => None,
    }
}

/// Expands the shortcuts: `help COMMAND`, `help TOPIC`, `NOUN help`, short and old names of commands, a message without `agent`, `-v`
/// before a command or alone, and no arguments at all on a terminal.
pub(crate) fn expand_shortcut(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_alone = arguments.len() == 2;
    let Some(first) = arguments.get(1).map(|argument| argument.to_string_lossy()) else {
        if Terminal::is_interactive() {
            arguments.push("repl".into());
        }
        return arguments;
    };
    // The words to insert before the arguments, and the number of arguments that they replace.
    let (expansion, replaced): (&[&str], usize) = match &*first {
        "help" if is_topic(arguments.get(2)) || is_unknown(arguments.get(2)) => (&["topic"], 1),
        "help" => {
            arguments.remove(1);
            arguments.push("--help".into());
            replace_names(&mut arguments);
            return arguments;
        }
        "-v" | "--verbose" if is_alone => (&["--version"], 1),
        "-v" | "--verbose" => {
            let flag = arguments.remove(1);
            let mut arguments = expand_shortcut(arguments);
            // Turns take the flag. In front of any other command it is left in place, and is rejected.
            let is_turn = ["agent", "a", "repl"].iter().any(|name| arguments[1] == *name);
            arguments.insert(1 + usize::from(is_turn), flag);
            return arguments;
        }
        word if begins_message(word) => (&["agent"], 0),
        word if is_alone && word.contains(' ') && !word.starts_with('-') => {
            (&["agent", "--message"], 0)
        }
        _ => {
            replace_names(&mut arguments);
            if let Some(position) = position_of_help(&arguments) {
                arguments.remove(position);
                arguments.push("--help".into());
            }
            return arguments;
        }
    };
    arguments.splice(1..1 + replaced, expansion.iter().map(OsString::from));
    arguments
}

/// True for a flag that gives a message, as the first word of a line without a command.
fn begins_message(word: &str) -> bool {
    let (flag, _) = word.split_once('=').unwrap_or((word, ""));
    ["-m", "-p"].iter().any(|short| word.starts_with(short))
        || ["--message", "--print", "--prompt"].contains(&flag)
}

/// Replaces a short or an old name of a command. Global options may stand before and between its words.
pub(super) fn replace_names(arguments: &mut Vec<OsString>) {
    let first = 1 + count_global_options(arguments.get(1..).unwrap_or_default());
    let mut names = SHORTCUTS.iter().chain(OLD_NAMES);
    let replaced = names.find_map(|(name, replacement)| {
        positions_of_name(name, first, arguments).map(|positions| (positions, replacement))
    });
    if let Some((positions, replacement)) = replaced {
        for position in positions.iter().rev() {
            arguments.remove(*position);
        }
        arguments.splice(first..first, replacement.split(' ').map(OsString::from));
    }
}

/// The positions of the words of `name`, if `arguments` have them from `first` on.
fn positions_of_name(name: &str, first: usize, arguments: &[OsString]) -> Option<Vec<usize>> {
    let mut name_words = name.split(' ');
    // This ends most comparisons; every run makes them.
    if arguments.get(first)? != name_words.next()? {
        return None;
    }
    let mut positions = vec![first];
    for word in name_words {
        let next = positions.last()? + 1;
        let rest = arguments.get(next..)?;
        let position = if word.starts_with('-') {
            rest.iter().position(|argument| argument == word)?
        } else {
            count_global_options(rest)
        };
        if rest.get(position)? != word {
            return None;
        }
        positions.push(next + position);
    }
    Some(positions)
}

/// The number of arguments at the start that are options of every command, or values of such.
fn count_global_options(arguments: &[OsString]) -> usize {
    let mut count = 0;
    while let Some(argument) = arguments.get(count).and_then(|argument| argument.to_str()) {
        count += match argument {
            "--config" | "--workspace" | "--color" => 2,
            "--plain" | "--quiet" => 1,
            _ if argument.starts_with("--") => match argument.split_once('=') {
                Some(("--config" | "--workspace" | "--color", _)) => 1,
                _ => break,
            },
            // The value of an option is in the same argument or the next one.
            _ => match argument.strip_prefix('-').map(|letters| letters.trim_start_matches('q')) {
                Some("c" | "w") => 2,
                Some(letters) if letters.is_empty() || letters.starts_with(['c', 'w']) => 1,
                _ => break,
            },
        };
    }
    count
}

/// The position of the word `help` after a command with subcommands, or after a turn, where it is not a name.
fn position_of_help(arguments: &[OsString]) -> Option<usize> {
    let position = 2 + arguments.iter().skip(2).position(|argument| argument == "help")?;
    let mut names = arguments[1..position].iter().map(|name| name.to_string_lossy());
    let is_help = match &arguments[1..position] {
        [name] if name == "agent" || name == "a" => true,
        _ => {
            let mut tree = tree::command_tree();
            tree.build();
            let command = names.try_fold(&tree, |command, name| command.find_subcommand(&*name));
            command.is_some_and(clap::Command::has_subcommands)
        }
    };
    is_help.then_some(position)
}

fn is_topic(word: Option<&OsString>) -> bool {
    word.and_then(|word| word.to_str()).is_some_and(|word| find_topic(word).is_ok())
}

/// True for a word that is neither a command nor a flag. After `help` it is treated as a topic, so that the error lists the topics.
fn is_unknown(word: Option<&OsString>) -> bool {
    let Some(word) = word.and_then(|word| word.to_str()) else {
        return false;
    };
    let mut names = SHORTCUTS.iter().chain(OLD_NAMES);
    let is_name = names.any(|(name, _)| name.split(' ').next() == Some(word));
    !word.starts_with('-') && !is_name && tree::command_tree().find_subcommand(word).is_none()
}

fn parse_with_clap(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = tree::command_tree().try_get_matches_from(arguments)?;
    let cli = Cli::from_arg_matches(&matches)?;
    let output = match &cli.command {
        CliCommand::Agent(agent) => Some(&agent.turn.output),
        CliCommand::Run(run) => Some(&run.turn.output),
        _ => None,
    };
    let has_extract = output.is_some_and(|output| output.extract.is_some());
    if has_extract && let Some(word) = arguments.iter().find(|word| is_extract_with_letters(word)) {
        let cause = format!("`{}`: the language of `-x` stands after a `=`", word.display());
        return Err(clap::Error::raw(ErrorKind::UnknownArgument, cause));
    }
    if let CliCommand::Agent(agent) = &cli.command
        && let Some(text) = &agent.text
        && let Some(flag) = flag_before_value(arguments, text.as_str())
    {
        return Err(separate_value_error(flag, text.as_str()));
    }
    Ok(cli)
}

/// The field of the parsed arguments that a flag sets.
enum FlagField<'a> {
    Flag(&'a mut bool),
    Message(&'a mut Option<UserText>),
    Text(&'a mut Option<String>),
    Path(&'a mut Option<PathBuf>),
    Sandbox(&'a mut Option<SandboxMode>),
}

/// Parses the most common command lines of scripts and cron: a turn with its usual flags, and a crontab line. Returns what
/// [`parse_with_clap`] would return, or `None` for anything else, such as a repeated flag or a value that may be a flag. Building
/// the command tree takes a tenth of the time of a turn, and most of the time of a crontab line, which cron starts every minute.
fn parse_fast(arguments: &[OsString]) -> Option<Cli> {
    let (_, mut rest) = arguments.split_first()?;
    let mut global = GlobalArgs::default();
    let mut turn: Option<TurnOptions> = None;
    while let Some((argument, after)) = rest.split_first() {
        rest = after;
        let field = match argument.to_str()? {
            "agent" | "a" if turn.is_none() => {
                turn = Some(TurnOptions {
                    session: SessionChoice {
                        lock_timeout: DEFAULT_LOCK_TIMEOUT,
                        ..SessionChoice::default()
                    },
                    ..TurnOptions::default()
                });
                continue;
            }
            "cron" if turn.is_none() => return parse_cron_line(global, rest),
            "-q" | "--quiet" => FlagField::Flag(&mut global.quiet),
            "-c" | "--config" => FlagField::Path(&mut global.config),
            "-w" | "--workspace" => FlagField::Path(&mut global.workspace),
            flag => turn_field(flag, turn.as_mut()?)?,
        };
        rest = field.fill(rest)?;
    }
    let command = CliCommand::Agent(Box::new(AgentArgs { turn: turn?, ..AgentArgs::default() }));
    Some(Cli { global, command })
}

/// The field that `flag` sets. Only flags that neither exclude nor override each other are here.
fn turn_field<'a>(flag: &str, turn: &'a mut TurnOptions) -> Option<FlagField<'a>> {
    Some(match flag {
        "-m" | "--message" => FlagField::Message(&mut turn.input.message),
        "-s" | "--session" => FlagField::Text(&mut turn.session.key),
        "--new" => FlagField::Flag(&mut turn.session.new),
        "--ephemeral" => FlagField::Flag(&mut turn.session.ephemeral),
        "--json" => FlagField::Flag(&mut turn.output.json),
        "-v" | "--verbose" => FlagField::Flag(&mut turn.output.verbose),
        "--model" => FlagField::Text(&mut turn.model.name),
        "--no-stream" => FlagField::Flag(&mut turn.model.no_stream),
        "--send-keys" => FlagField::Flag(&mut turn.model.send_keys),
        "--schema" => FlagField::Text(&mut turn.schema),
        "--profile" => FlagField::Text(&mut turn.grants.profile),
        "--no-tools" => FlagField::Flag(&mut turn.grants.no_tools),
        "-C" | "--directory" => FlagField::Path(&mut turn.grants.directory),
        "--sandbox" => FlagField::Sandbox(&mut turn.grants.sandbox),
        "--offline" => FlagField::Flag(&mut turn.limits.offline),
        "--strict" => FlagField::Flag(&mut turn.limits.strict),
        "--no-stdin" => FlagField::Flag(&mut turn.stdin.no_stdin),
        "--replay" => FlagField::Path(&mut turn.recording.replay),
        _ => return None,
    })
}

impl FlagField<'_> {
    /// Sets the field from the arguments after the flag, and returns the rest of them. Returns `None` if the value is not valid, or
    /// the field was set before.
    fn fill(self, rest: &[OsString]) -> Option<&[OsString]> {
        if let Self::Flag(field) = self {
            return (!std::mem::replace(field, true)).then_some(rest);
        }
        let (value, rest) = rest.split_first()?;
        let value = value.to_str().filter(|value| !value.starts_with('-'))?;
        let is_first = match self {
            Self::Flag(_) => false,
            Self::Message(field) => field.replace(UserText::typed(value)).is_none(),
            Self::Text(field) => field.replace(value.to_owned()).is_none(),
            Self::Path(field) => {
                let path = expand_argument(Path::new(value)).ok()?;
                !value.is_empty() && field.replace(path).is_none()
            }
            Self::Sandbox(field) => {
                let mode = SandboxMode::from_str(value, false).ok()?;
                field.replace(mode).is_none()
            }
        };
        is_first.then_some(rest)
    }
}

/// Parses the rest of a crontab line, or of a line of `cron run --due`, after `cron`: `run ID --scheduled [--no-notify]`.
fn parse_cron_line(global: GlobalArgs, rest: &[OsString]) -> Option<Cli> {
    let [run, id, scheduled, flags @ ..] = rest else {
        return None;
    };
    let no_notify = flags == ["--no-notify"];
    if run != "run" || scheduled != "--scheduled" || !(flags.is_empty() || no_notify) {
        return None;
    }
    let id = id.to_str().filter(|id| job_store::is_valid_id(id))?;
    let arguments = CronRunArgs {
        job: Some(id.to_owned()),
        scheduled: true,
        no_notify,
        ..CronRunArgs::default()
    };
    Some(Cli { global, command: CliCommand::Cron { command: CronCommand::Run(arguments) } })
}

/// A command line without its values, as a panic report may contain it.
pub(crate) fn describe_command_line(arguments: &[OsString]) -> String {
    let mut tree = tree::command_tree();
    tree.build();
    let mut arguments = arguments.to_vec();
    replace_names(&mut arguments);
    let mut command = &tree;
    let mut description = tree.get_name().to_owned();
    for argument in arguments.iter().skip(1) {
        let text = argument.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        let flag = command.get_arguments().find(|flag| {
            let is_long = flag.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long));
            let letter = name.strip_prefix('-').and_then(|letters| letters.chars().next());
            is_long || (letter.is_some() && flag.get_short() == letter)
        });
        description.push(' ');
        if let Some(flag) = flag {
            description.push_str("--");
            description.push_str(flag.get_long().unwrap_or_else(|| flag.get_id().as_str()));
        } else if let Some(subcommand) = command.find_subcommand(&*text) {
            command = subcommand;
            description.push_str(command.get_name());
        } else {
            description.push('…');
        }
    }
    description
}

#[cfg(test)]
mod tests {
    use super::{describe_command_line, expand_shortcut, parse_fast, parse_with_clap};
    use std::ffi::OsString;

    #[test]
    fn a_description_has_flags_and_no_values() {
        let check = |line: &str, expect: &str| {
            let arguments: Vec<OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(describe_command_line(&arguments), expect);
        };
        check("nanobot agent -m secret --json", "nanobot agent --message … --json");
        check("nanobot a -msecret", "nanobot agent --message");
        check("nanobot agent --message=secret", "nanobot agent --message");
        check("nanobot session show diary", "nanobot session show …");
        check("nanobot -q memory consolidate", "nanobot --quiet memory consolidate");
        check("nanobot -c secret provider show x", "nanobot --config … model provider show …");
        check("nanobot --sk-live-0123", "nanobot …");
        check("nanobot", "nanobot");
    }

    /// Returns true if the fast path takes the arguments. Then clap must return the same.
    fn takes_fast_path(arguments: &[&str]) -> bool {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let Some(cli) = parse_fast(&arguments) else {
            return false;
        };
        let expect =
            parse_with_clap(&arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        assert_eq!(format!("{cli:?}"), format!("{expect:?}"), "{arguments:?}");
        true
    }

    #[test]
    fn common_lines_take_the_fast_path() {
        let check = |line: &str, expect: bool| {
            let arguments: Vec<&str> = line.split(' ').collect();
            assert_eq!(takes_fast_path(&arguments), expect, "{line}");
        };
        check("nanobot agent -m hello", true);
        check("nanobot a -m hello -s work -q", true);
        check("nanobot -c c agent --json --sandbox off -m hello", true);
        check("nanobot agent", true);
        check("nanobot agent -m -x", false);
        check("nanobot agent --message=hello", false);
        check("nanobot agent -m a -m b", false);
        check("nanobot agent --resume", false);
        check("nanobot -m hello", false);
        check("nanobot cron run 0a1b2c3d --scheduled", true);
        check("/usr/bin/nanobot cron run heartbeat --scheduled", true);
        check("nanobot cron run 0a1b2c3d --scheduled --no-notify", true);
        check("nanobot cron run 0a1b2c3d --scheduled --no-after", false);
        check("nanobot -c /a/b.json cron run a-b_c --scheduled", true);
        check("nanobot -w w -c c cron run 0a1b2c3d --scheduled", true);
        check("nanobot -c -w w cron run 0a1b2c3d --scheduled", false);
        check("nanobot -c  cron run 0a1b2c3d --scheduled", false);
        check("nanobot cron run --due --scheduled", false);
        check("nanobot cron run a.b --scheduled", false);
        check("nanobot cron run 0a1b2c3d --as-cron", false);
        check("nanobot cron run --scheduled 0a1b2c3d", false);
        check("nanobot cron run", false);
        check("nanobot", false);
    }

    #[test]
    fn shortcuts_are_expanded() {
        let check = |arguments: &[&str], expect: &[&str]| {
            let arguments = std::iter::once("nanobot").chain(arguments.iter().copied());
            let expanded = expand_shortcut(arguments.map(OsString::from).collect());
            assert_eq!(expanded[1..], expect.iter().map(OsString::from).collect::<Vec<_>>());
        };
        check(&["help", "cron", "add"], &["cron", "add", "--help"]);
        check(&["help", "scripting"], &["topic", "scripting"]);
        check(&["cron", "help"], &["cron", "--help"]);
        check(&["cron", "help", "add"], &["cron", "add", "--help"]);
        check(&["agent", "help"], &["agent", "--help"]);
        check(&["-p", "hello"], &["agent", "-p", "hello"]);
        check(&["--print=hello"], &["agent", "--print=hello"]);
        check(&["--prompt-file", "x"], &["--prompt-file", "x"]);
        check(&["--plain"], &["--plain"]);
        check(&["help", "nosuch"], &["topic", "nosuch"]);
        check(&["help"], &["--help"]);
        check(&["doctor", "--offline"], &["status", "check", "--offline"]);
        check(&["status", "--json", "--check"], &["status", "check", "--json"]);
        check(&["mcp", "test", "test"], &["mcp", "check", "test"]);
        check(&["channels", "test", "x"], &["channel", "check", "x"]);
        check(&["help", "mcp", "test"], &["mcp", "check", "--help"]);
        check(&["channel", "pair", "help"], &["channel", "pair", "--help"]);
        check(&["channel", "show", "help"], &["channel", "show", "help"]);
        // The value of an option is not a name.
        check(&["-q", "-c", "ls", "ls"], &["-q", "-c", "ls", "session", "list"]);
        check(&["-qwls", "--color=ls", "ls"], &["-qwls", "--color=ls", "session", "list"]);
        check(&["mcp", "--config", "f", "test"], &["mcp", "check", "--config", "f"]);
        check(&["-q", "-m", "ls"], &["-q", "-m", "ls"]);
        check(&["--", "ls"], &["--", "ls"]);
        check(&["ls", "a*"], &["session", "list", "a*"]);
        check(&["login", "x"], &["model", "provider", "login", "x"]);
        check(&["provider", "help"], &["model", "provider", "--help"]);
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

    #[test]
    fn fuzz_the_fast_path_reads_what_clap_reads() {
        const PARTS: &[&str] = &[
            "agent",
            "a",
            "agent -m",
            "-m hello",
            "-m ",
            "-m -",
            "--message --json",
            "--message=x",
            "-mx",
            "-s k",
            "--session k",
            "-s ",
            "--new",
            "--resume",
            "--fork k",
            "--ephemeral",
            "--wait 5",
            "--json",
            "--output-format json",
            "-v",
            "--verbose",
            "-qv",
            "-q",
            "--quiet",
            "-c f",
            "-c ",
            "--config f",
            "-w d",
            "--workspace d",
            "--color never",
            "--model m",
            "--mod m",
            "--no-stream",
            "--send-keys",
            "--schema s",
            "--profile p",
            "--no-tools",
            "--tools a,b",
            "-C d",
            "--directory ",
            "--sandbox off",
            "--sandbox OFF",
            "--sandbox strict",
            "--offline",
            "--strict",
            "--no-stdin",
            "--stdin",
            "--replay f",
            "--record f",
            "--dry-run",
            "--timeout 5m",
            "--",
            "word",
            "-h",
            "-V",
            "cron run 0a1b2c3d --scheduled",
            "cron list",
        ];
        let mut fast = 0;
        nanobot_base::fuzz::check(&[b"0123456789"], |_, random| {
            let mut arguments = vec!["nanobot"];
            for index in 0..random.below(7) {
                let part = match (index, random.below(2)) {
                    (0, 0) => "agent",
                    _ => PARTS[random.below(PARTS.len())],
                };
                arguments.extend(part.split(' '));
            }
            fast += usize::from(takes_fast_path(&arguments));
        });
        assert!(fast > 100, "{fast}");
    }
}
