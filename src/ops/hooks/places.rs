//! Checks that a run cannot change what a hook's command names. It would then run outside of the sandbox what it wrote there.
//! A program that the command starts may read more; only the command itself is looked at.

use crate::error::{Exit, fail_with_hint};
use crate::policy::file_scope::{FileAccess, FileScope};
use crate::settings::hooks::HookCommand;
use crate::sys::symlinks::trace_links;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Characters that end a word of a shell command, as blanks do. A variable may be set to a path, and an option too.
const SEPARATORS: &[char] = &[';', '|', '&', '(', ')', '<', '>', '`', '=', ',', '{', '}'];
/// The beginnings of words that are paths, whether there is such a file or not.
const PATH_STARTS: [&str; 4] = ["/", "./", "../", "~/"];

/// A word of a hook's command.
struct CommandWord {
    text: String,
    /// The command writes to it.
    is_output: bool,
}

/// Checks that a run with this `scope` can change nothing that the command of `hook` names: no file, and none of the links that
/// lead to it. The hook starts in `start`, and has variables for the user's home and the directory of the run.
///
/// # Errors
/// Status 78: it can.
pub(super) fn check(
    hook: &HookCommand,
    scope: &FileScope,
    start: &Path,
    (home, directory): (&Path, &Path),
) -> Result<()> {
    let may_change = |place: &PathBuf| {
        let mut in_commands = scope.command_writable_roots();
        in_commands.any(|root| place.starts_with(root))
            || scope.decide(&place.to_string_lossy(), FileAccess::Write).is_ok()
    };
    for word in command_words(&expand(&hook.command, home, directory)) {
        let is_path = PATH_STARTS.iter().any(|start| word.text.starts_with(start));
        let text = match word.text.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => PathBuf::from(&word.text),
        };
        let path = start.join(text);
        // A missing file could be made, to be run.
        let is_named = path.is_file() || is_path && !word.is_output && !path.exists();
        let mut places = places_on_the_way(&path).into_iter();
        if is_named && let Some(place) = places.find(may_change) {
            return Err(fail_with_hint(
                Exit::Config,
                format!(
                    "hook `{}` runs `{}`, which this run may change",
                    hook.name,
                    place.display()
                ),
                "move it to a directory that no run may change, such as `~/.nanobot/hooks`",
            ));
        }
    }
    Ok(())
}

/// The command with the values of the variables that hooks may use in paths.
fn expand(command: &str, home: &Path, directory: &Path) -> String {
    let mut command = command.replace(['"', '\'', '\\'], "");
    for (name, value) in [
        ("HOME", home),
        ("CLAUDE_PROJECT_DIR", directory),
        ("NANOBOT_DIRECTORY", directory),
        ("PWD", directory),
    ] {
        let value = value.display().to_string();
        command =
            command.replace(&format!("${{{name}}}"), &value).replace(&format!("${name}"), &value);
    }
    command
}

fn command_words(command: &str) -> Vec<CommandWord> {
    let is_end = |letter: char| letter.is_whitespace() || SEPARATORS.contains(&letter);
    let mut words = Vec::new();
    let mut is_output = false;
    for piece in command.split_inclusive(is_end) {
        let text = piece.trim_end_matches(is_end);
        if !text.is_empty() {
            words.push(CommandWord { text: text.to_owned(), is_output });
        }
        is_output = piece.ends_with('>')
            || is_output && text.is_empty() && piece.ends_with(char::is_whitespace);
    }
    words
}

/// The real places of the links that `path` leads through, and its own.
fn places_on_the_way(path: &Path) -> Vec<PathBuf> {
    let trace = trace_links(path);
    let links = trace.links.into_iter().map(|(link, _)| link);
    links.chain([trace.end]).collect()
}

#[cfg(test)]
mod tests {
    use super::{command_words, expand, places_on_the_way};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn words_of_a_command() {
        let check = |command: &str, expect: &[&str]| {
            let command = expand(command, Path::new("/h"), Path::new("/d"));
            let found: Vec<String> = command_words(&command)
                .into_iter()
                .map(|word| format!("{}{}", if word.is_output { ">" } else { "" }, word.text))
                .collect();
            assert_eq!(found, expect, "{command}");
        };
        check("sh '/a/b'", &["sh", "/a/b"]);
        check("cat|./run.sh", &["cat", "./run.sh"]);
        check("true&&\"$PWD\"/x;y", &["true", "/d/x", "y"]);
        check("A=${HOME}/x --f=./y", &["A", "/h/x", "--f", "./y"]);
        check("x > ./log 2>>./err", &["x", ">./log", "2", ">./err"]);
        check("$(./x) `./y` {./z,w}", &["$", "./x", "./y", "./z", "w"]);
    }

    #[test]
    fn links_on_the_way() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::create_dir_all(dir.join("far/in")).unwrap();
        symlink("far", dir.join("one")).unwrap();
        symlink(dir.join("one/../two/in"), dir.join("long")).unwrap();
        symlink("one/.", dir.join("two")).unwrap();
        symlink("round", dir.join("round")).unwrap();
        let check = |path: &str, expect: &[&str]| {
            let found = places_on_the_way(&dir.join(path));
            let expect: Vec<_> = expect.iter().map(|name| dir.join(name)).collect();
            assert_eq!(found, expect, "{path}");
        };
        check("far/in/x", &["far/in/x"]);
        check("one/in/x", &["one", "far/in/x"]);
        check("./one/../x", &["one", "x"]);
        check("long/x", &["long", "one", "two", "one", "far/in/x"]);
        assert_eq!(
            places_on_the_way(&dir.join("round")).len(),
            crate::sys::symlinks::MAX_LINKS + 1
        );
    }
}
