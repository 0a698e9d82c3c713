//! Signing of commits and tags outside of the sandbox, with the key of the user's own git config, where the user allows it.

use super::signed_object::SignedObject;
use nanobot_os::durable_file;
use nanobot_os::env::Env;
use nanobot_sandbox::process::{self, CommandSpec, SigningProgram};
use nanobot_sandbox::{HiddenPaths, SandboxSpec, private_tmp};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The time for a signature: a person may have to enter a passphrase.
const SIGN_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum bytes of a program's output that are kept of its beginning, and of its end.
const MAX_CAPTURE_BYTES: usize = 1 << 20;

/// The signer for the commands of a run.
#[derive(Debug)]
pub struct Signer {
    /// The environment of the user's own programs.
    env: Vec<(String, String)>,
    home: PathBuf,
    /// This program, which git in the sandbox calls.
    program: PathBuf,
    /// The places that the run may change. `None` if it may change everything.
    changeable_paths: Option<HiddenPaths>,
    /// The parts of the home directory that the user's programs see nevertheless.
    visible_in_home: OnceLock<Vec<PathBuf>>,
    /// The objects that were signed, one line each.
    signed: Mutex<Vec<String>>,
}

impl Signer {
    /// Creates a signer with the environment of the user. `program` is this program, and `changeable_paths` the places that the run may
    /// change, if it may not change everything.
    pub fn new(
        env: &Env,
        home: &Path,
        program: PathBuf,
        changeable_paths: Option<HiddenPaths>,
    ) -> Self {
        let variables = env.iter().filter(|(name, _)| !name.starts_with("GIT_"));
        let env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self {
            env,
            home: home.to_owned(),
            program,
            changeable_paths,
            visible_in_home: OnceLock::new(),
            signed: Mutex::default(),
        }
    }

    /// This program.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Finds out what the user's programs may see of a home directory that the run may change: paths that exist, and that commands
    /// in the sandbox of `spec` cannot open or cannot change. It must be called before the first command, which could create the
    /// missing ones; until then, the programs see nothing of such a home directory.
    pub(super) fn prepare(&self, spec: &SandboxSpec) {
        let Some(changeable_paths) = &self.changeable_paths else {
            return;
        };
        let is_home_changeable =
            changeable_paths.covered.iter().any(|covered| self.home.starts_with(covered));
        let visible = spec.denied.iter().chain(&spec.protected).filter(|path| {
            is_home_changeable
                && path.starts_with(&self.home)
                && path.iter().all(|part| part != ".git")
                && path.symlink_metadata().is_ok()
        });
        self.visible_in_home.get_or_init(|| visible.cloned().collect());
    }

    /// The places that the user's programs do not see while commands run in the sandbox of `spec`. Commands may have written there,
    /// and `PATH`, the user's git config and what it names could lead there.
    pub(super) fn hidden_paths(&self, spec: &SandboxSpec) -> Option<HiddenPaths> {
        let mut hidden_paths = self.changeable_paths.clone()?;
        hidden_paths.visible.extend(self.visible_in_home.get().into_iter().flatten().cloned());
        hidden_paths.covered.extend(spec.writable.iter().cloned());
        hidden_paths.covered.extend(private_tmp::existing_directories());
        Some(hidden_paths)
    }

    /// Signs `payload` for `caller`, the program that git has called, by programs that do not see `hidden_paths`. Returns the
    /// signature.
    pub(super) fn sign(
        &self,
        caller: SigningProgram,
        payload: &[u8],
        hidden_paths: Option<&HiddenPaths>,
    ) -> Result<Vec<u8>, String> {
        let object = SignedObject::parse(payload)
            .ok_or("only one commit or tag object can be signed in this run")?;
        let config = self.git_config(hidden_paths)?;
        let format = config.get("gpg.format").map_or("openpgp", String::as_str);
        let program = if format == "ssh" { SigningProgram::Ssh } else { SigningProgram::Gpg };
        if program != caller {
            return Err(format!(
                "the user's git config signs with {format}, the repository's does not"
            ));
        }
        let key = config.get("user.signingkey").or_else(|| config.get("user.email"));
        let key = key.ok_or("the user's git config has no `user.signingkey`")?;
        let request = SignRequest { config: &config, format, key, payload, hidden_paths };
        let signature = match program {
            SigningProgram::Ssh => self.sign_with_ssh(&request)?,
            SigningProgram::Gpg => self.sign_with_gpg(&request)?,
        };
        let SignedObject { kind, title } = object;
        let title = title.replace(char::is_control, "?");
        let line = format!("signed the {kind} `{title}` with {format} key `{key}`");
        self.signed.lock().push(line);
        Ok(signature)
    }

    /// The lines about the objects that were signed since the last call.
    pub(super) fn take_signed(&self) -> Vec<String> {
        std::mem::take(&mut *self.signed.lock())
    }

    /// The user's own git config: that of no repository.
    fn git_config(
        &self,
        hidden_paths: Option<&HiddenPaths>,
    ) -> Result<BTreeMap<String, String>, String> {
        let arguments = ["config", "--global", "--includes", "--null", "--list"];
        let output = self.run("git", arguments, Vec::new(), hidden_paths)?;
        let entries = output.split('\0').filter_map(|entry| entry.split_once('\n'));
        Ok(entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    fn sign_with_gpg(&self, request: &SignRequest<'_>) -> Result<Vec<u8>, String> {
        let SignRequest { config, format, key, payload, hidden_paths } = *request;
        let mut program = config.get(&format!("gpg.{format}.program"));
        if program.is_none() && format == "openpgp" {
            program = config.get("gpg.program");
        }
        let default_program = if format == "x509" { "gpgsm" } else { "gpg" };
        let program = program.map_or(default_program, String::as_str);
        // As git calls it: a detached signature (-b, -s) by the key of this user (-u), in ASCII (-a).
        let arguments = ["-bsau", key];
        self.run(program, arguments, payload.to_vec(), hidden_paths).map(String::into_bytes)
    }

    fn sign_with_ssh(&self, request: &SignRequest<'_>) -> Result<Vec<u8>, String> {
        let SignRequest { config, format: _, key, payload, hidden_paths } = *request;
        let to_text = |error: std::io::Error| error.to_string();
        let program = config.get("gpg.ssh.program").map_or("ssh-keygen", String::as_str);
        let file = durable_file::create_temp(payload).map_err(to_text)?;
        let public_key =
            key.strip_prefix("key::").or_else(|| key.starts_with("ssh-").then_some(key));
        let mut public_key_file = None;
        if let Some(public_key) = public_key {
            let file = durable_file::create_temp(public_key.as_bytes()).map_err(to_text)?;
            public_key_file = Some(file);
        }
        let key_path = match (&public_key_file, key.strip_prefix("~/")) {
            (Some(file), _) => file.path().to_owned(),
            (None, Some(rest)) => self.home.join(rest),
            (None, None) => key.into(),
        };
        let mut arguments = vec!["-Y", "sign", "-n", "git", "-f", as_text(&key_path)?];
        if public_key_file.is_some() {
            // The private key of a key that is given as text is in an agent.
            arguments.push("-U");
        }
        arguments.push(as_text(file.path())?);
        self.run(program, arguments, Vec::new(), hidden_paths)?;
        let mut signature_path = file.path().as_os_str().to_owned();
        signature_path.push(".sig");
        let signature = std::fs::read(&signature_path).map_err(to_text)?;
        // If this fails, only a signature stays in the temporary directory.
        drop(std::fs::remove_file(&signature_path));
        Ok(signature)
    }

    /// Runs a program of the user that does not see `hidden_paths`, and returns its output.
    fn run<'a>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = &'a str>,
        input: Vec<u8>,
        hidden_paths: Option<&HiddenPaths>,
    ) -> Result<String, String> {
        let spec = CommandSpec {
            program: program.into(),
            arguments: arguments.into_iter().map(str::to_owned).collect(),
            // Outside the repository, whose config must not count.
            directory: "/".into(),
            env: self.env.clone(),
            timeout: SIGN_TIMEOUT,
            capture_bytes: MAX_CAPTURE_BYTES,
            sandbox: None,
            input: Some(input),
        };
        let result = match hidden_paths {
            Some(hidden_paths) => process::run_split_stderr_hiding(&spec, hidden_paths),
            None => process::run_split_stderr(&spec),
        };
        let (result, stderr) = result.map_err(|error| format!("{program}: {error}"))?;
        if result.status.is_some_and(|status| status.success()) {
            Ok(String::from_utf8_lossy(&[result.head, result.tail].concat()).into_owned())
        } else {
            let stderr = String::from_utf8_lossy(&stderr);
            let last_line = stderr.lines().rev().find(|line| !line.trim().is_empty());
            Err(format!("{program} failed: {}", last_line.unwrap_or("no reason given")))
        }
    }
}

/// An object to be signed.
#[derive(Clone, Copy)]
struct SignRequest<'a> {
    /// The user's own git config.
    config: &'a BTreeMap<String, String>,
    /// The value of `gpg.format`.
    format: &'a str,
    key: &'a str,
    payload: &'a [u8],
    hidden_paths: Option<&'a HiddenPaths>,
}

fn as_text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("the path `{}` is not UTF-8", path.display()))
}
