//! Commands that print a key or a token, such as a password manager.

use super::run::{CommandSpec, run};
use anyhow::Result;
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_os::secret::Secret;
use std::path::PathBuf;
use std::time::Duration;

/// The timeout is generous, because a person may have to touch a hardware token.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum length of the output in bytes.
const MAX_OUTPUT_BYTES: usize = 16 << 10;

/// Runs a command of the shell, and returns the first line that it prints.
///
/// # Errors
/// Status 78 if the command fails, exceeds the timeout, or prints nothing.
pub fn run_secret_command(command: &str, env: &[(String, String)]) -> Result<Secret> {
    run_within(command, env, COMMAND_TIMEOUT)
}

fn run_within(command: &str, env: &[(String, String)], timeout: Duration) -> Result<Secret> {
    let spec = CommandSpec {
        program: PathBuf::from("/bin/sh"),
        // Standard error is discarded, because it must not be mistaken for the key.
        arguments: vec!["-c".into(), format!("{{ {command}\n}} 2>/dev/null")],
        directory: PathBuf::from("/"),
        env: env.to_vec(),
        timeout,
        capture_bytes: MAX_OUTPUT_BYTES,
        sandbox: None,
        input: None,
    };
    let result = run(&spec, &mut |_| ())?;
    if let Some(stop) = result.stop {
        return Err(stop.into());
    }
    let hint = "run the command by hand to see its output";
    match result.status {
        None => {
            let cause = format!("the command timed out after {} s", timeout.as_secs());
            Err(fail_with_hint(Exit::Config, cause, hint))
        }
        Some(status) if !status.success() => {
            Err(fail_with_hint(Exit::Config, format!("the command failed: {status}"), hint))
        }
        Some(_) => first_line(&result.head)
            .ok_or_else(|| fail_with_hint(Exit::Config, "the command printed nothing", hint)),
    }
}

/// The first line of a text that is a key, without blanks at both ends; `None` if it is blank.
pub fn first_line(bytes: &[u8]) -> Option<Secret> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.trim_start_matches('\u{feff}').trim().lines().next()?;
    Some(Secret::new(line.trim()))
}

#[cfg(test)]
mod tests {
    use super::run_within;
    use nanobot_base::error::{Exit, exit_for};
    use std::time::Duration;

    #[test]
    fn a_command_that_hangs_is_ended() {
        let _alone = nanobot_os::children::serialize_tests();
        let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        let error = run_within("echo key; sleep 600", &env, Duration::from_secs(1)).unwrap_err();
        assert_eq!(exit_for(&error), Exit::Config);
        assert!(format!("{error:#}").contains("timed out after 1 s"), "{error:#}");
    }
}
