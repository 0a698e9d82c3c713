//! Consolidates one session, a chunk at a time: reads messages, asks the model for an update, and applies it to the
//! memory.

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

/// Attempts at a chunk before it is archived unchanged.
pub(crate) const MAX_TRIES: u32 = 3;
/// Upper limit of a chunk, in tokens. Summaries of larger chunks lose too much detail.
const MAX_CHUNK_TOKENS: usize = 64_000;
/// Lower limit of a chunk, in tokens, even for a small context window.
const MIN_CHUNK_TOKENS: usize = 1000;

/// Consolidates sessions into the memory with one model.
pub(crate) struct Consolidator<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: Settings,
    pub(crate) place: Place,
    pub(crate) memory: Memory,
    /// The options of the requests to the model, such as `--offline`.
    pub(crate) arguments: TurnOptions,
    /// The thresholds that decide if a session is due.
    pub(crate) terms: Terms,
    context: usize,
}

/// A chunk of a session that is now in the memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConsolidatedChunk {
    /// Number of messages in the chunk.
    pub(crate) messages: usize,
    /// True if it was archived unchanged because every attempt failed.
    pub(crate) raw: bool,
    /// Bytes of the memory before and after.
    pub(crate) bytes: (usize, usize),
    /// The reason why the new memory was stored aside instead of applied.
    pub(crate) aside: Option<String>,
}

/// Cost, failed attempts included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Tokens used.
    pub(crate) usage: Usage,
    /// US dollars; `None` if a price is not known.
    pub(crate) usd: Option<f64>,
    /// Answered requests.
    pub(crate) requests: u32,
}

/// The result of one step.
#[derive(Debug)]
pub(crate) enum StepResult {
    /// There is nothing to do.
    Idle,
    Consolidated(ConsolidatedChunk),
    /// The model's answer was unusable, with the reason. Attempts are left.
    Failed(String),
}

/// The model's answer.
enum ModelOutcome {
    /// The memory that the model saw, and the update it made.
    Update(Vec<u8>, answer::Update),
    Useless(String),
}

impl<'a> Consolidator<'a> {
    /// Creates a consolidator. It asks the model `model`, or else the configured consolidation model, or else the model
    /// of turns. Thresholds always follow the model that answers turns; `turn_context_tokens` is that model's context
    /// window in tokens (input and output together), if known.
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

    /// Returns the callback with which the memory advances a session's consolidation pointer.
    pub(crate) fn advance(&self) -> impl FnMut(&str, usize, usize) -> Result<()> {
        let place = self.place.clone();
        // If the pointer does not move, another program has changed or removed the session. That is no error.
        move |key, from, to| consolidation::advance(&place, key, from, to).map(drop)
    }

    /// Consolidates the next chunk of `key`. With `include_not_due`, also if it is not due yet.
    ///
    /// # Errors
    /// No model can be asked, or a file cannot be read or written.
    pub(crate) fn step(
        &self,
        locked_memory: &Held,
        key: &str,
        all: bool,
        spent: &mut Spent,
        report: &mut Report,
    ) -> Result<StepResult> {
        let Some(next) = consolidation::next(&self.place, key, &self.terms, all)? else {
            return Ok(StepResult::Idle);
        };
        if next.tries >= MAX_TRIES {
            return self.keep_raw(locked_memory, key, &next);
        }
        // After a failed attempt, the chunk is halved.
        let room = (self.context / 3).clamp(MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS) >> next.tries;
        let Some((piece, lines)) = self.read(key, &next, Length::Short, room)? else {
            return Ok(StepResult::Idle);
        };
        if lines.is_empty() {
            return self.keep_raw(locked_memory, key, &next);
        }
        let (base_text, update) =
            match self.ask(locked_memory, key, &next, &lines, spent, report)? {
                None => return Ok(StepResult::Idle),
                Some(ModelOutcome::Update(base_text, update)) => (base_text, update),
                Some(ModelOutcome::Useless(_)) if next.tries + 1 >= MAX_TRIES => {
                    return self.keep_raw(locked_memory, key, &next);
                }
                Some(ModelOutcome::Useless(words)) => return Ok(StepResult::Failed(words)),
            };
        let old = String::from_utf8_lossy(&base_text);
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
        let done = locked_memory.apply(&base_text, Cause::Consolidation, change, &mut advance)?;
        let meanwhile = || "the memory was changed in the meantime".to_owned();
        Ok(StepResult::Consolidated(ConsolidatedChunk {
            messages: piece.to - piece.from,
            raw: false,
            bytes: (
                base_text.len(),
                self.memory.read()?.unwrap_or_default().len(),
            ),
            aside: aside.or_else(|| (done == Done::Aside).then(meanwhile)),
        }))
    }

    /// Asks the model. The attempt is counted on disk first. Returns `None` if the chunk is no longer the next one.
    fn ask(
        &self,
        locked_memory: &Held,
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
        // Read and check before counting: an I/O error must not count as an attempt.
        locked_memory.check()?;
        let mut base_text = locked_memory.look()?;
        let settings = self.with_room_for(&base_text);
        let chosen = model::choose(self.ctx, &self.arguments, &settings, &account, report)?;
        let sampling = model::sampling(&settings.asked[0]);
        let tools = [request::spec()];
        if !consolidation::count_try(&self.place, key, next)? {
            return Ok(None);
        }
        let (mut again, mut has_output) = (true, false);
        loop {
            let memory = String::from_utf8_lossy(&base_text);
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
                has_output |= matches!(delta, Delta::Text(_) | Delta::Reasoning(_));
                report.tell(delta.event(""))
            });
            let reply = match reply {
                Ok(reply) => reply,
                Err(error) => {
                    if !has_output && is_no_try(&error) {
                        consolidation::take_back(&self.place, key, next)?;
                    }
                    return Err(without_turn(
                        error.into_failure(),
                        &format!("`{key}` was not consolidated"),
                    ));
                }
            };
            has_output = true;
            spent.add(reply.usage, reply.cost);
            let update = match answer::update(&reply) {
                Ok(update) if answer::is_quoted(&update, &lines.join("\n"), &memory) => {
                    let words =
                        "the answer quotes the conversation instead of summarizing it".into();
                    return Ok(Some(ModelOutcome::Useless(words)));
                }
                Ok(update) => update,
                Err(words) => return Ok(Some(ModelOutcome::Useless(words))),
            };
            // The memory was changed while the model worked. Ask once more, with the new text.
            let is_stale = update.memory.is_some()
                && self.memory.read()?.unwrap_or_default() != base_text
                && std::mem::take(&mut again);
            if !is_stale {
                return Ok(Some(ModelOutcome::Update(base_text, update)));
            }
            base_text = locked_memory.look()?;
        }
    }

    /// Returns the settings with an output limit that leaves room for the whole memory and more, because a truncated
    /// answer is useless. The provider still caps it at the model's own limit.
    fn with_room_for(&self, memory: &[u8]) -> Settings {
        let mut settings = self.settings.clone();
        let tokens = String::from_utf8_lossy(memory).chars().count() / LETTERS;
        let least = u32::try_from(tokens + tokens / 4 + 1000).unwrap_or(u32::MAX);
        for asked in &mut settings.asked {
            asked.max_tokens = asked.max_tokens.max(least);
        }
        settings
    }

    /// Archives a chunk unchanged in the history, because no model could summarize it or it has no text.
    fn keep_raw(&self, locked_memory: &Held, key: &str, next: &Next) -> Result<StepResult> {
        let Some((piece, lines)) = self.read(key, next, Length::Whole, MAX_CHUNK_TOKENS)? else {
            return Ok(StepResult::Idle);
        };
        let messages = piece.to - piece.from;
        let words = || {
            format!(
                "{messages} messages could not be consolidated and were archived unchanged in the history"
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
        let base_text = locked_memory.look()?;
        locked_memory.apply(
            &base_text,
            Cause::Consolidation,
            change,
            &mut self.advance(),
        )?;
        Ok(StepResult::Consolidated(ConsolidatedChunk {
            messages,
            raw: true,
            bytes: (base_text.len(), base_text.len()),
            aside: None,
        }))
    }

    /// Reads the next chunk and its lines; `max_tokens` is in tokens. A single turn that is too long is condensed to
    /// fit, except with `Length::Whole`.
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

    /// The untrusted content in a chunk, if any. For files, only their location inside or outside the workspace is
    /// known.
    fn untrusted(&self, piece: &Piece) -> Option<String> {
        let provenance = Seen::new(Ground {
            reach: Reach::default(),
            workspace: self.settings.workspace.clone(),
            commands_write_anywhere: false,
            real: Box::new(Path::to_owned),
        });
        let messages = piece.messages.iter();
        messages.for_each(|logged| provenance.heed(&logged.message));
        provenance.untrusted()
    }

    fn stamp(&self) -> String {
        self.ctx.clock.now().strftime("%Y-%m-%d %H:%M").to_string()
    }
}

/// The thresholds of consolidation: the message window, or half of the model's context, whichever comes first.
pub(crate) fn terms(settings: &Settings, context: u32) -> Terms {
    Terms {
        window: settings.memory_window,
        tokens: u64::from(context / 2),
    }
}

impl Spent {
    /// Adds the cost of `other`.
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

/// True if no model has judged the chunk, so the attempt does not count: a budget, key, login, address or outage
/// prevented the request. Otherwise an outage would archive every chunk unchanged.
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

/// A report that prints progress at `level` and no answer.
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
