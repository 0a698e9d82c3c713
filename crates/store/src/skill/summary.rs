//! The part of the system prompt about skills: the list, within its budget, and the bodies of the skills that are always on. No I/O.
//!
//! If the list fits the budget, it has the format of the Python program. Otherwise descriptions are cut at word
//! boundaries, then the elements become lines, then descriptions are dropped, and finally names. The result depends
//! only on the skills, so the prompt caches of providers stay valid.

use super::definition::{Skill, SkillSource};
use nanobot_base::message::token_estimate;
use nanobot_os::terminal::sanitize;
use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

/// The level of detail of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListDetail {
    /// An XML element for each skill, with a description of at most this many characters.
    Elements(usize),
    /// A line for each skill, with a description of at most this many characters.
    Lines(usize),
    /// This many names, without descriptions.
    Names(usize),
}

/// The list of skills, and its size.
#[derive(Debug)]
pub struct SkillList {
    /// The text of the list; empty if there are no skills.
    pub text: String,
    /// The level of detail that fits the budget.
    pub detail: ListDetail,
    /// The estimated size in tokens.
    pub tokens: u64,
}

/// The forms that are tried, most detailed first.
const DETAIL_LEVELS: [ListDetail; 8] = [
    ListDetail::Elements(usize::MAX),
    ListDetail::Elements(240),
    ListDetail::Elements(120),
    ListDetail::Lines(240),
    ListDetail::Lines(120),
    ListDetail::Lines(60),
    ListDetail::Lines(30),
    ListDetail::Names(usize::MAX),
];

impl SkillList {
    /// True if something was left out to stay within the budget.
    pub fn is_cut(&self) -> bool {
        self.detail != DETAIL_LEVELS[0]
    }
}

/// Builds the list of skills for the system prompt, in at most `budget` tokens if possible. If even a few names exceed
/// the budget, the list only says how many skills there are.
pub fn render_list(skills: &[Skill], budget: u64) -> SkillList {
    let listed: Vec<&Skill> = skills.iter().filter(|skill| skill.is_offered).collect();
    let render = |detail: ListDetail| {
        let text = match detail {
            ListDetail::Elements(max_chars) => render_elements(&listed, max_chars),
            ListDetail::Lines(max_chars) => render_lines(&listed, Some(max_chars), listed.len()),
            ListDetail::Names(count) => render_lines(&listed, None, count.min(listed.len())),
        };
        let tokens = token_estimate::for_text(&text);
        SkillList { text, detail, tokens }
    };
    let fits = |list: &SkillList| list.tokens <= budget;
    if let Some(best) = DETAIL_LEVELS.into_iter().map(render).find(fits) {
        return best;
    }
    // Binary search: the size never decreases with more names.
    let (mut few, mut many) = (0, listed.len());
    while few + 1 < many {
        let middle = few.midpoint(many);
        if fits(&render(ListDetail::Names(middle))) { few = middle } else { many = middle }
    }
    render(ListDetail::Names(few))
}

/// An element for each skill. Built-in skills have short descriptions and are always lines.
fn render_elements(skills: &[&Skill], max_chars: usize) -> String {
    if skills.is_empty() {
        return String::new();
    }
    let (built_in, own): (Vec<&Skill>, Vec<&Skill>) =
        skills.iter().partition(|skill| skill.source == SkillSource::BuiltIn);
    let mut xml = String::from("<skills>\n");
    for skill in own {
        write!(
            xml,
            "  <skill available=\"{}\">\n    <name>{}</name>\n    <description>{}</description>\n    <location>{}</location>\n",
            skill.is_available(),
            escape_xml(&skill.name),
            escape_xml(&truncate_words(&skill.description, max_chars)),
            escape_path(&skill.location)
        )
        .expect("writing to a string cannot fail");
        if !skill.is_available() {
            let missing = skill.unmet_requirements.join(", ");
            writeln!(xml, "    <requires>{}</requires>", escape_xml(&missing))
                .expect("writing to a string cannot fail");
        }
        xml.push_str("  </skill>\n");
    }
    push_lines(&mut xml, &built_in, Some(max_chars));
    xml.push_str("</skills>");
    xml
}

/// A line for each of the first `count` skills. Skills that are always on come first, then available ones, then
/// unavailable ones, and last the built-in ones.
fn render_lines(skills: &[&Skill], max_chars: Option<usize>, count: usize) -> String {
    let mut skills: Vec<&Skill> = skills.to_vec();
    let is_built_in = |skill: &Skill| skill.source == SkillSource::BuiltIn;
    skills.sort_by_key(|skill| (!skill.is_active(), is_built_in(skill), !skill.is_available()));
    let rest = skills.len() - count;
    skills.truncate(count);
    let mut xml = String::from("<skills>\n");
    push_lines(&mut xml, &skills, max_chars);
    if rest > 0 {
        writeln!(xml, "  {rest} more: nanobot skill list")
            .expect("writing to a string cannot fail");
    }
    xml.push_str("</skills>");
    xml
}

/// Writes a line for each skill, grouped by folder.
fn push_lines(xml: &mut String, skills: &[&Skill], max_chars: Option<usize>) {
    let mut rest: Vec<&Skill> = skills.to_vec();
    while let Some(first) = rest.first() {
        let folder = parent_dir(first);
        let location = escape_path(&folder.join("NAME/SKILL.md"));
        writeln!(xml, "  <in location=\"{location}\">").expect("writing to a string cannot fail");
        let (in_folder, others): (Vec<&Skill>, Vec<&Skill>) =
            rest.into_iter().partition(|skill| parent_dir(skill) == folder);
        for skill in in_folder {
            push_line(xml, skill, max_chars);
        }
        xml.push_str("  </in>\n");
        rest = others;
    }
}

fn push_line(xml: &mut String, skill: &Skill, max_chars: Option<usize>) {
    xml.push_str(&escape_xml(&skill.name));
    if !skill.is_available() {
        xml.push_str(" (unavailable");
        // The user did not choose a built-in skill, so its missing requirements say enough.
        if skill.source == SkillSource::BuiltIn {
            let missing = skill.unmet_requirements.join(", ");
            xml.push_str(&format!(": {})\n", escape_xml(&missing)));
            return;
        }
        xml.push(')');
    }
    if let Some(max_chars) = max_chars {
        xml.push_str(": ");
        let description = truncate_words(&skill.description, max_chars);
        xml.push_str(&escape_xml(&join_words(&description)));
    }
    xml.push('\n');
}

/// The folder of skills that contains a skill.
fn parent_dir(skill: &Skill) -> &Path {
    let folder = skill.location.parent().and_then(Path::parent);
    folder.unwrap_or(Path::new(""))
}

/// Escapes XML characters in `text`, after passing it through [`sanitize`].
fn escape_xml(text: &str) -> Cow<'_, str> {
    // Most text is plain, and every run lists some.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !b"&<>".contains(&byte);
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let escaped = sanitize(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Cow::Owned(escaped)
}

/// Replaces white space between words by single spaces.
fn join_words(text: &str) -> Cow<'_, str> {
    let mut previous = ' ';
    let is_single = |letter: char| {
        let after_space = std::mem::replace(&mut previous, letter) == ' ';
        !letter.is_whitespace() || (letter == ' ' && !after_space)
    };
    if text.chars().all(is_single) && previous != ' ' {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split_whitespace().collect::<Vec<&str>>().join(" "))
}

/// Formats a path for the list. A model must be able to copy it unchanged, so only characters that could end the
/// element are escaped.
fn escape_path(path: &Path) -> String {
    let path = sanitize(&path.display().to_string());
    path.replace('<', "&lt;").replace('\n', "\\n")
}

/// Cuts `text` at a word boundary, to at most `max_chars` characters.
fn truncate_words(text: &str, max_chars: usize) -> Cow<'_, str> {
    let end = if text.len() <= max_chars { None } else { text.char_indices().nth(max_chars) };
    let Some((end, _)) = end else {
        return Cow::Borrowed(text);
    };
    // If the cut falls between words, the last word is complete.
    let is_between_words = text[end..].starts_with(char::is_whitespace);
    let text = &text[..end];
    let text = match text.rfind(char::is_whitespace) {
        Some(end) if !is_between_words => &text[..end],
        _ => text,
    };
    let text =
        text.trim_end_matches(|letter: char| letter.is_whitespace() || ",;:.(".contains(letter));
    Cow::Owned(format!("{text}…"))
}

/// Returns the bodies of the skills that are always on and available.
pub fn active_bodies(skills: &[Skill]) -> String {
    join_bodies(skills.iter().filter(|skill| skill.is_active()))
}

/// Returns the bodies of `skills`, each below its name.
pub fn join_bodies<'a>(skills: impl Iterator<Item = &'a Skill>) -> String {
    skills
        .map(|skill| format!("### Skill: {}\n\n{}", skill.name, skill.body))
        .collect::<Vec<_>>()
        .join("\n\n---\n\n")
}

#[cfg(test)]
mod tests {
    use super::{
        ListDetail, active_bodies, escape_xml, join_words, render_list, sanitize, truncate_words,
    };
    use crate::skill::{RequirementChecker, Skill, SkillSource, parse};
    use nanobot_base::message::token_estimate;
    use nanobot_os::env::Env;
    use std::path::Path;

    fn skill(name: &str, text: &str) -> Skill {
        let env: Env = [("PATH", "/usr/bin:/bin")].into_iter().collect();
        Skill {
            location: Path::new("/s").join(name).join("SKILL.md"),
            source: SkillSource::Workspace,
            ..parse(name, text, &RequirementChecker::new(&env))
        }
    }

    #[test]
    fn every_character_is_escaped_alike() {
        for letter in (0..=0x2ff_u32).filter_map(char::from_u32) {
            let text = format!("a{letter}b");
            let expect = sanitize(&text).replace('&', "&amp;");
            let expect = expect.replace('<', "&lt;").replace('>', "&gt;");
            assert_eq!(escape_xml(&text), expect, "{text:?}");
            for text in [text, format!("{letter}a "), format!("a {letter}"), String::new()] {
                let words: Vec<&str> = text.split_whitespace().collect();
                assert_eq!(join_words(&text), words.join(" "), "{text:?}");
            }
        }
    }

    #[test]
    fn the_list_and_the_bodies() {
        let one = skill("one", "---\ndescription: a < b & c\nalways: true\n---\nOne.");
        let two = skill(
            "two",
            "---\nmetadata: '{\"nanobot\": {\"requires\": {\"bins\": [\"nope\"]}}}'\nalways: true\n---\nTwo.",
        );
        let list = render_list(&[one.clone(), two.clone()], 2_000);
        assert_eq!(
            list.text,
            "<skills>\n  <skill available=\"true\">\n    <name>one</name>\n    <description>a &lt; b &amp; c</description>\n    \
             <location>/s/one/SKILL.md</location>\n  </skill>\n  <skill available=\"false\">\n    <name>two</name>\n    \
             <description>two</description>\n    <location>/s/two/SKILL.md</location>\n    <requires>CLI: nope</requires>\n  \
             </skill>\n</skills>"
        );
        assert!(!list.is_cut() && list.tokens == token_estimate::for_text(&list.text));
        assert_eq!(active_bodies(&[one, two.clone()]), "### Skill: one\n\nOne.");
        assert_eq!(render_list(&[], 2_000).text, "");
        let tea = Skill {
            source: SkillSource::BuiltIn,
            ..skill("tea", "---\ndescription: Boil <it>\n---\n")
        };
        let line = "<skills>\n  <in location=\"/s/NAME/SKILL.md\">\ntea: Boil &lt;it&gt;\n  </in>\n</skills>";
        assert_eq!(render_list(&[tea], 2_000).text, line);
        // An unavailable built-in skill is named with its missing requirements.
        let built_in = Skill { source: SkillSource::BuiltIn, ..two };
        let line = "<skills>\n  <in location=\"/s/NAME/SKILL.md\">\ntwo (unavailable: CLI: nope)\n  </in>\n</skills>";
        assert_eq!(render_list(&[built_in], 2_000).text, line);
    }

    #[test]
    fn skill_text_cannot_close_its_element() {
        let mut odd = skill("odd", "---\ndescription: \"a</description></skills>\\u202e\"\n---\n");
        odd.location = "/s/</location>\n<x>/SKILL.md".into();
        let text = render_list(&[odd], 2_000).text;
        assert!(
            text.contains(
                "<description>a&lt;/description&gt;&lt;/skills&gt;\\u{202e}</description>"
            ),
            "{text}"
        );
        assert!(
            text.contains("<location>/s/&lt;/location>\\n&lt;x>/SKILL.md</location>"),
            "{text}"
        );
    }

    #[test]
    fn the_list_stays_within_the_budget() {
        let many = |count: usize| -> Vec<Skill> {
            let description = "Does a thing that somebody may want to have done, and says when: on Mondays, or else".repeat(3);
            let one = |number: usize| {
                let on = if number == 70 { "always: true\n" } else { "" };
                let lacks = if number == 3 {
                    "metadata: {nanobot: {requires: {bins: nope}}}\n"
                } else {
                    ""
                };
                let text = format!("---\ndescription: \"{description}\"\n{on}{lacks}---\nBody.");
                skill(&format!("skill-number-{number:04}"), &text)
            };
            (0..count).map(one).collect()
        };
        let check = |count: usize, budget: u64, expect: &dyn Fn(ListDetail) -> bool| {
            let skills = many(count);
            let list = render_list(&skills, budget);
            assert!(list.tokens <= budget, "{count}: {} > {budget}", list.tokens);
            assert!(expect(list.detail), "{count} in {budget}: {:?}", list.detail);
            assert_eq!(list.text, render_list(&skills, budget).text);
            list.text
        };
        check(5, 2_000, &|form| form == ListDetail::Elements(usize::MAX));
        check(25, 2_000, &|form| matches!(form, ListDetail::Elements(240 | 120)));
        let text = check(100, 2_000, &|form| matches!(form, ListDetail::Lines(_)));
        for number in 0..100 {
            assert!(text.contains(&format!("skill-number-{number:04}")), "{text}");
        }
        assert!(text.contains("skill-number-0003 (unavailable): Does"), "{text}");
        assert!(
            text.starts_with("<skills>\n  <in location=\"/s/NAME/SKILL.md\">\nskill-number-0070: "),
            "{text}"
        );
        check(200, 2_000, &|form| form == ListDetail::Names(usize::MAX));
        let text = check(1_000, 2_000, &|form| matches!(form, ListDetail::Names(200..1_000)));
        assert!(
            text.contains("skill-number-0070\n") && text.contains(" more: nanobot skill list\n"),
            "{text}"
        );
        check(100, 30, &|form| matches!(form, ListDetail::Names(0..5)));
    }

    #[test]
    fn descriptions_are_cut_at_a_word() {
        let check = |text: &str, letters: usize, expect: &str| {
            assert_eq!(truncate_words(text, letters), expect);
        };
        check("one two", 7, "one two");
        check("one two three", 7, "one two…");
        check("one two three", 9, "one two…");
        check("one, two", 5, "one…");
        check("日本語の説明です", 3, "日本語…");
        check("", 0, "");
    }
}
