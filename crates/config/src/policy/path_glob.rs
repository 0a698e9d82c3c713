//! Globs for paths, of rules and of the tools `glob` and `grep`. They come from users and models.

use globset::{GlobBuilder, GlobMatcher};

/// Maximum length in bytes, which is that of a path in Linux. The regex of a glob has a maximum size, too.
const MAX_BYTES: usize = 4096;
/// Maximum number of braces within each other. Both `globset` and the regex of a glob are recursive in it.
const MAX_NESTED_BRACES: usize = 16;

/// Compiles a glob. `/` is matched by `*` and `?`, unless `is_separator_literal` is true.
///
/// # Errors
/// The mistake in it, as a phrase.
pub fn compile(text: &str, is_separator_literal: bool) -> Result<GlobMatcher, String> {
    // `compile_matcher` panics if the regex is too large, or nested too deeply.
    if text.len() > MAX_BYTES {
        return Err(format!("longer than {MAX_BYTES} bytes"));
    }
    if nested_braces(text) > MAX_NESTED_BRACES {
        return Err(format!("more than {MAX_NESTED_BRACES} braces within each other"));
    }
    let mut builder = GlobBuilder::new(text);
    let glob = builder.literal_separator(is_separator_literal).empty_alternates(true).build();
    Ok(glob.map_err(|error| error.kind().to_string())?.compile_matcher())
}

/// The depth of the braces of a glob. Those that are literal count, too.
fn nested_braces(text: &str) -> usize {
    let (mut depth, mut max_depth) = (0_usize, 0);
    for letter in text.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        max_depth = max_depth.max(depth);
    }
    max_depth
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, MAX_NESTED_BRACES, compile};

    fn nested(depth: usize) -> String {
        format!("{}a{}", "{".repeat(depth), "}".repeat(depth))
    }

    #[test]
    fn a_glob_that_no_regex_can_hold_is_an_error() {
        for depth in [MAX_NESTED_BRACES + 1, 250, 2000, 100_000] {
            assert!(compile(&nested(depth), false).is_err(), "{depth}");
        }
        assert!(compile(&nested(MAX_NESTED_BRACES), false).unwrap().is_match("a"));
        for hidden in ["\\}", "[}]"] {
            assert!(compile(&format!("{{{hidden}").repeat(300), false).is_err());
        }
    }

    #[test]
    fn every_glob_within_the_limits_compiles_or_is_an_error() {
        for part in
            ["*", "?", "**/", "[a]", "[!a-z]", "[ä-ö]", "{a,b}", "{,}", "\\", "ä", "{", "[", "}"]
        {
            for length in [1, 100, MAX_BYTES / part.len()] {
                for is_separator_literal in [true, false] {
                    drop(compile(&part.repeat(length), is_separator_literal));
                }
            }
        }
    }
}
