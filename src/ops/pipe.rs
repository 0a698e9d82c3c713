//! The message bus: messages as JSON lines on standard input, answers as JSON lines on standard output.
//!
//! The main thread reads, a thread for each job answers. No more is read while twice as many messages wait as are
//! answered, so that a full pipe holds the sender back. A signal ends the reading; what has begun is answered. Each
//! answer and its acknowledgement are one write, after the session is on disk. A named pipe keeps a [`journal`].

mod journal;
mod message;

use crate::error::{Exit, exit_for};
use crate::ops::agent_turn::origin::ChatTurn;
use crate::ops::agent_turn::{self, TurnOutcome};
use crate::ops::channel::turn_recovery::{self, EarlierTurn};
use crate::ops::context::Context;
use crate::ops::turn_options::TurnOptions;
use crate::report::json;
use crate::sys::cancel::{self, CancelToken};
use crate::sys::secret::random_hex;
use crate::sys::signal;
use crate::sys::stdin_lines::StdinLines;
use crate::sys::sync::IgnorePoison;
use anyhow::{Context as _, Result};
use journal::{Arrival, PipeJournal};
use message::PipeMessage;
use serde_json::{Value, json};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// The section of the system prompt.
const PROMPT: &str = "A program passes on messages to you, one at a time, and delivers your answers. This run is unattended, \
    and you cannot ask questions.";
/// Interval at which a reader that waits for room checks for signals.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Causes of the exit status, the most important first.
const EXIT_PRECEDENCE: [Exit; 9] = [
    Exit::Io,
    Exit::Config,
    Exit::Refused,
    Exit::Unavailable,
    Exit::TryAgain,
    Exit::BadInput,
    Exit::Failed,
    Exit::Budget,
    Exit::Denied,
];

/// Answers the messages on standard input with `jobs` threads. `options` apply to each turn; `name` is that of the journal.
///
/// # Errors
/// Standard input or output fails, or a signal arrived. Status 75 if another run uses the journal.
pub(crate) fn run(
    ctx: &Context,
    options: &TurnOptions,
    jobs: usize,
    name: Option<&str>,
) -> Result<Exit> {
    signal::install(None).context("wait for signals")?;
    let journal = match name {
        Some(name) => Some(PipeJournal::open(ctx, name)?),
        None => None,
    };
    let token = CancelToken::shielded().context("start the pipe")?;
    let bus = MessageBus {
        ctx,
        options,
        jobs,
        journal,
        state: Mutex::default(),
        changed: Condvar::new(),
    };
    let read = thread::scope(|scope| {
        for _ in 0..jobs {
            let token = Arc::clone(&token);
            scope.spawn(|| cancel::scope(Some(token), || bus.answer_all()));
        }
        let read = bus.read_all();
        let mut state = bus.lock();
        state.is_closed = true;
        if read.is_err() {
            // Unanswered messages have no acknowledgement, so they come again.
            state.waiting.clear();
        }
        drop(state);
        bus.changed.notify_all();
        read
    });
    ctx.servers.shut_down();
    let state = bus.state.into_inner().ignore_poison();
    match state.write_error {
        Some(error) => Err(error),
        None => read.map(|()| {
            let mut causes = EXIT_PRECEDENCE.into_iter();
            let first = causes.find(|exit| state.causes.contains(&exit.code()));
            // A failed turn of another cause has its status in its line.
            first.unwrap_or(match state.causes.is_empty() {
                true => Exit::Answered,
                false => Exit::Failed,
            })
        }),
    }
}

struct MessageBus<'a> {
    ctx: &'a Context,
    options: &'a TurnOptions,
    /// The number of threads that answer.
    jobs: usize,
    /// The journal of a named pipe.
    journal: Option<PipeJournal<'a>>,
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
    /// True if no more messages come.
    is_closed: bool,
    /// The statuses of failures.
    causes: HashSet<u8>,
    /// The failure of standard output or of the journal, which ends everything.
    write_error: Option<anyhow::Error>,
}

/// A turn that a message needs.
enum NeededTurn {
    /// None: its session has the answer.
    Answered(String),
    /// The turn of an earlier run goes on.
    Resumed,
    New,
}

impl MessageBus<'_> {
    fn lock(&self) -> MutexGuard<'_, BusState> {
        self.state.lock().ignore_poison()
    }

    /// Reads messages until the input ends.
    fn read_all(&self) -> Result<()> {
        if !self.continue_earlier_run()? {
            return Ok(());
        }
        let mut reader = StdinLines::open();
        let mut number = 0_u64;
        while let Some(line) = reader.next_line()? {
            number += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let parsed = PipeMessage::parse(&line);
            let received = parsed.and_then(|message| self.receive(message));
            match received {
                Ok(None) => {}
                Ok(Some(message)) => {
                    if !self.enqueue(message)? {
                        break;
                    }
                }
                Err(error) => {
                    let line = json!({ "v": 1, "type": "error", "line": number, "error": error });
                    self.lock().causes.insert(Exit::BadInput.code());
                    self.write(&format!("{line}\n"));
                }
            }
        }
        Ok(())
    }

    /// Writes the answers of the journal that may not have been written, and queues the messages without one. False if
    /// nothing can be written any more.
    fn continue_earlier_run(&self) -> Result<bool> {
        let Some(journal) = &self.journal else {
            return Ok(true);
        };
        for (key, lines) in journal.unwritten() {
            self.write(&lines);
            journal.note_written(&key)?;
        }
        for message in journal.unanswered() {
            if !self.enqueue(message)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stores a message in the journal, if there is one. Returns it if it is to be answered.
    ///
    /// # Errors
    /// The reason why it cannot be kept.
    fn receive(&self, message: PipeMessage) -> Result<Option<PipeMessage>, String> {
        let Some(journal) = &self.journal else {
            return Ok(Some(message));
        };
        match journal.receive(&message) {
            Ok(Arrival::New) => Ok(Some(message)),
            Ok(Arrival::Waiting) => Ok(None),
            Ok(Arrival::Answered(lines)) => {
                self.write(&lines);
                Ok(None)
            }
            Err(error) if exit_for(&error) == Exit::BadInput => Err(format!("{error:#}")),
            Err(error) => {
                self.fail(error);
                Ok(None)
            }
        }
    }

    /// Adds a message once there is room for it. False if nothing can be written any more.
    fn enqueue(&self, message: PipeMessage) -> Result<bool> {
        let mut state = self.lock();
        while state.waiting.len() >= 2 * self.jobs && state.write_error.is_none() {
            let waited = self.changed.wait_timeout(state, SIGNAL_CHECK_INTERVAL);
            state = waited.ignore_poison().0;
            signal::check()?;
        }
        if state.write_error.is_some() {
            return Ok(false);
        }
        state.waiting.push_back(message);
        drop(state);
        self.changed.notify_all();
        Ok(true)
    }

    /// Answers messages until no more come.
    fn answer_all(&self) {
        while let Some(message) = self.take() {
            self.answer(&message);
            self.lock().busy.remove(&message.session);
            self.changed.notify_all();
        }
    }

    /// Waits for a message whose session is free. `None` if no more come.
    fn take(&self) -> Option<PipeMessage> {
        let mut state = self.lock();
        loop {
            if state.write_error.is_some() {
                return None;
            }
            let mut waiting = state.waiting.iter();
            if let Some(at) = waiting.position(|it| !state.busy.contains(&it.session)) {
                let message = state.waiting.remove(at)?;
                state.busy.insert(message.session.clone());
                drop(state);
                self.changed.notify_all();
                return Some(message);
            }
            if state.is_closed && state.waiting.is_empty() {
                return None;
            }
            state = self.changed.wait(state).ignore_poison();
        }
    }

    fn answer(&self, message: &PipeMessage) {
        if let Err(error) = self.try_answer(message) {
            self.fail(error);
        }
    }

    fn try_answer(&self, message: &PipeMessage) -> Result<()> {
        let turn = random_hex(5);
        let needed = match &self.journal {
            None => NeededTurn::New,
            Some(journal) => self.find_needed_turn(journal, message)?,
        };
        let outcome = match needed {
            NeededTurn::Answered(text) => TurnOutcome::found(&turn, text),
            NeededTurn::Resumed | NeededTurn::New => {
                if let Some(journal) = &self.journal {
                    journal.begin(message, &turn)?;
                }
                self.run_turn(message, &turn, matches!(needed, NeededTurn::Resumed))
            }
        };
        let exit = outcome.exit;
        let mut lines = format!("{}\n", answer_line(&outcome, message));
        if !exit.is_temporary() {
            let ack = json!({ "v": 1, "type": "ack", "id": message.id });
            lines.push_str(&format!("{ack}\n"));
        }
        if exit != Exit::Answered {
            self.lock().causes.insert(exit.code());
        }
        match self.journal.as_ref().filter(|_| !exit.is_temporary()) {
            None => self.write(&lines),
            Some(journal) => {
                journal.store_answer(message, &turn, &lines)?;
                self.write(&lines);
                journal.note_written(&turn)?;
            }
        }
        outcome.finish_beside_others(self.ctx);
        Ok(())
    }

    fn run_turn(&self, message: &PipeMessage, turn: &str, resume: bool) -> TurnOutcome {
        let mut options = TurnOptions {
            session: Some(message.session.clone()),
            resume,
            ..self.options.clone()
        };
        if !resume {
            options.message = Some(message.text.clone());
            options.attach.clone_from(&message.files);
        }
        let chat = ChatTurn {
            id: turn,
            chat_prompt: PROMPT,
            is_typed: false,
            external_content: None,
        };
        agent_turn::run_chat_turn(self.ctx, &options, chat, None)
    }

    /// Finds what an earlier run has done about a message.
    fn find_needed_turn(
        &self,
        journal: &PipeJournal<'_>,
        message: &PipeMessage,
    ) -> Result<NeededTurn> {
        let turns = journal.begun_turns(message);
        if turns.is_empty() {
            return Ok(NeededTurn::New);
        }
        let settings = self.ctx.settings()?;
        let earlier = turn_recovery::find(self.ctx, &settings, &message.session, &turns)?;
        Ok(match earlier {
            EarlierTurn::Answered(text) => NeededTurn::Answered(text),
            EarlierTurn::Interrupted => NeededTurn::Resumed,
            EarlierTurn::NotStored => NeededTurn::New,
        })
    }

    /// Ends everything because of a failure of the output or the journal.
    fn fail(&self, error: anyhow::Error) {
        self.lock().write_error.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Writes whole lines at once.
    fn write(&self, lines: &str) {
        let written = self.ctx.terminal.print_json_text(lines);
        if let Err(error) = written {
            self.fail(error);
        }
    }
}

/// The line of an answer. A temporary failure has no text: the message will come again.
fn answer_line(outcome: &TurnOutcome, message: &PipeMessage) -> Value {
    let TurnOutcome {
        ending,
        exit,
        turn_id,
        ..
    } = outcome;
    let error = ending
        .error
        .as_ref()
        .filter(|error| exit_for(error) != Exit::Answered);
    json!({
        "v": 1,
        "type": "message",
        "id": format!("{turn_id}-a"),
        "in_reply_to": message.id,
        "session": message.session,
        "turn": turn_id,
        "text": if exit.is_temporary() { "" } else { ending.text.as_str() },
        "files": [],
        "status": { "name": exit.name(), "number": exit.code() },
        "error": error.map(|error| format!("{error:#}")),
        "usage": json::usage_json(ending.stats.usage),
        "cost_usd": ending.stats.cost.map(json::round_dollars),
        "facts": message.facts,
    })
}
