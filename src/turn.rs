//! The loop: ask, run tools, repeat.
//!
//! Log first, act second: a reply is on disk before its tools run, a result is on disk before the next question. So a
//! stop at any instant needs no cleanup. The loop knows interfaces only; whatever is to be added comes as a tool, a
//! guard, prompt text, a sink, or a wrapper of a provider.

use crate::error::{Exit, fail, fail_hint};
use crate::event::{Event, Outcome, Sink};
use crate::guard::{Guard, State, Verdict};
use crate::message::{Finish, Message, Part, Reply, ToolCall, Usage, User};
use crate::provider::{Delta, Provider, Request, Sampling};
use crate::session::Session;
use crate::tool::Toolbox;
use anyhow::Result;
use std::collections::BTreeMap;

/// How often a reply with neither text nor calls is asked for again.
const BLANKS: u32 = 2;

/// All that a turn needs besides its conversation.
pub struct Agent<'a> {
    pub system: &'a str,
    pub provider: &'a dyn Provider,
    pub toolbox: &'a Toolbox,
    pub guards: &'a mut [Box<dyn Guard>],
    pub model: &'a str,
    pub sampling: &'a Sampling,
}

/// How a turn went.
#[derive(Debug, Default)]
pub struct Ending {
    pub cause: Cause,
    /// The answer; with a cause other than [`Cause::Answered`], what there is of one.
    pub text: String,
    pub tally: Tally,
    /// What went wrong. With a text, the answer was complete and something failed around it, such as the disk.
    pub error: Option<anyhow::Error>,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    #[default]
    Answered,
    IterationLimit,
    OutputLimit,
    RepeatedFailure,
    Failed,
}

impl Cause {
    pub fn exit(self) -> Exit {
        match self {
            Self::Answered => Exit::Answered,
            Self::IterationLimit | Self::OutputLimit | Self::RepeatedFailure => Exit::Limit,
            Self::Failed => Exit::Failed,
        }
    }
}

/// What a turn cost.
#[derive(Debug, Default)]
pub struct Tally {
    pub iterations: u32,
    pub usage: Usage,
    /// By tool name: calls, and of these the failed ones.
    pub tools: BTreeMap<String, (u32, u32)>,
    /// The model that answered last, as the provider names it.
    pub model: String,
}

/// Run one turn to its end. Without `input` an interrupted turn is taken up where it stopped.
pub fn run(
    agent: &mut Agent<'_>,
    session: &mut Session,
    input: Option<User>,
    sink: &mut Sink<'_>,
) -> Ending {
    let mut tally = Tally::default();
    let (cause, reply, mut error) = match converse(agent, session, input, &mut tally, sink) {
        Ok((cause, reply)) => {
            // The answer is paid for: a disk that will not take it is told, and the answer given all the same.
            let saved = session.push(Message::Assistant(reply.clone()));
            (cause, Some(reply), saved.err())
        }
        Err(error) => (Cause::Failed, None, Some(error)),
    };
    let ending = error.as_ref().map_or(cause.exit(), crate::error::exit_of);
    error = error.or(session.close(ending.name()).err());
    if let Some(reply) = &reply {
        error = tell(reply, true, sink).err().or(error);
    }
    Ending {
        cause,
        text: reply.map(|reply| reply.text).unwrap_or_default(),
        tally,
        error,
    }
}

/// Ask and run tools until there is a last reply. It is not yet on disk.
fn converse(
    agent: &mut Agent<'_>,
    session: &mut Session,
    input: Option<User>,
    tally: &mut Tally,
    sink: &mut Sink<'_>,
) -> Result<(Cause, Reply)> {
    if let Some(user) = input {
        session.push(Message::User(user.clone()))?;
        sink(Event::User(&user))?;
    }
    let start = session
        .messages()
        .iter()
        .rposition(|message| matches!(message, Message::User(_)))
        .unwrap_or(0);
    let mut blanks = 0;
    loop {
        let state = State {
            iterations: tally.iterations,
            usage: tally.usage,
            turn: &session.messages()[start..],
        };
        let verdict = agent
            .guards
            .iter_mut()
            .map(|guard| guard.before(&state))
            .find(|verdict| *verdict != Verdict::GoOn);
        if let Some(Verdict::Close { cause, words }) = verdict {
            let mut reply = ask(agent, session, Some(words), tally, sink)?;
            reply.calls.clear();
            return if reply.text.is_empty() {
                Err(answered_nothing(&reply))
            } else {
                Ok((cause, reply))
            };
        }
        let reply = ask(agent, session, None, tally, sink)?;
        if !reply.calls.is_empty() {
            session.push(Message::Assistant(reply.clone()))?;
            tell(&reply, false, sink)?;
            run_calls(agent.toolbox, &reply, session, tally, sink)?;
        } else if reply.text.trim().is_empty() {
            blanks += 1;
            if blanks > BLANKS || reply.finish != Finish::Stop {
                return Err(answered_nothing(&reply));
            }
        } else if reply.finish == Finish::Length {
            return Ok((Cause::OutputLimit, reply));
        } else {
            return Ok((Cause::Answered, reply));
        }
    }
}

/// One request. With `closing` words it ends the conversation: they are sent last, and no tool may be called.
fn ask(
    agent: &Agent<'_>,
    session: &Session,
    closing: Option<String>,
    tally: &mut Tally,
    sink: &mut Sink<'_>,
) -> Result<Reply> {
    tally.iterations += 1;
    let id = format!("{}-{}", session.turn(), tally.iterations);
    let may_call = closing.is_none();
    let mut messages = std::borrow::Cow::Borrowed(session.messages());
    if let Some(words) = closing {
        messages.to_mut().push(Message::User(User {
            parts: vec![Part::Text(words)],
            ..User::default()
        }));
    }
    let request = request(agent, &messages, may_call, &id);
    let mut tell = |delta: Delta<'_>| match delta {
        Delta::Text(text) => sink(Event::Text { message: &id, text }),
        Delta::Reasoning(text) => sink(Event::Reasoning { message: &id, text }),
        Delta::Retry {
            attempt,
            wait,
            cause,
        } => sink(Event::Retry {
            attempt,
            wait,
            cause,
        }),
        Delta::Notice(text) => sink(Event::Notice(text)),
    };
    let reply = agent
        .provider
        .reply(&request, &mut tell)
        .map_err(crate::provider::ProviderError::into_failure)?;
    tally.usage += reply.usage;
    tally.model.clone_from(&reply.model);
    Ok(reply)
}

/// What is asked, as a value: whoever wants to see it without asking, can.
pub fn request<'a>(
    agent: &'a Agent<'_>,
    messages: &'a [Message],
    may_call: bool,
    reply_id: &'a str,
) -> Request<'a> {
    let Agent {
        system,
        toolbox,
        model,
        sampling,
        ..
    } = agent;
    Request {
        system,
        messages,
        tools: toolbox.specs(),
        may_call,
        model,
        sampling,
        reply_id,
    }
}

/// Tell of a reply that is on disk, and of what it cost.
fn tell(reply: &Reply, last: bool, sink: &mut Sink<'_>) -> Result<()> {
    sink(Event::Assistant { reply, last })?;
    sink(Event::Usage {
        message: &reply.id,
        usage: reply.usage,
    })
}

/// Run the calls of `reply`, batch by batch, and log each result.
fn run_calls(
    toolbox: &Toolbox,
    reply: &Reply,
    session: &mut Session,
    tally: &mut Tally,
    sink: &mut Sink<'_>,
) -> Result<()> {
    for batch in toolbox.batches(&reply.calls) {
        for call in batch {
            sink(Event::ToolCall(call))?;
        }
        let mut say = |call: &ToolCall, text: &str| {
            sink(Event::ToolOutput {
                call: &call.id,
                text,
            })
        };
        for done in toolbox.run(batch, reply.finish == Finish::Length, &mut say)? {
            let (count, failed) = tally.tools.entry(done.result.name.clone()).or_default();
            *count += 1;
            *failed += u32::from(done.outcome != Outcome::Ok);
            session.push(Message::Tool(done.result.clone()))?;
            sink(Event::ToolResult {
                result: &done.result,
                outcome: done.outcome,
                duration: done.duration,
            })?;
        }
    }
    Ok(())
}

fn answered_nothing(reply: &Reply) -> anyhow::Error {
    match &reply.finish {
        Finish::Length => fail_hint(
            Exit::Limit,
            "the output limit was spent before the model said anything",
            "a higher `--max-tokens`, or a lower `--reasoning-effort`",
        ),
        Finish::Refusal => fail(
            Exit::Failed,
            "the model, or its provider's filter, declined to answer",
        ),
        _ => fail(Exit::Failed, "the model answered nothing"),
    }
}
