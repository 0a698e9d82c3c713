//! What a workspace can teach: skills, each a folder with a SKILL.md; found, read, their needs looked at, summarised.

use crate::sys::env::Env;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Skills that come with the program.
pub const BUILT_IN: &[(&str, &str)] = &[("memory", include_str!("memory.md"))];

/// The longest head of a skill that is read; what is longer is none.
const HEAD_LIMIT: usize = 64 << 10;

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

/// All skills, by name: those of the workspace, and the built-in ones it does not hide. Those in `disabled` are left out.
pub fn find(
    workspace: &Path,
    disabled: &[String],
    env: &Env,
    notices: &mut Vec<String>,
) -> Vec<Skill> {
    let dir = workspace.join("skills");
    let mut texts: Vec<(String, String)> = Vec::new();
    for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match std::fs::read(entry.path().join("SKILL.md")) {
            Ok(bytes) => texts.push((name, String::from_utf8_lossy(&bytes).into_owned())),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) => {}
            Err(error) => notices.push(format!("skill `{name}`: {error}")),
        }
    }
    for (name, text) in BUILT_IN {
        if !texts.iter().any(|(own, _)| own == name) {
            texts.push(((*name).to_owned(), (*text).to_owned()));
        }
    }
    texts.retain(|(name, _)| !disabled.contains(name));
    texts.sort();
    let has_program = |program: &str| {
        let path = env.get("PATH").unwrap_or_default();
        path.split(':')
            .filter(|dir| !dir.is_empty())
            .any(|dir| Path::new(dir).join(program).is_file())
    };
    let is_set = |variable: &str| env.get(variable).is_some();
    let skill = |(name, text): (String, String)| {
        let location = dir.join(&name).join("SKILL.md");
        let (skill, notice) = parse(&name, &text, location, &has_program, &is_set);
        notices.extend(notice.map(|notice| format!("skill `{name}`: {notice}")));
        skill
    };
    texts.into_iter().map(skill).collect()
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
    let (head, notice) = match serde_saphyr::from_str::<Value>(head) {
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
        needs["requires"][key]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
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
    use super::{Skill, active, parse, summary};

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
}
