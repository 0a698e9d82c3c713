//! Divides the text of a mail into the typed and the quoted part. No I/O.
//!
//! Programs mark quotations differently, and a sender can imitate the marks, so this only helps the reader: the whole mail
//! is untrusted content.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MailText {
    pub(super) typed: String,
    pub(super) quoted: String,
    pub(super) signature: String,
}

/// Beginnings of lines after which everything is quoted.
const QUOTATION_STARTS: [&str; 6] = [
    "-----Original Message-----",
    "-----Ursprüngliche Nachricht-----",
    "-----Message d'origine-----",
    "---------- Forwarded message",
    "-------- Forwarded Message",
    "Begin forwarded message:",
];

/// Beginnings of the lines above the header of a quoted mail, as Outlook writes it, or of its first field.
const HEADER_STARTS: [&str; 8] = [
    "________________________________",
    "From: ",
    "Von: ",
    "De: ",
    "Da: ",
    "Van: ",
    "Fra: ",
    "От: ",
];

/// Maximum number of lines of an introduction such as `On Monday, Ann wrote:`.
const MAX_INTRODUCTION_LINES: usize = 3;

/// Divides `text`.
pub(super) fn divide(text: &str) -> MailText {
    let text = text.replace("\r\n", "\n");
    let lines: Vec<&str> = text.lines().collect();
    let rest_start = (0..lines.len()).find(|index| starts_quotation(&lines[*index..]));
    let (lines, rest) = lines.split_at(rest_start.unwrap_or(lines.len()));
    let mut is_quoted: Vec<bool> = lines.iter().map(|line| line.starts_with('>')).collect();
    for start in 1..lines.len() {
        if is_quoted[start] && !is_quoted[start - 1] {
            mark_introduction(lines, start, &mut is_quoted);
        }
    }
    let mut divided = MailText::default();
    let mut is_signature = false;
    for (line, is_quoted) in lines.iter().zip(is_quoted) {
        // The separator of RFC 3676; programs remove the blank at its end.
        is_signature |= !is_quoted && line.trim_end() == "--";
        let text = if is_quoted {
            &mut divided.quoted
        } else if is_signature {
            &mut divided.signature
        } else {
            &mut divided.typed
        };
        *text += line.trim_end();
        text.push('\n');
    }
    divided.quoted += &rest.join("\n");
    let signature = divided.signature.trim_start_matches("--");
    MailText {
        typed: divided.typed.trim().to_owned(),
        quoted: divided.quoted.trim().to_owned(),
        signature: signature.trim().to_owned(),
    }
}

/// True if everything from the first line on is quoted.
fn starts_quotation(lines: &[&str]) -> bool {
    let Some(first) = lines.first().map(|line| line.trim()) else {
        return false;
    };
    let begins_with = |starts: &[&str]| starts.iter().any(|start| first.starts_with(start));
    // Outlook repeats the header of the quoted mail, in the user's language: several lines `Name: value`.
    let header = lines.iter().skip(1).take(3);
    begins_with(&QUOTATION_STARTS)
        || (begins_with(&HEADER_STARTS) && header.filter(|line| is_header_line(line)).count() == 3)
}

fn is_header_line(line: &str) -> bool {
    line.split_once(':').is_some_and(|(name, _)| !name.is_empty() && name.chars().count() < 20)
}

/// Marks the lines before a quotation that introduce it: the last of them ends in a colon.
fn mark_introduction(lines: &[&str], start: usize, is_quoted: &mut [bool]) {
    let blanks = lines[..start].iter().rev();
    let blanks = blanks.take_while(|line| line.trim().is_empty()).count();
    let end = start - blanks;
    if end == 0 || is_quoted[end - 1] || !lines[end - 1].trim_end().ends_with(':') {
        return;
    }
    let first = end.saturating_sub(MAX_INTRODUCTION_LINES);
    let paragraph_start = (first..end)
        .rev()
        .take_while(|index| !lines[*index].trim().is_empty() && !is_quoted[*index])
        .last()
        .unwrap_or(end - 1);
    // A longer paragraph is not an introduction, but for its last line.
    let is_whole = paragraph_start == 0
        || lines[paragraph_start - 1].trim().is_empty()
        || is_quoted[paragraph_start - 1];
    let from = if is_whole { paragraph_start } else { end - 1 };
    is_quoted[from..start].fill(true);
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[track_caller]
    fn check(text: &str, typed: &str, quoted: &str, signature: &str) {
        let divided = divide(text);
        assert_eq!(
            (divided.typed.as_str(), divided.quoted.as_str(), divided.signature.as_str()),
            (typed, quoted, signature)
        );
    }

    #[test]
    fn quotations_and_signatures_are_split_off() {
        check("Hello\r\nyou", "Hello\nyou", "", "");
        check("", "", "", "");
        check(
            "Yes.\n\nOn Mon, Bob <b@x>\nwrote:\n> Do it?\n> Now?\n",
            "Yes.",
            "On Mon, Bob <b@x>\nwrote:\n> Do it?\n> Now?",
            "",
        );
        check(
            "Am Montag schrieb Bob:\n\n> a\nYes\n> b\nNo\n-- \nAnn",
            "Yes\nNo",
            "Am Montag schrieb Bob:\n\n> a\n> b",
            "Ann",
        );
        check("> a\nYes", "Yes", "> a", "");
        check("See this:\n\nmy text", "See this:\n\nmy text", "", "");
        check(
            "Do this\n-----Original Message-----\nFrom: Eve\n\nobey",
            "Do this",
            "-----Original Message-----\nFrom: Eve\n\nobey",
            "",
        );
        check(
            "Ok\n\n________________________________\nVon: Eve\nGesendet: heute\nAn: Ann\nBetreff: x\n\nobey",
            "Ok",
            "________________________________\nVon: Eve\nGesendet: heute\nAn: Ann\nBetreff: x\n\nobey",
            "",
        );
        check(
            "Ok\n\nFrom: Eve\nSent: today\nTo: Ann\nSubject: x\n\nobey",
            "Ok",
            "From: Eve\nSent: today\nTo: Ann\nSubject: x\n\nobey",
            "",
        );
        check("From: here to there", "From: here to there", "", "");
        check("/new\n--\nAnn\nx", "/new", "", "Ann\nx");
    }

    #[test]
    fn a_paragraph_before_a_quotation_keeps_its_words() {
        check(
            "one\ntwo\nthree\nfour\nBob wrote:\n> a",
            "one\ntwo\nthree\nfour",
            "Bob wrote:\n> a",
            "",
        );
    }
}
