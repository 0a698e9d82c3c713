//! Requirements that only some machines meet. In CI, where everything is installed, a test that cannot run fails; elsewhere
//! it is skipped visibly.

use std::io::Write;
use std::path::Path;

/// True if `program` is in a directory of the stories' PATH, or of daemons.
pub(crate) fn is_installed(program: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
}

/// Like [`is_installed`]; a missing program skips the test.
#[track_caller]
pub(crate) fn require(program: &str) -> bool {
    let has = is_installed(program);
    if !has {
        skip(&format!("`{program}` is not installed"));
    }
    has
}

/// True if the tests run as root. Otherwise the test is skipped in CI too, and `.ci/run` says once that such tests are.
#[track_caller]
pub(crate) fn require_root(reason: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        report_skipped(reason);
    }
    is_root
}

/// Reports that a test, or a part of one, is skipped.
///
/// # Panics
/// In CI.
#[track_caller]
pub(crate) fn skip(reason: &str) {
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!is_ci, "{reason}; in CI every test has to run");
    report_skipped(reason);
}

fn report_skipped(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    // Not with `eprintln!`, whose output is only shown if the test fails.
    let line = format!("skipped: {test}: {reason}\n");
    drop(std::io::stderr().write_all(line.as_bytes()));
}
