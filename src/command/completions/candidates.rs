//! The values of flags and arguments: sessions, jobs, models, names in the config. They are read only when the word at
//! the cursor needs them, and only from files: completion sends no request and changes nothing.

use crate::ops::completion_names::{NameCandidate, NameKind, NameSource};
use clap::{Arg, Command, ValueHint};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use std::sync::{Arc, OnceLock};

/// The type of a word. It decides whether this program or the shell completes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WordType {
    Values,
    Files,
    Directories,
}

/// The kind of an argument's value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ArgumentKind {
    Names(NameKind),
    Files,
    Directories,
}

/// The kind of value of an argument of the command at `path`, if known. It follows from the argument's name, so that new commands need no
/// entry here.
fn argument_kind(path: &[String], arg: &Arg) -> Option<ArgumentKind> {
    let command = path.last().map_or("", String::as_str);
    let family = path.iter().rev().nth(1).map_or(command, String::as_str);
    let kind = match (family, command, arg.get_id().as_str()) {
        ("session", "restore", "key") => NameKind::Trash,
        ("session", _, "key" | "keys" | "pattern") if command != "search" => NameKind::Sessions,
        ("config", _, "key") => NameKind::Keys,
        ("config", _, "value") => NameKind::KeyValues,
        ("cron", _, "job" | "jobs" | "after") => NameKind::Jobs,
        ("model", _, "name") => NameKind::Models,
        ("tool", "run", "name") => NameKind::ToolsAndServers,
        ("tool", "run", "tool") => NameKind::ServerTools,
        ("tool", _, "name") => NameKind::Tools,
        ("run", "run", "file") => NameKind::Prompts,
        ("skill", "new", "name") => return None,
        ("skill", _, "name") | (_, _, "skill") => NameKind::Skills,
        ("provider", "show", "name") => NameKind::Providers,
        ("provider", _, "name") => NameKind::Logins,
        ("mcp", _, "server" | "servers") => NameKind::Servers,
        ("mcp", "show" | "accept", "tool" | "tools") => NameKind::ServerTools,
        (_, _, "session" | "fork") => NameKind::Sessions,
        (_, _, "model" | "fallback") => NameKind::Models,
        (_, _, "provider") => NameKind::Providers,
        (_, _, "profile") => NameKind::Profiles,
        (_, _, "tool" | "tools" | "disabled_tools" | "allow" | "deny") => NameKind::Tools,
        (_, _, "channel") => NameKind::Channels,
        (_, _, "tz") => NameKind::Zones,
        (_, _, "replay") => NameKind::Cassettes,
        _ => {
            let names = arg.get_value_names().unwrap_or_default();
            let is_path = arg.get_value_hint() == ValueHint::AnyPath;
            return match names.first().map(|name| name.as_str()) {
                Some("DIR") => Some(ArgumentKind::Directories),
                Some(name) if is_path || name.contains("FILE") => Some(ArgumentKind::Files),
                _ => None,
            };
        }
    };
    Some(ArgumentKind::Names(kind))
}

/// Adds the possible values to the arguments of `command` and of all its subcommands.
pub(super) fn attach_candidates(mut command: Command, values: &Arc<ValueSource>) -> Command {
    command.build();
    attach_below(command, &mut Vec::new(), values)
}

fn attach_below(command: Command, path: &mut Vec<String>, values: &Arc<ValueSource>) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect();
    let mut command = command.mut_args(|arg| {
        let is_open = arg.get_action().takes_values() && arg.get_possible_values().is_empty();
        match argument_kind(path, &arg) {
            Some(kind) if is_open => {
                let values = Arc::clone(values);
                arg.add(ArgValueCandidates::new(move || values.candidates(kind)))
            }
            _ => arg,
        }
    });
    for name in names {
        path.push(name.clone());
        // Aliases of a command are accepted but not offered.
        command = command.mut_subcommand(name, |subcommand| {
            let aliases: Vec<String> = subcommand.get_all_aliases().map(str::to_owned).collect();
            attach_below(subcommand.alias(None::<&str>).aliases(aliases), path, values)
        });
        path.pop();
    }
    command
}

/// The source of all values, in the context of the typed line.
pub(super) struct ValueSource {
    names: NameSource,
    /// The type that the shell completes itself.
    word_type: OnceLock<WordType>,
}

impl ValueSource {
    /// Creates the source of the values whose names are in `names`.
    pub(super) fn new(names: NameSource) -> Self {
        Self { names, word_type: OnceLock::new() }
    }

    /// The type of the word at the cursor.
    pub(super) fn word_type(&self) -> WordType {
        self.word_type.get().copied().unwrap_or(WordType::Values)
    }

    fn candidates(&self, kind: ArgumentKind) -> Vec<CompletionCandidate> {
        let word_type = match kind {
            ArgumentKind::Files | ArgumentKind::Names(NameKind::Cassettes | NameKind::Prompts) => {
                Some(WordType::Files)
            }
            ArgumentKind::Directories => Some(WordType::Directories),
            ArgumentKind::Names(_) => None,
        };
        if let Some(word_type) = word_type {
            self.word_type.get_or_init(|| word_type);
        }
        let ArgumentKind::Names(kind) = kind else {
            return Vec::new();
        };
        let names = self.names.names(kind).into_iter();
        let candidate = |NameCandidate { name, help }| {
            let help = Some(help).filter(|help| !help.is_empty());
            CompletionCandidate::new(name).help(help.map(Into::into))
        };
        names.map(candidate).collect()
    }
}
