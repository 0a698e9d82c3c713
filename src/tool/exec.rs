//! `exec`: a command of the shell, in a group of its own, with a deadline and without our keys in its environment.

use super::files::Files;
use super::{Effect, Failure, Output, Tool};
use crate::policy::Refusal;
use crate::provider::ToolSpec;
use crate::sys::env::Env;
use crate::sys::process::{self, Spec};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The longest that a model may ask for.
const LONGEST: u64 = 600;
/// Variables that a command gets, where we have them.
const PASSED: &[&str] = &[
    "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR",
];

/// What the config says of commands.
#[derive(Clone, Debug)]
pub struct Limits {
    pub timeout: Duration,
    /// Characters that are kept of a result.
    pub result: usize,
    /// Put before and after PATH.
    pub path_prepend: String,
    pub path_append: String,
    /// Further variables that a command gets.
    pub allowed_env_keys: Vec<String>,
}

/// Runs commands.
pub struct Exec {
    spec: ToolSpec,
    files: Arc<Files>,
    timeout: Duration,
    /// Bytes that are kept of the output's beginning, and of its end.
    keep: usize,
    env: Vec<(String, String)>,
}

impl Exec {
    pub fn new(files: Arc<Files>, limits: &Limits, env: &Env) -> Self {
        let spec = ToolSpec {
            name: "exec".into(),
            description: format!(
                "Run a shell command in the directory, without input, for at most {} s",
                limits.timeout.as_secs()
            ),
            parameters: json!({ "type": "object", "required": ["command"], "properties": {
                "command": { "type": "string", "minLength": 1 },
                "working_dir": { "type": "string" },
                "timeout": { "type": "integer", "minimum": 1, "maximum": LONGEST, "description": "seconds" },
            } }),
        };
        Self {
            spec,
            files,
            timeout: limits.timeout,
            // With room for what is added, so that the result is not cut again: only the first cut knows the size.
            keep: limits.result / 32 * 15,
            env: environment(limits, env),
        }
    }
}

impl Tool for Exec {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, arguments: &Value) -> Effect {
        match arguments["command"].as_str().is_some_and(looks_only) {
            true => Effect::Reads,
            false => Effect::Writes,
        }
    }

    fn run(&self, arguments: &Value, say: &mut dyn FnMut(&str)) -> Result<Output, Failure> {
        let command = arguments["command"].as_str().unwrap_or_default();
        if let Some(accident) = accident(command) {
            return Err(Refusal::of(format!(
                "not run: this {accident}; if that is really wanted, the user must do it"
            ))
            .into());
        }
        let directory = self
            .files
            .directory(arguments["working_dir"].as_str().unwrap_or("."))?;
        let timeout = arguments["timeout"]
            .as_u64()
            .map_or(self.timeout, Duration::from_secs);
        let spec = Spec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), command.into()],
            directory,
            env: self.env.clone(),
            timeout,
            keep: self.keep,
        };
        let finished = process::run(&spec, &mut |bytes| say(&String::from_utf8_lossy(bytes)))
            .map_err(|error| format!("the shell cannot be started: {error}"))?;
        let mut text = shown(&finished, self.keep);
        let line = |words: String| format!("\n{words}");
        match (
            finished.status.and_then(|status| status.code()),
            finished.signal(),
        ) {
            (Some(0), _) => {}
            (Some(code), _) => text.push_str(&line(format!("Exit code: {code}"))),
            (None, Some(signal)) => text.push_str(&line(format!("Ended by signal {signal}"))),
            (None, None) if finished.stopped.is_some() => {
                text.push_str("\nInterrupted, since the run was ended; all of it was ended");
                return Err(text.trim_start().into());
            }
            (None, None) => {
                text.push_str(&line(format!(
                    "Timed out after {} seconds; all of it was ended",
                    timeout.as_secs()
                )));
                return Err(text.trim_start().into());
            }
        }
        if finished.strays {
            text.push_str("\n(what it left running was ended with it)");
        }
        Ok(text.trim_start_matches('\n').to_owned().into())
    }
}

/// The output as text, with a mark where its middle was left out.
fn shown(finished: &process::Finished, keep: usize) -> String {
    let head = String::from_utf8_lossy(&finished.head);
    let tail = String::from_utf8_lossy(&finished.tail);
    let excess = tail.len().saturating_sub(keep);
    let start = (excess..=tail.len())
        .find(|at| tail.is_char_boundary(*at))
        .unwrap_or(tail.len());
    let left_out = finished.left_out + start as u64;
    let text = match left_out {
        0 => format!("{head}{tail}"),
        _ => format!(
            "{head}\n[… {left_out} bytes left out …]\n{}",
            &tail[start..]
        ),
    };
    match text.trim() {
        "" => "(no output)".into(),
        _ => text.trim_end().to_owned(),
    }
}

/// All of a command's environment: named variables only, so that no key gets there by being forgotten.
fn environment(limits: &Limits, env: &Env) -> Vec<(String, String)> {
    let own = env.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let parts = [
        limits.path_prepend.as_str(),
        own,
        limits.path_append.as_str(),
    ];
    let path = parts
        .iter()
        .filter(|part| !part.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(":");
    let fixed = [
        ("PATH", path.as_str()),
        ("SHELL", "/bin/sh"),
        ("TERM", "dumb"),
    ];
    let passed = |name: &str| {
        PASSED.contains(&name)
            || name.starts_with("LC_")
            || limits
                .allowed_env_keys
                .iter()
                .any(|allowed| allowed == name)
    };
    let ours = env
        .iter()
        .filter(|(name, _)| passed(name) && !fixed.iter().any(|(fixed, _)| fixed == name));
    fixed
        .into_iter()
        .chain(ours)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Programs that change nothing, whatever their arguments are.
const LOOKERS: &[&str] = &[
    "basename",
    "cat",
    "cmp",
    "cut",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "false",
    "fgrep",
    "grep",
    "head",
    "id",
    "jq",
    "ls",
    "md5sum",
    "nl",
    "od",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "realpath",
    "rg",
    "sha1sum",
    "sha256sum",
    "sleep",
    "stat",
    "tac",
    "tail",
    "test",
    "tr",
    "true",
    "uname",
    "wc",
    "whoami",
];

/// Whether `command` only looks, so that it may run beside others that do: plain pipelines of programs that change
/// nothing. In doubt it does not; what is mistaken here runs at another time than it might, and may do no more.
fn looks_only(command: &str) -> bool {
    if command.contains(['>', '<', '$', '`', '(', ')', '{', '}', '\\', '\n', '#', '!']) {
        return false;
    }
    command
        .replace("&&", ";")
        .replace("||", ";")
        .split([';', '|'])
        .all(|part| {
            let mut words = part.split_whitespace();
            let program = words.next().unwrap_or_default();
            let mut rest = words;
            !part.contains('&')
                && match program {
                    "find" => !rest.any(|word| {
                        ["-delete", "-exec", "-ok", "-f"]
                            .iter()
                            .any(|flag| word.starts_with(flag))
                    }),
                    "sort" => !rest.any(|word| word.starts_with("--") || word.contains("-o")),
                    "git" => {
                        matches!(
                            rest.next(),
                            Some("status" | "log" | "diff" | "show" | "blame")
                        ) && !rest.any(|word| word.starts_with("--o") || word.starts_with("--ext"))
                    }
                    other => LOOKERS.contains(&other),
                }
        })
}

/// A tripwire against plain accidents, in words that follow "this". It is no security: whoever wants to get past it does.
fn accident(command: &str) -> Option<&'static str> {
    let compact: String = command
        .chars()
        .filter(|letter| !letter.is_whitespace())
        .collect();
    if compact.contains(":(){:|:&};:") {
        return Some("is a fork bomb");
    }
    command.split([';', '&', '|', '\n']).find_map(|part| {
        let mut words = part
            .split_whitespace()
            .skip_while(|word| *word == "sudo" || word.contains('='));
        let program = words.next()?.rsplit('/').next()?;
        let rest: Vec<&str> = words.collect();
        let has = |flag: char, long: &str| {
            rest.iter().any(|word| {
                *word == long
                    || (word.starts_with('-') && !word.starts_with("--") && word.contains(flag))
            })
        };
        let everything = |word: &&str| {
            matches!(
                word.trim_end_matches('*').trim_end_matches('/'),
                "" | "~" | "$HOME" | "\"$HOME\""
            )
        };
        match program {
            "rm" if has('r', "--recursive") || has('R', "--recursive") => rest
                .iter()
                .filter(|word| !word.starts_with('-'))
                .any(everything)
                .then_some("removes everything"),
            "dd" => rest
                .iter()
                .any(|word| word.starts_with("of=/dev/") && !word.ends_with("null"))
                .then_some("overwrites a disk"),
            "shutdown" | "reboot" | "poweroff" | "halt" => Some("stops the machine"),
            _ if program == "mkfs" || program.starts_with("mkfs.") => {
                Some("makes a new file system")
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{Exec, Limits, accident, environment, looks_only};
    use crate::message::plain_text;
    use crate::sys::env::Env;
    use crate::tool::{Failure, Tool, files::tests::files};
    use serde_json::json;
    use std::sync::Arc;
    use std::time::Duration;

    fn limits() -> Limits {
        let (path_prepend, path_append) = ("/first".into(), "/last".into());
        Limits {
            timeout: Duration::from_secs(10),
            result: 16_000,
            path_prepend,
            path_append,
            allowed_env_keys: vec!["EXTRA".into()],
        }
    }

    #[test]
    fn only_named_variables_are_passed() {
        let env: Env = [
            ("PATH", "/bin"),
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("OPENAI_API_KEY", "k"),
            ("EXTRA", "e"),
            ("LD_PRELOAD", "x"),
            ("SHELL", "/evil"),
        ]
        .into_iter()
        .collect();
        let mut found = environment(&limits(), &env);
        found.sort();
        let found: Vec<String> = found
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            found,
            [
                "EXTRA=e",
                "HOME=/h",
                "LC_ALL=C",
                "PATH=/first:/bin:/last",
                "SHELL=/bin/sh",
                "TERM=dumb"
            ]
        );
    }

    #[test]
    fn results_as_the_model_sees_them() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        let exec = Exec::new(Arc::new(files(&dir, false)), &limits(), &Env::default());
        let _alone = crate::sys::process::tests::alone();
        let check = |command: &str, expect: Result<&str, &str>| {
            let found = exec.run(&json!({ "command": command, "timeout": 1 }), &mut |_| {});
            let found = found.map(|output| plain_text(&output.parts));
            assert_eq!(
                found.as_deref().map_err(Failure::words),
                expect,
                "{command}"
            );
        };
        check("echo out; echo err >&2", Ok("out\nerr"));
        check("true", Ok("(no output)"));
        check("echo no; exit 3", Ok("no\nExit code: 3"));
        check("kill -9 $$", Ok("(no output)\nEnded by signal 9"));
        check("printf 'a\\377b'", Ok("a\u{fffd}b"));
        check("pwd", Ok(dir.to_str().unwrap()));
        check("cat", Ok("(no output)"));
        check(
            "echo on; sleep 9",
            Err("on\nTimed out after 1 seconds; all of it was ended"),
        );
        check(
            "sleep 30 & echo on",
            Ok("on\n(what it left running was ended with it)"),
        );
        let long = exec
            .run(&json!({ "command": "seq 1 100000" }), &mut |_| {})
            .unwrap();
        let long = plain_text(&long.parts);
        assert!(
            long.starts_with("1\n2\n")
                && long.ends_with("99999\n100000")
                && long.contains("bytes left out")
        );
        assert!(long.len() < 16_000);
        assert!(
            exec.run(
                &json!({ "command": "pwd", "working_dir": "/etc" }),
                &mut |_| {}
            )
            .is_err()
        );
    }

    #[test]
    fn what_only_looks_is_known() {
        for command in [
            "ls",
            "cat a b | grep x | wc -l",
            "sleep 0.2",
            "git log -3 && git status; ls || true",
            "find . -name '*.rs' -type d",
            "sort a | head -n 3",
        ] {
            assert!(looks_only(command), "{command}");
        }
        for command in [
            "",
            "rm a",
            "cat a > b",
            "ls & rm b",
            "echo $(rm a)",
            "echo `rm a`",
            "ls\nrm a",
            "find . -delete",
            "find . -exec rm {} +",
            "find . -fprint a",
            "sort -o a a",
            "sort --output=a a",
            "sort --compress-prog=./x a",
            "git diff --ext-diff",
            "git commit -m x",
            "git diff --output=a",
            "env rm a",
            "/tmp/ls",
            "ls; make",
            "A=1 ls",
            "tail -f x &",
        ] {
            assert!(!looks_only(command), "{command}");
        }
    }

    #[test]
    fn accidents_are_stopped_and_nothing_else() {
        for command in [
            "rm -rf /",
            "sudo rm -rf /*",
            "rm -r -f ~",
            "cd /tmp; rm -rf $HOME/",
            "mkfs.ext4 /dev/sda1",
            "dd if=/dev/zero of=/dev/sda",
            "shutdown -h now",
            "sudo reboot",
            ":(){ :|:& };:",
            "rm --recursive /",
        ] {
            assert!(accident(command).is_some(), "{command}");
        }
        for command in [
            "grep shutdown file",
            "git commit -m \"reboot handling\"",
            "rm -f one.txt",
            "rm -rf ./build",
            "rm -rf /tmp/x",
            "dd if=a of=b",
            "dd of=/dev/null",
            "echo format",
            "man mkfs",
            "ls",
        ] {
            assert_eq!(accident(command), None, "{command}");
        }
    }
}
