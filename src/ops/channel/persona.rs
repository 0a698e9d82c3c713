//! The persona of a conversation: the context, the settings and the limits of its turns, commands and jobs, as the binding of its chat or
//! sender says. A conversation without a binding has those of the process.

use crate::ops::channel::bindings;
use crate::ops::context::Context;
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_channel::InboundMessage;
use nanobot_channel::table::{ChannelKind, find};
use nanobot_config::settings::bindings::ChatBinding;
use nanobot_config::settings::{Config, FlagOverrides, Settings};

/// The session of all chats of a workspace, as the Python program names it.
pub(crate) const UNIFIED_SESSION: &str = "unified:default";

/// The context, the settings and the binding of a conversation.
pub(crate) struct Persona {
    /// Names the bound workspace.
    pub(crate) ctx: Context,
    pub(crate) settings: Settings,
    pub(crate) binding: Option<ChatBinding>,
}

impl Persona {
    /// The persona that answers a message of the channel `kind`.
    ///
    /// # Errors
    /// Status 78 if the binding cannot be used, or if the sender is limited in direct chats and writes in a group that is not bound: there, it
    /// would have what its binding keeps from it. The config cannot be read.
    pub(crate) fn of_message(
        ctx: &Context,
        settings: &Settings,
        kind: &ChannelKind,
        message: &InboundMessage,
    ) -> Result<Self> {
        let config = ctx.load_config()?;
        let bindings = bindings::of_channel(ctx, &config, kind)?;
        let (chat, sender) = (&message.chat, &message.from.id);
        let is_limited = bindings::limits_sender(&bindings, kind, sender);
        let binding = bindings::find_for(bindings, kind, chat, sender);
        if binding.is_none() && is_limited {
            let (name, group) = (kind.name, &chat.id);
            return Err(fail(Exit::Config, format!(
                    "`{sender}` is bound in direct chats, and writes in the group `{group}`, which is not bound"
                )).with_hint(format!("`nanobot channel bind {name} --chat {group} …`")));
        }
        Self::new(ctx, settings, &config, binding)
    }

    /// The persona of the chat whose session has the key `key`; `None` if nothing is bound to it.
    ///
    /// # Errors
    /// The errors of [`Self::of_message`].
    pub(crate) fn of_session(ctx: &Context, key: &str) -> Result<Option<Self>> {
        if bindings::parse_session_key(key).is_none() {
            return Ok(None);
        }
        let config = ctx.load_config()?;
        let settings = ctx.resolve(&config, FlagOverrides::default())?;
        let binding = bindings::find_for_session(ctx, &config, &settings, key)?;
        let persona = Self::new(ctx, &settings, &config, binding)?;
        Ok(persona.binding.is_some().then_some(persona))
    }

    /// The persona with the binding of `address`, a chat or a sender as `CHANNEL:ID`.
    ///
    /// # Errors
    /// The errors of [`Self::of_message`].
    pub(crate) fn of_address(ctx: &Context, settings: &Settings, address: &str) -> Result<Self> {
        let config = ctx.load_config()?;
        let kind = address.split_once(':').and_then(|(name, _)| find(name));
        let bindings = match kind {
            Some(kind) => bindings::of_channel(ctx, &config, kind)?,
            None => Vec::new(),
        };
        let binding = bindings.into_iter().find(|binding| binding.address() == address);
        Self::new(ctx, settings, &config, binding)
    }

    fn new(
        ctx: &Context,
        settings: &Settings,
        config: &Config,
        binding: Option<ChatBinding>,
    ) -> Result<Self> {
        let Some(binding) = binding else {
            return Ok(Self { ctx: ctx.clone(), settings: settings.clone(), binding: None });
        };
        bindings::check(ctx, config, &binding)?;
        let mut ctx = ctx.clone();
        if let Some(workspace) = &binding.workspace {
            ctx.workspace = Some(workspace.clone());
        }
        let overrides = FlagOverrides { model: binding.model.clone(), ..FlagOverrides::default() };
        let settings = ctx.resolve(config, overrides);
        let settings = settings.map_err(|error| bindings::config_error(&binding, &error))?;
        Ok(Self { ctx, settings, binding: Some(binding) })
    }

    /// The key of the session that has the conversation of the chat with the key `chat_key`. A chat with a profile has its own: in that of
    /// all chats it could read what its profile keeps from it, and undo what it may not write.
    pub(crate) fn session_key<'k>(&self, chat_key: &'k str) -> &'k str {
        let has_profile = self.binding.as_ref().is_some_and(|binding| binding.profile.is_some());
        if self.settings.unified_session && !has_profile { UNIFIED_SESSION } else { chat_key }
    }

    /// The rest of the budget of today, in US dollars; `None` if the persona has none of its own.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(crate) fn remaining_budget(&self) -> Result<Option<f64>> {
        let Some((binding, budget)) =
            self.binding.as_ref().and_then(|binding| Some((binding, binding.daily_budget?)))
        else {
            return Ok(None);
        };
        Ok(Some(budget - bindings::spent_today(&self.ctx, binding)?))
    }

    /// Limits a turn to what the binding allows.
    ///
    /// # Errors
    /// Status 4 if the budget of today is used up; the ledger cannot be read.
    pub(crate) fn limit(&self, options: &mut TurnOptions) -> Result<()> {
        let Some(ChatBinding { profile, model, .. }) = &self.binding else {
            return Ok(());
        };
        if profile.is_some() {
            options.grants.profile.clone_from(profile);
        }
        if model.is_some() {
            options.model.name.clone_from(model);
        }
        if let Some(remaining) = self.remaining_budget()? {
            if remaining <= 0.0 {
                return Err(fail(Exit::Budget, "the budget of today of its binding is used up"));
            }
            let max_cost = options.model.max_cost.map_or(remaining, |usd| usd.min(remaining));
            options.model.max_cost = Some(max_cost);
        }
        Ok(())
    }

    /// True if the chat or the sender is bound to a workspace.
    pub(crate) fn has_own_workspace(&self) -> bool {
        self.binding.as_ref().is_some_and(|binding| binding.workspace.is_some())
    }

    /// The chat or sender that is bound, as `CHANNEL:ID`.
    pub(crate) fn address(&self) -> Option<String> {
        self.binding.as_ref().map(ChatBinding::address)
    }
}
