//! Inbound messages of chat channels: fetches new messages, and answers them.
//!
//! The order of writes makes every kill harmless. An inbound message is in the journal before the position moves and
//! before the service may forget it. The turn's id is in the journal before the turn begins, so that the next poll can see in the session
//! whether the turn ended. The answer is in the journal before its first part is sent, and each part keeps its key in every attempt, so
//! that a service that recognises keys can drop a repetition.
//!
//! A channel has several types. A [`channel_run::ChannelRun`] has a `LockedChannel` for each channel of a process; that has an
//! `OpenChannel` (`ops/channel/open_channel.rs`): its `ChannelFiles` (config and paths), its `ChannelKind` (the row of the table), and
//! the `Channel`, the connection to the service.

pub(crate) mod answer;
pub(crate) mod approval_answer;
pub(crate) mod channel_run;
pub(crate) mod chat_command;
pub(crate) mod chat_model;
mod chat_progress;
mod draft;
pub(crate) mod intake;
mod joined_messages;
pub(crate) mod listen;
pub(crate) mod poll;
pub(crate) mod spoken_answer;
pub(crate) mod turn_recovery;
pub(crate) mod work_queue;

/// A code span. A backtick would end it, and is written as another quotation mark.
fn code_span(text: &str) -> String {
    format!("`{}`", text.replace('`', "'"))
}
