//! `nanobot status`: what is configured, how the memory is, and what cron does next.

use super::asker::{self, Way};
use crate::World;
use crate::cli::Status as Arguments;
use crate::error::Exit;
use crate::memory::Memory;
use crate::memory::last::Outcome;
use crate::memory::request::{self, LETTERS};
use crate::session;
use crate::settings::{Config, Overrides, Settings};
use crate::sys::store::size_in_words;
use crate::sys::terminal::harmless;
use anyhow::Result;
use serde_json::json;

mod check;
mod cron;

pub fn run(world: &World, arguments: &Arguments) -> Result<Exit> {
    if arguments.check {
        return check::run(world, arguments.json);
    }
    let config = Config::load(&world.paths.config)?;
    let overrides = Overrides {
        workspace: world.shared.workspace.clone(),
        ..Overrides::default()
    };
    let settings = Settings::resolve(&config, &world.env, &overrides, &world.paths)?;
    let asked = asker::way(world, &settings, &settings.asked[0], true, true);
    let sessions = session::list(&super::session::place(world, &settings)?)?
        .sessions
        .len();
    let memory = Memory::new(&settings.workspace, &world.clock);
    let text = memory.read()?.unwrap_or_default();
    let shown = String::from_utf8_lossy(&text);
    let (tokens, budget) = (
        shown.chars().count().div_ceil(LETTERS),
        settings.memory.budget,
    );
    let is_over = request::is_over(&shown, budget);
    let last = memory.last()?;
    let trouble = memory.trouble()?;
    let cron = cron::Glance::of(world, &settings);
    if arguments.json {
        let (choice, error) = match &asked {
            Ok(Way { choice, .. }) => (Some(choice), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let memory = json!({
            "bytes": text.len(), "tokens": tokens, "budget_tokens": budget, "over_budget": is_over,
            "last_consolidation": last,
            "trouble": trouble,
        });
        let line = json!({
            "model": choice.map(|choice| &choice.model), "provider": choice.map(|choice| &choice.provider),
            "key": choice.map(|choice| choice.key_place.replace('`', "")), "error": error,
            "config": world.paths.config, "workspace": settings.workspace, "sessions": sessions, "memory": memory,
            "cron": cron.json(),
        });
        world.terminal.print_json(&line)?;
        return Ok(Exit::Answered);
    }
    let mut rows = match &asked {
        Ok(Way { choice, wire }) => vec![
            ("model", choice.model.clone()),
            ("provider", choice.provider.clone()),
            (
                "key",
                match wire.key.is_some() {
                    true => choice.key_place.replace('`', ""),
                    false => "none".into(),
                },
            ),
        ],
        Err(error) => vec![("model", format!("none can be asked: {error:#}"))],
    };
    rows.push(("workspace", world.paths.display(&settings.workspace)));
    rows.push(("sessions", sessions.to_string()));
    let over = match is_over {
        true => "; that is over its budget, and the next consolidation is asked to tidy it",
        false => "",
    };
    let size = size_in_words(text.len() as u64);
    rows.push((
        "memory",
        format!("{size}, some {tokens} of {budget} tokens{over}"),
    ));
    let when = last.map_or_else(
        || "never".into(),
        |last| {
            let outcome = match last.outcome {
                Outcome::New => "",
                Outcome::Same => "; the memory stayed as it was",
                Outcome::Aside => "; the new text is kept aside",
                Outcome::Raw => "; the history has its messages as they are",
            };
            format!("{}, of {}{outcome}", last.time, last.session)
        },
    );
    rows.push(("made", when));
    rows.extend(
        trouble.map(|words| ("trouble", format!("the last consolidation failed: {words}"))),
    );
    rows.extend(cron.rows(world));
    let lines = rows
        .iter()
        .map(|(name, words)| format!("{name:<9}  {}\n", harmless(words)));
    world.terminal.print(&lines.collect::<String>())?;
    Ok(Exit::Answered)
}
