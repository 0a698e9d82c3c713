//! The first remedy when a conversation does not fit the model, and a free one: long results of tools are shortened in
//! what is sent. The session keeps them whole.

use super::{Delta, Provider, ProviderError, Request, Tell};
use crate::message::{Message, Part, Reply, ToolResult, plain_text};
use std::sync::atomic::{AtomicBool, Ordering};

/// Characters of a result that are kept of its beginning, and of its end.
const HEAD: usize = 1500;
const TAIL: usize = 500;

/// Asks `inner`; and once more, with less, when it says that it was too much.
pub struct Shorten<P> {
    pub inner: P,
    /// It was too much once: from then on the same is left out, so that requests begin alike.
    pub tight: AtomicBool,
}

impl<P: Provider> Provider for Shorten<P> {
    fn reply(&self, request: &Request<'_>, tell: &mut Tell<'_>) -> Result<Reply, ProviderError> {
        if !self.tight.load(Ordering::Relaxed) {
            let answer = self.inner.reply(request, tell);
            if !matches!(answer, Err(ProviderError::TooLong(_)))
                || !request.messages.iter().any(is_long)
            {
                return answer;
            }
            self.tight.store(true, Ordering::Relaxed);
            let notice = "the conversation is too long for the model; long results of tools are sent shortened";
            tell(Delta::Notice(notice)).map_err(ProviderError::Aborted)?;
        }
        let messages: Vec<Message> = request.messages.iter().map(shortened).collect();
        let request = Request {
            messages: &messages,
            ..*request
        };
        self.inner.reply(&request, tell)
    }
}

fn is_long(message: &Message) -> bool {
    match message {
        Message::Tool(result) => plain_text(&result.parts).chars().nth(HEAD + TAIL).is_some(),
        _ => false,
    }
}

fn shortened(message: &Message) -> Message {
    match message {
        Message::Tool(result) if is_long(message) => {
            let text = plain_text(&result.parts);
            let letters = text.chars().count();
            let at = |letter: usize| {
                text.char_indices()
                    .nth(letter)
                    .map_or(text.len(), |(at, _)| at)
            };
            let (head, tail) = (&text[..at(HEAD)], &text[at(letters - TAIL)..]);
            let left_out = letters - HEAD - TAIL;
            let text = format!(
                "{head}\n[… {left_out} characters are left out here; ask again for the part that is needed …]\n{tail}"
            );
            Message::Tool(ToolResult {
                parts: vec![Part::Text(text)],
                ..result.clone()
            })
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::shortened;
    use crate::message::{Message, Part, ToolResult, plain_text};

    fn check(text: &str, expect: &str) {
        let result = Message::Tool(ToolResult {
            call: "c".into(),
            name: "t".into(),
            parts: vec![Part::Text(text.into())],
            failed: false,
        });
        let Message::Tool(short) = shortened(&result) else {
            panic!("a result stays one");
        };
        assert_eq!(plain_text(&short.parts), expect);
    }

    #[test]
    fn only_the_middle_of_long_results_goes() {
        let fits = "é".repeat(2000);
        check(&fits, &fits);
        let (head, tail) = ("é".repeat(1500), "z".repeat(500));
        let gap = "[… 3 characters are left out here; ask again for the part that is needed …]";
        check(
            &format!("{head}abc{tail}"),
            &format!("{head}\n{gap}\n{tail}"),
        );
    }
}
