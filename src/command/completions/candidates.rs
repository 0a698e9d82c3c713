//! The values of flags and arguments: sessions, jobs, models, names in the config. They are read only when the word at
//! the cursor needs them, and only from files: completion sends no request and changes nothing.

use crate::mcp::cache::{CachedResult, McpCache};
use crate::mcp::protocol::{ServerFeatures, ToolInfo};
use crate::mcp::{sanitize, tool_name};
use crate::ops::context::Context;
use crate::ops::jobs::workspace_jobs;
use crate::ops::profiles;
use crate::ops::skills;
use crate::policy::profile;
use crate::policy::tool_names::TOOLS;
use crate::provider::login::Vendor;
use crate::provider::registry::{PROVIDERS, model_info::MODELS};
use crate::session;
use crate::settings::config_file;
use crate::settings::key_node::KeyNode;
use crate::settings::key_spelling::format_path;
use crate::settings::key_type::KeyType as Value;
use crate::settings::keys::{KEYS, KeySupport};
use crate::settings::servers::McpServer;
use crate::settings::{Config, FlagOverrides, Settings};
use crate::sys::clock;
use clap::{Arg, Command, ValueHint};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The type of a word, which decides if we or the shell complete it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WordType {
    Values,
    Files,
    Directories,
}

/// The kind of thing that a value names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NameKind {
    Sessions,
    Trash,
    Jobs,
    Models,
    Providers,
    Logins,
    Profiles,
    Tools,
    Servers,
    /// A tool of the server that the preceding word names.
    ServerTools,
    Skills,
    Keys,
    /// A value of the config key that the preceding word names.
    KeyValues,
    Channels,
    Zones,
    Cassettes,
    Files,
    Directories,
}

/// The kind of thing that an argument of the command at `path` names, if known. The argument's name decides, so that
/// new commands need no entry here.
fn name_kind(path: &[String], arg: &Arg) -> Option<NameKind> {
    let family = path.first().map_or("", String::as_str);
    let command = path.last().map_or("", String::as_str);
    let named = match (family, command, arg.get_id().as_str()) {
        ("session", "restore", "key") => NameKind::Trash,
        ("session", _, "key" | "keys" | "pattern") if command != "search" => NameKind::Sessions,
        ("config", _, "key") => NameKind::Keys,
        ("config", _, "value") => NameKind::KeyValues,
        ("cron", _, "job" | "jobs") => NameKind::Jobs,
        ("model", _, "name") => NameKind::Models,
        ("tool", _, "name") => NameKind::Tools,
        ("skill", "new", "name") => return None,
        ("skill", _, "name") => NameKind::Skills,
        ("provider", _, "name") => NameKind::Logins,
        ("mcp", _, "server" | "servers") => NameKind::Servers,
        ("mcp", "show" | "accept" | "call", "tool" | "tools") => NameKind::ServerTools,
        (_, _, "session" | "fork") => NameKind::Sessions,
        (_, _, "model") => NameKind::Models,
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
                Some("DIR") => Some(NameKind::Directories),
                Some(name) if is_path || name.contains("FILE") => Some(NameKind::Files),
                _ => None,
            };
        }
    };
    Some(named)
}

/// Adds the possible values to the arguments of `command` and of all its subcommands.
pub(super) fn attach_candidates(mut command: Command, names: &Arc<NameSource>) -> Command {
    command.build();
    attach_below(command, &mut Vec::new(), names)
}

fn attach_below(command: Command, path: &mut Vec<String>, names: &Arc<NameSource>) -> Command {
    let below: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let mut command = command.mut_args(|arg| {
        let takes_value = arg.get_action().takes_values();
        match name_kind(path, &arg).filter(|_| takes_value && arg.get_possible_values().is_empty())
        {
            None => arg,
            Some(kind) => {
                let names = Arc::clone(names);
                arg.add(ArgValueCandidates::new(move || names.candidates(kind)))
            }
        }
    });
    for name in below {
        path.push(name.clone());
        // Aliases of a command are accepted but not offered.
        command = command.mut_subcommand(name, |below| {
            let aliases: Vec<String> = below.get_all_aliases().map(str::to_owned).collect();
            attach_below(below.alias(None::<&str>).aliases(aliases), path, names)
        });
        path.pop();
    }
    command
}

/// The source of all names, in the context of the typed line.
pub(super) struct NameSource {
    ctx: Context,
    typed: Vec<String>,
    /// The type that the shell completes itself.
    word_type: OnceLock<WordType>,
}

type Candidates = Vec<CompletionCandidate>;

fn candidate(name: impl AsRef<str>, help: impl AsRef<str>) -> CompletionCandidate {
    let help = Some(help.as_ref()).filter(|help| !help.is_empty());
    CompletionCandidate::new(name.as_ref()).help(help.map(|help| help.to_owned().into()))
}

impl NameSource {
    /// Creates the source of names for a line whose words so far are `typed`.
    pub(super) fn new(ctx: Context, typed: Vec<String>) -> Self {
        Self { ctx, typed, word_type: OnceLock::new() }
    }

    /// The type of the word at the cursor.
    pub(super) fn word_type(&self) -> WordType {
        self.word_type.get().copied().unwrap_or(WordType::Values)
    }

    fn set_word_type(&self, wanted: WordType) -> Candidates {
        self.word_type.get_or_init(|| wanted);
        Vec::new()
    }

    fn candidates(&self, kind: NameKind) -> Candidates {
        match kind {
            NameKind::Sessions => self.sessions().unwrap_or_default(),
            NameKind::Trash => self.trash().unwrap_or_default(),
            NameKind::Jobs => self.jobs().unwrap_or_default(),
            NameKind::Models => self.models(),
            NameKind::Providers => self.providers(),
            NameKind::Logins => {
                Vendor::ALL.map(|vendor| candidate(vendor.provider_name(), "")).into()
            }
            NameKind::Profiles => self.profiles(),
            NameKind::Tools => self.tools(),
            NameKind::Servers => self.servers(),
            NameKind::ServerTools => self.server_tools(),
            NameKind::Skills => self.skills().unwrap_or_default(),
            NameKind::Keys => self.keys(),
            NameKind::KeyValues => self.values(),
            NameKind::Channels => vec![
                candidate("file", "append the answer to the file --to"),
                candidate("command", "pipe the answer into the command --to"),
            ],
            NameKind::Zones => clock::zone_names().iter().map(|name| candidate(name, "")).collect(),
            NameKind::Cassettes => {
                self.set_word_type(WordType::Files);
                vec![candidate("demo", "built in: real tools, no key and no network")]
            }
            NameKind::Files => self.set_word_type(WordType::Files),
            NameKind::Directories => self.set_word_type(WordType::Directories),
        }
    }

    fn config(&self) -> Option<Config> {
        Config::load(&self.ctx.paths.config).ok()
    }

    fn settings(&self) -> Option<Settings> {
        let flags =
            FlagOverrides { workspace: self.ctx.workspace.clone(), ..FlagOverrides::default() };
        let Context { env, paths, .. } = &self.ctx;
        Settings::resolve(&self.config()?, env, &flags, paths).ok()
    }

    fn sessions(&self) -> Option<Candidates> {
        let place = self.ctx.session_store(&self.settings()?).ok()?;
        let listing = session::list(&place).ok()?;
        let sessions = listing.sessions.iter();
        Some(sessions.map(|session| candidate(&session.key, &session.first_words)).collect())
    }

    fn trash(&self) -> Option<Candidates> {
        let place = self.ctx.session_store(&self.settings()?).ok()?;
        let gone = session::list_trash(&place).ok()?;
        Some(gone.iter().map(|gone| candidate(&gone.key, "")).collect())
    }

    /// The ids of jobs, and the names that only one job has.
    fn jobs(&self) -> Option<Candidates> {
        let jobs = workspace_jobs::open(&self.ctx, &self.settings()?).jobs().ok()?;
        let ids = jobs.iter().map(|job| candidate(&job.id, &job.name));
        let alone = jobs
            .iter()
            .filter(|job| jobs.iter().filter(|other| other.name == job.name).count() == 1);
        let names = alone.map(|job| candidate(&job.name, &job.id));
        Some(names.chain(ids).collect())
    }

    fn skills(&self) -> Option<Candidates> {
        let found = skills::find(&self.ctx, &self.settings()?, Path::new(".")).ok()?;
        let skills = found.skills.iter();
        Some(skills.map(|skill| candidate(&skill.name, &skill.description)).collect())
    }

    fn models(&self) -> Candidates {
        let presets = self.own_names("modelPresets");
        let presets = presets.iter().map(|name| candidate(name, "a preset of the config"));
        let known = MODELS.iter().map(|facts| candidate(facts.name, facts.vendor));
        presets.chain(known).collect()
    }

    fn providers(&self) -> Candidates {
        let own = self.own_names("providers");
        let is_own = |name: &&String| PROVIDERS.iter().all(|entry| entry.name != **name);
        let own = own.iter().filter(is_own).map(|name| candidate(name, "from the config"));
        let known = PROVIDERS.iter().map(|entry| candidate(entry.name, entry.label));
        known.chain(own).collect()
    }

    fn servers(&self) -> Candidates {
        let servers = self.settings().map(|settings| settings.servers);
        let servers = servers.into_iter().flatten();
        servers.map(|server| candidate(server.name, "")).collect()
    }

    /// The tools that `server` offered when it was last contacted.
    fn cached_catalog(&self, server: &McpServer) -> Option<ServerFeatures> {
        let Context { env, paths, clock, .. } = &self.ctx;
        match McpCache::new(&paths.mcp(), clock, env).get(server)? {
            CachedResult::Features(offer) => Some(offer),
            CachedResult::Failed { .. } => None,
        }
    }

    fn server_tools(&self) -> Candidates {
        let Some(settings) = self.settings() else {
            return Vec::new();
        };
        let is_named = |server: &&McpServer| self.typed.contains(&server.name);
        let server = settings.servers.iter().find(is_named);
        let offer = server.and_then(|server| self.cached_catalog(server));
        let tools = offer.map(|offer| offer.tools).unwrap_or_default();
        let about = |tool: &ToolInfo| sanitize::single_line(&tool.description, 80);
        let plain = tools.iter().filter(|tool| sanitize::single_line(&tool.name, 200) == tool.name);
        plain.map(|tool| candidate(&tool.name, about(tool))).collect()
    }

    /// Our own tools, and those of servers as far as they are stored.
    fn tools(&self) -> Candidates {
        let mut found: Candidates = TOOLS.iter().map(|name| candidate(name, "")).collect();
        let servers = self.settings().map(|settings| settings.servers);
        for server in servers.into_iter().flatten().filter(|it| !it.is_disabled) {
            let tools = self.cached_catalog(&server).map(|offer| offer.tools);
            for (tool, ours) in tool_name::for_tools(&server.name, &tools.unwrap_or_default()) {
                if server.is_tool_enabled([&tool.name, &ours]) {
                    found.push(candidate(ours, sanitize::single_line(&tool.description, 80)));
                }
            }
        }
        found
    }

    fn profiles(&self) -> Candidates {
        let about = |name: &str| {
            let mut built_in = profile::BUILT_IN.iter();
            let known = built_in.find(|(known, _)| *known == name);
            known.map_or("your own", |(_, about)| about)
        };
        let names = profiles::names(&self.ctx);
        names.iter().map(|name| candidate(name, about(name))).collect()
    }

    /// The keys that the user chose for entries at `place` in the config.
    fn own_names(&self, place: &str) -> Vec<String> {
        let config = self.config();
        let path: Vec<&str> = place.split('.').collect();
        let found = config.as_ref().and_then(|config| config_file::get_in(config.value(), &path));
        let members = found.and_then(serde_json::Value::as_object);
        members.map_or_else(Vec::new, |members| members.keys().cloned().collect())
    }

    /// All valid config keys. For names that the user chooses it takes those in the config; the keys of all providers
    /// are included once the word begins with `providers.`.
    fn keys(&self) -> Candidates {
        let is_asked = self.typed.last().is_some_and(|word| word.starts_with("providers."));
        let mut found = Vec::new();
        for key in KEYS.iter().filter(|key| key.support != KeySupport::Ignored) {
            let Some((before, after)) = key.path.split_once(".*.") else {
                found.push(candidate(key.path, key.doc));
                continue;
            };
            let mut names = self.own_names(before);
            if before == "providers" && is_asked {
                names.extend(PROVIDERS.iter().map(|entry| entry.name.to_owned()));
                names.sort();
                names.dedup();
            }
            let spelled = |name: &String| {
                candidate(
                    format!("{before}.{}.{after}", format_path(std::slice::from_ref(name))),
                    key.doc,
                )
            };
            found.extend(names.iter().map(spelled));
        }
        found
    }

    /// The possible values of the config key that the preceding word names.
    fn values(&self) -> Candidates {
        let key = self.typed.iter().rev().nth(1);
        let path = key.and_then(|key| KeyNode::canonical_path(key));
        let Some(path) = path else {
            return Vec::new();
        };
        match (path.last().map(String::as_str), KeyNode::kind_at(&path)) {
            (Some("model"), _) => self.models(),
            (Some("provider"), _) => self.providers(),
            (Some("profile"), _) => self.profiles(),
            (_, Some(Value::Bool)) => ["true", "false"].map(|word| candidate(word, "")).into(),
            (_, Some(Value::OneOf(words))) => {
                words.iter().map(|word| candidate(word, "")).collect()
            }
            _ => Vec::new(),
        }
    }
}
