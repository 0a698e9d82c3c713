//! The names that completion offers: sessions, jobs, models, keys of the config. They are read only from files: completion
//! sends no request and changes nothing. A name that cannot be read is left out.

use crate::ops::context::Context;
use crate::ops::jobs::workspace_jobs;
use crate::ops::model;
use crate::ops::named_prompts;
use crate::ops::profiles;
use crate::ops::skills;
use nanobot_config::policy::profile;
use nanobot_config::policy::tool_names::BUILT_IN_TOOLS;
use nanobot_config::settings::config_file;
use nanobot_config::settings::key_node::KeyNode;
use nanobot_config::settings::key_spelling::format_path;
use nanobot_config::settings::key_type::KeyType;
use nanobot_config::settings::keys::{KEYS, KeySupport};
use nanobot_config::settings::servers::McpServer;
use nanobot_config::settings::{Config, FlagOverrides, Settings};
use nanobot_mcp::cache::{CachedResult, McpCache};
use nanobot_mcp::protocol::{ServerFeatures, ToolInfo};
use nanobot_mcp::{sanitize, tool_name};
use nanobot_model::provider::login::Vendor;
use nanobot_model::provider::registry::model_info::{MODELS, ModelInfo};
use nanobot_model::provider::registry::{PROVIDERS, normalize_name};
use nanobot_os::clock;
use nanobot_store::session;
use std::path::Path;

/// A name, with a description, which may be empty.
pub(crate) struct NameCandidate {
    pub(crate) name: String,
    pub(crate) help: String,
}

type Candidates = Vec<NameCandidate>;

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
    ToolsAndServers,
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
    Prompts,
}

/// The source of all names, in the context of the typed line.
pub(crate) struct NameSource {
    ctx: Context,
    /// The words of the line so far.
    typed: Vec<String>,
}

/// Maximum length of a description and of the name of a server's tool, in characters.
const MAX_DESCRIPTION_CHARS: usize = 80;
const MAX_TOOL_NAME_CHARS: usize = 200;

/// The description of a server's tool, on one line.
fn description(tool: &ToolInfo) -> String {
    sanitize::single_line(&tool.description, MAX_DESCRIPTION_CHARS)
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
            NameKind::ToolsAndServers => self.tools().into_iter().chain(self.servers()).collect(),
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
            NameKind::Prompts => {
                let prompts = named_prompts::list(&self.ctx).unwrap_or_default().into_iter();
                prompts.map(|prompt| candidate(prompt.name, prompt.description)).collect()
            }
            NameKind::Cassettes => {
                vec![candidate("demo", "built in: real tools, no key and no network")]
            }
        }
    }

    fn config(&self) -> Option<Config> {
        Config::load(&self.ctx.paths).ok()
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
        let sessions = session::list_trash(&store).ok()?;
        Some(sessions.iter().map(|session| candidate(&session.key, "")).collect())
    }

    /// The ids of jobs, and the names that only one job has.
    fn jobs(&self) -> Option<Candidates> {
        let jobs = workspace_jobs::open(&self.ctx, &self.settings()?).jobs().ok()?;
        let ids = jobs.iter().map(|job| candidate(&job.id, &job.name));
        let names = jobs
            .iter()
            .filter(|job| job.name != job.id)
            .filter(|job| jobs.iter().filter(|other| other.name == job.name).count() == 1)
            .map(|job| candidate(&job.name, &job.id));
        Some(names.chain(ids).collect())
    }

    fn skills(&self) -> Option<Candidates> {
        let library = skills::find(&self.ctx, &self.settings()?, Path::new(".")).ok()?;
        let skills = library.skills.iter();
        Some(skills.map(|skill| candidate(&skill.name, &skill.description)).collect())
    }

    fn models(&self) -> Candidates {
        let presets = self.own_names("modelPresets");
        let presets = presets.iter().map(|name| candidate(name, "a preset of the config"));
        let mut models: Candidates =
            presets.chain(self.provider_models().unwrap_or_default()).collect();
        // The models of other providers would bury these, unless the user has begun to type a name.
        let word = self.typed.last().map_or("", |word| word.rsplit('=').next().unwrap_or(word));
        if models.is_empty() || !word.is_empty() {
            let is_new = |model: &&ModelInfo| models.iter().all(|other| other.name != model.name);
            let others = MODELS.iter().filter(is_new);
            let others: Candidates =
                others.map(|model| candidate(model.name, model.vendor)).collect();
            models.extend(others);
        }
        models
    }

    /// The configured model, and the models of its provider: those that the server listed when it was last asked, or else the known
    /// ones. If the line has `--provider`, the known models of that provider.
    fn provider_models(&self) -> Option<Candidates> {
        let mut names = Vec::new();
        let mut configured = None;
        let provider = match self.typed.iter().skip_while(|word| *word != "--provider").nth(1) {
            Some(provider) => provider.clone(),
            None => {
                let settings = self.settings()?;
                let first = &settings.models[0];
                let endpoint =
                    model::resolve_endpoint(&self.ctx, &settings, first, true, true).ok()?;
                names = endpoint.stored_models(&self.ctx);
                configured = first.model.clone();
                endpoint.choice.provider
            }
        };
        if names.is_empty() {
            let is_of_provider =
                |model: &&ModelInfo| normalize_name(model.vendor) == normalize_name(&provider);
            names.extend(MODELS.iter().filter(is_of_provider).map(|model| model.name.to_owned()));
        }
        names.retain(|name| Some(name) != configured.as_ref());
        let names = configured.into_iter().chain(names);
        Some(names.map(|name| candidate(name, provider.as_str())).collect())
    }

    fn providers(&self) -> Candidates {
        let own_names = self.own_names("providers");
        let is_own = |name: &&String| PROVIDERS.iter().all(|provider| provider.name != **name);
        let own = own_names.iter().filter(is_own).map(|name| candidate(name, "from the config"));
        let built_in = PROVIDERS.iter().map(|provider| candidate(provider.name, provider.label));
        built_in.chain(own).collect()
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
            CachedResult::Features(features) => Some(features),
            CachedResult::Failed { .. } => None,
        }
    }

    fn server_tools(&self) -> Candidates {
        let Some(settings) = self.settings() else {
            return Vec::new();
        };
        let is_named = |server: &&McpServer| self.typed.contains(&server.name);
        let server = settings.servers.iter().find(is_named);
        let features = server.and_then(|server| self.cached_catalog(server));
        let tools = features.map(|features| features.tools).unwrap_or_default();
        // A name with control characters cannot be completed.
        let is_plain =
            |tool: &&ToolInfo| sanitize::single_line(&tool.name, MAX_TOOL_NAME_CHARS) == tool.name;
        tools.iter().filter(is_plain).map(|tool| candidate(&tool.name, description(tool))).collect()
    }

    /// Our own tools, and the cached tools of servers.
    fn tools(&self) -> Candidates {
        let mut candidates: Candidates =
            BUILT_IN_TOOLS.iter().map(|tool| candidate(tool.name, "")).collect();
        let servers = self.settings().map(|settings| settings.servers);
        for server in servers.into_iter().flatten().filter(|server| !server.is_disabled) {
            let tools = self.cached_catalog(&server).map(|features| features.tools);
            for (tool, name) in tool_name::for_tools(&server.name, &tools.unwrap_or_default()) {
                if server.is_tool_enabled([&tool.name, &name]) {
                    candidates.push(candidate(name, description(tool)));
                }
            }
        }
        candidates
    }

    fn profiles(&self) -> Candidates {
        let description = |name: &str| {
            let built_in = profile::BUILT_IN.iter().find(|(built_in, _)| *built_in == name);
            built_in.map_or("your own", |(_, description)| description)
        };
        let names = profiles::names(&self.ctx);
        names.iter().map(|name| candidate(name, description(name))).collect()
    }

    /// The names that the user chose for entries below `key` in the config.
    fn own_names(&self, key: &str) -> Vec<String> {
        let config = self.config();
        let path: Vec<&str> = key.split('.').collect();
        let value = config.as_ref().and_then(|config| config_file::get_in(config.value(), &path));
        let members = value.and_then(serde_json::Value::as_object);
        members.map_or_else(Vec::new, |members| members.keys().cloned().collect())
    }

    /// All valid config keys, with the names that the user chose in the config. The keys of all providers are included once
    /// the word begins with `providers.`.
    fn keys(&self) -> Candidates {
        let has_prefix = self.typed.last().is_some_and(|word| word.starts_with("providers."));
        let mut candidates = Vec::new();
        for key in KEYS.iter().filter(|key| key.support != KeySupport::Ignored) {
            let Some((before, after)) = key.path.split_once(".*.") else {
                candidates.push(candidate(key.path, key.doc));
                continue;
            };
            let mut names = self.own_names(before);
            if before == "providers" && has_prefix {
                names.extend(PROVIDERS.iter().map(|provider| provider.name.to_owned()));
                names.sort();
                names.dedup();
            }
            for name in names {
                let key_name = format!("{before}.{}.{after}", format_path(&[name]));
                candidates.push(candidate(key_name, key.doc));
            }
        }
        candidates
    }

    /// The possible values of the config key that the preceding word names.
    fn values(&self) -> Candidates {
        let key = self.typed.iter().rev().nth(1);
        let Some(path) = key.and_then(|key| KeyNode::canonical_path(key)) else {
            return Vec::new();
        };
        match (path.last().map(String::as_str), KeyNode::kind_at(&path)) {
            (Some("model"), _) => self.models(),
            (Some("provider"), _) => self.providers(),
            (Some("profile"), _) => self.profiles(),
            (_, Some(KeyType::Bool)) => ["true", "false"].map(|value| candidate(value, "")).into(),
            (_, Some(KeyType::OneOf(values))) => {
                values.iter().map(|value| candidate(*value, "")).collect()
            }
            _ => Vec::new(),
        }
    }
}
