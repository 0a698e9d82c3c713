//! Texts that are kept in the repository and made from the code: man pages, completions, screens and their pictures. A test
//! compares them; with `UPDATE_EXPECT=1` it writes them instead.

use nanobot_base::diff::Diff;
use std::path::Path;

/// Lines of a difference that are shown.
const SHOWN_LINES: usize = 20;

/// True if this run writes the texts.
pub(crate) fn is_renewing() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some_and(|value| !value.is_empty())
}

/// Asserts that the file at `path`, from the root of the repository, has this text.
#[track_caller]
pub(crate) fn assert_recorded(path: &str, text: &str) {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let old = std::fs::read_to_string(&full).unwrap_or_default();
    if old == text {
        return;
    }
    if is_renewing() {
        std::fs::write(&full, text).expect("it can be written");
        return;
    }
    let changes = Diff::new(&old, text).unified_with_header(1, path, "made by the code");
    let count = changes.lines().count();
    let mut start: String =
        changes.lines().take(SHOWN_LINES).map(|line| format!("{line}\n")).collect();
    if count > SHOWN_LINES {
        start.push_str(&format!("… and {} lines more\n", count - SHOWN_LINES));
    }
    panic!(
        "`{path}` is not what the code makes:\n{start}If that is meant, `.ci/renew` writes it anew; the diff is part of the change."
    );
}
