//! Consolidates one session, a chunk at a time: reads messages, asks the model for an update, and applies it to the memory.

use crate::error::{Stop, without_turn};
use crate::ledger::Account;
use crate::memory::request::{self, LETTERS, Length};
use crate::memory::{Cause, Change, Done, Held, Memory, answer, history, objection};
use crate::message::{Message, Part, Usage, User};
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::turn_options::TurnOptions;
use crate::policy::reach::Reach;
use crate::policy::seen::{Ground, Seen};
use crate::provider::{Calls, Delta, ProviderError, Request};
use crate::report::Report;
use crate::report::{Form, Level, Progress, json::Stamp};
use crate::session::consolidation::{self, Next, Piece, Terms};
use crate::session::{Logged, Place};
use crate::settings::{Overrides, Settings};
use crate::sys::secret::random_hex;
use anyhow::Result;
use std::path::Path;

/// Attempts at a chunk before it is archived as it is.
pub(crate) const MAX_TRIES: u32 = 3;
/// Upper bound of a chunk. A summary of more says too little.
const MAX_CHUNK_TOKENS: usize = 64_000;
/// Lower bound of a chunk, however small the context window.
const MIN_CHUNK_TOKENS: usize = 1000;

/// Consolidates sessions into the memory with one model.
pub(crate) struct Consolidator<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: Settings,
    pub(crate) place: Place,
    pub(crate) memory: Memory,
    /// How the model is asked: `--offline` and the like.
    pub(crate) arguments: TurnOptions,
    pub(crate) terms: Terms,
    context: usize,
}

/// A chunk of a session that is now in the memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConsolidatedChunk {
    pub(crate) messages: usize,
    /// It was kept as it is, since no model made anything of it.
    pub(crate) raw: bool,
    /// Bytes of the memory before and after.
    pub(crate) bytes: (usize, usize),
    /// Why the new memory was kept aside.
    pub(crate) aside: Option<String>,
}

/// Cost, failed attempts included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) usage: Usage,
    /// US dollars; `None` where a price is not known.
    pub(crate) usd: Option<f64>,
    /// Requests that were answered.
    pub(crate) requests: u32,
}

/// The result of one step.
#[derive(Debug)]
pub(crate) enum StepResult {
    /// Nothing is to be done.
    Idle,
    Consolidated(ConsolidatedChunk),
    /// The answer was of no use, in words; there are tries left.
    Failed(String),
}

/// The model's answer.
enum ModelOutcome {
    /// The memory that it was made for, and what it is to become.
    Update(Vec<u8>, answer::Update),
    Useless(String),
}

impl<'a> Consolidator<'a> {
    /// With the model that `model` names, else the one that is configured for this, else the one of turns. Whoever is asked,
    /// what is due depends on the model that answers turns; `answering` is what that takes in and gives out, where it is
    /// known.
    pub(crate) fn new(
        ctx: &'a Context,
        model: Option<&str>,
        arguments: TurnOptions,
        answering: Option<u32>,
    ) -> Result<Self> {
        let mut settings = ctx.settings()?;
        let answering = answering.unwrap_or_else(|| model::context(ctx, &settings));
        let terms = terms(&settings, answering);
        if let Some(model) = model.or(settings.memory.model.as_deref()) {
            settings = ctx.settings_with(Overrides {
                model: Some(model.to_owned()),
                ..Overrides::default()
            })?;
        }
        let context = model::context(ctx, &settings);
        Ok(Self {
            place: ctx.session_place(&settings)?,
            memory: Memory::new(&settings.workspace, &ctx.clock),
            terms,
            context: context as usize,
            ctx,
            settings,
            arguments,
        })
    }

    /// Move the pointer of a session, as the memory wants it done.
    pub(crate) fn advance(&self) -> impl FnMut(&str, usize, usize) -> Result<()> {
        let place = self.place.clone();
        // One that does not move is that of a session which another program has changed or removed.
        move |key, from, to| consolidation::advance(&place, key, from, to).map(drop)
    }

    /// Make memory of the next piece of `key`; with `all` also where nothing is due.
    ///
    /// # Errors
    /// Nobody can be asked, or a file cannot be read or written.
    pub(crate) fn step(
        &self,
        held: &Held,
        key: &str,
        all: bool,
        spent: &mut Spent,
        report: &mut Report,
    ) -> Result<StepResult> {
        let Some(next) = consolidation::next(&self.place, key, &self.terms, all)? else {
            return Ok(StepResult::Idle);
        };
        if next.tries >= MAX_TRIES {
            return self.keep_raw(held, key, &next);
        }
        // What was too much is tried with less.
        let room = (self.context / 3).clamp(MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS) >> next.tries;
        let Some((piece, lines)) = self.read(key, &next, Length::Short, room)? else {
            return Ok(StepResult::Idle);
        };
        if lines.is_empty() {
            return self.keep_raw(held, key, &next);
        }
        let (seen, update) = match self.ask(held, key, &next, &lines, spent, report)? {
            None => return Ok(StepResult::Idle),
            Some(ModelOutcome::Update(seen, update)) => (seen, update),
            Some(ModelOutcome::Useless(_)) if next.tries + 1 >= MAX_TRIES => {
                return self.keep_raw(held, key, &next);
            }
            Some(ModelOutcome::Useless(words)) => return Ok(StepResult::Failed(words)),
        };
        let old = String::from_utf8_lossy(&seen);
        let budget = self.settings.memory.budget;
        let tidying = request::is_over(&old, budget).then_some(budget);
        let aside = update
            .memory
            .as_deref()
            .and_then(|new| objection(&old, new, tidying));
        let change = Change {
            piece: Some((key, piece.from, piece.to)),
            entries: vec![history::entry(&update.entry, &self.stamp())],
            memory: update.memory.map(String::into_bytes),
            aside: aside.clone(),
            untrusted: self.untrusted(&piece),
            of: None,
            trouble: None,
        };
        let mut advance = self.advance();
        let done = held.apply(&seen, Cause::Consolidation, change, &mut advance)?;
        let meanwhile = || "the memory was changed meanwhile".to_owned();
        Ok(StepResult::Consolidated(ConsolidatedChunk {
            messages: piece.to - piece.from,
            raw: false,
            bytes: (seen.len(), self.memory.read()?.unwrap_or_default().len()),
            aside: aside.or_else(|| (done == Done::Aside).then(meanwhile)),
        }))
    }

    /// Ask the model, and write down before that it is tried. `None` where the piece is not next any more.
    fn ask(
        &self,
        held: &Held,
        key: &str,
        next: &Next,
        lines: &[String],
        spent: &mut Spent,
        report: &mut Report,
    ) -> Result<Option<ModelOutcome>> {
        let account = Account {
            session: key.to_owned(),
            turn: random_hex(6),
            job: None,
            cause: "consolidation",
        };
        // What cannot be read or written is no try of a model's.
        held.check()?;
        let mut seen = held.look()?;
        let settings = self.with_room_for(&seen);
        let chosen = model::choose(self.ctx, &self.arguments, &settings, &account, report)?;
        let sampling = model::sampling(&settings.asked[0]);
        let tools = [request::spec()];
        if !consolidation::count_try(&self.place, key, next)? {
            return Ok(None);
        }
        let (mut again, mut heard) = (true, false);
        loop {
            let memory = String::from_utf8_lossy(&seen);
            let text = request::text(&memory, lines, &self.stamp(), self.settings.memory.budget);
            let messages = [Message::User(User {
                id: account.turn.clone(),
                parts: vec![Part::Text(text)],
                ..User::default()
            })];
            let request = Request {
                system: request::SYSTEM,
                messages: &messages,
                tools: &tools,
                calls: Calls::Must(answer::TOOL),
                model: &chosen.model,
                sampling: &sampling,
                reply_id: &account.turn,
                schema: None,
            };
            let reply = chosen.provider.reply(&request, &mut |delta| {
                heard |= matches!(delta, Delta::Text(_) | Delta::Reasoning(_));
                report.tell(delta.event(""))
            });
            let reply = match reply {
                Ok(reply) => reply,
                Err(error) => {
                    if !heard && is_no_try(&error) {
                        consolidation::take_back(&self.place, key, next)?;
                    }
                    return Err(without_turn(
                        error.into_failure(),
                        &format!("nothing became of `{key}`"),
                    ));
                }
            };
            heard = true;
            spent.add(reply.usage, reply.cost);
            let update = match answer::update(&reply) {
                Ok(update) if answer::is_quoted(&update, &lines.join("\n"), &memory) => {
                    let words = "the answer is a quotation from the conversation".into();
                    return Ok(Some(ModelOutcome::Useless(words)));
                }
                Ok(update) => update,
                Err(words) => return Ok(Some(ModelOutcome::Useless(words))),
            };
            // Somebody wrote into the memory while the model thought: it is asked again, once, with what they wrote.
            let is_stale = update.memory.is_some()
                && self.memory.read()?.unwrap_or_default() != seen
                && std::mem::take(&mut again);
            if !is_stale {
                return Ok(Some(ModelOutcome::Update(seen, update)));
            }
            seen = held.look()?;
        }
    }

    /// The settings, with an answer that has room for the whole of the memory and more: what is cut is of no use. Whoever
    /// asks a model keeps within what that gives out.
    fn with_room_for(&self, memory: &[u8]) -> Settings {
        let mut settings = self.settings.clone();
        let tokens = String::from_utf8_lossy(memory).chars().count() / LETTERS;
        let least = u32::try_from(tokens + tokens / 4 + 1000).unwrap_or(u32::MAX);
        for asked in &mut settings.asked {
            asked.max_tokens = asked.max_tokens.max(least);
        }
        settings
    }

    /// Keep a piece as it is in the history, since no model makes anything of it.
    fn keep_raw(&self, held: &Held, key: &str, next: &Next) -> Result<StepResult> {
        let Some((piece, lines)) = self.read(key, next, Length::Whole, MAX_CHUNK_TOKENS)? else {
            return Ok(StepResult::Idle);
        };
        let messages = piece.to - piece.from;
        let words = || {
            format!(
                "no model made memory of {messages} messages, and the history has them as they are"
            )
        };
        let change = Change {
            piece: Some((key, piece.from, piece.to)),
            trouble: (!lines.is_empty()).then(words),
            entries: match lines.is_empty() {
                true => Vec::new(),
                false => request::raw(&lines, messages, &self.stamp()),
            },
            ..Change::default()
        };
        let seen = held.look()?;
        held.apply(&seen, Cause::Consolidation, change, &mut self.advance())?;
        Ok(StepResult::Consolidated(ConsolidatedChunk {
            messages,
            raw: true,
            bytes: (seen.len(), seen.len()),
            aside: None,
        }))
    }

    /// The next piece, and its lines; `room` is in tokens. A single turn that has no room is condensed until it has, but
    /// where it is told as a whole.
    fn read(
        &self,
        key: &str,
        next: &Next,
        length: Length,
        room: usize,
    ) -> Result<Option<(Piece, Vec<String>)>> {
        let line = |logged: &Logged| request::line(&logged.time, &logged.message, length);
        let (mut size, room) = (0, room * LETTERS);
        let piece = consolidation::read(&self.place, key, next, &mut |logged| {
            size += line(logged).map_or(0, |line| line.len() + 1);
            size <= room
        })?;
        Ok(piece.map(|piece| {
            let each = piece.messages.iter();
            let lines = match length {
                Length::Whole => each.filter_map(line).collect(),
                _ => {
                    let each = each.map(|logged| (logged.time.as_str(), &logged.message));
                    request::lines(&each.collect::<Vec<_>>(), room)
                }
            };
            (piece, lines)
        }))
    }

    /// What strangers had said in a piece, where they had. Of files it is known only whether they lie in the workspace.
    fn untrusted(&self, piece: &Piece) -> Option<String> {
        let seen = Seen::new(Ground {
            reach: Reach::default(),
            workspace: self.settings.workspace.clone(),
            commands_write_anywhere: false,
            real: Box::new(Path::to_owned),
        });
        let messages = piece.messages.iter();
        messages.for_each(|logged| seen.heed(&logged.message));
        seen.untrusted()
    }

    fn stamp(&self) -> String {
        self.ctx.clock.now().strftime("%Y-%m-%d %H:%M").to_string()
    }
}

/// When a conversation is due: past its window, or half of the model's context, whichever comes first.
pub(crate) fn terms(settings: &Settings, context: u32) -> Terms {
    Terms {
        window: settings.memory_window,
        tokens: u64::from(context / 2),
    }
}

impl Spent {
    /// Take what another came to as well.
    pub(crate) fn join(&mut self, other: &Self) {
        if other.requests > 0 {
            let requests = self.requests + other.requests;
            self.add(other.usage, other.usd);
            self.requests = requests;
        }
    }

    fn add(&mut self, usage: Usage, usd: Option<f64>) {
        let before = if self.requests == 0 {
            Some(0.0)
        } else {
            self.usd
        };
        self.usd = before.zip(usd).map(|(before, usd)| before + usd);
        self.usage += usage;
        self.requests += 1;
    }
}

/// Whether no model has judged the piece, so that another time it may: a budget forbids to ask, a key, a login or the
/// address could not be had or is wrong, or there was nobody to answer. Else an outage would make raw text of everything.
fn is_no_try(error: &ProviderError) -> bool {
    match error {
        ProviderError::Spent(_)
        | ProviderError::Busy { .. }
        | ProviderError::Unavailable(_)
        | ProviderError::KeyRejected(_)
        | ProviderError::NotFound(_) => true,
        ProviderError::Aborted(error) => !error.is::<Stop>(),
        ProviderError::Broken(_) | ProviderError::TooLong(_) | ProviderError::Refused(_) => false,
    }
}

pub(crate) fn quiet_report(ctx: &Context, level: Level) -> Report {
    let stamp = Stamp {
        clock: ctx.clock.clone(),
        ..Stamp::default()
    };
    Report::new(
        ctx.terminal,
        Form::Text,
        Progress::new(ctx.terminal, level),
        stamp,
    )
}
