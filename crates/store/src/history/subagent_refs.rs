//! Finds the sub-agents of a conversation, and those that have not reported. The messages are the only record, so a
//! killed run leaves nothing else to clean up.

use nanobot_base::message::{Message, plain_text};

/// Name of the tool that starts sub-agents, and prefix of their names.
pub const SPAWN_TOOL: &str = "spawn";

/// The number of the started sub-agent, if `message` is a result of [`SPAWN_TOOL`] that reports a start.
fn started_number(message: &Message) -> Option<usize> {
    match message {
        Message::Tool(result) if result.name == SPAWN_TOOL && !result.failed => {
            let text = plain_text(&result.parts);
            let rest = text.strip_prefix("started as `")?.strip_prefix(SPAWN_TOOL)?;
            rest.split_once('`')?.0.parse().ok()
        }
        _ => None,
    }
}

/// Returns the numbers of sub-agents that no injected message has named since their start.
pub fn unreported(messages: &[Message]) -> Vec<usize> {
    let mut numbers = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        if let Some(number) = started_number(message)
            && !is_reported(number, &messages[index + 1..])
        {
            numbers.push(number);
        }
    }
    numbers
}

/// True if one of the injected messages in `later` names the sub-agent `number`.
fn is_reported(number: usize, later: &[Message]) -> bool {
    let name = format!("`{SPAWN_TOOL}{number}`");
    later.iter().any(|message| {
        matches!(message, Message::User(user)
            if user.injected && plain_text(&user.parts).contains(&name))
    })
}

/// The highest number of a sub-agent in this conversation; 0 if there is none.
pub fn last_number(messages: &[Message]) -> usize {
    messages.iter().filter_map(started_number).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{last_number, unreported};
    use nanobot_base::message::{Message, MessagePart, ResultSource, ToolResult, UserMessage};

    #[test]
    fn finds_subagents_without_a_report() {
        let check = |texts: &[&str], expect: &[usize], last: usize| {
            let message = |text: &&str| {
                let parts = vec![MessagePart::Text(text.trim_end_matches('!').into())];
                if text.starts_with("started") {
                    Message::Tool(ToolResult {
                        call_id: "c".into(),
                        name: "spawn".into(),
                        parts,
                        failed: text.ends_with('!'),
                        source: ResultSource::Unspecified,
                    })
                } else {
                    Message::User(UserMessage {
                        parts,
                        injected: text.starts_with('['),
                        ..UserMessage::default()
                    })
                }
            };
            let sent: Vec<Message> = texts.iter().map(message).collect();
            assert_eq!((unreported(&sent), last_number(&sent)), (expect.into(), last), "{texts:?}");
        };
        let (one, two) = ("started as `spawn1` (a)", "started as `spawn2`");
        check(&[], &[], 0);
        check(&["hi", one], &[1], 1);
        check(&[one, "[nanobot] Sub-agent `spawn1`"], &[], 1);
        check(&[one, two, "[nanobot] Sub-agent `spawn1`"], &[2], 2);
        check(&[one, two, "[nanobot] `spawn1`, `spawn2`"], &[], 2);
        check(&[one, "is `spawn1` there?"], &[1], 1);
        check(&["[old] `spawn1`", one], &[1], 1);
        check(&["started as `spawn1`!"], &[], 0);
        check(&["started as `spawnx`"], &[], 0);
        check(&["started as `spawn12`", "[nanobot] `spawn1`"], &[12], 12);
    }
}
