//! Divides lines among parts: between blocks, else between lines, else between words, else between graphemes.
//!
//! Writing a range of lines gives a text that is longer for a longer range, so the longest range that fits is found
//! by bisection.

use super::plain::as_text;
use nanobot_base::markdown::document::{DocumentLine, LineContent, TextRun};
use unicode_segmentation::UnicodeSegmentation;

/// A test of a range of lines: true if it makes a part within the limit.
type Fits<'f> = dyn Fn(&[DocumentLine]) -> bool + 'f;

/// Divides `lines` into parts that fit. Only a single character that does not fit makes a part that is too long.
pub(super) fn split<'t>(
    mut lines: Vec<DocumentLine<'t>>,
    fits: &Fits<'_>,
) -> Vec<Vec<DocumentLine<'t>>> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < lines.len() {
        let count = count_fitting(lines.len() - start, |count| fits(&lines[start..start + count]));
        if count == 0 {
            let (head, tail) = split_line(&lines[start], fits);
            parts.push(vec![head]);
            match tail {
                Some(tail) => lines[start] = tail,
                None => start += 1,
            }
            continue;
        }
        let end = choose_end(&lines, start, start + count, fits);
        parts.push(lines[start..end].to_vec());
        start = end;
    }
    parts
}

/// Returns the largest number up to `limit` that fits, 0 if 1 does not.
fn count_fitting(limit: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut fitting, mut exceeding) = (0, 1);
    while exceeding <= limit && fits(exceeding) {
        (fitting, exceeding) = (exceeding, exceeding * 2);
    }
    exceeding = exceeding.min(limit + 1);
    while exceeding - fitting > 1 {
        let middle = fitting + (exceeding - fitting) / 2;
        if fits(middle) { fitting = middle } else { exceeding = middle }
    }
    fitting
}

/// Returns the end of a part that starts at `start` and has no room beyond `end`. A block that fits into a part of
/// its own is kept whole, and a heading is kept with the text after it.
fn choose_end(lines: &[DocumentLine], start: usize, end: usize, fits: &Fits<'_>) -> usize {
    let follows_heading = |at: usize| matches!(lines[at - 1].content, LineContent::Heading(..));
    let may_break = |at: &usize| lines[*at].starts_block && !follows_heading(*at);
    if end == lines.len() || may_break(&end) {
        return end;
    }
    if let Some(block_start) = (start + 1..end).rev().find(may_break) {
        let block_end = (end..lines.len()).find(may_break).unwrap_or(lines.len());
        if fits(&lines[block_start..block_end]) {
            return block_start;
        }
    }
    if follows_heading(end) && end - start > 1 { end - 1 } else { end }
}

/// Splits a line that is too long for a part.
fn split_line<'t>(
    line: &DocumentLine<'t>,
    fits: &Fits<'_>,
) -> (DocumentLine<'t>, Option<DocumentLine<'t>>) {
    let line = as_text(line);
    let text = visible_text(&line.content);
    let graphemes: Vec<usize> =
        text.grapheme_indices(true).map(|(at, grapheme)| at + grapheme.len()).collect();
    let head_fits = |end: usize| fits(&[split_at(&line, end).0]);
    let mut end = match count_fitting(graphemes.len(), |count| head_fits(graphemes[count - 1])) {
        0 => {
            let characters: Vec<usize> =
                text.char_indices().map(|(at, character)| at + character.len_utf8()).collect();
            let count = count_fitting(characters.len(), |count| head_fits(characters[count - 1]));
            characters.get(count.max(1) - 1).copied().unwrap_or(0)
        }
        count => graphemes[count - 1],
    };
    // A word is kept whole, unless the part would be half empty.
    let is_between_words =
        end == text.len() || text[..end].ends_with(' ') || text[end..].starts_with(' ');
    if !is_between_words
        && let Some(space) = text[..end].rfind(' ')
        && space >= end / 2
    {
        end = space + 1;
    }
    let (head, tail) = split_at(&line, end);
    (head, (end < text.len()).then_some(tail))
}

fn visible_text(content: &LineContent) -> String {
    match content {
        LineContent::Text(runs) | LineContent::Heading(_, runs) => {
            runs.iter().map(|run| run.text.as_str()).collect()
        }
        LineContent::Code { text, .. } => text.clone(),
        LineContent::Rule | LineContent::Row(..) => String::new(),
    }
}

/// Splits a line after `end` bytes of its visible text. The second half continues the containers of the first.
fn split_at<'t>(line: &DocumentLine<'t>, end: usize) -> (DocumentLine<'t>, DocumentLine<'t>) {
    let (head, tail) = match &line.content {
        LineContent::Text(runs) => {
            let (head, tail) = split_runs(runs, end);
            (LineContent::Text(head), LineContent::Text(tail))
        }
        LineContent::Heading(level, runs) => {
            let (head, tail) = split_runs(runs, end);
            (LineContent::Heading(*level, head), LineContent::Heading(*level, tail))
        }
        LineContent::Code { language, text } => {
            let code = |text: &str| LineContent::Code {
                language: language.clone(),
                text: text.to_owned(),
            };
            (code(&text[..end]), code(&text[end..]))
        }
        whole => (whole.clone(), LineContent::Text(Vec::new())),
    };
    let head = DocumentLine { content: head, source: None, ..line.clone() };
    let tail = DocumentLine {
        content: tail,
        source: None,
        continued: line.containers.len(),
        starts_block: false,
        has_blank_before: false,
        containers: line.containers.clone(),
    };
    (head, tail)
}

/// Splits the runs after `end` bytes, and removes the spaces around that position.
fn split_runs(runs: &[TextRun], end: usize) -> (Vec<TextRun>, Vec<TextRun>) {
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    let mut head_bytes = end;
    for run in runs {
        let at = head_bytes.min(run.text.len());
        head_bytes -= at;
        let with_text = |text: &str| TextRun { text: text.to_owned(), ..run.clone() };
        if at > 0 {
            head.push(with_text(&run.text[..at]));
        }
        if at < run.text.len() {
            tail.push(with_text(&run.text[at..]));
        }
    }
    if let Some(last) = head.last_mut() {
        last.text.truncate(last.text.trim_end().len());
    }
    if let Some(first) = tail.first_mut() {
        first.text = first.text.trim_start().to_owned();
    }
    head.retain(|run| !run.text.is_empty());
    tail.retain(|run| !run.text.is_empty());
    (head, tail)
}

#[cfg(test)]
mod tests {
    use super::{count_fitting, split};
    use crate::dialect::plain;
    use nanobot_base::markdown::document::{DocumentLine, parse};

    /// Checks the parts of a text with a limit in bytes.
    #[track_caller]
    fn check(text: &str, limit: usize, expect: &[&str]) {
        let fits = |lines: &[DocumentLine]| plain::write(lines).len() <= limit;
        let parts = split(parse(text), &fits);
        let parts: Vec<String> = parts.iter().map(|lines| plain::write(lines)).collect();
        assert_eq!(parts, expect);
    }

    #[test]
    fn the_longest_is_found() {
        for limit in 0..20 {
            for good in 0..=limit {
                assert_eq!(count_fitting(limit, |count| count <= good), good);
            }
        }
    }

    #[test]
    fn blocks_are_kept_whole() {
        check("a b\n\nc d", 8, &["a b\n\nc d"]);
        check("aaa\n\nbbb\nccc", 8, &["aaa", "bbb\nccc"]);
        check("aaa\n- bbb\n- ccc", 12, &["aaa\n• bbb", "• ccc"]);
        check("aaa\n\n# b\nccc\nddd", 9, &["aaa", "b\nccc\nddd"]);
        check("aaa\n\n# b\nccc\nddd", 8, &["aaa", "b\nccc", "ddd"]);
        check("aaa\n\nbbb\nccc\nddd", 8, &["aaa\n\nbbb", "ccc\nddd"]);
    }

    #[test]
    fn lines_are_split_between_words() {
        check("aa bb cc dd", 6, &["aa bb", "cc dd"]);
        check("aaaaaaaa bb", 6, &["aaaaaa", "aa bb"]);
        check("> aa bb", 5, &["> aa", "> bb"]);
        check("1. aa bb", 5, &["1. aa", "   bb"]);
        check("aa bbbbbbbbb", 6, &["aa bbb", "bbbbbb"]);
        check("日本語", 6, &["日本", "語"]);
        check("e\u{301}e\u{301}e\u{301}", 8, &["e\u{301}e\u{301}", "e\u{301}"]);
        // A grapheme that is too long is split between characters.
        check("e\u{301}\u{301}\u{301}", 4, &["e\u{301}", "\u{301}\u{301}"]);
        check("```\naa  bb\n```", 4, &["aa  ", "bb"]);
    }
}
