//! Buttons below a message of Slack, and the payload of a press (Slack, "`block_actions` payload"). No I/O.

use super::message::position_of;
use crate::press::{BUTTONS, with_payload};
use crate::{Chat, InboundMessage, Sender};
use serde_json::{Value, json};

/// The blocks of a text, with the buttons of a question below it.
pub(super) fn to_blocks(markdown: &str, question: Option<&str>) -> Value {
    let text_block = json!({ "type": "markdown", "text": markdown });
    let Some(question) = question else {
        return json!([text_block]);
    };
    let buttons = BUTTONS.iter().map(|button| {
        json!({
            "type": "button", "action_id": button.answer, "value": button.payload(question),
            "text": { "type": "plain_text", "text": button.label },
        })
    });
    json!([text_block, { "type": "actions", "elements": buttons.collect::<Vec<_>>() }])
}

/// Converts the payload of a press; `None` for another payload.
pub(super) fn to_press(payload: &Value) -> Option<InboundMessage> {
    let (action, container) = (&payload["actions"][0], &payload["container"]);
    if payload["type"] != "block_actions" {
        return None;
    }
    let user = payload["user"]["id"].as_str()?;
    let channel = container["channel_id"].as_str()?;
    let question_message = container["message_ts"].as_str()?;
    let stamp = action["action_ts"].as_str()?;
    let sent_at = position_of(&action["action_ts"]) / 1_000_000;
    let message = InboundMessage {
        id: format!("press:{channel}:{user}:{stamp}"),
        chat: Chat::new(channel, None, false),
        from: Sender::new(user, None, false),
        sent_at: i64::try_from(sent_at).unwrap_or_default(),
        reply_facts: json!({ "ts": question_message }),
        ..InboundMessage::default()
    };
    with_payload(message, action["value"].as_str()?, question_message)
}
