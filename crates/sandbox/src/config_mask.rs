//! Hides credentials in a git config that commands see: the user part of addresses, and headers and keys whose values are
//! secret. A masked line that a command did not change gets its secret back. A downloaded repository may have any number of such lines, so
//! the time is linear in their number.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The word in place of a secret.
const MASK: &str = "***";
/// The ends of keys whose values are secret.
const SECRET_KEYS: [&str; 8] =
    ["extraheader", "pass", "password", "passwd", "token", "secret", "apikey", "api_key"];

/// A config without its credentials.
#[derive(Debug, Default)]
pub(super) struct MaskedConfig {
    pub(super) text: Vec<u8>,
    /// The original of each masked line, by the line without the secret and without blanks at both ends.
    originals: HashMap<String, String>,
}

impl MaskedConfig {
    /// Masks the credentials in `config`.
    pub(super) fn new(config: &[u8]) -> Self {
        let mut masked = Self { text: config.to_vec(), originals: HashMap::new() };
        let text = to_text(config);
        let mut counts = HashMap::new();
        let lines: Vec<String> =
            logical_lines(&text).map(|line| masked.mask_line(line, &mut counts)).collect();
        if masked.has_secrets() {
            masked.text = to_bytes(&lines.join("\n"));
        }
        masked
    }

    /// True if a credential was masked.
    pub(super) fn has_secrets(&self) -> bool {
        !self.originals.is_empty()
    }

    /// Puts the secrets back into the lines of `text` that a command did not change.
    pub(super) fn restore(&self, text: &[u8]) -> Vec<u8> {
        let text = to_text(text);
        let lines = text
            .split('\n')
            .map(|line| self.originals.get(line.trim()).map_or(line, String::as_str));
        to_bytes(&lines.collect::<Vec<_>>().join("\n"))
    }

    /// Masks the credentials in `line`. `counts` has the number of earlier lines that looked like it.
    fn mask_line(&mut self, line: &str, counts: &mut HashMap<String, usize>) -> String {
        let plain = line.replace("\\\n", "");
        let masked =
            mask_secret_key(&plain).unwrap_or_else(|| mask_assignments(&mask_addresses(&plain)));
        if masked == plain {
            return line.to_owned();
        }
        // Lines must differ, so that each gets its own secret back.
        let count = counts.entry(masked.trim().to_owned()).or_default();
        loop {
            *count += 1;
            let number = if *count > 1 { count.to_string() } else { String::new() };
            let unique = masked.replace(MASK, &format!("{MASK}{number}"));
            if let Entry::Vacant(entry) = self.originals.entry(unique.trim().to_owned()) {
                entry.insert(line.to_owned());
                return unique;
            }
        }
    }
}

/// Decodes the bytes as Latin-1. This preserves every byte, whatever the encoding, which git does not interpret either.
fn to_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The opposite of [`to_text`].
fn to_bytes(text: &str) -> Vec<u8> {
    text.chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect()
}

/// The lines of a config, each with those that continue it: a backslash at its end that no other one escapes.
fn logical_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let line = rest?;
        let mut ends = line.match_indices('\n').map(|(at, _)| at);
        let end = ends.find(|at| {
            let backslashes = line[..*at].bytes().rev().take_while(|byte| *byte == b'\\');
            backslashes.count().is_multiple_of(2)
        });
        rest = end.map(|at| &line[at + 1..]);
        Some(end.map_or(line, |at| &line[..at]))
    })
}

/// The line with its value masked, if its key says that the value is secret. The name of a header stays.
fn mask_secret_key(line: &str) -> Option<String> {
    let (start, value) = line.split_once('=')?;
    let key = start.rsplit([']', ' ', '\t']).find(|word| !word.is_empty())?;
    if !is_secret_key(key) || value.trim().trim_matches('"').is_empty() {
        return None;
    }
    let mut header = String::new();
    if key.eq_ignore_ascii_case("extraheader")
        && let Some((name, _)) = value.split_once(':')
    {
        header = format!("{}: ", name.trim().trim_matches('"'));
    }
    Some(format!("{start}= {header}{MASK}"))
}

fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_KEYS.iter().any(|end| key.ends_with(end))
}

/// The line with the values masked that it assigns to secret keys, such as in the query of an address or in a helper. The name of a
/// variable is not a secret.
fn mask_assignments(line: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let mut masked = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('=') {
        masked.push_str(before);
        masked.push('=');
        rest = after;
        let key = before.rsplit(|letter| !is_part(letter)).next().unwrap_or_default();
        let end = after
            .find(|letter: char| letter.is_ascii_whitespace() || "&;|'\"\\)}".contains(letter));
        let value = &after[..end.unwrap_or(after.len())];
        if is_secret_key(key) && !value.is_empty() && !value.starts_with('$') {
            masked.push_str(MASK);
            rest = &after[value.len()..];
        }
    }
    masked + rest
}

/// The line with the user parts of its addresses masked. The user name of an ssh login is not a secret.
fn mask_addresses(line: &str) -> String {
    let mut masked = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + "://".len());
        masked.push_str(before);
        let end = after
            .find(|letter: char| letter == '/' || letter == '"' || letter.is_ascii_whitespace());
        let host = &after[..end.unwrap_or(after.len())];
        rest = after;
        if let Some((user, _)) = host.rsplit_once('@') {
            let is_name = before.ends_with("ssh://") && !user.contains(':');
            masked.push_str(if is_name { user } else { MASK });
            rest = &after[user.len()..];
        }
    }
    masked + rest
}

#[cfg(test)]
mod tests {
    use super::MaskedConfig;

    #[test]
    fn credentials_are_masked_and_put_back() {
        let config = "[remote \"o\"]\n\turl = https://u:p@h.org/x.git\n\tpushurl = ssh://git@h.org/x\n[remote \"p\"]\n\
                      \turl = https://tok@h.org/x.git\n[http \"https://h.org/\"]\n\textraheader = \"AUTHORIZATION: basic \\\nabc\"\n\
                      [url \"https://t2@h.org/\"]\n\tinsteadOf = h:\n[sendemail] smtpPass = pw\n[bugzilla] apiKey=pw\n\
                      [remote \"q\"]\n\turl = https://h.org/x?a=b&access_token=t3&c\n[credential]\n\
                      \thelper = \"!f() { echo password=t4; echo password=$P; }; f\"\n[user]\n\tname = a\n";
        let shown = "[remote \"o\"]\n\turl = https://***@h.org/x.git\n\tpushurl = ssh://git@h.org/x\n[remote \"p\"]\n\
                     \turl = https://***2@h.org/x.git\n[http \"https://h.org/\"]\n\textraheader = AUTHORIZATION: ***\n\
                     [url \"https://***@h.org/\"]\n\tinsteadOf = h:\n[sendemail] smtpPass = ***\n[bugzilla] apiKey= ***\n\
                     [remote \"q\"]\n\turl = https://h.org/x?a=b&access_token=***&c\n[credential]\n\
                     \thelper = \"!f() { echo password=***; echo password=$P; }; f\"\n[user]\n\tname = a\n";
        let masked = MaskedConfig::new(config.as_bytes());
        assert_eq!(String::from_utf8_lossy(&masked.text), shown);
        let changed = shown.replace("name = a", "name = b");
        let expect = config.replace("name = a", "name = b");
        assert_eq!(String::from_utf8_lossy(&masked.restore(changed.as_bytes())), expect);
        // Each line gets its own secret back, however many there are.
        let lines = (0..20_000).map(|number| format!("\turl = https://u{number}@h.org/\n"));
        let many = format!("[remote \"r\"]\n{}", lines.collect::<String>());
        let masked_many = MaskedConfig::new(many.as_bytes());
        assert!(!String::from_utf8_lossy(&masked_many.text).contains("u1"));
        assert_eq!(String::from_utf8_lossy(&masked_many.restore(&masked_many.text)), many);
        // A backslash that is escaped does not continue its line.
        let escaped = MaskedConfig::new(b"[a]\n\tb = c\\\\\n\turl = https://t6@h.org/\n");
        assert_eq!(escaped.text, b"[a]\n\tb = c\\\\\n\turl = https://***@h.org/\n");
        // A secret does not move to another host.
        let moved = shown.replace("***@h.org/x", "***@evil.org/x");
        assert!(!String::from_utf8_lossy(&masked.restore(moved.as_bytes())).contains("u:p"));
        let latin1 =
            MaskedConfig::new(b"[user] name = J\xf6rg\n[remote \"o\"] url = https://t5@h.org/\n");
        assert_eq!(
            latin1.text,
            b"[user] name = J\xf6rg\n[remote \"o\"] url = https://***@h.org/\n"
        );
        assert!(latin1.restore(&latin1.text).ends_with(b"t5@h.org/\n"));
        let plain =
            MaskedConfig::new(b"[remote \"o\"]\n\turl = git@h.org:x\n\turl = https://h.org/a@b\n");
        assert!(!plain.has_secrets());
    }
}
