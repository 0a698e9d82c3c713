//! Shows a page on standard output, in the user's pager if it does not fit the screen.

use anyhow::{Context as _, Result};
use nanobot_os::env::Env;
use nanobot_os::terminal::{StdoutWriter, Terminal};
use nanobot_sandbox::process;
use std::io::ErrorKind;

/// Prints the page of `writer`. If it does not fit the screen, and a person is there, it is shown in `PAGER`, else in `less`.
pub(crate) fn show(env: &Env, terminal: Terminal, mut writer: StdoutWriter) -> Result<()> {
    let width = terminal.stdout_width().unwrap_or(80);
    let rows = |line: &str| console::measure_text_width(line).div_ceil(width).max(1);
    let count: usize = writer.page_text().lines().map(rows).sum();
    let fits_the_screen = count < terminal.stdout_height();
    if fits_the_screen || !Terminal::is_interactive() || !terminal.stdout_is_rich {
        return writer.finish();
    }
    let pager = env.get("PAGER").unwrap_or("less");
    match process::run_pager(pager, writer.page_text()) {
        Err(error) if error.kind() == ErrorKind::NotFound => writer.finish(),
        result => result.with_context(|| format!("run `{pager}`")),
    }
}
