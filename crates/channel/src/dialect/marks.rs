//! The marks of WhatsApp and of Slack's mrkdwn (Slack, "Formatting message text"): `*bold*`, `_italic_`, `~struck~`, and code
//! in one or three backticks. Lists and quotes are marked as in plain text, which both show as such. Marks cannot be
//! escaped. mrkdwn escapes three characters, also in code, and has links.

use super::plain;
use nanobot_base::markdown::document::{DocumentLine, LineContent, TextRun};

/// The mark of a block of code.
const CODE_MARK: &str = "```";
/// Addresses that a link of mrkdwn may have. Others could be references to users and channels.
const LINK_SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];

/// The service that reads the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkReader {
    /// WhatsApp.
    WhatsApp,
    /// Slack's mrkdwn.
    Mrkdwn,
}

/// Writes the lines of a part.
pub(super) fn write(lines: &[DocumentLine], reader: MarkReader) -> String {
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
                out += &reader.escape(text);
            }
            (LineContent::Text(runs), _) => out += &(prefix + &reader.runs_text(runs, false)),
            (LineContent::Heading(_, runs), _) => out += &(prefix + &reader.runs_text(runs, true)),
            _ => out += &(prefix + plain::RULE),
        }
    }
    if is_in_code {
        out += &format!("\n{CODE_MARK}");
    }
    out
}

impl MarkReader {
    /// Returns the text of `runs` with marks, all of it bold if it is a heading, and with the addresses of links.
    fn runs_text(self, runs: &[TextRun], is_heading: bool) -> String {
        let mut out = String::new();
        for link in runs.chunk_by(|left, right| left.address == right.address) {
            let text: String = link.iter().map(|run| self.run_text(run, is_heading)).collect();
            match &link[0].address {
                Some(address) => out += &self.link(&text, address),
                None => out += &text,
            }
        }
        out
    }

    fn link(self, text: &str, address: &str) -> String {
        let is_web = LINK_SCHEMES.iter().any(|scheme| address.starts_with(scheme));
        match self {
            Self::Mrkdwn if is_web => {
                let address = address.replace('<', "%3C").replace('>', "%3E");
                let address = self.escape(&address.replace('|', "%7C"));
                format!("<{address}|{text}>")
            }
            _ => format!("{text} ({})", self.escape(address)),
        }
    }

    fn run_text(self, run: &TextRun, is_heading: bool) -> String {
        let style = run.style;
        let marks = [
            (style.code, "`"),
            (style.bold || is_heading, "*"),
            (style.italic, "_"),
            (style.struck, "~"),
        ];
        let text = run.text.as_str();
        if text.trim().is_empty() {
            return text.to_owned();
        }
        // Marks take effect only without a space on their inner side.
        let (start, end) = (text.len() - text.trim_start().len(), text.trim_end().len());
        let mut styled = self.escape(&text[start..end]);
        for (_, mark) in marks.iter().filter(|(is_set, _)| *is_set) {
            styled = format!("{mark}{styled}{mark}");
        }
        format!("{}{styled}{}", &text[..start], &text[end..])
    }

    fn escape(self, text: &str) -> String {
        match self {
            Self::WhatsApp => text.to_owned(),
            Self::Mrkdwn => {
                let text = text.replace('&', "&amp;").replace('<', "&lt;");
                text.replace('>', "&gt;")
            }
        }
    }
}
