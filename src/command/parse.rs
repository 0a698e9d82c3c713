//! Parses the command line: with clap, or with a fast path for what is started most.

use super::tree;
use crate::cli::agent::AgentArgs;
use crate::cli::cron::{CronCommand, CronRunArgs};
use crate::cli::grammar::SHORTCUTS;
use crate::cli::topics::find_topic;
use crate::cli::{Cli, CliCommand, GlobalArgs};
use crate::options::grants::SandboxMode;
use crate::options::turn::{DEFAULT_LOCK_TIMEOUT, SessionChoice};
use clap::{FromArgMatches, ValueEnum};
use nanobot_base::message::user_text::UserText;
use nanobot_cron::job_store;
use nanobot_os::home::expand_argument;
use nanobot_os::terminal::Terminal;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Parses a command line.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    parse_everyday(arguments).map_or_else(|| parse_with_clap(arguments), Ok)
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

fn parse_with_clap(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = tree::command_tree().try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches)
}

/// Where the value of a flag goes.
enum Place<'a> {
    Flag(&'a mut bool),
    Message(&'a mut Option<UserText>),
    Text(&'a mut Option<String>),
    Path(&'a mut Option<PathBuf>),
    Sandbox(&'a mut Option<SandboxMode>),
}

/// Parses what scripts and cron start most: a turn with its usual flags, and a crontab line. Returns what
/// [`parse_with_clap`] would, or `None` for anything else, such as a repeated flag or a value that may be one. Building
/// the command tree costs a tenth of a turn, and most of the check of a crontab line, which cron starts every minute.
fn parse_everyday(arguments: &[OsString]) -> Option<Cli> {
    let (_, mut rest) = arguments.split_first()?;
    let mut shared = GlobalArgs::default();
    let mut agent: Option<Box<AgentArgs>> = None;
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        let place = match word.to_str()? {
            "agent" | "a" if agent.is_none() => {
                agent = Some(Box::new(AgentArgs {
                    session: SessionChoice {
                        lock_timeout: DEFAULT_LOCK_TIMEOUT,
                        ..SessionChoice::default()
                    },
                    ..AgentArgs::default()
                }));
                continue;
            }
            "cron" if agent.is_none() => return parse_cron_line(shared, rest),
            "-q" | "--quiet" => Place::Flag(&mut shared.quiet),
            "-c" | "--config" => Place::Path(&mut shared.config),
            "-w" | "--workspace" => Place::Path(&mut shared.workspace),
            flag => place_of(flag, agent.as_mut()?)?,
        };
        rest = place.fill(rest)?;
    }
    let command = CliCommand::Agent(agent?);
    Some(Cli { shared, command })
}

/// Flags that neither exclude nor override each other.
fn place_of<'a>(flag: &str, agent: &'a mut AgentArgs) -> Option<Place<'a>> {
    Some(match flag {
        "-m" | "--message" => Place::Message(&mut agent.input.message),
        "-s" | "--session" => Place::Text(&mut agent.session.key),
        "--new" => Place::Flag(&mut agent.session.new),
        "--ephemeral" => Place::Flag(&mut agent.session.ephemeral),
        "--json" => Place::Flag(&mut agent.output.json),
        "-v" | "--verbose" => Place::Flag(&mut agent.output.verbose),
        "--model" => Place::Text(&mut agent.model.name),
        "--no-stream" => Place::Flag(&mut agent.model.no_stream),
        "--send-keys" => Place::Flag(&mut agent.model.send_keys),
        "--schema" => Place::Text(&mut agent.schema),
        "--profile" => Place::Text(&mut agent.grants.profile),
        "--no-tools" => Place::Flag(&mut agent.grants.no_tools),
        "-C" | "--directory" => Place::Path(&mut agent.grants.directory),
        "--sandbox" => Place::Sandbox(&mut agent.grants.sandbox),
        "--offline" => Place::Flag(&mut agent.limits.offline),
        "--strict" => Place::Flag(&mut agent.limits.strict),
        "--no-stdin" => Place::Flag(&mut agent.stdin.no_stdin),
        "--replay" => Place::Path(&mut agent.recording.replay),
        _ => return None,
    })
}

impl Place<'_> {
    /// Takes the value from the arguments after the flag, and returns the rest. Each place is filled once.
    fn fill(self, rest: &[OsString]) -> Option<&[OsString]> {
        if let Self::Flag(place) = self {
            return (!std::mem::replace(place, true)).then_some(rest);
        }
        let (value, rest) = rest.split_first()?;
        let value = value.to_str().filter(|value| !value.starts_with('-'))?;
        let is_first = match self {
            Self::Flag(_) => false,
            Self::Message(place) => place.replace(UserText::typed(value)).is_none(),
            Self::Text(place) => place.replace(value.to_owned()).is_none(),
            Self::Path(place) => {
                let path = expand_argument(Path::new(value)).ok()?;
                !value.is_empty() && place.replace(path).is_none()
            }
            Self::Sandbox(place) => {
                let value = SandboxMode::from_str(value, false).ok()?;
                place.replace(value).is_none()
            }
        };
        is_first.then_some(rest)
    }
}

/// The rest of a crontab line, after `cron`.
fn parse_cron_line(shared: GlobalArgs, rest: &[OsString]) -> Option<Cli> {
    let [run, id, scheduled] = rest else {
        return None;
    };
    let is_line = run == "run" && scheduled == "--scheduled";
    let id = id.to_str().filter(|id| job_store::is_valid_id(id))?;
    is_line.then(|| Cli {
        shared,
        command: CliCommand::Cron {
            command: CronCommand::Run(CronRunArgs {
                job: Some(id.to_owned()),
                scheduled: true,
                ..CronRunArgs::default()
            }),
        },
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
    use super::{describe_command_line, expand_shortcut, parse_everyday, parse_with_clap};
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

    /// Returns true if the fast path takes the line; then clap must read the same.
    fn is_everyday(words: &[&str]) -> bool {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let Some(cli) = parse_everyday(&words) else {
            return false;
        };
        let expect = parse_with_clap(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert_eq!(format!("{cli:?}"), format!("{expect:?}"), "{words:?}");
        true
    }

    #[test]
    fn everyday_lines_take_the_fast_path() {
        let check = |line: &str, expect: bool| {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(is_everyday(&words), expect, "{line}");
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
        let mut everyday = 0;
        nanobot_base::fuzz::check(&[b"0123456789"], |_, random| {
            let mut words = vec!["nanobot"];
            for index in 0..random.below(7) {
                let part = match (index, random.below(2)) {
                    (0, 0) => "agent",
                    _ => PARTS[random.below(PARTS.len())],
                };
                words.extend(part.split(' '));
            }
            everyday += usize::from(is_everyday(&words));
        });
        assert!(everyday > 100, "{everyday}");
    }
}
