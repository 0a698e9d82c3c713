//! Tool call ids, converted to the form that each server requires. A call and its result always get the same id.

use super::quirks::ToolCallIdFormat;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Assigns the ids of a conversation as they are sent, in the order of the calls. Servers that restart their numbering
/// with each reply produce duplicate ids, which other servers refuse; a duplicate is sent under a new id. That id is
/// the same in every later request, which keeps the prompt prefix stable.
pub(super) struct ToolCallIds<'a> {
    format: ToolCallIdFormat,
    used: HashSet<Cow<'a, str>>,
    sent: HashMap<&'a str, SentId<'a>>,
}

/// The id sent for calls that share an original id.
#[derive(Default)]
struct SentId<'a> {
    repetitions: usize,
    /// The id sent for the latest call.
    latest: Cow<'a, str>,
}

impl<'a> ToolCallIds<'a> {
    /// Starts a conversation without calls.
    pub(super) fn new(format: ToolCallIdFormat) -> Self {
        Self { format, used: HashSet::new(), sent: HashMap::new() }
    }

    /// The id to send for the next call, whose original id is `id`.
    pub(super) fn assign(&mut self, id: &'a str) -> Cow<'a, str> {
        let sent = self.sent.entry(id).or_default();
        let mut unique_id = Cow::Borrowed(id);
        while !self.used.insert(unique_id.clone()) {
            sent.repetitions += 1;
            unique_id = Cow::Owned(format!("{id}x{}", sent.repetitions));
        }
        sent.latest = match unique_id {
            Cow::Borrowed(id) => convert_id(id, self.format),
            Cow::Owned(id) => Cow::Owned(convert_id(&id, self.format).into_owned()),
        };
        sent.latest.clone()
    }

    /// The id to send for the result of the latest call with the original id `id`.
    pub(super) fn for_result(&self, id: &'a str) -> Cow<'a, str> {
        match self.sent.get(id) {
            Some(sent) => sent.latest.clone(),
            None => convert_id(id, self.format),
        }
    }
}

/// Converts `id` to the form that the server accepts; unchanged if it has that form.
fn convert_id(id: &str, format: ToolCallIdFormat) -> Cow<'_, str> {
    let is_accepted = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let fits = match format {
        ToolCallIdFormat::Standard => (1..=64).contains(&id.len()) && id.chars().all(is_accepted),
        ToolCallIdFormat::NineAlphanumerics => {
            id.len() == 9 && id.chars().all(|letter| letter.is_ascii_alphanumeric())
        }
    };
    if fits {
        return Cow::Borrowed(id);
    }
    // A hash of the whole id keeps converted ids distinct.
    let number = hash_id(id);
    Cow::Owned(match format {
        ToolCallIdFormat::NineAlphanumerics => number,
        ToolCallIdFormat::Standard => {
            let prefix: String =
                id.chars().filter(|letter| is_accepted(*letter)).take(50).collect();
            format!("{prefix}_{number}")
        }
    })
}

/// A deterministic hash of a text as nine letters and digits (FNV-1a, in base 36).
fn hash_id(text: &str) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (0..9)
        .map(|_| {
            let digit = u32::try_from(hash % 36).unwrap_or_default();
            hash /= 36;
            char::from_digit(digit, 36).unwrap_or('0')
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{ToolCallIdFormat, ToolCallIds, convert_id};

    #[test]
    fn ids_are_unique() {
        for form in [ToolCallIdFormat::Standard, ToolCallIdFormat::NineAlphanumerics] {
            let mut names = ToolCallIds::new(form);
            let mut sent = Vec::new();
            for id in ["call_0", "call_1", "call_0", "call_0", "call_0x2"] {
                let name = names.assign(id);
                assert_eq!(names.for_result(id), name);
                assert!(!sent.contains(&name), "{name} in {sent:?}");
                sent.push(name);
            }
            assert_eq!(names.for_result("nobody's"), convert_id("nobody's", form));
        }
    }

    #[test]
    fn ids_are_converted_to_the_required_form() {
        assert_eq!(convert_id("call_1-a", ToolCallIdFormat::Standard), "call_1-a");
        let long = "x".repeat(65);
        let cases = ["call|fc_1", "", "a b", "\u{e9}", &long];
        for id in cases {
            let fitted = convert_id(id, ToolCallIdFormat::Standard);
            assert!(
                !fitted.is_empty()
                    && fitted.len() <= 64
                    && convert_id(&fitted, ToolCallIdFormat::Standard) == fitted,
                "{id}: {fitted}"
            );
        }
        assert_eq!(convert_id("abcDEF123", ToolCallIdFormat::NineAlphanumerics), "abcDEF123");
        for id in ["call_0_1", "call_0_2", ""] {
            let fitted = convert_id(id, ToolCallIdFormat::NineAlphanumerics);
            assert_eq!(convert_id(&fitted, ToolCallIdFormat::NineAlphanumerics), fitted);
            assert_eq!(fitted.len(), 9);
        }
        assert_ne!(
            convert_id("call_0_1", ToolCallIdFormat::NineAlphanumerics),
            convert_id("call_0_2", ToolCallIdFormat::NineAlphanumerics)
        );
    }
}
