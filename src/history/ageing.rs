//! Old results of tools, shortened in what is sent: free, and the first remedy when a conversation grows too long. The log
//! keeps them whole.

use super::ends::ends;
use crate::message::{Message, Part, ToolResult, plain_text};

/// Characters of a result that are kept of its beginning, and of its end.
const HEAD: usize = 1500;
const TAIL: usize = 500;

/// Shorten `message` where it is a long result; whether it was.
pub fn shorten(message: &mut Message) -> bool {
    let Message::Tool(result) = message else {
        return false;
    };
    let Some(short) = shortened(result) else {
        return false;
    };
    result.parts = vec![Part::Text(short)];
    true
}

fn shortened(result: &ToolResult) -> Option<String> {
    // What has no more bytes than that has no more letters; nearly all results end here.
    let bytes = |part: &Part| match part {
        Part::Text(text) => text.len(),
        _ => usize::MAX,
    };
    let sum = result
        .parts
        .iter()
        .map(bytes)
        .fold(0, usize::saturating_add);
    if sum <= HEAD + TAIL {
        return None;
    }
    let text = plain_text(&result.parts);
    let mark = |count: usize| {
        format!("[… {count} characters are left out here; ask again for the part that is needed …]")
    };
    // One that was shortened already must not lose its middle again.
    let left_out = text.chars().count().saturating_sub(HEAD + TAIL);
    ends(&text, HEAD, TAIL, mark).filter(|_| left_out > mark(left_out).len())
}

#[cfg(test)]
mod tests {
    use super::shorten;
    use crate::message::{Message, Part, ToolResult, plain_text};

    fn check(text: &str, expect: &str) {
        let mut result = Message::Tool(ToolResult {
            call: "c".into(),
            name: "t".into(),
            parts: vec![Part::Text(text.into())],
            failed: false,
        });
        assert_eq!(shorten(&mut result), text != expect);
        let twice = result.clone();
        assert!(!shorten(&mut result) && result == twice);
        let Message::Tool(short) = result else {
            panic!("a result stays one");
        };
        assert_eq!(plain_text(&short.parts), expect);
    }

    #[test]
    fn only_the_middle_of_long_results_goes() {
        let fits = "é".repeat(2000);
        check(&fits, &fits);
        let (head, tail) = ("é".repeat(1500), "z".repeat(500));
        let gap = "[… 300 characters are left out here; ask again for the part that is needed …]";
        check(
            &format!("{head}{}{tail}", "a".repeat(300)),
            &format!("{head}\n{gap}\n{tail}"),
        );
        // Not worth a mark of its own.
        let nearly = format!("{head}abc{tail}");
        check(&nearly, &nearly);
    }
}
