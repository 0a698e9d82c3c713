//! Tool call ids, converted to the form that each server requires. A call and its result always get the same id.

use super::quirks::Ids;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Assigns the ids of a conversation as they are sent, in the order of the calls. Servers that restart their numbering
/// with each reply produce duplicate ids, which other servers refuse; a duplicate is sent under a new id. That id is
/// the same in every later request, which keeps the prompt prefix stable.
pub(super) struct Names<'a> {
    form: Ids,
    used: HashSet<String>,
    /// Number of repetitions of each id so far.
    met: HashMap<&'a str, usize>,
    /// The id sent for the latest call with each original id.
    latest: HashMap<&'a str, String>,
}

impl<'a> Names<'a> {
    /// Starts a conversation without calls.
    pub(super) fn new(form: Ids) -> Self {
        Self {
            form,
            used: HashSet::new(),
            met: HashMap::new(),
            latest: HashMap::new(),
        }
    }

    /// The id to send for the next call, whose original id is `id`.
    pub(super) fn call(&mut self, id: &'a str) -> String {
        let met = self.met.entry(id).or_default();
        let mut fresh = id.to_owned();
        while !self.used.insert(fresh.clone()) {
            *met += 1;
            fresh = format!("{id}x{met}");
        }
        let name = fit(&fresh, self.form).into_owned();
        self.latest.insert(id, name.clone());
        name
    }

    /// The id to send for the result of the latest call with the original id `id`.
    pub(super) fn result(&self, id: &str) -> String {
        let known = self.latest.get(id).cloned();
        known.unwrap_or_else(|| fit(id, self.form).into_owned())
    }
}

/// Converts `id` to the form that the server accepts; unchanged if it has that form.
fn fit(id: &str, form: Ids) -> Cow<'_, str> {
    let is_usual = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let fits = match form {
        Ids::Usual => (1..=64).contains(&id.len()) && id.chars().all(is_usual),
        Ids::Nine => id.len() == 9 && id.chars().all(|letter| letter.is_ascii_alphanumeric()),
    };
    if fits {
        return Cow::Borrowed(id);
    }
    // A hash of the whole id keeps converted ids distinct.
    let number = number(id);
    Cow::Owned(match form {
        Ids::Nine => number,
        Ids::Usual => {
            let kept: String = id
                .chars()
                .filter(|letter| is_usual(*letter))
                .take(50)
                .collect();
            format!("{kept}_{number}")
        }
    })
}

/// A deterministic hash of a text as nine letters and digits (FNV-1a, in base 36).
fn number(text: &str) -> String {
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
    use super::{Ids, Names, fit};

    #[test]
    fn every_call_has_an_id_of_its_own() {
        for form in [Ids::Usual, Ids::Nine] {
            let mut names = Names::new(form);
            let mut sent = Vec::new();
            for id in ["call_0", "call_1", "call_0", "call_0", "call_0x2"] {
                let name = names.call(id);
                assert_eq!(names.result(id), name);
                assert!(!sent.contains(&name), "{name} in {sent:?}");
                sent.push(name);
            }
            assert_eq!(names.result("nobody's"), fit("nobody's", form));
        }
    }

    #[test]
    fn ids_take_the_form_that_is_asked_for() {
        assert_eq!(fit("call_1-a", Ids::Usual), "call_1-a");
        let long = "x".repeat(65);
        let cases = ["call|fc_1", "", "a b", "\u{e9}", &long];
        for id in cases {
            let fitted = fit(id, Ids::Usual);
            assert!(
                !fitted.is_empty() && fitted.len() <= 64 && fit(&fitted, Ids::Usual) == fitted,
                "{id}: {fitted}"
            );
        }
        assert_eq!(fit("abcDEF123", Ids::Nine), "abcDEF123");
        for id in ["call_0_1", "call_0_2", ""] {
            let fitted = fit(id, Ids::Nine);
            assert_eq!(fit(&fitted, Ids::Nine), fitted);
            assert_eq!(fitted.len(), 9);
        }
        assert_ne!(fit("call_0_1", Ids::Nine), fit("call_0_2", Ids::Nine));
    }
}
