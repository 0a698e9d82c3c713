//! Checks that the tested program contains each test hook. `.ci/program` uses the same search to prove that a release has
//! none.

use crate::story::NANOBOT;

#[test]
fn the_tested_program_contains_each_hook() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/os/src/test_hooks.rs");
    let source = std::fs::read_to_string(source).unwrap();
    let names: Vec<&str> =
        source.split('"').filter(|text| text.starts_with("NANOBOT_TEST_")).collect();
    assert!(!names.is_empty());
    let program = std::fs::read(NANOBOT).unwrap();
    for name in names {
        let position = memchr::memmem::find(&program, name.as_bytes());
        assert!(position.is_some(), "{name}");
    }
}
