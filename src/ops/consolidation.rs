//! Who makes memory of conversations: a piece at a time, from the session through the model into the memory. The command
//! does it until nothing is left, a turn once after its answer.

use crate::error::{Exit, exit_of, fail};
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
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// A piece is tried so often before it is kept as it is.
pub(crate) const TRIES: u32 = 3;
/// Tokens of a piece at most: more than that, and a summary of it tells too little.
const PIECE: usize = 64_000;
/// Tokens of a piece at least, however small the model.
const LEAST: usize = 1000;

/// Whoever makes memory, and what it is done with.
pub(crate) struct Scribe<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: Settings,
    pub(crate) place: Place,
    pub(crate) memory: Memory,
    /// How the model is asked: `--offline` and the like.
    pub(crate) arguments: TurnOptions,
    pub(crate) terms: Terms,
    context: usize,
}

/// What became of a piece.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    pub(crate) messages: usize,
    /// It was kept as it is, since no model made anything of it.
    pub(crate) raw: bool,
    /// Bytes of the memory before and after.
    pub(crate) bytes: (usize, usize),
    /// Why the new memory was kept aside.
    pub(crate) aside: Option<String>,
}

/// What it cost, failed tries included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) usage: Usage,
    /// US dollars; `None` where a price is not known.
    pub(crate) usd: Option<f64>,
    /// Requests that were answered.
    pub(crate) requests: u32,
}

/// How a step ended.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing is to be done.
    Idle,
    Made(Made),
    /// The answer was of no use, in words; there are tries left.
    Failed(String),
}

/// What came of asking.
enum Asked {
    /// The memory that it was made for, and what it is to become.
    Update(Vec<u8>, answer::Update),
    Useless(String),
}

impl<'a> Scribe<'a> {
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
    ) -> Result<Step> {
        let Some(next) = consolidation::next(&self.place, key, &self.terms, all)? else {
            return Ok(Step::Idle);
        };
        if next.tries >= TRIES {
            return self.keep_raw(held, key, &next);
        }
        // What was too much is tried with less.
        let room = (self.context / 3).clamp(LEAST, PIECE) >> next.tries;
        let Some((piece, lines)) = self.read(key, &next, Length::Short, room)? else {
            return Ok(Step::Idle);
        };
        if lines.is_empty() {
            return self.keep_raw(held, key, &next);
        }
        let (seen, update) = match self.ask(held, key, &next, &lines, spent, report)? {
            None => return Ok(Step::Idle),
            Some(Asked::Update(seen, update)) => (seen, update),
            Some(Asked::Useless(_)) if next.tries + 1 >= TRIES => {
                return self.keep_raw(held, key, &next);
            }
            Some(Asked::Useless(words)) => return Ok(Step::Failed(words)),
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
        Ok(Step::Made(Made {
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
    ) -> Result<Option<Asked>> {
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
                    return Ok(Some(Asked::Useless(words)));
                }
                Ok(update) => update,
                Err(words) => return Ok(Some(Asked::Useless(words))),
            };
            // Somebody wrote into the memory while the model thought: it is asked again, once, with what they wrote.
            let is_stale = update.memory.is_some()
                && self.memory.read()?.unwrap_or_default() != seen
                && std::mem::take(&mut again);
            if !is_stale {
                return Ok(Some(Asked::Update(seen, update)));
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
    fn keep_raw(&self, held: &Held, key: &str, next: &Next) -> Result<Step> {
        let Some((piece, lines)) = self.read(key, next, Length::Whole, PIECE)? else {
            return Ok(Step::Idle);
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
        Ok(Step::Made(Made {
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

/// A conversation that becomes memory once a turn's answer is out.
pub(crate) struct DeferredConsolidation {
    pub(crate) key: String,
    /// `None` for the configured one.
    pub(crate) model: Option<String>,
    pub(crate) offline: bool,
    pub(crate) no_stream: bool,
    /// Tokens that the model of the turn takes in and gives out: it decides what is due.
    pub(crate) context: Option<u32>,
    /// What it may cost: US dollars, and tokens.
    pub(crate) max_cost: Option<f64>,
    pub(crate) max_tokens: Option<u64>,
}

impl DeferredConsolidation {
    /// The arguments with which a process of its own does this.
    pub(crate) fn arguments(&self, ctx: &Context) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = ["memory", "consolidate", "--detached"]
            .map(OsString::from)
            .into();
        let mut add = |flag: &str, value: &std::ffi::OsStr| {
            let mut argument = OsString::from(flag);
            argument.push(value);
            arguments.push(argument);
        };
        add("--session=", self.key.as_ref());
        if let Some(model) = &self.model {
            add("--model=", model.as_ref());
        }
        let limits = [
            ("--context=", self.context.map(|limit| limit.to_string())),
            ("--max-cost=", self.max_cost.map(|limit| limit.to_string())),
            (
                "--max-total-tokens=",
                self.max_tokens.map(|limit| limit.to_string()),
            ),
        ];
        for (flag, limit) in limits {
            limit.iter().for_each(|limit| add(flag, limit.as_ref()));
        }
        if let Some(config) = &ctx.config {
            add("--config=", config.as_os_str());
        }
        if let Some(workspace) = &ctx.workspace {
            add("--workspace=", workspace.as_os_str());
        }
        arguments.extend(self.offline.then(|| "--offline".into()));
        arguments.extend(self.no_stream.then(|| "--no-stream".into()));
        arguments
    }

    /// Make memory of one piece. What goes wrong is written down; a memory that another run is changing is no trouble,
    /// since it is due again the next time.
    ///
    /// # Errors
    /// As it was written down.
    pub(crate) fn make(&self, ctx: &Context, wait: Duration, level: Level) -> Result<()> {
        let made = self.try_make(ctx, wait, level);
        if let Err(error) = &made
            && !error.is::<Stop>()
            && let Ok(memory) = open_memory(ctx)
        {
            // Where this cannot be written either, nobody is left to tell.
            drop(memory.note_trouble(&format!("{}: {error:#}", self.key)));
        }
        made
    }

    fn try_make(&self, ctx: &Context, wait: Duration, level: Level) -> Result<()> {
        let asking = TurnOptions {
            offline: self.offline,
            no_stream: self.no_stream,
            max_cost: self.max_cost,
            max_total_tokens: self.max_tokens,
            ..TurnOptions::default()
        };
        let scribe = Scribe::new(ctx, self.model.as_deref(), asking, self.context)?;
        let mut advance = scribe.advance();
        let held = match scribe.memory.hold(wait, &mut || {}, &mut advance) {
            Err(error) if exit_of(&error) == Exit::TryAgain => return Ok(()),
            held => held?,
        };
        let mut report = quiet_report(ctx, level);
        match scribe.step(&held, &self.key, false, &mut Spent::default(), &mut report)? {
            Step::Failed(words) => Err(fail(Exit::Failed, words)),
            Step::Idle | Step::Made(_) => Ok(()),
        }
    }
}

/// The memory of the configured workspace.
pub(crate) fn open_memory(ctx: &Context) -> Result<Memory> {
    let settings = ctx.settings()?;
    Ok(Memory::new(&settings.workspace, &ctx.clock))
}
