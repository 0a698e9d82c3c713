//! `nanobot --version`. With `--verbose` it prints the facts about the build and the system that a bug report needs.

use super::parse::VersionDetail;
use crate::ops::context::report_error;
use nanobot_base::error::Exit;
use nanobot_os::terminal::Terminal;
use nanobot_sandbox::process;
use nanobot_sandbox::{NetworkAccess, SandboxSpec, check_available};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prints the version.
pub(crate) fn run(detail: VersionDetail, terminal: Terminal) -> Exit {
    let mut text = format!("nanobot {VERSION}\n");
    if detail == VersionDetail::Long {
        text += &describe_build();
    }
    match terminal.print(&text) {
        Ok(()) => Exit::Answered,
        Err(error) => report_error(&error, terminal),
    }
}

fn describe_build() -> String {
    let commit = option_env!("NANOBOT_BUILD_COMMIT").unwrap_or("not recorded in this build");
    let features =
        if cfg!(feature = "test-hooks") { "test-hooks (for tests only)" } else { "none" };
    let target = env!("NANOBOT_BUILD_TARGET");
    let libc = if cfg!(static_glibc) || cfg!(target_feature = "crt-static") {
        "static"
    } else {
        "dynamic"
    };
    let libc = match option_env!("NANOBOT_BUILD_LIBC") {
        Some(name) => format!("{name}, {libc}"),
        None => libc.to_owned(),
    };
    let sandbox = describe_sandbox();
    format!(
        "commit: {commit}\nfeatures: {features}\ntarget: {target}\nlibc: {libc}\nsandbox: {sandbox}\n"
    )
}

/// The layers of the sandbox that this system has, for a command that may read the system.
fn describe_sandbox() -> String {
    if let Err(missing) = check_available() {
        return format!("none: {missing}");
    }
    let spec = SandboxSpec::new(
        vec!["/usr".into()],
        Vec::new(),
        Vec::new(),
        Vec::new(),
        NetworkAccess::Nothing,
    );
    match process::check_namespaces(&spec) {
        Ok(()) => "namespaces, Landlock, seccomp".into(),
        Err(error) => format!("Landlock, seccomp; no namespaces: {error}"),
    }
}
