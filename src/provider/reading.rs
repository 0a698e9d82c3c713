//! What comes back, in all the shapes that servers give it: a stream of events or one object, whichever was asked for.
//! Pure: bytes are fed in as they come, the reply is taken out at the end.

use super::Tell;
use super::failure;
use super::sse::{Events, TooLong};
use crate::message::{Reply, json};
use serde_json::Value;

/// A reply that is being put together, in one wire format.
pub trait Draft {
    /// An event of a stream.
    fn event(&mut self, event: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble>;
    /// The answer in one piece.
    fn whole(&mut self, answer: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble>;
    /// The stream's closing mark, where the format has one beside its events.
    fn close(&mut self) {}
    /// Whether all of the answer has come, whatever follows.
    fn is_done(&self) -> bool;
    /// All has come: what was held back is told, and what is missing is noticed.
    fn end(&mut self, tell: &mut Tell<'_>) -> Result<(), Trouble>;
    fn reply(self: Box<Self>) -> Result<Reply, Trouble>;
}

/// Why an answer is none.
#[derive(Debug)]
pub enum Trouble {
    /// Whoever listens gave up.
    Listener(anyhow::Error),
    /// It ended before it was whole.
    Cut(String),
    /// It is not in any form we know.
    Nonsense(String),
    /// The server tells of a failure within an answer.
    Server(Value),
}

impl From<TooLong> for Trouble {
    fn from(_: TooLong) -> Self {
        Self::Nonsense("an event without an end".into())
    }
}

/// An answer, as far as it has come.
pub(super) struct Reading {
    events: Events,
    /// The answer, while it may be one object.
    whole: Vec<u8>,
    form: Form,
    draft: Box<dyn Draft>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Too little has come to tell.
    Unknown,
    Events,
    Object,
}

impl Reading {
    /// `events` is what the server calls it; what it is shows in its first byte.
    pub(super) fn new(draft: Box<dyn Draft>, events: bool) -> Self {
        let form = if events { Form::Events } else { Form::Unknown };
        Self {
            events: Events::default(),
            whole: Vec::new(),
            form,
            draft,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8], tell: &mut Tell<'_>) -> Result<(), Trouble> {
        if self.form == Form::Unknown {
            self.whole.extend_from_slice(bytes);
            let mark = b"\xef\xbb\xbf";
            let text = self.whole.strip_prefix(mark).unwrap_or(&self.whole);
            self.form = match text.trim_ascii_start().first() {
                None => Form::Unknown,
                // A mark that has not come whole.
                Some(_) if mark.starts_with(text) => Form::Unknown,
                Some(b'{' | b'<' | b'[') => Form::Object,
                Some(_) => Form::Events,
            };
            if self.form != Form::Events {
                return Ok(());
            }
            let first = std::mem::take(&mut self.whole);
            return self.feed(&first, tell);
        }
        if self.form == Form::Object {
            self.whole.extend_from_slice(bytes);
            return Ok(());
        }
        let draft = self.draft.as_mut();
        self.events
            .feed(bytes, &mut |data| event(data, draft, tell))
    }

    /// The answer has ended.
    pub(super) fn finish(&mut self, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        let draft = self.draft.as_mut();
        if self.form == Form::Events {
            self.events.finish(&mut |data| event(data, draft, tell))?;
        } else {
            let text = String::from_utf8_lossy(&self.whole);
            let text = text.trim_start_matches('\u{feff}').trim();
            let object =
                json::parse(text).ok_or_else(|| Trouble::Nonsense(failure::message(text)))?;
            check(&object)?;
            draft.whole(&object, tell)?;
        }
        draft.end(tell)
    }

    /// Whether all of the answer has come, whatever follows.
    pub(super) fn is_done(&self) -> bool {
        self.draft.is_done()
    }

    pub(super) fn reply(self) -> Result<Reply, Trouble> {
        self.draft.reply()
    }
}

/// One event's data.
fn event(data: &str, draft: &mut dyn Draft, tell: &mut Tell<'_>) -> Result<(), Trouble> {
    let data = data.trim();
    if data == "[DONE]" {
        draft.close();
        return Ok(());
    }
    if data.is_empty() {
        return Ok(());
    }
    let object = json::parse(data)
        .ok_or_else(|| Trouble::Nonsense(format!("an event that is no JSON: {data}")))?;
    check(&object)?;
    draft.event(&object, tell)
}

/// An error within a good answer is one all the same.
fn check(object: &Value) -> Result<(), Trouble> {
    let has_error = object.get("error").is_some_and(|error| !error.is_null());
    match has_error || object["object"] == "error" || object["type"] == "error" {
        true => Err(Trouble::Server(object.clone())),
        false => Ok(()),
    }
}
