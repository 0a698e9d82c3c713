//! The login at a service: the service has to accept the answers before they are written into the config.

use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use nanobot_channel::access::AccessRules;
use nanobot_channel::table::{ChannelKind, LoginQuestion};
use nanobot_channel::{LoginDialog, LoginOutcome, LoginValue};
use nanobot_config::settings::Config;

/// A login that is not complete.
pub(crate) struct ChannelLogin<'a> {
    ctx: &'a Context,
    files: ChannelFiles,
}

/// A question with its default answer.
pub(crate) struct LoginPrompt {
    pub(crate) question: &'static LoginQuestion,
    /// True if the answer must not be shown.
    pub(crate) is_secret: bool,
    /// The value of the config, unless it is secret.
    pub(crate) default: String,
}

impl<'a> ChannelLogin<'a> {
    /// Begins a login at the channel `name`.
    ///
    /// # Errors
    /// Status 2 for an unknown name, 78 for an unusable config.
    pub(crate) fn new(ctx: &'a Context, name: &str) -> Result<Self> {
        let files = ChannelFiles::load(ctx, name)?;
        Ok(Self { ctx, files })
    }

    /// The channel.
    pub(crate) fn kind(&self) -> &'static ChannelKind {
        self.files.kind
    }

    /// True if the config has every required value.
    pub(crate) fn is_configured(&self) -> bool {
        let config = &self.files.config;
        let mut required = self.kind().login.iter().filter(|question| !question.is_optional);
        required.all(|LoginQuestion { key, .. }| {
            // A required flag is a consent, so `false` is like no value.
            config.text(key).is_some() || config.has_secret(key) || config.flag(key)
        })
    }

    /// The questions.
    pub(crate) fn questions(&self) -> impl Iterator<Item = LoginPrompt> {
        let config = &self.files.config;
        self.kind().login.iter().map(|question| LoginPrompt {
            question,
            is_secret: config.is_secret(question.key),
            default: config.text(question.key).unwrap_or_default(),
        })
    }

    /// Logs in with `answers`. If the service accepts them, they are stored, and the channel is enabled. Returns the
    /// service's line for the user.
    ///
    /// # Errors
    /// Those of the service; nothing is written then. Status 78 or 74 if the config cannot be changed.
    pub(crate) fn complete(
        &self,
        answers: &[LoginValue],
        dialog: &mut dyn LoginDialog,
    ) -> Result<String> {
        let paths = &self.ctx.paths;
        let kind = self.kind();
        // The service is tried with a copy: nothing is written if it refuses, and the config is not locked meanwhile.
        let mut config = Config::load(paths)?;
        self.store_values(&mut config, answers)?;
        let files = ChannelFiles::from_config(self.ctx, kind, &config)?;
        let channel = files.open(self.ctx, self.ctx.settings()?.network)?;
        let LoginOutcome { message, values } =
            channel.service.login(dialog).with_context(|| format!("channel {}", kind.name))?;
        Config::change(paths, |config| {
            self.store_values(config, answers)?;
            self.store_values(config, &values)
        })?;
        Ok(message)
    }

    /// Stores `values` in `config`, and enables the channel.
    fn store_values(&self, config: &mut Config, values: &[LoginValue]) -> Result<()> {
        let name = self.kind().name;
        for LoginValue { key, value } in values {
            config.set(&["channels", name, key], value)?;
        }
        if !self.files.is_enabled() {
            config.set(&["channels", name, "enabled"], &true.into())?;
        }
        Ok(())
    }

    /// The rules for senders.
    ///
    /// # Errors
    /// Status 78 if `pairing.json` is damaged.
    pub(crate) fn access_rules(&self) -> Result<AccessRules> {
        self.files.access_rules(self.ctx)
    }
}
