//! Bindings of chats and senders: which one applies to a chat, which workspace a chat belongs to, what was spent under a binding, and its
//! change in the config.

use crate::ops::channel::open_channel::{find_named, normalize_id};
use crate::ops::context::Context;
use crate::ops::permissions;
use crate::ops::profiles;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, HintPart, WithHint, fail, fail_with_parts, hint_for};
use nanobot_channel::table::{CHANNELS, ChannelKind, find};
use nanobot_channel::{Chat, MovedChat};
use nanobot_config::settings::bindings::{BindingKind, ChatBinding};
use nanobot_config::settings::channels::ChannelConfig;
use nanobot_config::settings::{Config, FlagOverrides, LayeredConfig, Settings};
use nanobot_model::ledger::Ledger;
use nanobot_os::durable_file;
use nanobot_os::symlinks::PathResolver;
use nanobot_store::session;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Reads the bindings of the channel `kind`.
///
/// # Errors
/// Status 78 if one cannot be used.
pub(crate) fn of_channel(
    ctx: &Context,
    config: &Config,
    kind: &ChannelKind,
) -> Result<Vec<ChatBinding>> {
    let layers = LayeredConfig::new(config, &ctx.env);
    let mut bindings =
        ChatBinding::read_all(&ChannelConfig::read(&layers, kind.name)?, &ctx.paths)?;
    for binding in &mut bindings {
        binding.id = normalize_id(kind, &binding.id);
    }
    Ok(bindings)
}

/// Reads the bindings of all channels.
///
/// # Errors
/// The errors of [`of_channel`].
pub(crate) fn of_all_channels(ctx: &Context, config: &Config) -> Result<Vec<ChatBinding>> {
    let mut bindings = Vec::new();
    if config.get_path("channels").is_some() {
        for kind in CHANNELS {
            bindings.extend(of_channel(ctx, config, kind)?);
        }
    }
    Ok(bindings)
}

/// The binding for a message of `sender` in `chat`: that of the thread, of the chat, or in a direct chat that of the sender.
pub(crate) fn find_for(
    bindings: Vec<ChatBinding>,
    kind: &ChannelKind,
    chat: &Chat,
    sender: &str,
) -> Option<ChatBinding> {
    let normalize = |id: &str| normalize_id(kind, id);
    let session = kind.session_key(chat);
    let thread = session.split_once(':').map(|(_, rest)| normalize(rest));
    let (chat_id, sender) = (normalize(&chat.id), normalize(sender));
    let rank = |binding: &ChatBinding| {
        let id = &binding.id;
        match binding.kind {
            BindingKind::Chat if Some(id) == thread.as_ref() => Some(0),
            BindingKind::Chat if *id == chat_id => Some(1),
            BindingKind::Sender if chat.is_direct && *id == sender => Some(2),
            BindingKind::Chat | BindingKind::Sender => None,
        }
    };
    let ranked = bindings.into_iter().filter_map(|binding| Some((rank(&binding)?, binding)));
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, binding)| binding)
}

/// True if `sender` has a binding of its own that keeps something from it.
pub(crate) fn limits_sender(bindings: &[ChatBinding], kind: &ChannelKind, sender: &str) -> bool {
    let sender = normalize_id(kind, sender);
    bindings.iter().any(|binding| {
        let is_limit = binding.workspace.is_some()
            || binding.profile.is_some()
            || binding.daily_budget.is_some();
        binding.kind == BindingKind::Sender && binding.id == sender && is_limit
    })
}

/// The binding of the chat with the session key `key`, which has no message at hand: by the ids in the key, or by the bound workspace that
/// has such a session, because in some services the id of a direct chat is not that of its sender.
///
/// # Errors
/// The bindings or a workspace cannot be read.
pub(crate) fn find_for_session(
    ctx: &Context,
    config: &Config,
    settings: &Settings,
    key: &str,
) -> Result<Option<ChatBinding>> {
    let Some((kind, recipient)) = parse_session_key(key) else {
        return Ok(None);
    };
    let bindings = of_channel(ctx, config, kind)?;
    let chat = Chat { is_direct: true, ..kind.parse_chat(recipient) };
    if let Some(binding) = find_for(bindings.clone(), kind, &chat, &chat.id) {
        return Ok(Some(binding));
    }
    for binding in bindings {
        let Some(workspace) = binding.workspace.clone() else {
            continue;
        };
        let ctx = Context { workspace: Some(workspace.clone()), ..ctx.clone() };
        let settings = Settings { workspace, ..settings.clone() };
        if session::open_raw(&ctx.session_store(&settings)?, key).is_ok() {
            return Ok(Some(binding));
        }
    }
    Ok(None)
}

/// True if the chat with the session key `key` belongs to the workspace of `settings`: the one that it is bound to, or one to which nothing
/// is bound. Any other session does.
///
/// # Errors
/// The errors of [`find_for_session`].
pub(crate) fn is_of_workspace(ctx: &Context, settings: &Settings, key: &str) -> Result<bool> {
    if parse_session_key(key).is_none() {
        return Ok(true);
    }
    let config = ctx.load_config()?;
    let workspaces = bound_workspaces(&of_all_channels(ctx, &config)?);
    if workspaces.is_empty() {
        return Ok(true);
    }
    let workspace = real_path(&settings.workspace);
    let binding = find_for_session(ctx, &config, settings, key)?;
    Ok(match binding.and_then(|binding| binding.workspace) {
        Some(bound_workspace) => real_path(&bound_workspace) == workspace,
        None => !workspaces.contains(&workspace),
    })
}

/// The channel of a chat's session key, and the recipient that the rest of the key names; `None` for another session.
pub(crate) fn parse_session_key(key: &str) -> Option<(&'static ChannelKind, &str)> {
    let (name, recipient) = key.split_once(':')?;
    Some((find(name)?, recipient))
}

/// The real paths of the workspaces that are bound.
fn bound_workspaces(bindings: &[ChatBinding]) -> Vec<PathBuf> {
    let workspaces = bindings.iter().filter_map(|binding| binding.workspace.as_deref());
    workspaces.map(real_path).collect()
}

fn real_path(path: &Path) -> PathBuf {
    PathResolver::default().resolve(path)
}

/// The errors of the bindings that cannot be used. Values of a wrong form are left to the check of the config.
pub(crate) fn errors(ctx: &Context, config: &Config) -> Vec<anyhow::Error> {
    let bindings = of_all_channels(ctx, config).unwrap_or_default();
    let checks = bindings.iter().map(|binding| check(ctx, config, binding));
    checks.filter_map(Result::err).collect()
}

/// Checks that conversations can run under a binding.
///
/// # Errors
/// Status 78: its profile does not exist or has no sandbox, or its workspace does not exist or shares files with another one.
pub(crate) fn check(ctx: &Context, config: &Config, binding: &ChatBinding) -> Result<()> {
    check_members(ctx, config, binding).map_err(|error| config_error(binding, &error))
}

/// The error about a binding that cannot be used, with status 78.
pub(crate) fn config_error(binding: &ChatBinding, error: &anyhow::Error) -> anyhow::Error {
    let ChatBinding { channel, kind, id, .. } = binding;
    let cause = format!("`channels.{channel}.{}` binds `{id}`: {error:#}", kind.key());
    fail_with_parts(Exit::Config, cause, hint_for(error).map(HintPart::from))
}

fn check_members(ctx: &Context, config: &Config, binding: &ChatBinding) -> Result<()> {
    if let Some(name) = &binding.profile {
        check_profile(ctx, name)?;
    }
    let Some(workspace) = &binding.workspace else {
        return Ok(());
    };
    // Another directory that has taken its place, as below an empty mount point, would be a memory that has forgotten everything.
    if !workspace.is_dir() {
        let cause = format!("its workspace `{}` does not exist", workspace.display());
        let hint = format!("`mkdir -p {}`", workspace.display());
        return Err(fail(Exit::Config, cause).with_hint(hint));
    }
    check_apart(ctx, config, workspace)
}

fn check_profile(ctx: &Context, name: &str) -> Result<()> {
    let profile = profiles::find(ctx, name)?;
    let names = profiles::names(ctx).join(", ");
    match profile {
        Some(profile) if profile.is_unrestricted => {
            let cause = format!("the profile `{name}` has no sandbox and cannot be bound");
            Err(fail(Exit::Config, cause).with_hint("another profile"))
        }
        Some(_) => Ok(()),
        None => Err(fail(Exit::Config, format!("there is no profile `{name}`")).with_hint(names)),
    }
}

/// Checks that no workspace lies in another one, whose runs could read it.
fn check_apart(ctx: &Context, config: &Config, workspace: &Path) -> Result<()> {
    // `--workspace` names the bound one.
    let unbound = Context { workspace: None, ..ctx.clone() };
    let default = unbound.resolve(config, FlagOverrides::default())?.workspace;
    let workspace = real_path(workspace);
    let bindings = of_all_channels(ctx, config)?;
    for other in bound_workspaces(&bindings).into_iter().chain([real_path(&default)]) {
        if other != workspace && (other.starts_with(&workspace) || workspace.starts_with(&other)) {
            let (inner, outer) = (workspace.display(), other.display());
            let cause = format!("the workspaces `{inner}` and `{outer}` lie in each other");
            return Err(fail(Exit::Config, cause).with_hint("a workspace beside the others"));
        }
    }
    Ok(())
}

/// The cost of today under a binding, in US dollars: of the messages of its chat, or of its sender, and of the jobs that they made.
///
/// # Errors
/// The ledger cannot be read.
pub(crate) fn spent_today(ctx: &Context, binding: &ChatBinding) -> Result<f64> {
    let (today, address) = (ctx.clock.now().date(), binding.address());
    let is_in_chat = |session: &str| {
        session == address
            || parse_session_key(session).is_some_and(|(kind, recipient)| {
                kind.name == binding.channel && kind.parse_chat(recipient).id == binding.id
            })
    };
    let mut sum = 0.0;
    Ledger::new(&ctx.paths.root, &ctx.clock).for_each_entry(&mut |entry| {
        let Some(entry) = entry.filter(|entry| entry.day == today) else {
            return;
        };
        let is_own = entry.sender.as_deref() == Some(&address)
            || binding.kind == BindingKind::Chat && is_in_chat(&entry.session);
        if is_own {
            sum += entry.usd.unwrap_or(0.0);
        }
    })?;
    Ok(sum)
}

/// Changes the binding of a chat or a sender, or makes it: what is `None` in `new_binding` stays as it is. The workspace is that of
/// `--workspace`, and created if it is missing. Returns the binding.
///
/// # Errors
/// Status 2 for an empty id, the errors of [`check`], and those of the config.
pub(crate) fn bind(ctx: &Context, new_binding: ChatBinding) -> Result<ChatBinding> {
    let ChatBinding { channel, kind, profile, model, daily_budget, .. } = &new_binding;
    let channel = find_named(channel)?;
    let id = checked_id(channel, &new_binding.id)?;
    let is_empty = profile.is_none() && model.is_none() && daily_budget.is_none();
    if is_empty && ctx.workspace.is_none() {
        let hint = "`--workspace DIR`, `--profile`, `--model` or `--budget`";
        return Err(fail(Exit::Usage, "there is nothing to bind to").with_hint(hint));
    }
    let config = ctx.load_config()?;
    if let Some(name) = profile {
        check_profile(ctx, name)?;
    }
    let workspace = ctx.workspace.as_deref().map(permissions::absolute);
    if let Some(workspace) = &workspace {
        check_apart(ctx, &config, workspace)?;
        let is_new = !workspace.is_dir();
        durable_file::create_dir(workspace)
            .with_context(|| format!("create the workspace `{}`", workspace.display()))?;
        if is_new {
            // A misspelt path would otherwise be an empty workspace.
            ctx.notice(&format!("created the workspace `{}`", ctx.paths.display(workspace)));
        }
    }
    let kind = *kind;
    write_members(ctx, &ChatBinding { id: id.clone(), workspace, ..new_binding })?;
    let bindings = of_channel(ctx, &ctx.load_config()?, channel)?;
    let binding = bindings.into_iter().find(|binding| binding.kind == kind && binding.id == id);
    binding.ok_or_else(|| fail(Exit::Config, "the binding is not in the config"))
}

/// Writes the members of a binding that are not `None`. The others stay as they are.
fn write_members(ctx: &Context, binding: &ChatBinding) -> Result<()> {
    let ChatBinding { channel, kind, id, profile, workspace, model, daily_budget } = binding;
    let members = [
        (ChatBinding::PROFILE, profile.as_ref().map(|name| json!(name))),
        (ChatBinding::WORKSPACE, workspace.as_ref().map(|path| json!(path.display().to_string()))),
        (ChatBinding::MODEL, model.as_ref().map(|name| json!(name))),
        (ChatBinding::DAILY_BUDGET, daily_budget.map(|usd| json!(usd))),
    ];
    Config::change(&ctx.paths, |config| {
        for (member, value) in members {
            if let Some(value) = value {
                config.set(&["channels", channel, kind.key(), id, member], &value)?;
            }
        }
        Ok(())
    })
}

/// Gives a chat the binding that it had under its former id, unless the owner has bound it anew. Without it, a group would have the memory
/// of the owner.
///
/// # Errors
/// Status 78 if a binding cannot be used; the config cannot be changed.
pub(crate) fn carry_over(ctx: &Context, kind: &ChannelKind, moved: &MovedChat) -> Result<()> {
    let MovedChat { from, to } = moved;
    let bindings = of_channel(ctx, &ctx.load_config()?, kind)?;
    let find = |id: &str| {
        let id = normalize_id(kind, id);
        bindings.iter().find(|binding| binding.kind == BindingKind::Chat && binding.id == id)
    };
    let (Some(binding), None) = (find(from), find(to)) else {
        return Ok(());
    };
    let name = kind.name;
    write_members(ctx, &ChatBinding { id: normalize_id(kind, to), ..binding.clone() }).with_context(
        || format!("the group `{from}` of {name} has the id `{to}` now, and its binding was not carried over"),
    )?;
    ctx.notice(&format!(
        "channel {name}: the group {from} has the id {to} now, and its binding was carried over"
    ));
    Ok(())
}

/// Removes a binding.
///
/// # Errors
/// Status 2 for an unknown channel or an empty id, 66 if there is no such binding, and the errors of the config.
pub(crate) fn unbind(ctx: &Context, name: &str, kind: BindingKind, id: &str) -> Result<()> {
    let normalized_id = checked_id(find_named(name)?, id)?;
    let was_bound = Config::change(&ctx.paths, |config| {
        // A person may have written it in another form.
        let was_written = config.unset(&["channels", name, kind.key(), id])?;
        Ok(config.unset(&["channels", name, kind.key(), &normalized_id])? || was_written)
    })?;
    if was_bound {
        return Ok(());
    }
    Err(fail(Exit::NoInput, format!("the {} `{id}` of {name} is not bound", kind.name()))
        .with_hint("`nanobot channel list` for the bindings"))
}

fn checked_id(kind: &ChannelKind, id: &str) -> Result<String> {
    let id = normalize_id(kind, id);
    if id.is_empty() { Err(fail(Exit::Usage, "the id is empty")) } else { Ok(id) }
}

#[cfg(test)]
mod tests {
    use super::find_for;
    use nanobot_channel::Chat;
    use nanobot_channel::table::find;
    use nanobot_config::settings::bindings::{BindingKind, ChatBinding};

    #[test]
    fn a_thread_comes_before_its_chat_and_a_chat_before_its_sender() {
        let check =
            |channel: &'static str, bound: &[(BindingKind, &str)], chat: Chat, expect: &str| {
                let bindings = bound.iter().map(|(kind, id)| ChatBinding {
                    channel,
                    kind: *kind,
                    id: (*id).to_owned(),
                    profile: None,
                    workspace: None,
                    model: None,
                    daily_budget: None,
                });
                let binding = find_for(bindings.collect(), find(channel).unwrap(), &chat, "Ann@h");
                let id = binding.map(|binding| format!("{} {}", binding.kind.name(), binding.id));
                assert_eq!(id.unwrap_or_default(), expect, "{bound:?} {chat:?}");
            };
        let [in_chat, by_sender] = BindingKind::ALL;
        let chat = |id: &str, thread: Option<&str>, is_direct| Chat {
            id: id.to_owned(),
            thread: thread.map(str::to_owned),
            is_direct,
        };
        let topics = [(in_chat, "-100"), (in_chat, "-100:topic:7"), (by_sender, "Ann@h")];
        check("telegram", &topics, chat("-100", Some("7"), false), "chat -100:topic:7");
        check("telegram", &topics, chat("-100", Some("8"), false), "chat -100");
        check("telegram", &topics, chat("-1", None, false), "");
        check("telegram", &topics, chat("5", None, true), "sender Ann@h");
        let rooms = [(in_chat, "!r:h:8448")];
        check("matrix", &rooms, chat("!r:h:8448", Some("$e"), false), "chat !r:h:8448");
        check("matrix", &rooms, chat("!r:h", None, false), "");
        check("email", &[(in_chat, "ann@h")], chat("Ann@H", None, true), "chat ann@h");
        check("slack", &[(in_chat, "C1")], chat("C1", Some("17.5"), false), "chat C1");
        check("slack", &[(by_sender, "Ann@h")], chat("D1", None, false), "");
        check("slack", &[(by_sender, "Ann@h"), (in_chat, "D1")], chat("D1", None, true), "chat D1");
    }
}
