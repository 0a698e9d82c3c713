//! Chat channels: fetch what is new, answer it, deliver the answers.
//!
//! The order of writes makes every kill harmless. An inbound message is in the journal before the position moves and
//! before the service may forget it. The turn's id is in the journal before the turn begins, so the session shows if it
//! ended. The answer is in the journal before its first part is sent, and each part is sent with a key that stays the
//! same.

pub(crate) mod answer;
pub(crate) mod attachments;
pub(crate) mod chat_command;
mod chat_progress;
pub(crate) mod delivered;
pub(crate) mod delivery;
pub(crate) mod health;
pub(crate) mod intake;
pub(crate) mod listen;
pub(crate) mod login;
pub(crate) mod message_outlet;
mod message_quotes;
pub(crate) mod open_channel;
pub(crate) mod outbox;
pub(crate) mod overview;
pub(crate) mod pairing;
pub(crate) mod poll;
pub(crate) mod poll_run;
pub(crate) mod recipients;
mod transcription;
pub(crate) mod turn_recovery;
pub(crate) mod work_queue;
