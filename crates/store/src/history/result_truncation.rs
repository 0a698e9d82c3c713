//! Shortens tool results: new ones to a limit, and old ones in requests to less. This costs nothing, and is the first
//! measure when a conversation grows too long. The log keeps old results whole.

use super::head_and_tail::head_and_tail;
use nanobot_base::message::{Message, MessagePart, ToolResult, plain_text};

/// Characters kept from the beginning and from the end of a result.
const HEAD_CHARS: usize = 1500;
const TAIL_CHARS: usize = 500;

/// Shortens `message` if it is a long tool result. True if it was shortened.
pub(crate) fn truncate_result(message: &mut Message) -> bool {
    let Message::Tool(result) = message else {
        return false;
    };
    let Some(short) = truncated_text(result) else {
        return false;
    };
    result.parts = vec![MessagePart::Text(short)];
    true
}

fn truncated_text(result: &ToolResult) -> Option<String> {
    // Fast path: bytes are never fewer than characters, and nearly all results end here.
    let bytes = |part: &MessagePart| match part {
        MessagePart::Text(text) => text.len(),
        _ => usize::MAX,
    };
    let total = result.parts.iter().map(bytes).fold(0, usize::saturating_add);
    if total <= HEAD_CHARS + TAIL_CHARS {
        return None;
    }
    let text = plain_text(&result.parts);
    let gap = |count: usize| format!("[… {count} characters omitted; request the part you need …]");
    // A result that was already shortened is longer than the limit by the line in its gap, and must stay unchanged.
    let omitted = text.chars().count().saturating_sub(HEAD_CHARS + TAIL_CHARS);
    if omitted <= gap(omitted).len() {
        return None;
    }
    head_and_tail(&text, HEAD_CHARS, TAIL_CHARS, gap)
}

/// Keeps the beginning and the end of a new result that is longer than `limit` characters.
pub(crate) fn limit_result(result: &mut ToolResult, limit: usize) {
    let is_text = |part: &MessagePart| matches!(part, MessagePart::Text(_));
    if !result.parts.iter().all(is_text) {
        return;
    }
    let gap = |count: usize| format!("[… {count} characters left out …]");
    let text = plain_text(&result.parts);
    if let Some(short) = head_and_tail(&text, limit - limit / 4, limit / 4, gap) {
        result.parts = vec![MessagePart::Text(short)];
    }
}

#[cfg(test)]
mod tests {
    use super::{limit_result, truncate_result};
    use nanobot_base::message::{Message, MessagePart, ResultSource, ToolResult, plain_text};

    fn check(text: &str, expect: &str) {
        let mut result = Message::Tool(ToolResult {
            call_id: "c".into(),
            name: "t".into(),
            parts: vec![MessagePart::Text(text.into())],
            failed: false,
            source: ResultSource::Unspecified,
        });
        assert_eq!(truncate_result(&mut result), text != expect);
        let twice = result.clone();
        assert!(!truncate_result(&mut result) && result == twice);
        let Message::Tool(short) = result else {
            panic!("a result stays one");
        };
        assert_eq!(plain_text(&short.parts), expect);
    }

    #[test]
    fn omits_the_middle_of_long_results() {
        let fits = "é".repeat(2000);
        check(&fits, &fits);
        let (head, tail) = ("é".repeat(1500), "z".repeat(500));
        let gap = "[… 300 characters omitted; request the part you need …]";
        check(&format!("{head}{}{tail}", "a".repeat(300)), &format!("{head}\n{gap}\n{tail}"));
        // Too little is left out to justify the mark.
        let nearly = format!("{head}abc{tail}");
        check(&nearly, &nearly);
    }

    #[test]
    fn long_results_retain_both_ends() {
        let check = |text: &str, limit: usize, expect: &str| {
            let parts = vec![MessagePart::Text(text.into())];
            let mut result = ToolResult {
                call_id: String::new(),
                name: String::new(),
                parts,
                failed: false,
                source: ResultSource::Unspecified,
            };
            limit_result(&mut result, limit);
            assert_eq!(plain_text(&result.parts), expect);
        };
        check("short", 8, "short");
        check("12345678", 8, "12345678");
        check("123456789", 8, "123456\n[… 1 characters left out …]\n89");
        check("éééééééééé", 4, "ééé\n[… 6 characters left out …]\né");
    }
}
