//! Extracts the text of a PDF with `pdftotext`, which most systems provide. PDFs are untrusted content, so the
//! program runs as a child process without a shell, in a sandbox if available, and with a timeout.

use super::origin::AttachmentOrigin;
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::policy::secrets;
use nanobot_os::durable_file;
use nanobot_os::input;
use nanobot_sandbox::process::{self, CommandSpec};
use nanobot_sandbox::{self as sandbox, NetworkAccess, SandboxSpec, system_paths};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

const PDFTOTEXT_TIMEOUT: Duration = Duration::from_secs(60);
/// Exit statuses of `pdftotext`, from its man page: the file cannot be opened, or its permissions forbid it.
const PDFTOTEXT_OPEN_ERROR: i32 = 1;
const PDFTOTEXT_PERMISSION_ERROR: i32 = 3;

/// True if `bytes` are a PDF.
pub(crate) fn is_pdf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"%PDF-")
}

/// Extracts the text, with lines and columns laid out roughly as on the page. `path` is the `PATH` of the program.
///
/// # Errors
/// Status 65 if the program is missing or the PDF has no text.
pub(crate) fn extract_text(
    bytes: &[u8],
    origin: AttachmentOrigin<'_>,
    path: Option<&str>,
) -> Result<String> {
    let unusable = |message: String| fail(Exit::BadInput, message);
    // A temporary file is needed because piped data has no name, and a user's file name could be taken for a flag.
    let file =
        durable_file::create_temp(bytes).context("write a temporary file for `pdftotext`")?;
    let name = file.path().to_string_lossy().into_owned();
    let flags = ["-q", "-layout", "-enc", "UTF-8"].map(str::to_owned);
    let path = path.unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let spec = CommandSpec {
        program: "pdftotext".into(),
        arguments: flags.into_iter().chain([name, "-".into()]).collect(),
        directory: "/".into(),
        env: vec![("PATH".into(), path.into())],
        timeout: PDFTOTEXT_TIMEOUT,
        capture_bytes: input::MAX_STDIN_BYTES,
        // PDFs are untrusted, and PDF readers have had vulnerabilities: where the system supports a sandbox, the
        // program can only read system files and this one file.
        sandbox: sandbox::check_available().is_ok().then(|| {
            let (mut readable, links) =
                system_paths::readable_paths(path, &[], Path::new("/nonexistent"));
            readable.push(file.path().to_owned());
            let secrets =
                secrets::system_secrets().filter(|path| system_paths::is_readable_secret(path));
            let mut spec = SandboxSpec::new(
                readable,
                Vec::new(),
                Vec::new(),
                Vec::new(),
                NetworkAccess::Nothing,
            );
            spec.covered = system_paths::resolve_secrets(secrets).collect();
            links.iter().for_each(|path| spec.add_links(path));
            spec
        }),
        input: None,
    };
    let result = match process::run(&spec, &mut |_| {}) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(fail(
                Exit::BadInput,
                format!(
                    "{origin} is a PDF, and `pdftotext`, which reads its text, is not installed"
                ),
            )
            .with_hint("install poppler-utils, or use the text itself"));
        }
        result => result.context("run `pdftotext`")?,
    };
    if let Some(stop) = result.stop {
        return Err(stop.into());
    }
    match result.status.map(|status| status.code()) {
        Some(Some(0)) => {}
        Some(Some(PDFTOTEXT_OPEN_ERROR | PDFTOTEXT_PERMISSION_ERROR)) => {
            return Err(unusable(format!("{origin} is a damaged or encrypted PDF")));
        }
        Some(_) => {
            return Err(unusable(format!("{origin} is a PDF that `pdftotext` cannot read")));
        }
        None => {
            let seconds = PDFTOTEXT_TIMEOUT.as_secs();
            let cause = format!("{origin} is a PDF, and `pdftotext` timed out after {seconds} s");
            return Err(unusable(cause));
        }
    }
    if !result.tail.is_empty() || result.omitted_bytes > 0 {
        let cause =
            format!("the text of {origin} is longer than {} MiB", input::MAX_STDIN_BYTES >> 20);
        return Err(unusable(cause));
    }
    // A form feed ends each page.
    let text = String::from_utf8_lossy(&result.head).replace('\u{c}', "\n");
    if text.trim().is_empty() {
        return Err(unusable(format!("{origin} is a PDF without text, such as a scan")));
    }
    Ok(text)
}
