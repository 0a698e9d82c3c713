//! A fake `crontab` for stories, so that no test touches the real crontab of the user. Its features are listed at the top of
//! `fake_crontab.sh`.

use crate::story::Story;
use std::path::{Path, PathBuf};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/fake_crontab.sh");

pub(crate) struct FakeCrontab {
    dir: PathBuf,
}

impl FakeCrontab {
    /// Creates the directory `dir` with the program in it.
    pub(crate) fn install(dir: &Path) {
        std::fs::create_dir(dir).unwrap();
        // A link, not a copy: see `write_program`.
        std::os::unix::fs::symlink(PROGRAM, dir.join("crontab")).unwrap();
    }

    /// The instance in the directory `dir`.
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.into() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("crontab.{name}"))
    }

    /// Selects the behavior for all following calls.
    pub(crate) fn behave(&self, kind: &str) {
        std::fs::write(self.file("kind"), format!("{kind}\n")).unwrap();
    }

    /// Replaces the crontab.
    pub(crate) fn set(&self, table: impl AsRef<[u8]>) {
        std::fs::write(self.file("table"), table).unwrap();
    }

    /// Appends these lines after the next listing, like a concurrent change by another process.
    pub(crate) fn interfere(&self, lines: &str) {
        std::fs::write(self.file("next"), lines).unwrap();
    }

    /// The crontab; `None` if there is none.
    pub(crate) fn table(&self) -> Option<String> {
        let bytes = std::fs::read(self.file("table")).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first argument of each call so far, without its directory.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.file("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }
}

/// The output and exit status of a shell command in the story.
fn shell(story: &Story, command: &str) -> (String, i32) {
    let child = story.program("/bin/sh").args(["-c", command]).spawn();
    let ran = story.wait(child.unwrap());
    (ran.text() + &ran.error_text(), ran.code())
}

#[test]
fn a_story_has_a_crontab_of_its_own() {
    let story = Story::bare();
    let crontab = story.crontab();
    let check = |command: &str, expect: &str, status: i32| {
        assert_eq!(
            shell(&story, command),
            (expect.to_owned(), status),
            "{command}"
        );
    };
    check("command -v crontab", "$BIN/crontab\n", 0);
    check("crontab -l", "no crontab for me\n", 1);
    check("echo '* * * * * x' > t; crontab \"$PWD/t\"", "", 0);
    assert_eq!(crontab.table().unwrap(), "* * * * * x\n");
    assert_eq!(crontab.calls(), ["-l", "t"]);
    crontab.interfere("y\n");
    check("crontab -l; crontab -l", "* * * * * x\n* * * * * x\ny\n", 0);
    let refused = "new crontab file is missing newline before EOF, can't install.\n";
    check("printf x > t; crontab \"$PWD/t\"", refused, 1);
    crontab.behave("forgetful");
    check("echo z > t; crontab \"$PWD/t\"", "", 0);
    assert_eq!(crontab.table().unwrap(), "* * * * * x\ny\n");
    check("crontab -r", "", 0);
    assert_eq!(crontab.table(), None);
    crontab.set("1\n");
    check("crontab -l", "1\n", 0);
    crontab.set("a\\r\r\n");
    check("VISUAL=cat crontab -e", "a\\r\r\nNo modification made\n", 0);
    crontab.behave("carriage");
    check("crontab -l", "a\\r\\r\n", 0);
    crontab.behave("torn");
    check(
        "crontab -l",
        "# no crontab for anybody\ncrontab: input/output error\n",
        1,
    );
}
