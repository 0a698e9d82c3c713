//! The sizes of the files of a home, by what they are for.

use regex::Regex;
use std::collections::BTreeMap;
use std::path::Path;

/// Files that grow with the work: the documentation says that they are appended to, and names the limits of those that have one.
const LOGS: [&str; 9] = [
    "/sessions/",
    "/output/",
    "runs.jsonl",
    "usage.jsonl",
    "tools.jsonl",
    "inbox.jsonl",
    "HISTORY.md",
    "/.versions/",
    "repl_history",
];
/// Bytes by which a file that is no log may grow in the last tenth: numbers get longer.
const MAX_STATE_GROWTH_BYTES: u64 = 64;

/// The number of files of a kind, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// The sizes at one time, by kind.
pub(super) type Sample = BTreeMap<String, Size>;

/// The sizes of the files below `home`.
pub(super) fn measure(home: &Path) -> Sample {
    let mut sample = Sample::new();
    let names = [
        (Regex::new(r"/sessions/[^/]*?\.jsonl").unwrap(), "/sessions/KEY.jsonl"),
        (Regex::new(r"/\.tmp[0-9A-Za-z]{6}$").unwrap(), "/TEMPORARY"),
        (Regex::new(r"[0-9a-f]{8,}|[0-9][-0-9TZ:.]*").unwrap(), "N"),
    ];
    add(home, home, &names, &mut sample);
    sample
}

fn add(home: &Path, directory: &Path, names: &[(Regex, &str)], sample: &mut Sample) {
    // A file may go away meanwhile.
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = path.symlink_metadata() else {
            continue;
        };
        if metadata.is_dir() {
            add(home, &path, names, sample);
            continue;
        }
        let relative = path.strip_prefix(home).unwrap().to_str().unwrap();
        let mut kind = format!("/{relative}");
        for (pattern, name) in names {
            kind = pattern.replace_all(&kind, *name).into_owned();
        }
        let size = sample.entry(kind).or_default();
        size.files += 1;
        size.bytes += metadata.len();
    }
}

/// The growth of a kind in the first and in the last tenth of the samples.
pub(super) struct Growth {
    pub(super) kind: String,
    pub(super) end: Size,
    pub(super) first: u64,
    pub(super) last: u64,
    /// Files that were added in the last tenth.
    new_files: u64,
}

impl Growth {
    fn new(kind: &str, samples: &[Sample]) -> Self {
        let size = |index: usize| samples[index].get(kind).copied().unwrap_or_default();
        let (count, tenth) = (samples.len(), (samples.len() / 10).max(1));
        let (begin, early, late, end) =
            (size(0), size(tenth), size(count - 1 - tenth), size(count - 1));
        Self {
            kind: kind.to_owned(),
            end,
            first: early.bytes.saturating_sub(begin.bytes),
            last: end.bytes.saturating_sub(late.bytes),
            new_files: end.files.saturating_sub(late.files),
        }
    }

    /// True if the kind grows faster at the end, or grows without being a log.
    pub(super) fn is_unbounded(&self) -> bool {
        if LOGS.iter().any(|name| self.kind.contains(name)) {
            return self.last > 2 * self.first + (64 << 10);
        }
        self.new_files > 0 || self.last > MAX_STATE_GROWTH_BYTES * self.end.files
    }
}

/// The growth of each kind.
pub(super) fn compare(samples: &[Sample]) -> Vec<Growth> {
    let last = samples.last().unwrap();
    last.keys().map(|kind| Growth::new(kind, samples)).collect()
}
