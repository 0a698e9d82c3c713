//! `session search`: finds text in all sessions, and in the memory's record of older ones.

use super::list::report_failures;
use super::transcript::day_and_time;
use crate::cli::session::SessionSearchArgs;
use crate::command::name_pattern::single_line;
use crate::ops::context::Context;
use crate::ops::embeddings::{self, IndexedMessage};
use anyhow::Result;
use console::{Style, measure_text_width};
use nanobot_agent::report::short_text::truncate_line;
use nanobot_base::error::Exit;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::terminal::{StdoutWriter, sanitize, theme};
use nanobot_store::embedding_index::Ranked;
use nanobot_store::session::{
    self, FILTER_PREFIX, MatchLine, MessageMatch, REWOUND_PREFIX, SearchPattern, SessionListing,
    SessionStore,
};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::Path;

/// The memory files in the workspace. The last one is written by newer releases, with one JSON entry per line.
const MEMORY_FILES: [&str; 3] = ["memory/MEMORY.md", "memory/HISTORY.md", "memory/history.jsonl"];

/// Runs `session search`.
pub(super) fn run(
    ctx: &Context,
    store: &SessionStore,
    workspace: &Path,
    arguments: &SessionSearchArgs,
) -> Result<Exit> {
    let SessionSearchArgs {
        pattern,
        meaning,
        session,
        ignore_case,
        fixed_strings,
        context,
        list,
        json,
    } = arguments;
    if *meaning {
        return search_by_meaning(ctx, store, pattern, session.as_deref(), *json);
    }
    let pattern = SearchPattern::new(pattern, *fixed_strings, *ignore_case)?;
    // The copies of conversations before a `/rewind` would give each line twice.
    let SessionListing { sessions, mut failures } =
        list_searched(store, session.as_deref(), &[REWOUND_PREFIX])?;
    let format = match (list, json) {
        (true, _) => SearchFormat::Names,
        (_, true) => SearchFormat::Json,
        _ => SearchFormat::Lines,
    };
    let mut output = SearchOutput {
        writer: StdoutWriter::for_pager(ctx.terminal),
        width: ctx.terminal.stdout_width(),
        format,
        is_empty: true,
        context: *context,
        clock: ctx.clock.clone(),
    };
    let search_failures =
        session::search(&sessions, &pattern, *context, &mut |summary, message_match| {
            let MessageMatch { index, time, role, lines } = message_match;
            output.write(&SearchHit {
                name: &summary.key,
                number: index + 1,
                time: &time,
                role,
                lines: &lines,
            })?;
            Ok(!matches!(format, SearchFormat::Names))
        })?;
    failures.extend(search_failures);
    if session.is_none() {
        for name in MEMORY_FILES {
            let text = durable_file::read(&workspace.join(name))?.unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            search_memory(name, &text, &pattern, *context, &mut output)?;
        }
    }
    let is_empty = output.is_empty;
    output.writer.finish()?;
    if is_empty && !*json {
        ctx.explain_empty("no message matches, and nothing in the memory");
    }
    Ok(match report_failures(ctx, &failures) {
        Exit::Answered if is_empty => Exit::Failed,
        other => other,
    })
}

/// The session `key`, or all without those that begin with `left_out`.
fn list_searched(
    store: &SessionStore,
    key: Option<&str>,
    left_out: &[&str],
) -> Result<SessionListing> {
    if let Some(key) = key {
        let sessions = vec![session::summarize(store, key)?];
        return Ok(SessionListing { sessions, failures: Vec::new() });
    }
    let mut listing = session::list(store)?;
    listing.sessions.retain(|session| !left_out.iter().any(|it| session.key.starts_with(it)));
    Ok(listing)
}

/// Runs `session search --meaning`.
fn search_by_meaning(
    ctx: &Context,
    store: &SessionStore,
    text: &str,
    key: Option<&str>,
    as_json: bool,
) -> Result<Exit> {
    let SessionListing { sessions, failures } =
        list_searched(store, key, &[REWOUND_PREFIX, FILTER_PREFIX])?;
    let ranked = embeddings::search_sessions(ctx, store, &sessions, key.is_none(), text)?;
    let mut writer = StdoutWriter::for_pager(ctx.terminal);
    let width = ctx.terminal.stdout_width();
    for Ranked { score, entry } in &ranked {
        let IndexedMessage { key, number, time, role, text } = entry;
        if as_json {
            let time = ctx.clock.to_rfc3339(time);
            writer.write_json(&json!({
                "session": key, "number": number, "time": time, "role": role, "line": text, "score": score,
            }))?;
            continue;
        }
        let time = day_and_time(time);
        let head = format!("{}:{number} {time} {role}:", single_line(key));
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let columns = width.map(|width| {
            let columns = width.saturating_sub(measure_text_width(&head) + 1);
            columns.max(MIN_LINE_CHARS)
        });
        writer.write_styled(&head, &Style::new().fg(theme::accent()))?;
        let line = truncate_line(&line, columns.unwrap_or(MAX_LINE_CHARS));
        writer.write(&format!(" {}\n", sanitize(&line)))?;
    }
    writer.finish()?;
    if ranked.is_empty() && !as_json {
        ctx.explain_empty("there are no messages");
    }
    Ok(match report_failures(ctx, &failures) {
        Exit::Answered if ranked.is_empty() => Exit::Failed,
        other => other,
    })
}

/// Searches one file of the memory.
fn search_memory(
    name: &str,
    text: &str,
    pattern: &SearchPattern,
    context: usize,
    output: &mut SearchOutput,
) -> Result<()> {
    if !name.ends_with(".jsonl") {
        // Each line is an entry.
        for line in pattern.matching_lines(text, context) {
            output.write(&SearchHit {
                name,
                number: line.index + 1,
                time: "",
                role: "",
                lines: &[line],
            })?;
            if matches!(output.format, SearchFormat::Names) {
                break;
            }
        }
        return Ok(());
    }
    for (index, line) in text.lines().enumerate() {
        let entry: Value = serde_json::from_str(line).unwrap_or_default();
        let lines = pattern.matching_lines(entry["content"].as_str().unwrap_or_default(), context);
        if lines.is_empty() {
            continue;
        }
        output.write(&SearchHit {
            name,
            number: index + 1,
            time: entry["timestamp"].as_str().unwrap_or_default(),
            role: "",
            lines: &lines,
        })?;
        if matches!(output.format, SearchFormat::Names) {
            break;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum SearchFormat {
    Lines,
    Json,
    Names,
}

/// Matching lines in one place: a message of a session, or an entry of the memory.
struct SearchHit<'a> {
    /// A session's key, or the name of a memory file.
    name: &'a str,
    /// The number of the message or line, from 1.
    number: usize,
    time: &'a str,
    role: &'static str,
    lines: &'a [MatchLine],
}

/// The output of matches.
struct SearchOutput {
    writer: StdoutWriter,
    /// The columns of the terminal.
    width: Option<usize>,
    format: SearchFormat,
    is_empty: bool,
    context: usize,
    clock: Clock,
}

impl SearchOutput {
    fn write(&mut self, hit: &SearchHit<'_>) -> Result<()> {
        let is_first = std::mem::replace(&mut self.is_empty, false);
        match self.format {
            SearchFormat::Names => self.writer.write(&format!("{}\n", single_line(hit.name))),
            SearchFormat::Json => self.write_json(hit),
            SearchFormat::Lines => {
                if self.context > 0 && !is_first {
                    self.writer.write("--\n")?;
                }
                hit.lines.iter().try_for_each(|line| self.write_line(hit, line))
            }
        }
    }

    fn write_json(&mut self, hit: &SearchHit<'_>) -> Result<()> {
        let SearchHit { name, number, time, role, lines } = hit;
        // Entries of the memory have no role.
        let name_key = if role.is_empty() { "file" } else { "session" };
        for (index, line) in lines.iter().enumerate() {
            let Some(matched) = &line.matched else {
                continue;
            };
            let mut object = json!({
                name_key: name, "number": number, "time": self.clock.to_rfc3339(time), "role": role, "line": line.text,
                "start": matched.start, "end": matched.end,
            });
            if self.context > 0 {
                let is_context =
                    |other: &&MatchLine| other.index.abs_diff(line.index) <= self.context;
                let context = |lines: &[MatchLine]| -> Value {
                    lines.iter().filter(is_context).map(|line| json!(line.text)).collect()
                };
                object["before"] = context(&lines[..index]);
                object["after"] = context(&lines[index + 1..]);
            }
            self.writer.write_json(&object)?;
        }
        Ok(())
    }

    fn write_line(&mut self, hit: &SearchHit<'_>, line: &MatchLine) -> Result<()> {
        let SearchHit { name, number, time, role, lines: _ } = hit;
        // As in `grep`: a colon after a match, a dash after a context line.
        let mark = if line.matched.is_some() { ':' } else { '-' };
        let mut head = format!("{}{mark}{number}", single_line(name));
        for text in [day_and_time(time).as_str(), *role] {
            if !text.is_empty() {
                head.push_str(&format!(" {}", single_line(text)));
            }
        }
        head.push(mark);
        let max_chars = self.width.map(|width| {
            let columns = width.saturating_sub(measure_text_width(&head) + 1);
            columns.max(MIN_LINE_CHARS)
        });
        let (before, matched, after) = window(&line.text, line.matched.clone(), max_chars);
        // The output of a pipe is sanitized too, since a pager may pass it on to a terminal.
        let clean = |text: &str| match max_chars {
            Some(_) => sanitize(text).replace('\t', " "),
            None => sanitize(text),
        };
        self.writer.write_styled(&head, &Style::new().fg(theme::accent()))?;
        self.writer.write(&format!(" {}", clean(before)))?;
        if !matched.is_empty() {
            self.writer.write_styled(&clean(matched), &Style::new().red().bold())?;
        }
        self.writer.write(&format!("{}\n", clean(after)))
    }
}

/// Minimum characters of a line that are shown.
const MIN_LINE_CHARS: usize = 20;
/// Maximum characters of a message that a search by meaning prints into a pipe.
const MAX_LINE_CHARS: usize = 200;

/// Cuts a line to `max_chars` characters around the match. Returns the text before it, the match, and the text after it.
fn window(
    text: &str,
    matched: Option<Range<usize>>,
    max_chars: Option<usize>,
) -> (&str, &str, &str) {
    let matched = matched.unwrap_or(0..0);
    let (before, rest) = text.split_at(matched.start);
    let (matched, after) = rest.split_at(matched.len());
    let Some(max_chars) = max_chars else {
        return (before, matched, after);
    };
    // Some characters are two columns wide, but a line slightly wider than the terminal does no harm.
    let matched = first_chars(matched, max_chars);
    let remaining = max_chars - matched.chars().count();
    let after_chars = after.chars().take(remaining).count();
    // The text before the match gets at least a third.
    let before = last_chars(before, (remaining - after_chars).max(remaining / 3));
    let after = first_chars(after, remaining - before.chars().count());
    (before, matched, after)
}

fn first_chars(text: &str, count: usize) -> &str {
    let end = text.char_indices().nth(count);
    &text[..end.map_or(text.len(), |(index, _)| index)]
}

fn last_chars(text: &str, count: usize) -> &str {
    let start = match count {
        0 => text.len(),
        _ => text.char_indices().nth_back(count - 1).map_or(0, |(index, _)| index),
    };
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::window;

    #[test]
    fn the_window_contains_the_match() {
        let check = |text: &str, matched: std::ops::Range<usize>, max_chars, expect| {
            assert_eq!(window(text, Some(matched), max_chars), expect, "{text}");
        };
        check("abcdef", 2..3, None, ("ab", "c", "def"));
        check("abcdef", 2..3, Some(6), ("ab", "c", "def"));
        check("abcdefghij", 8..9, Some(4), ("gh", "i", "j"));
        check("abcdefghij", 0..1, Some(4), ("", "a", "bcd"));
        check("abcdefghij", 4..5, Some(4), ("d", "e", "fg"));
        check("abcdefghij", 2..8, Some(4), ("", "cdef", ""));
        check("äöüß", 2..4, Some(2), ("", "ö", "ü"));
        assert_eq!(window("abc", None, Some(2)), ("", "", "ab"));
    }
}
