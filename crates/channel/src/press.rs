//! Presses of the buttons below a question about a call, and reactions to it.
//!
//! A press is an inbound message: a reply to the question's message with `yes` or `no`, by the person who pressed. A button only names its
//! question. A copy of it gives nothing: the sender of a press, the chat and the message are those that the service states.

use super::{InboundMessage, Press, QuotedText};
use nanobot_base::message::user_text::UserText;

/// A button, and the reaction that stands for it.
#[derive(Debug)]
pub(crate) struct Button {
    pub(crate) label: &'static str,
    /// The text of the message that a press makes.
    pub(crate) answer: &'static str,
    pub(crate) reaction: &'static str,
}

/// The buttons of a question, in their order.
pub(crate) const BUTTONS: [Button; 2] = [
    Button { label: "Yes", answer: "yes", reaction: "✅" },
    Button { label: "No", answer: "no", reaction: "❌" },
];

impl Button {
    /// The text that a service gives back with a press. Telegram allows 64 bytes.
    pub(crate) fn payload(&self, question: &str) -> String {
        format!("{}.{question}", self.answer)
    }
}

/// Completes `message`, which has all but its text, to the press of the button with this payload below the message `question_message`.
pub(crate) fn with_payload(
    message: InboundMessage,
    payload: &str,
    question_message: &str,
) -> Option<InboundMessage> {
    let (answer, question) = payload.split_once('.')?;
    let button = BUTTONS.iter().find(|button| button.answer == answer)?;
    Some(with_press(message, button, question_message, Some(question)))
}

/// Completes `message`, as [`with_payload`] does, to a reaction to the message `question_message`; `None` for one that is no answer.
pub(crate) fn with_reaction(
    message: InboundMessage,
    reaction: &str,
    question_message: &str,
) -> Option<InboundMessage> {
    // Some clients ask for the colored form of the character.
    let reaction = reaction.trim_end_matches('\u{fe0f}');
    let button = BUTTONS.iter().find(|button| button.reaction == reaction)?;
    Some(with_press(message, button, question_message, None))
}

fn with_press(
    message: InboundMessage,
    button: &Button,
    question_message: &str,
    question: Option<&str>,
) -> InboundMessage {
    let is_ours = true;
    InboundMessage {
        text: UserText::typed(button.answer),
        quotes: vec![QuotedText::replied("", 0, Some(question_message), is_ours)],
        // It addresses us, also where messages of a group must mention us.
        mentions_us: true,
        press: Some(Press { question: question.map(str::to_owned) }),
        ..message
    }
}

#[cfg(test)]
mod tests {
    use super::{BUTTONS, with_payload, with_reaction};
    use crate::InboundMessage;

    #[test]
    fn only_buttons_and_their_reactions_are_answers() {
        let describe = |message: Option<InboundMessage>| {
            message.map_or(String::new(), |message| {
                let replied_id = message.quotes[0].replied.as_ref().unwrap().id.as_ref().unwrap();
                let question = message.press.unwrap().question.unwrap_or_default();
                format!("{} to {replied_id} {question}", message.text.as_str())
            })
        };
        let payload =
            |payload: &str| describe(with_payload(InboundMessage::default(), payload, "5"));
        let reaction =
            |reaction: &str| describe(with_reaction(InboundMessage::default(), reaction, "5"));
        assert_eq!(payload(&BUTTONS[0].payload("q7")), "yes to 5 q7");
        assert_eq!(payload(&BUTTONS[1].payload("q7")), "no to 5 q7");
        for other in ["", "yes", "always.q7", "Yes.q7", ".q7"] {
            assert_eq!(payload(other), "");
        }
        assert_eq!(reaction("✅"), "yes to 5 ");
        assert_eq!(reaction("❌\u{fe0f}"), "no to 5 ");
        for other in ["", "👍", "✅✅", "yes"] {
            assert_eq!(reaction(other), "");
        }
    }
}
