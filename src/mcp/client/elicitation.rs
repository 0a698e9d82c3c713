//! Elicitation: requests of a server for user input, which only forms can fulfil. A user who is asked takes a while, so
//! each question has its own thread, which ends if the server withdraws the question.

use super::connection::Transport;
use super::connection_state::ConnectionState;
use super::inbox::Inbox;
use super::json_rpc::ErrorObject;
use crate::sys::cancel::{self, CancelToken};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Counts a question as open while the user is answering it.
struct OpenQuestion(Arc<ConnectionState>);

impl OpenQuestion {
    fn new(state: &Arc<ConnectionState>) -> Self {
        state.open_questions.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(state))
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.0.open_questions.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Answers the request `id` for user input: asks the user if one is present and the request is a form, or declines.
pub(super) fn answer(
    inbox: &Arc<Inbox>,
    id: Value,
    mut params: Map<String, Value>,
    transport: &Arc<dyn Transport>,
) {
    let declined = Ok(json!({ "action": "decline" }));
    if params.get("mode").is_some_and(|mode| mode != "form") {
        log::debug!(target: "mcp", "{}: URL elicitation declined", inbox.server);
        return inbox.answer(id, declined, transport);
    }
    let (message, form) = (params.remove("message"), params.remove("requestedSchema"));
    let (Some(Value::String(message)), Some(form @ Value::Object(_))) = (message, form) else {
        let error = ErrorObject::invalid_params("there is no `message` or no `requestedSchema`");
        return inbox.answer(id, Err(error), transport);
    };
    let (Some(handler), Ok(token)) = (inbox.elicitation.clone(), CancelToken::new()) else {
        return inbox.answer(id, declined, transport);
    };
    inbox.state.set_cancel_token(&id, Arc::clone(&token));
    let question = OpenQuestion::new(&inbox.state);
    let (asking, transport) = (Arc::clone(inbox), Arc::clone(transport));
    let ask = move || {
        let asked = cancel::scope(Some(Arc::clone(&token)), || {
            handler.ask_user(&asking.server, &message, &form)
        });
        drop(question);
        if token.is_cancelled() {
            return asking.state.close_open_request(&id);
        }
        let result = match asked {
            Some(entered) => json!({ "action": "accept", "content": entered }),
            None => json!({ "action": "decline" }),
        };
        asking.answer(id, Ok(result), &transport);
    };
    let thread = std::thread::Builder::new().name("mcp-ask".into());
    if let Err(error) = thread.spawn(ask) {
        log::debug!(target: "mcp", "{}: cannot start a thread: {error}", inbox.server);
    }
}
