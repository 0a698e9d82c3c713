//! Other processes of this system.

use rustix::io::Errno;
use rustix::process::Pid;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Whether there is a terminal that a person may sit at, wherever the streams lead.
pub fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether a process of that number runs.
pub fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Somebody else's may not be asked, which shows that it is there.
    pid.is_some_and(|pid| !matches!(rustix::process::test_kill_process(pid), Err(Errno::SRCH)))
}

/// The process of this user and this `home` whose command line has the words `wanted`, where there is one. The first of them
/// may be a path.
pub fn running(wanted: &[&str], home: &Path) -> Option<u32> {
    let words = |path: PathBuf| -> Vec<String> {
        let bytes = std::fs::read(path).unwrap_or_default();
        let words = bytes.split(|byte| *byte == 0);
        words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect()
    };
    let is_it = |line: &[String]| {
        let last = |word: &str| word.rsplit('/').next() == wanted.first().copied();
        let rest = |words: &[String]| words.iter().zip(wanted).skip(1).all(|(a, b)| a == b);
        let mut runs = line.windows(wanted.len());
        runs.any(|words| last(&words[0]) && rest(words))
    };
    let home = format!("HOME={}", home.display());
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut numbered = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse::<u32>().ok()?;
        Some((number, entry.path()))
    });
    let found = numbered.find(|(_, path)| {
        // What is not ours cannot be asked for its environment.
        is_it(&words(path.join("cmdline"))) && words(path.join("environ")).contains(&home)
    });
    found.map(|(number, _)| number)
}
