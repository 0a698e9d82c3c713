//! The spellings of keys and names: camelCase in the file, snake_case in values, and paths with dots between the names.
//! No I/O.

use serde_json::{Deserializer, Value};

/// Parses a path: names with dots between them. A name that contains a dot is a JSON string, as in TOML:
/// `models."gpt-4.1".price`. `None` if a quoted name does not end.
pub fn parse_path(spelling: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = spelling;
    loop {
        let (name, after) = if rest.starts_with('"') {
            parse_quoted_name(rest)?
        } else {
            let (name, after) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
            (name.to_owned(), after)
        };
        names.push(name);
        match after.strip_prefix('.') {
            Some(remaining) => rest = remaining,
            None => return after.is_empty().then_some(names),
        }
    }
}

/// Splits the JSON string off that `text` begins with.
fn parse_quoted_name(text: &str) -> Option<(String, &str)> {
    let mut values = Deserializer::from_str(text).into_iter::<String>();
    let name = values.next()?.ok()?;
    Some((name, text.get(values.byte_offset()..)?))
}

/// Spells a path so that [`parse_path`] finds the same names in it.
pub fn format_path(path: &[impl AsRef<str>]) -> String {
    let names = path.iter().map(|name| match name.as_ref() {
        name if name.contains('.') || name.starts_with('"') => Value::from(name).to_string(),
        name => name.to_owned(),
    });
    names.collect::<Vec<_>>().join(".")
}

/// Maximum number of names in a path in which [`join_names`] searches: more than in any key.
const MAX_NAMES: usize = 16;

/// Returns the first path that satisfies `is_key` after neighbouring names of `path` are joined by dots into one name.
pub fn join_names(path: &[String], is_key: impl Fn(&[String]) -> bool) -> Option<Vec<String>> {
    let count = path.len();
    if count > MAX_NAMES {
        return None;
    }
    let ranges = (0..count).flat_map(|start| (start + 2..=count).map(move |end| (start, end)));
    let join = |(start, end): (usize, usize)| -> Vec<String> {
        let name = path[start..end].join(".");
        let (before, after) = (path[..start].iter(), path[end..].iter());
        before.chain([&name]).chain(after).cloned().collect()
    };
    ranges.map(join).find(|path| is_key(path))
}

/// Converts `max_tokens` to `maxTokens`. A name without underscores is unchanged.
pub fn camel_case(name: &str) -> String {
    let mut parts = name.split('_').filter(|part| !part.is_empty());
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Converts `openaiCodex` to `openai_codex`, the form of provider names in values.
pub fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 2);
    for letter in name.chars() {
        if letter.is_uppercase() {
            if !snake.is_empty() && !snake.ends_with('_') {
                snake.push('_');
            }
            snake.extend(letter.to_lowercase());
        } else {
            snake.push(if letter == '-' { '_' } else { letter });
        }
    }
    snake
}

/// True if two names of providers are the same: case and punctuation do not count, as in the table of providers.
pub fn is_same_provider(a: &str, b: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = u8> {
        let bytes = name.bytes().filter(u8::is_ascii_alphanumeric);
        bytes.map(|byte| byte.to_ascii_lowercase())
    }
    letters(a).eq(letters(b))
}

/// The name in `names` of the provider `name`, or else `name`.
pub(super) fn find_provider_name<'n>(
    mut names: impl Iterator<Item = &'n String>,
    name: &str,
) -> String {
    names.find(|other| is_same_provider(other, name)).map_or_else(|| name.to_owned(), String::clone)
}

#[cfg(test)]
mod tests {
    use super::{format_path, join_names, parse_path};

    #[test]
    fn names_with_dots_are_quoted() {
        let check = |spelling: &str, expect: &[&str]| {
            assert_eq!(parse_path(spelling).unwrap(), expect, "{spelling}");
            assert_eq!(format_path(expect), spelling);
        };
        check("a", &["a"]);
        check("a.b c.D-e", &["a", "b c", "D-e"]);
        check("models.\"gpt-4.1\".price", &["models", "gpt-4.1", "price"]);
        check("\"a.b\".\"c.d\"", &["a.b", "c.d"]);
        check("a.\"\\\"b.c\\\\\"", &["a", "\"b.c\\"]);
        check("a.b\"c", &["a", "b\"c"]);
        check("a..b", &["a", "", "b"]);
        check("", &[""]);
        assert_eq!(parse_path("a.\"b\"").unwrap(), ["a", "b"]);
        for spelling in ["\"", "a.\"b", "a.\"b\"c", "a.\"b\" .c", "\"\\x\""] {
            assert_eq!(parse_path(spelling), None, "{spelling}");
        }
    }

    #[test]
    fn neighbouring_names_are_joined() {
        let check = |path: &str, expect: Option<&str>| {
            let path = parse_path(path).unwrap();
            let is_key = |path: &[String]| matches!(path, [a, b, c] if a == "a" && c == "c" && b.contains('.'));
            let joined = join_names(&path, is_key).map(|path| format_path(&path));
            assert_eq!(joined.as_deref(), expect);
        };
        check("a.x.y.c", Some("a.\"x.y\".c"));
        check("a.x.y.z.c", Some("a.\"x.y.z\".c"));
        check("a.x.c", None);
        check("b.x.y.c", None);
        check(&format!("a.{}c", "x.".repeat(50_000)), None);
    }

    #[test]
    fn fuzz_a_parsed_path_is_spelled_so_that_it_is_parsed_again() {
        let seeds: &[&[u8]] = &[b"models.\"gpt-4.1\".price", b"a.\"\\\"b\".c", b"a..b\"c"];
        nanobot_base::fuzz::check(seeds, |input, _| {
            if let Some(path) = parse_path(&nanobot_base::fuzz::lossy_text(input)) {
                assert_eq!(parse_path(&format_path(&path)), Some(path));
            }
        });
    }
}
