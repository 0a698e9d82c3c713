//! The output of a command for the model.

use nanobot_sandbox::output_file::OutputFile;
use nanobot_sandbox::process::CapturedText;

/// The output as text, with a mark in place of a middle that was left out, which tells where all of it is.
pub(super) fn format_output(output: &CapturedText, keep: usize) -> String {
    let CapturedText { head, tail, omitted_bytes, file } = output;
    let head = String::from_utf8_lossy(head);
    let tail = String::from_utf8_lossy(tail);
    let excess = tail.len().saturating_sub(keep);
    let start = (excess..=tail.len()).find(|at| tail.is_char_boundary(*at)).unwrap_or(tail.len());
    let left_out = omitted_bytes + start as u64;
    let text = match left_out {
        0 => format!("{head}{tail}"),
        _ => format!(
            "{head}\n[… {left_out} bytes left out{} …]\n{}",
            file.as_ref().map(OutputFile::describe).unwrap_or_default(),
            &tail[start..]
        ),
    };
    match text.trim() {
        "" => "(no output)".into(),
        _ => text.trim_end().to_owned(),
    }
}
