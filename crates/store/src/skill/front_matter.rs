//! Front matter: `key: value` lines between two `---` lines, followed by the body. Skills and profiles have the same
//! format.
//!
//! The front matter of a profile is parsed strictly, because it decides what a run may do. The front matter of a skill is parsed leniently,
//! because many published skills are not quite valid YAML.

use serde_json::{Map, Value};

/// The longest front matter, in bytes. Longer text is not treated as front matter.
const MAX_BYTES: usize = 64 << 10;

/// Front matter, as far as it could be read, and the body below it.
#[derive(Debug)]
pub(super) struct FrontMatter<'a> {
    pub(super) fields: Map<String, Value>,
    /// The body, byte for byte.
    pub(super) body: &'a str,
    pub(super) warnings: Vec<String>,
    /// A part of the front matter could not be read.
    pub(super) is_broken: bool,
}

/// The texts that YAML parsing accepts as booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BooleanSyntax {
    /// Also `yes`, `on`, `y` and similar, as in YAML 1.1.
    Yaml11,
    /// Only `true` and `false`: a name may be `y`.
    TrueFalseOnly,
}

/// Parses front matter as YAML. Front matter needs few nodes; the small budget prevents exponential growth by nested
/// aliases.
fn parse_yaml(head: &str, booleans: BooleanSyntax) -> Result<Value, serde_saphyr::Error> {
    let budget = serde_saphyr::budget! {
        max_nodes: 2_000,
        max_events: 10_000,
        max_aliases: 20,
        max_anchors: 20,
        max_depth: 20,
    };
    serde_saphyr::from_str_with_options(
        head,
        serde_saphyr::options! { budget: budget, strict_booleans: booleans == BooleanSyntax::TrueFalseOnly },
    )
}

/// Parses a file into its front matter, which is a JSON object, and its body. If the file has any `---` line, it must begin
/// with complete front matter, so that a damaged one is never missed.
///
/// # Errors
/// A message for the user: the front matter has no start or no end, is too long, is invalid YAML, or has no keys.
pub fn parse_strict(text: &str) -> Result<(Value, String), String> {
    parse_complete(text, BooleanSyntax::Yaml11)
}

/// Like [`parse_strict`], but `y`, `no`, `on` and the like are texts: names may be such words.
///
/// # Errors
/// The errors of [`parse_strict`].
pub fn parse_strict_names(text: &str) -> Result<(Value, String), String> {
    parse_complete(text, BooleanSyntax::TrueFalseOnly)
}

fn parse_complete(text: &str, booleans: BooleanSyntax) -> Result<(Value, String), String> {
    let text = text.replace("\r\n", "\n");
    let text = text.trim_start_matches('\u{feff}');
    let delimiters = text.lines().filter(|line| line.trim() == "---").count();
    let begins_with_one = text.starts_with("---\n") || text == "---";
    if delimiters == 0 {
        return Ok((Value::Object(Map::new()), text.to_owned()));
    }
    if !begins_with_one {
        return Err(
            "it has a line `---` but does not begin with one; front matter is enclosed by two lines `---`, the first of which must be the first line of the file, without spaces"
                .into(),
        );
    }
    if delimiters == 1 {
        return Err("its front matter has no closing line `---`".into());
    }
    // Front matter that cannot be split off is never treated as body text.
    let Some((head, body)) = split_front_matter(text) else {
        return Err(format!(
            "its front matter is longer than {MAX_BYTES} bytes, or its closing line `---` is indented"
        ));
    };
    let head = if head.lines().all(is_empty_or_comment) {
        Value::Null
    } else {
        parse_yaml(head, booleans)
            .map_err(|error| format!("its front matter is not valid YAML: {error}"))?
    };
    let fields = match head {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        _ => return Err("its front matter is not a list of `key: value` lines".into()),
    };
    Ok((Value::Object(fields), body.to_owned()))
}

/// Parses the front matter of `text` as far as possible.
pub(super) fn parse_lenient(text: &str) -> FrontMatter<'_> {
    let mut warnings = Vec::new();
    let unmarked = text.trim_start_matches('\u{feff}');
    if unmarked.len() < text.len() {
        warnings
            .push("it begins with a byte order mark, which other programs may not accept".into());
    }
    let begin = unmarked.trim_start();
    let (head, body) = match (split_front_matter(unmarked), split_front_matter(begin)) {
        (Some(parts), _) => parts,
        (None, Some(parts)) => {
            warnings.push(
                "the opening line `---` of its front matter is not the first line, or is indented"
                    .into(),
            );
            parts
        }
        (None, None) => {
            let is_begun = begin.lines().next().is_some_and(|line| line.trim_end() == "---");
            warnings.push(if is_begun {
                format!("its front matter has no closing line `---`, or is longer than {MAX_BYTES} bytes")
            } else {
                "it has no front matter: `name: …` and `description: …` between two lines `---`".into()
            });
            return FrontMatter {
                fields: Map::new(),
                body: unmarked,
                warnings,
                is_broken: is_begun,
            };
        }
    };
    if head.contains('\r') {
        warnings.push("its lines end in CRLF, which other programs may not accept".into());
    }
    let head = head.replace("\r\n", "\n");
    let mut lenient = FrontMatter { fields: Map::new(), body, warnings, is_broken: false };
    match parse_yaml(&head, BooleanSyntax::TrueFalseOnly) {
        Ok(Value::Object(fields)) => lenient.fields = fields,
        Ok(Value::Null) => {}
        Ok(_) => {
            lenient.warnings.push("its front matter is not a list of `key: value` lines".into());
        }
        Err(_) => lenient.parse_fields(&head),
    }
    lenient
}

impl FrontMatter<'_> {
    /// Parses invalid YAML key by key. A malformed value does not affect the other keys.
    fn parse_fields(&mut self, head: &str) {
        let head = if head.contains('\t') {
            self.warnings
                .push("its front matter is indented with tabs, which YAML does not allow".into());
            head.replace('\t', "  ")
        } else {
            head.to_owned()
        };
        let mut lines_before_keys = head.lines().take_while(|line| leading_key(line).is_none());
        if !lines_before_keys.all(is_empty_or_comment) {
            self.warnings
                .push("the lines of its front matter before the first `key:` are ignored".into());
            self.is_broken = true;
        }
        for RawField { key, text, source } in RawField::split(&head) {
            let valid = match parse_yaml(source, BooleanSyntax::TrueFalseOnly) {
                Ok(Value::Object(fields)) => fields.into_iter().next().map(|(_, value)| value),
                _ => None,
            };
            let Some(value) = valid.or_else(|| self.parse_plain_text(key, text)) else {
                continue;
            };
            if self.fields.insert(key.to_owned(), value).is_some() {
                self.warnings.push(format!("duplicate key `{key}`; the last value is used"));
            }
        }
    }

    /// Reads the value of `key`, which is not valid YAML, as plain text. Adds a warning.
    fn parse_plain_text(&mut self, key: &str, text: &str) -> Option<Value> {
        let value = to_plain_text(text);
        self.warnings.push(if value.is_some() {
            format!("the value of `{key}` is not valid YAML and was read as plain text: put it in quotes")
        } else {
            format!("the value of `{key}` is not valid YAML and is ignored")
        });
        self.is_broken |= value.is_none();
        value
    }
}

/// A top-level key of the front matter, with the lines that belong to it.
struct RawField<'a> {
    key: &'a str,
    /// The text after the key, including the following lines.
    text: &'a str,
    source: &'a str,
}

impl<'a> RawField<'a> {
    fn split(head: &'a str) -> Vec<Self> {
        let mut starts = Vec::new();
        let mut offset = 0;
        for line in head.split_inclusive('\n') {
            if leading_key(line).is_some() {
                starts.push(offset);
            }
            offset += line.len();
        }
        let ends = starts.iter().skip(1).copied().chain([head.len()]);
        let field = |(start, end): (&usize, usize)| {
            let source = &head[*start..end];
            let key = leading_key(source)?;
            Some(Self { key, text: &source[key.len() + 1..], source })
        };
        starts.iter().zip(ends).filter_map(field).collect()
    }
}

/// Returns the top-level key at the start of a line, if there is one.
fn leading_key(line: &str) -> Option<&str> {
    let (key, rest) = line.split_once(':')?;
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_end = rest.is_empty() || rest.starts_with([' ', '\n']);
    (is_end && !key.is_empty() && key.bytes().all(is_key)).then_some(key)
}

/// True if a line of YAML has no content.
fn is_empty_or_comment(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// Treats invalid YAML as plain text and joins its lines; `None` if it appears to be some other YAML construct.
fn to_plain_text(text: &str) -> Option<Value> {
    let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    if text.starts_with(['|', '>', '[', '&', '*', '!']) {
        return None;
    }
    let unquoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    let text = unquoted('"').or_else(|| unquoted('\'')).unwrap_or(&text);
    (!text.is_empty()).then(|| Value::String(text.to_owned()))
}

/// Splits a text into the front matter between `---` lines and the rest.
fn split_front_matter(text: &str) -> Option<(&str, &str)> {
    let (first, rest) = text.split_once('\n')?;
    if first.trim_end() != "---" {
        return None;
    }
    let mut offset = 0;
    for line in rest.split_inclusive('\n') {
        if offset > MAX_BYTES {
            return None;
        }
        if line.strip_prefix("---").is_some_and(|rest| rest.trim().is_empty()) {
            return Some((&rest[..offset], &rest[offset + line.len()..]));
        }
        offset += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{parse_lenient, parse_strict};
    use serde_json::{Value, json};

    #[test]
    fn strict_front_matter_is_complete_or_rejected() {
        let check = |text: &str, expect: Result<&str, &str>| match (parse_strict(text), expect) {
            (Ok((head, _)), Ok(shown)) => assert_eq!(head.to_string(), shown, "{text:?}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{text:?}: {error}"),
            (front_matter, _) => panic!("{text:?}: {front_matter:?}"),
        };
        check("", Ok("{}"));
        check("Be brief.\n", Ok("{}"));
        check("---\n---\nBe brief.\n", Ok("{}"));
        check("---\n# a: b\n---\nBe brief.\n", Ok("{}"));
        check("---\na: b\n---\n", Ok(r#"{"a":"b"}"#));
        check("\u{feff}---\r\na: b\r\n---\r\n", Ok(r#"{"a":"b"}"#));
        check("---\na: b\n--- \nx", Ok(r#"{"a":"b"}"#));
        check("\n---\na: b\n---\n", Err("does not begin"));
        check("--- \na: b\n---\n", Err("does not begin"));
        check(" ---\na: b\n---\n", Err("does not begin"));
        check("a: b\n---\n", Err("does not begin"));
        check("---\na: b\n", Err("no closing line"));
        check("---", Err("no closing line"));
        check("---\na: b\n ---\n", Err("indented"));
        check("---\na: [\n---\n", Err("not valid YAML"));
        check("---\n- a\n---\n", Err("not a list of"));
        check("---\na\n---\n", Err("not a list of"));
    }

    #[test]
    fn invalid_yaml_is_read_key_by_key() {
        let check = |head: &str, expect: Value, warning: &str, is_broken: bool| {
            let text = format!("---\n{head}\n---\nbody\n");
            let front_matter = parse_lenient(&text);
            let warnings = front_matter.warnings.join("; ");
            assert_eq!(Value::Object(front_matter.fields), expect, "{head:?}: {warnings}");
            assert!(warnings.contains(warning), "{head:?}: {warnings}");
            assert_eq!(warnings.is_empty(), warning.is_empty(), "{head:?}: {warnings}");
            assert_eq!((front_matter.body, front_matter.is_broken), ("body\n", is_broken));
        };
        check("a: b", json!({ "a": "b" }), "", false);
        check("a: 'b: c'\nd: 1.0", json!({ "a": "b: c", "d": 1.0 }), "", false);
        check("a: >\n  one\n  two", json!({ "a": "one two\n" }), "", false);
        check(
            "a: Use when: asked\nb: [x]",
            json!({ "a": "Use when: asked", "b": ["x"] }),
            "`a` is not valid YAML",
            false,
        );
        check(
            "a: one: two\n  three: four\nb: c",
            json!({ "a": "one: two three: four", "b": "c" }),
            "`a`",
            false,
        );
        check(
            "a: b\nm:\n\tnanobot: {}",
            json!({ "a": "b", "m": { "nanobot": {} } }),
            "tabs",
            false,
        );
        check("a: 1\na: 2", json!({ "a": 2 }), "duplicate", false);
        check("a: b\nc: [x", json!({ "a": "b" }), "`c` is not valid YAML and is ignored", true);
        check("- a\n- b", json!({}), "not a list of", false);
        check("# a\n\nb: c: d", json!({ "b": "c: d" }), "`b` is not valid YAML", false);
        check("a b: c: d\ne: f", json!({ "e": "f" }), "before the first `key:`", true);
        check("a b: c: d", json!({}), "before the first `key:`", true);
    }

    #[test]
    fn line_ending_and_delimiter_problems_are_reported() {
        let check = |text: &str, warning: &str, body: &str| {
            let front_matter = parse_lenient(text);
            let warnings = front_matter.warnings.join("; ");
            assert!(warnings.contains(warning) && !warnings.is_empty(), "{text:?}: {warnings}");
            assert_eq!(front_matter.body, body, "{text:?}");
        };
        check("\u{feff}---\na: b\n---\nx", "byte order mark", "x");
        check("---\r\na: b\r\n---\r\nx\r\n", "CRLF", "x\r\n");
        check("\n---\na: b\n---\nx", "not the first", "x");
        check(" ---\na: b\n---\nx", "is indented", "x");
        check("---\na: b\n", "no closing line", "---\na: b\n");
        check("x\n", "no front matter", "x\n");
    }
}
