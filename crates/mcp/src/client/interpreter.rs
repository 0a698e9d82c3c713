//! Follows a program to the files that run it: symbolic links, and the interpreters that scripts name. Version managers
//! chain several of these, and a server's sandbox has to let it read each of them.

use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of a script that are read; interpreters are named in its first two lines.
const HEAD_BYTES: u64 = 4096;
/// Maximum files of a chain. Longer ones are loops.
const MAX_CHAIN_FILES: usize = 40;

/// Returns `program` and the files that run it, each as called: a link is followed by its target, and a script by its
/// interpreter. `search_path` is the PATH that the program gets.
///
/// # Errors
/// An interpreter is missing.
pub(super) fn resolve_chain(program: &Path, search_path: &str) -> Result<Vec<PathBuf>, String> {
    let mut chain = Vec::new();
    let mut next = Some(program.to_owned());
    while let Some(file) = next {
        if chain.len() == MAX_CHAIN_FILES {
            break;
        }
        next = match std::fs::read_link(&file) {
            Ok(target) => file.parent().map(|directory| directory.join(target)),
            Err(_) => interpreter_of(&file, search_path)?,
        };
        chain.push(file);
    }
    Ok(chain)
}

/// Returns the interpreter of a script; `None` if `file` is not a script.
fn interpreter_of(file: &Path, search_path: &str) -> Result<Option<PathBuf>, String> {
    let mut head = Vec::new();
    let readable_file = std::fs::File::open(file).map(|file| file.take(HEAD_BYTES));
    if !readable_file.is_ok_and(|mut file| file.read_to_end(&mut head).is_ok()) {
        return Ok(None);
    }
    let head = String::from_utf8_lossy(&head);
    let Some(text) = head.strip_prefix("#!") else {
        return Ok(None);
    };
    let (first_line, rest) = text.split_once('\n').unwrap_or((text, ""));
    let mut arguments = first_line.split_whitespace();
    let Some(program) = arguments.next() else {
        return Ok(None);
    };
    let interpreter = match (Path::new(program).file_name(), re_executed(rest)) {
        (Some(name), _) if name == "env" => arguments.find(|argument| !is_env_option(argument)),
        // Python installers write this if the path of the interpreter is too long for the first line.
        (_, Some(interpreter)) => Some(interpreter),
        _ => Some(program),
    };
    let Some(interpreter) = interpreter else {
        return Ok(None);
    };
    if interpreter.starts_with('/') {
        return if Path::new(interpreter).exists() {
            Ok(Some(interpreter.into()))
        } else {
            Err(format!("`{}` is run by `{interpreter}`, which does not exist", file.display()))
        };
    }
    let path = nanobot_os::paths::find_program(interpreter, search_path);
    path.map(Some).ok_or_else(|| {
        format!(
            "`{}` is run by `{interpreter}`, which is not on the PATH; `PATH` in its `env` can name the directory",
            file.display()
        )
    })
}

/// True for an argument of `env` that is not the program: a flag or a variable.
fn is_env_option(argument: &str) -> bool {
    argument.starts_with('-') || argument.contains('=')
}

/// The interpreter in the second line of a shell script that Python reads as a string: `'''exec' "/path" "$0" "$@"`.
fn re_executed(rest: &str) -> Option<&str> {
    let command = rest.strip_prefix("'''exec' ")?.lines().next()?;
    match command.strip_prefix(['"', '\'']) {
        Some(quoted) => quoted.split(['"', '\'']).next(),
        None => command.split_whitespace().next(),
    }
}

#[cfg(test)]
mod tests {
    use super::resolve_chain;
    use std::os::unix::fs::symlink;

    #[test]
    fn scripts_and_links_are_followed_to_the_interpreter() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        std::fs::create_dir(root.join("bin")).unwrap();
        std::fs::write(root.join("bin/real"), b"\x7fELF").unwrap();
        std::fs::write(root.join("data"), "no script").unwrap();
        symlink("real", root.join("bin/python")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let make = |path: &std::path::Path| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        };
        make(&root.join("bin/real")).unwrap();
        let check = |text: &str, expect: &str| {
            let text = text.replace('@', root.to_str().unwrap());
            std::fs::write(root.join("script"), text).unwrap();
            let path = root.join("bin");
            let actual = match resolve_chain(&root.join("script"), path.to_str().unwrap()) {
                Ok(chain) => {
                    let names = chain.iter().skip(1).map(|file| file.display().to_string());
                    names.collect::<Vec<_>>().join(" ")
                }
                Err(message) => message,
            };
            assert_eq!(actual.replace(root.to_str().unwrap(), "@"), expect);
        };
        check("no script", "");
        check("#!\n", "");
        check("#!@/bin/real", "@/bin/real");
        check("#! @/bin/python -u\nx", "@/bin/python @/bin/real");
        check("#!/usr/bin/env python\n", "@/bin/python @/bin/real");
        check("#!/usr/bin/env -S A=1 real -u\n", "@/bin/real");
        check("#!/usr/bin/env\n", "");
        check("#!/bin/sh\n'''exec' \"@/bin/real\" \"$0\" \"$@\"\n", "@/bin/real");
        check("#!/bin/sh\n'''exec' @/bin/real \"$0\" \"$@\"\n", "@/bin/real");
        check("#!@/none", "`@/script` is run by `@/none`, which does not exist");
        check(
            "#!/usr/bin/env none",
            "`@/script` is run by `none`, which is not on the PATH; `PATH` in its `env` can name the directory",
        );
        assert_eq!(resolve_chain(&root.join("loop"), "").unwrap().len(), 40);
        assert_eq!(resolve_chain(&root.join("data"), "").unwrap().len(), 1);
    }
}
