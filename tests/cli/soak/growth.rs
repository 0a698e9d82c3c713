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
/// The data of `undo` has limits of its own, in turns and bytes: its copies grow with the files that the turns change.
const UNDO: &str = "/undo/";
const MAX_UNDO: Size = Size { files: 100, bytes: 1 << 30 };
/// Of other files, the last quarter of the time may show a peak that is higher than the one before it by so much: sizes vary with what is
/// in the files, numbers get longer, and a killed process may have left a file that the next one removes. What grows with the rounds, even
/// if slowly, is higher by a third.
const MAX_PEAK_PERCENT: u64 = 125;
const PEAK_SLACK: Size = Size { files: 2, bytes: 256 };

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

/// The growth of a kind in the first and in the last tenth of the samples, and its peaks.
pub(super) struct Growth {
    pub(super) kind: String,
    pub(super) end: Size,
    pub(super) first: u64,
    pub(super) last: u64,
    /// The most files and bytes before the last quarter, and in it.
    earlier_peak: Size,
    last_peak: Size,
}

impl Growth {
    fn new(kind: &str, samples: &[Sample]) -> Self {
        let size = |sample: &Sample| sample.get(kind).copied().unwrap_or_default();
        let (count, tenth) = (samples.len(), (samples.len() / 10).max(1));
        let bytes = |index: usize| size(&samples[index]).bytes;
        let (earlier, last_quarter) = samples.split_at(count - count / 4);
        let peak = |samples: &[Sample]| Size {
            files: samples.iter().map(|sample| size(sample).files).max().unwrap_or_default(),
            bytes: samples.iter().map(|sample| size(sample).bytes).max().unwrap_or_default(),
        };
        Self {
            kind: kind.to_owned(),
            end: size(&samples[count - 1]),
            first: bytes(tenth).saturating_sub(bytes(0)),
            last: bytes(count - 1).saturating_sub(bytes(count - 1 - tenth)),
            earlier_peak: peak(earlier),
            last_peak: peak(last_quarter),
        }
    }

    /// True if the kind grows faster at the end, or grows without being a log.
    pub(super) fn is_unbounded(&self) -> bool {
        if LOGS.iter().any(|name| self.kind.contains(name)) {
            return self.last > 2 * self.first + (64 << 10);
        }
        let Self { earlier_peak: earlier, last_peak: last, .. } = self;
        if self.kind.contains(UNDO) && self.kind.ends_with("/journal.jsonl") {
            return last.files > MAX_UNDO.files;
        }
        if self.kind.contains(UNDO) {
            return last.bytes > MAX_UNDO.bytes;
        }
        last.files > earlier.files * MAX_PEAK_PERCENT / 100 + PEAK_SLACK.files
            || last.bytes > earlier.bytes * MAX_PEAK_PERCENT / 100 + PEAK_SLACK.bytes
    }
}

/// The growth of each kind.
pub(super) fn compare(samples: &[Sample]) -> Vec<Growth> {
    let last = samples.last().unwrap();
    last.keys().map(|kind| Growth::new(kind, samples)).collect()
}

/// True if a kind is seen to grow without bound in a thousand samples, in which its files have the sizes that `size` gives.
fn is_unbounded(kind: &str, size: impl Fn(u64) -> Size) -> bool {
    let samples: Vec<Sample> =
        (0..1000).map(|round| Sample::from([(kind.to_owned(), size(round))])).collect();
    compare(&samples)[0].is_unbounded()
}

#[test]
fn what_grows_with_the_rounds_is_unbounded_and_what_fills_up_is_not() {
    let one = |bytes| Size { files: 1, bytes };
    assert!(is_unbounded("/cursor.json", |round| one(40 + 20 * round)));
    assert!(is_unbounded("/TEMPORARY", |round| Size { files: round / 20, bytes: 0 }));
    assert!(is_unbounded("/usage.jsonl", |round| one(round * round)));
    assert!(!is_unbounded("/usage.jsonl", |round| one(400 * round)));
    assert!(!is_unbounded("/journal.jsonl", |round| Size {
        files: round.min(100),
        bytes: round.min(100) * (500 + round % 40)
    }));
    assert!(!is_unbounded("/TEMPORARY", |round| Size {
        files: u64::from(round == 999),
        bytes: 100
    }));
    let undo = |files| move |_| Size { files, bytes: 1 << 20 };
    assert!(is_unbounded("/undo/N/journal.jsonl", undo(101)));
    assert!(!is_unbounded("/undo/N/journal.jsonl", undo(100)));
    assert!(!is_unbounded("/cursor.json", |round| one(40 + round.to_string().len() as u64)));
}
