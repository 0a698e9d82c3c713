//! Shell commands that would wreck the machine by accident, such as `rm -rf /`. They are refused before they run.

/// Detects plain accidents; the returned text follows the word "this". This is not a security measure, since it is easy
/// to bypass.
pub(super) fn dangerous_command(command: &str) -> Option<&'static str> {
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
            "shutdown" | "reboot" | "poweroff" | "halt" => Some("shuts down the machine"),
            _ if program == "mkfs" || program.starts_with("mkfs.") => Some("creates a file system"),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::dangerous_command;

    #[test]
    fn only_dangerous_commands_are_refused() {
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
            assert!(dangerous_command(command).is_some(), "{command}");
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
            assert_eq!(dangerous_command(command), None, "{command}");
        }
    }
}
