//! Links: what the pages of the repository refer to is there.

use nanobot::cli::topics::TOPICS;
use std::path::{Path, PathBuf};

/// The pages, by their paths in the repository.
fn pages() -> Vec<(PathBuf, String)> {
    let names = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "CODE_OF_CONDUCT.md",
        "docs/compared.md",
        "docs/costs.md",
        "docs/unsafe-crates.md",
        "tests/README.md",
        ".ci/package/README.md",
    ];
    let topics = TOPICS.iter().map(|topic| format!("src/cli/topics/{}.md", topic.name));
    let paths = names.iter().map(|name| (*name).to_owned()).chain(topics);
    let read = |path: String| {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        (PathBuf::from(path), text)
    };
    paths.map(read).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The targets of the links in `text`, but for those to other sites. A target may contain a pair of parentheses, as that of
/// a man page does.
fn local_targets(text: &str) -> Vec<&str> {
    let target = regex::Regex::new(r"\]\(([^()\s]*(?:\(\d\))?[^()\s]*)\)").unwrap();
    let all = target.captures_iter(text);
    let all = all.map(|captures| captures.get(1).unwrap().as_str());
    all.filter(|target| !target.contains("://")).collect()
}

/// The anchors of a page, as forges make them: one for each heading.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let is_kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
        heading.chars().filter(is_kept).collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut count = 0;
    for (page, text) in pages() {
        for target in local_targets(&text) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match path {
                "" => root().join(&page),
                path => root().join(&page).parent().unwrap().join(path),
            };
            assert!(file.exists(), "{}: {target}", page.display());
            if !anchor.is_empty() {
                let anchors = anchors(&std::fs::read_to_string(file).unwrap());
                let is_there = anchors.iter().any(|other| other == anchor);
                assert!(is_there, "{}: {target}: {anchors:?}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

#[test]
fn targets_and_anchors_are_found() {
    let text = "# A B, c\n[x](y.md#a-b-c) ![z](p(5).svg)\n[w](https://example.org)";
    assert_eq!(local_targets(text), ["y.md#a-b-c", "p(5).svg"]);
    assert_eq!(anchors(text), ["a-b-c"]);
}

/// Man pages are named as `nanobot-cron-add(1)`.
#[test]
fn named_man_pages_exist() {
    let name = regex::Regex::new(r"\bnanobot(?:-[a-z]+)*\(([157])\)").unwrap();
    let mut count = 0;
    for (page, text) in pages() {
        for name_match in name.find_iter(&text) {
            let file = name_match.as_str().replace('(', ".").replace(')', "");
            let is_there = root().join("man").join(&file).exists();
            assert!(is_there, "{}: {}", page.display(), name_match.as_str());
            count += 1;
        }
    }
    assert!(count > 5, "{count}");
}

/// The files and folders below `folder`, and it.
fn paths_below(folder: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let below = paths.flat_map(paths_below).collect::<Vec<_>>();
    below.into_iter().chain([folder]).collect()
}

/// Paths in backquotes: from the root of the repository, or the end of one. Of a path with `NAME`, the folder must be there.
#[test]
fn files_that_the_pages_for_developers_name_exist() {
    let path = regex::Regex::new(r"`([\w./-]*/[\w./-]*|[\w.-]+\.rs)`").unwrap();
    let folders = ["src", "crates", "tests", "benches", ".ci"];
    let all: Vec<PathBuf> =
        folders.iter().flat_map(|folder| paths_below(root().join(folder))).collect();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let named = path.captures_iter(&text).map(|captures| captures.get(1).unwrap().as_str());
        let mut count = 0;
        for name in named {
            let path = match name.split_once("NAME") {
                Some((before, _)) => before.rsplit_once('/').unwrap().0,
                None => name,
            };
            let is_end = all.iter().any(|other| other.ends_with(path));
            assert!(root().join(path).exists() || is_end, "{page}: {name}");
            count += 1;
        }
        assert!(count > 15, "{page}: {count}");
    }
}

#[test]
fn first_pages_are_short() {
    for (page, limit) in [("README.md", 200), ("ARCHITECTURE.md", 200), ("CONTRIBUTING.md", 100)] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let lines = text.lines().count();
        assert!(lines <= limit, "{page}: {lines} lines");
    }
}
