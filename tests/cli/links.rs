//! Links: what the pages of the repository refer to is there.

use nanobot::cli::topics::TOPICS;
use std::path::{Path, PathBuf};

/// The pages, by their paths in the repository.
fn pages() -> Vec<(PathBuf, String)> {
    let names = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "CODE_OF_CONDUCT.md",
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
    let all = all.map(|found| found.get(1).unwrap().as_str());
    all.filter(|target| !target.contains("://")).collect()
}

/// The anchors of a page, as forges make them: one for each heading.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let is_kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
        words.chars().filter(is_kept).collect::<String>().replace(' ', "-")
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
                let is_there = anchors.iter().any(|found| found == anchor);
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
        for found in name.find_iter(&text) {
            let file = found.as_str().replace('(', ".").replace(')', "");
            let is_there = root().join("man").join(&file).exists();
            assert!(is_there, "{}: {}", page.display(), found.as_str());
            count += 1;
        }
    }
    assert!(count > 5, "{count}");
}

/// Names of files in backquotes.
#[test]
fn files_that_contributing_names_exist() {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let words = text.split('`').skip(1).step_by(2);
    let is_path = |word: &&str| {
        let starts = ["src/", "tests/", ".ci/"].iter();
        let is_source = starts.clone().any(|start| word.starts_with(start));
        (is_source || word.ends_with(".md")) && !word.contains("NAME") && !word.contains(' ')
    };
    let paths: Vec<&str> = words.filter(is_path).collect();
    assert!(paths.len() > 15, "{paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "{path}");
    }
}

#[test]
fn first_pages_are_short() {
    for (page, limit) in [("README.md", 200), ("CONTRIBUTING.md", 60)] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let lines = text.lines().count();
        assert!(lines <= limit, "{page}: {lines} lines");
    }
}
