//! What a workspace can teach: skills, each a folder with a SKILL.md; found, read, their needs looked at, summarised.

use crate::sys::env::Env;
use serde_json::Value;
use std::fmt::Write;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Skills that come with the program.
pub const BUILT_IN: &[(&str, &str)] = &[("memory", include_str!("memory.md"))];

/// The longest head of a skill that is read; what is longer is none.
const HEAD_LIMIT: usize = 64 << 10;

/// The longest SKILL.md that is read: more than any model should be taught at once.
const TEXT_LIMIT: u64 = 1 << 20;

/// A skill.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Skill {
    pub name: String,
    pub description: String,
    /// Where a model reads it; for a built-in one, where the workspace would have it.
    pub location: PathBuf,
    /// It is part of every system text.
    pub always: bool,
    /// What it needs and does not find, as `CLI: gh`.
    pub missing: Vec<String>,
    /// The text below the head.
    pub body: String,
}

/// All skills, by name: those of the workspace, of `further` folders of skills that it does not hide, and the built-in ones
/// that neither hides. Those in `disabled` are left out.
pub fn find(
    workspace: &Path,
    further: &[PathBuf],
    disabled: &[String],
    env: &Env,
    notices: &mut Vec<String>,
) -> Vec<Skill> {
    let dir = workspace.join("skills");
    let mut texts: Vec<(String, String, PathBuf)> = Vec::new();
    let mut add = |name: String, text: String, dir: &Path| {
        if !texts.iter().any(|(known, ..)| *known == name) {
            let location = dir.join(&name).join("SKILL.md");
            texts.push((name, text, location));
        }
    };
    for dir in std::iter::once(&dir).chain(further) {
        for (name, text) in written(dir, notices) {
            add(name, text, dir);
        }
    }
    for (name, text) in BUILT_IN {
        add((*name).to_owned(), (*text).to_owned(), &dir);
    }
    texts.retain(|(name, ..)| !disabled.contains(name));
    texts.sort();
    let has_program = |program: &str| is_on_path(program, env.get("PATH").unwrap_or_default());
    let is_set = |variable: &str| env.get(variable).is_some();
    let skill = |(name, text, location): (String, String, PathBuf)| {
        let (skill, notice) = parse(&name, &text, location, &has_program, &is_set);
        notices.extend(notice.map(|notice| format!("skill `{name}`: {notice}")));
        skill
    };
    texts.into_iter().map(skill).collect()
}

/// Name and text of each skill in the workspace. What cannot be read is a notice and hides no other.
fn written(dir: &Path, notices: &mut Vec<String>) -> Vec<(String, String)> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            notices.push(format!("skills in `{}`: {error}", dir.display()));
            return Vec::new();
        }
    };
    let mut texts = Vec::new();
    for entry in entries {
        let read = entry.map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, text_of(&entry.path().join("SKILL.md")))
        });
        match read {
            Ok((name, Ok(text))) => texts.extend(text.map(|text| (name, text))),
            Ok((name, Err(error))) => notices.push(format!("skill `{name}`: {error}")),
            Err(error) => notices.push(format!("skills in `{}`: {error}", dir.display())),
        }
    }
    texts
}

/// The text of a SKILL.md; `None` where there is none.
fn text_of(path: &Path) -> std::io::Result<Option<String>> {
    let is_file = match path.metadata() {
        Ok(metadata) => metadata.is_file(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // Opening a named pipe would wait for its other end.
    if !is_file {
        return Err(std::io::Error::other("SKILL.md is not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(TEXT_LIMIT + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TEXT_LIMIT {
        return Err(std::io::Error::other("SKILL.md has more than 1 MiB"));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Whether `program` can be run from a directory of `path`.
pub fn is_on_path(program: &str, path: &str) -> bool {
    path.split(':').filter(|dir| !dir.is_empty()).any(|dir| {
        let found = Path::new(dir).join(program).metadata();
        found.is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    })
}

/// The head as YAML. A head needs few nodes; the small budget keeps aliases of aliases from growing into millions.
fn yaml(head: &str) -> Result<Value, serde_saphyr::Error> {
    let budget = serde_saphyr::budget! {
        max_nodes: 2_000,
        max_events: 10_000,
        max_aliases: 20,
        max_anchors: 20,
        max_depth: 20,
    };
    serde_saphyr::from_str_with_options(head, serde_saphyr::options! { budget: budget })
}

/// A head as a value. Most are a few plain lines, and need no YAML to be read.
/// The head of a file as `key: value`, and the text below it. A profile's file has the same form as a skill's.
///
/// # Errors
/// In words: the head is no YAML.
pub fn head_and_body(text: &str) -> Result<(Value, String), String> {
    let text = text.replace("\r\n", "\n");
    let (head, body) = split(text.trim_start_matches('\u{feff}'));
    let head = match head.trim().is_empty() {
        true => Value::Object(serde_json::Map::new()),
        false => yaml_of(head).map_err(|error| format!("its head is no YAML: {error}"))?,
    };
    Ok((head, body.to_owned()))
}

/// As [`head_and_body`], for a file whose head must not be missed: one that has a line `---` begins with a whole head.
///
/// # Errors
/// In words: the head does not begin, does not end, is too long, or is no YAML.
pub fn strict_head_and_body(text: &str) -> Result<(Value, String), String> {
    let plain = text.replace("\r\n", "\n");
    let plain = plain.trim_start_matches('\u{feff}');
    let is_mark = |line: &str| line.trim() == "---";
    let marks = plain.lines().filter(|line| is_mark(line)).count();
    let begins = plain.starts_with("---\n") || plain == "---";
    match (marks, begins) {
        (0, _) => return Ok((Value::Object(serde_json::Map::new()), plain.to_owned())),
        (_, false) => {
            return Err(
                "it has a line `---` and does not begin with one; a head stands between two lines `---`, of which the first \
                 is the first line of the file, with nothing before it or after it"
                    .into(),
            );
        }
        (1, true) => return Err("its head lacks the line `---` that ends it".into()),
        _ => {}
    }
    // A whole head is never taken for text.
    if split(plain).1.len() == plain.len() {
        return Err(format!(
            "its head is longer than {HEAD_LIMIT} bytes, or its last line `---` is indented"
        ));
    }
    head_and_body(plain)
}

fn yaml_of(head: &str) -> Result<Value, serde_saphyr::Error> {
    match head.lines().all(is_plain) {
        true => Ok(by_lines(head)),
        false => yaml(head),
    }
}

/// Whether a line is a key and a text that YAML would read as it stands.
fn is_plain(line: &str) -> bool {
    let Some((key, text)) = line.split_once(": ") else {
        return false;
    };
    let typed = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" ,.;()/_-".contains(&byte);
    (1..=64).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_lowercase())
        && text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text.bytes().all(plain)
        && !text.ends_with(' ')
        && (key == "always" || !typed.contains(&text.to_lowercase().as_str()))
}

/// Read a skill from its text.
fn parse(
    name: &str,
    text: &str,
    location: PathBuf,
    has_program: &dyn Fn(&str) -> bool,
    is_set: &dyn Fn(&str) -> bool,
) -> (Skill, Option<String>) {
    let text = text.replace("\r\n", "\n");
    let text = text.trim_start_matches('\u{feff}');
    let (head, body) = split(text);
    let (head, notice) = match yaml_of(head) {
        Ok(head @ Value::Object(_)) => (head, None),
        Ok(_) => (Value::Null, None),
        // Many skills in the wild hold an unquoted colon: read what can be read line by line.
        Err(_) => (
            by_lines(head),
            Some("its head is no YAML; only plain `key: value` lines were read".to_owned()),
        ),
    };
    let needs = needs(&head["metadata"]);
    let list = |key: &str| -> Vec<String> {
        match &needs["requires"][key] {
            Value::String(one) => vec![one.clone()],
            Value::Array(items) => items
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            _ => Vec::new(),
        }
    };
    let programs = list("bins")
        .into_iter()
        .filter(|program| !has_program(program))
        .map(|program| format!("CLI: {program}"));
    let variables = list("env")
        .into_iter()
        .filter(|variable| !is_set(variable))
        .map(|variable| format!("ENV: {variable}"));
    let skill = Skill {
        name: name.to_owned(),
        description: head["description"]
            .as_str()
            .filter(|text| !text.trim().is_empty())
            .unwrap_or(name)
            .trim()
            .to_owned(),
        location,
        always: is_true(&head["always"]) || is_true(&needs["always"]),
        missing: programs.chain(variables).collect(),
        body: body.trim().to_owned(),
    };
    (skill, notice)
}

/// The head between `---` lines, and the rest.
fn split(text: &str) -> (&str, &str) {
    let Some(rest) = text.strip_prefix("---\n") else {
        return ("", text);
    };
    let end = rest.match_indices("---").find(|(at, _)| {
        let line_end = rest[at + 3..].split('\n').next().unwrap_or_default();
        (*at == 0 || rest[..*at].ends_with('\n')) && line_end.trim().is_empty()
    });
    match end {
        Some((at, _)) if at <= HEAD_LIMIT => {
            let body = rest[at..].split_once('\n').map_or("", |(_, body)| body);
            (&rest[..at], body)
        }
        _ => ("", text),
    }
}

fn by_lines(head: &str) -> Value {
    let pair = |line: &str| {
        let (key, value) = line.split_once(':')?;
        let value = value.trim().trim_matches(['"', '\'']);
        Some((key.trim().to_owned(), Value::String(value.to_owned())))
    };
    Value::Object(head.lines().filter_map(pair).collect())
}

/// What `metadata` says under `nanobot` or `openclaw`; it is an object, or JSON as text.
fn needs(metadata: &Value) -> Value {
    let metadata = match metadata {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    };
    let of = |key: &str| metadata.get(key).filter(|value| value.is_object()).cloned();
    of("nanobot")
        .or_else(|| of("openclaw"))
        .unwrap_or(Value::Null)
}

fn is_true(value: &Value) -> bool {
    value == &Value::Bool(true)
        || value
            .as_str()
            .is_some_and(|text| ["true", "yes"].contains(&text.to_lowercase().as_str()))
}

/// The list of skills for the system text; empty when there are none.
pub fn summary(skills: &[Skill]) -> String {
    if skills.is_empty() {
        return String::new();
    }
    let escape = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    };
    let mut xml = String::from("<skills>\n");
    for skill in skills {
        write!(
            xml,
            "  <skill available=\"{}\">\n    <name>{}</name>\n    <description>{}</description>\n    <location>{}</location>\n",
            skill.missing.is_empty(),
            escape(&skill.name),
            escape(&skill.description),
            skill.location.display()
        )
        .expect("writing to a string cannot fail");
        if !skill.missing.is_empty() {
            writeln!(
                xml,
                "    <requires>{}</requires>",
                escape(&skill.missing.join(", "))
            )
            .expect("writing to a string cannot fail");
        }
        xml.push_str("  </skill>\n");
    }
    xml.push_str("</skills>");
    xml
}

/// The bodies of the skills that are always on, and can be used.
pub fn active(skills: &[Skill]) -> String {
    let on = skills
        .iter()
        .filter(|skill| skill.always && skill.missing.is_empty());
    on.map(|skill| format!("### Skill: {}\n\n{}", skill.name, skill.body))
        .collect::<Vec<_>>()
        .join("\n\n---\n\n")
}

#[cfg(test)]
mod tests {
    use super::{Skill, active, find, parse, summary};
    use crate::sys::env::Env;

    fn skill(text: &str) -> (Skill, bool) {
        let (skill, notice) = parse(
            "x",
            text,
            "/s/x/SKILL.md".into(),
            &|program| program == "gh",
            &|name| name == "SET",
        );
        (skill, notice.is_some())
    }

    #[test]
    fn heads_in_their_forms() {
        let check = |text: &str, description: &str, always: bool, missing: &[&str], body: &str| {
            let (skill, _) = skill(text);
            assert_eq!(skill.description, description, "{text:?}");
            assert_eq!(
                (skill.always, skill.body.as_str()),
                (always, body),
                "{text:?}"
            );
            assert_eq!(skill.missing, missing, "{text:?}");
        };
        check("no head", "x", false, &[], "no head");
        check(
            "---\ndescription: does it\n---\n\nbody\n",
            "does it",
            false,
            &[],
            "body",
        );
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
        check(
            "---\ndescription: null\nmetadata: null\n---\nb",
            "x",
            false,
            &[],
            "b",
        );
        let json =
            r#"{"nanobot": {"requires": {"bins": ["gh", "nope"], "env": ["SET", "UNSET"]}}}"#;
        check(
            &format!("---\nmetadata: '{json}'\n---\nb"),
            "x",
            false,
            &["CLI: nope", "ENV: UNSET"],
            "b",
        );
        check(
            &format!("---\nmetadata: {json}\n---\nb"),
            "x",
            false,
            &["CLI: nope", "ENV: UNSET"],
            "b",
        );
        check(
            "---\nmetadata:\n  openclaw:\n    always: true\n    requires: null\n---\nb",
            "x",
            true,
            &[],
            "b",
        );
        check("---\nnever ends", "x", false, &[], "---\nnever ends");
        check("---\n---\nb", "x", false, &[], "b");
        assert!(skill("---\ndescription: Use when: asked\n---\n").1);
        assert!(!skill("---\ndescription: fine\n---\n").1);
    }

    #[test]
    fn a_strict_head_is_whole_or_told() {
        let check = |text: &str, expect: Result<&str, &str>| match (
            super::strict_head_and_body(text),
            expect,
        ) {
            (Ok((head, _)), Ok(shown)) => assert_eq!(head.to_string(), shown, "{text:?}"),
            (Err(words), Err(part)) => assert!(words.contains(part), "{text:?}: {words}"),
            (found, _) => panic!("{text:?}: {found:?}"),
        };
        check("", Ok("{}"));
        check("Be brief.\n", Ok("{}"));
        check("---\n---\nBe brief.\n", Ok("{}"));
        check("---\na: b\n---\n", Ok(r#"{"a":"b"}"#));
        check("\u{feff}---\r\na: b\r\n---\r\n", Ok(r#"{"a":"b"}"#));
        check("---\na: b\n--- \nx", Ok(r#"{"a":"b"}"#));
        check("\n---\na: b\n---\n", Err("does not begin"));
        check("--- \na: b\n---\n", Err("does not begin"));
        check(" ---\na: b\n---\n", Err("does not begin"));
        check("a: b\n---\n", Err("does not begin"));
        check("---\na: b\n", Err("lacks"));
        check("---", Err("lacks"));
        check("---\na: b\n ---\n", Err("indented"));
        check("---\na: [\n---\n", Err("no YAML"));
    }

    #[test]
    fn aliases_of_aliases_are_given_up() {
        let mut head = String::from("a0: &a0 [x, x, x, x, x, x, x, x]\n");
        for level in 1..5 {
            let below = format!("*a{}, ", level - 1).repeat(8);
            head.push_str(&format!("a{level}: &a{level} [{below}]\n"));
        }
        let (skill, notice) = skill(&format!("---\ndescription: d\n{head}---\nbody"));
        assert!(notice, "it was read as YAML");
        assert_eq!(
            (skill.description.as_str(), skill.body.as_str()),
            ("d", "body")
        );
    }

    #[test]
    fn skills_are_found_and_what_is_odd_is_told() {
        let temp = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = temp.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let found = |disabled: &[&str]| {
            let disabled: Vec<String> = disabled.iter().map(|&name| name.to_owned()).collect();
            let env: Env = [("PATH", temp.path().join("bin").to_str().unwrap())]
                .into_iter()
                .collect();
            let mut notices = Vec::new();
            let skills = find(temp.path(), &[], &disabled, &env, &mut notices);
            let names: Vec<String> = skills
                .iter()
                .map(|skill| format!("{}: {} {:?}", skill.name, skill.description, skill.missing))
                .collect();
            (names, notices)
        };
        let (names, notices) = found(&[]);
        assert!(
            names.len() == 1 && names[0].starts_with("memory: "),
            "{names:?}"
        );
        assert!(notices.is_empty());

        write("bin/plain", "");
        let needs = "metadata: {nanobot: {requires: {bins: plain}}}";
        write(
            "skills/b/SKILL.md",
            &format!("---\ndescription: second\n{needs}\n---\n"),
        );
        write("skills/a/SKILL.md", "---\ndescription: first\n---\n");
        write("skills/memory/SKILL.md", "---\ndescription: mine\n---\n");
        write("skills/empty/notes.md", "");
        write("skills/stray.md", "");
        std::fs::create_dir_all(temp.path().join("skills/odd/SKILL.md")).unwrap();
        let (names, notices) = found(&["a"]);
        assert_eq!(names, ["b: second [\"CLI: plain\"]", "memory: mine []"]);
        assert_eq!(notices, ["skill `odd`: SKILL.md is not a regular file"]);
    }

    #[test]
    fn the_list_and_the_bodies() {
        let (mut one, _) = skill("---\ndescription: a < b & c\nalways: true\n---\nOne.");
        let (mut two, _) = skill(
            "---\nmetadata: '{\"nanobot\": {\"requires\": {\"bins\": [\"nope\"]}}}'\nalways: true\n---\nTwo.",
        );
        (one.name, two.name) = ("one".into(), "two".into());
        assert_eq!(
            summary(&[one.clone(), two.clone()]),
            "<skills>\n  <skill available=\"true\">\n    <name>one</name>\n    <description>a &lt; b &amp; c</description>\n    \
             <location>/s/x/SKILL.md</location>\n  </skill>\n  <skill available=\"false\">\n    <name>two</name>\n    \
             <description>x</description>\n    <location>/s/x/SKILL.md</location>\n    <requires>CLI: nope</requires>\n  \
             </skill>\n</skills>"
        );
        assert_eq!(active(&[one, two]), "### Skill: one\n\nOne.");
        assert_eq!(summary(&[]), "");
    }

    #[test]
    fn fuzz_plain_lines_are_read_as_yaml_reads_them() {
        let seeds: &[&[u8]] = &[
            b"name: x\ndescription: Does things, and more",
            b"name: x\nalways: true\ndescription: it's \"quoted\" - [a] {b} *c &d !e %f @g `h`",
        ];
        crate::fuzz::hold(seeds, |input, _| {
            let head = crate::fuzz::text(input);
            let mut names: Vec<&str> = head
                .lines()
                .filter_map(|line| Some(line.split_once(": ")?.0))
                .collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            // A key that stands twice is an error to YAML, and the last one to us.
            if !head.is_empty() && count == names.len() && head.lines().all(super::is_plain) {
                let mut expect = super::yaml(&head).unwrap();
                if let Some(always) = expect.get_mut("always") {
                    *always = super::is_true(always).into();
                }
                let mut found = super::by_lines(&head);
                if let Some(always) = found.get_mut("always") {
                    *always = super::is_true(always).into();
                }
                assert_eq!(found, expect);
            }
        });
    }

    #[test]
    fn fuzz_any_skill_is_read() {
        let seeds: &[&[u8]] = &[
            b"---\nname: x\ndescription: Does: things\nalways: true\nmetadata: {\"nanobot\": {\"requires\": {\"bins\": [\"gh\"], \"env\": [\"KEY\"]}}}\n---\n# X\n",
            b"---\r\ndescription: >\r\n  folded\r\n  text\r\nmetadata:\r\n  openclaw:\r\n    always: yes\r\n---\r\nbody",
            b"---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n---\n",
        ];
        crate::fuzz::hold(seeds, |input, _| {
            let (skill, _) = skill(&crate::fuzz::text(input));
            assert!(!skill.description.is_empty());
            summary(&[skill]);
        });
    }
}
