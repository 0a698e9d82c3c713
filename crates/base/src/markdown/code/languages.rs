//! The lexical rules of the languages that models write most, as far as the colouring of code needs them.

/// The lexical rules of a language.
#[derive(Debug)]
pub(super) struct Language {
    /// Names of code fences, separated by spaces.
    names: &'static str,
    /// Keywords, separated by spaces.
    keywords: &'static str,
    pub(super) line_comments: &'static [&'static str],
    pub(super) block_comment: Option<(&'static str, &'static str)>,
    /// Quotes of strings that end with the line at the latest.
    pub(super) quotes: &'static [&'static str],
    /// Quotes of strings that may contain line ends.
    pub(super) long_quotes: &'static [&'static str],
    pub(super) kind: LanguageKind,
}

/// The family of a language, where its rules differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LanguageKind {
    Ordinary,
    /// Apostrophes enclose single characters only.
    CharLiterals,
    /// Keywords are of any case, and a backslash escapes nothing.
    Sql,
    /// The names of tags are keywords.
    Markup,
    Diff,
}

impl Language {
    pub(super) fn is_keyword(&self, word: &str) -> bool {
        let mut keywords = self.keywords.split(' ');
        match self.kind {
            LanguageKind::Sql => keywords.any(|keyword| keyword.eq_ignore_ascii_case(word)),
            _ => keywords.any(|keyword| keyword == word),
        }
    }

    /// True if a backslash in a string escapes the next character.
    pub(super) fn has_escapes(&self) -> bool {
        !matches!(self.kind, LanguageKind::Sql | LanguageKind::Markup)
    }
}

/// Returns the language of this name, in lower case.
pub(super) fn find_language(name: &str) -> Option<&'static Language> {
    LANGUAGES.iter().find(|language| language.names.split(' ').any(|other| other == name))
}

const QUOTES: &[&str] = &["\"", "'"];
const LONG_QUOTES: &[&str] = &["\"\"\"", "'''"];

/// A language with the comments and strings of C.
const fn c_like(names: &'static str, keywords: &'static str) -> Language {
    Language {
        names,
        keywords,
        line_comments: &["//"],
        block_comment: Some(("/*", "*/")),
        quotes: QUOTES,
        long_quotes: &["`", "\"\"\""],
        kind: LanguageKind::Ordinary,
    }
}

/// A language with comments after `#`, and strings in quotes or triple quotes.
const fn with_hash_comments(names: &'static str, keywords: &'static str) -> Language {
    Language {
        line_comments: &["#"],
        block_comment: None,
        long_quotes: LONG_QUOTES,
        ..c_like(names, keywords)
    }
}

// One row per language keeps the table readable.
#[rustfmt::skip]
const LANGUAGES: &[Language] = &[
    Language { quotes: &[], long_quotes: &["\""], kind: LanguageKind::CharLiterals, ..c_like("rust rs",
        "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub \
         ref return self Self static struct super trait true type unsafe use where while") },
    with_hash_comments("python py python3",
        "and as assert async await break case class continue def del elif else except False finally for from global if import \
         in is lambda match None nonlocal not or pass raise return True try while with yield"),
    c_like("javascript js jsx typescript ts tsx mjs",
        "as async await break case catch class const continue default delete do else enum export extends false finally for \
         from function if implements import in instanceof interface let new null of return static super switch this throw true \
         try type typeof undefined var void while yield"),
    Language { quotes: &[], long_quotes: QUOTES, ..with_hash_comments("bash sh shell zsh console",
        "case do done elif else esac exit export fi for function if in local return set shift then trap until while") },
    with_hash_comments("json jsonc jsonl yaml yml toml ini conf dockerfile makefile make",
        "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM RUN USER VOLUME WORKDIR false null true"),
    c_like("go golang",
        "break case chan const continue default defer else fallthrough false for func go if import interface map nil package \
         range return select struct switch true type var"),
    c_like("c h cpp c++ cc hpp",
        "auto bool break case char class const constexpr continue default delete do double else enum extern false float for if \
         inline int long namespace new nullptr private public return short signed sizeof static struct switch template this \
         true typedef typename union unsigned using virtual void while"),
    c_like("java kotlin kt csharp cs c# swift",
        "abstract async await boolean break case catch class const continue default do double else enum extends false final \
         finally for foreach func fun guard if implements import in int interface is let long namespace new nil null object \
         override package private protected public return self static string struct super switch this throw throws true try \
         using val var void when where while"),
    Language { line_comments: &["--"], quotes: &[], long_quotes: QUOTES, kind: LanguageKind::Sql, ..c_like("sql sqlite postgresql psql mysql",
        "add all alter and as asc begin between by case cast check commit constraint create cross default delete desc distinct \
         drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null \
         offset on or order outer over partition primary references returning right rollback select set table then union unique \
         update using values view when where with") },
    Language { line_comments: &[], block_comment: Some(("<!--", "-->")), quotes: &[], long_quotes: &["\""], kind: LanguageKind::Markup,
        ..c_like("html xml svg vue svelte", "") },
    Language { line_comments: &[], ..c_like("css scss", "and auto from important inherit initial none not only to unset") },
    Language { kind: LanguageKind::Diff, ..c_like("diff patch", "") },
];
