//! What only some machines have. In CI, where everything is installed, a test that cannot run is a failure; elsewhere it is a
//! skip that is seen.

use std::io::Write;
use std::path::Path;

/// Whether this machine has `program` where stories look for it, or where daemons are.
pub(crate) fn has(program: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
}

/// As [`has`]; what is missing is a skip.
#[track_caller]
pub(crate) fn need(program: &str) -> bool {
    let has = has(program);
    if !has {
        skip(&format!("`{program}` is not installed"));
    }
    has
}

/// Say that a test, or a part of one, does not run.
///
/// # Panics
/// In CI.
#[track_caller]
pub(crate) fn skip(reason: &str) {
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!is_ci, "{reason}; in CI every test has to run");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    // Not by `eprintln!`, which is shown only when the test fails.
    let line = format!("skipped: {test}: {reason}\n");
    drop(std::io::stderr().write_all(line.as_bytes()));
}
