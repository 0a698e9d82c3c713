//! `nanobot channel bind`, and the bindings in `nanobot channel list`.

use crate::cli::channel::ChannelBindArgs;
use crate::ops::channel::bindings::{self, BindingChange};
use crate::ops::context::Context;
use anyhow::Result;
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_base::error::{Exit, fail};
use nanobot_base::format::format_dollars;
use nanobot_config::settings::bindings::{BindingKind, ChatBinding};
use nanobot_os::terminal::sanitize;
use serde_json::{Value, json};

/// Runs `nanobot channel bind`.
pub(super) fn run(ctx: &Context, arguments: &ChannelBindArgs) -> Result<Exit> {
    let ChannelBindArgs { name, target, profile, model, budget, remove } = arguments;
    let (kind, id) = match (&target.chat, &target.sender) {
        (Some(id), _) => (BindingKind::Chat, id),
        (None, sender) => (BindingKind::Sender, sender.as_ref().expect("one of both is required")),
    };
    if *remove {
        if ctx.workspace.is_some() {
            return Err(fail(
                Exit::Usage,
                "`--remove` removes the whole binding, and takes no `--workspace`",
            ));
        }
        bindings::unbind(ctx, name, kind, id)?;
        ctx.notice(&format!("the {} {id} of {name} is not bound any more", kind.name()));
        return Ok(Exit::Answered);
    }
    let change = BindingChange {
        kind,
        id: id.clone(),
        profile: profile.clone(),
        model: model.clone(),
        daily_budget: *budget,
    };
    let binding = bindings::bind(ctx, name, &change)?;
    let members = describe(ctx, &binding).join(", ");
    ctx.notice(&format!("the {} {} of {name} is bound: {members}", kind.name(), binding.id));
    Ok(Exit::Answered)
}

/// The members of a binding that are set, for people.
fn describe(ctx: &Context, binding: &ChatBinding) -> Vec<String> {
    let ChatBinding { profile, workspace, model, daily_budget, .. } = binding;
    let members = [
        profile.as_ref().map(|name| format!("profile `{name}`")),
        workspace.as_ref().map(|path| format!("workspace `{}`", ctx.paths.display(path))),
        model.as_ref().map(|name| format!("model `{name}`")),
        daily_budget.map(|usd| format!("${} a day", format_dollars(usd))),
    ];
    members.into_iter().flatten().collect()
}

/// The bindings of the channel `name`.
pub(super) fn to_json(bindings: &[ChatBinding], name: &str) -> Vec<Value> {
    let of_channel = bindings.iter().filter(|binding| binding.channel == name);
    let to_json = |binding: &ChatBinding| {
        json!({
            "kind": binding.kind.name(),
            "id": binding.id,
            "profile": binding.profile,
            "workspace": binding.workspace,
            "model": binding.model,
            "daily_budget": binding.daily_budget,
        })
    };
    of_channel.map(to_json).collect()
}

/// Prints a table of all bindings, if there are any.
pub(super) fn print_table(ctx: &Context, bindings: &[ChatBinding]) -> Result<()> {
    if bindings.is_empty() {
        return Ok(());
    }
    let columns: [Column<'_, ChatBinding>; 3] = [
        ("CHANNEL", Side::Left, &|binding| binding.channel.to_owned()),
        ("BOUND", Side::Left, &|binding| {
            sanitize(&format!("{} {}", binding.kind.name(), binding.id))
        }),
        ("TO", Side::Left, &|binding| sanitize(&describe(ctx, binding).join(", "))),
    ];
    let table = format_table(bindings, &columns, ctx.terminal.stdout_width());
    ctx.terminal.print(&format!("\n{table}"))
}
