//! The values of flags and arguments: sessions, jobs, models, names in the config. They are read only when the word at
//! the cursor needs them, and only from files: completion sends no request and changes nothing.

use crate::mcp::cache::{Cache, Known};
use crate::mcp::offer::{Offer, Offered};
use crate::mcp::{name, words};
use crate::ops::context::Context;
use crate::ops::jobs::job_store;
use crate::ops::profiles;
use crate::ops::skills;
use crate::policy::known::TOOLS;
use crate::policy::profile;
use crate::provider::login::Vendor;
use crate::provider::registry::{TABLE, facts::MODELS};
use crate::session;
use crate::settings::file;
use crate::settings::keys::{Branch, KEYS, Stage};
use crate::settings::kind::Kind as Value;
use crate::settings::servers::Server;
use crate::settings::{Config, Overrides, Settings};
use crate::sys::clock;
use clap::{Arg, Command, ValueHint};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The type of a word, which decides if we or the shell complete it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wanted {
    Values,
    Files,
    Directories,
}

/// The kind of thing that a value names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
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
    OfServer,
    Skills,
    Keys,
    /// A value of the config key that the preceding word names.
    ValueOfKey,
    Channels,
    Zones,
    Cassettes,
    Files,
    Directories,
}

/// The kind of thing that an argument of the command at `path` names, if known. The argument's name decides, so that
/// new commands need no entry here.
fn kind(path: &[String], arg: &Arg) -> Option<Kind> {
    let family = path.first().map_or("", String::as_str);
    let command = path.last().map_or("", String::as_str);
    let named = match (family, command, arg.get_id().as_str()) {
        ("session", "restore", "key") => Kind::Trash,
        ("session", _, "key" | "keys" | "pattern") if command != "search" => Kind::Sessions,
        ("config", _, "key") => Kind::Keys,
        ("config", _, "value") => Kind::ValueOfKey,
        ("cron", _, "job" | "jobs") => Kind::Jobs,
        ("model", _, "name") => Kind::Models,
        ("tool", _, "name") => Kind::Tools,
        ("skill", "new", "name") => return None,
        ("skill", _, "name") => Kind::Skills,
        ("provider", _, "name") => Kind::Logins,
        ("mcp", _, "server" | "servers") => Kind::Servers,
        ("mcp", "show" | "accept" | "call", "tool" | "tools") => Kind::OfServer,
        (_, _, "session" | "fork") => Kind::Sessions,
        (_, _, "model") => Kind::Models,
        (_, _, "provider") => Kind::Providers,
        (_, _, "profile") => Kind::Profiles,
        (_, _, "tool" | "tools" | "allow" | "deny") => Kind::Tools,
        (_, _, "channel") => Kind::Channels,
        (_, _, "tz") => Kind::Zones,
        (_, _, "replay") => Kind::Cassettes,
        _ => {
            let names = arg.get_value_names().unwrap_or_default();
            let is_path = arg.get_value_hint() == ValueHint::AnyPath;
            return match names.first().map(|name| name.as_str()) {
                Some("DIR") => Some(Kind::Directories),
                Some(name) if is_path || name.contains("FILE") => Some(Kind::Files),
                _ => None,
            };
        }
    };
    Some(named)
}

/// Adds the possible values to the arguments of `command` and of all its subcommands.
pub(super) fn attached(mut command: Command, names: &Arc<Names>) -> Command {
    command.build();
    attach(command, &mut Vec::new(), names)
}

fn attach(command: Command, path: &mut Vec<String>, names: &Arc<Names>) -> Command {
    let below: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    let mut command = command.mut_args(|arg| {
        let takes_value = arg.get_action().takes_values();
        match kind(path, &arg).filter(|_| takes_value && arg.get_possible_values().is_empty()) {
            None => arg,
            Some(kind) => {
                let names = Arc::clone(names);
                arg.add(ArgValueCandidates::new(move || names.of(kind)))
            }
        }
    });
    for name in below {
        path.push(name.clone());
        // Aliases of a command are accepted but not offered.
        command = command.mut_subcommand(name, |below| {
            let aliases: Vec<String> = below.get_all_aliases().map(str::to_owned).collect();
            attach(below.alias(None::<&str>).aliases(aliases), path, names)
        });
        path.pop();
    }
    command
}

/// The source of all names, in the context of the typed line.
pub(super) struct Names {
    ctx: Context,
    typed: Vec<String>,
    /// The type that the shell completes itself.
    wanted: OnceLock<Wanted>,
}

type Found = Vec<CompletionCandidate>;

fn named(name: impl AsRef<str>, help: impl AsRef<str>) -> CompletionCandidate {
    let help = Some(help.as_ref()).filter(|help| !help.is_empty());
    CompletionCandidate::new(name.as_ref()).help(help.map(|help| help.to_owned().into()))
}

impl Names {
    /// Creates the source of names for a line whose words so far are `typed`.
    pub(super) fn new(ctx: Context, typed: Vec<String>) -> Self {
        Self {
            ctx,
            typed,
            wanted: OnceLock::new(),
        }
    }

    /// The type of the word at the cursor.
    pub(super) fn wanted(&self) -> Wanted {
        self.wanted.get().copied().unwrap_or(Wanted::Values)
    }

    fn want(&self, wanted: Wanted) -> Found {
        self.wanted.get_or_init(|| wanted);
        Vec::new()
    }

    fn of(&self, kind: Kind) -> Found {
        match kind {
            Kind::Sessions => self.sessions().unwrap_or_default(),
            Kind::Trash => self.trash().unwrap_or_default(),
            Kind::Jobs => self.jobs().unwrap_or_default(),
            Kind::Models => self.models(),
            Kind::Providers => self.providers(),
            Kind::Logins => Vendor::ALL.map(|vendor| named(vendor.name(), "")).into(),
            Kind::Profiles => self.profiles(),
            Kind::Tools => self.tools(),
            Kind::Servers => self.servers(),
            Kind::OfServer => self.of_server(),
            Kind::Skills => self.skills().unwrap_or_default(),
            Kind::Keys => self.keys(),
            Kind::ValueOfKey => self.values(),
            Kind::Channels => vec![
                named("file", "append the answer to the file --to"),
                named("command", "pipe the answer into the command --to"),
            ],
            Kind::Zones => clock::zone_names()
                .iter()
                .map(|name| named(name, ""))
                .collect(),
            Kind::Cassettes => {
                self.want(Wanted::Files);
                vec![named("demo", "built in: real tools, no key and no network")]
            }
            Kind::Files => self.want(Wanted::Files),
            Kind::Directories => self.want(Wanted::Directories),
        }
    }

    fn config(&self) -> Option<Config> {
        Config::load(&self.ctx.paths.config).ok()
    }

    fn settings(&self) -> Option<Settings> {
        let flags = Overrides {
            workspace: self.ctx.workspace.clone(),
            ..Overrides::default()
        };
        let Context { env, paths, .. } = &self.ctx;
        Settings::resolve(&self.config()?, env, &flags, paths).ok()
    }

    fn sessions(&self) -> Option<Found> {
        let place = self.ctx.session_place(&self.settings()?).ok()?;
        let listing = session::list(&place).ok()?;
        let sessions = listing.sessions.iter();
        Some(
            sessions
                .map(|session| named(&session.key, &session.first_words))
                .collect(),
        )
    }

    fn trash(&self) -> Option<Found> {
        let place = self.ctx.session_place(&self.settings()?).ok()?;
        let gone = session::trash(&place).ok()?;
        Some(gone.iter().map(|gone| named(&gone.key, "")).collect())
    }

    /// The ids of jobs, and the names that only one job has.
    fn jobs(&self) -> Option<Found> {
        let jobs = job_store::open(&self.ctx, &self.settings()?).jobs().ok()?;
        let ids = jobs.iter().map(|job| named(&job.id, &job.name));
        let alone = jobs
            .iter()
            .filter(|job| jobs.iter().filter(|other| other.name == job.name).count() == 1);
        let names = alone.map(|job| named(&job.name, &job.id));
        Some(names.chain(ids).collect())
    }

    fn skills(&self) -> Option<Found> {
        let found = skills::find(&self.ctx, &self.settings()?, Path::new(".")).ok()?;
        let skills = found.skills.iter();
        Some(
            skills
                .map(|skill| named(&skill.name, &skill.description))
                .collect(),
        )
    }

    fn models(&self) -> Found {
        let presets = self.own_names("modelPresets");
        let presets = presets
            .iter()
            .map(|name| named(name, "a preset of the config"));
        let known = MODELS.iter().map(|facts| named(facts.name, facts.vendor));
        presets.chain(known).collect()
    }

    fn providers(&self) -> Found {
        let own = self.own_names("providers");
        let is_own = |name: &&String| TABLE.iter().all(|entry| entry.name != **name);
        let own = own
            .iter()
            .filter(is_own)
            .map(|name| named(name, "from the config"));
        let known = TABLE.iter().map(|entry| named(entry.name, entry.label));
        known.chain(own).collect()
    }

    fn servers(&self) -> Found {
        let servers = self.settings().map(|settings| settings.servers);
        let servers = servers.into_iter().flatten();
        servers.map(|server| named(server.name, "")).collect()
    }

    /// The tools that `server` offered when it was last contacted.
    fn offered(&self, server: &Server) -> Option<Offer> {
        let Context {
            env, paths, clock, ..
        } = &self.ctx;
        match Cache::at(&paths.mcp(), clock, env).get(server)? {
            Known::Offers(offer) => Some(offer),
            Known::Failed { .. } => None,
        }
    }

    fn of_server(&self) -> Found {
        let Some(settings) = self.settings() else {
            return Vec::new();
        };
        let is_named = |server: &&Server| self.typed.contains(&server.name);
        let server = settings.servers.iter().find(is_named);
        let offer = server.and_then(|server| self.offered(server));
        let tools = offer.map(|offer| offer.tools).unwrap_or_default();
        let about = |tool: &Offered| words::line(&tool.description, 80);
        let plain = tools
            .iter()
            .filter(|tool| words::line(&tool.name, 200) == tool.name);
        plain.map(|tool| named(&tool.name, about(tool))).collect()
    }

    /// Our own tools, and those of servers as far as they are stored.
    fn tools(&self) -> Found {
        let mut found: Found = TOOLS.iter().map(|name| named(name, "")).collect();
        let servers = self.settings().map(|settings| settings.servers);
        for server in servers.into_iter().flatten().filter(|it| !it.disabled) {
            let tools = self.offered(&server).map(|offer| offer.tools);
            for tool in tools.into_iter().flatten() {
                let ours = name::wrapped(&server.name, &tool.name);
                if server.enables([&tool.name, &ours]) {
                    found.push(named(ours, words::line(&tool.description, 80)));
                }
            }
        }
        found
    }

    fn profiles(&self) -> Found {
        let about = |name: &str| {
            let mut built_in = profile::BUILT_IN.iter();
            let known = built_in.find(|(known, _)| *known == name);
            known.map_or("your own", |(_, about)| about)
        };
        let names = profiles::names(&self.ctx);
        names.iter().map(|name| named(name, about(name))).collect()
    }

    /// The keys that the user chose for entries at `place` in the config.
    fn own_names(&self, place: &str) -> Vec<String> {
        let config = self.config();
        let path: Vec<&str> = place.split('.').collect();
        let found = config
            .as_ref()
            .and_then(|config| file::find(config.value(), &path));
        let members = found.and_then(serde_json::Value::as_object);
        members.map_or_else(Vec::new, |members| members.keys().cloned().collect())
    }

    /// All valid config keys. For names that the user chooses it takes those in the config; the keys of all providers
    /// are included once the word begins with `providers.`.
    fn keys(&self) -> Found {
        let is_asked = self
            .typed
            .last()
            .is_some_and(|word| word.starts_with("providers."));
        let mut found = Vec::new();
        for key in KEYS.iter().filter(|key| key.stage != Stage::Ignored) {
            let Some((before, after)) = key.path.split_once(".*.") else {
                found.push(named(key.path, key.doc));
                continue;
            };
            let mut names = self.own_names(before);
            if before == "providers" && is_asked {
                names.extend(TABLE.iter().map(|entry| entry.name.to_owned()));
                names.sort();
                names.dedup();
            }
            let spelled = |name: &String| named(format!("{before}.{name}.{after}"), key.doc);
            found.extend(names.iter().map(spelled));
        }
        found
    }

    /// The possible values of the config key that the preceding word names.
    fn values(&self) -> Found {
        let key = self.typed.iter().rev().nth(1);
        let path = key.and_then(|key| Branch::path_of(key));
        let Some(path) = path else {
            return Vec::new();
        };
        match (path.last().map(String::as_str), Branch::kind_at(&path)) {
            (Some("model"), _) => self.models(),
            (Some("provider"), _) => self.providers(),
            (Some("profile"), _) => self.profiles(),
            (_, Some(Value::Bool)) => ["true", "false"].map(|word| named(word, "")).into(),
            (_, Some(Value::OneOf(words))) => words.iter().map(|word| named(word, "")).collect(),
            _ => Vec::new(),
        }
    }
}
