//! `.ci/unsafe`, on a program with one dependency: what it counts as unsafe code, and what it demands to be read.

use crate::requirements::require;
use crate::story::write;
use std::path::Path;
use std::process::Command;

const PAGE: &str =
    "# Page\n\n<!-- crates, written by .ci/unsafe --write -->\n<!-- end of the crates -->\n";

/// Two places; neither comments and texts nor tests count.
const SOURCE: &str = r##"// unsafe { a comment }
/* unsafe fn, /// unsafe impl */
pub const TEXTS: [&str; 2] = ["\" unsafe {", r#"" unsafe {"#];
pub const LETTERS: [char; 3] = ['"', '\'', '\u{22}'];
pub unsafe fn read<'a>(pointer: *const &'a u8) -> &'a u8 {
    unsafe { *pointer }
}
"##;

fn set_version(root: &Path, version: &str) {
    let manifest =
        format!("[package]\nname = \"other\"\nversion = \"{version}\"\nedition = \"2024\"\n");
    write(&root.join("other/Cargo.toml"), manifest.as_bytes());
    let mut cargo = Command::new("cargo");
    cargo.args(["generate-lockfile", "--offline", "--quiet"]).current_dir(root.join("program"));
    assert!(cargo.status().unwrap().success());
}

/// Runs the script; an error is what it writes to standard error.
fn run_script(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let script = root.join("program/.ci/unsafe");
    let output = Command::new("python3").arg(script).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn edit_page(root: &Path, old: &str, new: &str) {
    let page = root.join("program/docs/unsafe-crates.md");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains(old), "no {old:?} in {text}");
    write(&page, text.replace(old, new).as_bytes());
}

#[test]
fn unsafe_code_that_nobody_has_read_is_refused() {
    if !require("python3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let program = "[package]\nname = \"program\"\nedition = \"2024\"\n[workspace]\n\
                   [dependencies]\nother = { path = \"../other\" }\n";
    for (name, text) in [
        ("program/Cargo.toml", program),
        ("program/src/lib.rs", "pub unsafe fn own() {}\n"),
        ("program/.ci/unsafe", include_str!("../../.ci/unsafe")),
        ("program/docs/unsafe-crates.md", PAGE),
        ("other/src/lib.rs", SOURCE),
        ("other/tests/own.rs", "unsafe fn tested() {}\n"),
    ] {
        write(&root.join(name), text.as_bytes());
    }
    set_version(root, "1.0.0");
    let assert_refused = |crates: &str| {
        let error = run_script(root, &[]).unwrap_err();
        let expect = format!("{crates}: `.ci/unsafe --write` renews docs/unsafe-crates.md;");
        assert!(error.starts_with(&expect) && error.lines().count() == 1, "{error}");
    };

    assert_refused("other 1.0.0");
    run_script(root, &["--write"]).unwrap();
    assert_refused("other 1.0.0");
    edit_page(
        root,
        "| other | 1.0.0 | 2 | ? | to be read |",
        "| other | 1.0.0 | 2 | memory | read |",
    );
    run_script(root, &[]).unwrap();

    // One place more.
    let more = format!("{SOURCE}pub unsafe fn more() {{}}\n");
    write(&root.join("other/src/lib.rs"), more.as_bytes());
    assert_refused("other 1.0.0");
    run_script(root, &["--write"]).unwrap();
    let marked = "| other | 1.0.0 | 3 | memory | to be read; 1.0.0 with 2: read |";
    edit_page(root, marked, "| other | 1.0.0 | 3 | memory | maintainers: others |");

    // A crate that is trusted for its maintainers is read again only if its count has grown.
    set_version(root, "1.1.0");
    assert_refused("other 1.0.0, other 1.1.0");
    run_script(root, &["--write"]).unwrap();
    edit_page(
        root,
        "| other | 1.1.0 | 3 | memory | maintainers: others |",
        "| other | 1.1.0 | 3 | memory | read |",
    );
    set_version(root, "1.2.0");
    run_script(root, &["--write"]).unwrap();
    edit_page(
        root,
        "| other | 1.2.0 | 3 | memory | to be read; 1.1.0 with 3: read |",
        "| other | 1.2.0 | 3 | memory | read |",
    );
    run_script(root, &[]).unwrap();

    let output = run_script(root, &[root.join("other").to_str().unwrap()]).unwrap();
    let numbers = output.lines().map(|line| line.rsplit_once(':').unwrap().1);
    assert_eq!(numbers.collect::<Vec<_>>(), ["5", "6", "8"], "{output}");
}
