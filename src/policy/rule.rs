//! Rules as users write them: `TOOL`, or `TOOL(glob)` to match an argument. A rule never grants a shell command:
//! commands are contained by the sandbox, not recognized by their text, and `exec(…)` can only be denied.

use super::tool_names::{self, EXEC, PROCESS, RESERVED_WORDS};
use std::fmt;

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleEffect {
    Allow,
    Deny,
}

/// A rule about a tool, or about some of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    pub effect: RuleEffect,
    /// The tools that the rule applies to.
    pub tool: Pattern,
    /// The pattern that the argument must match; `None` for any argument.
    pub argument: Option<Pattern>,
    /// The source of the rule, such as `--deny` or `tools.deny`.
    pub origin: String,
}

/// A glob in which `*` matches any text, including `/`, and `?` matches one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl PolicyRule {
    /// Parses `TOOL` or `TOOL(glob)`.
    ///
    /// # Errors
    /// A phrase to append to the rule: the mistake in it.
    pub fn parse(text: &str, effect: RuleEffect, origin: &str) -> Result<Self, String> {
        let text = text.trim();
        let (tool, argument) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => match rest.strip_suffix(')') {
                Some(argument) => (tool.trim_end(), Some(Pattern::new(argument.trim()))),
                None => return Err("has no closing `)`".into()),
            },
        };
        let is_name = |letter: char| letter.is_alphanumeric() || "_-*?".contains(letter);
        if tool.is_empty() || !tool.chars().all(is_name) {
            return Err("is neither `TOOL` nor `TOOL(glob)`".into());
        }
        match RESERVED_WORDS.contains(&tool) {
            true if argument.is_some() => return Err("takes no argument".into()),
            true => {}
            false => tool_names::check(tool)?,
        }
        let tool = Pattern::new(tool);
        if effect == RuleEffect::Allow
            && argument.is_some()
            && [EXEC, PROCESS].iter().any(|it| tool.matches(it))
        {
            return Err(
                "cannot be enforced: commands are confined by the sandbox, not by their text, so `exec` is allowed as a whole or not at all"
                    .into(),
            );
        }
        Ok(Self {
            effect,
            tool,
            argument,
            origin: origin.into(),
        })
    }

    /// The rule and its source, as the reason for a decision.
    pub fn reason(&self) -> String {
        format!("rule `{self}` ({})", self.origin)
    }

    /// True if the rule applies to a call of `tool` whose argument can be written as any of `subjects`.
    pub fn covers(&self, tool: &str, subjects: &[String]) -> bool {
        self.tool.matches(tool)
            && self
                .argument
                .as_ref()
                .is_none_or(|argument| subjects.iter().any(|subject| argument.matches(subject)))
    }
}

impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tool.text())?;
        match &self.argument {
            Some(argument) => write!(f, "({})", argument.text()),
            None => Ok(()),
        }
    }
}

impl Pattern {
    /// Wraps `text` as a pattern. Every text is valid.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// True if the pattern is not a plain name.
    pub fn has_wildcard(&self) -> bool {
        self.0.contains(['*', '?'])
    }

    /// True if the pattern may match a text that begins with `beginning`. Errs on the side of true.
    pub fn may_match_prefix(&self, beginning: &str) -> bool {
        let stem = self.0.split(['*', '?']).next().unwrap_or_default();
        stem.starts_with(beginning) || self.has_wildcard() && beginning.starts_with(stem)
    }

    /// True if `tool` is in a list of tools with this entry. What lists `exec` lists `process`, and nothing else does.
    pub fn lists(&self, tool: &str) -> bool {
        self.matches(if tool == PROCESS { EXEC } else { tool })
    }

    /// True if the pattern matches the whole of `text`.
    pub fn matches(&self, text: &str) -> bool {
        let pattern: Vec<char> = self.0.chars().collect();
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut read) = (0, 0);
        // Position of the latest star and the amount it has matched so far. Only the latest star ever needs to
        // backtrack.
        let mut star: Option<(usize, usize)> = None;
        while read < text.len() {
            match pattern.get(at) {
                Some('*') => {
                    star = Some((at, read));
                    at += 1;
                }
                Some(wanted) if *wanted == '?' || *wanted == text[read] => {
                    at += 1;
                    read += 1;
                }
                _ => match &mut star {
                    Some((place, swallowed)) => {
                        *swallowed += 1;
                        (at, read) = (*place + 1, *swallowed);
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|letter| *letter == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, PolicyRule, RuleEffect};

    #[test]
    fn patterns() {
        let check = |pattern: &str, text: &str, expect: bool| {
            assert_eq!(
                Pattern::new(pattern).matches(text),
                expect,
                "{pattern} {text}"
            );
        };
        check("", "", true);
        check("", "a", false);
        check("*", "", true);
        check("*", "a/b", true);
        check("a*c", "abbc", true);
        check("a*c", "abbcd", false);
        check("a?c", "abc", true);
        check("a?c", "ac", false);
        check("*.env", "a/b/.env", true);
        check("*a*b*", "xxaxxbxx", true);
        check("*a*b*", "xxbxxa", false);
        check("ä?", "äö", true);
        check("a**", "a", true);
    }

    #[test]
    fn rules_as_written() {
        let check = |text: &str, effect: RuleEffect, expect: Result<&str, &str>| {
            let found = PolicyRule::parse(text, effect, "--allow");
            match (&found, expect) {
                (Ok(rule), Ok(shown)) => assert_eq!(rule.to_string(), shown),
                (Err(message), Err(part)) => assert!(message.contains(part), "{text}: {message}"),
                _ => panic!("{text}: {found:?}"),
            }
        };
        use RuleEffect::{Allow, Deny};
        check("exec", Allow, Ok("exec"));
        check(
            " write_file( src/*.rs ) ",
            Allow,
            Ok("write_file(src/*.rs)"),
        );
        check("mcp_*", Deny, Ok("mcp_*"));
        check("exec(git *)", Deny, Ok("exec(git *)"));
        check("exec(git *)", Allow, Err("confined"));
        check("*(git *)", Allow, Err("confined"));
        check("exec(git", Deny, Err("closing"));
        check("", Deny, Err("neither"));
        check("rm -rf", Deny, Err("neither"));
        check("(a)", Deny, Err("neither"));
        check("notes", Allow, Ok("notes"));
        check("startup", Deny, Ok("startup"));
        check("notes(a)", Allow, Err("takes no argument"));
        check("exce", Deny, Err("did you mean `exec`?"));
        check("Exec(rm *)", Deny, Err("did you mean `exec`?"));
    }
}
