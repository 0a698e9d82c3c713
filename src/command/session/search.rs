//! `session search`: finds text in all sessions, and in the memory's record of older ones.

use super::list::report_failures;
use super::transcript::day_and_time;
use crate::cli::session::SessionSearchArgs as Arguments;
use crate::command::name_pattern::single_line;
use crate::ops::context::Context;
use anyhow::Result;
use console::{Style, measure_text_width};
use nanobot_base::error::Exit;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::terminal::{StdoutWriter, sanitize, theme};
use nanobot_store::session::{
    self, MatchLine, MessageMatch, SearchPattern, SessionListing, SessionStore,
};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::Path;

/// The memory files in the workspace. The last is that of newer releases, with one JSON entry per line.
const MEMORY_FILES: [&str; 3] = ["memory/MEMORY.md", "memory/HISTORY.md", "memory/history.jsonl"];

/// Runs `session search`.
pub(super) fn run(
    ctx: &Context,
    place: &SessionStore,
    workspace: &Path,
    arguments: &Arguments,
) -> Result<Exit> {
    let Arguments { pattern, session, ignore_case, fixed_strings, context, list, json } = arguments;
    let needle = SearchPattern::new(pattern, *fixed_strings, *ignore_case)?;
    let SessionListing { sessions, mut failures } = match session {
        None => session::list(place)?,
        Some(key) => {
            SessionListing { sessions: vec![session::summarize(place, key)?], failures: Vec::new() }
        }
    };
    let form = match (list, json) {
        (true, _) => SearchFormat::Names,
        (_, true) => SearchFormat::Json,
        _ => SearchFormat::Lines,
    };
    let mut out = SearchOutput {
        page: StdoutWriter::for_pager(ctx.terminal),
        width: ctx.terminal.stdout_width(),
        format: form,
        is_empty: true,
        context: *context,
        clock: ctx.clock.clone(),
    };
    let unread = session::search(&sessions, &needle, *context, &mut |summary, found| {
        let MessageMatch { index: number, time, role, lines } = found;
        out.write(&SearchHit {
            name: &summary.key,
            number: number + 1,
            time: &time,
            role,
            lines: &lines,
        })?;
        Ok(!matches!(form, SearchFormat::Names))
    })?;
    failures.extend(unread);
    if session.is_none() {
        for name in MEMORY_FILES {
            let text = durable_file::read(&workspace.join(name))?.unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            search_memory(name, &text, &needle, *context, &mut out)?;
        }
    }
    let is_empty = out.is_empty;
    out.page.finish()?;
    if is_empty && !*json {
        ctx.explain_empty("no message matches, and nothing in the memory");
    }
    Ok(match report_failures(ctx, &failures) {
        Exit::Answered if is_empty => Exit::Failed,
        other => other,
    })
}

/// Searches one file of the memory.
fn search_memory(
    name: &str,
    text: &str,
    needle: &SearchPattern,
    context: usize,
    out: &mut SearchOutput,
) -> Result<()> {
    if !name.ends_with(".jsonl") {
        // Each line is an entry.
        let lines = needle.matching_lines(text, context);
        let is_one = matches!(out.format, SearchFormat::Names);
        return lines.chunks(1).take(if is_one { 1 } else { usize::MAX }).try_for_each(|line| {
            out.write(&SearchHit {
                name,
                number: line[0].index + 1,
                time: "",
                role: "",
                lines: line,
            })
        });
    }
    for (number, line) in text.lines().enumerate() {
        let entry: Value = serde_json::from_str(line).unwrap_or_default();
        let lines = needle.matching_lines(entry["content"].as_str().unwrap_or_default(), context);
        if lines.is_empty() {
            continue;
        }
        out.write(&SearchHit {
            name,
            number: number + 1,
            time: entry["timestamp"].as_str().unwrap_or_default(),
            role: "",
            lines: &lines,
        })?;
        if matches!(out.format, SearchFormat::Names) {
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
    page: StdoutWriter,
    /// The columns of the terminal.
    width: Option<usize>,
    format: SearchFormat,
    is_empty: bool,
    context: usize,
    clock: Clock,
}

impl SearchOutput {
    fn write(&mut self, spot: &SearchHit<'_>) -> Result<()> {
        let is_first = std::mem::replace(&mut self.is_empty, false);
        match self.format {
            SearchFormat::Names => self.page.write(&format!("{}\n", single_line(spot.name))),
            SearchFormat::Json => self.put_json(spot),
            SearchFormat::Lines => {
                if self.context > 0 && !is_first {
                    self.page.write("--\n")?;
                }
                spot.lines.iter().try_for_each(|line| self.put_line(spot, line))
            }
        }
    }

    fn put_json(&mut self, spot: &SearchHit<'_>) -> Result<()> {
        let SearchHit { name, number, time, role, lines } = spot;
        let file = if role.is_empty() { "file" } else { "session" };
        for (at, line) in lines.iter().enumerate() {
            let Some(matched) = &line.matched else {
                continue;
            };
            let near = |lines: &[MatchLine]| -> Vec<String> {
                let is_near = |near: &&MatchLine| near.index.abs_diff(line.index) <= self.context;
                let near = lines.iter().filter(is_near);
                near.map(|near| near.text.clone()).collect()
            };
            let mut found = json!({
                file: name, "number": number, "time": self.clock.to_rfc3339(time), "role": role, "line": line.text,
                "start": matched.start, "end": matched.end,
            });
            if self.context > 0 {
                found["before"] = json!(near(&lines[..at]));
                found["after"] = json!(near(&lines[at + 1..]));
            }
            self.page.write_json(&found)?;
        }
        Ok(())
    }

    fn put_line(&mut self, spot: &SearchHit<'_>, line: &MatchLine) -> Result<()> {
        let SearchHit { name, number, time, role, lines: _ } = spot;
        // As in `grep`: a colon after a match, a dash after a context line.
        let mark = if line.matched.is_some() { ':' } else { '-' };
        let words = [day_and_time(time), (*role).to_owned()];
        let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let mut head = format!("{}{mark}{number}", single_line(name));
        if !words.is_empty() {
            head.push_str(&format!(" {}", single_line(&words.join(" "))));
        }
        head.push(mark);
        let room = self.width.map(|width| {
            let room = width.saturating_sub(measure_text_width(&head) + 1);
            room.max(MIN_LINE_CHARS)
        });
        let (before, matched, after) = window(&line.text, line.matched.clone(), room);
        let safe = |text: &str| match room {
            Some(_) => sanitize(text).replace('\t', " "),
            // A pipe may lead to a pager.
            None => sanitize(text),
        };
        self.page.write_styled(&head, &Style::new().fg(theme::accent()))?;
        self.page.write(&format!(" {}", safe(before)))?;
        if !matched.is_empty() {
            self.page.write_styled(&safe(matched), &Style::new().red().bold())?;
        }
        self.page.write(&format!("{}\n", safe(after)))
    }
}

/// Minimum characters of a line that are shown.
const MIN_LINE_CHARS: usize = 20;

/// Cuts a line to `room` characters around the match. Returns the text before it, the match, and the text after it.
fn window(text: &str, matched: Option<Range<usize>>, room: Option<usize>) -> (&str, &str, &str) {
    let matched = matched.unwrap_or(0..0);
    let (before, rest) = text.split_at(matched.start);
    let (matched, after) = rest.split_at(matched.len());
    let Some(room) = room else {
        return (before, matched, after);
    };
    // Some characters are two columns wide, but a line slightly wider than the terminal does no harm.
    let matched = first_chars(matched, room);
    let room = room - matched.chars().count();
    let tail = after.chars().take(room).count();
    let before = last_chars(before, (room - tail).max(room / 3));
    let after = first_chars(after, room - before.chars().count());
    (before, matched, after)
}

fn first_chars(text: &str, count: usize) -> &str {
    let end = text.char_indices().nth(count);
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

fn last_chars(text: &str, count: usize) -> &str {
    let start = match count {
        0 => text.len(),
        _ => text.char_indices().nth_back(count - 1).map_or(0, |(at, _)| at),
    };
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::window;

    #[test]
    fn the_match_is_in_what_is_shown() {
        let check = |text: &str, range: std::ops::Range<usize>, room, expect| {
            assert_eq!(window(text, Some(range), room), expect, "{text}");
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
