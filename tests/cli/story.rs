//! A story: files, a script, a command line, and the expected result.
//!
//! Whatever is not expected must not happen: an unchecked stdout or stderr must be empty, an unchecked status 0, and the
//! script must be used up.

use crate::fake_crontab::FakeCrontab;
use crate::formats::Format;
use crate::server::{Request, Responder, Server};
use crate::time_limit::TimeLimit;
use serde_json::{Value, json};
use std::cell::{Cell, OnceCell};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

/// The fixed time of every story.
pub(crate) const TIME: &str = "2026-01-02T03:04:05Z";

/// The program under test.
pub(crate) const NANOBOT: &str = env!("CARGO_BIN_EXE_nanobot");

pub(crate) struct Story {
    temp: tempfile::TempDir,
    server: OnceCell<Server>,
    env: Vec<(String, String)>,
    stdin: Option<Vec<u8>>,
    _time_limit: TimeLimit,
}

impl Story {
    /// A home without config, and an empty working directory.
    pub(crate) fn bare() -> Self {
        Self::bare_in(&std::env::temp_dir())
    }

    fn bare_in(parent: &Path) -> Self {
        crate::process_defaults::set();
        let temp = tempfile::tempdir_in(parent).expect("a temporary directory");
        std::fs::create_dir(temp.path().join("home")).unwrap();
        std::fs::create_dir(temp.path().join("dir")).unwrap();
        FakeCrontab::install(&temp.path().join("programs"));
        Self {
            _time_limit: TimeLimit::start(temp.path()),
            temp,
            server: OnceCell::new(),
            env: Vec::new(),
            stdin: None,
        }
    }

    /// Like [`Self::bare`], with a config for the scripted server.
    pub(crate) fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    /// Like [`Self::new`], with all its files below `parent`, for another file system.
    pub(crate) fn new_in(parent: &Path) -> Self {
        let story = Self::bare_in(parent);
        let base = format!("http://127.0.0.1:{}/v1", story.server().port);
        story.config(&json!({
            "agents": { "defaults": { "model": "scripted", "provider": "custom" } },
            "providers": { "custom": { "apiKey": "key-of-the-story", "apiBase": base } },
        }))
    }

    /// Like [`Self::new`], with this provider and model, at the scripted server's address.
    pub(crate) fn with_provider(provider: &str, model: &str) -> Self {
        let story = Self::bare();
        let base = format!("http://127.0.0.1:{}/v1", story.server().port);
        let mut config =
            json!({ "agents": { "defaults": { "model": model, "provider": provider } } });
        config["providers"][provider] = json!({ "apiKey": "key-of-the-story", "apiBase": base });
        story.config(&config)
    }

    /// Like [`Self::new`], in this wire format.
    pub(crate) fn in_format(format: Format, model: &str) -> Self {
        Self::with_provider("custom", model)
            .set("providers.custom.apiType", json!(format.config_name()))
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.get_or_init(Server::start)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.temp.path().join("home")
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.temp.path().join("dir")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.home().join(".nanobot/workspace")
    }

    /// The private crontab of this story.
    pub(crate) fn crontab(&self) -> FakeCrontab {
        FakeCrontab::in_dir(&self.temp.path().join("programs"))
    }

    pub(crate) fn config(self, config: &Value) -> Self {
        self.config_text(&config.to_string())
    }

    pub(crate) fn config_text(self, text: &str) -> Self {
        let path = self.home().join(".nanobot/config.json");
        write(&path, text.as_bytes());
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        self
    }

    /// The values of both files of the config.
    pub(crate) fn config_value(&self) -> Value {
        let [shared, own] = ["config.json", "nanobot.json"].map(|name| {
            let text = std::fs::read_to_string(self.home().join(".nanobot").join(name));
            serde_json::from_str(&text.unwrap_or_default()).unwrap_or(Value::Null)
        });
        merge(shared, own)
    }

    /// Sets `value` at `pointer` in the config.
    pub(crate) fn set(self, pointer: &str, value: Value) -> Self {
        let path = self.home().join(".nanobot/config.json");
        let mut config: Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut member = &mut config;
        for key in pointer.split('.') {
            member = &mut member[key];
        }
        *member = value;
        self.config(&config)
    }

    /// Writes a file in the working directory.
    pub(crate) fn file(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        write(&self.dir().join(name), text.as_ref());
        self
    }

    /// Writes a file in the workspace.
    pub(crate) fn workspace_file(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        write(&self.workspace().join(name), text.as_ref());
        self
    }

    pub(crate) fn script(self, responders: impl IntoIterator<Item = Responder>) -> Self {
        self.server().script(responders);
        self
    }

    /// Allows requests to have these keys, which are not in the vendor's types.
    pub(crate) fn allow_extra_keys(self, keys: &[&str]) -> Self {
        self.server().allow_extra_keys(keys);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        let own = self.temp.path().join("programs");
        let own = own.to_str().expect("it is text");
        // Whatever a story looks for, it finds its own crontab and not the machine's.
        let value = match name {
            "PATH" if !value.contains(own) => format!("{own}:{value}"),
            _ => value.to_owned(),
        };
        self.env.push((name.into(), value));
        self
    }

    /// Pipes these bytes into the next run and all later ones.
    pub(crate) fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.stdin = Some(bytes.as_ref().to_vec());
        self
    }

    /// Gives all files of the story to another user, who can then run programs in it. Only root can do that.
    pub(crate) fn give_to_user(&self, user: u32) {
        let home = self.home();
        let root = home.parent().unwrap();
        let mut chown = Command::new("chown");
        let output = chown.args(["-R", &user.to_string()]).arg(root).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The command, to be modified or started.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.program(NANOBOT);
        command.args(arguments);
        command
    }

    /// Another program in the story's directory and environment, such as a shell that starts ours.
    pub(crate) fn program(&self, program: &str) -> Command {
        // A path, not a name: to search a name in a PATH that is set here, the standard library would fork this large process,
        // where it can otherwise start the program without a copy of our memory.
        let mut command = Command::new(self.find_program(program));
        command.arg0(program).current_dir(self.dir()).env_clear();
        command
            .env("HOME", self.home())
            .env("PATH", self.path())
            .env("NANOBOT_TEST_TIME", TIME)
            .env("NANOBOT_TEST_DAEMON", "yes")
            .env("NANOBOT_TEST_MAILER", "yes")
            // Otherwise the result would depend on the machine's load. Stories about it set it themselves.
            .env("NANOBOT_MEMORY__CONSOLIDATE", "manual");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The path of a program in the story's PATH; the name itself if it is not there.
    fn find_program(&self, name: &str) -> PathBuf {
        let own = self.env.iter().rev().find(|(variable, _)| variable == "PATH");
        let path = own.map_or_else(|| self.path(), |(_, path)| path.clone());
        let mut paths = std::env::split_paths(&path).map(|dir| dir.join(name));
        let program_path = paths.find(|path| path.is_absolute() && path.is_file());
        program_path.filter(|_| !name.contains('/')).unwrap_or_else(|| name.into())
    }

    /// The command, started in a directory that is deleted before it runs.
    pub(crate) fn in_deleted_directory(&self, arguments: &[&str]) -> Command {
        let mut shell = self.program("sh");
        shell.args(["-c", "mkdir gone && cd gone && rmdir ../gone && exec \"$@\""]);
        shell.args(["sh", NANOBOT]).args(arguments);
        shell
    }

    /// The PATH of the story.
    pub(crate) fn path(&self) -> String {
        let own = self.temp.path().join("programs");
        format!("{}:/usr/local/bin:/usr/bin:/bin", own.display())
    }

    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> RunResult<'_> {
        self.wait(self.start(&mut self.command(arguments)))
    }

    /// Starts a command with the story's standard input.
    pub(crate) fn start(&self, command: &mut Command) -> Child {
        if self.stdin.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().expect("the program starts");
        if let Some(bytes) = self.stdin.clone() {
            let mut stdin = child.stdin.take().expect("it is piped");
            // The program may end without reading its input.
            std::thread::spawn(move || drop(stdin.write_all(&bytes)));
        }
        child
    }

    /// Waits for a run that the test started itself.
    pub(crate) fn wait(&self, child: Child) -> RunResult<'_> {
        self.run_result(child.wait_with_output().expect("the program ends"))
    }

    /// The result of a run that was already waited for.
    pub(crate) fn run_result(&self, output: Output) -> RunResult<'_> {
        RunResult {
            _story: self,
            status: output.status,
            stdout: self.normalize_paths(&String::from_utf8_lossy(&output.stdout)),
            stderr: self.normalize_paths(&String::from_utf8_lossy(&output.stderr)),
            bytes: output.stdout,
            checked: Cell::default(),
        }
    }

    /// `text` with this story's paths as `$HOME`, `$DIR` and `$BIN`.
    pub(crate) fn normalize_paths(&self, text: &str) -> String {
        let (home, dir, bin) = (self.home(), self.dir(), self.temp.path().join("programs"));
        text.replace(home.to_str().unwrap(), "$HOME")
            .replace(dir.to_str().unwrap(), "$DIR")
            .replace(bin.to_str().unwrap(), "$BIN")
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.server().requests()
    }

    pub(crate) fn last_request(&self) -> Request {
        self.requests().pop().expect("a request was sent")
    }

    /// The lines of a session file.
    pub(crate) fn session(&self, name: &str) -> Vec<Value> {
        let path = self.workspace().join("sessions").join(name);
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        if let Some(server) = self.server.get()
            && !std::thread::panicking()
        {
            assert_eq!(server.unused_replies(), 0, "unused replies of the script");
            assert_eq!(server.invalid_requests(), [""; 0], "invalid requests");
        }
    }
}

/// `value` with the members of `other` in it.
fn merge(value: Value, other: Value) -> Value {
    match (value, other) {
        (value, Value::Null) => value,
        (Value::Object(mut members), Value::Object(others)) => {
            for (name, other) in others {
                let member = members.remove(&name).unwrap_or(Value::Null);
                members.insert(name, merge(member, other));
            }
            Value::Object(members)
        }
        (_, other) => other,
    }
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Writes an executable with this text. A shell does it, not this process: while this process has the file open for writing,
/// a process that another test is about to start inherits the descriptor, and executing the file fails until then (ETXTBSY).
pub(crate) fn write_program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]);
    assert!(shell.arg(path).arg(text).status().unwrap().success());
}

/// Copies a program, for the same reason in another process.
pub(crate) fn copy_program(from: &str, to: &Path) {
    let copied = Command::new("/bin/cp").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
}

/// A finished run. Output that the test did not check must be empty; this is asserted on drop.
pub(crate) struct RunResult<'a> {
    _story: &'a Story,
    status: ExitStatus,
    stdout: String,
    stderr: String,
    bytes: Vec<u8>,
    checked: Cell<CheckedStreams>,
}

#[derive(Clone, Copy, Default)]
struct CheckedStreams {
    status: bool,
    stdout: bool,
    stderr: bool,
}

impl RunResult<'_> {
    fn mark_checked(&self, mark: impl FnOnce(&mut CheckedStreams)) {
        let mut checked = self.checked.get();
        mark(&mut checked);
        self.checked.set(checked);
    }

    #[track_caller]
    pub(crate) fn stdout(self, expect: &str) -> Self {
        self.mark_checked(|checked| checked.stdout = true);
        assert_eq!(self.stdout, expect, "stdout; stderr was:\n{}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn stderr(self, expect: &str) -> Self {
        self.mark_checked(|checked| checked.stderr = true);
        assert_eq!(self.stderr, expect, "stderr");
        self
    }

    #[track_caller]
    pub(crate) fn stdout_has(self, text: &str) -> Self {
        self.mark_checked(|checked| checked.stdout = true);
        assert!(
            self.stdout.contains(text),
            "no {text:?} in stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    #[track_caller]
    pub(crate) fn stderr_has(self, text: &str) -> Self {
        self.mark_checked(|checked| checked.stderr = true);
        assert!(self.stderr.contains(text), "no {text:?} in stderr:\n{}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn status(self, expect: i32) -> Self {
        self.mark_checked(|checked| checked.status = true);
        assert_eq!(
            self.status.code(),
            Some(expect),
            "status; stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// The exit status, marked as checked; 128 plus the signal if it was killed.
    pub(crate) fn code(&self) -> i32 {
        self.mark_checked(|checked| checked.status = true);
        let signal = std::os::unix::process::ExitStatusExt::signal(&self.status);
        self.status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(-1)
    }

    /// The signal that killed it.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.mark_checked(|checked| checked.status = true);
        std::os::unix::process::ExitStatusExt::signal(&self.status)
    }

    /// Standard output as text, marked as checked.
    pub(crate) fn text(&self) -> String {
        self.mark_checked(|checked| checked.stdout = true);
        self.stdout.clone()
    }

    pub(crate) fn error_text(&self) -> String {
        self.mark_checked(|checked| checked.stderr = true);
        self.stderr.clone()
    }

    /// Standard output as bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.mark_checked(|checked| checked.stdout = true);
        self.bytes.clone()
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let value = serde_json::from_str(&self.text())
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.stdout));
        check_version_1(value)
    }

    /// Standard output as JSON lines.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
        };
        self.text().lines().map(parse).map(check_version_1).collect()
    }
}

/// Validates a value of version 1 against the schema.
fn check_version_1(value: Value) -> Value {
    if value["v"] == 1 {
        crate::schema::assert_valid(&value);
    }
    value
}

impl Drop for RunResult<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let checked = self.checked.get();
        if !checked.status {
            assert!(
                self.status.success(),
                "{}; stdout:\n{}\nstderr:\n{}",
                self.status,
                self.stdout,
                self.stderr
            );
        }
        if !checked.stdout {
            assert_eq!(self.stdout, "", "stdout was not expected; stderr:\n{}", self.stderr);
        }
        if !checked.stderr {
            assert_eq!(self.stderr, "", "stderr was not expected");
        }
    }
}
