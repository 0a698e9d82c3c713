//! The command of a crontab line: this program and a job's id, with the environment that cron lacks. No I/O.
//!
//! Arguments are escaped so that every cron and every shell reads them the same. A `%` would end the command. It is
//! escaped with a backslash outside of quotes, so it makes no difference whether cron removes the backslash or leaves it to the shell. Some
//! crons also read two backslashes as one, so backslashes are always separated by a quote.

use nanobot_base::shell_quote::split_arguments;
use std::path::Path;

/// Maximum command length in bytes: Debian's cron rejects a table with a longer one.
pub(crate) const MAX_COMMAND_BYTES: usize = 998;

/// The `PATH` that is used if none is set.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Directories that are kept in the PATH regardless of its length.
const SYSTEM_DIRS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The parts of a command. All paths are absolute.
#[derive(Clone, Copy, Debug)]
pub struct CommandParts<'a> {
    pub home: &'a Path,
    /// `NANOBOT_HOME`, if set.
    pub root: Option<&'a Path>,
    /// `PATH`, if set.
    pub path: Option<&'a str>,
    pub program: &'a Path,
    /// The file given with `-c`.
    pub config: Option<&'a Path>,
    /// The directory given with `-w`.
    pub workspace: Option<&'a Path>,
    /// The job's id.
    pub id: &'a str,
}

/// A command as written in a crontab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrontabCommand {
    pub text: String,
    /// Directories of the PATH that were left out, because they do not fit or are relative.
    pub omitted_dirs: Vec<String>,
}

/// Builds the command of a crontab line.
///
/// # Errors
/// A message, if a path cannot be written in a crontab or the command is too long.
pub fn build_command(parts: &CommandParts) -> Result<CrontabCommand, String> {
    let CommandParts { home, root, path, program, config, workspace, id } = *parts;
    let mut start = format!("/usr/bin/env HOME={}", escape_path(home)?);
    if let Some(root) = root {
        start += &format!(" NANOBOT_HOME={}", escape_path(root)?);
    }
    // `env` would take a program path with `=` for another variable.
    if program.as_os_str().as_encoded_bytes().contains(&b'=') {
        return Err(format!(
            "`{}` cannot be written in a crontab: the path contains `=`",
            program.display()
        ));
    }
    let mut end = format!(" {}", escape_path(program)?);
    for (flag, path) in [("-c", config), ("-w", workspace)] {
        if let Some(path) = path {
            end += &format!(" {flag} {}", escape_path(path)?);
        }
    }
    end += &format!(" cron run {id} --scheduled");

    let (mut dirs, mut omitted_dirs) = split_path(path.unwrap_or(DEFAULT_PATH));
    loop {
        let text = format!("{start} PATH={}{end}", escape(&dirs.join(":")));
        if text.len() <= MAX_COMMAND_BYTES {
            return Ok(CrontabCommand { text, omitted_dirs });
        }
        let Some(index) = dirs.iter().rposition(|dir| !SYSTEM_DIRS.contains(dir)) else {
            let cause =
                "the paths of home, program, config and workspace are too long for a crontab line";
            return Err(format!("{cause}: {} bytes, the limit is {MAX_COMMAND_BYTES}", text.len()));
        };
        omitted_dirs.insert(0, dirs.remove(index).to_owned());
    }
}

/// A parsed command of ours: its variables, and the arguments from the program on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedCommand {
    pub variables: Vec<(String, String)>,
    pub argv: Vec<String>,
}

impl ParsedCommand {
    /// Parses `command`; `None` if it is not one of ours.
    pub fn parse(command: &str) -> Option<Self> {
        let mut parsed_command = Self::default();
        for argument in split_arguments(command.strip_prefix("/usr/bin/env ")?)? {
            match argument.split_once('=') {
                // The first argument without `=` is the program.
                Some((name, value)) if parsed_command.argv.is_empty() => {
                    parsed_command.variables.push((name.into(), value.into()));
                }
                _ => parsed_command.argv.push(argument),
            }
        }
        (!parsed_command.argv.is_empty()).then_some(parsed_command)
    }
}

/// Splits a `PATH` into unique directories that do not depend on the working directory, and the others.
fn split_path(path: &str) -> (Vec<&str>, Vec<String>) {
    let (mut dirs, mut omitted_dirs) = (Vec::new(), Vec::new());
    for dir in path.split(':').filter(|dir| !dir.is_empty()) {
        if !dir.starts_with('/') || dir.contains(char::is_control) {
            omitted_dirs.push(dir.to_owned());
        } else if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    (dirs, omitted_dirs)
}

/// Escapes a path as one argument of a command.
fn escape_path(path: &Path) -> Result<String, String> {
    let cannot =
        |why: &str| Err(format!("`{}` cannot be written in a crontab: {why}", path.display()));
    match path.to_str() {
        None => cannot("the path is not valid UTF-8"),
        Some(text) if text.contains(char::is_control) => {
            cannot("the path contains a control character")
        }
        Some(_) if !path.is_absolute() => cannot("it is relative"),
        Some(text) => Ok(escape(text)),
    }
}

/// Escapes `text`, which has no control characters, as an argument or the end of one, for cron and then for a shell.
fn escape(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_@+=:,./-".contains(letter);
    let mut out = String::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let end = rest.find(['%', '\'', '\\']).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        match letter {
            '%' | '\'' => out.extend(['\\', letter]),
            '\\' => out.push_str(r"'\'"),
            _ if run.chars().all(plain) => out.push_str(run),
            _ => out.extend(["'", run, "'"]),
        }
        rest = if end == 0 { &after[1..] } else { after };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{
        CommandParts, CrontabCommand, MAX_COMMAND_BYTES, ParsedCommand, build_command, escape,
    };
    use nanobot_base::shell_quote::split_arguments;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn parts<'a>() -> CommandParts<'a> {
        CommandParts {
            home: Path::new("/home/u"),
            root: None,
            path: Some("/usr/bin:/bin"),
            program: Path::new("/usr/bin/nanobot"),
            config: None,
            workspace: None,
            id: "a1b2",
        }
    }

    #[track_caller]
    fn check(parts: &CommandParts, expect: &str) {
        assert_eq!(build_command(parts).unwrap().text, expect);
    }

    #[test]
    fn a_command_sets_the_environment_that_cron_lacks() {
        check(
            &parts(),
            "/usr/bin/env HOME=/home/u PATH=/usr/bin:/bin /usr/bin/nanobot cron run a1b2 --scheduled",
        );
        let all = CommandParts {
            root: Some(Path::new("/srv/50%/n")),
            config: Some(Path::new("/etc/it's.json")),
            workspace: Some(Path::new("/srv/my work")),
            path: None,
            ..parts()
        };
        check(
            &all,
            r"/usr/bin/env HOME=/home/u NANOBOT_HOME=/srv/50\%/n PATH=/usr/local/bin:/usr/bin:/bin /usr/bin/nanobot -c /etc/it\'s.json -w '/srv/my work' cron run a1b2 --scheduled",
        );
    }

    #[test]
    fn paths_that_a_crontab_cannot_hold_are_rejected() {
        let check = |parts: CommandParts, expect: &str| {
            assert_eq!(build_command(&parts).unwrap_err(), expect);
        };
        let home = Path::new("/home/a\nb");
        check(
            CommandParts { home, ..parts() },
            "`/home/a\nb` cannot be written in a crontab: the path contains a control character",
        );
        let config = Some(Path::new(OsStr::from_bytes(b"/x\xff")));
        check(
            CommandParts { config, ..parts() },
            "`/x\u{fffd}` cannot be written in a crontab: the path is not valid UTF-8",
        );
        let workspace = Some(Path::new("w"));
        check(
            CommandParts { workspace, ..parts() },
            "`w` cannot be written in a crontab: it is relative",
        );
        let program = Path::new("/a=b/nanobot");
        check(
            CommandParts { program, ..parts() },
            "`/a=b/nanobot` cannot be written in a crontab: the path contains `=`",
        );
        let long = format!("/{}", "x".repeat(950));
        check(
            CommandParts { home: Path::new(&long), ..parts() },
            "the paths of home, program, config and workspace are too long for a crontab line: 1031 bytes, the limit is 998",
        );
    }

    #[test]
    fn a_long_path_is_shortened() {
        let path = Some("/usr/bin::/opt/a:/usr/bin:rel:/opt/a:.:/bin/:/bin:~/x");
        let command = build_command(&CommandParts { path, ..parts() }).unwrap();
        assert!(command.text.contains(" PATH=/usr/bin:/opt/a:/bin/:/bin /usr"), "{}", command.text);
        assert_eq!(command.omitted_dirs, ["rel", ".", "~/x"]);
        let dirs: Vec<String> = (0..9).map(|n| format!("/opt/{n}/{}", "y".repeat(150))).collect();
        let path = format!("rel:{}:/usr/bin:/opt/tiny:/bin", dirs.join(":"));
        let CrontabCommand { text, omitted_dirs: left_out } =
            build_command(&CommandParts { path: Some(&path), ..parts() }).unwrap();
        assert!(text.len() <= MAX_COMMAND_BYTES && text.contains(":/usr/bin:/bin /usr"), "{text}");
        let kept = dirs.iter().filter(|dir| text.contains(*dir)).count();
        assert_eq!(kept, 5, "as many as there is room for");
        let mut expect = vec!["rel".to_owned()];
        expect.extend(dirs[kept..].iter().cloned());
        expect.push("/opt/tiny".into());
        let mut left_out = left_out;
        left_out.sort();
        expect.sort();
        assert_eq!(left_out, expect);
    }

    #[test]
    fn a_command_round_trips() {
        let command = build_command(&CommandParts {
            home: Path::new("/home/it's 100%"),
            workspace: Some(Path::new("/srv/a=b c")),
            ..parts()
        });
        let parsed_command = ParsedCommand::parse(&command.unwrap().text).unwrap();
        let variables: Vec<(&str, &str)> = parsed_command
            .variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(variables, [("HOME", "/home/it's 100%"), ("PATH", "/usr/bin:/bin")]);
        let arguments = "/usr/bin/nanobot -w";
        let arguments = arguments.split(' ').chain(["/srv/a=b c"]);
        let arguments = arguments.chain("cron run a1b2 --scheduled".split(' '));
        assert_eq!(parsed_command.argv, arguments.collect::<Vec<_>>());
        for text in ["", "nanobot", "/usr/bin/env A=b", "/usr/bin/env 'x"] {
            assert_eq!(ParsedCommand::parse(text), None, "{text}");
        }
    }

    /// Interprets a command as Debian's cron does; returns the command and its standard input.
    fn unescape_as_cron(text: &str) -> (String, Option<String>) {
        let mut out = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '%' => return (out, Some(letters.collect())),
                '\\' => match letters.next() {
                    Some(escaped @ ('%' | '\\')) => out.push(escaped),
                    Some(other) => out.extend(['\\', other]),
                    None => out.push('\\'),
                },
                other => out.push(other),
            }
        }
        (out, None)
    }

    /// Interprets an escaped word as a shell does.
    fn unescape_as_shell(text: &str) -> String {
        let mut out = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\'' => out.extend(letters.by_ref().take_while(|letter| *letter != '\'')),
                '\\' => out.extend(letters.next()),
                other => {
                    assert!(
                        !" \t;&|<>()$`\"*?[#~!{}^".contains(other),
                        "{other:?} is bare in {text}"
                    );
                    out.push(other);
                }
            }
        }
        out
    }

    #[test]
    fn fuzz_words_round_trip() {
        let check = |text: &str, expect: &str| assert_eq!(escape(text), expect);
        check("/a%b", r"/a\%b");
        check("/a b%c d", r"'/a b'\%'c d'");
        check("%%", r"\%\%");
        check(r"a\\%b", r"a'\''\'\%b");
        check("it's", r"it\'s");
        check("ä", "'ä'");
        let seeds: [&[u8]; 3] = [
            b"/home/it's 100% \"me\"/$HOME `x`",
            br"a\\b\%c\'%''%\\",
            "~/ä 🙂 *?[x] #!{a,b}".as_bytes(),
        ];
        nanobot_base::fuzz::check(&seeds, |input, _| {
            let text = nanobot_base::fuzz::lossy_text(input).replace(char::is_control, "");
            let word = escape(&text);
            // With a cron that handles `%`, and with one that does not.
            let (passed, input) = unescape_as_cron(&word);
            assert_eq!((unescape_as_shell(&passed), input), (text.clone(), None), "{word}");
            assert_eq!(unescape_as_shell(&word), text, "{word}");
            let arguments = split_arguments(&format!("x={word}"));
            assert_eq!(arguments, Some(vec![format!("x={text}")]), "{word}");
        });
    }
}
