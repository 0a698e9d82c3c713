//! Chat channels: opens them, sends answers and other messages, and records their health. [`super::inbound`] answers the
//! messages that arrive.

pub(crate) mod attachments;
pub(crate) mod bindings;
pub(crate) mod delivery;
pub(crate) mod health;
pub(crate) mod login;
pub(crate) mod message_quotes;
pub(crate) mod open_channel;
pub(crate) mod outbox;
pub(crate) mod overview;
pub(crate) mod pairing;
pub(crate) mod persona;
pub(crate) mod recipients;
pub(crate) mod session_copy;
