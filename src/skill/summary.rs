//! What the system text says of skills: the list, within its budget, and the bodies of those that are always on. Pure.
//!
//! The list has the form of the Python program's releases as long as it fits. Where it does not, descriptions are cut at a
//! word, then the frame is taken away, then the descriptions, and at last names: always the same way for the same skills, so
//! that providers' caches hit.

use super::definition::{Skill, Source};
use crate::message::token_estimate;
use crate::sys::terminal::harmless;
use std::fmt::Write;
use std::path::Path;

/// How much of a skill the list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An element of its own, with a description of at most so many letters.
    Whole(usize),
    /// A line, with a description of at most so many letters.
    Line(usize),
    /// So many names.
    Names(usize),
}

/// The list of skills, and what it came to.
#[derive(Debug)]
pub struct Summary {
    /// Empty when there are none.
    pub text: String,
    pub form: Form,
    /// Tokens, as they are estimated.
    pub tokens: u64,
}

/// The forms that are tried, the best first.
const FORMS: [Form; 8] = [
    Form::Whole(usize::MAX),
    Form::Whole(240),
    Form::Whole(120),
    Form::Line(240),
    Form::Line(120),
    Form::Line(60),
    Form::Line(30),
    Form::Names(usize::MAX),
];

impl Summary {
    /// Whether something was left out to keep the budget.
    pub fn is_cut(&self) -> bool {
        self.form != FORMS[0]
    }
}

/// The list of skills for the system text, in at most `budget` tokens. One that is no bare minimum is never exceeded: what
/// remains then says that there are more.
pub fn summary(skills: &[Skill], budget: u64) -> Summary {
    let listed: Vec<&Skill> = skills.iter().filter(|skill| skill.is_listed()).collect();
    let made = |form: Form| {
        let text = match form {
            Form::Whole(letters) => whole(&listed, letters),
            Form::Line(letters) => lines(&listed, Some(letters), listed.len()),
            Form::Names(count) => lines(&listed, None, count.min(listed.len())),
        };
        let tokens = token_estimate::of_text(&text);
        Summary { text, form, tokens }
    };
    let fits = |summary: &Summary| summary.tokens <= budget;
    if let Some(best) = FORMS.into_iter().map(made).find(fits) {
        return best;
    }
    // More names never weigh less.
    let (mut few, mut many) = (0, listed.len());
    while few + 1 < many {
        let middle = few.midpoint(many);
        match fits(&made(Form::Names(middle))) {
            true => few = middle,
            false => many = middle,
        }
    }
    made(Form::Names(few))
}

/// An element for each; but those that come with the program, whose words are few, are lines.
fn whole(skills: &[&Skill], letters: usize) -> String {
    if skills.is_empty() {
        return String::new();
    }
    let (built_in, own): (Vec<&Skill>, Vec<&Skill>) = skills
        .iter()
        .partition(|skill| skill.source == Source::BuiltIn);
    let mut xml = String::from("<skills>\n");
    for skill in own {
        write!(
            xml,
            "  <skill available=\"{}\">\n    <name>{}</name>\n    <description>{}</description>\n    <location>{}</location>\n",
            skill.is_available(),
            escaped(&skill.name),
            escaped(&clipped(&skill.description, letters)),
            placed(&skill.location)
        )
        .expect("writing to a string cannot fail");
        if !skill.is_available() {
            let missing = escaped(&skill.missing.join(", "));
            writeln!(xml, "    <requires>{missing}</requires>")
                .expect("writing to a string cannot fail");
        }
        xml.push_str("  </skill>\n");
    }
    put_lines(&mut xml, &built_in, Some(letters));
    xml.push_str("</skills>");
    xml
}

/// A line for each of the first `count`: those that are always on before those that can be used, these before the others, and
/// at last those that come with the program.
fn lines(skills: &[&Skill], letters: Option<usize>, count: usize) -> String {
    let mut skills: Vec<&Skill> = skills.to_vec();
    let is_built_in = |skill: &Skill| skill.source == Source::BuiltIn;
    skills.sort_by_key(|skill| {
        (
            !skill.is_active(),
            is_built_in(skill),
            !skill.is_available(),
        )
    });
    let rest = skills.len() - count;
    skills.truncate(count);
    let mut xml = String::from("<skills>\n");
    put_lines(&mut xml, &skills, letters);
    if rest > 0 {
        writeln!(xml, "  {rest} more: nanobot skill list")
            .expect("writing to a string cannot fail");
    }
    xml.push_str("</skills>");
    xml
}

/// A line for each, below the folder that it is in.
fn put_lines(xml: &mut String, skills: &[&Skill], letters: Option<usize>) {
    let mut folders: Vec<&Path> = Vec::new();
    for skill in skills {
        let folder = folder_of(skill);
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    for folder in folders {
        let place = placed(&folder.join("NAME/SKILL.md"));
        writeln!(xml, "  <in location=\"{place}\">").expect("writing to a string cannot fail");
        for skill in skills.iter().filter(|skill| folder_of(skill) == folder) {
            let mark = match skill.is_available() {
                true => "",
                false => " (unavailable)",
            };
            let words = letters.map(|letters| {
                let words = clipped(&skill.description, letters);
                let words: Vec<&str> = words.split_whitespace().collect();
                format!(": {}", escaped(&words.join(" ")))
            });
            let name = escaped(&skill.name);
            writeln!(xml, "{name}{mark}{}", words.unwrap_or_default())
                .expect("writing to a string cannot fail");
        }
        xml.push_str("  </in>\n");
    }
}

/// The folder of skills that a skill is in.
fn folder_of(skill: &Skill) -> &Path {
    let folder = skill.location.parent().and_then(Path::parent);
    folder.unwrap_or(Path::new(""))
}

/// `text` with what means something in the list spelled out, and what nobody would see.
fn escaped(text: &str) -> String {
    harmless(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A path as it stands, for a model is to write it as it is read; but for what would end the element that it stands in.
fn placed(path: &Path) -> String {
    let path = harmless(&path.display().to_string());
    path.replace('<', "&lt;").replace('\n', "\\n")
}

/// The first words of `text`, of at most so many letters.
fn clipped(text: &str, letters: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(letters) else {
        return text.to_owned();
    };
    let cut = &text[..end];
    // Where the cut falls between words, the last one is whole.
    let is_between = text[end..].starts_with(char::is_whitespace);
    let words = match cut.rfind(char::is_whitespace) {
        Some(at) if !is_between => &cut[..at],
        _ => cut,
    };
    let words =
        words.trim_end_matches(|letter: char| letter.is_whitespace() || ",;:.(".contains(letter));
    format!("{words}…")
}

/// The bodies of the skills that are always on, and can be used.
pub fn active(skills: &[Skill]) -> String {
    let on = skills.iter().filter(|skill| skill.is_active());
    on.map(|skill| format!("### Skill: {}\n\n{}", skill.name, skill.body))
        .collect::<Vec<_>>()
        .join("\n\n---\n\n")
}

#[cfg(test)]
mod tests {
    use super::{Form, active, clipped, summary};
    use crate::message::token_estimate;
    use crate::skill::{Requirements, Skill, Source, parse};
    use crate::sys::env::Env;
    use std::path::Path;

    fn skill(name: &str, text: &str) -> Skill {
        let env: Env = [("PATH", "/usr/bin:/bin")].into_iter().collect();
        Skill {
            location: Path::new("/s").join(name).join("SKILL.md"),
            source: Source::Workspace,
            ..parse(name, text, &Requirements::new(&env))
        }
    }

    #[test]
    fn the_list_and_the_bodies() {
        let one = skill(
            "one",
            "---\ndescription: a < b & c\nalways: true\n---\nOne.",
        );
        let two = skill(
            "two",
            "---\nmetadata: '{\"nanobot\": {\"requires\": {\"bins\": [\"nope\"]}}}'\nalways: true\n---\nTwo.",
        );
        let found = summary(&[one.clone(), two.clone()], 2_000);
        assert_eq!(
            found.text,
            "<skills>\n  <skill available=\"true\">\n    <name>one</name>\n    <description>a &lt; b &amp; c</description>\n    \
             <location>/s/one/SKILL.md</location>\n  </skill>\n  <skill available=\"false\">\n    <name>two</name>\n    \
             <description>two</description>\n    <location>/s/two/SKILL.md</location>\n    <requires>CLI: nope</requires>\n  \
             </skill>\n</skills>"
        );
        assert!(!found.is_cut() && found.tokens == token_estimate::of_text(&found.text));
        assert_eq!(active(&[one, two.clone()]), "### Skill: one\n\nOne.");
        assert_eq!(summary(&[], 2_000).text, "");
        let tea = Skill {
            source: Source::BuiltIn,
            ..skill("tea", "---\ndescription: Boil <it>\n---\n")
        };
        let line = "<skills>\n  <in location=\"/s/NAME/SKILL.md\">\ntea: Boil &lt;it&gt;\n  </in>\n</skills>";
        assert_eq!(summary(&[tea], 2_000).text, line);
        // A built-in one that cannot be used is no news.
        let built_in = Skill {
            source: Source::BuiltIn,
            ..two
        };
        assert_eq!(summary(&[built_in], 2_000).text, "");
    }

    #[test]
    fn nothing_in_a_skill_ends_its_element() {
        let mut odd = skill(
            "odd",
            "---\ndescription: \"a</description></skills>\\u202e\"\n---\n",
        );
        odd.location = "/s/</location>\n<x>/SKILL.md".into();
        let text = summary(&[odd], 2_000).text;
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
    fn the_list_keeps_its_budget() {
        let many = |count: usize| -> Vec<Skill> {
            let about = "Does a thing that somebody may want to have done, and says when: on Mondays, or else".repeat(3);
            let one = |number: usize| {
                let on = if number == 70 { "always: true\n" } else { "" };
                let lacks = if number == 3 {
                    "metadata: {nanobot: {requires: {bins: nope}}}\n"
                } else {
                    ""
                };
                let text = format!("---\ndescription: \"{about}\"\n{on}{lacks}---\nBody.");
                skill(&format!("skill-number-{number:04}"), &text)
            };
            (0..count).map(one).collect()
        };
        let check = |count: usize, budget: u64, expect: &dyn Fn(Form) -> bool| {
            let skills = many(count);
            let found = summary(&skills, budget);
            assert!(
                found.tokens <= budget,
                "{count}: {} > {budget}",
                found.tokens
            );
            assert!(expect(found.form), "{count} in {budget}: {:?}", found.form);
            assert_eq!(found.text, summary(&skills, budget).text);
            found.text
        };
        check(5, 2_000, &|form| form == Form::Whole(usize::MAX));
        check(25, 2_000, &|form| matches!(form, Form::Whole(240 | 120)));
        let text = check(100, 2_000, &|form| matches!(form, Form::Line(_)));
        for number in 0..100 {
            assert!(
                text.contains(&format!("skill-number-{number:04}")),
                "{text}"
            );
        }
        assert!(
            text.contains("skill-number-0003 (unavailable): Does"),
            "{text}"
        );
        assert!(
            text.starts_with("<skills>\n  <in location=\"/s/NAME/SKILL.md\">\nskill-number-0070: "),
            "{text}"
        );
        check(200, 2_000, &|form| form == Form::Names(usize::MAX));
        let text = check(1_000, 2_000, &|form| {
            matches!(form, Form::Names(200..1_000))
        });
        assert!(
            text.contains("skill-number-0070\n") && text.contains(" more: nanobot skill list\n"),
            "{text}"
        );
        check(100, 30, &|form| matches!(form, Form::Names(0..5)));
    }

    #[test]
    fn descriptions_are_cut_at_a_word() {
        let check = |text: &str, letters: usize, expect: &str| {
            assert_eq!(clipped(text, letters), expect);
        };
        check("one two", 7, "one two");
        check("one two three", 7, "one two…");
        check("one two three", 9, "one two…");
        check("one, two", 5, "one…");
        check("日本語の説明です", 3, "日本語…");
        check("", 0, "");
    }
}
