//! The output of a command for the model.

use nanobot_sandbox::output_file::OutputFile;
use nanobot_sandbox::process::CapturedText;

/// The output as text. If its middle was left out, a note in its place says where the whole output is. At most `max_tail_bytes`
/// of the tail are shown.
pub(super) fn format_output(captured_text: &CapturedText, max_tail_bytes: usize) -> String {
    let CapturedText { head, tail, omitted_bytes, file } = captured_text;
    let head = String::from_utf8_lossy(head);
    let tail = String::from_utf8_lossy(tail);
    let excess = tail.len().saturating_sub(max_tail_bytes);
    let start =
        (excess..=tail.len()).find(|index| tail.is_char_boundary(*index)).unwrap_or(tail.len());
    let omitted_bytes = omitted_bytes + start as u64;
    let text = if omitted_bytes == 0 {
        format!("{head}{tail}")
    } else {
        let note = file.as_ref().map(OutputFile::describe).unwrap_or_default();
        format!("{head}\n[… {omitted_bytes} bytes left out{note} …]\n{}", &tail[start..])
    };
    match text.trim() {
        "" => "(no output)".into(),
        _ => text.trim_end().to_owned(),
    }
}
