//! Completions and hints of the line editor: slash commands with their arguments, and files after `@`.
//!
//! Names that change, such as those of sessions, are read when Tab is pressed. Hints do not read them, since they are
//! computed at each key.

use crate::ops::context::Context;
use crate::ops::server_content::{self, OfferedContent};
use crate::ops::slash_commands::{self, ArgKind, EFFORT_LEVELS, SlashCommand};
use crate::ops::user_commands::{self, UserCommand};
use crate::ops::{agent_turn, profiles, skills};
use crate::options::grants::Grants;
use crate::options::turn::TurnOptions;
use crate::repl::editor::{Candidate, CompletionSource, Editor};
use anyhow::Result;
use nanobot_config::policy::profile;
use nanobot_config::settings::Config;
use nanobot_model::provider::registry::model_info::{MODELS, ModelInfo};
use nanobot_model::provider::registry::normalize_name;
use nanobot_store::session;
use nanobot_store::skill::Skill;
use std::path::{Path, PathBuf};

/// Creates the line editor of a conversation with its completions.
pub(super) fn editor(ctx: &Context, options: &TurnOptions, uses_vi_keys: bool) -> Result<Editor> {
    let directory = turn_directory(&options.grants);
    let (sessions, models, profiles, skill_context) =
        (ctx.clone(), ctx.clone(), ctx.clone(), ctx.clone());
    let (commands, resources) = (ctx.clone(), ctx.clone());
    let (skill_options, model_options) = (options.clone(), options.clone());
    let completer = Completer {
        sessions: Box::new(move || all_sessions(&sessions).unwrap_or_default()),
        models: Box::new(move || all_models(&models, &model_options)),
        profiles: Box::new(move || all_profiles(&profiles)),
        skills: Box::new(move || {
            let skills = skills::for_turn(&skill_context, &skill_options).unwrap_or_default();
            let candidate =
                |skill: Skill| Candidate { text: skill.name, description: skill.description };
            skills.skills.into_iter().map(candidate).collect()
        }),
        commands: Box::new(move || {
            let candidate = |command: UserCommand| Candidate {
                text: command.name,
                description: command.description,
            };
            let own = user_commands::list(&commands).into_iter().map(candidate);
            own.chain(server_content::offered_prompts(&commands).into_iter().map(to_candidate))
                .collect()
        }),
        resources: Box::new(move || {
            server_content::offered_resources(&resources).into_iter().map(to_candidate).collect()
        }),
        directory,
        home: ctx.paths.home.clone(),
    };
    Editor::new(&ctx.env, ctx.terminal, ctx.paths.history(), Box::new(completer), uses_vi_keys)
}

/// The working directory of turns with these grants.
pub(super) fn turn_directory(grants: &Grants) -> PathBuf {
    let current_dir = || std::env::current_dir().unwrap_or_default();
    grants.directory.clone().unwrap_or_else(current_dir)
}

fn all_sessions(ctx: &Context) -> Result<Vec<Candidate>> {
    let settings = ctx.settings()?;
    let sessions = session::list(&ctx.session_store(&settings)?)?.sessions;
    let candidate = |summary: session::SessionSummary| Candidate {
        text: summary.key,
        description: summary.first_words,
    };
    Ok(sessions.into_iter().map(candidate).collect())
}

/// The presets of the config, and the models that the provider lists, or else the known ones of the provider.
fn all_models(ctx: &Context, options: &TurnOptions) -> Vec<Candidate> {
    let config = Config::load(&ctx.paths).ok();
    let presets = config.as_ref().and_then(|config| config.get_path("modelPresets")?.as_object());
    let names = presets.into_iter().flat_map(|presets| presets.keys().cloned());
    let presets =
        names.map(|name| Candidate { text: name, description: "a preset of the config".into() });
    let Ok(choice) = agent_turn::select_provider(ctx, options) else {
        return presets.collect();
    };
    let vendor = choice.provider.as_str();
    let mut names = agent_turn::list_models(ctx, options).unwrap_or_default();
    if names.is_empty() {
        let is_of_vendor =
            |model: &&ModelInfo| normalize_name(model.vendor) == normalize_name(vendor);
        names.extend(MODELS.iter().filter(is_of_vendor).map(|model| model.name.to_owned()));
    }
    let models = names.into_iter().map(|text| Candidate { text, description: vendor.to_owned() });
    presets.chain(models).collect()
}

/// The profiles of turns, both built-in ones and the user's own.
pub(super) fn all_profiles(ctx: &Context) -> Vec<Candidate> {
    let built_in = profile::BUILT_IN.iter().filter(|(name, _)| *name != "explore");
    let mut candidates: Vec<Candidate> = built_in
        .map(|(name, description)| Candidate {
            text: (*name).to_owned(),
            description: (*description).to_owned(),
        })
        .collect();
    for name in profiles::own_names(ctx) {
        if let Ok(Some(profile)) = profiles::find(ctx, &name)
            && profile.kind == profile::ProfileKind::Agent
        {
            candidates.push(Candidate { text: name, description: profile.description });
        }
    }
    candidates
}

/// A function that returns the names of one kind.
type CandidateSource = Box<dyn Fn() -> Vec<Candidate> + Send>;

/// Completes names. Each kind is read only when it is needed.
struct Completer {
    sessions: CandidateSource,
    models: CandidateSource,
    profiles: CandidateSource,
    skills: CandidateSource,
    /// The user's own commands, and the prompts of servers.
    commands: CandidateSource,
    /// The resources of servers, as `SERVER:URI`.
    resources: CandidateSource,
    /// The directory that file names are relative to.
    directory: PathBuf,
    /// The home directory, for `~`.
    home: PathBuf,
}

impl CompletionSource for Completer {
    fn complete(&self, line: &str, cursor: usize) -> (usize, Vec<Candidate>) {
        let head = &line[..cursor];
        match cursor_context(head) {
            CursorContext::Command => {
                let mut candidates = matching_commands(head);
                let is_built_in =
                    |name: &str| slash_commands::in_repl().any(|command| command.is_called(name));
                for candidate in (self.commands)().into_iter().chain((self.skills)()) {
                    let name = &candidate.text;
                    if name.starts_with(&head[1..]) && !is_built_in(name) {
                        candidates.push(Candidate { text: format!("/{name} "), ..candidate });
                    }
                }
                (0, candidates)
            }
            CursorContext::Argument(kind, start) => (start, self.arguments(kind, &head[start..])),
            CursorContext::File(start) => {
                let typed = &head[start..];
                let mut candidates = self.files(typed);
                if !typed.is_empty() {
                    let resources = (self.resources)().into_iter();
                    candidates.extend(resources.filter(|it| it.text.starts_with(typed)));
                }
                (start, candidates)
            }
            CursorContext::Other => (cursor, Vec::new()),
        }
    }

    fn hint(&self, line: &str, cursor: usize) -> Option<String> {
        (cursor == line.len()).then(|| command_hint(line)).flatten()
    }
}

impl Completer {
    fn arguments(&self, kind: ArgKind, typed: &str) -> Vec<Candidate> {
        let candidates = match kind {
            ArgKind::Session => (self.sessions)(),
            ArgKind::Model => (self.models)(),
            ArgKind::Profile => (self.profiles)(),
            ArgKind::Skill => (self.skills)(),
            ArgKind::Path => return self.files(typed),
            ArgKind::Effort => EFFORT_LEVELS.iter().map(|name| plain_candidate(*name)).collect(),
            ArgKind::OneOf(choices) => choices.iter().map(|name| plain_candidate(*name)).collect(),
            ArgKind::None | ArgKind::FreeText(_) => Vec::new(),
        };
        candidates.into_iter().filter(|candidate| candidate.text.starts_with(typed)).collect()
    }

    fn files(&self, typed: &str) -> Vec<Candidate> {
        let (folder, _) = split_path(typed);
        let folder = match folder.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => self.directory.join(folder),
        };
        file_candidates(&directory_entries(&folder), typed)
    }
}

/// The kind of text at the cursor.
#[derive(Debug, PartialEq, Eq)]
enum CursorContext {
    Command,
    /// The argument of a command, and its start as a byte offset.
    Argument(ArgKind, usize),
    /// The name of a file, and its start as a byte offset.
    File(usize),
    Other,
}

/// The kind of text at the end of `head`.
fn cursor_context(head: &str) -> CursorContext {
    if head.starts_with('/') && !head.contains('\n') {
        let Some(end) = head.find(' ') else {
            return CursorContext::Command;
        };
        let command = slash_commands::in_repl().find(|command| command.is_called(&head[1..end]));
        let start = head.len() - head[end..].trim_start().len();
        // Keys, models and profiles are single words.
        let is_open = !head[start..].contains(' ');
        return match command.map(|command| command.argument) {
            Some(kind @ ArgKind::Path) => CursorContext::Argument(kind, start),
            Some(ArgKind::FreeText(_)) => file_context(head),
            Some(kind) if is_open => CursorContext::Argument(kind, start),
            _ => CursorContext::Other,
        };
    }
    file_context(head)
}

/// Finds the start of a file name after `@` that extends to the end of `head`.
fn file_context(head: &str) -> CursorContext {
    for (offset, _) in head.rmatch_indices('@') {
        let previous = head[..offset].chars().next_back();
        let begins_word =
            previous.is_none_or(|letter| letter.is_whitespace() || "([{\"'".contains(letter));
        if !begins_word {
            continue;
        }
        let name = &head[offset + 1..];
        let is_open = match name.strip_prefix('"') {
            Some(quoted) => !quoted.contains(['"', '\n']),
            None => !name.contains(char::is_whitespace),
        };
        if is_open {
            return CursorContext::File(offset + 1);
        }
    }
    CursorContext::Other
}

/// The commands that begin with `typed`, which includes the slash.
fn matching_commands(typed: &str) -> Vec<Candidate> {
    let matches = slash_commands::in_repl().filter(|command| command.name.starts_with(&typed[1..]));
    let candidate = |command: &SlashCommand| Candidate {
        text: match command.argument {
            ArgKind::None => format!("/{}", command.name),
            _ => format!("/{} ", command.name),
        },
        description: command.description.into(),
    };
    matches.map(candidate).collect()
}

/// The rest of a command that is unambiguous, and its argument.
fn command_hint(line: &str) -> Option<String> {
    let line = line.strip_prefix('/')?;
    let (typed, after) = match line.split_once(' ') {
        Some((typed, after)) => (typed, Some(after)),
        None => (line, None),
    };
    if typed.is_empty() || after.is_some_and(|after| !after.is_empty()) {
        return None;
    }
    let exact = slash_commands::in_repl().find(|command| command.name == typed);
    let mut matches = slash_commands::in_repl()
        .filter(|command| after.is_none() && command.name.starts_with(typed));
    let only = match (matches.next(), matches.next()) {
        (Some(command), None) => Some(command),
        _ => None,
    };
    let command = exact.or(only)?;
    let (rest, label) = (&command.name[typed.len()..], command.argument.placeholder());
    let gap = if label.is_empty() || after.is_some() { "" } else { " " };
    Some(format!("{rest}{gap}{label}")).filter(|hint| !hint.is_empty())
}

fn to_candidate(offered: OfferedContent) -> Candidate {
    Candidate { text: offered.name, description: offered.description }
}

fn plain_candidate(text: impl Into<String>) -> Candidate {
    Candidate { text: text.into(), description: String::new() }
}

/// Maximum entries of a directory that are read, since the user waits.
const MAX_DIRECTORY_ENTRIES: usize = 20_000;

/// Splits the typed text into a directory and the start of a name in it. Drops an opening quote.
fn split_path(typed: &str) -> (&str, &str) {
    let typed = typed.strip_prefix('"').unwrap_or(typed);
    typed.split_at(typed.rfind('/').map_or(0, |at| at + 1))
}

/// An entry of a directory.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CompletedEntry {
    name: String,
    is_folder: bool,
}

/// The entries of a directory. An unreadable directory has none.
fn directory_entries(folder: &Path) -> Vec<CompletedEntry> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let entry = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_folder = match entry.file_type() {
            Ok(kind) if kind.is_symlink() => entry.path().is_dir(),
            kind => kind.is_ok_and(|kind| kind.is_dir()),
        };
        Some(CompletedEntry { name, is_folder })
    };
    entries.flatten().take(MAX_DIRECTORY_ENTRIES).filter_map(entry).collect()
}

/// The names that begin with the typed text. Names with a leading dot are included only if a dot was typed.
fn file_candidates(entries: &[CompletedEntry], typed: &str) -> Vec<Candidate> {
    let (folder, prefix) = split_path(typed);
    let is_match = |name: &str| {
        name.starts_with(prefix)
            && (prefix.starts_with('.') || !name.starts_with('.'))
            && name != ".git"
            // Skip names that cannot be quoted or displayed.
            && !name.contains(|letter: char| letter == '"' || letter.is_control())
    };
    let mut matches: Vec<&CompletedEntry> =
        entries.iter().filter(|entry| is_match(&entry.name)).collect();
    matches.sort();
    let candidate = |CompletedEntry { name, is_folder }: &CompletedEntry| {
        let slash = if *is_folder { "/" } else { "" };
        let path = format!("{folder}{name}{slash}");
        let is_quoted = typed.starts_with('"') || path.contains(char::is_whitespace);
        plain_candidate(if !is_quoted {
            path
        } else if *is_folder {
            // Leave the quote open after a directory, since the path continues.
            format!("\"{path}")
        } else {
            format!("\"{path}\"")
        })
    };
    matches.into_iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::slash_commands;
    use super::{
        ArgKind, CompletedEntry, Completer, CursorContext, command_hint, cursor_context,
        file_candidates, plain_candidate,
    };
    use crate::repl::editor::CompletionSource;
    use std::path::PathBuf;

    fn completer(directory: PathBuf) -> Completer {
        let names = |names: &'static [&'static str]| -> super::CandidateSource {
            Box::new(move || names.iter().map(|name| plain_candidate(*name)).collect())
        };
        Completer {
            sessions: names(&["cli:direct", "cli:work", "pipe:1"]),
            commands: names(&[]),
            resources: names(&["one:a://b"]),
            models: names(&["gpt-5", "claude-opus"]),
            profiles: names(&["plan", "full"]),
            skills: names(&["weather"]),
            home: directory.clone(),
            directory,
        }
    }

    #[test]
    fn the_text_at_the_cursor_has_a_kind() {
        let check = |head: &str, expect: CursorContext| {
            assert_eq!(cursor_context(head), expect, "{head:?}");
        };
        check("", CursorContext::Other);
        check("/", CursorContext::Command);
        check("/mod", CursorContext::Command);
        check("/model ", CursorContext::Argument(ArgKind::Model, 7));
        check("/model  gp", CursorContext::Argument(ArgKind::Model, 8));
        check("/model gpt x", CursorContext::Other);
        check("/nothing x", CursorContext::Other);
        check("/new x", CursorContext::Argument(ArgKind::None, 5));
        check("/save my no", CursorContext::Argument(ArgKind::Path, 6));
        check("/shell cat @src", CursorContext::File(12));
        check("what is / good for", CursorContext::Other);
        check("see @", CursorContext::File(5));
        check("see @src/li", CursorContext::File(5));
        check("(@a", CursorContext::File(2));
        check("see @a b", CursorContext::Other);
        check("see @\"a b", CursorContext::File(5));
        check("see @\"a b\" and", CursorContext::Other);
        check("me@home", CursorContext::Other);
        check("@one and @tw", CursorContext::File(10));
        check("first\n@tw", CursorContext::File(7));
    }

    #[test]
    fn commands_and_what_they_take_are_completed() {
        let completer = completer(PathBuf::from("/nowhere"));
        let check = |line: &str, start: usize, expect: &[&str]| {
            let (offset, candidates) = completer.complete(line, line.len());
            let texts: Vec<&str> = candidates.iter().map(|one| one.text.as_str()).collect();
            assert_eq!((offset, texts.as_slice()), (start, expect), "{line:?}");
        };
        check("/ses", 0, &["/sessions", "/session "]);
        check("/he", 0, &["/help "]);
        check("/none", 0, &[]);
        check("/session cli", 9, &["cli:direct", "cli:work"]);
        check("/session p", 9, &["pipe:1"]);
        check("/model c", 7, &["claude-opus"]);
        check("/profile ", 9, &["plan", "full"]);
        check("/memory s", 8, &["show", "search"]);
        check("/new x", 5, &[]);
        check("see @on", 5, &["one:a://b"]);
        check("hello", 5, &[]);
        // The commands, and the skills as commands.
        let skills = (completer.skills)().len();
        assert_eq!(completer.complete("/", 1).1.len(), slash_commands::in_repl().count() + skills);
        assert!(slash_commands::in_repl().all(|command| !command.description.is_empty()));
    }

    #[test]
    fn a_hint_says_what_is_left() {
        let check = |line: &str, expect: Option<&str>| {
            assert_eq!(command_hint(line).as_deref(), expect, "{line:?}");
        };
        check("", None);
        check("/", None);
        check("/m", None);
        check("/mo", Some("del [NAME]"));
        check("/model", Some(" [NAME]"));
        check("/model ", Some("[NAME]"));
        check("/model g", None);
        check("/he", Some("lp [COMMAND]"));
        check("/help", Some(" [COMMAND]"));
        check("/session", Some(" [KEY]"));
        check("/sh", Some("ell CMD"));
        check("hello", None);
    }

    #[test]
    fn files_are_completed() {
        let entries = [
            ("src", true),
            (".git", true),
            (".hidden", false),
            ("my notes.md", false),
            ("my folder", true),
            ("main.rs", false),
            ("bad\"name", false),
            ("bad\u{1b}name", false),
        ];
        let entries =
            entries.map(|(name, is_folder)| CompletedEntry { name: name.to_owned(), is_folder });
        let check = |typed: &str, expect: &[&str]| {
            let candidates = file_candidates(&entries, typed);
            let texts: Vec<&str> = candidates.iter().map(|one| one.text.as_str()).collect();
            assert_eq!(texts, expect, "{typed:?}");
        };
        check("m", &["main.rs", "\"my folder/", "\"my notes.md\""]);
        check("\"my n", &["\"my notes.md\""]);
        check("s", &["src/"]);
        check("\"s", &["\"src/"]);
        check("sub/m", &["sub/main.rs", "\"sub/my folder/", "\"sub/my notes.md\""]);
        check(".", &[".hidden"]);
        check("b", &[]);
        check("x", &[]);
    }

    #[test]
    fn a_huge_folder_is_listed_whole() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("sub")).unwrap();
        for number in 0..3000 {
            std::fs::write(temp.path().join(format!("sub/file{number}")), "").unwrap();
        }
        let completer = completer(temp.path().to_owned());
        let line = "look at @sub/file2";
        let (start, candidates) = completer.complete(line, line.len());
        assert_eq!((start, candidates.len()), (9, 1111));
        assert_eq!(completer.complete("/save ~/su", 10).1, [plain_candidate("~/sub/")]);
    }
}
