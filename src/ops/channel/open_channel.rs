//! A channel in a run: its config, its files, and the connection to its service.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_channel::access::{AccessRules, DirectRule, GroupPolicy};
use nanobot_channel::dialect;
use nanobot_channel::inbox::{ChannelInbox, OutboundMessage};
use nanobot_channel::pairing::PairingFile;
use nanobot_channel::setup::ChannelSetup;
use nanobot_channel::table::{CHANNELS, ChannelKind, find};
use nanobot_channel::{Channel, Identity, InboundMessage, Part};
use nanobot_config::settings::channels::{ChannelConfig, ChannelSettings};
use nanobot_config::settings::keys::nearest;
use nanobot_config::settings::{Config, LayeredConfig};
use nanobot_net::http::Network;
use nanobot_os::clock::Clock;
use nanobot_os::digest::digest;
use nanobot_os::durable_file;
use nanobot_os::file_lock::FileLock;
use nanobot_os::secret::redact_known;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Time for which our account at a service is cached, in milliseconds.
const IDENTITY_LIFETIME_MILLIS: i64 = 24 * 3_600_000;

/// A channel's config and files, without a connection to the service.
pub(crate) struct ChannelFiles {
    pub(crate) kind: &'static ChannelKind,
    pub(crate) config: ChannelConfig,
    pub(crate) settings: ChannelSettings,
    /// `~/.nanobot/channels/NAME`.
    pub(crate) directory: PathBuf,
    /// `~/.nanobot/media/NAME`: attachments that were received, and copies of files that are to be sent.
    pub(crate) media: PathBuf,
    clock: Clock,
}

/// A channel that is ready to be polled and sent to.
pub(crate) struct OpenChannel {
    pub(crate) files: ChannelFiles,
    pub(crate) service: Box<dyn Channel>,
}

/// The kind of channel that a user names.
///
/// # Errors
/// Status 2 for an unknown name.
pub(crate) fn find_named(name: &str) -> Result<&'static ChannelKind> {
    find(name).ok_or_else(|| {
        let names = CHANNELS.iter().map(|kind| kind.name);
        let hint = match nearest(name, names.clone()) {
            Some(nearest) => format!("`{nearest}`"),
            None => format!("one of {}", names.collect::<Vec<_>>().join(", ")),
        };
        let cause = format!("there is no channel `{name}`");
        fail(Exit::Usage, cause).with_hint(hint)
    })
}

/// An id of a sender or a chat that a person has written, in the form in which ids are compared. Mail addresses are compared without case:
/// RFC 5321 §2.4 makes the part before `@` case-sensitive, but no service treats it so. Phone numbers are compared without their `+`.
pub(crate) fn normalize_id(kind: &ChannelKind, id: &str) -> String {
    let id = id.trim();
    if kind.is_mail {
        id.to_lowercase()
    } else if kind.name == "whatsapp" {
        id.trim_start_matches('+').to_owned()
    } else {
        id.to_owned()
    }
}

impl ChannelFiles {
    /// Reads the config of the channel `name`.
    ///
    /// # Errors
    /// Status 2 for an unknown name, 78 for an unusable config.
    pub(crate) fn load(ctx: &Context, name: &str) -> Result<Self> {
        Self::from_config(ctx, find_named(name)?, &Config::load(&ctx.paths)?)
    }

    /// The channel that `config` describes.
    ///
    /// # Errors
    /// Status 78 for an unusable config.
    pub(crate) fn from_config(
        ctx: &Context,
        kind: &'static ChannelKind,
        config: &Config,
    ) -> Result<Self> {
        let layers = LayeredConfig::new(config, &ctx.env);
        Ok(Self {
            kind,
            config: ChannelConfig::read(&layers, kind.name)?,
            settings: ChannelSettings::read(&layers)?,
            directory: ctx.paths.channels().join(kind.name),
            media: ctx.paths.media().join(kind.name),
            clock: ctx.clock.clone(),
        })
    }

    /// The current time, in milliseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.clock.timestamp().as_millisecond()
    }

    /// True if the config enables the channel.
    pub(crate) fn is_enabled(&self) -> bool {
        self.config.flag("enabled")
    }

    /// True if the sender of a dropped message receives a line about it. Programs that answer mail, and bots, would answer
    /// that line.
    pub(crate) fn reports_drop(&self, message: &InboundMessage) -> bool {
        !self.kind.is_mail && !message.from.is_bot
    }

    /// True if messages come by `serve webhook` only. The bridge of WhatsApp is polled.
    pub(crate) fn is_pushed(&self) -> bool {
        self.kind.is_pushed && self.config.text("phoneNumberId").is_some()
    }

    /// Prepares the connection to the service. Nothing is sent.
    ///
    /// # Errors
    /// Status 78 for an unusable config.
    pub(crate) fn open(self, ctx: &Context, network: Network) -> Result<OpenChannel> {
        let setup = ChannelSetup {
            config: self.config.clone(),
            access: self.access_rules(ctx)?,
            network,
            clock: self.clock.clone(),
            command_env: (ctx.env.iter())
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            paths: ctx.paths.clone(),
            max_attempts: self.settings.send_max_attempts,
        };
        Ok(OpenChannel { service: (self.kind.open)(&setup)?, files: self })
    }

    /// The rules for senders, with the pairings as of now.
    ///
    /// # Errors
    /// Status 78 if `pairing.json` is damaged.
    pub(crate) fn access_rules(&self, ctx: &Context) -> Result<AccessRules> {
        let pairing = PairingFile::load(&ctx.paths.pairing())?;
        let policy = self.config.text("groupPolicy").unwrap_or_default();
        let mode = self.config.text("allowFromMatchMode");
        Ok(AccessRules {
            allow_from: self.allow_from(),
            approved: pairing.approved(self.kind.name),
            pairs: self.kind.pairs && self.settings.pairing,
            matches_names: self.kind.matches_names || mode.is_some_and(|mode| mode != "id"),
            group_policy: GroupPolicy::parse(&policy),
            group_allow_from: self.group_allow_from(),
            direct: self.direct_rule(),
        })
    }

    /// The chats of the group policy `allowlist`. Discord's key has another name.
    fn group_allow_from(&self) -> Vec<String> {
        let mut chats = self.config.list("groupAllowFrom");
        chats.extend(self.config.list("allowChannels"));
        chats
    }

    fn direct_rule(&self) -> DirectRule {
        let is_disabled = self.config.flag("disablePrivateChat")
            || self.config.is_flag("dm.enabled") && !self.config.flag("dm.enabled");
        if is_disabled {
            return DirectRule::Disabled;
        }
        match self.config.text("dm.policy").as_deref() {
            Some("allowlist") => DirectRule::Listed(self.config.list("dm.allowFrom")),
            _ => DirectRule::AllowFrom,
        }
    }

    /// The allowed senders.
    fn allow_from(&self) -> Vec<String> {
        self.listed_senders("allowFrom")
    }

    /// The senders in the list `key`, in the form in which ids are compared.
    pub(crate) fn listed_senders(&self, key: &str) -> Vec<String> {
        let entries = self.config.list(key);
        entries.iter().map(|entry| normalize_id(self.kind, entry)).collect()
    }

    /// Takes the lock under which a poll answers, with a wait of at most `timeout`. The directory must exist.
    ///
    /// # Errors
    /// Status 75 if a poll holds it.
    pub(crate) fn lock(&self, timeout: Duration) -> Result<FileLock> {
        let now = self.clock.local_timestamp();
        let path = self.directory.join("lock");
        FileLock::acquire(&path, "the channel", Some(&now), timeout, &mut |_| {})
    }

    /// The position after the last message that was stored for this account.
    pub(crate) fn read_cursor(&self, identity: &Identity) -> Result<Option<Value>> {
        let stored = self.read_json("cursor.json")?;
        let is_of_account = stored["account"] == identity.id.as_str();
        Ok(is_of_account.then(|| stored["cursor"].clone()).filter(|cursor| !cursor.is_null()))
    }

    /// Stores the position.
    pub(crate) fn write_cursor(&self, identity: &Identity, cursor: &Value) -> Result<()> {
        let stored = json!({ "account": identity.id, "cursor": cursor });
        self.write_json("cursor.json", &stored)
    }

    /// Stores the time of a successful poll, in milliseconds since 1970.
    pub(crate) fn write_last_poll(&self, now: i64) -> Result<()> {
        self.write_json("last_poll.json", &json!({ "at": now }))
    }

    /// The time of the last successful poll, in milliseconds since 1970.
    pub(crate) fn last_poll(&self) -> Result<Option<i64>> {
        Ok(self.read_json("last_poll.json")?["at"].as_i64())
    }

    /// Reads a file of the channel; null if it is missing or damaged, since the service can be asked again.
    pub(crate) fn read_json(&self, name: &str) -> Result<Value> {
        let text = durable_file::read(&self.directory.join(name))?;
        Ok(serde_json::from_slice(&text.unwrap_or_default()).unwrap_or_default())
    }

    fn write_json(&self, name: &str, value: &Value) -> Result<()> {
        durable_file::create_dir(&self.directory)?;
        let text = value.to_string() + "\n";
        durable_file::replace(&self.directory.join(name), text.as_bytes())
    }

    /// Opens the journal.
    ///
    /// # Errors
    /// Status 74.
    pub(crate) fn open_inbox(&self) -> Result<ChannelInbox> {
        ChannelInbox::open(&self.directory)
            .map_err(|error| fail(Exit::Io, format!("open the inbox: {error:#}")))
    }

    /// Converts Markdown to the parts that the service takes.
    pub(crate) fn render(&self, markdown: &str) -> Vec<Part> {
        // An answer may quote an API key of the config.
        let markdown = redact_known(markdown);
        dialect::render(&markdown, self.kind.dialect)
            .into_iter()
            .map(|part| Part { markup: part.markup, plain: part.plain, ..Part::default() })
            .collect()
    }
}

impl OpenChannel {
    /// The channel's name.
    pub(crate) fn name(&self) -> &'static str {
        self.files.kind.name
    }

    /// A message to the chat of `message`: a Markdown text, in parts in the service's dialect.
    pub(crate) fn render_message(
        &self,
        message: &InboundMessage,
        session: &str,
        key: &str,
        markdown: &str,
    ) -> OutboundMessage {
        OutboundMessage {
            key: key.to_owned(),
            session: session.to_owned(),
            destination: message.destination(),
            parts: self.files.render(markdown),
            at: self.files.now(),
            ..OutboundMessage::default()
        }
    }

    /// Our account. The service is asked at most once a day.
    ///
    /// # Errors
    /// The errors of the service.
    pub(crate) fn identity(&self) -> Result<Identity> {
        let (files, now) = (&self.files, self.files.now());
        // With another token or another server, the stored account is not used.
        let config = digest(files.config.fingerprint_text()?.as_bytes());
        let stored = files.read_json("identity.json")?;
        let age = now - stored["checked_at"].as_i64().unwrap_or(0);
        if stored["config"] == config.as_str()
            && (0..IDENTITY_LIFETIME_MILLIS).contains(&age)
            && let Ok(identity) = serde_json::from_value(stored["account"].clone())
        {
            return Ok(identity);
        }
        let identity = self.service.identity()?;
        let stored = json!({ "config": config, "checked_at": now, "account": identity });
        files.write_json("identity.json", &stored)?;
        Ok(identity)
    }
}
