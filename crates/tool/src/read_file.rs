//! The `read_file` tool: returns a text, or the text of a document, with line numbers, or an image.

use super::arguments::usize_argument;
use super::files::Files;
use super::files::text_file::TextFile;
use super::function_tool::FunctionTool;
use super::{CallEffect, ToolError, ToolOutput};
use crate::attach::{self, AttachmentOrigin, SoundRecording, TranscribeRecording};
use nanobot_base::error::hint_for;
use nanobot_base::message::{Image, MessagePart};
use nanobot_base::message::{ToolSpec, without_blanks};
use nanobot_os::input::image_type;
use nanobot_store::skill;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum lines shown at a time.
const MAX_LINES: usize = 2_000;
/// Maximum characters shown at a time; chosen to fit into the part of a result that the session keeps.
const MAX_OUTPUT_CHARS: usize = 15_000;
/// Maximum characters of one line.
const MAX_LINE_CHARS: usize = 2_000;
/// Maximum size of an image in bytes; providers accept about this much.
const MAX_IMAGE_BYTES: usize = 5 << 20;

/// Builds the `read_file` tool. `path` is the `PATH` of the program that reads PDFs, and `transcribe` the reader of recordings.
pub fn tool(
    files: Arc<Files>,
    path: Option<&str>,
    transcribe: Box<TranscribeRecording<'static>>,
) -> FunctionTool {
    let parameters = const {
        &without_blanks(
            br#"{ "type": "object", "required": ["path"], "properties": {
        "path": { "type": "string" },
        "offset": { "type": "integer", "description": "first line" },
        "limit": { "type": "integer", "description": "number of lines" }
    } }"#,
        )
    };
    let description =
        "Read a text file, PDF or office document with line numbers, or view an image";
    let spec = ToolSpec::new("read_file", description, parameters);
    let program_path = path.map(str::to_owned);
    FunctionTool::new(spec, CallEffect::Reads, move |arguments| {
        read(&files, program_path.as_deref(), &*transcribe, arguments)
    })
}

fn read(
    files: &Files,
    program_path: Option<&str>,
    transcribe: &TranscribeRecording<'_>,
    arguments: &Value,
) -> Result<ToolOutput, ToolError> {
    let path = arguments["path"].as_str().unwrap_or_default();
    let offset = usize_argument(arguments, "offset").unwrap_or(1);
    let limit = usize_argument(arguments, "limit").unwrap_or(MAX_LINES).min(MAX_LINES);
    let (bytes, absolute_path) = match (files.read(path), skill::built_in_at(path)) {
        (Ok(content), _) => content,
        (Err(_), Some(text)) => (text.as_bytes().to_vec(), PathBuf::new()),
        (Err(error), None) => return Err(error),
    };
    if let Some(media_type) = image_type(&bytes) {
        if bytes.len() > MAX_IMAGE_BYTES {
            return Err(
                format!("`{path}` is an image larger than {} MiB", MAX_IMAGE_BYTES >> 20).into()
            );
        }
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let image = MessagePart::Image(Image { media_type, bytes, name, source: None });
        return Ok(ToolOutput { parts: vec![image], ..String::new().into() });
    }
    if bytes.is_empty() {
        return Ok(format!("({path} is empty)").into());
    }
    if let Some(recording) = SoundRecording::find(&bytes) {
        let text = transcribe(&recording).map_err(|error| {
            let hint = hint_for(&error).map(|hint| format!("; {hint}")).unwrap_or_default();
            format!("`{path}` is a recording, and was not transcribed: {error:#}{hint}")
        })?;
        let page = format_page(&text, offset, limit, None)?;
        return Ok(format!("{page}\n(transcription of a recording)").into());
    }
    let origin = AttachmentOrigin::File(path);
    let document = attach::document_text(&bytes, origin, program_path);
    if let Some(text) = document? {
        let page = format_page(&text, offset, limit, None)?;
        return Ok(
            format!("{page}\n(text of a document; it cannot be edited with edit_file)").into()
        );
    }
    let file = TextFile::new(&bytes)
        .filter(|file| !file.text.contains('\0'))
        .ok_or_else(|| format!("`{path}` is a binary file ({} bytes)", bytes.len()))?;
    // It can have a byte order mark and nothing else.
    if file.text.is_empty() {
        return Ok(format!("({path} is empty)").into());
    }
    let page = format_page(&file.text, offset, limit, file.describe_encoding().as_deref())?;
    Ok(files.add_instructions(page, &absolute_path).into())
}

/// The lines from `offset` to `offset + limit`, numbered, with a note on those not shown.
fn format_page(
    text: &str,
    offset: usize,
    limit: usize,
    encoding: Option<&str>,
) -> Result<String, String> {
    let total = text.lines().count();
    if offset > total {
        return Err(format!("line {offset} is beyond the end: there are {total} lines"));
    }
    let mut out = String::new();
    let mut out_chars = 0;
    let mut last = offset - 1;
    for (index, line) in text.lines().enumerate().skip(offset - 1).take(limit) {
        let end = line.char_indices().nth(MAX_LINE_CHARS).map_or(line.len(), |(end, _)| end);
        let mut numbered_line = format!("{}| {}", index + 1, &line[..end]);
        if end < line.len() {
            numbered_line.push_str(&format!("… ({} more bytes)", line.len() - end));
        }
        numbered_line.push('\n');
        out_chars += numbered_line.chars().count();
        if !out.is_empty() && out_chars > MAX_OUTPUT_CHARS {
            break;
        }
        out.push_str(&numbered_line);
        last = index + 1;
    }
    if offset > 1 || last < total {
        write!(out, "(lines {offset} to {last} of {total}")
            .expect("writing to a string cannot fail");
        out.push_str(&if last < total {
            format!("; continue at offset {})\n", last + 1)
        } else {
            ")\n".into()
        });
    }
    if let Some(encoding) = encoding {
        writeln!(out, "(decoded from {encoding})").expect("writing to a string cannot fail");
    }
    out.truncate(out.trim_end_matches('\n').len());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::format_page;

    #[test]
    fn pages_are_numbered_and_note_omitted_lines() {
        let check = |text: &str, offset, limit, expect: &str| {
            assert_eq!(
                format_page(text, offset, limit, None).unwrap_or_else(|error| error),
                expect
            );
        };
        check("a\nb\n", 1, 9, "1| a\n2| b");
        check("a\r\nb", 1, 9, "1| a\n2| b");
        check("a\n\nb\n", 2, 1, "2| \n(lines 2 to 2 of 3; continue at offset 3)");
        check("a\nb\n", 2, 9, "2| b\n(lines 2 to 2 of 2)");
        check("a\n", 2, 9, "line 2 is beyond the end: there are 1 lines");
        let long = format_page(&"é".repeat(2_010), 1, 9, None).unwrap();
        assert!(long.ends_with("é… (20 more bytes)"));
        let many = format_page(&"0123456789\n".repeat(5_000), 1, 2_000, None).unwrap();
        assert!(many.len() < 15_100 && many.contains("of 5000; continue at offset "));
        let wide = format_page(&"日本語の文章\n".repeat(1_000), 1, 2_000, None).unwrap();
        assert!(wide.starts_with("1| 日") && wide.ends_with("\n1000| 日本語の文章"));
    }
}
