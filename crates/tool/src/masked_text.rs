//! Text that a model writes over a file whose keys it has seen as `***`. A key is put back where it is clear which key the mask replaces;
//! otherwise the call is refused.

use nanobot_os::secret::{self, REDACTED, redact_all_spellings};
use std::borrow::Cow;

/// The refusal of a text in which a mask replaces a key of the file.
const UNCLEAR: &str = "nothing was written: `***` stands for a hidden key, and it is not clear which one belongs there; keep the \
     lines with `***` as they are, and change those around them with edit_file";
/// The refusal of a text in which a mask replaces a key of the conversation.
const NOT_IN_FILE: &str = "nothing was written: `***` stands for a key that is hidden from you, and the file does not contain it; \
     write a reference such as `${VARIABLE}`, or ask the user to enter the key or to repeat the request with --send-keys";

/// Edits `old` with `edit`. It is called with the unchanged text first, and if that fails, with the masked text that the model has seen.
/// Masks in the result are replaced by the keys of `old`.
///
/// # Errors
/// The error of `edit`, or a text for the model that says why a mask cannot be replaced.
pub(crate) fn edit_masked(
    old: &str,
    edit: impl Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let new = edit(old).or_else(|error| match redact_all_spellings(old) {
        Cow::Owned(masked) => edit(&masked).map_err(|_| error),
        Cow::Borrowed(_) => Err(error),
    })?;
    Ok(restore_keys(old, &new)?.into_owned())
}

/// `new`, written over `old`, with the keys of `old` in place of the masks. `old` is empty for a new file.
///
/// # Errors
/// It is not clear which key a mask replaces. The error is a text for the model.
pub fn restore_keys<'t>(old: &str, new: &'t str) -> Result<Cow<'t, str>, String> {
    if !new.contains(REDACTED) {
        return Ok(Cow::Borrowed(new));
    }
    let masked = redact_all_spellings(old);
    let lines: Vec<OldLine<'_>> = masked
        .split('\n')
        .zip(old.split('\n'))
        .map(|(masked, raw)| OldLine { masked, raw })
        .collect();
    let is_line_wise = masked.split('\n').count() == old.split('\n').count();
    if !is_line_wise && secret::is_redacted_copy(old, new) {
        return Err(UNCLEAR.into());
    }
    let new_lines: Vec<&str> = new.split('\n').collect();
    let old_text = OldText { lines: if is_line_wise { &lines } else { &[] } };
    let (start, end) = old_text.unchanged_ends(&new_lines);
    // The first line after a change may follow another heading than before.
    let is_at_change = |from_end: usize, line: &str| from_end == end && line.contains(REDACTED);
    let mut restored: Vec<Cow<'_, str>> = Vec::with_capacity(new_lines.len());
    let mut has_unknown_mask = false;
    for (index, line) in new_lines.iter().enumerate() {
        let from_end = new_lines.len() - index;
        restored.push(if index < start {
            Cow::Borrowed(old_text.lines[index].raw)
        } else if from_end <= end && !is_at_change(from_end, line) {
            Cow::Borrowed(old_text.lines[old_text.lines.len() - from_end].raw)
        } else if line.contains(REDACTED) {
            let above = index.checked_sub(1).map_or("", |above| new_lines[above]);
            match old_text.original(line, above) {
                Original::Line(line) => Cow::Owned(line),
                Original::Ambiguous => return Err(UNCLEAR.into()),
                Original::Unknown => {
                    if secret::has_masked_request() && is_mask_of_key(line) {
                        return Err(NOT_IN_FILE.into());
                    }
                    has_unknown_mask = true;
                    Cow::Borrowed(*line)
                }
            }
        } else {
            Cow::Borrowed(*line)
        });
    }
    let text = restored.join("\n");
    let is_lost = |line: &OldLine<'_>| line.has_key() && !text.contains(line.raw.trim());
    if has_unknown_mask && old_text.lines.iter().any(is_lost) {
        return Err(UNCLEAR.into());
    }
    Ok(if text == new { Cow::Borrowed(new) } else { Cow::Owned(text) })
}

/// A file before the change.
struct OldText<'a> {
    lines: &'a [OldLine<'a>],
}

/// A line of the file, masked as the model has seen it, and as it is.
struct OldLine<'a> {
    masked: &'a str,
    raw: &'a str,
}

/// The original of a line with a mask, in the old text.
enum Original {
    /// The line with its key.
    Line(String),
    /// Several keys are possible.
    Ambiguous,
    /// No key of the file.
    Unknown,
}

impl OldText<'_> {
    /// The numbers of unchanged lines at the start and at the end.
    fn unchanged_ends(&self, new: &[&str]) -> (usize, usize) {
        let is_same = |(old, new): &(&OldLine<'_>, &&str)| **new == old.masked || **new == old.raw;
        let start = self.lines.iter().zip(new).take_while(is_same).count();
        let (old_rest, new_rest) = (&self.lines[start..], &new[start..]);
        let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(is_same).count();
        (start, end)
    }

    /// The original of the new line `line`, which follows the line `above`.
    fn original(&self, line: &str, above: &str) -> Original {
        let trimmed = line.trim();
        let is_same = |index: &usize| self.lines[*index].masked.trim() == trimmed;
        let indexes: Vec<usize> = (0..self.lines.len()).filter(is_same).collect();
        let follows = |index: &usize| {
            let previous = index.checked_sub(1).map(|index| &self.lines[index]);
            previous.is_some_and(|previous| {
                previous.masked.trim() == above.trim() || previous.raw.trim() == above.trim()
            })
        };
        let unique = self.unique_line(&indexes).or_else(|| {
            self.unique_line(&indexes.iter().copied().filter(follows).collect::<Vec<_>>())
        });
        match unique {
            Some(raw) => return Original::Line(line.replacen(trimmed, raw.trim(), 1)),
            None if !indexes.is_empty() => return Original::Ambiguous,
            None => {}
        }
        // The line was changed around its key. It is treated as the same line if the letters before the key are the same.
        let Some(new_parts) = LineAroundMask::new(trimmed) else {
            return Original::Unknown;
        };
        let mut keys: Vec<&str> = Vec::new();
        for old_line in self.lines.iter().filter(|line| line.has_key()) {
            if let Some(old_parts) = LineAroundMask::new(old_line.masked)
                && old_parts.label() == new_parts.label()
                && !old_parts.label().is_empty()
                && let Some(key) = old_line.raw.strip_prefix(old_parts.before)
                && let Some(key) = key.strip_suffix(old_parts.after)
                && !keys.contains(&key)
            {
                keys.push(key);
            }
        }
        match keys[..] {
            [] => Original::Unknown,
            [key] => Original::Line(line.replacen(REDACTED, key, 1)),
            _ => Original::Ambiguous,
        }
    }

    /// The line at all of `indexes`, if it is the same there.
    fn unique_line(&self, indexes: &[usize]) -> Option<&str> {
        let (first, others) = indexes.split_first()?;
        let raw = self.lines[*first].raw.trim();
        others.iter().all(|index| self.lines[*index].raw.trim() == raw).then_some(raw)
    }
}

impl OldLine<'_> {
    fn has_key(&self) -> bool {
        self.masked != self.raw
    }
}

/// A line with one mask: the text before and after it.
struct LineAroundMask<'a> {
    before: &'a str,
    after: &'a str,
}

impl<'a> LineAroundMask<'a> {
    fn new(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(REDACTED)?;
        (!after.contains(REDACTED)).then_some(Self { before, after })
    }

    /// The letters and digits before the mask.
    fn label(&self) -> String {
        self.before.chars().filter(|character| character.is_alphanumeric()).collect()
    }
}

/// True if `***` in `line` can be a mask: it is neither a rule nor emphasis in Markdown.
fn is_mask_of_key(line: &str) -> bool {
    let touches = |character: Option<char>| {
        character.is_some_and(|character| character.is_alphanumeric() || character == '*')
    };
    line.trim() != REDACTED
        && line.match_indices(REDACTED).any(|(start, mask)| {
            !touches(line[..start].chars().next_back())
                && !touches(line[start + mask.len()..].chars().next())
        })
}

#[cfg(test)]
mod tests {
    use super::{edit_masked, is_mask_of_key, restore_keys};

    /// A token that is masked as `ghp_***`.
    fn token(letter: char) -> String {
        format!("ghp_{}", letter.to_string().repeat(9) + &"a1B2".repeat(7))
    }

    #[test]
    fn keys_are_put_back_where_it_is_clear_which() {
        let (one, two) = (token('x'), token('y'));
        let fill = |text: &str| text.replace("{1}", &one).replace("{2}", &two);
        let check = |old: &str, new: &str, expect: Option<&str>| {
            let actual = restore_keys(&fill(old), new).ok().map(std::borrow::Cow::into_owned);
            assert_eq!(actual, expect.map(fill), "{old:?} {new:?}");
        };
        // The same line, whatever happens around it.
        check("a: 1\nkey: {1}\n", "a: 2\nkey: ghp_***\n", Some("a: 2\nkey: {1}\n"));
        check("key: {1}", "b: 1\n  key: ghp_***\nc: 1", Some("b: 1\n  key: {1}\nc: 1"));
        // Two keys in equal lines, told apart by the line above.
        let two_keys = "[a]\npw={1}\n[b]\npw={2}\n";
        check(
            two_keys,
            "[a]\npw=ghp_***\nx\n[b]\npw=ghp_***\n",
            Some("[a]\npw={1}\nx\n[b]\npw={2}\n"),
        );
        check(two_keys, "[b]\npw=ghp_***\n[a]\npw=ghp_***\n", Some("[b]\npw={2}\n[a]\npw={1}\n"));
        check(two_keys, "[c]\npw=ghp_***\n[d]\n", None);
        check(two_keys, "[c]\npw=ghp_***\n", None);
        check("- {1}\n- {2}\nx", "x\n- ghp_***\ny", None);
        // The line around the key was changed.
        check("token = {1}\n", "token: \"ghp_***\"\n", Some("token: \"{1}\"\n"));
        check("token = {1}\n", "other = ghp_***\n", None);
        check("token = {1}\n", "no key any more, ***really***\n", None);
        // Stars that the file has, and stars beside a key that stays.
        check(
            "# *** stars ***\nk={1}\n",
            "# *** stars ***\nx\nk=ghp_***\n",
            Some("# *** stars ***\nx\nk={1}\n"),
        );
        check("k={1}\n", "k=ghp_***\n***bold***\n", Some("k={1}\n***bold***\n"));
        check("no key", "***bold***", Some("***bold***"));
        check("k={1}", "k=\n", Some("k=\n"));
        // A literal mask and a masked key in equal lines.
        check("[a]\nk=ghp_***\n[b]\nk={1}\n", "k=ghp_***\n", None);
    }

    #[test]
    fn an_edit_finds_the_text_as_the_model_has_seen_it() {
        let old = format!("a\nkey = {}\nb\n", token('x'));
        let replace = |from: &'static str, to: &'static str| {
            move |text: &str| {
                if text.contains(from) {
                    Ok(text.replacen(from, to, 1))
                } else {
                    Err("it is not there".to_owned())
                }
            }
        };
        let edited = edit_masked(&old, replace("a\nkey = ghp_***\n", "c\nkey = ghp_***\n"));
        assert_eq!(edited, Ok(old.replace("a\nk", "c\nk")));
        assert_eq!(edit_masked(&old, replace("b\n", "c\n")), Ok(old.replace("b\n", "c\n")));
        assert!(edit_masked(&old, replace("zzz", "")).is_err_and(|it| it == "it is not there"));
    }

    #[test]
    fn stars_that_can_be_a_mask() {
        let check = |line: &str, expect: bool| assert_eq!(is_mask_of_key(line), expect, "{line}");
        check("KEY=***", true);
        check("\"a\": \"***\",", true);
        check("http://u:***@h", true);
        check("***", false);
        check("***bold***", false);
        check("*****", false);
    }
}
