//! Tokens of fenced code: comments, strings, numbers and keywords, for the languages of a table. No I/O.
//!
//! One tokenizer serves all languages. It knows their lexical rules only roughly, because a wrong token costs no more
//! than a colour. Like the rest of the grammar it takes text in chunks, and the result does not depend on their
//! boundaries: text whose token a later character may change is buffered, at most a word of [`MAX_WORD_BYTES`].

use languages::{Language, LanguageKind, find_language};

mod languages;

/// Longest word that is compared with keywords, in bytes.
const MAX_WORD_BYTES: usize = 32;
/// Longest prefix of a string literal, such as `rb'…'`.
const MAX_STRING_PREFIX_CHARS: usize = 2;
/// Characters of the longest character literal that is recognised, such as `'\n'`.
const MAX_LITERAL_CHARS: usize = 4;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeToken {
    Plain,
    Comment,
    Keyword,
    Number,
    /// Text in quotes.
    Literal,
    /// A line that a diff adds.
    Added,
    /// A line that a diff removes.
    Removed,
    /// The position of a diff's hunk.
    Hunk,
}

/// The callback that receives the tokens.
pub type TokenSink<'a> = dyn FnMut(CodeToken, &str) + 'a;

/// A code block that is being tokenized.
#[derive(Debug)]
pub struct CodeTokenizer {
    language: &'static Language,
    state: State,
    /// Text that is not decided yet.
    pending: String,
    /// The character in front of `pending` in this line.
    previous: Option<char>,
    /// Length in characters of the word that ends at `previous`.
    word_chars: usize,
    /// True after the `<` or `</` of a tag.
    is_tag: bool,
}

/// The construct that the tokenizer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Code,
    /// A token up to the end of the line.
    Line(CodeToken),
    /// A token up to a mark.
    Until(DelimitedToken),
}

impl State {
    fn token(self) -> CodeToken {
        match self {
            Self::Code => CodeToken::Plain,
            Self::Line(token) | Self::Until(DelimitedToken { token, .. }) => token,
        }
    }
}

/// A token that ends with a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DelimitedToken {
    token: CodeToken,
    close: &'static str,
    /// True if a backslash escapes the next character.
    has_escapes: bool,
    /// True if the end of the line ends it too.
    ends_with_line: bool,
}

/// The token at the start of a text.
struct TokenMatch {
    length: usize,
    token: CodeToken,
    /// The state after the token.
    next_state: State,
}

impl TokenMatch {
    fn plain(length: usize) -> Self {
        Self { length, token: CodeToken::Plain, next_state: State::Code }
    }
}

impl CodeTokenizer {
    /// Creates a tokenizer for the label of a code fence, such as `rust` or `js {1,3}`; `None` if the language is
    /// unknown.
    pub fn for_label(label: &str) -> Option<Self> {
        let is_name_char =
            |character: char| character.is_ascii_alphanumeric() || "+#-_".contains(character);
        let end = label.find(|character| !is_name_char(character)).unwrap_or(label.len());
        let language = find_language(&label[..end].to_ascii_lowercase())?;
        Some(Self {
            language,
            state: State::Code,
            pending: String::new(),
            previous: None,
            word_chars: 0,
            is_tag: false,
        })
    }

    /// Adds text without line ends, and passes on the tokens that are decided.
    pub fn feed(&mut self, text: &str, sink: &mut TokenSink<'_>) {
        self.pending.push_str(text);
        self.resolve(false, sink);
    }

    /// Passes on the buffered text, within the line.
    pub fn flush(&mut self, sink: &mut TokenSink<'_>) {
        self.resolve(true, sink);
    }

    /// Ends the line.
    pub fn end_line(&mut self, sink: &mut TokenSink<'_>) {
        self.flush(sink);
        match self.state {
            State::Line(_) => self.state = State::Code,
            State::Until(delimited) if delimited.ends_with_line => self.state = State::Code,
            State::Until(_) | State::Code => {}
        }
        self.previous = None;
        self.word_chars = 0;
        self.is_tag = false;
    }

    fn resolve(&mut self, is_complete: bool, sink: &mut TokenSink<'_>) {
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_str();
        while !rest.is_empty() {
            let token_match = match self.state {
                State::Line(token) => {
                    Some(TokenMatch { length: rest.len(), token, next_state: self.state })
                }
                State::Until(delimited) => find_end(rest, delimited, is_complete),
                State::Code => self.find_token(rest, is_complete),
            };
            let Some(TokenMatch { length, token, next_state }) = token_match else {
                break;
            };
            let (text, after) = rest.split_at(length);
            sink(token, text);
            self.record(text);
            self.state = next_state;
            rest = after;
        }
        self.pending = rest.to_owned();
    }

    /// Records the text before the next token.
    fn record(&mut self, text: &str) {
        let Some(last) = text.chars().next_back() else {
            return;
        };
        if !is_word(last) {
            self.word_chars = 0;
        } else if self.previous.is_some_and(is_word) {
            self.word_chars += text.chars().count();
        } else {
            self.word_chars = text.chars().count();
        }
        self.is_tag = text == "<" || (self.is_tag && text == "/");
        self.previous = Some(last);
    }

    /// Returns the token at the start of `rest`; `None` if more text is needed.
    fn find_token(&self, rest: &str, is_complete: bool) -> Option<TokenMatch> {
        let first = rest.chars().next()?;
        if self.language.kind == LanguageKind::Diff {
            let token = match first {
                '+' => CodeToken::Added,
                '-' => CodeToken::Removed,
                '@' => CodeToken::Hunk,
                _ => CodeToken::Plain,
            };
            return Some(TokenMatch { length: rest.len(), token, next_state: State::Line(token) });
        }
        if is_word(first) {
            return self.find_word(rest, first, is_complete);
        }
        let mut is_undecided = false;
        for (mark, state) in self.openings(first) {
            if rest.starts_with(mark) && !is_undecided {
                return Some(TokenMatch {
                    length: mark.len(),
                    token: state.token(),
                    next_state: state,
                });
            }
            is_undecided |= !is_complete && mark.starts_with(rest);
        }
        if is_undecided {
            return None;
        }
        if first == '\'' && self.language.kind == LanguageKind::CharLiterals {
            find_char_literal(rest, is_complete)
        } else {
            Some(TokenMatch::plain(first.len_utf8()))
        }
    }

    /// Returns the marks that may begin a token at this position, longer ones first, and the states that they lead to.
    fn openings(&self, first: char) -> impl Iterator<Item = (&'static str, State)> {
        let language = self.language;
        let may_begin_comment = first != '#' || self.previous.is_none_or(char::is_whitespace);
        let is_apostrophe = first == '\'' && self.word_chars > MAX_STRING_PREFIX_CHARS;
        let block_comment = language.block_comment.map(|(open, close)| {
            let delimited = DelimitedToken {
                token: CodeToken::Comment,
                close,
                has_escapes: false,
                ends_with_line: false,
            };
            (open, State::Until(delimited))
        });
        let line_comment = |mark: &&'static str| (*mark, State::Line(CodeToken::Comment));
        let line_comments = language.line_comments.iter().map(line_comment);
        let string = |ends_with_line: bool| {
            move |mark: &&'static str| {
                let delimited = DelimitedToken {
                    token: CodeToken::Literal,
                    close: mark,
                    has_escapes: language.has_escapes(),
                    ends_with_line,
                };
                (*mark, State::Until(delimited))
            }
        };
        let long_strings = language.long_quotes.iter().map(string(false));
        let strings = long_strings.chain(language.quotes.iter().map(string(true)));
        block_comment
            .into_iter()
            .chain(line_comments.filter(move |_| may_begin_comment))
            .chain(strings.filter(move |_| !is_apostrophe))
    }

    fn find_word(&self, rest: &str, first: char, is_complete: bool) -> Option<TokenMatch> {
        let is_number = first.is_ascii_digit();
        let is_part = |character: char| is_word(character) || (is_number && character == '.');
        let word_length = rest.find(|character| !is_part(character));
        let length = match word_length {
            Some(length) if length <= MAX_WORD_BYTES => length,
            None if rest.len() <= MAX_WORD_BYTES && is_complete => rest.len(),
            None if rest.len() <= MAX_WORD_BYTES => return None,
            _ => rest.floor_char_boundary(MAX_WORD_BYTES),
        };
        let word = &rest[..length];
        let token = match self.previous {
            // The rest of a long word.
            Some(previous) if is_word(previous) => CodeToken::Plain,
            _ if is_number => CodeToken::Number,
            _ if self.is_tag && self.language.kind == LanguageKind::Markup => CodeToken::Keyword,
            _ if self.language.is_keyword(word) => CodeToken::Keyword,
            _ => CodeToken::Plain,
        };
        Some(TokenMatch { length, token, next_state: State::Code })
    }
}

/// Returns the end of the delimited token in `rest`, or the part of `rest` that certainly belongs to it.
fn find_end(rest: &str, delimited: DelimitedToken, is_complete: bool) -> Option<TokenMatch> {
    let mut at = 0;
    while let Some(character) = rest[at..].chars().next() {
        let tail = &rest[at..];
        if tail.starts_with(delimited.close) {
            return Some(TokenMatch {
                length: at + delimited.close.len(),
                token: delimited.token,
                next_state: State::Code,
            });
        }
        let may_close = !is_complete && delimited.close.starts_with(tail);
        let mut length = character.len_utf8();
        if character == '\\' && delimited.has_escapes {
            length += tail[1..].chars().next().map_or(0, char::len_utf8);
        }
        let is_incomplete_escape =
            character == '\\' && delimited.has_escapes && length == 1 && !is_complete;
        if may_close || is_incomplete_escape {
            break;
        }
        at += length;
    }
    (at > 0).then_some(TokenMatch {
        length: at,
        token: delimited.token,
        next_state: State::Until(delimited),
    })
}

/// Finds a literal such as `'x'`. Other apostrophes, such as those of lifetimes, are tokens of their own.
fn find_char_literal(rest: &str, is_complete: bool) -> Option<TokenMatch> {
    let head: Vec<char> = rest.chars().take(MAX_LITERAL_CHARS).collect();
    if head.len() < MAX_LITERAL_CHARS && !is_complete {
        return None;
    }
    let count = match head.as_slice() {
        [_, '\\', _, '\'', ..] => 4,
        [_, character, '\'', ..] if *character != '\\' => 3,
        _ => return Some(TokenMatch::plain(1)),
    };
    let length = head[..count].iter().map(|character| character.len_utf8()).sum();
    Some(TokenMatch { length, token: CodeToken::Literal, next_state: State::Code })
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::{CodeToken, CodeTokenizer};
    use std::fmt::Write;

    /// Marks each token with its initial: `k{fn}`.
    fn mark<'t>(label: &str, lines: impl Iterator<Item = Vec<&'t str>>) -> String {
        let mut tokenizer = CodeTokenizer::for_label(label).expect("a known language");
        let mut tokens: Vec<(CodeToken, String)> = Vec::new();
        let mut sink = |token, text: &str| match tokens.last_mut() {
            Some((last, shown)) if *last == token => shown.push_str(text),
            _ => tokens.push((token, text.to_owned())),
        };
        for line in lines {
            for piece in line {
                tokenizer.feed(piece, &mut sink);
            }
            tokenizer.end_line(&mut sink);
            sink(CodeToken::Plain, "\n");
        }
        let mut marked = String::new();
        for (token, text) in tokens {
            let name = format!("{token:?}").to_lowercase();
            match token {
                CodeToken::Plain => marked.push_str(&text),
                _ => write!(marked, "{}{{{text}}}", &name[..1]).unwrap(),
            }
        }
        marked.trim_end_matches('\n').to_owned()
    }

    #[track_caller]
    fn check(label: &str, code: &str, expect: &str) {
        assert_eq!(mark(label, code.lines().map(|line| vec![line])), expect);
        let letters = code.lines().map(|line| line.split("").collect());
        assert_eq!(mark(label, letters), expect, "letter by letter");
    }

    #[test]
    fn tokens_of_many_languages() {
        check(
            "rust",
            "fn f<'a>(c: char) -> u8 { '\"' } // a \"b\n/* c\nd */ 0x1F \"e\\\"\nf\" if 'x'",
            "k{fn} f<'a>(c: char) -> u8 { l{'\"'} } c{// a \"b}\nc{/* c}\nc{d */} n{0x1F} l{\"e\\\"}\nl{f\"} k{if} l{'x'}",
        );
        check(
            "python",
            "def f(x): # it's\n    return rb'a' + \"\"\"b\n'c'\"\"\" + ''",
            "k{def} f(x): c{# it's}\n    k{return} rbl{'a'} + l{\"\"\"b}\nl{'c'\"\"\"} + l{''}",
        );
        check(
            "sh",
            "for x in $# a#b; do echo \"$x\"; done # c",
            "k{for} x k{in} $# a#b; k{do} echo l{\"$x\"}; k{done} c{# c}",
        );
        check(
            "js {1}",
            "const a = `x\n${y}` / 2 // z",
            "k{const} a = l{`x}\nl{${y}`} / n{2} c{// z}",
        );
        check(
            "html",
            "<a href=\"x\">if it's</a> <!-- b\nc -->",
            "<k{a} href=l{\"x\"}>if it's</k{a}> c{<!-- b}\nc{c -->}",
        );
        check(
            "yaml",
            "a: it doesn't # x\nb: [true, 'c']",
            "a: it doesn't c{# x}\nb: [k{true}, l{'c'}]",
        );
        check("sql", "SELECT 'a\\' -- b", "k{SELECT} l{'a\\'} c{-- b}");
        check("diff", "@@ -1 +1 @@\n-old\n+new\n same", "h{@@ -1 +1 @@}\nr{-old}\na{+new}\n same");
        check("c", "a / b", "a / b");
        let long = "x".repeat(90);
        check("c", &format!("{long} int"), &format!("{long} k{{int}}"));
    }

    #[test]
    fn labels_name_languages() {
        let check = |label: &str, is_known: bool| {
            assert_eq!(CodeTokenizer::for_label(label).is_some(), is_known, "{label}");
        };
        check("Rust,ignore", true);
        check("c++", true);
        check("tsx", true);
        check("bash title=\"x\"", true);
        check("", false);
        check("klingon", false);
    }

    #[test]
    fn fuzz_no_text_is_lost_and_cuts_do_not_matter() {
        let seeds: &[&[u8]] = &[
            b"fn main() { let x = 'a'; /* b */ \"c\\\"\" } // d\n",
            b"\"\"\"a\nb\"\"\" 'c' # d\n<!-- e --> <f g=\"h\">\n",
        ];
        let labels = ["rust", "python", "html", "yaml", "sql", "js", "diff", "sh"];
        crate::fuzz::check(seeds, |input, random| {
            let text = crate::fuzz::lossy_text(&input[..input.len().min(500)]);
            let label = labels[random.below(labels.len())];
            let whole = mark(label, text.lines().map(|line| vec![line]));
            let letters = text.lines().map(|line| line.split("").collect());
            assert_eq!(mark(label, letters), whole);
        });
    }
}
