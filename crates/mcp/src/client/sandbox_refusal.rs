//! Recognises in a server's text that its sandbox refused a path. Each program reports a refusal in its own words, so the text is searched
//! for names of errors and for a path in the same line. No I/O.

/// Names and messages of the errors with which the kernel refuses a path. The first letter of a message is in either case.
const PERMISSION_ERRORS: &[&str] = &[
    "EACCES",
    "EBUSY",
    "EPERM",
    "EROFS",
    "ermission denied",
    "esource busy",
    "not permitted",
    "ead-only file system",
];

/// Maximum length of a path that is reported, in bytes.
const MAX_PATH_BYTES: usize = 300;

/// True if `text` reports that a path was refused.
pub(crate) fn reports_refusal(text: &str) -> bool {
    PERMISSION_ERRORS.iter().any(|name| text.contains(name))
}

/// The first absolute path in a line of `text` that reports a refusal.
pub(crate) fn refused_path(text: &str) -> Option<&str> {
    text.lines().filter(|line| reports_refusal(line)).find_map(|line| {
        let quoted = line.split(['\'', '"', '`']).skip(1).step_by(2);
        let parts = line.split(|c: char| c.is_whitespace() || "'\"`()[],;".contains(c));
        let parts = parts.map(|part| part.trim_end_matches([':', '.']));
        quoted.chain(parts).find(|part| {
            part.len() > 1
                && part.len() <= MAX_PATH_BYTES
                && part.starts_with('/')
                && !part.starts_with("//")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::refused_path;

    #[test]
    fn paths_are_found_in_the_words_of_common_programs() {
        let check = |text: &str, expect: Option<&str>| assert_eq!(refused_path(text), expect);
        check("EACCES: permission denied, open '/a b/c'", Some("/a b/c"));
        check("PermissionError: [Errno 13] Permission denied: '/a/b'", Some("/a/b"));
        check("fine: /x\nsh: 1: cannot create /a/b: Permission denied", Some("/a/b"));
        check(
            "npm error EACCES: permission denied, mkdir '/a/node_modules'",
            Some("/a/node_modules"),
        );
        check("mkdir: cannot create directory \u{2018}x\u{2019}: Permission denied", None);
        check("open /a/b: read-only file system", Some("/a/b"));
        // A granted file is mounted, and so cannot be replaced.
        check("EBUSY: resource busy or locked, rename '/a/b.tmp' -> '/a/b'", Some("/a/b.tmp"));
        check("GET https://a.example//x failed at /a/b", None);
        check("EPERM (see //a)", None);
    }
}
