//! Parses the text of a SKILL.md: the front matter, in the format of nanobot or of Agent Skills, and warnings about
//! problems.

use super::definition::{InertFields, Skill, SkillSource};
use super::front_matter::parse_lenient;
use super::requirements::{RequirementChecker, SkillRequirements};
use nanobot_os::terminal::sanitize;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The longest description that the public format allows, in characters.
pub const MAX_DESCRIPTION_CHARS: usize = 1024;
/// The longest name that the public format allows, in characters.
const MAX_NAME_CHARS: usize = 64;
/// The longest compatibility note that the public format allows, in characters.
const MAX_COMPATIBILITY_CHARS: usize = 500;

/// Parses a skill. The caller sets its location and source.
pub fn parse(name: &str, text: &str, checker: &RequirementChecker<'_>) -> Skill {
    let front_matter = parse_lenient(text);
    let mut warnings = front_matter.warnings;
    let mut field = FieldReader { fields: front_matter.fields, warnings: &mut warnings };
    let declared_name = field.text("name");
    let description = field.text("description");
    let always = field.boolean("always", false);
    let (metadata, own_metadata) = field.metadata();
    let always = always || is_true(&own_metadata["always"]);
    let is_offered = !field.boolean("disable-model-invocation", false);
    let inert_fields = InertFields {
        name: declared_name.clone(),
        license: field.text("license"),
        compatibility: field.text("compatibility"),
        allowed_tools: field.tools(),
        metadata,
        is_user_invocable: field.boolean("user-invocable", true),
    };
    warnings.extend(name_warning(declared_name.as_deref(), name));
    warnings.extend(description_warning(description.as_deref()));
    let compatibility = inert_fields.compatibility.as_deref().unwrap_or_default();
    if compatibility.chars().count() > MAX_COMPATIBILITY_CHARS {
        warnings.push(format!(
            "its `compatibility` is longer than {MAX_COMPATIBILITY_CHARS} characters"
        ));
    }
    let hidden = count_hidden_chars(front_matter.body);
    if hidden > 0 {
        warnings.push(format!("its text has invisible characters: {hidden}"));
    }
    let requirements = SkillRequirements::from_metadata(&own_metadata);
    Skill {
        name: name.to_owned(),
        description: description.unwrap_or_else(|| name.to_owned()),
        location: PathBuf::new(),
        source: SkillSource::BuiltIn,
        always,
        is_offered,
        unmet_requirements: requirements.unmet(checker),
        requirements,
        inert_fields,
        body: front_matter.body.trim().to_owned().into(),
        warnings,
        is_broken: front_matter.is_broken,
    }
}

/// True if a folder of that name may be a skill: the name must be displayed exactly.
pub fn is_displayable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && !name.contains(['\n', '\t', '/'])
        && count_hidden_chars(name) == 0
}

/// True if the public format allows the name: lower-case letters, digits, and single hyphens between them.
pub fn is_valid_name(name: &str) -> bool {
    let is_letter = |letter: char| {
        letter == '-' || letter.is_numeric() || (letter.is_alphabetic() && !letter.is_uppercase())
    };
    (1..=MAX_NAME_CHARS).contains(&name.chars().count())
        && name.chars().all(is_letter)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

/// Counts the characters of `text` that are invisible or control a terminal.
pub fn count_hidden_chars(text: &str) -> usize {
    // Fast path: most texts are plain, and every run reads some. A chunk is checked without branches, so that the
    // compiler can compare many bytes at once.
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    let are_plain = |chunk: &[u8]| chunk.iter().fold(true, |all, byte| all & is_plain(byte));
    if text.as_bytes().chunks(64).all(are_plain) {
        return 0;
    }
    let count_escapes = |text: &str| text.matches("\\u{").count();
    count_escapes(&sanitize(text)) - count_escapes(text)
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(value) => *value,
        Value::String(text) => ["true", "yes", "on"].contains(&text.to_lowercase().as_str()),
        _ => false,
    }
}

fn is_false(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => ["false", "no", "off", ""].contains(&text.to_lowercase().as_str()),
        _ => false,
    }
}

fn name_warning(declared: Option<&str>, name: &str) -> Option<String> {
    match declared {
        Some(declared) if declared != name => Some(format!(
            "its front matter has `name: {declared}`, but its directory is `{name}`, which is used"
        )),
        _ if !is_valid_name(name) => Some(format!(
            "its name is not valid in other programs: lower-case letters, digits and single hyphens, at most \
             {MAX_NAME_CHARS} characters"
        )),
        _ => None,
    }
}

fn description_warning(description: Option<&str>) -> Option<String> {
    let Some(description) = description else {
        return Some("it has no `description`, which tells the model when to use it".into());
    };
    let hidden = count_hidden_chars(description);
    if hidden > 0 {
        return Some(format!("its description has invisible characters: {hidden}"));
    }
    let chars = description.chars().count();
    (chars > MAX_DESCRIPTION_CHARS).then(|| {
        format!(
            "its description has {chars} characters; other programs allow {MAX_DESCRIPTION_CHARS}"
        )
    })
}

/// The fields of the front matter, with values of any type.
struct FieldReader<'a> {
    fields: Map<String, Value>,
    warnings: &'a mut Vec<String>,
}

impl FieldReader<'_> {
    fn get(&self, key: &str) -> &Value {
        self.fields.get(key).unwrap_or(&Value::Null)
    }

    /// Returns a text field; `None` if it is missing or empty.
    fn text(&mut self, key: &str) -> Option<String> {
        let text = match self.get(key) {
            Value::Null => return None,
            Value::String(text) => text.trim().to_owned(),
            // Values such as `version: 1` were meant as text.
            value @ (Value::Bool(_) | Value::Number(_)) => value.to_string(),
            Value::Array(_) | Value::Object(_) => {
                self.warnings.push(format!("`{key}` is not a string and is ignored"));
                return None;
            }
        };
        (!text.is_empty()).then_some(text)
    }

    fn boolean(&mut self, key: &str, default: bool) -> bool {
        let value = self.get(key).clone();
        if !self.fields.contains_key(key) {
            return default;
        }
        if !is_true(&value) && !is_false(&value) {
            self.warnings.push(format!("`{key}` is neither true nor false and is read as false"));
        } else if value.is_string() && is_false(&value) {
            self.warnings.push(format!("`{key}` is the string {value}, which is read as false; the Python program reads it as true"));
        }
        is_true(&value)
    }

    /// Returns the metadata, a map or a map as JSON text, and the part of it that is meant for nanobot.
    fn metadata(&mut self) -> (Value, Value) {
        let metadata = match self.get("metadata") {
            Value::String(text) if text.trim().is_empty() => Value::Null,
            Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| {
                self.warnings
                    .push("`metadata` is neither a map nor a JSON object and is ignored".into());
                Value::Null
            }),
            other => other.clone(),
        };
        let object = |key: &str| metadata.get(key).filter(|value| value.is_object()).cloned();
        let own = object("nanobot").or_else(|| object("openclaw"));
        (metadata, own.unwrap_or(Value::Null))
    }

    /// Returns the intended tools: a list, or names separated by spaces or commas, some with a rule in parentheses.
    fn tools(&mut self) -> Vec<String> {
        match self.get("allowed-tools") {
            Value::Null => Vec::new(),
            Value::String(text) => split_tools(text),
            Value::Array(items) => {
                items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => {
                self.warnings
                    .push("`allowed-tools` is neither a string nor a list and is ignored".into());
                Vec::new()
            }
        }
    }
}

/// Splits `text` at spaces and commas, except within parentheses.
fn split_tools(text: &str) -> Vec<String> {
    let mut tools = Vec::new();
    let mut tool = String::new();
    let mut depth = 0_usize;
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (letter.is_whitespace() || letter == ',') {
            tools.push(std::mem::take(&mut tool));
        } else {
            tool.push(letter);
        }
    }
    tools.push(tool);
    tools.retain(|tool| !tool.is_empty());
    tools
}

#[cfg(test)]
mod tests {
    use super::{count_hidden_chars, is_valid_name, parse, split_tools};
    use crate::skill::{RequirementChecker, Skill};
    use nanobot_os::env::Env;

    pub(in crate::skill) fn skill(text: &str) -> Skill {
        let env: Env = [("PATH", "/usr/bin:/bin"), ("SET", "1")].into_iter().collect();
        parse("x", text, &RequirementChecker::new(&env))
    }

    #[test]
    fn all_front_matter_forms_are_read() {
        let check = |text: &str, description: &str, always: bool, missing: &[&str], body: &str| {
            let skill = skill(text);
            assert_eq!(skill.description, description, "{text:?}");
            assert_eq!((skill.always, &*skill.body), (always, body), "{text:?}");
            assert_eq!(skill.unmet_requirements, missing, "{text:?}");
        };
        check("no head", "x", false, &[], "no head");
        check("---\ndescription: does it\n---\n\nbody\n", "does it", false, &[], "body");
        check(
            "---\r\ndescription: \"does it\"\r\nalways: true\r\n---\r\nbody",
            "does it",
            true,
            &[],
            "body",
        );
        check(
            "---\ndescription: >\n  two\n  lines\nalways: false\n---\nbody",
            "two lines",
            false,
            &[],
            "body",
        );
        check(
            "---\ndescription: Use when: asked\nalways: yes\n---\nb",
            "Use when: asked",
            true,
            &[],
            "b",
        );
        check("---\ndescription: null\nmetadata: null\n---\nb", "x", false, &[], "b");
        let json =
            r#"{"nanobot": {"requires": {"bins": ["sh", "nope"], "env": ["SET", "UNSET"]}}}"#;
        let missing = ["CLI: nope", "ENV: UNSET"];
        check(&format!("---\nmetadata: '{json}'\n---\nb"), "x", false, &missing, "b");
        check(&format!("---\nmetadata: {json}\n---\nb"), "x", false, &missing, "b");
        check(
            "---\nmetadata:\n  openclaw:\n    always: true\n    requires: null\n---\nb",
            "x",
            true,
            &[],
            "b",
        );
        check("---\nnever ends", "x", false, &[], "---\nnever ends");
        check("---\n---\nb", "x", false, &[], "b");
    }

    #[test]
    fn problems_become_warnings() {
        let check = |head: &str, warning: &str| {
            let warnings = skill(&format!("---\n{head}\n---\nb")).warnings.join("; ");
            assert!(warnings.contains(warning), "{head:?}: {warnings}");
            assert_eq!(warnings.is_empty(), warning.is_empty(), "{head:?}: {warnings}");
        };
        check("name: x\ndescription: d", "");
        check("description: d", "");
        check("name: y\ndescription: d", "its front matter has `name: y`");
        check("name: x", "no `description`");
        check("description: [a, b]", "`description` is not a string");
        check(&format!("description: {}", "a".repeat(1025)), "1025 characters");
        check("description: \"a\\u200bb\"", "invisible characters: 1");
        check("description: d\nalways: \"false\"", "read as false");
        check("description: d\nalways: 7", "neither true nor false");
        check("description: d\nmetadata: \"{\"", "neither a map nor a JSON object");
        check("description: d\nallowed-tools: 7", "neither a string nor a list");
        check("description: d: e", "put it in quotes");
        let warnings = skill("---\ndescription: d\n---\npay\u{200b}pal").warnings;
        assert_eq!(warnings, ["its text has invisible characters: 1"]);
    }

    #[test]
    fn the_public_format_is_supported() {
        let text = "---\nname: x\ndescription: d\nlicense: MIT\ncompatibility: needs git\nallowed-tools: Bash(git add:*) Read\n\
                    metadata:\n  author: a\n  version: \"1.0\"\ndisable-model-invocation: true\nuser-invocable: true\n---\nb";
        let full_skill = skill(text);
        assert_eq!(full_skill.warnings, [""; 0]);
        assert_eq!(full_skill.inert_fields.license.as_deref(), Some("MIT"));
        assert_eq!(full_skill.inert_fields.compatibility.as_deref(), Some("needs git"));
        assert_eq!(full_skill.inert_fields.allowed_tools, ["Bash(git add:*)", "Read"]);
        assert_eq!(full_skill.inert_fields.metadata["version"], "1.0");
        assert!(!full_skill.is_offered);
        let list_skill = skill("---\ndescription: d\nallowed-tools:\n  - Read\n  - Write\n---\n");
        assert_eq!(list_skill.inert_fields.allowed_tools, ["Read", "Write"]);
        assert_eq!(split_tools("A, B(c, d) ,E)"), ["A", "B(c, d)", "E)"]);
    }

    #[test]
    fn names_follow_the_public_format() {
        for name in ["a", "pdf-tools", "x2", "übung", "日本"] {
            assert!(is_valid_name(name), "{name}");
        }
        for name in [
            "",
            "A",
            "-a",
            "a-",
            "a--b",
            "a_b",
            "a.b",
            "../a",
            "a/b",
            "a b",
            "a\u{200b}b",
            "\u{1b}",
        ] {
            assert!(!is_valid_name(name), "{name:?}");
        }
        assert!(is_valid_name(&"a".repeat(64)) && !is_valid_name(&"a".repeat(65)));
    }

    #[test]
    fn a_hidden_character_is_found_anywhere() {
        let plain = "plain text,\tin lines\n".repeat(7);
        assert_eq!(count_hidden_chars(&plain), 0);
        for at in 0..plain.len() {
            for hidden in ['\u{1b}', '\u{200b}', '\u{7f}'] {
                let mut text = plain.clone();
                text.insert(at, hidden);
                assert_eq!(count_hidden_chars(&text), 1, "{at} {hidden:?}");
            }
        }
    }

    #[test]
    fn nested_aliases_are_rejected() {
        let mut head = String::from("a0: &a0 [x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let below = format!("*a{}, ", level - 1).repeat(8);
            head.push_str(&format!("a{level}: &a{level} [{below}]\n"));
        }
        let skill = skill(&format!("---\ndescription: d\n{head}---\nbody"));
        assert!(skill.is_broken && !skill.warnings.is_empty(), "it was read as YAML");
        assert_eq!((skill.description.as_str(), &*skill.body), ("d", "body"));
    }

    #[test]
    fn fuzz_any_skill_is_read() {
        let seeds: &[&[u8]] = &[
            b"---\nname: x\ndescription: Does: things\nalways: true\nmetadata: {\"nanobot\": {\"requires\": {\"bins\": [\"gh\"], \"env\": [\"KEY\"]}}}\n---\n# X\n",
            b"---\r\ndescription: >\r\n  folded\r\n  text\r\nmetadata:\r\n  openclaw:\r\n    always: yes\r\n---\r\nbody",
            b"---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n---\n",
            b"---\nallowed-tools: A(b c), D\nx:\n\ty: z\n---\n",
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let skill = skill(&nanobot_base::fuzz::lossy_text(input));
            assert!(!skill.description.is_empty());
            crate::skill::render_list(&[skill], 2_000);
        });
    }
}
