//! Secrets that are kept outside of the config: in a file, or printed by a command such as a password manager. Each is read
//! once per process, when it is first needed.

use crate::process::{self, CommandSpec};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::secret::{self, Secret};
use nanobot_os::{input, terminal};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Maximum length of a secret in bytes. A longer one indicates the wrong file.
const MAX_SECRET_BYTES: usize = 16 << 10;
/// Maximum time of a command: a person may have to touch a hardware token.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// The time after which the user is notified that a command still runs.
const SLOW_COMMAND_TIMEOUT: Duration = Duration::from_secs(3);

/// The hint if a command prints no secret.
const OUTPUT_HINT: &str = "run the command by hand to see its output";

/// The source of a secret outside of the config.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretSource {
    File(PathBuf),
    /// A command of the shell that prints the secret.
    Command(String),
}

/// The secrets that were read. A lock is held while a command runs, so that none runs twice at a time.
static READ_SECRETS: Mutex<BTreeMap<SecretSource, Secret>> = Mutex::new(BTreeMap::new());

/// Reads the secret of `source`. It is masked from then on. A command gets the variables `env`; `label` names the secret if
/// it takes long.
///
/// # Errors
/// Status 78 if the file cannot be read or is empty, or the command fails, exceeds its timeout or prints nothing.
pub fn read(source: &SecretSource, env: &[(String, String)], label: &str) -> Result<Secret> {
    let mut secrets = READ_SECRETS.lock();
    if let Some(secret) = secrets.get(source) {
        return Ok(secret.clone());
    }
    let secret = match source {
        SecretSource::File(path) => read_file(path)?,
        SecretSource::Command(command) => announce_if_slow(label, || run_command(command, env))?,
    };
    secret::register(&secret);
    secrets.insert(source.clone(), secret.clone());
    Ok(secret)
}

/// Forgets the secret of `source` if it is `secret`, so that the next read is a new one: a command may print a token that
/// expires.
pub fn forget(source: &SecretSource, secret: &Secret) {
    let mut secrets = READ_SECRETS.lock();
    if secrets.get(source).is_some_and(|read| read.expose() == secret.expose()) {
        secrets.remove(source);
    }
}

fn read_file(path: &Path) -> Result<Secret> {
    let bytes = input::read_file(path, &path.display().to_string(), MAX_SECRET_BYTES)
        .map_err(|error| fail(Exit::Config, format!("{error:#}")))?;
    first_line(&bytes).ok_or_else(|| fail(Exit::Config, format!("`{}` is empty", path.display())))
}

/// Runs `work`, and notifies the user if it takes long.
fn announce_if_slow<T>(label: &str, work: impl FnOnce() -> T) -> T {
    // The end of the channel ends the wait of the thread.
    let (sender, receiver) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let announce = move || {
            if receiver.recv_timeout(SLOW_COMMAND_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                terminal::eprint_notice(&format!(
                    "nanobot: waiting for the command of {label}, up to a minute"
                ));
            }
        };
        // Without another thread the command runs all the same.
        drop(std::thread::Builder::new().spawn_scoped(scope, announce));
        let output = work();
        drop(sender);
        output
    })
}

/// Runs a command of the shell, and returns the first line that it prints. It is not kept: it may be a token that expires.
///
/// # Errors
/// Status 78 if the command fails, exceeds its timeout or prints nothing.
pub fn run_command(command: &str, env: &[(String, String)]) -> Result<Secret> {
    let output = run_command_within(command, env, COMMAND_TIMEOUT)?;
    first_line(&output).ok_or_else(empty_output_error)
}

/// Runs a command of the shell, and returns all that it prints, as [`run_command`].
///
/// # Errors
/// Those of [`run_command`].
pub fn command_output(command: &str, env: &[(String, String)]) -> Result<Secret> {
    let output = run_command_within(command, env, COMMAND_TIMEOUT)?;
    Ok(Secret::new(String::from_utf8_lossy(&output).trim()))
}

fn empty_output_error() -> anyhow::Error {
    fail(Exit::Config, "the command printed nothing").with_hint(OUTPUT_HINT)
}

fn run_command_within(
    command: &str,
    env: &[(String, String)],
    timeout: Duration,
) -> Result<Vec<u8>> {
    let spec = CommandSpec {
        program: "/bin/sh".into(),
        // Standard error is discarded, because it must not be mistaken for the key.
        arguments: vec!["-c".into(), format!("{{ {command}\n}} 2>/dev/null")],
        directory: "/".into(),
        env: env.to_vec(),
        timeout,
        capture_bytes: MAX_SECRET_BYTES,
        sandbox: None,
        input: None,
    };
    let result = process::run(&spec, &mut |_| ())?;
    if let Some(stop) = result.stop {
        return Err(stop.into());
    }
    match result.status {
        None => {
            let cause = format!("the command timed out after {} s", timeout.as_secs());
            Err(fail(Exit::Config, cause).with_hint(OUTPUT_HINT))
        }
        Some(status) if !status.success() => {
            Err(fail(Exit::Config, format!("the command failed: {status}")).with_hint(OUTPUT_HINT))
        }
        Some(_) => Ok(result.head),
    }
}

/// The first line of a text that is a key, without blanks at both ends; `None` if it is blank.
fn first_line(bytes: &[u8]) -> Option<Secret> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.trim_start_matches('\u{feff}').trim().lines().next()?;
    Some(Secret::new(line.trim()))
}

#[cfg(test)]
mod tests {
    use super::run_command_within;
    use nanobot_base::error::{Exit, exit_for};
    use std::time::Duration;

    #[test]
    fn a_command_that_hangs_is_ended() {
        let _alone = nanobot_os::children::serialize_tests();
        let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        let error =
            run_command_within("echo key; sleep 600", &env, Duration::from_secs(1)).unwrap_err();
        assert_eq!(exit_for(&error), Exit::Config);
        assert!(format!("{error:#}").contains("timed out after 1 s"), "{error:#}");
    }
}
