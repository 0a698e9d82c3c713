//! `nanobot session`: the conversations that are kept.

use crate::cli::agent::{Agent, DryRun};
use crate::cli::session::Session as Arguments;
use crate::error::Exit;
use crate::ops::context::Context;
use crate::session::{self, Place};
use crate::settings::{SessionSync, Settings};
use crate::sys::terminal::harmless;
use anyhow::Result;

mod export;
mod keys;
mod list;
mod remove;
mod repair;
mod search;
mod show;
mod transcript;

pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let settings = ctx.settings()?;
    let place = place(ctx, &settings)?;
    match arguments {
        Arguments::List(arguments) => return list::run(ctx, &place, arguments),
        Arguments::Show(arguments) => show::run(ctx, &place, arguments)?,
        Arguments::Search(arguments) => {
            return search::run(ctx, &place, &settings.workspace, arguments);
        }
        Arguments::Export(arguments) => export::run(ctx, &place, arguments)?,
        Arguments::Fork { key, new, at } => {
            let count = session::fork(&place, key, new, *at)?;
            ctx.notice(&format!("copied into `{new}`: {count} messages"));
        }
        Arguments::Context { key, json } => {
            known(&place, key)?;
            let form = match json {
                true => DryRun::TableJson,
                false => DryRun::Table,
            };
            return Ok(super::agent::run(
                ctx,
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
                ctx,
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
        Arguments::Rename { key, new } => {
            for older in session::rename(&place, key, new)? {
                let older = ctx.paths.display(&older);
                ctx.notice(&format!(
                    "an older `{key}` is found from now on, in `{older}`"
                ));
            }
        }
        Arguments::Rm { keys, for_good } => remove::rm(ctx, &place, keys, *for_good)?,
        Arguments::Restore { key } => remove::restore(ctx, &place, key.as_deref())?,
        Arguments::Prune(arguments) => return remove::prune(ctx, &place, arguments),
        Arguments::Repair {
            keys,
            all: _,
            dry_run,
        } => return repair::run(ctx, &place, keys, *dry_run),
    }
    Ok(Exit::Answered)
}

/// # Errors
/// Status 66 when there is no session `key`.
pub(super) fn known(place: &Place, key: &str) -> Result<()> {
    session::entries(place, key).map(drop)
}

/// Where sessions are kept, as the settings say.
pub(super) fn place(ctx: &Context, settings: &Settings) -> Result<Place> {
    let sync = match settings.session_sync {
        SessionSync::Turn => session::Sync::Turn,
        SessionSync::None => session::Sync::None,
    };
    let limits = (settings.memory_window, settings.max_tool_result_chars);
    Place::new(
        &settings.workspace,
        &ctx.paths,
        sync,
        limits.0,
        limits.1,
        &ctx.clock,
    )
}

/// A key, or other words, on one line that a terminal can show.
fn shown(text: &str) -> String {
    harmless(text).replace(['\n', '\t'], " ")
}
