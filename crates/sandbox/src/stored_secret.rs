//! Secrets that are kept outside of the config: in a file, or printed by a command such as a password manager. Each is read
//! once per process, when it is first needed.

use crate::process::{first_line, run_secret_command};
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_os::secret::{self, Secret};
use nanobot_os::{input, terminal};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Maximum length of a secret in bytes. A longer one indicates the wrong file.
const MAX_SECRET_BYTES: usize = 16 << 10;
/// The time after which the user is notified that a command still runs.
const SLOW_COMMAND_TIMEOUT: Duration = Duration::from_secs(3);

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
        SecretSource::Command(command) => {
            announce_if_slow(label, || run_secret_command(command, env))?
        }
    };
    secret::register(&secret);
    secrets.insert(source.clone(), secret.clone());
    Ok(secret)
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
        scope.spawn(move || {
            if receiver.recv_timeout(SLOW_COMMAND_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                terminal::eprint_notice(&format!(
                    "nanobot: waiting for the command of {label}, up to a minute"
                ));
            }
        });
        let output = work();
        drop(sender);
        output
    })
}
