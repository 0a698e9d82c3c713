//! The `grep` tool: finds lines that match a regular expression, with the engine of ripgrep.
//!
//! Each file is opened relative to the directory descriptors of the run, so a path that is changed during the search
//! cannot lead outside.

use super::arguments::usize_argument;
use super::files::Files;
use super::function_tool::FunctionTool;
use super::glob::{build_matcher as glob_matcher, names_hidden_files, page};
use super::walk::{self, MAX_ENTRIES, WalkOptions};
use super::{CallEffect, ToolError, ToolOutput};
use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind,
    SinkFinish, SinkMatch,
};
use nanobot_base::message::{ToolSpec, without_blanks};
use nanobot_os::signal;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Matching lines shown by default.
const DEFAULT_MATCHES: usize = 100;
/// Maximum number of matching lines shown.
const MAX_MATCHES: usize = 1_000;
/// Maximum lines of context before and after each match.
const MAX_CONTEXT_LINES: usize = 20;
/// Maximum number of files shown.
const DEFAULT_FILES: usize = 200;
/// Maximum characters shown; chosen to fit into the part of a result that the session keeps.
const MAX_OUTPUT_CHARS: usize = 15_000;
/// Maximum characters shown of a line, and how many of them may precede the match.
const MAX_LINE_CHARS: usize = 400;
const MAX_CHARS_BEFORE_MATCH: usize = 100;
/// Maximum bytes of a line kept in memory.
const MAX_LINE_BYTES: usize = 16 << 20;
/// Maximum number of files named that could not be searched.
const MAX_UNREAD_FILES: usize = 10;

/// Builds the `grep` tool.
pub fn tool(files: Arc<Files>) -> FunctionTool {
    // Numbers that are too large are reduced to the limit. Limits in the schema would cost tokens in each request.
    let parameters = const {
        &without_blanks(
            br#"{ "type": "object", "required": ["pattern"], "properties": {
        "pattern": { "type": "string", "minLength": 1 },
        "path": { "type": "string", "description": "file or directory" },
        "glob": { "type": "string", "description": "only files like *.rs" },
        "type": { "type": "string", "description": "as rust, py" },
        "output_mode": { "type": "string", "enum": ["content", "files_with_matches", "count"] },
        "case_insensitive": { "type": "boolean" },
        "fixed_strings": { "type": "boolean" },
        "context_before": { "type": "integer" },
        "context_after": { "type": "integer" },
        "all": { "type": "boolean", "description": "hidden and ignored files too" },
        "head_limit": { "type": "integer" },
        "offset": { "type": "integer" }
    } }"#,
        )
    };
    let description = "Search file contents for a regex; skips binary and ignored files";
    let spec = ToolSpec::new("grep", description, parameters);
    FunctionTool::new(spec, CallEffect::Reads, move |arguments| search(&files, arguments))
}

/// The files of a search.
struct SearchedFiles {
    paths: Vec<PathBuf>,
    /// True if there are more than the walk examines.
    is_truncated: bool,
    /// True if hidden files are among them.
    has_hidden: bool,
}

fn search(files: &Files, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let matcher = build_matcher(arguments)?;
    let raw_path = arguments["path"].as_str().unwrap_or(".");
    let SearchedFiles { paths, is_truncated, has_hidden } =
        collect_files(files, raw_path, arguments)?;
    let mode = arguments["output_mode"].as_str().unwrap_or("content");
    let mut searcher = build_searcher(arguments, mode);
    let offset = usize_argument(arguments, "offset").unwrap_or(0);
    let window = match mode {
        "content" => {
            let limit = usize_argument(arguments, "head_limit").unwrap_or(DEFAULT_MATCHES);
            let limit = limit.clamp(1, MAX_MATCHES);
            offset..offset.saturating_add(limit)
        }
        _ => 0..0,
    };
    let hidden = files.hidden_files();
    let mut results = SearchResults::default();
    let mut names = Vec::new();
    for path in &paths {
        signal::check().map_err(|_| "interrupted: the run is ending")?;
        let Some((file, _)) = files.open_entry(path, &hidden) else {
            continue;
        };
        let directory = &files.file_scope.directory;
        let name = path.strip_prefix(directory).unwrap_or(path).display().to_string();
        let remaining_chars = MAX_OUTPUT_CHARS.saturating_sub(results.text_chars);
        let mut file_matches = FileMatches::new(
            &matcher,
            results.remaining_window(&window),
            results.matches,
            remaining_chars,
        );
        match searcher.search_reader(&matcher, InterruptibleFile(file), &mut file_matches) {
            Err(_) if signal::check().is_err() => {
                return Err("interrupted: the run is ending".into());
            }
            Err(error) => results.unread_files.push(describe_read_error(&name, &error)),
            Ok(()) if file_matches.is_binary => results.binary_files += 1,
            Ok(()) => {
                let count = file_matches.next_number - results.matches;
                if count > 0 {
                    names.push(match mode {
                        "count" => format!("{name}: {count}"),
                        _ => name.clone(),
                    });
                }
                results.merge(&name, &file_matches);
            }
        }
    }
    let mut text = match mode {
        "content" => results.page(&window)?,
        _ => page(&names, arguments, DEFAULT_FILES, "files")?,
    };
    text.push_str(&search_notes(&results, &paths, is_truncated));
    if results.matches == 0 && !has_hidden {
        text.push_str(&hidden_files_note(files, raw_path, arguments)?);
    }
    Ok(text.into())
}

/// Collects the files to search; those that are hidden only if the call asks for them.
fn collect_files(
    files: &Files,
    raw_path: &str,
    arguments: &Value,
) -> Result<SearchedFiles, ToolError> {
    let Some(dir) = files.find_directory(raw_path)? else {
        // `raw_path` may be a link to the file; `read` resolves it.
        let paths = vec![files.file(raw_path)?];
        return Ok(SearchedFiles { paths, is_truncated: false, has_hidden: true });
    };
    let ignored = arguments["all"] == true;
    let glob = arguments["glob"].as_str().unwrap_or_default();
    let has_hidden = ignored || names_hidden_files(glob);
    let options = WalkOptions { hidden: has_hidden, ignored, ..Default::default() };
    let (paths, is_truncated) = walk_files(files, &dir, arguments, options)?;
    Ok(SearchedFiles { paths, is_truncated, has_hidden })
}

/// A note on the hidden files beneath `raw_path` that were not searched.
fn hidden_files_note(
    files: &Files,
    raw_path: &str,
    arguments: &Value,
) -> Result<String, ToolError> {
    let dir = files.directory(raw_path)?;
    let options = WalkOptions { hidden: true, ..Default::default() };
    let (mut paths, _) = walk_files(files, &dir, arguments, options)?;
    paths.retain(|path| walk::is_hidden(path, &dir));
    let scope = &files.file_scope;
    Ok(walk::hidden_files_note(scope, &paths, "hidden files were not searched"))
}

/// The files beneath `dir` that `arguments` name; true if there are more than the walk examines.
fn walk_files(
    files: &Files,
    dir: &Path,
    arguments: &Value,
    mut options: WalkOptions,
) -> Result<(Vec<PathBuf>, bool), ToolError> {
    let text = |key: &str| arguments[key].as_str().filter(|text| !text.is_empty());
    let glob = text("glob").map(glob_matcher).transpose()?;
    options.types = text("type").map(walk::file_types).transpose()?;
    let mut entry_count = 0;
    let entries = walk::entries(&files.file_scope, dir, options);
    let entries = entries.inspect(|_| entry_count += 1).filter(|entry| {
        let relative = entry.path().strip_prefix(dir).unwrap_or(entry.path());
        entry.file_type().is_some_and(|kind| kind.is_file())
            && glob.as_ref().is_none_or(|glob| glob.is_match(relative))
    });
    let paths = entries.map(ignore::DirEntry::into_path).collect();
    Ok((paths, entry_count >= MAX_ENTRIES))
}

/// A searcher that collects what the output mode shows.
fn build_searcher(arguments: &Value, mode: &str) -> Searcher {
    let is_content = mode == "content";
    let lines = |key: &str| {
        let lines = if is_content { usize_argument(arguments, key) } else { None };
        lines.unwrap_or(0).min(MAX_CONTEXT_LINES)
    };
    SearcherBuilder::new()
        .line_number(is_content)
        .line_terminator(LineTerminator::crlf())
        .before_context(lines("context_before"))
        .after_context(lines("context_after"))
        .max_matches((mode == "files_with_matches").then_some(1))
        .heap_limit(Some(MAX_LINE_BYTES))
        .memory_map(MmapChoice::never())
        .binary_detection(BinaryDetection::quit(0))
        .build()
}

/// A note on the files that were not searched; empty if all were searched.
fn search_notes(results: &SearchResults, paths: &[PathBuf], is_truncated: bool) -> String {
    let mut notes = Vec::new();
    // In a directory tree, binary files are expected and not worth a note.
    if results.binary_files > 0 && paths.len() == 1 {
        notes.push("the file is binary, and was not searched".to_owned());
    }
    let unread_files = &results.unread_files;
    notes.extend(unread_files.iter().take(MAX_UNREAD_FILES).cloned());
    if unread_files.len() > MAX_UNREAD_FILES {
        notes.push(format!(
            "{} more files could not be read",
            unread_files.len() - MAX_UNREAD_FILES
        ));
    }
    if is_truncated {
        notes.push(format!("only the first {MAX_ENTRIES} entries were searched"));
    }
    if notes.is_empty() { String::new() } else { format!("\n({})", notes.join("; ")) }
}

/// The reason why the file `name` was not searched, or not to its end.
fn describe_read_error(name: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => format!("{name} could not be read: {error}"),
        // The searcher's own limit was reached, since the system has reported no error.
        None => format!(
            "{name} was not searched to its end: it has a line of more than {} MiB; use exec",
            MAX_LINE_BYTES >> 20
        ),
    }
}

/// Builds the regular expression of a call.
///
/// # Errors
/// The expression is invalid. The error is a text for the model.
fn build_matcher(arguments: &Value) -> Result<RegexMatcher, String> {
    let pattern = arguments["pattern"].as_str().unwrap_or_default();
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(arguments["case_insensitive"] == true)
        .fixed_strings(arguments["fixed_strings"] == true)
        .multi_line(true)
        .crlf(true)
        .build(pattern);
    matcher.map_err(|error| {
        format!(
            "invalid pattern: {error}; it is matched within one line, and fixed_strings takes it literally"
        )
    })
}

/// A file whose reads end early once the run is to end.
struct InterruptibleFile(File);

impl Read for InterruptibleFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        signal::check().map_err(|_| io::Error::other("interrupted: the run is ending"))?;
        self.0.read(buffer)
    }
}

/// The matches found in all files.
#[derive(Default)]
struct SearchResults {
    text: String,
    /// The number of characters of `text`.
    text_chars: usize,
    /// Matching lines, shown or not.
    matches: usize,
    /// Matching lines that are shown.
    shown_matches: usize,
    matching_files: usize,
    binary_files: usize,
    /// Messages about files that could not be searched.
    unread_files: Vec<String>,
}

impl SearchResults {
    /// The range of match numbers that may still be shown. A page has no gaps: after the first match that does not fit,
    /// none is shown.
    fn remaining_window(&self, window: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        let end = if self.matches > window.start + self.shown_matches {
            window.start
        } else {
            window.end
        };
        window.start..end
    }

    fn merge(&mut self, name: &str, file_matches: &FileMatches<'_>) {
        self.matching_files += usize::from(file_matches.next_number > self.matches);
        self.matches = file_matches.next_number;
        self.shown_matches += file_matches.shown_matches;
        if !file_matches.text.is_empty() {
            let text = format!("{name}\n{}", file_matches.text);
            self.text_chars += text.chars().count();
            self.text.push_str(&text);
        }
    }

    fn page(&mut self, window: &std::ops::Range<usize>) -> Result<String, String> {
        let Self { matches, shown_matches, matching_files, .. } = *self;
        if matches == 0 {
            return Ok("no matches found".into());
        }
        if window.start >= matches {
            return Err(format!(
                "offset {} is beyond the end: there are {matches} matches",
                window.start
            ));
        }
        let mut text = std::mem::take(&mut self.text);
        text.truncate(text.trim_end_matches('\n').len());
        if shown_matches < matches {
            let end = window.start + shown_matches;
            let more =
                if end < matches { format!("; continue at offset {end}") } else { String::new() };
            text.push_str(&format!(
                "\n({} to {end} of {matches} matches in {matching_files} files{more})",
                window.start + 1
            ));
        }
        Ok(text)
    }
}

/// The matches found in one file.
struct FileMatches<'m> {
    matcher: &'m RegexMatcher,
    /// The range of match numbers that are shown.
    window: std::ops::Range<usize>,
    /// The number of the next match.
    next_number: usize,
    /// Characters that may still be added.
    remaining_chars: usize,
    text: String,
    /// The number of characters of `text`.
    text_chars: usize,
    shown_matches: usize,
    /// Context that is shown only if the match after it is.
    pending_context: String,
    /// True if the last match was shown.
    is_showing: bool,
    /// True if lines are left out before the next one.
    is_gap: bool,
    is_binary: bool,
}

impl<'m> FileMatches<'m> {
    fn new(
        matcher: &'m RegexMatcher,
        window: std::ops::Range<usize>,
        next_number: usize,
        remaining_chars: usize,
    ) -> Self {
        Self {
            matcher,
            window,
            next_number,
            remaining_chars,
            text: String::new(),
            text_chars: 0,
            shown_matches: 0,
            pending_context: String::new(),
            is_showing: false,
            is_gap: false,
            is_binary: false,
        }
    }

    fn push_text(&mut self, text: &str) {
        self.text_chars += text.chars().count();
        self.text.push_str(text);
    }

    /// Formats a line; of a long one, only the part around the match.
    fn format_line(&self, number: Option<u64>, separator: char, bytes: &[u8]) -> String {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let number = number.unwrap_or_default();
        let line = String::from_utf8_lossy(bytes);
        if line.chars().nth(MAX_LINE_CHARS).is_none() {
            return format!("{number}{separator} {line}\n");
        }
        let line_match = self.matcher.find(line.as_bytes()).ok().flatten();
        // A match may begin within a character.
        let before = line_match
            .map_or("", |line_match| &line[..line.floor_char_boundary(line_match.start())]);
        let start = before.char_indices().nth_back(MAX_CHARS_BEFORE_MATCH - 1);
        let start = start.map_or(0, |(start, _)| start);
        let visible_text: String = line[start..].chars().take(MAX_LINE_CHARS).collect();
        let ellipsis = if start > 0 { "…" } else { "" };
        format!("{number}{separator} {ellipsis}{visible_text}… ({} bytes)\n", bytes.len())
    }
}

impl Sink for FileMatches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line_match: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.is_showing =
            self.window.contains(&self.next_number) && self.text_chars < self.remaining_chars;
        self.next_number += 1;
        let context = std::mem::take(&mut self.pending_context);
        if self.is_showing {
            let gap = if self.is_gap && !self.text.is_empty() { "--\n" } else { "" };
            let line = self.format_line(line_match.line_number(), ':', line_match.bytes());
            self.push_text(&format!("{gap}{context}{line}"));
            self.shown_matches += 1;
            self.is_gap = false;
        } else if self.next_number > self.window.start {
            self.window.end = self.window.start;
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        let line = self.format_line(context.line_number(), '-', context.bytes());
        match context.kind() {
            SinkContextKind::Before => self.pending_context.push_str(&line),
            _ if self.is_showing => self.push_text(&line),
            _ => {}
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.pending_context.clear();
        self.is_gap = true;
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> Result<(), io::Error> {
        self.is_binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::tool;
    use crate::{files::tests::files, run_alone};
    use nanobot_base::message::plain_text;
    use serde_json::{Value, json};
    use std::sync::Arc;

    #[test]
    fn searches() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.join(name), bytes).unwrap();
        };
        write("a.rs", b"fn one() {}\nlet x = 1;\nfn two() {}\n\n\n\nfn three() {}\n");
        write("sub/b.py", b"def one():\r\n    pass\r\n");
        write("sub/binary", b"one\0one\n");
        write("skipped.log", b"fn one\n");
        write(".hidden", b"fn one\n");
        write(".gitignore", b"*.log\n");
        write("latin", b"caf\xe9 one\n");
        write(
            "wide",
            "\u{feff}one".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>().as_slice(),
        );
        write("long", format!("{}needle{}\n", "x".repeat(5_000), "y".repeat(5_000)).as_bytes());
        std::os::unix::fs::symlink("/etc/passwd", dir.join("link")).unwrap();
        std::os::unix::fs::symlink("a.rs", dir.join("inner")).unwrap();
        let grep = tool(Arc::new(files(&dir, false)));
        let run = |arguments: Value| {
            run_alone(&grep, &arguments)
                .map(|output| plain_text(&output.parts))
                .map_err(|failure| failure.message().to_owned())
        };
        let check = |arguments: Value, expect: &str| {
            assert_eq!(run(arguments.clone()).as_deref(), Ok(expect), "{arguments}");
        };
        check(json!({ "pattern": "fn t.*\\{\\}$" }), "a.rs\n3: fn two() {}\n7: fn three() {}");
        check(
            json!({ "pattern": "fn t", "context_before": 1 }),
            "a.rs\n2- let x = 1;\n3: fn two() {}\n--\n6- \n7: fn three() {}",
        );
        check(
            json!({ "pattern": "LET", "case_insensitive": true, "context_after": 1 }),
            "a.rs\n2: let x = 1;\n3- fn two() {}",
        );
        check(json!({ "pattern": "():", "fixed_strings": true }), "sub/b.py\n1: def one():");
        check(json!({ "pattern": "\\):$" }), "sub/b.py\n1: def one():");
        check(
            json!({ "pattern": "one", "output_mode": "files_with_matches" }),
            "a.rs\nlatin\nsub/b.py\nwide",
        );
        check(json!({ "pattern": "fn", "output_mode": "count" }), "a.rs: 3");
        check(json!({ "pattern": "one", "type": "py" }), "sub/b.py\n1: def one():");
        check(json!({ "pattern": "one", "glob": "*.py" }), "sub/b.py\n1: def one():");
        check(
            json!({ "pattern": "fn one", "glob": "{.h*,*.log}", "all": true }),
            ".hidden\n1: fn one\nskipped.log\n1: fn one",
        );
        check(json!({ "pattern": "two", "path": "a.rs" }), "a.rs\n3: fn two() {}");
        check(json!({ "pattern": "two", "path": "inner" }), "a.rs\n3: fn two() {}");
        check(
            json!({ "pattern": "fn", "path": "a.rs", "head_limit": 1, "offset": 1 }),
            "a.rs\n3: fn two() {}\n(2 to 2 of 3 matches in 1 files; continue at offset 2)",
        );
        check(json!({ "pattern": "nowhere", "path": "a.rs" }), "no matches found");
        check(
            json!({ "pattern": "nowhere" }),
            "no matches found\n(hidden files were not searched: `.gitignore`, `.hidden`; `all` includes them)",
        );
        check(json!({ "pattern": "fn one", "glob": ".h*" }), ".hidden\n1: fn one");
        check(json!({ "pattern": "nowhere", "all": true }), "no matches found");
        check(
            json!({ "pattern": "one", "path": "sub/binary" }),
            "no matches found\n(the file is binary, and was not searched)",
        );
        let long = run(json!({ "pattern": "needle" })).unwrap();
        assert!(long.contains("xneedley") && long.len() < 600, "{long}");
        let wide = "語".repeat(399);
        write("wide.md", format!("{wide}ß\n{wide}é{wide}\n").as_bytes());
        check(json!({ "pattern": "ß" }), &format!("wide.md\n1: {wide}ß"));
        let long = run(json!({ "pattern": "é" })).unwrap();
        let part = |count: usize| "語".repeat(count);
        assert_eq!(long, format!("wide.md\n2: …{}é{}… (2396 bytes)", part(100), part(299)));
        let fails = |arguments: Value, words: &str| {
            let error = run(arguments).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        fails(json!({ "pattern": "(" }), "invalid pattern");
        fails(json!({ "pattern": "a\\nb" }), "within one line");
        fails(json!({ "pattern": "a", "type": "nosuch" }), "unknown file type");
        fails(json!({ "pattern": "a", "glob": "[" }), "is not a valid pattern");
        fails(json!({ "pattern": "root", "path": "/etc/passwd" }), "outside the paths");
        fails(json!({ "pattern": "root", "path": "link" }), "outside the paths");
        fails(json!({ "pattern": "fn", "path": "a.rs", "offset": 9 }), "beyond the end");
        fails(json!({ "pattern": "fn", "path": "none" }), "there is no");
    }

    #[test]
    fn long_results_are_cut_and_counted() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        for name in ["a", "b"] {
            std::fs::write(dir.join(name), "a line of some length\n".repeat(2_000)).unwrap();
        }
        let grep = tool(Arc::new(files(&dir, false)));
        let run = |arguments: Value| {
            let output = run_alone(&grep, &arguments).unwrap();
            plain_text(&output.parts)
        };
        let text = run(json!({ "pattern": "line" }));
        assert!(text.ends_with("\n(1 to 100 of 4000 matches in 2 files; continue at offset 100)"));
        let text = run(json!({ "pattern": "line", "head_limit": 1000 }));
        assert!(text.len() < 15_200 && text.contains(" of 4000 matches"), "{}", text.len());
        let text = run(json!({ "pattern": "line", "offset": 3990 }));
        assert!(
            text.starts_with("b\n1991: ")
                && text.ends_with("(3991 to 4000 of 4000 matches in 2 files)")
        );
    }
}
