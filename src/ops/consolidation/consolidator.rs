//! Consolidates one session, a chunk at a time: reads messages, asks the model for an update, and applies it to the
//! memory.

use crate::ops::context::Context;
use crate::ops::context_window;
use crate::ops::model;
use crate::ops::prompt_files;
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_agent::report::Reporter;
use nanobot_agent::report::{ProgressDisplay, ProgressLevel, ReportFormat, json::EventEnvelope};
use nanobot_base::error::{Exit, Stop, fail_with_hint, outside_turn};
use nanobot_base::message::{Message, MessagePart, Origin, Reply, Usage, UserMessage};
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::provenance::{ProvenanceTracker, TrustContext};
use nanobot_config::settings::{FlagOverrides, Settings};
use nanobot_model::ledger::CallPurpose;
use nanobot_model::provider::{Delta, FailureKind, ProviderError, Request, ToolChoice};
use nanobot_os::durable_file::format_size;
use nanobot_os::secret::random_hex;
use nanobot_store::memory::request::{self, CHARS_PER_TOKEN, DetailLevel};
use nanobot_store::memory::{
    LockedMemory, Memory, MemoryUpdate, UpdateResult, VersionCause, history, rejection_reason,
    reply_parser,
};
use nanobot_store::session::consolidation::{
    self, ConsolidationLimits, ConsolidationRange, SessionSnapshot,
};
use nanobot_store::session::{LoggedMessage, SessionStore};
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
    pub(crate) sessions: SessionStore,
    pub(crate) memory: Memory,
    /// The options of the requests to the model, such as `--offline`.
    pub(crate) options: TurnOptions,
    /// The thresholds that decide if a session is due.
    pub(crate) limits: ConsolidationLimits,
    context_tokens: usize,
}

/// A chunk of a session that is now in the memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConsolidatedChunk {
    /// Number of messages in the chunk.
    pub(crate) message_count: usize,
    /// True if it was archived unchanged because every attempt failed.
    pub(crate) is_raw: bool,
    /// Bytes of the memory before and after.
    pub(crate) memory_bytes: (usize, usize),
    /// The reason why the new memory was stored aside instead of applied.
    pub(crate) rejection_reason: Option<String>,
}

/// Cost, failed attempts included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConsolidationCost {
    /// Tokens used.
    pub(crate) usage: Usage,
    /// US dollars; `None` if a price is not known.
    pub(crate) cost_usd: Option<f64>,
    /// Answered requests.
    pub(crate) request_count: u32,
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
    Update(Vec<u8>, reply_parser::ParsedUpdate),
    Unusable(String),
}

impl<'a> Consolidator<'a> {
    /// Creates a consolidator. It asks the model `model`, or else the configured consolidation model, or else the model
    /// of turns. Thresholds always follow the model that answers turns; `turn_context_tokens` is that model's context
    /// window in tokens (input and output together), if known.
    pub(crate) fn new(
        ctx: &'a Context,
        model: Option<&str>,
        options: TurnOptions,
        turn_context_tokens: Option<u32>,
    ) -> Result<Self> {
        let mut settings = ctx.settings()?;
        let answering =
            turn_context_tokens.unwrap_or_else(|| context_window::context_window(ctx, &settings));
        let terms = consolidation_limits(&settings, answering);
        if let Some(model) = model.or(settings.memory.model.as_deref()) {
            settings = ctx.settings_with(FlagOverrides {
                model: Some(model.to_owned()),
                ..FlagOverrides::default()
            })?;
        }
        let context = context_window::context_window(ctx, &settings);
        Ok(Self {
            sessions: ctx.session_store(&settings)?,
            memory: Memory::new(&settings.workspace, &ctx.clock),
            limits: terms,
            context_tokens: context as usize,
            ctx,
            settings,
            options,
        })
    }

    /// Returns the callback with which the memory advances a session's consolidation pointer.
    pub(crate) fn advance_callback(&self) -> impl FnMut(&str, usize, usize) -> Result<()> {
        let place = self.sessions.clone();
        // If the pointer does not move, another program has changed or removed the session. That is no error.
        move |key, from, to| consolidation::advance_pointer(&place, key, from, to).map(drop)
    }

    /// Consolidates the next chunk of `key`. With `include_not_due`, also if it is not due yet.
    ///
    /// # Errors
    /// No model can be asked, or a file cannot be read or written.
    pub(crate) fn step(
        &self,
        locked_memory: &LockedMemory,
        key: &str,
        include_not_due: bool,
        cost: &mut ConsolidationCost,
        report: &mut Reporter,
    ) -> Result<StepResult> {
        let Some(next) =
            consolidation::next_range(&self.sessions, key, &self.limits, include_not_due)?
        else {
            return Ok(StepResult::Idle);
        };
        if next.attempts >= MAX_TRIES {
            return self.archive_raw(locked_memory, key, &next);
        }
        // After a failed attempt, the chunk is halved.
        let room =
            (self.context_tokens / 3).clamp(MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS) >> next.attempts;
        let Some((piece, lines)) = self.read_chunk(key, &next, DetailLevel::Short, room)? else {
            return Ok(StepResult::Idle);
        };
        if lines.is_empty() {
            return self.archive_raw(locked_memory, key, &next);
        }
        let (base_text, update) =
            match self.request_update(locked_memory, key, &next, &lines, cost, report)? {
                None => return Ok(StepResult::Idle),
                Some(ModelOutcome::Update(base_text, update)) => (base_text, update),
                Some(ModelOutcome::Unusable(_)) if next.attempts + 1 >= MAX_TRIES => {
                    return self.archive_raw(locked_memory, key, &next);
                }
                Some(ModelOutcome::Unusable(words)) => return Ok(StepResult::Failed(words)),
            };
        let old = String::from_utf8_lossy(&base_text);
        let budget = self.settings.memory.budget_tokens;
        let tidying = request::is_over_budget(&old, budget).then_some(budget);
        let aside = update
            .memory
            .as_deref()
            .and_then(|new| rejection_reason(&old, new, tidying))
            .or_else(|| self.memory.is_read_only().then(|| "MEMORY.md is read-only".into()));
        let change = MemoryUpdate {
            range: Some((key, piece.from, piece.to)),
            entries: vec![history::format_entry(&update.entry, &self.timestamp())],
            memory: update.memory.map(String::into_bytes),
            aside_reason: aside.clone(),
            untrusted: self.untrusted_content(&piece),
            restores: None,
            error: None,
        };
        let mut advance = self.advance_callback();
        let done =
            locked_memory.apply(&base_text, VersionCause::Consolidation, change, &mut advance)?;
        let meanwhile = || "the memory was changed in the meantime".to_owned();
        Ok(StepResult::Consolidated(ConsolidatedChunk {
            message_count: piece.to - piece.from,
            is_raw: false,
            memory_bytes: (base_text.len(), self.memory.read()?.unwrap_or_default().len()),
            rejection_reason: aside.or_else(|| (done == UpdateResult::StoredAside).then(meanwhile)),
        }))
    }

    /// Asks the model. The attempt is counted on disk first. Returns `None` if the chunk is no longer the next one.
    fn request_update(
        &self,
        locked_memory: &LockedMemory,
        key: &str,
        next: &ConsolidationRange,
        lines: &[String],
        cost: &mut ConsolidationCost,
        report: &mut Reporter,
    ) -> Result<Option<ModelOutcome>> {
        let account = CallPurpose {
            session: key.to_owned(),
            turn: random_hex(6),
            cause: "consolidation",
            ..CallPurpose::default()
        };
        // Read and check before counting: an I/O error must not count as an attempt.
        locked_memory.check_history()?;
        let mut base_text = locked_memory.read_and_record()?;
        self.check_memory_fits(&base_text)?;
        let settings = self.settings_for_memory(&base_text);
        let chosen = model::choose(self.ctx, &self.options, &settings, &account, report)?;
        let sampling = model::sampling(&settings.models[0], chosen.context_tokens);
        let tools = [request::tool_spec()];
        if !consolidation::record_attempt(&self.sessions, key, next)? {
            return Ok(None);
        }
        let own_prompt = self.settings.prompt_files.consolidation.as_deref();
        let own_prompt = prompt_files::read(self.ctx, "consolidation", own_prompt)?;
        let (mut again, mut has_output) = (true, false);
        loop {
            let memory = String::from_utf8_lossy(&base_text);
            let budget = self.settings.memory.budget_tokens;
            let text = request::user_message(&memory, lines, &self.timestamp(), budget);
            let messages = [Message::User(UserMessage {
                id: account.turn.clone(),
                parts: vec![MessagePart::Text(text)],
                ..UserMessage::default()
            })];
            let request = Request {
                system: own_prompt.as_deref().unwrap_or(request::SYSTEM_PROMPT),
                messages: &messages,
                tools: &tools,
                tool_choice: ToolChoice::Required(reply_parser::TOOL_NAME),
                model: &chosen.model,
                sampling: &sampling,
                reply_id: &account.turn,
                schema: None,
            };
            let reply = chosen.provider.reply(&request, &mut |delta| {
                has_output |= matches!(delta, Delta::Text(_) | Delta::Reasoning(_));
                report.emit(delta.into_event(""))
            });
            let reply = match reply {
                Ok(reply) => reply,
                Err(error) => {
                    if !has_output && is_uncounted(&error) {
                        consolidation::withdraw_attempt(&self.sessions, key, next)?;
                    }
                    return Err(outside_turn(
                        error.into_failure(),
                        &format!("`{key}` was not consolidated"),
                    ));
                }
            };
            has_output = true;
            cost.add(reply.usage, reply.cost);
            let update = match parse_summary(&reply, lines, &memory) {
                Ok(update) => update,
                Err(reason) => return Ok(Some(ModelOutcome::Unusable(reason))),
            };
            // The memory was changed while the model worked. Ask once more, with the new text.
            let is_stale = update.memory.is_some()
                && self.memory.read()?.unwrap_or_default() != base_text
                && std::mem::take(&mut again);
            if !is_stale {
                return Ok(Some(ModelOutcome::Update(base_text, update)));
            }
            base_text = locked_memory.read_and_record()?;
        }
    }

    /// Checks that the model can read the memory. It must also write one as long.
    ///
    /// # Errors
    /// Status 65, with the path and the size.
    fn check_memory_fits(&self, memory: &[u8]) -> Result<()> {
        if memory.len() / CHARS_PER_TOKEN <= self.context_tokens / 2 {
            return Ok(());
        }
        let (size, path) = (format_size(memory.len() as u64), self.memory.path());
        let path = self.ctx.paths.display(&path);
        Err(fail_with_hint(
            Exit::BadInput,
            format!("`{path}` has {size}, more than half of the model's context window"),
            "nanobot memory edit",
        ))
    }

    /// Returns the settings with an output limit that leaves room for the whole memory and more, because a truncated
    /// answer is useless. The provider still caps it at the model's own limit.
    fn settings_for_memory(&self, memory: &[u8]) -> Settings {
        let mut settings = self.settings.clone();
        let tokens = String::from_utf8_lossy(memory).chars().count() / CHARS_PER_TOKEN;
        let least = u32::try_from(tokens + tokens / 4 + 1000).unwrap_or(u32::MAX);
        for asked in &mut settings.models {
            asked.max_tokens = asked.max_tokens.max(least);
        }
        settings
    }

    /// Archives a chunk unchanged in the history, because no model could summarize it or it has no text.
    fn archive_raw(
        &self,
        locked_memory: &LockedMemory,
        key: &str,
        next: &ConsolidationRange,
    ) -> Result<StepResult> {
        let Some((piece, lines)) =
            self.read_chunk(key, next, DetailLevel::Full, MAX_CHUNK_TOKENS)?
        else {
            return Ok(StepResult::Idle);
        };
        let messages = piece.to - piece.from;
        let words = || {
            format!(
                "{messages} messages could not be consolidated and were archived unchanged in the history"
            )
        };
        let change = MemoryUpdate {
            range: Some((key, piece.from, piece.to)),
            error: (!lines.is_empty()).then(words),
            entries: if lines.is_empty() {
                Vec::new()
            } else {
                request::raw_entries(&lines, messages, &self.timestamp())
            },
            ..MemoryUpdate::default()
        };
        let base_text = locked_memory.read_and_record()?;
        locked_memory.apply(
            &base_text,
            VersionCause::Consolidation,
            change,
            &mut self.advance_callback(),
        )?;
        Ok(StepResult::Consolidated(ConsolidatedChunk {
            message_count: messages,
            is_raw: true,
            memory_bytes: (base_text.len(), base_text.len()),
            rejection_reason: None,
        }))
    }

    /// Reads the next chunk and its lines; `max_tokens` is in tokens. A single turn that is too long is condensed to
    /// fit, except with `Length::Whole`.
    fn read_chunk(
        &self,
        key: &str,
        next: &ConsolidationRange,
        length: DetailLevel,
        max_tokens: usize,
    ) -> Result<Option<(SessionSnapshot, Vec<String>)>> {
        let line =
            |logged: &LoggedMessage| request::format_message(&logged.time, &logged.message, length);
        let (mut size, room) = (0, max_tokens * CHARS_PER_TOKEN);
        let piece = consolidation::read_range(&self.sessions, key, next, &mut |logged| {
            size += line(logged).map_or(0, |line| line.len() + 1);
            size <= room
        })?;
        Ok(piece.map(|piece| {
            let each = piece.messages.iter();
            let lines = match length {
                DetailLevel::Full => each.filter_map(line).collect(),
                _ => {
                    let each = each.map(|logged| (logged.time.as_str(), &logged.message));
                    request::format_messages(&each.collect::<Vec<_>>(), room)
                }
            };
            (piece, lines)
        }))
    }

    /// The untrusted content in a chunk, if any: of the conversation, if the session has its origin, since messages do not
    /// say if a command had the network. For files, only their location inside or outside the workspace is known.
    fn untrusted_content(&self, chunk: &SessionSnapshot) -> Option<String> {
        if let Some(origin) = &chunk.origin
            && origin.level == Origin::External
        {
            return Some(origin.content.clone());
        }
        let provenance = ProvenanceTracker::new(TrustContext {
            file_scope: FileScope::default(),
            workspace: self.settings.workspace.clone(),
            commands_write_anywhere: false,
            commands_have_network: false,
            hosts_have_sent: Box::new(|| false),
            trusted_tools: Vec::new(),
            skill_hosts: Vec::new(),
            is_private: |_| false,
            resolve_real_path: Box::new(Path::to_owned),
        });
        let messages = chunk.messages.iter();
        messages.for_each(|logged| provenance.observe(&logged.message));
        provenance.external()
    }

    fn timestamp(&self) -> String {
        self.ctx.clock.now().strftime("%Y-%m-%d %H:%M").to_string()
    }
}

/// The thresholds of consolidation: the message window, or half of the model's context, whichever comes first.
pub(crate) fn consolidation_limits(settings: &Settings, context: u32) -> ConsolidationLimits {
    ConsolidationLimits { window: settings.memory_window, tokens: u64::from(context / 2) }
}

impl ConsolidationCost {
    /// Adds the cost of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.request_count > 0 {
            let requests = self.request_count + other.request_count;
            self.add(other.usage, other.cost_usd);
            self.request_count = requests;
        }
    }

    fn add(&mut self, usage: Usage, cost_usd: Option<f64>) {
        let before = if self.request_count == 0 { Some(0.0) } else { self.cost_usd };
        self.cost_usd = before.zip(cost_usd).map(|(before, usd)| before + usd);
        self.usage += usage;
        self.request_count += 1;
    }
}

/// True if no model has judged the chunk, so the attempt does not count: a budget, key, login, address or outage
/// prevented the request. Otherwise an outage would archive every chunk unchanged.
fn is_uncounted(error: &ProviderError) -> bool {
    match error {
        ProviderError::BudgetExceeded(_) => true,
        ProviderError::Aborted(error) => !error.is::<Stop>(),
        ProviderError::Failed { kind, .. } => !matches!(
            kind,
            FailureKind::Interrupted
                | FailureKind::ContextExceeded
                | FailureKind::NotAccepted
                | FailureKind::Refused
        ),
    }
}

/// A report that prints progress at `level` and no answer.
pub(crate) fn progress_report(ctx: &Context, level: ProgressLevel) -> Reporter {
    let envelope = EventEnvelope { clock: ctx.clock.clone(), ..EventEnvelope::default() };
    Reporter::new(
        ctx.terminal,
        ReportFormat::Text,
        ProgressDisplay::new(ctx.terminal, level),
        envelope,
    )
}

/// Parses the update in `reply`, and rejects one that quotes the conversation.
fn parse_summary(
    reply: &Reply,
    lines: &[String],
    memory: &str,
) -> Result<reply_parser::ParsedUpdate, String> {
    let update = reply_parser::parse_update(reply)?;
    if reply_parser::is_quoted(&update, &lines.join("\n"), memory) {
        Err("the answer quotes the conversation instead of summarizing it".into())
    } else {
        Ok(update)
    }
}
