//! This program as git in the sandbox calls it instead of gpg or ssh-keygen: sends the object to be signed to the run, which decides. Calls
//! that verify a signature run the program itself.

use nanobot_os::env::{SIGNING_SOCKET, path_variable};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The status line of gpg that tells git of a signature.
const CREATED: &str = "\n[GNUPG:] SIG_CREATED \n";

/// The first byte of an answer with a signature; any other answer is a reason.
pub(super) const SIGNED: u8 = b'+';

/// The program that git calls for a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningProgram {
    Gpg,
    Ssh,
}

impl SigningProgram {
    /// Its name in the first line of a request.
    fn name(self) -> &'static str {
        match self {
            Self::Gpg => "gpg",
            Self::Ssh => "ssh",
        }
    }

    pub(super) fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Gpg, Self::Ssh].into_iter().find(|program| program.name().as_bytes() == name)
    }
}

/// Signs or verifies if the arguments are those of a call by git, and returns `None` otherwise. Returns true if that succeeded.
pub(super) fn become_signing_client() -> Option<bool> {
    let socket = path_variable(SIGNING_SOCKET)?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let first = arguments.first()?.to_str()?;
    let result = match first {
        "-Y" => sign_for_ssh(&socket, &arguments),
        _ if first.starts_with("--status-fd=") || first.starts_with("--keyid-format=") => {
            sign_for_gpg(&socket, &arguments)
        }
        _ => return None,
    };
    let mut errors = File::from(rustix::io::dup(rustix::stdio::stderr()).ok()?);
    if let Err(error) = &result {
        // If standard error is closed, the exit status alone reports the failure.
        drop(errors.write_all(format!("nanobot: not signed: {error}\n").as_bytes()));
    }
    Some(result.is_ok())
}

fn sign_for_gpg(socket: &Path, arguments: &[OsString]) -> io::Result<()> {
    if !arguments.iter().any(|argument| argument == "-bsau") {
        return Err(Command::new("gpg").args(arguments).exec());
    }
    let mut payload = Vec::new();
    File::from(rustix::io::dup(rustix::stdio::stdin())?).read_to_end(&mut payload)?;
    let signature = request_signature(socket, SigningProgram::Gpg, &payload)?;
    File::from(rustix::io::dup(rustix::stdio::stdout())?).write_all(&signature)?;
    File::from(rustix::io::dup(rustix::stdio::stderr())?).write_all(CREATED.as_bytes())
}

fn sign_for_ssh(socket: &Path, arguments: &[OsString]) -> io::Result<()> {
    if arguments.get(1).is_none_or(|action| action != "sign") {
        return Err(Command::new("ssh-keygen").args(arguments).exec());
    }
    let namespace = arguments.windows(2).find(|pair| pair[0] == "-n").map(|pair| &pair[1]);
    if namespace.is_none_or(|namespace| namespace != "git") {
        return Err(io::Error::other("the namespace is not `git`"));
    }
    let file = PathBuf::from(arguments.last().map_or_else(OsString::new, OsString::clone));
    let signature = request_signature(socket, SigningProgram::Ssh, &std::fs::read(&file)?)?;
    let mut signature_file = file.into_os_string();
    signature_file.push(".sig");
    std::fs::write(signature_file, signature)
}

/// Asks the run to sign `payload` in place of `program`. Returns the signature.
fn request_signature(
    socket: &Path,
    program: SigningProgram,
    payload: &[u8],
) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(format!("{}\n", program.name()).as_bytes())?;
    stream.write_all(payload)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match answer.split_first() {
        Some((&SIGNED, signature)) => Ok(signature.to_vec()),
        Some(_) => Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned())),
        None => Err(io::Error::other("the run has not answered")),
    }
}
