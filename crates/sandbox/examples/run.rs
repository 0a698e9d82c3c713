//! Runs a command in the sandbox, as `nanobot` runs those of a model: it reads the system and the current directory, writes to a
//! private directory alone (its `$TMPDIR`, and its `/tmp`), and reaches no network.
//!
//!     cargo run -p nanobot-sandbox --example run -- sh -c 'touch here; touch $TMPDIR/there; ls -la / $TMPDIR'

use nanobot_sandbox::process::{self, CommandSpec};
use nanobot_sandbox::{NetworkAccess, SandboxSpec, private_tmp, system_paths};
use std::io::{Error, ErrorKind, Result, Write, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn main() -> Result<ExitCode> {
    // The sandbox starts this program again, as a supervisor of the command.
    if let Some(is_clean) = process::become_helper() {
        return Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    process::harden();
    let mut arguments = std::env::args().skip(1);
    let usage = || Error::new(ErrorKind::InvalidInput, "usage: run PROGRAM [ARGUMENT]…");
    let program = arguments.next().ok_or_else(usage)?;
    let directory = std::env::current_dir()?.canonicalize()?;
    let parents = private_tmp::candidate_parents(None);
    let private = private_tmp::run_directory(&parents)?;

    // Nothing of a home is granted but the current directory.
    let (mut readable, links) =
        system_paths::readable_paths(SEARCH_PATH, &[], Path::new("/nonexistent"));
    readable.push(directory.clone());
    let (writable, denied, protected) = (Vec::new(), Vec::new(), Vec::new());
    let mut sandbox =
        SandboxSpec::new(readable, writable, denied, protected, NetworkAccess::Nothing);
    links.iter().for_each(|path| sandbox.add_links(path));
    sandbox.add_private(private.clone());
    // Granted with `/etc`, and readable for root.
    sandbox.covered.push("/etc/shadow".into());
    sandbox.tmp = Some(private_tmp::tmp_directory(&parents)?);
    let command = CommandSpec {
        program: program.into(),
        arguments: arguments.collect(),
        directory,
        env: vec![
            ("PATH".into(), SEARCH_PATH.into()),
            ("TMPDIR".into(), private.display().to_string()),
        ],
        timeout: Duration::from_secs(60),
        capture_bytes: 0,
        sandbox: Some(sandbox),
        input: None,
    };
    let mut output = stdout().lock();
    let mut written = Ok(());
    let result = process::run(&command, &mut |bytes| {
        if written.is_ok() {
            written = output.write_all(bytes);
        }
    });
    process::end_standby();
    private_tmp::remove_all();
    written?;
    let code = result?.status.and_then(|status| status.code()).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
