//! The message bus: messages as JSON lines on standard input, answers as JSON lines on standard output.
//!
//! The main thread reads, and a thread for each job answers. The main thread stops reading while two messages for each
//! thread wait, so that a full pipe blocks the sender. A signal ends the reading; messages in progress are answered. Each
//! answer and its acknowledgement are one write, after the session is on disk. A pipe with a name keeps a journal.

mod journal;
mod message;

use crate::ops::agent_turn;
use crate::ops::agent_turn::source::{AttachedContent, ChatTurn};
use crate::ops::call_approvals::{CallApprovals, DeferredApprovals};
use crate::ops::channel::persona::Persona;
use crate::ops::channel::recipients;
use crate::ops::context::Context;
use crate::ops::inbound::turn_recovery::{self, EarlierTurn};
use crate::ops::turn_setup;
use crate::options::turn::TurnOptions;
use anyhow::{Context as _, Result};
use journal::{EarlierAnswer, PipeJournal};
use message::PipeMessage;
use nanobot_agent::turn::ending::Ending;
use nanobot_base::error::{Exit, Stop, exit_for, fail};
use nanobot_base::message::Origin;
use nanobot_base::message::user_text::{OthersContent, UserText};
use nanobot_channel::approvals::{ApprovalFile, QuestionDraft};
use nanobot_model::ledger::round_usd;
use nanobot_os::cancel::{self, CancelToken};
use nanobot_os::line_buffer::StdinLines;
use nanobot_os::secret::random_hex;
use nanobot_os::signal;
use nanobot_tool::ToolError;
use nanobot_tool::files::Files;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// The section of the system prompt.
const PROMPT: &str = "A program passes on messages to you, one at a time, and delivers your answers. This run is unattended, \
    and you cannot ask questions.";
/// Interval at which a reader that waits for the workers checks for signals.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The beginning of the keys of sessions of programs.
const SESSION_PREFIX: &str = "bus:";

/// The options of the bus.
pub(crate) struct PipeOptions {
    /// The number of threads that answer.
    pub(crate) jobs: usize,
    /// The name under which messages and answers are kept.
    pub(crate) name: Option<String>,
    /// A message may continue any conversation.
    pub(crate) any_session: bool,
    /// A message may approve calls. Such a pipe has a name.
    pub(crate) has_approvals: bool,
}

/// Answers the messages on standard input. `options` apply to each turn.
///
/// # Errors
/// Standard input, standard output or the journal fails, another process has the journal, or a signal arrived.
pub(crate) fn run(ctx: &Context, options: &TurnOptions, pipe: &PipeOptions) -> Result<Exit> {
    signal::install(None).context("wait for signals")?;
    let token = CancelToken::shielded().context("start the pipe")?;
    let name = pipe.name.as_deref();
    let bus = MessageBus {
        ctx,
        options,
        pipe,
        journal: name.map(|name| PipeJournal::open(ctx, name)).transpose()?,
        approvals: name
            .filter(|_| pipe.has_approvals)
            .map(|name| ctx.paths.pipes().join(name).join(ApprovalFile::FILE_NAME)),
        files: OnceLock::new(),
        reader_token: CancelToken::new().context("start the pipe")?,
        state: Mutex::default(),
        changed: Condvar::new(),
    };
    let read_result = thread::scope(|scope| {
        for _ in 0..pipe.jobs {
            let token = Arc::clone(&token);
            scope.spawn(|| cancel::scope(Some(token), || bus.answer_all()));
        }
        let read_result = cancel::scope(Some(Arc::clone(&bus.reader_token)), || {
            bus.continue_earlier_run()?;
            bus.read_all()
        });
        let mut state = bus.state.lock();
        state.is_closed = true;
        if read_result.is_err() {
            // Messages without an acknowledgement are sent again.
            state.waiting.clear();
        }
        drop(state);
        bus.changed.notify_all();
        read_result
    });
    let state = bus.state.into_inner();
    if let Some(error) = state.error {
        return Err(error);
    }
    read_result?;
    Ok(match Exit::most_important(&state.exits) {
        Some(exit) => exit,
        None if state.exits.is_empty() => Exit::Answered,
        // The status of each failed turn is in its line.
        None => Exit::Failed,
    })
}

struct MessageBus<'a> {
    ctx: &'a Context,
    options: &'a TurnOptions,
    pipe: &'a PipeOptions,
    /// Opens the files of messages under the policy of the turns.
    files: OnceLock<Files>,
    /// The journal of a pipe with a name.
    journal: Option<PipeJournal<'a>>,
    /// The file with the questions about calls, if messages may approve them.
    approvals: Option<PathBuf>,
    /// Cancelled by a failure that ends the run, so that no further line is waited for.
    reader_token: Arc<CancelToken>,
    state: Mutex<BusState>,
    /// Notified when the state changes.
    changed: Condvar,
}

#[derive(Default)]
struct BusState {
    /// Messages in the order of their lines.
    waiting: VecDeque<PipeMessage>,
    /// Keys of the sessions that answer a message.
    busy: HashSet<String>,
    /// Ids of messages that an earlier run left and this run answers. The sender repeats their lines, which are skipped.
    continued_ids: Vec<Value>,
    /// True if no more messages are read.
    is_closed: bool,
    /// The statuses of failures.
    exits: Vec<Exit>,
    /// The failure of standard output or of the journal, which ends the run.
    error: Option<anyhow::Error>,
}

/// The approvals of a turn.
enum TurnApprovals {
    Off,
    On(Arc<CallApprovals>),
    /// The message approves a call that cannot be approved, for this reason.
    Refused(String),
}

/// A line of the input.
enum PipeLine {
    Message(PipeMessage),
    Invalid {
        /// The id that the line names, or null.
        id: Value,
        /// The reason why the line is not a message.
        error: String,
    },
}

impl MessageBus<'_> {
    /// Prints the answers and answers the messages that an earlier run of this name left.
    fn continue_earlier_run(&self) -> Result<()> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        for (id, line) in journal.unprinted() {
            self.print_answer(&id, &line)?;
        }
        for message in journal.unanswered() {
            self.state.lock().continued_ids.push(message.id.clone());
            self.enqueue(message)?;
        }
        Ok(())
    }

    /// Reads messages until the input ends.
    fn read_all(&self) -> Result<()> {
        let mut reader = StdinLines::open();
        let mut number = 0_u64;
        while let Some(line) = reader.next_line()? {
            number += 1;
            let input = match line {
                Ok(line) if line.trim_ascii().is_empty() => continue,
                Ok(line) => self.parse(without_byte_order_mark(&line, number))?,
                Err(error) => PipeLine::Invalid { id: Value::Null, error },
            };
            match input {
                PipeLine::Message(message) if self.is_continued(&message.id) => {}
                PipeLine::Message(message) => self.enqueue(message)?,
                PipeLine::Invalid { id, error } => {
                    let line = json!({ "v": 1, "type": "error", "line": number, "id": id, "error": error });
                    self.state.lock().exits.push(Exit::BadInput);
                    self.write(&format!("{line}\n"))?;
                }
            }
        }
        Ok(())
    }

    /// True if `id` is that of a message which an earlier run left. Only the first line with that id is such a message.
    fn is_continued(&self, id: &Value) -> bool {
        let ids = &mut self.state.lock().continued_ids;
        let index = ids.iter().position(|continued_id| continued_id == id);
        index.map(|index| ids.swap_remove(index)).is_some()
    }

    /// The key of the session that answers a message.
    fn session_key(&self, message: &PipeMessage) -> String {
        if self.pipe.any_session || message.session.starts_with(SESSION_PREFIX) {
            message.session.clone()
        } else {
            format!("{SESSION_PREFIX}{}", message.session)
        }
    }

    /// Parses a line, and stores the message if there is a journal.
    fn parse(&self, line: &[u8]) -> Result<PipeLine> {
        let message = match PipeMessage::parse(line) {
            Ok(message) => message,
            Err(error) => return Ok(PipeLine::Invalid { id: message::id_of_line(line), error }),
        };
        if message.approve.is_some() && self.approvals.is_none() {
            let error = "`approve` needs the flag `--approvals`".to_owned();
            return Ok(PipeLine::Invalid { id: message.id, error });
        }
        // A new session would allow the agent to write to the chat.
        if recipients::is_new_chat(self.ctx, &self.session_key(&message))? {
            let error = format!("there is no conversation `{}` in that channel", message.session);
            return Ok(PipeLine::Invalid { id: message.id, error });
        }
        match &self.journal {
            Some(_) if message.id.is_null() => {
                let error = "`id` is missing, which `--name` needs".to_owned();
                Ok(PipeLine::Invalid { id: Value::Null, error })
            }
            Some(journal) => journal.store_message(message).map(PipeLine::Message),
            None => Ok(PipeLine::Message(message)),
        }
    }

    /// Adds a message, once fewer than two for each thread wait.
    fn enqueue(&self, message: PipeMessage) -> Result<()> {
        let mut state = self.state.lock();
        while state.waiting.len() >= 2 * self.pipe.jobs && state.error.is_none() {
            self.changed.wait_for(&mut state, SIGNAL_CHECK_INTERVAL);
            signal::check()?;
        }
        if state.error.is_some() {
            return Err(Stop(Exit::Io).into());
        }
        state.waiting.push_back(message);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Answers messages until there are no more.
    fn answer_all(&self) {
        while let Some(message) = self.take() {
            let session = self.session_key(&message);
            let result = self.answer(message);
            let mut state = self.state.lock();
            state.busy.remove(&session);
            if let Err(error) = result {
                state.error.get_or_insert(error);
                self.reader_token.cancel();
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for a message whose session is free. `None` if there are no more.
    fn take(&self) -> Option<PipeMessage> {
        let mut state = self.state.lock();
        loop {
            // Nothing begins after a signal, which the reader may not have noticed yet.
            if state.error.is_some() || cancel::scope(None, signal::check).is_err() {
                return None;
            }
            let is_free = |message: &PipeMessage| !state.busy.contains(&self.session_key(message));
            if let Some(index) = state.waiting.iter().position(is_free) {
                let message = state.waiting.remove(index)?;
                state.busy.insert(self.session_key(&message));
                drop(state);
                self.changed.notify_all();
                return Some(message);
            }
            if state.is_closed && state.waiting.is_empty() {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Answers a message, from the journal if it has the answer.
    fn answer(&self, mut message: PipeMessage) -> Result<()> {
        let turn = random_hex(5);
        let key = self.session_key(&message);
        let mut resume = false;
        if let Some(journal) = &self.journal {
            match journal.begin_turn(&message, &key, &turn)? {
                EarlierAnswer::Stored(line) => return self.print_answer(&message.id, &line),
                EarlierAnswer::Turn(EarlierTurn::Answered(text, finish_reason)) => {
                    let (ending, exit) = turn_recovery::to_ending(text, &finish_reason);
                    return self.conclude(&message, &turn, &ending, exit);
                }
                EarlierAnswer::Turn(EarlierTurn::Interrupted) => resume = true,
                EarlierAnswer::Turn(EarlierTurn::NotResumable) => {}
                EarlierAnswer::GivenUp => {
                    let cause = "the program was killed each time it answered this message";
                    return self.conclude_failed(&message, &turn, fail(Exit::Failed, cause));
                }
            }
        }
        let approvals = match self.approvals(&message, &key, resume)? {
            TurnApprovals::Off => None,
            TurnApprovals::On(approvals) => Some(approvals as Arc<dyn DeferredApprovals>),
            TurnApprovals::Refused(cause) => {
                return self.conclude_failed(&message, &turn, fail(Exit::Refused, cause));
            }
        };
        let text = match std::mem::take(&mut message.text) {
            // The option's value `-` means standard input.
            text if text == "-" => "- ".to_owned(),
            text => text,
        };
        let content = OthersContent::new(Origin::Project, "a message of a program");
        let files = std::mem::take(&mut message.files);
        let mut attached = Vec::new();
        if !resume && !files.is_empty() {
            let reader = self.file_reader()?;
            attached = match files.iter().map(|name| read_file(reader, name)).collect() {
                Ok(attached) => attached,
                Err(error) => return self.conclude_failed(&message, &turn, error),
            };
        }
        let mut options = self.options.clone();
        options.input.message = (!resume).then(|| UserText::of_others(text, content));
        options.session.resume = resume;
        let persona = match self.limit_to_persona(&key, &mut options) {
            Ok(persona) => persona,
            Err(error) => return self.conclude_failed(&message, &turn, error),
        };
        options.session.key = Some(key);
        let binding = persona.as_ref().and_then(Persona::address);
        let chat = ChatTurn {
            turn_id: &turn,
            sender: binding.as_deref(),
            chat_prompt: PROMPT,
            attached,
            approvals,
            binding: binding.clone(),
            chat_key: None,
            replied_jobs: Vec::new(),
            next_steering_message: None,
        };
        let ctx = persona.as_ref().map_or(self.ctx, |persona| &persona.ctx).beside_others();
        let outcome = agent_turn::run_chat_turn(&ctx, &options, chat, None);
        let result = self.conclude(&message, &turn, &outcome.ending, outcome.exit);
        outcome.finish(&ctx);
        result
    }

    /// Limits the turn of a chat that the config binds. Returns its persona.
    fn limit_to_persona(&self, key: &str, options: &mut TurnOptions) -> Result<Option<Persona>> {
        let persona = Persona::of_session(self.ctx, key)?;
        if let Some(persona) = &persona {
            persona.limit(options)?;
        }
        Ok(persona)
    }

    /// The approvals of the turn of a message, which may approve a call itself.
    fn approvals(
        &self,
        message: &PipeMessage,
        session: &str,
        resumes: bool,
    ) -> Result<TurnApprovals> {
        let Some(path) = &self.approvals else {
            return Ok(TurnApprovals::Off);
        };
        let by = journal::journal_key(&message.id);
        let now = self.ctx.clock.timestamp().as_millisecond();
        let mut approved_id = None;
        if let Some(code) = message.approve.as_ref().filter(|_| !resumes) {
            let lasting = false;
            let approved = ApprovalFile::change(path, now, |file| {
                let question = file.question_by_code(session, code);
                let question = question.ok_or("there is no open question with this code")?;
                let id = question.id.clone();
                file.approve(&id, &by, lasting).map(|()| id)
            });
            match approved? {
                Ok(id) => approved_id = Some(id),
                Err(reason) => return Ok(TurnApprovals::Refused(reason)),
            }
        }
        let clock = self.ctx.clock.clone();
        let approvals = CallApprovals::new(path.clone(), clock, session, None, &by, approved_id);
        Ok(TurnApprovals::On(Arc::new(approvals)))
    }

    /// The open questions of the conversation of a message, for its answer.
    fn open_questions(&self, message: &PipeMessage, path: &Path) -> Result<Vec<Value>> {
        let now = self.ctx.clock.timestamp().as_millisecond();
        let file = ApprovalFile::load(path, now)?;
        let session = self.session_key(message);
        let questions = file.open_questions(&session).map(|question| {
            let QuestionDraft { call, details, .. } = &question.draft;
            json!({
                "code": question.code,
                "tool": call.tool,
                "arguments": call.arguments,
                "question": details,
            })
        });
        Ok(questions.collect())
    }

    /// The reader of the files of messages, which can read what the file tools of the turns can.
    fn file_reader(&self) -> Result<&Files> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let files = turn_setup::open_for_reading(self.ctx, &self.options.grants)?;
        Ok(self.files.get_or_init(|| files))
    }

    /// Concludes a turn that did not begin because of `error`.
    fn conclude_failed(
        &self,
        message: &PipeMessage,
        turn: &str,
        error: anyhow::Error,
    ) -> Result<()> {
        let exit = exit_for(&error);
        self.conclude(message, turn, &Ending { error: Some(error), ..Ending::default() }, exit)
    }

    /// Stores and prints the answer of a turn. After a temporary failure the sender repeats the message.
    fn conclude(
        &self,
        message: &PipeMessage,
        turn: &str,
        ending: &Ending,
        exit: Exit,
    ) -> Result<()> {
        if exit != Exit::Answered {
            self.state.lock().exits.push(exit);
        }
        let mut line = answer_line(message, turn, ending, exit);
        if let Some(path) = &self.approvals {
            line["approvals"] = self.open_questions(message, path)?.into();
        }
        let line = line.to_string();
        if is_repeated(ending, exit) {
            if let Some(journal) = &self.journal {
                journal.end_turn(message, turn)?;
            }
            return self.write(&format!("{line}\n"));
        }
        if let Some(journal) = &self.journal {
            journal.store_answer(message, &line)?;
        }
        self.print_answer(&message.id, &line)
    }

    /// Prints an answer and its acknowledgement.
    fn print_answer(&self, id: &Value, line: &str) -> Result<()> {
        let ack = json!({ "v": 1, "type": "ack", "id": id });
        self.write(&format!("{line}\n{ack}\n"))?;
        match &self.journal {
            Some(journal) => journal.settle(id),
            None => Ok(()),
        }
    }

    /// Writes whole lines at once.
    fn write(&self, lines: &str) -> Result<()> {
        self.ctx.terminal.print_json_text(lines)
    }
}

/// Reads a file of a message.
///
/// # Errors
/// Status 77 if the policy denies it, 66 if it cannot be read.
fn read_file(files: &Files, name: &str) -> Result<AttachedContent> {
    match files.read(name) {
        Ok((bytes, path)) => Ok(AttachedContent {
            name: name.to_owned(),
            bytes,
            is_external: false,
            path: Some(path),
        }),
        Err(error @ (ToolError::Denied(_) | ToolError::Rejected(_))) => {
            Err(fail(Exit::Refused, format!("`files`: {}", error.message())))
        }
        Err(error) => Err(fail(Exit::NoInput, format!("`files`: {}", error.message()))),
    }
}

/// The line without a byte order mark, with which a file of Windows may begin.
fn without_byte_order_mark(line: &[u8], number: u64) -> &[u8] {
    match line.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) if number == 1 => rest,
        _ => line,
    }
}

/// True if the sender repeats a message whose turn ended with this status: the failure is temporary, or a budget stopped the turn before
/// its first request.
fn is_repeated(ending: &Ending, exit: Exit) -> bool {
    let usage = ending.stats.usage;
    exit.is_temporary() || exit == Exit::Budget && usage.input == 0 && usage.output == 0
}

/// The line of an answer. A temporary failure has no text, because the sender repeats the message.
fn answer_line(message: &PipeMessage, turn: &str, ending: &Ending, exit: Exit) -> Value {
    let error = ending.error.as_ref().filter(|error| exit_for(error) != Exit::Answered);
    json!({
        "v": 1,
        "type": "message",
        "id": format!("{turn}-a"),
        "in_reply_to": message.id,
        "session": message.session,
        "turn": turn,
        "text": if exit.is_temporary() { "" } else { ending.text.as_str() },
        "files": [],
        "status": { "name": exit.name(), "number": exit.code() },
        "error": error.map(|error| format!("{error:#}")),
        "usage": ending.stats.usage,
        "cost_usd": ending.stats.cost.map(round_usd),
        "facts": message.facts,
    })
}
