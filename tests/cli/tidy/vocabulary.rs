//! The words of the project: names that nothing may have, phrases that no comment or message may contain, units in the
//! names of constants, and one type for each type name.

use super::definitions::{Definition, DefinitionKind};
use super::locals::Local;
use super::rules::Violation;
use super::source::Source;
use super::tree::SourceTree;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Words that say nothing about what they name. No type, function, module, field, variant or constant consists of one
/// of them alone, in any case.
const FORBIDDEN_NAMES: &str = "of told tell tells said say look looks words held hold known knows seen kept shown given \
    made heard hear stand stands came gone gave ways lack lacks room piece thing things stuff misc util utils manager far \
    ear mouth news trouble wish about ours theirs stranger strangers beside behind apart around walls fence leash berth crew \
    scribe warden desk duty door longest most least slice patience";

/// Words that, as the name of a parameter or a local, say nothing about its value: they stand for a part of a sentence. So do
/// those of [`FORBIDDEN_NAMES`].
const FORBIDDEN_LOCALS: &str =
    "stamps terms reach way wire account place places asked found answered";

/// Phrases that no comment and no string contains, in any case, as whole words; each with what to write instead.
const FORBIDDEN_PHRASES: &[(&str, &str)] = &[
    ("nobody", "say which process, user or program does not"),
    ("whoever", "say which process, user or program"),
    ("is not to be had", "is not available"),
    ("look at `", "stat, read or open"),
    ("is told", "receives, or is reported"),
    ("are told", "receive, or are reported"),
    ("is no regular file", "is not a regular file"),
    ("makes up for", "runs later, or retries"),
    ("who is asked", "the provider, server or user"),
    ("what it is told", "its input"),
    ("strangers", "untrusted content"),
    ("is to be had", "is available"),
];

/// Beginnings that leave the first line of a doc comment without a subject.
const HEADLESS: [&str; 4] = ["What ", "Whether ", "Who ", "How "];

/// Endings of the names of constants that are durations.
const DURATION_ENDINGS: [&str; 12] = [
    "TIMEOUT", "INTERVAL", "GRACE", "DELAY", "AGE", "WINDOW", "PERIOD", "LIFETIME", "BACKOFF",
    "DURATION", "MARGIN", "PAUSE",
];

/// The roles that values of a type have, where a name says the role instead of the type.
const ROLES: &[(&str, &str)] = &[
    ("CompactedHistory", "summary"),
    ("Context", "ctx"),
    ("LayeredConfig", "layers"),
    ("LoginSecret", "refresh_token"),
    ("Message", "answer mail"),
    ("Outgoing", "message"),
    ("ProviderInfo", "entry"),
    ("Reporter", "report"),
    ("Secret", "token refresh_token key url proxy password expected"),
    ("SelectedProvider", "choice"),
    ("SigningProgram", "caller"),
    ("UserText", "message prompt"),
];

/// Roles that values of any type may have: their order, or their side in a comparison.
const SHARED_ROLES: &str =
    "before after old new other next previous current first last left right from to stored";

/// Type names that stand more than once, because their module makes them unmistakable where they are used.
const SHARED_TYPE_NAMES: [&str; 0] = [];

fn violation(source: &Source, line: usize, name: &str, advice: &str) -> Violation {
    Violation {
        subject: format!("{}::{name}", source.name),
        message: format!("{}:{line}: `{name}`: {advice}", source.name),
    }
}

pub(super) fn names(tree: &SourceTree) -> Vec<Violation> {
    let is_forbidden = |definition: &&Definition| {
        let lower = definition.name.to_lowercase();
        FORBIDDEN_NAMES.split_whitespace().any(|word| word == lower)
    };
    let per_source = tree.sources.iter().flat_map(|source| {
        // The fields and variants of these types are words of the command line.
        let is_argument = source.name.starts_with("src/cli/");
        let forbidden = (source.definitions.iter())
            .filter(move |definition| !is_argument || definition.kind == DefinitionKind::Type)
            .filter(is_forbidden);
        forbidden.map(move |definition| {
            violation(
                source,
                definition.line,
                &definition.name,
                "use the field's term for what this is or does",
            )
        })
    });
    per_source.collect()
}

/// Parameters and locals that have no name of their own.
pub(super) fn locals(tree: &SourceTree) -> Vec<Violation> {
    let forbidden: Vec<&str> =
        FORBIDDEN_NAMES.split_whitespace().chain(FORBIDDEN_LOCALS.split_whitespace()).collect();
    let mut violations = Vec::new();
    for source in &tree.sources {
        for local in &source.locals.locals {
            if forbidden.contains(&local.name.as_str()) {
                let advice = "name a value after what it is: `settings`, `response`, `path`";
                violations.push(violation(source, local.line, &local.name, advice));
            }
        }
    }
    violations
}

/// Patterns that give a field another name, which a reader then has to carry along.
pub(super) fn renamed_fields(tree: &SourceTree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in &tree.sources {
        for local in source.locals.locals.iter().filter(|local| !local.renamed_field.is_empty()) {
            // `other_hosts` of a field `hosts` tells two values of the same field apart.
            if !local.name.starts_with('_') && !local.name.contains(&local.renamed_field) {
                let advice = format!("the field is `{}`: keep its name", local.renamed_field);
                violations.push(violation(source, local.line, &local.name, &advice));
            }
        }
    }
    violations
}

/// Parameters that are tuples, and nested `Option`s and `Result`s.
pub(super) fn signatures(tree: &SourceTree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in &tree.sources {
        for unclear in &source.locals.unclear_types {
            violations.push(violation(source, unclear.line, &unclear.function, unclear.advice));
        }
    }
    violations
}

/// The names of all types of the project.
fn own_types(tree: &SourceTree) -> BTreeSet<&str> {
    (tree.sources.iter().flat_map(|source| &source.definitions))
        .filter(|definition| definition.kind == DefinitionKind::Type)
        .map(|definition| definition.name.as_str())
        .collect()
}

/// Parameters of our own types whose names say neither their type nor their role ([`ROLES`]).
pub(super) fn parameters(tree: &SourceTree) -> Vec<Violation> {
    let types = own_types(tree);
    let mut violations = Vec::new();
    for source in &tree.sources {
        for local in source.locals.locals.iter().filter(|local| local.is_parameter) {
            if types.contains(local.type_name.as_str()) && !is_named_for_its_type(local) {
                let advice = format!("say in the name that it is a `{}`", local.type_name);
                violations.push(violation(source, local.line, &local.name, &advice));
            }
        }
    }
    violations
}

/// Words in backticks in the docs of functions that name nothing: no word of the function, no definition, no part of a literal.
pub(super) fn doc_words(tree: &SourceTree) -> Vec<Violation> {
    let mut existing_words: BTreeSet<&str> = BTreeSet::new();
    for source in &tree.sources {
        existing_words.extend(source.definitions.iter().map(|definition| definition.name.as_str()));
        for line in source.text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            existing_words.extend(quoted_words(line));
        }
    }
    let mut violations = Vec::new();
    for source in &tree.sources {
        let lines: Vec<&str> = source.text.lines().collect();
        for word in &source.locals.doc_words {
            let (first, last) = word.function;
            let is_in_function = || {
                let code = lines[first - 1..last].iter();
                code.filter(|line| !line.trim_start().starts_with("//"))
                    .any(|line| name_parts(line).any(|part| part == word.word))
            };
            if !existing_words.contains(word.word.as_str()) && !is_in_function() {
                let advice = "the doc names something that is not there";
                violations.push(violation(source, word.line, &word.word, advice));
            }
        }
    }
    violations
}

/// The words of the string literals that begin or end in a line.
fn quoted_words(line: &str) -> impl Iterator<Item = &str> {
    let start = line.find('"').unwrap_or(line.len());
    name_parts(&line[start..])
}

fn name_parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
}

fn is_named_for_its_type(local: &Local) -> bool {
    let name = local.name.trim_start_matches('_');
    let type_name = snake_case(&local.type_name);
    let shares_a_word =
        name.split('_').any(|part| (type_name.split('_')).any(|word| is_same_word(part, word)));
    let has_shared_role = SHARED_ROLES.split_whitespace().any(|role| role == name);
    let has_role = || {
        let mut roles = ROLES.iter().filter(|(type_name, _)| *type_name == local.type_name);
        roles.any(|(_, names)| names.split_whitespace().any(|role| role == name))
    };
    shares_a_word || has_shared_role || has_role()
}

/// Plural and singular are the same word, and `arguments` is `args`.
fn is_same_word(left: &str, right: &str) -> bool {
    let [left, right] =
        [left, right].map(|word| word.trim_end_matches('s').replace("argument", "arg"));
    left == right
}

/// `RunState` → `run_state`.
fn snake_case(type_name: &str) -> String {
    let mut name = String::new();
    for character in type_name.chars() {
        if character.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(character.to_lowercase());
    }
    name
}

/// Lists the parameters and the locals of each type of the project, with how often each name stands.
pub(super) fn names_by_type(tree: &SourceTree) -> String {
    let types = own_types(tree);
    let mut names: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for local in tree.sources.iter().flat_map(|source| &source.locals.locals) {
        if types.contains(local.type_name.as_str()) {
            *names.entry(&local.type_name).or_default().entry(&local.name).or_default() += 1;
        }
    }
    let mut list = String::new();
    for (type_name, names) in names {
        let mut names: Vec<(&str, usize)> = names.into_iter().collect();
        names.sort_by_key(|(_, count)| Reverse(*count));
        let names: Vec<String> =
            names.iter().map(|(name, count)| format!("{name} {count}")).collect();
        list.push_str(&format!("{type_name}: {}\n", names.join(", ")));
    }
    list
}

pub(super) fn unique_types(tree: &SourceTree) -> Vec<Violation> {
    let mut definitions: BTreeMap<&str, Vec<(&Source, usize)>> = BTreeMap::new();
    for source in &tree.sources {
        for definition in &source.definitions {
            if definition.kind == DefinitionKind::Type {
                let same = definitions.entry(&definition.name).or_default();
                same.push((source, definition.line));
            }
        }
    }
    definitions
        .retain(|name, definitions| definitions.len() > 1 && !SHARED_TYPE_NAMES.contains(name));
    let later = definitions.into_iter().flat_map(|(name, definitions)| {
        definitions.into_iter().skip(1).map(move |(source, line)| (name, source, line))
    });
    later
        .map(|(name, source, line)| {
            violation(source, line, name, "another type has this name: say in it which one this is")
        })
        .collect()
}

pub(super) fn units(tree: &SourceTree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in &tree.sources {
        for definition in &source.definitions {
            if let Some(advice) = missing_unit(definition) {
                violations.push(violation(source, definition.line, &definition.name, advice));
            }
        }
    }
    violations
}

fn missing_unit(definition: &Definition) -> Option<&'static str> {
    if definition.kind != DefinitionKind::Constant {
        return None;
    }
    let name = definition.name.as_str();
    let is_integer = ["u8", "u16", "u32", "u64", "u128", "usize", "i32", "i64"]
        .contains(&definition.constant_type.as_str());
    if definition.constant_type == "Duration" {
        let is_duration = DURATION_ENDINGS.iter().any(|ending| name.ends_with(ending));
        return (!is_duration)
            .then_some("say in the name of a duration what it is: `…_TIMEOUT`, `…_INTERVAL`");
    }
    let counts_something = name.split('_').any(|word| word.ends_with('S') || word == "DEPTH");
    if is_integer && definition.is_shifted && !counts_something {
        return Some("say in the name of a size that it is in bytes: `…_BYTES`");
    }
    let is_limit = name.starts_with("MAX_") || name.starts_with("MIN_");
    let is_counted = name.split('_').any(|word| word.ends_with('S'))
        || ["_PERCENT", "_DEPTH"].iter().any(|ending| name.ends_with(ending));
    (is_integer && is_limit && !is_counted)
        .then_some("say in the name of a limit what it counts: `MAX_NAME_CHARS`, `MAX_ROWS`")
}

/// Comments, in tests too.
pub(super) fn comments(tree: &SourceTree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in &tree.sources {
        let lines = (1..).zip(source.text.lines());
        let comments = lines.filter(|(_, line)| line.trim_start().starts_with("//"));
        violations.extend(forbidden_phrases(source, comments));
        violations.extend(headless_comments(source));
    }
    violations
}

/// Strings, and so messages, hints and prompts.
pub(super) fn messages(tree: &SourceTree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in &tree.sources {
        let is_code = |(_, line): &(usize, &str)| !line.trim_start().starts_with("//");
        let code = source.production_lines().filter(is_code);
        violations.extend(forbidden_phrases(source, code));
    }
    violations
}

fn forbidden_phrases<'a>(
    source: &Source,
    lines: impl Iterator<Item = (usize, &'a str)>,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, line) in lines {
        for (phrase, advice) in phrases_in(line) {
            violations.push(violation(source, number, phrase, &format!("write instead: {advice}")));
        }
    }
    violations
}

/// The forbidden phrases of a text, each with what to write instead.
pub(super) fn phrases_in(text: &str) -> Vec<(&'static str, &'static str)> {
    let lower = text.to_lowercase();
    let phrases = FORBIDDEN_PHRASES.iter().copied();
    phrases.filter(|(phrase, _)| contains_phrase(&lower, phrase)).collect()
}

fn contains_phrase(line: &str, phrase: &str) -> bool {
    let is_letter = |character: Option<char>| character.is_some_and(char::is_alphabetic);
    line.match_indices(phrase).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        // A phrase that ends in a backtick goes on with any name.
        let after = (!phrase.ends_with('`')).then(|| line[start + phrase.len()..].chars().next());
        // A name in backticks is quoted, such as that of the user `nobody`.
        !is_letter(before) && !is_letter(after.flatten()) && before != Some('`')
    })
}

/// The first lines of doc comments that begin with a word of [`HEADLESS`].
fn headless_comments(source: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut previous = "";
    for (index, line) in source.text.lines().enumerate() {
        let line = line.trim_start();
        let text = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        if let Some(text) = text
            && !previous.starts_with("//")
            && HEADLESS.iter().any(|word| text.starts_with(word))
        {
            let first = text.split(' ').next().unwrap_or_default();
            violations.push(violation(
                source,
                index + 1,
                first,
                "open the comment with a noun or a verb",
            ));
        }
        previous = line;
    }
    violations
}
