//! The environment of a server that is a local program: a few variables of this process, without API keys, and those
//! from the config. Also resolves the path of its executable.

use nanobot_os::env::{INSIDE_SANDBOX, TRACEPARENT, TRACESTATE};
use nanobot_os::paths::Paths;
use nanobot_os::secret::{self, Secret};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Variables that a server inherits from this process, in addition to `LC_*`.
const INHERITED_VARIABLES: &[&str] = &[
    "HOME",
    "PATH",
    "LANG",
    "LANGUAGE",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TZ",
    TRACEPARENT,
    TRACESTATE,
];

/// Maximum length of the file name of a server: file systems allow 255 bytes. Longer names that begin alike share a file name.
const MAX_FILE_NAME_BYTES: usize = 200;

/// Builds the complete environment of a server. `configured` are the variables from the config, and `temp_dir` is the
/// server's own temporary directory.
pub fn build_environment<'e>(
    env: impl Iterator<Item = (&'e str, &'e str)>,
    configured: &[(String, Secret)],
    temp_dir: &Path,
) -> Vec<(String, String)> {
    let is_configured = |name: &str| configured.iter().any(|(other, _)| other == name);
    let is_inherited = |name: &str| INHERITED_VARIABLES.contains(&name) || name.starts_with("LC_");
    let mut variables: Vec<(String, String)> = env
        .filter(|(name, value)| {
            is_inherited(name) && !is_configured(name) && !secret::contains_key(value)
        })
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    // Other users may be able to read the inherited temporary directory.
    let own = [
        ("TMPDIR", temp_dir.display().to_string()),
        // Without this variable, another nanobot that the server starts would pass the API keys on to it.
        (INSIDE_SANDBOX, "1".to_owned()),
    ];
    let own = own.into_iter().filter(|(name, _)| !is_configured(name));
    variables.extend(own.map(|(name, value)| (name.to_owned(), value)));
    let valid_variables = configured.iter().filter(|(name, value)| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.expose().contains('\0')
    });
    variables
        .extend(valid_variables.map(|(name, value)| (name.clone(), value.expose().to_owned())));
    variables
}

/// Resolves `command`: a path, relative to `directory` unless absolute, or a name searched in the PATH of `env`.
///
/// # Errors
/// There is no such program.
pub fn resolve_program(
    command: &str,
    env: &[(String, String)],
    directory: &Path,
    paths: &Paths,
) -> Result<PathBuf, String> {
    let is_executable = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if command.contains('/') || command.starts_with('~') {
        let path = directory.join(paths.expand(command));
        return if is_executable(&path) {
            Ok(path)
        } else if path.exists() {
            Err(format!("`{}` is not an executable file", path.display()))
        } else {
            Err(format!("`{}` does not exist", path.display()))
        };
    }
    let search_path = env.iter().find(|(name, _)| name == "PATH");
    let directories = search_path.map_or("", |(_, value)| value).split(':');
    let mut candidates = directories
        .filter(|directory| directory.starts_with('/'))
        .map(|directory| Path::new(directory).join(command));
    candidates.find(is_executable).ok_or_else(|| format!("`{command}` is not on the PATH"))
}

/// Converts the name of a server to a file name. All characters but ASCII letters, digits, `-` and `_` are
/// percent-encoded, so that the file stays in its directory.
pub fn server_file_name(server: &str) -> String {
    let mut name = String::new();
    for byte in server.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name.truncate(MAX_FILE_NAME_BYTES);
    name
}

#[cfg(test)]
mod tests {
    use super::{build_environment, resolve_program, server_file_name};
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use nanobot_os::secret::{Secret, register};
    use std::path::Path;

    #[test]
    fn only_needed_variables_are_inherited() {
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
        let configured = [
            ("TOKEN".to_owned(), key),
            ("PATH".to_owned(), Secret::new("/opt")),
            ("A=B".to_owned(), Secret::new("x")),
        ];
        let mut environment = build_environment(env.iter(), &configured, Path::new("/run/private"));
        environment.sort();
        let variables: Vec<String> =
            environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            variables,
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
            let resolved = resolve_program(command, &env, Path::new("/bin"), &paths);
            let actual = match resolved {
                Ok(path) => path.display().to_string(),
                Err(cause) => cause,
            };
            assert_eq!(actual, expect);
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
        assert_eq!(server_file_name("My_s-1"), "My_s-1");
        assert_eq!(server_file_name("../x y"), "%2E%2E%2Fx%20y");
        assert_eq!(server_file_name(&"é".repeat(100)).len(), 200);
    }
}
