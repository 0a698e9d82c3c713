//! Inbound messages of chat channels: fetches what is new, and answers it.
//!
//! The order of writes makes every kill harmless. An inbound message is in the journal before the position moves and
//! before the service may forget it. The turn's id is in the journal before the turn begins, so the session shows if it
//! ended. The answer is in the journal before its first part is sent, and each part is sent with a key that stays the
//! same.

pub(crate) mod answer;
pub(crate) mod chat_command;
mod chat_progress;
pub(crate) mod intake;
pub(crate) mod listen;
pub(crate) mod poll;
pub(crate) mod poll_run;
pub(crate) mod turn_recovery;
pub(crate) mod work_queue;
