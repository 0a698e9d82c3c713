//! The environment of a local server: the few variables that programs need and those that the config lists, without our
//! API keys. Also resolves the path of its executable.

use crate::mcp::protocol::McpError;
use crate::sys::env::{Env, INSIDE_SANDBOX};
use crate::sys::paths::Paths;
use crate::sys::secret::{self, Secret};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Variables that are passed on if they are set, in addition to those of the locale.
const PASSED_VARIABLES: &[&str] = &[
    "HOME", "PATH", "LANG", "LANGUAGE", "USER", "LOGNAME", "SHELL", "TERM", "TZ",
];

/// Builds the complete environment of a server. `listed` are the variables from the config, and `temp_dir` is the
/// server's own temporary directory.
pub(super) fn build_environment(
    env: &Env,
    listed: &[(String, Secret)],
    temp_dir: &Path,
) -> Vec<(String, String)> {
    let is_listed = |name: &str| listed.iter().any(|(listed, _)| listed == name);
    let is_passed = |name: &str| PASSED_VARIABLES.contains(&name) || name.starts_with("LC_");
    let mut all: Vec<(String, String)> = env
        .iter()
        .filter(|(name, value)| is_passed(name) && !is_listed(name) && !secret::contains_key(value))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    // The user's own temporary directory may be readable by everyone.
    let ours = [
        ("TMPDIR", temp_dir.display().to_string()),
        // Another instance of this program, started by the server, would otherwise pass our keys on to it.
        (INSIDE_SANDBOX, "1".to_owned()),
    ];
    let ours = ours.into_iter().filter(|(name, _)| !is_listed(name));
    all.extend(ours.map(|(name, value)| (name.to_owned(), value)));
    let listed = listed.iter().filter(|(name, value)| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.expose().contains('\0')
    });
    all.extend(listed.map(|(name, value)| (name.clone(), value.expose().to_owned())));
    all
}

/// Resolves `command`: a path, relative to `directory` unless absolute, or a name searched in the PATH of `env`.
///
/// # Errors
/// There is no such program.
pub(super) fn resolve_program(
    command: &str,
    env: &[(String, String)],
    directory: &Path,
    paths: &Paths,
) -> Result<PathBuf, McpError> {
    let may_run = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if command.contains('/') || command.starts_with('~') {
        let path = directory.join(paths.expand(command));
        return match (may_run(&path), path.exists()) {
            (true, _) => Ok(path),
            (false, true) => Err(McpError::Unusable(format!(
                "`{}` is not an executable file",
                path.display()
            ))),
            (false, false) => Err(McpError::Unusable(format!(
                "`{}` does not exist",
                path.display()
            ))),
        };
    }
    let path = env.iter().find(|(name, _)| name == "PATH");
    let folders = path.map_or("", |(_, value)| value).split(':');
    let mut found = folders
        .filter(|folder| folder.starts_with('/'))
        .map(|folder| Path::new(folder).join(command));
    found
        .find(may_run)
        .ok_or_else(|| McpError::Unusable(format!("`{command}` is not on the PATH")))
}

/// Converts the name of a server to a file name. Characters that could lead to another path are encoded.
pub(super) fn file_name(server: &str) -> String {
    let mut name = String::new();
    for byte in server.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    // Two names that differ only after the cut collide. Only a deliberate attempt produces such names.
    name.truncate(200);
    name
}

#[cfg(test)]
mod tests {
    use super::{build_environment, file_name, resolve_program};
    use crate::sys::env::Env;
    use crate::sys::paths::Paths;
    use crate::sys::secret::{Secret, register};
    use std::path::Path;

    #[test]
    fn only_needed_variables_are_passed_on() {
        let key = Secret::new("a-key-of-ours-0815");
        register(&key);
        let env: Env = [
            ("HOME", "/home/u"),
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("TERM", key.expose()),
            ("OPENAI_API_KEY", key.expose()),
            ("TMPDIR", "/tmp"),
            ("LD_PRELOAD", "/x.so"),
        ]
        .into_iter()
        .collect();
        let listed = [
            ("TOKEN".to_owned(), key),
            ("PATH".to_owned(), Secret::new("/opt")),
            ("A=B".to_owned(), Secret::new("x")),
        ];
        let mut all = build_environment(&env, &listed, Path::new("/run/private"));
        all.sort();
        let words: Vec<String> = all
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            words,
            [
                "HOME=/home/u",
                "LC_ALL=C",
                "NANOBOT_INSIDE=1",
                "PATH=/opt",
                "TMPDIR=/run/private",
                "TOKEN=a-key-of-ours-0815"
            ]
        );
    }

    #[test]
    fn programs_are_resolved_or_reported() {
        let env: Env = [("HOME", "/home/u")].into_iter().collect();
        let paths = Paths::resolve(&env, None).unwrap();
        let check = |command: &str, expect: &str| {
            let env = [("PATH".to_owned(), "relative:/nowhere:/bin".to_owned())];
            let found = resolve_program(command, &env, Path::new("/bin"), &paths);
            let words = match found {
                Ok(path) => path.display().to_string(),
                Err(failed) => failed.to_string(),
            };
            assert_eq!(words, expect);
        };
        check("sh", "/bin/sh");
        check("./sh", "/bin/./sh");
        check("/bin/sh", "/bin/sh");
        check("npxx", "`npxx` is not on the PATH");
        check("~/x", "`/home/u/x` does not exist");
        check("/etc/passwd", "`/etc/passwd` is not an executable file");
        check("/etc", "`/etc` is not an executable file");
    }

    #[test]
    fn file_names_cannot_escape_the_directory() {
        assert_eq!(file_name("My_s-1"), "My_s-1");
        assert_eq!(file_name("../x y"), "%2E%2E%2Fx%20y");
        assert_eq!(file_name(&"é".repeat(100)).len(), 200);
    }
}
