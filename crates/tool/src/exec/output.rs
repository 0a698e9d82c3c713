//! The output of a command for the model.

use nanobot_sandbox::output_file::OutputFile;
use nanobot_sandbox::process::CapturedText;

/// The output as text. If its middle was left out, a note in its place says where the whole output is.
pub(super) fn format_output(captured_text: &CapturedText) -> String {
    let CapturedText { head, tail, omitted_bytes, file } = captured_text;
    let [head, tail] = [head, tail].map(|bytes| String::from_utf8_lossy(bytes));
    let text = if *omitted_bytes == 0 {
        format!("{head}{tail}")
    } else {
        let note = file.as_ref().map(OutputFile::describe).unwrap_or_default();
        format!("{head}\n[… {omitted_bytes} bytes left out{note} …]\n{tail}")
    };
    match text.trim() {
        "" => "(no output)".into(),
        _ => text.trim_end().to_owned(),
    }
}
