//! Rules as users write them: `TOOL`, or `TOOL(glob)` to match an argument. A rule never grants a shell command:
//! commands are contained by the sandbox, not recognized by their text, and `exec(…)` can only be denied.

use super::tool_names::{self, EXEC, PROCESS, READ_TOOLS, RESERVED_WORDS, WEB_FETCH, WRITE_TOOLS};
use super::{path_glob, path_pattern};
use globset::GlobMatcher;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;

/// The effect of a rule: it allows or denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleEffect {
    Allow,
    Deny,
}

/// A rule about a tool, or about some of its calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    pub effect: RuleEffect,
    /// The tools that the rule applies to.
    pub tool: Pattern,
    /// The pattern that the argument must match; `None` for any argument.
    #[serde(deserialize_with = "Option::deserialize")]
    pub argument: Option<Pattern>,
    /// The source of the rule, such as `--deny` or `tools.deny`.
    pub origin: String,
}

/// The permission to use a tool, from strictest to weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    Never,
    /// Requires approval. Means no if the run cannot prompt.
    Ask,
    Always,
}

impl Permission {
    /// Parses `never`, `ask` or `always`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "always" => Some(Self::Always),
            "ask" => Some(Self::Ask),
            "never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Parses one entry of the config map `permissions`.
    ///
    /// # Errors
    /// A phrase to append to `name`: it refers to no tool, or `permission` is not one.
    pub fn parse_entry(name: &str, permission: &str) -> Result<(Pattern, Self), String> {
        let name = tool_names::canonical_name(name);
        tool_names::check(name)?;
        let permission = Self::parse(permission)
            .ok_or_else(|| format!("is `{permission}`, expected `always`, `ask` or `never`"))?;
        Ok((Pattern::new(name), permission))
    }
}

/// A glob in which `*` matches any text, including `/`, and `?` matches one character. In a pattern for paths, `**/` matches
/// any number of directories, also none, `{a,b}` one of several texts, and `[ab]` one of several characters.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern {
    text: String,
    /// The matcher of a pattern for paths, compiled at first use; `None` if the pattern has none of their syntax.
    #[serde(skip)]
    path_matcher: OnceLock<Option<GlobMatcher>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl PolicyRule {
    /// Parses `TOOL` or `TOOL(glob)`.
    ///
    /// # Errors
    /// A phrase to append to the rule: the mistake in it.
    pub fn parse(text: &str, effect: RuleEffect, origin: &str) -> Result<Self, String> {
        let text = text.trim();
        let (tool, mut argument) = match text.split_once('(') {
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
        if !RESERVED_WORDS.contains(&tool) {
            tool_names::check(tool)?;
        } else if argument.is_some() {
            return Err("takes no argument".into());
        }
        if argument.as_ref().is_some_and(|argument| argument.text().is_empty()) {
            return Err("has an empty argument; without `()` it applies to every call".into());
        }
        let tool = Pattern::new(tool);
        if tool.matches_file_tool()
            && let Some(argument) = &mut argument
        {
            argument
                .check_path_glob()
                .map_err(|cause| format!("is not a valid glob for paths: {cause}"))?;
            if has_absolute_alternative(argument.text()) {
                return Err(
                    "has absolute paths in braces, which match nothing: write a rule for each"
                        .into(),
                );
            }
            // A glob for several tools may be about arguments that are no paths.
            if !tool.has_wildcard() {
                *argument = Pattern::new(path_pattern::normalize(argument.text())?);
            }
        }
        if effect == RuleEffect::Allow
            && argument.is_some()
            && [EXEC, PROCESS].iter().any(|name| tool.matches(name))
        {
            return Err(
                "cannot be enforced: commands are confined by the sandbox, not by their text, so `exec` is allowed as a whole or not at all"
                    .into(),
            );
        }
        Ok(Self { effect, tool, argument, origin: origin.into() })
    }

    /// The rule and its source, as the reason for a decision.
    pub fn reason(&self) -> String {
        format!("rule `{self}` ({})", self.origin)
    }

    /// True if the rule applies to a call of `tool` whose argument can be written as any of `forms`.
    pub fn covers(&self, tool: &str, forms: &[String]) -> bool {
        let matches = |argument: &Pattern, form: &String| match tool {
            tool if is_file_tool(tool) => argument.matches_path(form),
            // A host is the same in any case, and a path is not.
            WEB_FETCH if !argument.text().contains('/') => {
                Pattern::new(argument.text().to_ascii_lowercase()).matches(form)
            }
            _ => argument.matches(form),
        };
        let matches_any = |argument| forms.iter().any(|form| matches(argument, form));
        self.tool.matches(tool) && self.argument.as_ref().is_none_or(matches_any)
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
        Self { text: text.into(), path_matcher: OnceLock::new() }
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if the pattern is not a plain name.
    pub fn has_wildcard(&self) -> bool {
        self.text.contains(['*', '?'])
    }

    /// True if the pattern may match a text that begins with `prefix`. Errs on the side of true.
    pub fn may_match_prefix(&self, prefix: &str) -> bool {
        let stem = self.text.split(['*', '?']).next().unwrap_or_default();
        stem.starts_with(prefix) || (self.has_wildcard() && prefix.starts_with(stem))
    }

    /// True if `tool` is in a list of tools with this entry. An entry for `exec` includes `process`, and no other entry does.
    pub fn lists(&self, tool: &str) -> bool {
        self.matches(if tool == PROCESS { EXEC } else { tool })
    }

    /// True if the pattern, as one of tools, matches a tool whose arguments are paths.
    pub(super) fn matches_file_tool(&self) -> bool {
        let mut tools = READ_TOOLS.iter().chain(WRITE_TOOLS);
        tools.any(|tool| self.matches(tool))
    }

    /// Checks the pattern as one for paths.
    ///
    /// # Errors
    /// The mistake in it, as a phrase.
    pub(super) fn check_path_glob(&self) -> Result<(), String> {
        compile_path_glob(&self.text).map(drop)
    }

    /// True if the pattern, as one for paths, matches the whole of `path`.
    pub(crate) fn matches_path(&self, path: &str) -> bool {
        // A name may contain the characters of the glob.
        self.matches(path) || {
            let compile = || compile_path_glob(&self.text).ok().flatten();
            let matcher = self.path_matcher.get_or_init(compile);
            matcher.as_ref().is_some_and(|glob| glob.is_match(path))
        }
    }

    /// True if the pattern matches the whole of `text`.
    pub fn matches(&self, text: &str) -> bool {
        let pattern: Vec<char> = self.text.chars().collect();
        let text: Vec<char> = text.chars().collect();
        let (mut pattern_index, mut text_index) = (0, 0);
        // The index of the latest star, and the end of the text that it matches so far. Only the latest star ever needs
        // to backtrack.
        let mut star: Option<(usize, usize)> = None;
        while text_index < text.len() {
            match pattern.get(pattern_index) {
                Some('*') => {
                    star = Some((pattern_index, text_index));
                    pattern_index += 1;
                }
                Some(letter) if *letter == '?' || *letter == text[text_index] => {
                    pattern_index += 1;
                    text_index += 1;
                }
                _ => match &mut star {
                    Some((star_index, match_end)) => {
                        *match_end += 1;
                        (pattern_index, text_index) = (*star_index + 1, *match_end);
                    }
                    None => return false,
                },
            }
        }
        pattern[pattern_index..].iter().all(|letter| *letter == '*')
    }
}

/// True if the arguments of `tool` are paths of files.
pub(super) fn is_file_tool(tool: &str) -> bool {
    READ_TOOLS.contains(&tool) || WRITE_TOOLS.contains(&tool)
}

/// Compiles a glob for paths; `None` if [`Pattern::matches`] handles all of its syntax.
fn compile_path_glob(text: &str) -> Result<Option<GlobMatcher>, String> {
    if text.contains("**/") || text.contains(['{', '}', '[']) {
        path_glob::compile(text, false).map(Some)
    } else {
        Ok(None)
    }
}

/// True if braces at the beginning of a glob have an absolute path. The glob itself is relative, so this matches nothing.
fn has_absolute_alternative(text: &str) -> bool {
    // The number of open braces, and of those that nothing comes before.
    let (mut depth, mut leading_depth) = (0_usize, 0);
    let mut is_at_start = true;
    for (index, letter) in text.char_indices() {
        let rest = &text[index..];
        if is_at_start && depth > 0 && (rest.starts_with('/') || rest.starts_with("~/")) {
            return true;
        }
        match letter {
            '{' => {
                depth += 1;
                if is_at_start {
                    leading_depth = depth;
                }
            }
            ',' if depth > 0 => is_at_start = depth <= leading_depth,
            '}' => {
                depth = depth.saturating_sub(1);
                leading_depth = leading_depth.min(depth);
                is_at_start = false;
            }
            _ => is_at_start = false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{Pattern, PolicyRule, RuleEffect};

    #[test]
    fn patterns() {
        let check = |pattern: &str, text: &str, expect: bool| {
            assert_eq!(Pattern::new(pattern).matches(text), expect, "{pattern} {text}");
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
        // Arguments that are not paths, such as commands.
        check("**/a", "a", false);
        check("[a]", "a", false);
        check("[a]*", "[a]b", true);
    }

    #[test]
    fn patterns_for_paths() {
        let check = |pattern: &str, path: &str, expect: bool| {
            let actual = Pattern::new(pattern).matches_path(path);
            assert_eq!(actual, expect, "{pattern} {path}");
        };
        for path in [".env", "a/.env", "a/b/.env"] {
            check("**/.env", path, true);
        }
        check("**/.env", "a.env", false);
        check("/w/**/.env", "/w/.env", true);
        check("/w/**/.env", "/w/a/b/.env", true);
        check("**/sub/*", "sub/a/b", true);
        check("**/sub/", "sub/", true);
        check("{.env,*.pem}", ".env", true);
        check("{.env,*.pem}", "a.pem", true);
        check("{.env,*.pem}", "env", false);
        check("a{,.bak}", "a", true);
        check("[.]env", ".env", true);
        check("[!a]b", "ab", false);
        check("[a-c]d", "bd", true);
        check("src/*", "src/a/b", true);
        check("/r[[]1][{]a[}][\\]b/*", "/r[1]{a}\\b/x", true);
        check("/r[[]1][{]a[}][\\]b/*", "/r1a/x", false);
        // As a name.
        check("app/[slug]/*", "app/[slug]/page.tsx", true);
        check("{a}", "{a}", true);
        check("*/.env", ".env", false);
    }

    #[test]
    fn a_glob_that_is_nested_too_deeply_is_an_error() {
        let path = format!(".vim/{}/{}", "{".repeat(250), "}".repeat(250));
        let rule = format!("write_file({path})");
        let error = PolicyRule::parse(&rule, RuleEffect::Allow, "--allow").unwrap_err();
        assert!(error.contains("braces within each other"), "{error}");
        assert!(!Pattern::new(&path).matches_path("a"));
    }

    #[test]
    fn rules_as_written() {
        let check = |text: &str, effect: RuleEffect, expect: Result<&str, &str>| {
            let actual = PolicyRule::parse(text, effect, "--allow");
            match (&actual, expect) {
                (Ok(rule), Ok(shown)) => assert_eq!(rule.to_string(), shown),
                (Err(message), Err(part)) => assert!(message.contains(part), "{text}: {message}"),
                _ => panic!("{text}: {actual:?}"),
            }
        };
        use RuleEffect::{Allow, Deny};
        check("exec", Allow, Ok("exec"));
        check(" write_file( src/*.rs ) ", Allow, Ok("write_file(src/*.rs)"));
        check("mcp_*", Deny, Ok("mcp_*"));
        check("exec(git *)", Deny, Ok("exec(git *)"));
        check("exec(git *)", Allow, Err("confined"));
        check("*(git *)", Allow, Err("confined"));
        check("exec(git", Deny, Err("closing"));
        check("exec([ -f *)", Deny, Ok("exec([ -f *)"));
        check("read_file([a)", Deny, Err("not a valid glob for paths"));
        check("*_file({a)", Allow, Err("not a valid glob for paths"));
        check("exec()", Deny, Err("empty argument"));
        check("web_fetch( )", Allow, Err("empty argument"));
        check("read_file({/srv/a,/srv/b}/*)", Deny, Err("write a rule for each"));
        check("read_file({a,{b,~/c}}/**)", Deny, Err("write a rule for each"));
        check("read_file({a,b/c}/*)", Deny, Ok("read_file({a,b/c}/*)"));
        check("read_file(a{/x,/y})", Deny, Ok("read_file(a{/x,/y})"));
        check("read_file({a{,/b},c}/d)", Deny, Ok("read_file({a{,/b},c}/d)"));
        check("read_file(/srv/{a,b}/*)", Deny, Ok("read_file(/srv/{a,b}/*)"));
        check("read_file({a,b}/{c,/d})", Deny, Ok("read_file({a,b}/{c,/d})"));
        check("exec(ls {/a,/b})", Deny, Ok("exec(ls {/a,/b})"));
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
