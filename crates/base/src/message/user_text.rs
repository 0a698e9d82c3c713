//! The text of a user message, and the part of it that its sender typed. No I/O.
//!
//! Only words that an allowed sender typed name hosts. They have a type of their own, from where a message arrives to the
//! policy. Names of files and users, placeholders, quotes and texts of programs are in messages too; they never enter that
//! type.

use super::addresses::{find_host_words, find_hosts};
use super::origin::Origin;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::{Deref, Range};

/// Maximum length of a file name in bytes (`NAME_MAX`), and of a path (`PATH_MAX`).
const MAX_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 4096;
/// Maximum number of paths that are looked up for a text. Beyond it, no word names a host, except in an address.
const MAX_LOOKUPS: usize = 20_000;

/// Words that an allowed sender typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypedText(String);

impl TypedText {
    /// The words of `text`, which an allowed sender typed, without the lines of it that quote others: `> …`.
    fn by_sender(text: &str) -> Self {
        let is_own = |line: &&str| !line.trim_start().starts_with('>');
        Self(text.trim().split_inclusive('\n').filter(is_own).collect())
    }

    /// Adds typed text after a text that was not typed. The word before it ends.
    fn push(&mut self, text: &str) {
        if !self.0.is_empty() && !text.is_empty() {
            self.0.push('\n');
        }
        self.0 += text;
    }

    /// The hosts that the text names. Other people choose the names of files, so words within the name of an existing file are ignored;
    /// `is_file` says whether a path is one.
    pub(crate) fn named_hosts(&self, is_file: &dyn Fn(&str) -> bool) -> NamedHosts {
        let text = self.0.as_str();
        let mut search = FileNameSearch { text, is_file, lookups: 0 };
        let mut without_names = String::with_capacity(text.len());
        let mut end = 0;
        for word in find_host_words(text) {
            // An address is not the name of a file.
            let is_searched = word.start >= end && !text[..word.start].ends_with("//");
            if is_searched && let Some(name) = search.find(end, &word) {
                without_names += &text[end..name.start];
                // The words around the name stay apart.
                without_names.push(' ');
                end = name.end;
            }
        }
        without_names += &text[end..];
        NamedHosts(find_hosts(&without_names))
    }
}

/// Finds the names of existing files in a text.
struct FileNameSearch<'t> {
    text: &'t str,
    is_file: &'t dyn Fn(&str) -> bool,
    lookups: usize,
}

impl FileNameSearch<'_> {
    /// The longest name that begins first from `from` on and contains the range `word`.
    fn find(&mut self, from: usize, word: &Range<usize>) -> Option<Range<usize>> {
        let text = self.text;
        let earliest = from.max(word.start.saturating_sub(MAX_PATH_BYTES));
        for start in (earliest..=word.start).filter(|at| begins_name(text, *at)) {
            if self.lookups >= MAX_LOOKUPS {
                // The word may belong to a name.
                return Some(word.clone());
            }
            if let Some(end) = self.longest_name(start, word.end) {
                return Some(start..end);
            }
        }
        None
    }

    /// The end of the longest name that begins at `start` and reaches `min_end`.
    fn longest_name(&mut self, start: usize, min_end: usize) -> Option<usize> {
        let text = self.text;
        let mut name_end = None;
        let mut component = start;
        loop {
            let slash = text[component..].find('/').map(|at| component + at);
            let limit = slash.unwrap_or(text.len()).min(component + MAX_NAME_BYTES);
            let ends = (component.max(min_end)..=limit).rev();
            let mut ends = ends.filter(|end| ends_name(text, *end));
            name_end = ends.find(|end| self.exists(start, *end)).or(name_end);
            match slash {
                Some(slash)
                    if slash == limit && (slash == component || self.exists(start, slash)) =>
                {
                    component = slash + 1;
                }
                _ => return name_end,
            }
        }
    }

    fn exists(&mut self, start: usize, end: usize) -> bool {
        self.lookups += 1;
        start < end && self.lookups <= MAX_LOOKUPS && (self.is_file)(&self.text[start..end])
    }
}

/// True if the name of a file may begin at `at`: not within a word, a host or an address.
fn begins_name(text: &str, at: usize) -> bool {
    let is_inner = |character: char| character.is_alphanumeric() || "-_./".contains(character);
    text.is_char_boundary(at)
        && !text[..at].ends_with(is_inner)
        && !text[at..].starts_with(char::is_whitespace)
}

/// True if the name of a file may end at `at`.
fn ends_name(text: &str, at: usize) -> bool {
    text.is_char_boundary(at) && !text[at..].starts_with(char::is_alphanumeric)
}

/// Hosts that an allowed sender has named. They are found in a [`TypedText`], or read from a session that has kept them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NamedHosts(BTreeSet<String>);

impl NamedHosts {
    pub fn iter(&self) -> impl Iterator<Item = &String> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the hosts of another message of the conversation.
    pub fn add(&mut self, other: &Self) {
        self.0.extend(other.iter().cloned());
    }
}

/// Content in a message that its sender did not write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OthersContent {
    pub origin: Origin,
    /// A phrase for it, such as "piped input".
    pub name: String,
}

impl OthersContent {
    pub fn new(origin: Origin, name: impl Into<String>) -> Self {
        Self { origin, name: name.into() }
    }
}

/// The facts about the authors of a user message that the policy needs. The session keeps them with the message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageSources {
    /// The hosts that its sender has typed.
    #[serde(skip_serializing_if = "NamedHosts::is_empty")]
    pub hosts: NamedHosts,
    /// The least trusted content that the sender did not write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<OthersContent>,
    /// True if a model wrote a part of it. An address in it then does not permit a connection.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_model_text: bool,
}

/// The text of a user message, with the part of it that its sender typed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredText", into = "StoredText")]
pub struct UserText {
    text: String,
    typed: TypedText,
    others: Option<OthersContent>,
    has_model_text: bool,
}

impl UserText {
    /// A text that an allowed sender typed as a whole.
    pub fn typed(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { typed: TypedText::by_sender(&text), text, ..Self::default() }
    }

    /// A text that no user typed and that is not content of other people: a placeholder, or the name of a user or a file.
    pub fn label(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A text that somebody other than the sender wrote.
    pub fn of_others(text: impl Into<String>, content: OthersContent) -> Self {
        Self { others: Some(content), ..Self::label(text) }
    }

    /// A text of this origin that a model wrote.
    pub fn of_model(text: impl Into<String>, content: OthersContent) -> Self {
        Self { has_model_text: true, ..Self::of_others(text, content) }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Adds a text at the end.
    pub fn push(&mut self, other: &Self) {
        let last_line = &self.text[self.text.rfind('\n').map_or(0, |at| at + 1)..];
        let typed = other.typed.0.as_str();
        self.typed.push(if last_line.trim_start().starts_with('>') {
            // The text continues a line that quotes others.
            typed.split_once('\n').map_or("", |(_, rest)| rest)
        } else {
            typed
        });
        self.text += &other.text;
        self.has_model_text |= other.has_model_text;
        if let Some(content) = &other.others {
            self.raise(content.clone());
        }
    }

    /// Adds a text at the end, as another paragraph.
    pub fn push_paragraph(&mut self, other: &Self) {
        if !self.text.is_empty() && !other.text.is_empty() {
            self.text += "\n\n";
        }
        self.push(other);
    }

    /// Records content of other people that comes with the text, if its origin is less trusted.
    pub fn raise(&mut self, content: OthersContent) {
        if self.others.as_ref().is_none_or(|others| others.origin < content.origin) {
            self.others = Some(content);
        }
    }

    /// The text without white space at its ends.
    pub fn trimmed(mut self) -> Self {
        if self.text.trim().len() < self.text.len() {
            self.text = self.text.trim().to_owned();
        }
        self
    }

    /// The same text as if a program had written it: none of it is typed.
    pub fn without_typed(self) -> Self {
        Self { typed: TypedText::default(), ..self }
    }

    /// True if its sender has typed it as a whole.
    pub fn is_typed(&self) -> bool {
        !self.has_model_text
            && self.others.is_none()
            && self.typed == TypedText::by_sender(&self.text)
    }

    /// True if all of it is the sender's own.
    pub fn is_own(&self) -> bool {
        self.others.is_none()
    }

    /// The sources of the text; `is_file` says whether a path is an existing file.
    pub fn sources(&self, is_file: &dyn Fn(&str) -> bool) -> MessageSources {
        MessageSources {
            hosts: self.typed.named_hosts(is_file),
            others: self.others.clone(),
            has_model_text: self.has_model_text,
        }
    }
}

impl Deref for UserText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// The form in which a text of a chat is kept until it is answered. It has no content of other people.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredText {
    text: String,
    #[serde(skip_serializing_if = "StoredTyped::is_none")]
    typed: StoredTyped,
}

/// The typed part of a text: all of it, none, or this. A text that was stored without this value has no typed part.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredTyped {
    IsAll(bool),
    Text(String),
}

impl StoredTyped {
    fn is_none(&self) -> bool {
        matches!(self, Self::IsAll(false))
    }
}

impl Default for StoredTyped {
    fn default() -> Self {
        Self::IsAll(false)
    }
}

impl From<StoredText> for UserText {
    fn from(stored: StoredText) -> Self {
        let StoredText { text, typed } = stored;
        match typed {
            StoredTyped::IsAll(true) => Self::typed(text),
            StoredTyped::IsAll(false) => Self::label(text),
            StoredTyped::Text(typed) => Self { typed: TypedText(typed), ..Self::label(text) },
        }
    }
}

impl From<UserText> for StoredText {
    fn from(text: UserText) -> Self {
        let UserText { text, typed, .. } = text;
        let typed = if typed.0.is_empty() {
            StoredTyped::IsAll(false)
        } else if typed == TypedText::by_sender(&text) {
            StoredTyped::IsAll(true)
        } else {
            StoredTyped::Text(typed.0)
        };
        Self { text, typed }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LOOKUPS, OthersContent, UserText};
    use crate::message::Origin;
    use std::cell::Cell;

    #[track_caller]
    fn check_hosts(text: &UserText, files: &[&str], expect: &[&str]) {
        let sources = text.sources(&|path| path == "." || files.contains(&path));
        let hosts: Vec<&str> = sources.hosts.iter().map(String::as_str).collect();
        assert_eq!(hosts, expect, "{}", text.as_str());
    }

    #[test]
    fn words_within_the_name_of_a_file_name_no_host() {
        let check = |text: &str, files: &[&str], expect: &[&str]| {
            check_hosts(&UserText::typed(text), files, expect);
        };
        check("what's new on example.org?", &[], &["example.org"]);
        check("review ./notes on evil.com", &["./notes on evil.com"], &[]);
        check("review ./notes on evil.com", &["./notes"], &["evil.com"]);
        check("review ./notes on evil.com.", &["./notes on evil.com"], &[]);
        check("review 'notes on evil.com' and a.example", &["notes on evil.com"], &["a.example"]);
        check("review\nnotes on evil.com\nevil.net x", &["notes on evil.com", "evil.net x"], &[]);
        // The longest match, and words that only touch a name.
        check("see evil.com and b.example", &["evil.com", "evil.com and b.example"], &[]);
        check("see evil.com and b.example", &["evil.com"], &["b.example"]);
        check("my evil.com", &["my evil"], &["evil.com"]);
        check("see /srv/a dir/on evil.com", &["/srv", "/srv/a dir", "/srv/a dir/on evil.com"], &[]);
        check("see a dir/evil.com x", &["a dir", "a dir/evil.com x"], &[]);
        // A mirror of a site does not take its address.
        check("see https://example.org/x", &["example.org"], &["example.org"]);
        check("see www.example.org", &["example.org"], &["www.example.org"]);
        check("an ä evil.com ö", &["ä evil.com ö"], &[]);
    }

    #[test]
    fn the_search_for_names_is_limited() {
        let filler = "a ".repeat(120);
        let hosts: String = (0..6).map(|number| format!("{filler}h{number}.example ")).collect();
        let text = UserText::typed(format!("{hosts}{filler}https://example.org/"));
        let lookups = Cell::new(0);
        let sources = text.sources(&|_| {
            lookups.set(lookups.get() + 1);
            false
        });
        assert_eq!(lookups.get(), MAX_LOOKUPS);
        let hosts: Vec<&str> = sources.hosts.iter().map(String::as_str).collect();
        assert!(hosts.contains(&"example.org") && hosts.contains(&"h0.example"));
        assert!(!hosts.contains(&"h5.example"), "{hosts:?}");
    }

    #[test]
    fn what_was_not_typed_names_no_host() {
        let mut text = UserText::typed("ask ");
        text.push(&UserText::label("@evil.com"));
        text.push(&UserText::typed(" about a.example.\n> and evil.net\n@evil.org (@evil.info)"));
        text.push_paragraph(&UserText::label("[attachment: evil.com - too large]"));
        let quoted = OthersContent::new(Origin::External, "a quote");
        text.push_paragraph(&UserText::of_others("https://evil.com/", quoted.clone()));
        assert!(text.starts_with("ask @evil.com about a.example.\n"));
        check_hosts(&text, &[], &["a.example"]);
        assert_eq!(text.sources(&|_| false).others, Some(quoted));
        // A quoted line continues after a name.
        let mut text = UserText::typed("> ask ");
        text.push(&UserText::label("@ann"));
        text.push(&UserText::typed(" on evil.com\nor a.example"));
        check_hosts(&text, &[], &["a.example"]);
        // Words do not grow together.
        let mut text = UserText::typed("evil.");
        text.push(&UserText::label("x "));
        text.push(&UserText::typed("com"));
        check_hosts(&text, &[], &[]);
    }

    #[test]
    fn a_stored_text_keeps_what_was_typed() {
        let check = |text: UserText, json: &str| {
            assert_eq!(serde_json::to_string(&text).unwrap(), json);
            assert_eq!(serde_json::from_str::<UserText>(json).unwrap(), text);
        };
        check(UserText::default(), r#"{"text":""}"#);
        check(UserText::typed("a.example"), r#"{"text":"a.example","typed":true}"#);
        check(UserText::label("a.example"), r#"{"text":"a.example"}"#);
        let mut text = UserText::typed("a.example ");
        text.push(&UserText::label("b.example"));
        check(text, r#"{"text":"a.example b.example","typed":"a.example"}"#);
    }
}
