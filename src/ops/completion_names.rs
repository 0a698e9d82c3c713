//! The names that completion offers: sessions, jobs, models, keys of the config. They are read only from files: completion
//! sends no request and changes nothing. A name that cannot be read is left out.

use crate::ops::context::Context;
use crate::ops::jobs::workspace_jobs;
use crate::ops::profiles;
use crate::ops::skills;
use nanobot_config::policy::profile;
use nanobot_config::policy::tool_names::BUILT_IN_TOOLS;
use nanobot_config::settings::config_file;
use nanobot_config::settings::key_node::KeyNode;
use nanobot_config::settings::key_spelling::format_path;
use nanobot_config::settings::key_type::KeyType as Value;
use nanobot_config::settings::keys::{KEYS, KeySupport};
use nanobot_config::settings::servers::McpServer;
use nanobot_config::settings::{Config, FlagOverrides, Settings};
use nanobot_mcp::cache::{CachedResult, McpCache};
use nanobot_mcp::protocol::{ServerFeatures, ToolInfo};
use nanobot_mcp::{sanitize, tool_name};
use nanobot_model::provider::login::Vendor;
use nanobot_model::provider::registry::{PROVIDERS, model_info::MODELS};
use nanobot_os::clock;
use nanobot_store::session;
use std::path::Path;

/// A name, with a description, which may be empty.
pub(crate) struct NameCandidate {
    pub(crate) name: String,
    pub(crate) help: String,
}

type Candidates = Vec<NameCandidate>;

/// The kind of thing that a value names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NameKind {
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
}

/// The source of all names, in the context of the typed line.
pub(crate) struct NameSource {
    ctx: Context,
    typed: Vec<String>,
}

fn candidate(name: impl Into<String>, help: impl Into<String>) -> NameCandidate {
    NameCandidate { name: name.into(), help: help.into() }
}

impl NameSource {
    /// Creates the source of names for a line whose words so far are `typed`.
    pub(crate) fn new(ctx: Context, typed: Vec<String>) -> Self {
        Self { ctx, typed }
    }

    /// The names of this kind.
    pub(crate) fn names(&self, kind: NameKind) -> Vec<NameCandidate> {
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
                vec![candidate("demo", "built in: real tools, no key and no network")]
            }
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
        let store = self.ctx.session_store(&self.settings()?).ok()?;
        let listing = session::list(&store).ok()?;
        let sessions = listing.sessions.iter();
        Some(sessions.map(|session| candidate(&session.key, &session.first_words)).collect())
    }

    fn trash(&self) -> Option<Candidates> {
        let store = self.ctx.session_store(&self.settings()?).ok()?;
        let gone = session::list_trash(&store).ok()?;
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
        let description = |tool: &ToolInfo| sanitize::single_line(&tool.description, 80);
        let plain = tools.iter().filter(|tool| sanitize::single_line(&tool.name, 200) == tool.name);
        plain.map(|tool| candidate(&tool.name, description(tool))).collect()
    }

    /// Our own tools, and those of servers as far as they are stored.
    fn tools(&self) -> Candidates {
        let mut found: Candidates =
            BUILT_IN_TOOLS.iter().map(|tool| candidate(tool.name, "")).collect();
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
                words.iter().map(|word| candidate(*word, "")).collect()
            }
            _ => Vec::new(),
        }
    }
}
