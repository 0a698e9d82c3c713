//! Signatures for git in the sandbox, while a command runs.

use super::ExecTool;
use super::signer::Signer;
use nanobot_os::env::SIGNING_SOCKET;
use nanobot_os::secret::random_hex;
use nanobot_sandbox::SandboxSpec;
use nanobot_sandbox::process::{SigningListener, SigningProgram};
use std::sync::Arc;

/// The keys of git's config that name the program for signatures.
const PROGRAM_KEYS: [&str; 4] =
    ["gpg.program", "gpg.openpgp.program", "gpg.x509.program", "gpg.ssh.program"];

impl ExecTool {
    /// Lets git in the sandbox sign commits and tags by `signer`.
    pub fn with_signing(mut self, signer: Arc<Signer>) -> Self {
        self.programs.push(signer.program().to_owned());
        self.signer = Some(signer);
        self
    }

    /// Signs for the command of `spec` until the result is dropped, if the user allows it.
    pub(super) fn start_signing(
        &self,
        spec: &SandboxSpec,
        env: &mut Vec<(String, String)>,
    ) -> std::io::Result<Option<SigningListener>> {
        let (Some(signer), Some(private)) = (&self.signer, spec.private()) else {
            return Ok(None);
        };
        let hidden_paths = signer.hidden_paths(spec);
        let socket = private.join(format!("sign-{}", random_hex(8)));
        let sign = {
            let signer = Arc::clone(signer);
            move |caller: SigningProgram, payload: &[u8]| {
                signer.sign(caller, payload, hidden_paths.as_ref())
            }
        };
        let listener = SigningListener::start(&socket, Box::new(sign))?;
        let program = signer.program().to_string_lossy();
        let count = env.iter().find(|(name, _)| name == "GIT_CONFIG_COUNT");
        let start: usize = count.and_then(|(_, text)| text.parse().ok()).unwrap_or_default();
        for (number, key) in (start..).zip(PROGRAM_KEYS) {
            env.push((format!("GIT_CONFIG_KEY_{number}"), key.to_owned()));
            env.push((format!("GIT_CONFIG_VALUE_{number}"), program.clone().into_owned()));
        }
        env.retain(|(name, _)| name != "GIT_CONFIG_COUNT");
        env.push(("GIT_CONFIG_COUNT".into(), (start + PROGRAM_KEYS.len()).to_string()));
        env.push((SIGNING_SOCKET.into(), socket.to_string_lossy().into_owned()));
        Ok(Some(listener))
    }

    /// Takes the lines about the objects that were signed for a command, and records them for the report of the turn.
    pub(super) fn report_signed(&self) -> Vec<String> {
        let lines = self.signer.as_ref().map_or(Vec::new(), |signer| signer.take_signed());
        lines.iter().for_each(|line| self.files.record_signature(line));
        lines
    }
}
