//! Characters that a server cuts into UTF-16 halves: the first half ends a text in one event, and the second half begins
//! the same text in a later event. Each half is an escape that is not a character by itself.

use nanobot_base::message::lenient_json;
use serde_json::Value;
use std::borrow::Cow;

/// Parses the events of a stream, and joins the halves of characters.
#[derive(Default)]
pub(super) struct SurrogateJoiner {
    /// The texts that end with the first half of a character: their paths in the event, and the halves.
    pending: Vec<(String, u16)>,
}

/// While an event is read, the half `unit` is the character `MARKS + unit`, which is for private use.
const MARKS: u32 = 0x10_0000;

impl SurrogateJoiner {
    /// True if a character awaits its second half.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Parses `event` like [`lenient_json::parse`]. The first half of a character is taken from the end of its text, and
    /// the character is put before the text that begins with the second half.
    pub(super) fn parse(&mut self, event: &str) -> Option<Value> {
        if let Ok(value) = serde_json::from_str(event)
            && self.pending.is_empty()
        {
            return Some(value);
        }
        let mark = |unit: u16| match char::from_u32(MARKS + u32::from(unit)) {
            Some(mark) => Cow::Owned(mark.to_string()),
            None => Cow::Borrowed("\u{fffd}"),
        };
        let marked = lenient_json::replace_lone_surrogates(event, mark);
        let mut value = lenient_json::parse(&marked)?;
        self.join_in(&mut value, &mut String::new());
        Some(value)
    }

    /// Joins the halves in all texts of `value`, which is at `path` in the event.
    fn join_in(&mut self, value: &mut Value, path: &mut String) {
        let length = path.len();
        match value {
            Value::String(text) => self.join(text, path),
            Value::Array(items) => {
                for (number, item) in items.iter_mut().enumerate() {
                    // An item with an index has the same one in each event, at any place of the list.
                    if item.get("index").is_none() {
                        path.push_str(&format!("/{number}"));
                    }
                    self.join_in(item, path);
                    path.truncate(length);
                }
            }
            Value::Object(fields) => {
                // The indices of an event that say what its texts belong to: a call, a content block, an item.
                let is_event = path.is_empty();
                for name in ["index", "output_index", "item_id", "type"] {
                    if let Some(id) = fields.get(name)
                        && (is_event || name != "type")
                    {
                        path.push_str(&format!("/{name}={id}"));
                    }
                }
                let own_length = path.len();
                for (name, field) in fields {
                    path.push('/');
                    path.push_str(name);
                    self.join_in(field, path);
                    path.truncate(own_length);
                }
                path.truncate(length);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn join(&mut self, text: &mut String, path: &str) {
        if text.is_empty() {
            return;
        }
        let mut units = Vec::new();
        if let Some(at) = self.pending.iter().position(|(other, _)| other == path) {
            units.push(self.pending.swap_remove(at).1);
        }
        for letter in text.chars() {
            match half_of(letter) {
                Some(half) => units.push(half),
                None => units.extend(letter.encode_utf16(&mut [0; 2]).iter().copied()),
            }
        }
        if let Some(half @ 0xd800..=0xdbff) = units.last().copied() {
            units.pop();
            self.pending.push((path.to_owned(), half));
        }
        *text = String::from_utf16_lossy(&units);
    }
}

/// The half that `letter` encodes, if it is a mark.
fn half_of(letter: char) -> Option<u16> {
    let unit = u32::from(letter).checked_sub(MARKS)?;
    u16::try_from(unit).ok().filter(|unit| (0xd800..=0xdfff).contains(unit))
}

#[cfg(test)]
mod tests {
    use super::SurrogateJoiner;

    /// Checks the texts at `pointer` in `events`.
    #[track_caller]
    fn check(pointer: &str, events: &[&str], expect: &[&str]) {
        let mut joiner = SurrogateJoiner::default();
        let texts: Vec<String> = events
            .iter()
            .map(|event| {
                let event = joiner.parse(event).unwrap();
                event.pointer(pointer).unwrap().as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(texts, expect);
    }

    #[test]
    fn halves_of_the_same_text_are_joined() {
        check("/a", &[r#"{"a": "x\ud83d"}"#, r#"{"a": "\ude00y"}"#], &["x", "\u{1f600}y"]);
        check(
            "/a",
            &[r#"{"a": "\uD83D"}"#, r#"{"a": ""}"#, r#"{"a": "\uDE00"}"#],
            &["", "", "\u{1f600}"],
        );
        check("/a", &[r#"{"a": "\ud83d"}"#, r#"{"a": "y"}"#], &["", "\u{fffd}y"]);
        check(
            "/a",
            &[r#"{"a": "\ude00\ud83d\ud83d"}"#, r#"{"a": "\ude00"}"#],
            &["\u{fffd}\u{fffd}", "\u{1f600}"],
        );
        check(
            "/a",
            &[r#"{"a": "\ud83d\ude00"}"#, r#"{"a": "\\ud83d"}"#],
            &["\u{1f600}", "\\ud83d"],
        );
    }

    #[test]
    fn halves_of_other_texts_are_not() {
        let calls = |index: u32, text: &str| {
            format!(r#"{{"calls": [{{"index": {index}, "a": "{text}"}}]}}"#)
        };
        let events = [calls(0, "\\ud83d"), calls(1, "x"), calls(1, "\\ude00"), calls(0, "\\ude00")];
        let events = events.each_ref().map(String::as_str);
        check("/calls/0/a", &events, &["", "x", "\u{fffd}", "\u{1f600}"]);
        let delta = |kind: &str, item: &str, text: &str| {
            format!(r#"{{"type": "{kind}", "item_id": "{item}", "delta": "{text}"}}"#)
        };
        let events = [
            delta("a", "1", "\\ud83d"),
            delta("b", "1", "\\ude00"),
            delta("a", "2", "\\ude00"),
            delta("a", "1", "\\ude00"),
        ];
        let events = events.each_ref().map(String::as_str);
        check("/delta", &events, &["", "\u{fffd}", "\u{fffd}", "\u{1f600}"]);
    }
}
