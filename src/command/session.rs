//! `nanobot session`: the conversations that are kept.

use crate::World;
use crate::cli::{Agent, DryRun, Session as Arguments};
use crate::error::Exit;
use crate::message::{Message, plain_text};
use crate::session::{self, Entry, Place, Summary};
use crate::settings::{Config, Overrides, SessionSync, Settings};
use crate::sys::store::size_in_words;
use crate::sys::terminal::harmless;
use anyhow::Result;
use serde_json::{Value, json};

pub fn run(world: &World, arguments: &Arguments) -> Result<Exit> {
    let config = Config::load(&world.paths.config)?;
    let overrides = Overrides {
        workspace: world.shared.workspace.clone(),
        ..Overrides::default()
    };
    let settings = Settings::resolve(&config, &world.env, &overrides, &world.paths)?;
    let place = place(world, &settings)?;
    match arguments {
        Arguments::List { json } => list(world, &place, *json)?,
        Arguments::Show { key, json } => show(world, &place, key, *json)?,
        Arguments::Context { key, json } => {
            known(&place, key)?;
            let form = match json {
                true => DryRun::TableJson,
                false => DryRun::Table,
            };
            return Ok(super::agent::run(
                world,
                &Agent {
                    session: Some(key.clone()),
                    dry_run: Some(form),
                    no_stdin: true,
                    ..Agent::default()
                },
            ));
        }
        Arguments::Compact { key, instructions } => {
            known(&place, key)?;
            return Ok(super::agent::run(
                world,
                &Agent {
                    session: Some(key.clone()),
                    message: Some(format!("/compact {}", instructions.join(" "))),
                    no_stdin: true,
                    wait: 600,
                    max_parallel: 8,
                    ..Agent::default()
                },
            ));
        }
        Arguments::Rm { keys } => {
            for key in keys {
                session::remove(&place, key)?;
            }
        }
    }
    Ok(Exit::Answered)
}

/// # Errors
/// Status 66 when there is no session `key`.
fn known(place: &Place, key: &str) -> Result<()> {
    session::entries(place, key).map(drop)
}

/// Where sessions are kept, as the settings say.
pub(super) fn place(world: &World, settings: &Settings) -> Result<Place> {
    let sync = match settings.session_sync {
        SessionSync::Turn => session::Sync::Turn,
        SessionSync::None => session::Sync::None,
    };
    let limits = (settings.memory_window, settings.max_tool_result_chars);
    Place::new(
        &settings.workspace,
        &world.paths,
        sync,
        limits.0,
        limits.1,
        &world.clock,
    )
}

fn list(world: &World, place: &Place, as_json: bool) -> Result<()> {
    let sessions = session::list(place)?;
    let mut text = String::new();
    if as_json {
        for Summary {
            key,
            path,
            messages,
            updated,
            bytes,
            ..
        } in &sessions
        {
            let line = json!({ "key": key, "messages": messages, "updated": updated, "bytes": bytes, "path": path });
            text.push_str(&format!("{line}\n"));
        }
        return world.terminal.print(&text);
    }
    let width = sessions
        .iter()
        .map(|session| console::measure_text_width(&session.key))
        .max()
        .unwrap_or(0)
        .clamp(7, 60);
    if !sessions.is_empty() {
        text.push_str(&format!(
            "{:width$}  {:>8}  {:>9}  {}\n",
            "SESSION", "MESSAGES", "SIZE", "UPDATED"
        ));
    }
    for session in &sessions {
        let messages = session
            .messages
            .map_or_else(|| "?".into(), |count| count.to_string());
        let updated = session
            .updated
            .get(..16)
            .unwrap_or(&session.updated)
            .replace('T', " ");
        let key = harmless(&session.key);
        let pad = " ".repeat(width.saturating_sub(console::measure_text_width(&key)));
        text.push_str(&format!(
            "{key}{pad}  {messages:>8}  {:>9}  {updated}\n",
            size_in_words(session.bytes)
        ));
    }
    world.terminal.print(&text)
}

fn show(world: &World, place: &Place, key: &str, as_json: bool) -> Result<()> {
    for entry in session::entries(place, key)? {
        let text = match entry? {
            Entry::Message(logged) if as_json => format!("{}\n", line(&logged.message)),
            Entry::Message(logged) => transcript(&logged.message),
            Entry::Bad(at) => {
                world
                    .terminal
                    .complain(&format!("nanobot: the line at byte {at} cannot be read"));
                continue;
            }
        };
        world.terminal.print(&if world.terminal.out {
            harmless(&text)
        } else {
            text
        })?;
    }
    Ok(())
}

fn line(message: &Message) -> Value {
    match message {
        Message::User(user) => json!({ "role": "user", "text": plain_text(&user.parts) }),
        Message::Assistant(reply) => {
            let call = |call: &crate::message::ToolCall| json!({ "id": call.id, "name": call.name, "arguments": call.arguments });
            let calls: Vec<Value> = reply.calls.iter().map(call).collect();
            json!({ "role": "assistant", "text": reply.text, "tool_calls": calls, "model": reply.model })
        }
        Message::Tool(result) => {
            json!({ "role": "tool", "call": result.call, "name": result.name, "text": plain_text(&result.parts), "failed": result.failed })
        }
    }
}

/// A message for people: who, and what; tool calls and results in a few lines.
fn transcript(message: &Message) -> String {
    let block = |who: &str, text: &str| format!("{who}\n{}\n\n", text.trim_end());
    match message {
        Message::User(user) => block("> user", &plain_text(&user.parts)),
        Message::Assistant(reply) => {
            let calls = reply
                .calls
                .iter()
                .map(|call| format!("  ↳ {} {}\n", call.name, short(&call.arguments.to_string())));
            let calls: String = calls.collect();
            let text = if reply.text.is_empty() {
                String::new()
            } else {
                block("> nanobot", &reply.text)
            };
            format!("{text}{calls}")
        }
        Message::Tool(result) => {
            let mark = if result.failed { "✗" } else { "=" };
            format!("  {mark} {}\n\n", short(&plain_text(&result.parts)))
        }
    }
}

fn short(text: &str) -> String {
    let line = text.replace('\n', " ⏎ ");
    match line.char_indices().nth(120) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
