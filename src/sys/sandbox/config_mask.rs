//! Hides credentials in a git config that commands see: the user part of addresses, and headers and keys whose values are
//! secret. A masked line that a command left as it was gets its secret back.

/// The word in place of a secret.
const MASK: &str = "***";
/// The ends of keys whose values are secret.
const SECRET_KEYS: [&str; 5] = ["extraheader", "pass", "password", "token", "secret"];

/// A config without its credentials.
#[derive(Debug, Default)]
pub(super) struct MaskedConfig {
    pub(super) text: Vec<u8>,
    /// The lines that changed, without the blanks around them: as they are shown, and as they were.
    lines: Vec<(String, String)>,
}

impl MaskedConfig {
    /// Masks what is secret in `config`. What is not UTF-8 has no credentials that git could use.
    pub(super) fn new(config: &[u8]) -> Self {
        let mut masked = Self { text: config.to_vec(), lines: Vec::new() };
        let Ok(text) = std::str::from_utf8(config) else {
            return masked;
        };
        let shown: Vec<String> = logical_lines(text).map(|line| masked.mask_line(line)).collect();
        if !masked.lines.is_empty() {
            masked.text = shown.join("\n").into_bytes();
        }
        masked
    }

    /// True if something was masked.
    pub(super) fn has_secrets(&self) -> bool {
        !self.lines.is_empty()
    }

    /// `text`, which a command has left, with the secrets of lines that it has not changed.
    pub(super) fn restore(&self, text: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(text) else {
            return text.to_vec();
        };
        let restored: Vec<&str> = text
            .split('\n')
            .map(|line| {
                let known = self.lines.iter().find(|(shown, _)| shown == line.trim());
                known.map_or(line, |(_, line)| line)
            })
            .collect();
        restored.join("\n").into_bytes()
    }

    fn mask_line(&mut self, line: &str) -> String {
        let plain = line.replace("\\\n", "");
        let masked = mask_secret_key(&plain).unwrap_or_else(|| mask_addresses(&plain));
        if masked == plain {
            return line.to_owned();
        }
        // Two secrets never look the same.
        let is_taken = |shown: &str| {
            self.lines.iter().any(|(other, was)| other == shown.trim() && was != line)
        };
        let mut shown = masked.clone();
        let mut number = 2;
        while is_taken(&shown) {
            shown = masked.replace(MASK, &format!("{MASK}{number}"));
            number += 1;
        }
        self.lines.push((shown.trim().to_owned(), line.to_owned()));
        shown
    }
}

/// The lines of a config, each with those that continue it.
fn logical_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let line = rest?;
        let mut ends = line.match_indices('\n').map(|(at, _)| at);
        let end = ends.find(|at| !line[..*at].ends_with('\\'));
        rest = end.map(|at| &line[at + 1..]);
        Some(end.map_or(line, |at| &line[..at]))
    })
}

/// The line with its value masked, if its key says that this is secret. The name of a header stays.
fn mask_secret_key(line: &str) -> Option<String> {
    let (start, value) = line.split_once('=')?;
    let key = start.rsplit([']', ' ', '\t']).find(|word| !word.is_empty())?.to_ascii_lowercase();
    if !SECRET_KEYS.iter().any(|end| key.ends_with(end))
        || value.trim().trim_matches('"').is_empty()
    {
        return None;
    }
    let header = value.split_once(':').filter(|_| key == "extraheader");
    let header =
        header.map_or(String::new(), |(name, _)| format!("{}: ", name.trim().trim_matches('"')));
    Some(format!("{start}= {header}{MASK}"))
}

/// The line with the user parts of its addresses masked. The name of a login by ssh is none.
fn mask_addresses(line: &str) -> String {
    let mut masked = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + "://".len());
        masked.push_str(before);
        let end =
            after.find(|letter: char| letter == '/' || letter == '"' || letter.is_whitespace());
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
                      [url \"https://t2@h.org/\"]\n\tinsteadOf = h:\n[sendemail] smtpPass = pw\n[user]\n\tname = a\n";
        let shown = "[remote \"o\"]\n\turl = https://***@h.org/x.git\n\tpushurl = ssh://git@h.org/x\n[remote \"p\"]\n\
                     \turl = https://***2@h.org/x.git\n[http \"https://h.org/\"]\n\textraheader = AUTHORIZATION: ***\n\
                     [url \"https://***@h.org/\"]\n\tinsteadOf = h:\n[sendemail] smtpPass = ***\n[user]\n\tname = a\n";
        let masked = MaskedConfig::new(config.as_bytes());
        assert_eq!(String::from_utf8_lossy(&masked.text), shown);
        let changed = shown.replace("name = a", "name = b");
        let expect = config.replace("name = a", "name = b");
        assert_eq!(String::from_utf8_lossy(&masked.restore(changed.as_bytes())), expect);
        // A secret does not move to another host.
        let moved = shown.replace("***@h.org/x", "***@evil.org/x");
        assert!(!String::from_utf8_lossy(&masked.restore(moved.as_bytes())).contains("u:p"));
        let plain =
            MaskedConfig::new(b"[remote \"o\"]\n\turl = git@h.org:x\n\turl = https://h.org/a@b\n");
        assert!(!plain.has_secrets());
    }
}
