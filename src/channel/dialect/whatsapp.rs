//! The marks of WhatsApp: `*bold*`, `_italic_`, `~struck~`, and code in one or three backticks. Lists and quotes are marked
//! as in plain text, which WhatsApp shows as such. There are no escapes.

use super::plain;
use crate::markdown::document::{DocumentLine, LineContent, TextRun};

/// The mark of a block of code.
const CODE_MARK: &str = "```";

/// Writes the lines of a part.
pub(super) fn write(lines: &[DocumentLine]) -> String {
    let mut out = String::new();
    let mut is_in_code = false;
    for (index, line) in lines.iter().enumerate() {
        let code = match &line.content {
            LineContent::Code { text, .. } => Some(text),
            _ => None,
        };
        let continues_code = is_in_code && code.is_some() && !line.starts_block;
        if is_in_code && !continues_code {
            out += &format!("\n{CODE_MARK}");
            is_in_code = false;
        }
        if index > 0 {
            out += if line.has_blank_before { "\n\n" } else { "\n" };
        }
        let prefix = plain::prefix(line, "> ");
        match (&line.content, code) {
            (_, Some(text)) => {
                if !continues_code {
                    if !prefix.trim().is_empty() {
                        out += &format!("{}\n", prefix.trim_end());
                    }
                    out += &format!("{CODE_MARK}\n");
                    is_in_code = true;
                }
                out += text;
            }
            (LineContent::Text(runs), _) => out += &(prefix + &runs_text(runs, false)),
            (LineContent::Heading(_, runs), _) => out += &(prefix + &runs_text(runs, true)),
            _ => out += &(prefix + plain::RULE),
        }
    }
    if is_in_code {
        out += &format!("\n{CODE_MARK}");
    }
    out
}

/// Returns the text of `runs` with marks, all of it bold if it is a heading, and with the addresses of links.
fn runs_text(runs: &[TextRun], is_heading: bool) -> String {
    let mut out = String::new();
    for link in runs.chunk_by(|left, right| left.address == right.address) {
        for run in link {
            out += &run_text(run, is_heading);
        }
        if let Some(address) = &link[0].address {
            out = format!("{out} ({address})");
        }
    }
    out
}

fn run_text(run: &TextRun, is_heading: bool) -> String {
    let style = run.style;
    let marks = [
        (style.code, "`"),
        (style.bold || is_heading, "*"),
        (style.italic, "_"),
        (style.struck, "~"),
    ];
    // Marks hold only where no space is next to them.
    let words = run.text.trim();
    let Some(at) = run.text.find(words).filter(|_| !words.is_empty()) else {
        return run.text.clone();
    };
    let mut marked = words.to_owned();
    for (_, mark) in marks.iter().filter(|(is_set, _)| *is_set) {
        marked = format!("{mark}{marked}{mark}");
    }
    let (before, after) = (&run.text[..at], &run.text[at + words.len()..]);
    format!("{before}{marked}{after}")
}
