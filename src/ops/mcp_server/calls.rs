//! The tools of the server: `ask`, which is a turn, and the agent's own tools.

use super::resources;
use super::served_client::ServedClient;
use crate::ops::agent_turn::source::ChatTurn;
use crate::ops::agent_turn::{self, TurnOutcome};
use crate::ops::context::Context;
use crate::ops::turn_setup::TurnSetup;
use crate::options::grants::Grants;
use base64::Engine;
use nanobot_agent::report::EventObserver;
use nanobot_agent::report::short_text::call_hint;
use nanobot_base::error::exit_for;
use nanobot_base::event::{Event, ToolOutcome};
use nanobot_base::json_rpc::ErrorObject;
use nanobot_base::message::user_text::{OthersContent, UserText};
use nanobot_base::message::{Message, MessagePart, Origin, Reply, ToolCall};
use nanobot_config::policy::tool_names::{APPLY_PATCH, READ_TOOLS, WRITE_TOOLS};
use nanobot_os::secret::random_hex;
use nanobot_tool::CallEffect;
use serde_json::{Map, Value, json};
use std::sync::mpsc;
use std::time::Duration;

/// The name of the tool that runs a turn.
const ASK: &str = "ask";
/// The beginning of the keys of sessions that clients have.
const SESSION_PREFIX: &str = "mcp:";
/// Maximum time that a question waits for a session that another run uses.
const SESSION_LOCK_TIMEOUT: Duration = Duration::from_secs(600);
/// The section of the system prompt about the client.
const PROMPT: &str = "A program, such as another agent, passes on a message to you through the Model Context Protocol, and reads your answer. \
    This run is unattended, and you cannot ask questions.";

/// A call that was served.
pub(super) struct ServedCall {
    /// The result, as the protocol describes it.
    pub(super) value: Value,
    /// The turn that the call ran.
    pub(super) turn: Option<AskedTurn>,
}

/// A turn that has ended, in its context.
pub(super) struct AskedTurn {
    ctx: Context,
    outcome: TurnOutcome,
}

impl AskedTurn {
    /// Does the post-turn work, after the response is sent.
    pub(super) fn finish(&self) {
        self.outcome.finish(&self.ctx);
    }
}

/// The names of the tools that the server offers: those that `--tools` lists, else the file tools.
pub(super) fn offered_tools(setup: &TurnSetup, grants: &Grants) -> Vec<String> {
    let is_file_tool = |name: &str| {
        READ_TOOLS.contains(&name) || WRITE_TOOLS.contains(&name) && name != APPLY_PATCH
    };
    let names = setup.toolbox.names().into_iter();
    let names = names.filter(|name| grants.tools.is_some() || is_file_tool(name));
    names.map(str::to_owned).collect()
}

/// The tools, as the protocol describes them.
pub(super) fn list(client: &ServedClient<'_>) -> Vec<Value> {
    let ask = json!({
        "name": ASK,
        "title": "Ask nanobot",
        "description": "Let the agent answer a question or do a task, with its own memory and tools",
        "inputSchema": {
            "type": "object",
            "required": ["message"],
            "properties": {
                "message": { "type": "string", "minLength": 1, "description": "the question or task, with all that is needed" },
                "session": { "type": "string", "description": "conversation to continue; default: a new one" },
            },
        },
    });
    let specs = client.setup.toolbox.specs().iter();
    let own_tools = specs.filter(|spec| client.tools.contains(&spec.name)).map(|spec| {
        json!({
            "name": spec.name,
            "description": spec.description,
            "inputSchema": *spec.parameters,
            "annotations": { "readOnlyHint": READ_TOOLS.contains(&spec.name.as_str()) },
        })
    });
    std::iter::once(ask).chain(own_tools).collect()
}

/// Makes the call that `params` describe.
///
/// # Errors
/// There is no such tool, or the parameters do not describe a call.
pub(super) fn call(
    client: &ServedClient<'_>,
    id: &Value,
    params: &Map<String, Value>,
) -> Result<ServedCall, ErrorObject> {
    let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
    let arguments = match params.get("arguments") {
        None | Some(Value::Null) => json!({}),
        Some(arguments @ Value::Object(_)) => arguments.clone(),
        Some(_) => return Err(ErrorObject::invalid_params("`arguments` is not an object")),
    };
    let progress = params
        .get("_meta")
        .and_then(|meta| meta.get("progressToken"))
        .filter(|token| token.is_string() || token.is_number());
    if name == ASK {
        return ask(client, &arguments, progress);
    }
    if !client.tools.iter().any(|tool| tool == name) {
        return Err(ErrorObject::invalid_params(format!("there is no tool `{name}`")));
    }
    Ok(ServedCall { value: run_tool(client, id, name, arguments), turn: None })
}

/// Runs a tool of the agent, under the policy.
fn run_tool(client: &ServedClient<'_>, id: &Value, name: &str, arguments: Value) -> Value {
    let toolbox = &client.setup.toolbox;
    let call = ToolCall { id: id.to_string(), name: name.to_owned(), arguments };
    // A call is the client's own text, like a reply of a model. The results of earlier calls limit the permissions of later ones.
    let provenance = &client.setup.shared.provenance;
    provenance
        .observe(&Message::Assistant(Reply { tool_calls: vec![call.clone()], ..Reply::default() }));
    let tool = toolbox.find(&call.name);
    let reads = tool.is_none_or(|tool| tool.effect(&call.arguments) == CallEffect::Reads);
    let run = || toolbox.run(std::slice::from_ref(&call), false, &mut |_, _| Ok(()));
    // As in a turn, calls that only read run concurrently, and a call that makes changes runs alone.
    let (results, _) = if reads {
        let _shared = client.writing.read();
        run()
    } else {
        let _exclusive = client.writing.write();
        run()
    };
    if let Some(hooks) = &client.setup.shared.hooks {
        hooks.take_notices().iter().for_each(|notice| client.ctx.notice(notice));
    }
    let executed = results.first().expect("one call has one result");
    provenance.observe(&Message::Tool(executed.result.clone()));
    let content: Vec<Value> = executed.result.parts.iter().map(to_content).collect();
    json!({ "content": content, "isError": executed.outcome != ToolOutcome::Ok || executed.command_failed })
}

/// A part of a result, in the form of the protocol.
fn to_content(part: &MessagePart) -> Value {
    match part {
        MessagePart::Text(text) => text_content(text),
        MessagePart::Image(image) => {
            let data = base64::engine::general_purpose::STANDARD.encode(&image.bytes);
            json!({ "type": "image", "mimeType": image.media_type, "data": data })
        }
        MessagePart::Document(_) => text_content("[a document, which a model would see]"),
    }
}

fn text_content(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Runs a turn.
///
/// # Errors
/// The arguments do not fit `ask`.
fn ask(
    client: &ServedClient<'_>,
    arguments: &Value,
    progress: Option<&Value>,
) -> Result<ServedCall, ErrorObject> {
    let message = arguments["message"].as_str().map(str::trim).unwrap_or_default();
    if message.is_empty() {
        return Err(ErrorObject::invalid_params("`message` is missing"));
    }
    let session = match &arguments["session"] {
        Value::Null => format!("{SESSION_PREFIX}{}", random_hex(6)),
        // A client continues conversations of clients, not those of the user.
        Value::String(key) if key.trim().starts_with(SESSION_PREFIX) => key.trim().to_owned(),
        Value::String(key) if !key.trim().is_empty() => format!("{SESSION_PREFIX}{}", key.trim()),
        _ => return Err(ErrorObject::invalid_params("`session` is not a text")),
    };
    // The option's value `-` means standard input.
    let message = if message == "-" { "- " } else { message };
    let content = OthersContent::new(Origin::Project, "a message of a program");
    let mut text = UserText::of_others(message, content);
    if let Some(content) = client.setup.shared.provenance.external_content() {
        text.raise(OthersContent::new(Origin::External, content));
    }
    let mut options = client.options.clone();
    options.input.message = Some(text);
    options.session.key = Some(session.clone());
    options.session.lock_timeout = SESSION_LOCK_TIMEOUT;
    let chat = ChatTurn {
        approvals: None,
        binding: None,
        chat_key: None,
        replied_jobs: Vec::new(),
        next_steering_message: None,
        turn_id: &random_hex(5),
        sender: None,
        chat_prompt: PROMPT,
        attached: Vec::new(),
    };
    let ctx = client.ctx.beside_others();
    let (sender, receiver) = mpsc::channel::<String>();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| report_progress(client, progress, receiver));
        let observer = progress.is_some().then(|| {
            let observer = move |event: &Event<'_>| {
                if let Event::ToolCall(call) = event {
                    // Without a receiver there is no client to report to.
                    drop(sender.send(call_hint(&call.name, &call.arguments)));
                }
            };
            Box::new(observer) as EventObserver
        });
        agent_turn::run_chat_turn(&ctx, &options, chat, observer)
    });
    let ending = &outcome.ending;
    let error = ending.error.as_ref().map(|error| (exit_for(error), format!("{error:#}")));
    let mut content = Vec::new();
    content.extend((!ending.text.is_empty()).then(|| text_content(&ending.text)));
    content.extend(error.as_ref().map(|(_, cause)| text_content(&format!("error: {cause}"))));
    let result = json!({
        "content": content,
        "isError": error.is_some(),
        "_meta": {
            "nanobot/session": session,
            "nanobot/status": outcome.exit.name(),
            "nanobot/cost_usd": ending.stats.cost,
        },
    });
    // Later calls of the client may use the answer.
    let origin = resources::origin_of_session(client, &session).unwrap_or(Origin::External);
    client.setup.shared.provenance.raise(origin, "another conversation");
    Ok(ServedCall { value: result, turn: Some(AskedTurn { ctx, outcome }) })
}

/// Sends the steps of the turn as progress of the call, until the turn ends.
fn report_progress(
    client: &ServedClient<'_>,
    token: Option<&Value>,
    steps: mpsc::Receiver<String>,
) {
    let Some(token) = token else {
        return;
    };
    for (number, step) in steps.into_iter().enumerate() {
        let params = json!({ "progressToken": token, "progress": number + 1, "message": step });
        // A client that is gone is noticed by the reader.
        drop(client.connection.notify("notifications/progress", &params));
    }
}
