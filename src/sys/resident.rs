//! Stand-in.
use super::sandbox::Fence;
use std::io::{self, PipeReader, PipeWriter};
use std::path::PathBuf;
use std::process::{Child, Command};

pub struct Spec {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub directory: PathBuf,
    pub env: Vec<(String, String)>,
    pub fence: Option<Fence>,
}

pub struct Resident {
    child: Child,
    pub input: Option<PipeWriter>,
    pub output: Option<PipeReader>,
    pub errors: Option<PipeReader>,
}

pub fn start(spec: &Spec) -> io::Result<Resident> {
    let (stdin, input) = io::pipe()?;
    let (output, stdout) = io::pipe()?;
    let (errors, stderr) = io::pipe()?;
    let child = Command::new(&spec.program)
        .args(&spec.arguments)
        .current_dir(&spec.directory)
        .env_clear()
        .envs(spec.env.iter().cloned())
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .spawn()?;
    Ok(Resident {
        child,
        input: Some(input),
        output: Some(output),
        errors: Some(errors),
    })
}

impl Resident {
    pub fn status(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|s| s.to_string())
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn end_all(all: Vec<Resident>) {
    drop(all);
}
