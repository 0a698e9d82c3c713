//! The fixture for sandbox tests: a story whose model calls `exec` with many commands at once, as the current or another
//! user.

use crate::requirements::require;
use crate::server::{calls_all, says};
use crate::situation::{Situation, User};
use crate::story::{Story, write};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints a count for the reader of the test output.
#[expect(clippy::print_stdout, reason = "counts")]
pub(crate) fn print_count(line: &str) {
    println!("sandbox: {line}");
}

/// A program that may be missing, the command, and the expected end of its output.
pub(super) type Task = (&'static str, &'static str, &'static str);

/// Checks the last line of each result of `tasks`, as `user`. Those whose program is missing are left out; the number of the
/// others is printed as that of `kind`.
pub(super) fn check_tasks(user: User, tasks: &[Task], results: &[String], kind: &str) {
    let checks = tasks.iter().map(|(program, ..)| format!("command -v {program} || echo none"));
    let checks: Vec<String> = checks.collect();
    let outputs = SandboxFixture::new(user).run_commands(&["--sandbox", "off"], &checks);
    let mut tried = 0;
    for (((program, command, expect), result), output) in tasks.iter().zip(results).zip(&outputs) {
        if !program.is_empty() && output.starts_with("none") {
            // Some programs are in the home of the user who runs the tests.
            assert!(user == User::Nobody || !require(program), "{program}");
            continue;
        }
        tried += 1;
        assert_eq!(result.lines().last(), Some(*expect), "{user:?}: {command}\n{result}");
    }
    print_count(&format!("{user:?}: {tried} {kind} done"));
}

pub(super) struct SandboxFixture {
    pub(super) story: Story,
    situation: Situation,
    /// The command that starts the program.
    wrapper: Vec<String>,
}

impl SandboxFixture {
    pub(super) fn new(user: User) -> Self {
        let story = Story::new();
        // Not every machine allows all users to write to the system's temporary directory.
        let temporary = story.home().parent().unwrap().join("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let story = story.env("TMPDIR", temporary.to_str().unwrap());
        // The toolchain of the tests may be in another user's home.
        let cargo = Path::new(env!("CARGO")).parent().unwrap().display();
        let path = format!("{cargo}:/usr/local/bin:/usr/bin:/bin");
        let story = story.env("PATH", &path);
        Self { story, situation: Situation { user, has_namespaces: true }, wrapper: Vec::new() }
    }

    /// Simulates a system that allows no namespaces.
    pub(super) fn without_namespaces(mut self) -> Self {
        self.situation.has_namespaces = false;
        self
    }

    /// Starts the program with a wrapper that takes it as its last arguments.
    pub(super) fn with_wrapper(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// A directory next to home and working directory, outside of the run's scope.
    pub(super) fn outside_dir(&self) -> PathBuf {
        self.story.home().parent().unwrap().join("outside")
    }

    pub(super) fn write_file(&self, path: &Path, text: &str) {
        write(path, text.as_bytes());
    }

    /// The tool result of each command.
    pub(super) fn run_commands<S: AsRef<str>>(
        &self,
        flags: &[&str],
        commands: &[S],
    ) -> Vec<String> {
        self.run(self.command(flags), commands)
    }

    /// As [`Self::run_commands`], with the command that starts the program.
    pub(super) fn run<S: AsRef<str>>(&self, command_line: Command, commands: &[S]) -> Vec<String> {
        let calls = commands
            .iter()
            .map(|command| ("exec", json!({ "command": command.as_ref(), "timeout": 60 })));
        self.run_calls_with(command_line, calls.collect())
    }

    /// The tool result of each call.
    pub(super) fn run_calls(&self, flags: &[&str], calls: Vec<(&str, Value)>) -> Vec<String> {
        self.run_calls_with(self.command(flags), calls)
    }

    fn run_calls_with(&self, mut command: Command, calls: Vec<(&str, Value)>) -> Vec<String> {
        let count = calls.len();
        self.story.server().script([calls_all(calls), says("done")]);
        let before = self.story.requests().len();
        let child = command.spawn().expect("the program starts");
        let result = self.story.wait(child);
        // Restored files are reported there.
        let errors = result.error_text();
        result.stdout("done\n");
        let requests = self.story.requests();
        assert_eq!(requests.len(), before + 2, "{errors}");
        let messages = requests[before + 1].messages();
        let last_messages = messages.iter().rev().take(count).rev();
        let outputs: Vec<String> = last_messages
            .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(outputs.len(), count);
        outputs
    }

    /// The command for the fixture's user, who owns all files of the story from now on.
    pub(super) fn command(&self, flags: &[&str]) -> Command {
        let mut arguments = vec!["agent", "-m", "go", "--ephemeral"];
        arguments.extend(flags);
        let mut command = self.situation.command(&self.story, &self.wrapper);
        command.args(arguments);
        command
    }
}
