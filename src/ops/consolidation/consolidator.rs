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
use nanobot_base::error::{Exit, Stop, WithHint, fail, outside_turn};
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
    LockedMemory, Memory, MemoryUpdate, MessageRange, UpdateResult, VersionCause, history,
    rejection_reason, reply_parser,
};
use nanobot_store::session::consolidation::{
    self, ConsolidationRange, ConsolidationThresholds, SessionSnapshot,
};
use nanobot_store::session::{LoggedMessage, SessionStore};
use std::path::Path;

/// Attempts at a chunk before it is archived unchanged.
pub(crate) const MAX_ATTEMPTS: u32 = 3;
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
    /// The thresholds that decide whether a session is due.
    pub(crate) thresholds: ConsolidationThresholds,
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
        let config = ctx.load_config()?;
        if model.is_some() {
            config.check_flag("memory.model", "--model")?;
        }
        let mut settings = ctx.resolve(&config, FlagOverrides::default())?;
        let turn_context_tokens =
            turn_context_tokens.unwrap_or_else(|| context_window::context_window(ctx, &settings));
        let thresholds = consolidation_thresholds(&settings, turn_context_tokens);
        if let Some(model) = model.or(settings.memory.model.as_deref()) {
            settings = ctx.settings_with(FlagOverrides {
                model: Some(model.to_owned()),
                ..FlagOverrides::default()
            })?;
        }
        let context_tokens = context_window::context_window(ctx, &settings) as usize;
        Ok(Self {
            sessions: ctx.session_store(&settings)?,
            memory: Memory::new(&settings.workspace, &ctx.clock),
            thresholds,
            context_tokens,
            ctx,
            settings,
            options,
        })
    }

    /// Returns the callback with which the memory advances a session's consolidation pointer.
    pub(crate) fn advance_callback(&self) -> impl FnMut(MessageRange<'_>) -> Result<()> {
        let sessions = self.sessions.clone();
        // If the pointer does not move, another program has changed or removed the session. That is no error.
        move |range| {
            consolidation::advance_pointer(&sessions, range.session, range.from, range.to).map(drop)
        }
    }

    /// Consolidates the next chunk of `key`. With `include_not_due`, also a chunk that is not due yet.
    ///
    /// # Errors
    /// No model can be asked, or a file cannot be read or written.
    pub(crate) fn step(
        &self,
        locked_memory: &LockedMemory,
        key: &str,
        include_not_due: bool,
        cost: &mut ConsolidationCost,
        reporter: &mut Reporter,
    ) -> Result<StepResult> {
        let Some(range) =
            consolidation::next_range(&self.sessions, key, &self.thresholds, include_not_due)?
        else {
            return Ok(StepResult::Idle);
        };
        if range.attempts >= MAX_ATTEMPTS {
            return self.archive_raw(locked_memory, key, &range);
        }
        // After a failed attempt, the chunk is halved.
        let max_tokens =
            (self.context_tokens / 3).clamp(MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS) >> range.attempts;
        let chunk = self.read_chunk(key, &range, DetailLevel::Short, max_tokens)?;
        let Some((snapshot, lines)) = chunk else {
            return Ok(StepResult::Idle);
        };
        if lines.is_empty() {
            return self.archive_raw(locked_memory, key, &range);
        }
        let (base_text, update) =
            match self.request_update(locked_memory, key, &range, &lines, cost, reporter)? {
                None => return Ok(StepResult::Idle),
                Some(ModelOutcome::Update(base_text, update)) => (base_text, update),
                Some(ModelOutcome::Unusable(_)) if range.attempts + 1 >= MAX_ATTEMPTS => {
                    return self.archive_raw(locked_memory, key, &range);
                }
                Some(ModelOutcome::Unusable(reason)) => return Ok(StepResult::Failed(reason)),
            };
        let old_text = String::from_utf8_lossy(&base_text);
        let budget = self.settings.memory.budget_tokens;
        // The request asked to reduce the memory to its budget if it exceeds that.
        let reduced_to = request::is_over_budget(&old_text, budget).then_some(budget);
        let new_text = update.memory.as_deref();
        let aside_reason = new_text
            .and_then(|new_text| rejection_reason(&old_text, new_text, reduced_to))
            .or_else(|| self.memory.is_read_only().then(|| "MEMORY.md is read-only".into()));
        let update = MemoryUpdate {
            range: Some(MessageRange { session: key, from: snapshot.from, to: snapshot.to }),
            entries: vec![history::format_entry(&update.entry, &self.timestamp())],
            memory: update.memory.map(String::into_bytes),
            aside_reason: aside_reason.clone(),
            untrusted: self.untrusted_content(&snapshot),
            restores: None,
            error: None,
        };
        let mut advance = self.advance_callback();
        let cause = VersionCause::Consolidation;
        let result = locked_memory.apply(&base_text, cause, update, &mut advance)?;
        let changed_meanwhile = (result == UpdateResult::StoredAside)
            .then(|| "the memory was changed in the meantime".to_owned());
        Ok(StepResult::Consolidated(ConsolidatedChunk {
            message_count: snapshot.to - snapshot.from,
            is_raw: false,
            memory_bytes: (base_text.len(), self.memory.read()?.unwrap_or_default().len()),
            rejection_reason: aside_reason.or(changed_meanwhile),
        }))
    }

    /// Asks the model. The attempt is counted on disk first. Returns `None` if the chunk is no longer the next one.
    fn request_update(
        &self,
        locked_memory: &LockedMemory,
        key: &str,
        range: &ConsolidationRange,
        lines: &[String],
        cost: &mut ConsolidationCost,
        reporter: &mut Reporter,
    ) -> Result<Option<ModelOutcome>> {
        let purpose = CallPurpose {
            session: key.to_owned(),
            turn: random_hex(6),
            cause: "consolidation",
            ..CallPurpose::default()
        };
        // Read and check before counting: an I/O error must not be counted as an attempt.
        locked_memory.check_history()?;
        let mut base_text = locked_memory.read_and_record()?;
        self.check_memory_fits(&base_text)?;
        let settings = self.settings_for_memory(&base_text);
        let chosen = model::choose(self.ctx, &self.options, &settings, &purpose, reporter)?;
        let sampling = model::sampling(&settings.models[0], chosen.context_tokens);
        let tools = [request::tool_spec()];
        if !consolidation::record_attempt(&self.sessions, key, range)? {
            return Ok(None);
        }
        let own_prompt = self.settings.prompt_files.consolidation.as_deref();
        let own_prompt = prompt_files::read(self.ctx, "consolidation", own_prompt)?;
        let mut may_retry = true;
        let mut has_output = false;
        loop {
            let memory = String::from_utf8_lossy(&base_text);
            let budget = self.settings.memory.budget_tokens;
            let text = request::user_message(&memory, lines, &self.timestamp(), budget);
            let messages = [Message::User(UserMessage {
                id: purpose.turn.clone(),
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
                reply_id: &purpose.turn,
                schema: None,
            };
            let result = chosen.provider.reply(&request, &mut |delta| {
                has_output |= matches!(delta, Delta::Text(_) | Delta::Reasoning(_));
                reporter.emit(delta.into_event(""))
            });
            let reply = match result {
                Ok(reply) => reply,
                Err(error) => {
                    if !has_output && is_uncounted(&error) {
                        consolidation::withdraw_attempt(&self.sessions, key, range)?;
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
                && std::mem::take(&mut may_retry);
            if !is_stale {
                return Ok(Some(ModelOutcome::Update(base_text, update)));
            }
            base_text = locked_memory.read_and_record()?;
        }
    }

    /// Checks that the model can read the memory. The model must also write a memory of that length.
    ///
    /// # Errors
    /// Status 65, with the path and the size.
    fn check_memory_fits(&self, memory: &[u8]) -> Result<()> {
        if memory.len() / CHARS_PER_TOKEN <= self.context_tokens / 2 {
            return Ok(());
        }
        let (size, path) = (format_size(memory.len() as u64), self.memory.path());
        let path = self.ctx.paths.display(&path);
        let cause = format!("`{path}` has {size}, more than half of the model's context window");
        Err(fail(Exit::BadInput, cause).with_hint("nanobot memory edit"))
    }

    /// Returns the settings with an output limit that leaves room for the whole memory and more, because a truncated
    /// answer is useless. The provider still caps it at the model's own limit.
    fn settings_for_memory(&self, memory: &[u8]) -> Settings {
        let mut settings = self.settings.clone();
        let tokens = String::from_utf8_lossy(memory).chars().count() / CHARS_PER_TOKEN;
        let min_tokens = u32::try_from(tokens + tokens / 4 + 1000).unwrap_or(u32::MAX);
        for model_settings in &mut settings.models {
            model_settings.max_tokens = model_settings.max_tokens.max(min_tokens);
        }
        settings
    }

    /// Archives a chunk unchanged in the history, because no model could summarize it or it has no text.
    fn archive_raw(
        &self,
        locked_memory: &LockedMemory,
        key: &str,
        range: &ConsolidationRange,
    ) -> Result<StepResult> {
        let chunk = self.read_chunk(key, range, DetailLevel::Full, MAX_CHUNK_TOKENS)?;
        let Some((snapshot, lines)) = chunk else {
            return Ok(StepResult::Idle);
        };
        let message_count = snapshot.to - snapshot.from;
        let mut update = MemoryUpdate {
            range: Some(MessageRange { session: key, from: snapshot.from, to: snapshot.to }),
            ..MemoryUpdate::default()
        };
        if !lines.is_empty() {
            update.error = Some(format!(
                "{message_count} messages could not be consolidated and were archived unchanged in the history"
            ));
            update.entries = request::raw_entries(&lines, message_count, &self.timestamp());
        }
        let base_text = locked_memory.read_and_record()?;
        let mut advance = self.advance_callback();
        locked_memory.apply(&base_text, VersionCause::Consolidation, update, &mut advance)?;
        Ok(StepResult::Consolidated(ConsolidatedChunk {
            message_count,
            is_raw: true,
            memory_bytes: (base_text.len(), base_text.len()),
            rejection_reason: None,
        }))
    }

    /// Reads the next chunk of `range`, and its lines, of at most `max_tokens` tokens. A single turn that is too long is
    /// shortened to fit, except with [`DetailLevel::Full`].
    fn read_chunk(
        &self,
        key: &str,
        range: &ConsolidationRange,
        detail: DetailLevel,
        max_tokens: usize,
    ) -> Result<Option<(SessionSnapshot, Vec<String>)>> {
        let format =
            |logged: &LoggedMessage| request::format_message(&logged.time, &logged.message, detail);
        let mut size = 0;
        let max_bytes = max_tokens * CHARS_PER_TOKEN;
        let snapshot = consolidation::read_range(&self.sessions, key, range, &mut |logged| {
            size += format(logged).map_or(0, |line| line.len() + 1);
            size <= max_bytes
        })?;
        let Some(snapshot) = snapshot else {
            return Ok(None);
        };
        let lines = if detail == DetailLevel::Full {
            snapshot.messages.iter().filter_map(format).collect()
        } else {
            let messages = snapshot.messages.iter();
            let messages: Vec<_> =
                messages.map(|logged| (logged.time.as_str(), &logged.message)).collect();
            request::format_messages(&messages, max_bytes)
        };
        Ok(Some((snapshot, lines)))
    }

    /// The untrusted content in a chunk, if any. The origin that the session has recorded comes first, since messages do not say whether a
    /// command had the network. For files, only their location inside or outside the workspace is known.
    fn untrusted_content(&self, snapshot: &SessionSnapshot) -> Option<String> {
        if let Some(origin) = &snapshot.origin
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
        for logged in &snapshot.messages {
            provenance.observe(&logged.message);
        }
        provenance.external_content()
    }

    fn timestamp(&self) -> String {
        self.ctx.clock.now().strftime("%Y-%m-%d %H:%M").to_string()
    }
}

/// The thresholds of consolidation: the message window, or half of the model's context, whichever comes first.
pub(crate) fn consolidation_thresholds(
    settings: &Settings,
    context: u32,
) -> ConsolidationThresholds {
    ConsolidationThresholds { window: settings.memory_window, tokens: u64::from(context / 2) }
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
        self.cost_usd = before.zip(cost_usd).map(|(before, added)| before + added);
        self.usage += usage;
        self.request_count += 1;
    }
}

/// True if no model has judged the chunk, so the attempt is not counted: a budget, key, login, address or outage
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

/// A reporter that prints progress at `level` and no answer.
pub(crate) fn progress_reporter(ctx: &Context, level: ProgressLevel) -> Reporter {
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
