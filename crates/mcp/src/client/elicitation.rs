//! Elicitation: requests of a server for user input, which only forms can fulfil. The user takes a while, so each
//! question has its own thread, which ends if the server withdraws the question.

use super::config::ElicitationHandler;
use super::connection_state::{ConnectionState, OpenAnswer};
use nanobot_base::json_rpc::ErrorObject;
use nanobot_os::cancel::{self, CancelToken};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A request for user input.
pub(super) struct Question {
    /// The name of the server.
    pub(super) server: String,
    pub(super) id: Value,
    pub(super) params: Map<String, Value>,
}

/// Asks the user if one is present and the question is a form, or declines. `answer` receives the answer, unless the
/// server withdraws the question.
pub(super) fn answer(
    question: Question,
    state: &Arc<ConnectionState>,
    handler: Option<&Arc<dyn ElicitationHandler>>,
    answer: impl FnOnce(Result<Value, ErrorObject>) + Send + 'static,
) {
    let Question { server, id, mut params } = question;
    let declined = Ok(json!({ "action": "decline" }));
    if params.get("mode").is_some_and(|mode| mode != "form") {
        log::debug!(target: "mcp", "{server}: URL elicitation declined");
        return answer(declined);
    }
    let message = params.remove("message");
    let form = params.remove("requestedSchema");
    let (Some(Value::String(message)), Some(form @ Value::Object(_))) = (message, form) else {
        return answer(Err(ErrorObject::invalid_params(
            "there is no `message` or no `requestedSchema`",
        )));
    };
    let (Some(handler), Ok(token)) = (handler.cloned(), CancelToken::new()) else {
        return answer(declined);
    };
    state.set_cancel_token(&id, Arc::clone(&token));
    let open = OpenAnswer::new(state);
    let state = Arc::clone(state);
    let ask = move || {
        let content =
            cancel::scope(Some(Arc::clone(&token)), || handler.ask_user(&server, &message, &form));
        drop(open);
        if token.is_cancelled() {
            return state.close_open_request(&id);
        }
        answer(Ok(match content {
            Some(content) => json!({ "action": "accept", "content": content }),
            None => json!({ "action": "decline" }),
        }));
    };
    let thread = std::thread::Builder::new().name("mcp-ask".into());
    if let Err(error) = thread.spawn(ask) {
        log::debug!(target: "mcp", "cannot start a thread for a question: {error}");
    }
}
