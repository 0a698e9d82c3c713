//! A fake `crontab` for stories, so that no test touches the real crontab of the user. Its features are listed at the top of
//! `fake_crontab.sh`.

use crate::story::Story;
use std::path::{Path, PathBuf};

const SCRIPT_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/fake_crontab.sh");

pub(crate) struct FakeCrontab {
    dir: PathBuf,
}

impl FakeCrontab {
    /// Creates the directory `dir` with the program in it.
    pub(crate) fn install(dir: &Path) {
        std::fs::create_dir(dir).unwrap();
        // A link, not a copy: see `write_program`.
        std::os::unix::fs::symlink(SCRIPT_PATH, dir.join("crontab")).unwrap();
    }

    /// The instance in the directory `dir`.
    pub(crate) fn in_dir(dir: &Path) -> Self {
        Self { dir: dir.into() }
    }

    fn control_file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("crontab.{name}"))
    }

    /// Selects the behavior for all following calls.
    pub(crate) fn set_behavior(&self, kind: &str) {
        std::fs::write(self.control_file("kind"), format!("{kind}\n")).unwrap();
    }

    /// Replaces the crontab.
    pub(crate) fn set_table(&self, table: impl AsRef<[u8]>) {
        std::fs::write(self.control_file("table"), table).unwrap();
    }

    /// Appends these lines after the next listing, like a concurrent change by another process.
    pub(crate) fn append_after_list(&self, lines: &str) {
        std::fs::write(self.control_file("next"), lines).unwrap();
    }

    /// The crontab; `None` if there is none.
    pub(crate) fn table(&self) -> Option<String> {
        let bytes = std::fs::read(self.control_file("table")).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first argument of each call so far, without its directory.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.control_file("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }
}

/// The output and exit status of a shell command in the story.
fn run_shell(story: &Story, command: &str) -> (String, i32) {
    let child = story.program("/bin/sh").args(["-c", command]).spawn();
    let result = story.wait(child.unwrap());
    (result.text() + &result.error_text(), result.code())
}

#[test]
fn each_story_has_its_own_crontab() {
    let story = Story::bare();
    let crontab = story.crontab();
    let check = |command: &str, expect: &str, status: i32| {
        assert_eq!(run_shell(&story, command), (expect.to_owned(), status), "{command}");
    };
    check("command -v crontab", "$BIN/crontab\n", 0);
    check("crontab -l", "no crontab for me\n", 1);
    check("echo '* * * * * x' > t; crontab \"$PWD/t\"", "", 0);
    assert_eq!(crontab.table().unwrap(), "* * * * * x\n");
    assert_eq!(crontab.calls(), ["-l", "t"]);
    crontab.append_after_list("y\n");
    check("crontab -l; crontab -l", "* * * * * x\n* * * * * x\ny\n", 0);
    let refused = "new crontab file is missing newline before EOF, can't install.\n";
    check("printf x > t; crontab \"$PWD/t\"", refused, 1);
    crontab.set_behavior("forgetful");
    check("echo z > t; crontab \"$PWD/t\"", "", 0);
    assert_eq!(crontab.table().unwrap(), "* * * * * x\ny\n");
    check("crontab -r", "", 0);
    assert_eq!(crontab.table(), None);
    crontab.set_table("1\n");
    check("crontab -l", "1\n", 0);
    crontab.set_table("a\\r\r\n");
    check("VISUAL=cat crontab -e", "a\\r\r\nNo modification made\n", 0);
    crontab.set_behavior("carriage");
    check("crontab -l", "a\\r\\r\n", 0);
    crontab.set_behavior("torn");
    check("crontab -l", "# no crontab for anybody\ncrontab: input/output error\n", 1);
}
