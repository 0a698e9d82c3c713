//! The paths in rules, as they are compared: with paths that are absolute and free of links, `.`, `..` and empty names. What a
//! person writes may have all of these, and would then match nothing. No I/O.

use std::path::{Path, PathBuf};

/// The characters that are not plain in a glob.
const GLOB_CHARS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// Rewrites `text`, a glob for paths, without `.` and empty names, and with `..` only at its start. `$HOME` becomes `~`.
///
/// # Errors
/// A phrase to append to the rule: why it could match nothing.
pub(super) fn normalize(text: &str) -> Result<String, String> {
    let home = ["$HOME", "${HOME}"].iter().find_map(|variable| text.strip_prefix(variable));
    let home = home.filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let text = home.map_or_else(|| text.to_owned(), |rest| format!("~{rest}"));
    let first_name = text.split('/').next().unwrap_or_default();
    if text.contains('/') && (is_variable(first_name) || is_home_of_other(first_name)) {
        return Err(format!(
            "begins with `{first_name}`, which is not expanded in a rule: write the whole path, or `./{first_name}` for a name"
        ));
    }
    let is_absolute = text.starts_with('/');
    let mut names: Vec<&str> = Vec::new();
    let mut parent_count = 0;
    for name in text.split('/') {
        if has_relative_alternative(name) {
            return Err(
                "has `.` or `..` in braces, which match nothing: write a rule for each".into()
            );
        }
        match (name, names.last()) {
            ("" | ".", _) => {}
            ("..", Some(last)) if last.contains(GLOB_CHARS) || *last == "~" => {
                return Err(format!("has `..` after `{last}`, which matches nothing"));
            }
            ("..", Some(_)) => drop(names.pop()),
            ("..", None) => parent_count += usize::from(!is_absolute),
            (name, _) => names.push(name),
        }
    }
    let stem = text.trim_end_matches('/');
    let joined = names.join("/");
    // Without a slash, a glob would be for names in every directory.
    let is_relative = stem.contains('/') && !joined.contains('/') && names.first() != Some(&"~");
    let prefix = if is_absolute {
        "/".to_owned()
    } else if parent_count > 0 {
        "../".repeat(parent_count)
    } else if text.starts_with("./") || is_relative || names.is_empty() {
        "./".to_owned()
    } else {
        String::new()
    };
    let suffix = match names.last() {
        // A directory that is named by no name of its own.
        None if !is_absolute => "**",
        Some(&"~") if names.len() == 1 => "/**",
        Some(_) if text.ends_with('/') => "/",
        _ => "",
    };
    Ok(format!("{prefix}{joined}{suffix}"))
}

/// True if `name` is a reference to a variable, as shells have it.
fn is_variable(name: &str) -> bool {
    let Some(variable) = name.strip_prefix('$') else {
        return false;
    };
    let variable =
        variable.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(variable);
    let is_letter = |letter: char| letter == '_' || letter.is_ascii_alphanumeric();
    !variable.is_empty() && variable.chars().all(is_letter)
}

/// True if `name` is a shell's abbreviation of the home of another user.
fn is_home_of_other(name: &str) -> bool {
    name.strip_prefix('~').is_some_and(|user| !user.is_empty() && !user.contains(GLOB_CHARS))
}

/// True if braces in `name`, the part of a glob between two slashes, have `.` or `..` as a name of its own.
fn has_relative_alternative(name: &str) -> bool {
    let is_relative = |part: &str| part == "." || part == "..";
    let begins = name.split_once([',', '}']).is_some_and(|(part, _)| is_relative(part));
    let ends = name.rsplit_once(['{', ',']).is_some_and(|(_, part)| is_relative(part));
    begins || ends
}

/// The plain start of `text`, a glob for paths, and what follows it. `None` if it begins with a wildcard.
pub(super) fn split_plain_start(text: &str) -> Option<(&str, &str)> {
    let stem = text.strip_suffix('/').filter(|stem| !stem.is_empty()).unwrap_or(text);
    let start = match stem.find(GLOB_CHARS) {
        None => stem,
        Some(wildcard) => &stem[..stem[..wildcard].rfind('/')?],
    };
    (!start.is_empty()).then(|| (start, &text[start.len()..]))
}

/// The glob that begins with the plain path `start`.
pub(super) fn with_start(start: &Path, rest: &str) -> String {
    let mut text = String::new();
    for letter in start.to_string_lossy().chars() {
        match letter {
            '[' | '{' | '}' | '\\' => text.extend(['[', letter, ']']),
            letter => text.push(letter),
        }
    }
    format!("{}{rest}", text.trim_end_matches('/'))
}

/// The directory that `parent_count` times `..` leads to from `directory`.
pub(super) fn ancestor(directory: &Path, parent_count: usize) -> PathBuf {
    let ancestor = directory.ancestors().nth(parent_count);
    ancestor.unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{normalize, split_plain_start, with_start};
    use std::path::Path;

    #[test]
    fn paths_are_rewritten_as_they_are_compared() {
        let check = |text: &str, expect: &str| {
            assert_eq!(normalize(text).as_deref(), Ok(expect), "{text}");
            assert_eq!(normalize(expect).as_deref(), Ok(expect), "{text}");
        };
        for text in [
            ".env",
            "*.env",
            "secret/",
            "src/*.rs",
            "./src/**",
            "**/.env",
            "/w/**/.env",
            "~/x",
            "/",
            "a{/x,/y}",
            "{a,b/c}/*",
            "{.,_}env",
            "~$x.docx",
            "$x",
            "[.]env",
            "a/[slug]/*",
            "~",
        ] {
            if text != "~" {
                check(text, text);
            }
        }
        check("/srv//secret/**", "/srv/secret/**");
        check("/srv/./secret/.", "/srv/secret");
        check("/srv/../srv/secret", "/srv/secret");
        check("/../x", "/x");
        check("secret//k", "secret/k");
        check("secret/.", "./secret");
        check("a/..", "./**");
        check(".", "./**");
        check("../srv/x", "../srv/x");
        check("a/../../x", "../x");
        check("..", "../**");
        check("./.env", "./.env");
        check("~", "~/**");
        check("$HOME/a/**", "~/a/**");
        check("${HOME}", "~/**");
        check("~//a", "~/a");
        check("./~x/a", "./~x/a");
    }

    #[test]
    fn paths_that_match_nothing_are_errors() {
        let check = |text: &str, expect: &str| {
            let error = normalize(text).unwrap_err();
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("~root/x", "`~root`, which is not expanded");
        check("$DIR/x", "`$DIR`, which is not expanded");
        check("${DIR}/x", "not expanded");
        check("*/../x", "`..` after `*`");
        check("~/../x", "`..` after `~`");
        check("{./a,b}", "in braces");
        check("{../a,b}/c", "in braces");
        check("{a/..,b}", "in braces");
    }

    #[test]
    fn the_plain_start_can_be_replaced() {
        let check = |text: &str, expect: Option<(&str, &str)>| {
            assert_eq!(split_plain_start(text), expect, "{text}");
        };
        check("/a/b/**", Some(("/a/b", "/**")));
        check("/a/b*", Some(("/a", "/b*")));
        check("/a/", Some(("/a", "/")));
        check("a", Some(("a", "")));
        check("*.env", None);
        check("/*", None);
        let check = |start: &str, rest: &str, expect: &str| {
            assert_eq!(with_start(Path::new(start), rest), expect);
        };
        check("/r", "/**", "/r/**");
        check("/", "/x", "/x");
        check("/r[1]{a}\\b", "/*", "/r[[]1][{]a[}][\\]b/*");
    }
}
