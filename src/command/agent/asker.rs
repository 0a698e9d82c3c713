//! Whom a turn asks: a provider by the registry, a recording, or the demo.

use crate::World;
use crate::cli::Agent as Arguments;
use crate::error::{Exit, fail};
use crate::provider::openai_chat::OpenAiChat;
use crate::provider::record::Record;
use crate::provider::registry::{self, Block, Choice, Wanted};
use crate::provider::replay::Replay;
use crate::provider::retry::Retry;
use crate::provider::{Provider, demo};
use crate::report::Report;
use crate::settings::Settings;
use crate::sys::http::{self, Http, Timeouts};
use crate::sys::input;
use anyhow::Result;
use std::collections::BTreeMap;

/// Who answers.
pub(super) struct Chosen {
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) answers: Box<dyn Provider>,
}

/// Choose who answers this turn.
pub(super) fn choose(
    world: &World,
    arguments: &Arguments,
    settings: &Settings,
    report: &mut Report,
) -> Result<Chosen> {
    let chosen = match &arguments.replay {
        Some(path) if path.as_os_str() == demo::NAME && !path.exists() => Chosen {
            provider: demo::NAME.into(),
            model: demo::NAME.into(),
            answers: Box::new(demo::Demo),
        },
        Some(path) => {
            if !path.exists() {
                let cause = format!("there is no recording `{}`", path.display());
                return Err(fail(Exit::NoInput, cause));
            }
            // As long as it may be: a recording of many turns is one file.
            let bytes = input::read_file(path, &path.display().to_string(), usize::MAX)?;
            let replay = Replay::new(path, &String::from_utf8_lossy(&bytes))?;
            let model = settings.model.clone().unwrap_or_else(|| "replay".into());
            Chosen {
                provider: "replay".into(),
                model,
                answers: Box::new(replay),
            }
        }
        None => {
            let (choice, wire) = wire(world, settings, arguments.offline, !arguments.no_stream)?;
            if wire.key.is_some() && http::is_exposed(&wire.base) {
                report.notice(&format!("the key goes to {} in the clear", wire.base));
            }
            let answers = Retry {
                inner: wire,
                clock: world.clock.clone(),
            };
            Chosen {
                provider: choice.0,
                model: choice.1,
                answers: Box::new(answers),
            }
        }
    };
    Ok(match &arguments.record {
        Some(path) => {
            // A recording that is there is begun anew, so that it can be replayed from its beginning; a pipe or a device
            // takes it as it comes.
            if path.is_file() {
                crate::sys::store::replace(path, b"")?;
            }
            let answers = Record {
                inner: chosen.answers,
                path: path.clone(),
            };
            Chosen {
                answers: Box::new(answers),
                ..chosen
            }
        }
        None => chosen,
    })
}

/// The wire to the chosen provider, and the provider's name and model.
pub(in crate::command) fn wire(
    world: &World,
    settings: &Settings,
    offline: bool,
    stream: bool,
) -> Result<((String, String), OpenAiChat)> {
    let blocks: BTreeMap<String, Block> = settings
        .providers
        .iter()
        .map(|(name, block)| {
            let headers = block
                .extra_headers
                .iter()
                .map(|(name, value)| (name.clone(), value.expose().to_owned()));
            let block = Block {
                key: block.api_key.clone(),
                base: block.api_base.clone(),
                headers: headers.collect(),
            };
            (name.clone(), block)
        })
        .collect();
    let wanted = Wanted {
        provider: &settings.provider,
        model: settings.model.as_deref().unwrap_or_default(),
        model_given: settings.model.is_some(),
        blocks: &blocks,
        env: &world.env,
    };
    let choice = registry::choose(&wanted);
    // Why a block cannot be used matters once it is the one, or when there is no other.
    let name = choice
        .as_ref()
        .map_or(settings.provider.clone(), |choice| choice.provider.clone());
    settings.block(&name)?;
    if choice.is_err() {
        for name in settings.providers.keys() {
            settings.block(name)?;
        }
    }
    let Choice {
        provider,
        model,
        base,
        key,
        key_source,
        headers,
        quirks,
    } = choice?;
    let limits = &settings.timeouts;
    let timeouts = Timeouts {
        connect: limits.connect,
        first_byte: limits.first_byte,
        idle: limits.stream_idle,
        total: limits.total,
    };
    let http = Http::new(timeouts, offline, &world.env);
    let wire = OpenAiChat {
        base,
        key,
        key_source,
        headers,
        quirks,
        stream,
        http,
    };
    Ok(((provider, model), wire))
}
