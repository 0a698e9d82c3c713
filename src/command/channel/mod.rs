//! `nanobot channel`: polls chat services, sends messages, and manages who is answered.

use crate::cli::channel::{
    ChannelBindArgs, ChannelCommand, ChannelPollArgs, ChannelSendArgs, PairCommand, ServiceFormat,
};
use crate::command::cron::export::print_or_write;
use crate::ops::channel::bindings;
use crate::ops::channel::health::{self, ChannelHealth, ChannelProblem};
use crate::ops::channel::open_channel::find_named;
use crate::ops::channel::outbox::{self, OutboxFile, OutboxMessage, SendOutcome};
use crate::ops::channel::overview::{self, WaitingMessage};
use crate::ops::channel::pairing;
use crate::ops::context::Context;
use crate::ops::inbound::poll::{self, PollOptions};
use crate::ops::jobs::export;
use crate::ops::jobs::time_format::{format_time, to_one_line};
use crate::options::job::ExportFormat;
use anyhow::{Context as _, Result};
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_base::format::format_dollars;
use nanobot_base::message::Origin;
use nanobot_base::shell_quote;
use nanobot_channel::MessageSource;
use nanobot_channel::pairing::PendingPairing;
use nanobot_config::settings::bindings::{BindingKind, ChatBinding};
use nanobot_os::input::{self, StdinMode};
use nanobot_os::signal;
use nanobot_os::terminal::sanitize;
use serde_json::{Map, Value, json};
use std::time::Duration;

pub(crate) mod login;

/// Time that answers in progress have after a signal, unless `--grace` is given.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// Characters of a message in a list.
const MAX_PREVIEW_CHARS: usize = 60;

/// Runs `nanobot channel`.
pub fn run(ctx: &Context, command: &ChannelCommand) -> Result<Exit> {
    signal::install(None).context("wait for signals")?;
    match command {
        ChannelCommand::List { all, json } => list(ctx, *all, *json)?,
        ChannelCommand::Show { name, json } => show(ctx, name, *json)?,
        ChannelCommand::Check { name } => {
            let identity = overview::test(ctx, name)?;
            ctx.terminal.print(&format!("{} ({})\n", identity.name, identity.id))?;
        }
        ChannelCommand::Login { name } => login::log_in(ctx, name)?,
        ChannelCommand::Pair { command } => pair(ctx, command)?,
        ChannelCommand::Bind(arguments) => bind(ctx, arguments)?,
        ChannelCommand::Poll(arguments) => return poll(ctx, arguments),
        ChannelCommand::Export { names, format, output, image } => {
            let format = match format {
                ServiceFormat::Systemd => ExportFormat::Systemd,
                ServiceFormat::Kubernetes => ExportFormat::Kubernetes,
            };
            let mut exported = export::export_channels(ctx, names, format, image)?;
            print_or_write(ctx, format, output.as_deref(), &mut exported)?;
            return Ok(if exported.has_failed { Exit::Failed } else { Exit::Answered });
        }
        ChannelCommand::Send(arguments) => send(ctx, arguments)?,
        ChannelCommand::Inbox { dismiss: Some(id), .. } => {
            outbox::dismiss(ctx, find_waiting(ctx, id)?.channel, id)?;
        }
        ChannelCommand::Inbox { name, json, dismiss: None } => {
            list_inbox(ctx, name.as_deref(), *json)?;
        }
        ChannelCommand::Retry { id } => retry(ctx, id)?,
    }
    Ok(Exit::Answered)
}

fn list(ctx: &Context, all: bool, json: bool) -> Result<()> {
    let mut channels = health::list(ctx)?;
    channels.retain(|channel| all || channel.is_configured);
    let bindings = bindings::of_all_channels(ctx, &ctx.load_config()?)?;
    let now = ctx.clock.now();
    if json {
        let rows = channels.iter().map(|channel| {
            let problems = channel.problems(now.timestamp());
            let failures = channel.failures.iter().map(|(activity, failure)| {
                json!({ "activity": activity.name(), "since": failure.since().to_string(),
                    "error": failure.error })
            });
            json!({
                "name": channel.name,
                "enabled": channel.is_enabled,
                "last_poll": channel.last_poll.map(|at| at.to_string()),
                "waiting": channel.waiting,
                "waiting_since": channel.oldest_waiting.map(|at| at.to_string()),
                "given_up": channel.given_up,
                "failures": failures.collect::<Vec<_>>(),
                "problem": problems.first().map(ChannelProblem::name),
                "bindings": bindings_json(&bindings, channel.name),
            })
        });
        let rows: Vec<_> = rows.collect();
        return ctx.terminal.print_json(&json!({ "channels": rows }));
    }
    if channels.is_empty() {
        ctx.explain_empty("no channel is enabled; `--all` lists the channels that there are");
        return Ok(());
    }
    let columns: [Column<'_, ChannelHealth>; 5] = [
        ("NAME", Side::Left, &|channel| channel.name.to_owned()),
        ("STATE", Side::Left, &|channel| {
            if channel.is_enabled { "enabled" } else { "disabled" }.to_owned()
        }),
        ("LAST POLL", Side::Left, &|channel| {
            channel.last_poll.map_or_else(|| "never".to_owned(), |at| format_time(at, &now))
        }),
        ("WAITING", Side::Right, &|channel| channel.waiting.to_string()),
        ("PROBLEM", Side::Left, &|channel| {
            let problems = channel.problems(now.timestamp());
            let Some(problem) = problems.first() else {
                return String::new();
            };
            sanitize(&problem.describe(&format_time(problem.since(), &now)))
        }),
    ];
    ctx.terminal.print(&format_table(&channels, &columns, ctx.terminal.stdout_width()))?;
    print_bindings(ctx, &bindings)
}

fn show(ctx: &Context, name: &str, json: bool) -> Result<()> {
    let (files, inbox) = overview::show(ctx, name)?;
    if json {
        let keys: Map<String, Value> = files.config.to_json();
        let refused = inbox.refused.iter().map(|refused| {
            json!({
                "id": refused.sender.id, "verified": !refused.sender.is_unverified,
                "name": refused.sender.name, "chat": refused.chat,
            })
        });
        return ctx.terminal.print_json(&json!({
            "name": name,
            "keys": keys,
            "position": files.read_json("cursor.json")?["cursor"],
            "refused": refused.collect::<Vec<_>>(),
        }));
    }
    let mut text = String::new();
    for (key, value) in files.config.to_json() {
        text.push_str(&format!("channels.{name}.{key} = {value}\n"));
    }
    let cursor = &files.read_json("cursor.json")?["cursor"];
    text.push_str(&format!("position = {cursor}\n"));
    for refused in &inbox.refused {
        let name = to_one_line(refused.sender.name.as_deref().unwrap_or("no user name"));
        let id = &refused.sender.id;
        let note = if refused.sender.is_unverified { ", not verified" } else { "" };
        text.push_str(&format!("refused sender {id}{note} ({name}) in chat {}\n", refused.chat));
    }
    ctx.terminal.print(&text)
}

fn pair(ctx: &Context, command: &PairCommand) -> Result<()> {
    match command {
        PairCommand::List { json } => {
            for pending in pairing::pending(ctx)? {
                if *json {
                    ctx.terminal.print_json(&json!({
                        "code": pending.code,
                        "channel": pending.channel,
                        "sender": pending.sender_id,
                        "expires_at": pending.expires_at,
                    }))?;
                    continue;
                }
                let line =
                    format!("{}  {}  {}\n", pending.code, pending.channel, pending.sender_id);
                ctx.terminal.print(&line)?;
            }
        }
        PairCommand::Approve { code } => {
            let approved = pairing::approve(ctx, code)?;
            let PendingPairing { channel, sender_id, .. } = &approved.pairing;
            ctx.terminal.print(&format!("✓ {sender_id} may write in {channel}\n"))?;
            if approved.shares_memory {
                ctx.notice(&format!(
                    "{sender_id} shares the memory with all others who may write; `nanobot channel bind {channel} --sender {} \
                     --workspace DIR` gives a workspace apart",
                    shell_quote::quote(sender_id)
                ));
            }
        }
    }
    Ok(())
}

fn poll(ctx: &Context, arguments: &ChannelPollArgs) -> Result<Exit> {
    let ChannelPollArgs { names, wait, follow, grace, since } = arguments;
    let now = ctx.clock.timestamp().as_second();
    let since = since.map(|age| now.saturating_sub(i64::try_from(age.as_secs()).unwrap_or(now)));
    let options = PollOptions {
        names: names.clone(),
        wait: *wait,
        follow: *follow,
        grace: grace.unwrap_or(DEFAULT_GRACE),
        since,
    };
    poll::poll(ctx, &options)
}

fn send(ctx: &Context, arguments: &ChannelSendArgs) -> Result<()> {
    let ChannelSendArgs { name, to, text, attach, key } = arguments;
    let markdown = match text {
        Some(text) => text.clone(),
        None if !attach.is_empty() => String::new(),
        None => read_stdin(ctx)?,
    };
    let origin = match text {
        Some(_) if attach.is_empty() => Origin::User,
        _ => Origin::Project,
    };
    let message = OutboxMessage {
        is_offline: false,
        is_in_conversation: false,
        channel: name.clone(),
        to: to.clone(),
        markdown,
        files: attach.iter().map(|path| OutboxFile::open(path)).collect::<Result<_>>()?,
        key: key.clone(),
        source: Some(MessageSource { name: "`nanobot channel send`".into(), origin, job: None }),
    };
    print_ids(ctx, outbox::send(ctx, message)?)
}

fn read_stdin(ctx: &Context) -> Result<String> {
    let piped = input::read_stdin(StdinMode::Always, input::DEFAULT_IDLE_TIMEOUT, &mut |text| {
        ctx.notice(text);
    })?;
    let decoded = input::decode(piped.unwrap_or_default(), "standard input")?;
    Ok(decoded.text)
}

fn list_inbox(ctx: &Context, name: Option<&str>, json: bool) -> Result<()> {
    let messages = overview::waiting(ctx, name)?;
    if json {
        return ctx.terminal.print_json_lines(messages.iter().map(|message| {
            json!({
                "channel": message.channel, "id": message.id, "session": message.session, "state": message.state,
                "at": message.at.map(|at| at.to_string()), "text": message.text,
            })
        }));
    }
    let now = ctx.clock.now();
    let columns: [Column<'_, WaitingMessage>; 5] = [
        ("ID", Side::Left, &|message| message.id.clone()),
        ("SESSION", Side::Left, &|message| message.session.clone()),
        ("STATE", Side::Left, &|message| message.state.to_owned()),
        ("TIME", Side::Left, &|message| {
            message.at.map(|at| format_time(at, &now)).unwrap_or_default()
        }),
        ("TEXT", Side::Left, &|message| {
            let preview: String = message.text.chars().take(MAX_PREVIEW_CHARS).collect();
            sanitize(&to_one_line(&preview))
        }),
    ];
    ctx.terminal.print(&format_table(&messages, &columns, ctx.terminal.stdout_width()))
}

/// Finds the message `id` among those of all channels that wait, were given up or failed.
fn find_waiting(ctx: &Context, id: &str) -> Result<WaitingMessage> {
    let mut messages = overview::waiting(ctx, None)?.into_iter();
    messages.find(|message| message.id == id).ok_or_else(|| {
        fail(Exit::NoInput, format!("no channel has a message `{id}` that waits or failed"))
            .with_hint("`nanobot channel inbox` for the ids")
    })
}

fn retry(ctx: &Context, id: &str) -> Result<()> {
    let message = find_waiting(ctx, id)?;
    if outbox::reopen(ctx, message.channel, id)? {
        ctx.notice(&format!("the next poll of {} answers `{id}`", message.channel));
        return Ok(());
    }
    print_ids(ctx, outbox::retry(ctx, message.channel, id)?)
}

fn print_ids(ctx: &Context, outcome: SendOutcome) -> Result<()> {
    match outcome {
        SendOutcome::Sent(ids) => {
            ctx.terminal.print(&ids.iter().map(|id| format!("{id}\n")).collect::<String>())
        }
        SendOutcome::Waits(error) => Err(error),
    }
}

/// Runs `nanobot channel bind`.
fn bind(ctx: &Context, arguments: &ChannelBindArgs) -> Result<()> {
    let ChannelBindArgs { name, target, profile, model, budget, remove } = arguments;
    let (kind, id) = match (&target.chat, &target.sender) {
        (Some(id), _) => (BindingKind::Chat, id),
        (None, sender) => (BindingKind::Sender, sender.as_ref().expect("one of both is required")),
    };
    if *remove {
        if ctx.workspace.is_some() {
            let cause = "`--remove` removes the whole binding, and takes no `--workspace`";
            return Err(fail(Exit::Usage, cause));
        }
        bindings::unbind(ctx, name, kind, id)?;
        ctx.notice(&format!("the {} {id} of {name} is not bound any more", kind.name()));
        return Ok(());
    }
    let change = ChatBinding {
        channel: find_named(name)?.name,
        kind,
        id: id.clone(),
        profile: profile.clone(),
        workspace: None,
        model: model.clone(),
        daily_budget: *budget,
    };
    let binding = bindings::bind(ctx, change)?;
    let members = describe_binding(ctx, &binding).join(", ");
    ctx.notice(&format!("the {} {} of {name} is bound: {members}", kind.name(), binding.id));
    Ok(())
}

/// The members of a binding that are set, for people.
fn describe_binding(ctx: &Context, binding: &ChatBinding) -> Vec<String> {
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
fn bindings_json(bindings: &[ChatBinding], name: &str) -> Vec<Value> {
    let of_channel = bindings.iter().filter(|binding| binding.channel == name);
    let bindings_json = |binding: &ChatBinding| {
        json!({
            "kind": binding.kind.name(),
            "id": binding.id,
            "profile": binding.profile,
            "workspace": binding.workspace,
            "model": binding.model,
            "daily_budget": binding.daily_budget,
        })
    };
    of_channel.map(bindings_json).collect()
}

/// Prints a table of all bindings, if there are any.
fn print_bindings(ctx: &Context, bindings: &[ChatBinding]) -> Result<()> {
    if bindings.is_empty() {
        return Ok(());
    }
    let columns: [Column<'_, ChatBinding>; 3] = [
        ("CHANNEL", Side::Left, &|binding| binding.channel.to_owned()),
        ("BOUND", Side::Left, &|binding| {
            sanitize(&format!("{} {}", binding.kind.name(), binding.id))
        }),
        ("TO", Side::Left, &|binding| sanitize(&describe_binding(ctx, binding).join(", "))),
    ];
    let table = format_table(bindings, &columns, ctx.terminal.stdout_width());
    ctx.terminal.print(&format!("\n{table}"))
}
