//! Shell commands that would wreck the machine by accident, such as `rm -rf /`. They are refused before they run. This catches mistakes. It
//! is not a security measure, since it is easy to bypass; the sandbox protects.

use nanobot_config::policy::Refusal;

/// Maximum characters of a command in a refusal.
const MAX_QUOTED_CHARS: usize = 100;
/// Devices that are not disks, or the beginnings of their names.
const HARMLESS_DEVICES: &[&str] = &[
    "null", "zero", "full", "random", "urandom", "std", "tty", "fd/", "shm/", "pts/", "mqueue/",
    // Names that bash itself interprets, and devices that take text.
    "tcp/", "udp/", "kmsg", "console", "log", "lp", "usb/", "serial/", "snd/",
];

/// Refuses plain accidents. `outcome` says that nothing has happened, such as `not run`.
///
/// # Errors
/// The refusal, which names the part of `command` that is dangerous.
pub(super) fn check(command: &str, outcome: &str) -> Result<(), Refusal> {
    let Some((part, effect)) = dangerous_command(command) else {
        return Ok(());
    };
    let part: String = part.chars().take(MAX_QUOTED_CHARS).collect();
    Err(Refusal::new(format!(
        "{outcome}: `{part}` {effect}; if that is intended, the user must do it"
    )))
}

/// Finds the part of a command that is a plain accident; the second text describes its effect.
fn dangerous_command(command: &str) -> Option<(&str, &'static str)> {
    let compact: String = command.chars().filter(|character| !character.is_whitespace()).collect();
    if compact.contains(":(){:|:&};:") {
        return Some((":(){ :|:& };:", "is a fork bomb"));
    }
    let mut is_in_root_or_home = false;
    for SimpleCommand { source, arguments } in CommandSplitter::split(command) {
        if redirection_targets(&arguments).any(is_disk) {
            return Some((source, "overwrites a disk"));
        }
        let mut remaining = arguments.iter().map(String::as_str);
        let is_prefix = |word: &&str| *word == "sudo" || word.contains('=');
        let Some(word) = remaining.find(|word| !is_prefix(word)) else {
            continue;
        };
        let program = word.rsplit('/').next().unwrap_or(word);
        let rest: Vec<&str> = remaining.collect();
        if program == "cd" {
            is_in_root_or_home = rest.iter().all(|word| is_root_or_home(word));
        }
        if let Some(effect) = describe_accident(program, &rest, is_in_root_or_home) {
            return Some((source, effect));
        }
    }
    None
}

/// The effect of `program` with the arguments `rest`, if that is an accident. If the command runs in the root or the home
/// directory, `*` is everything.
fn describe_accident(
    program: &str,
    rest: &[&str],
    is_in_root_or_home: bool,
) -> Option<&'static str> {
    let has = |flag: char, long: &str| {
        rest.iter().any(|word| {
            *word == long
                || (word.starts_with('-') && !word.starts_with("--") && word.contains(flag))
        })
    };
    match program {
        "rm" if has('r', "--recursive") || has('R', "--recursive") => rest
            .iter()
            .any(|word| {
                is_root_or_home(word) || (is_in_root_or_home && ["*", "./*"].contains(word))
            })
            .then_some("removes everything"),
        "dd" => rest
            .iter()
            .any(|word| word.strip_prefix("of=").is_some_and(is_disk))
            .then_some("overwrites a disk"),
        "cp" | "mv" => rest
            .last()
            .is_some_and(|word| rest.len() > 1 && is_disk(word))
            .then_some("overwrites a disk"),
        "tee" | "shred" | "wipefs" | "blkdiscard" => {
            rest.iter().any(|word| is_disk(word)).then_some("overwrites a disk")
        }
        "shutdown" | "reboot" | "poweroff" | "halt" => Some("shuts down the machine"),
        _ if program == "mkfs" || program.starts_with("mkfs.") => {
            rest.iter().any(|word| is_disk(word)).then_some("creates a file system")
        }
        _ => None,
    }
}

/// True for a device that may be a disk.
fn is_disk(path: &str) -> bool {
    let device = path.strip_prefix("/dev/");
    device.is_some_and(|name| !HARMLESS_DEVICES.iter().any(|device| name.starts_with(device)))
}

/// The files that the output of a command with these arguments is redirected to.
fn redirection_targets(arguments: &[String]) -> impl Iterator<Item = &str> {
    arguments.iter().zip(arguments.iter().skip(1).map(Some).chain([None])).flat_map(
        |(word, next)| {
            let ends = word.match_indices('>').map(|(index, _)| index);
            let operators = ends.filter(|index| !word[..*index].ends_with('\\'));
            operators.map(move |index| {
                let rest = word[index + 1..].trim_start_matches(['>', '|', '&']);
                if rest.is_empty() { next.map_or("", String::as_str) } else { rest }
            })
        },
    )
}

/// True for the root directory, the home directory, and the contents of either.
fn is_root_or_home(word: &str) -> bool {
    let directory = match word.strip_suffix('*') {
        Some(directory) if !directory.ends_with('/') => return false,
        Some(directory) => directory,
        None => word,
    };
    let directory = directory.trim_end_matches('/');
    !word.is_empty() && ["", "~", "$HOME", "${HOME}"].contains(&directory)
}

/// A command without the operators of the shell around it.
struct SimpleCommand<'a> {
    source: &'a str,
    /// The words without their quotes. A character that its quotes make literal, and that would otherwise be expanded,
    /// follows a backslash.
    arguments: Vec<String>,
}

/// An unfinished command around a substitution or subshell.
struct OuterCommand {
    opening: char,
    start: usize,
    arguments: Vec<String>,
    word: Option<String>,
    is_quoted: bool,
}

/// Splits the text of a shell into simple commands, as far as this check needs it: with quotes, comments, here-documents and
/// substitutions. Any text is accepted.
#[derive(Default)]
struct CommandSplitter<'a> {
    text: &'a str,
    /// The position in `text`, in bytes.
    position: usize,
    commands: Vec<SimpleCommand<'a>>,
    /// The start of the current command in `text`, its words, and its last word if that has not ended.
    start: usize,
    arguments: Vec<String>,
    word: Option<String>,
    /// True between double quotes.
    is_quoted: bool,
    outer: Vec<OuterCommand>,
    /// The number of commands before the current statement.
    statement: usize,
    /// The ends of here-documents that begin at the next line.
    document_ends: Vec<String>,
}

impl<'a> CommandSplitter<'a> {
    fn split(text: &'a str) -> Vec<SimpleCommand<'a>> {
        let mut splitter = Self { text, ..Self::default() };
        while let Some(character) = splitter.next() {
            splitter.read(character);
        }
        splitter.end_command(text.len());
        splitter.commands
    }

    fn next(&mut self) -> Option<char> {
        let character = self.text[self.position..].chars().next()?;
        self.position += character.len_utf8();
        Some(character)
    }

    /// True within `[[ … ]]`, where operators of the shell are those of a test. Only words such as `if` and `!` precede it.
    fn is_in_test(&self) -> bool {
        let mut first = self.arguments.iter().take(3);
        let mut last = self.arguments.iter().rev().take(3).chain(&self.word);
        first.any(|word| word == "[[") && !last.any(|word| word == "]]")
    }

    /// True within the list of an array, whose words are not commands.
    fn is_in_array(&self) -> bool {
        self.outer.last().is_some_and(|outer| outer.opening == '=')
    }

    fn read(&mut self, character: char) {
        let rest = &self.text[self.position..];
        match character {
            '\\' => match self.next() {
                Some('\n') | None => {}
                Some(literal) => self.push_literal(literal, "~*$>"),
            },
            '"' => {
                self.is_quoted = !self.is_quoted;
                self.word.get_or_insert_default();
            }
            '$' if rest.starts_with('(') => {
                self.position += 1;
                self.open('(');
            }
            '`' if self.outer.last().is_some_and(|outer| outer.opening == '`') => self.close(),
            '`' => self.open('`'),
            '$' if rest.starts_with('\'') && !self.is_quoted => self.read_ansi_quotes(),
            _ if self.is_quoted => self.push_literal(character, "~*>"),
            '\'' => {
                let (quoted, _) = rest.split_once('\'').unwrap_or((rest, ""));
                self.word.get_or_insert_default();
                quoted.chars().for_each(|character| self.push_literal(character, "~*$>"));
                self.position = (self.position + quoted.len() + 1).min(self.text.len());
            }
            '#' if self.word.is_none() => self.position += rest.find('\n').unwrap_or(rest.len()),
            '(' | ')' | '|' | '&' | '<' | '>' if self.is_in_test() => {
                self.push_literal(character, ">");
            }
            '(' if self.word.as_ref().is_some_and(|word| word.ends_with('=')) => self.open('='),
            ')' if self.is_in_array() => {
                self.arguments.clear();
                self.word = None;
                self.close();
            }
            '\n' if self.is_in_array() => self.arguments.extend(self.word.take()),
            // A substitution of a process is a word of the command around it.
            '<' | '>' if rest.starts_with('(') => {
                self.position += 1;
                self.open('(');
            }
            '<' if rest.starts_with("<<") => self.position += 2,
            '<' if rest.starts_with('<') => self.read_document_end(),
            // A redirection that replaces a file which must not be replaced.
            '|' if self.text[..self.position - 1].ends_with('>') => {
                self.push_literal(character, "");
            }
            // A redirection of descriptors.
            '&' if rest.starts_with('>')
                || self.text[..self.position - 1].ends_with(['>', '<']) =>
            {
                self.push_literal(character, "");
            }
            '(' => {
                // The words before it are the name of a function.
                self.arguments.clear();
                self.word = None;
                self.open('(');
            }
            ')' if self.outer.last().is_some_and(|outer| outer.opening == '(') => self.close(),
            ')' => {
                // The patterns of a `case`, perhaps several.
                self.commands.truncate(self.statement);
                self.arguments.clear();
                self.word = None;
                self.start = self.position;
            }
            ';' | '&' | '|' | '\n' => {
                self.end_command(self.position - 1);
                if character == '\n' {
                    self.skip_documents();
                }
                if character != '|' {
                    self.statement = self.commands.len();
                }
                self.start = self.position;
            }
            _ if character.is_whitespace() => self.arguments.extend(self.word.take()),
            _ => self.push_literal(character, ""),
        }
    }

    /// Reads a word in `$'…'`, where a backslash may precede a quote.
    fn read_ansi_quotes(&mut self) {
        self.position += 1;
        self.word.get_or_insert_default();
        while let Some(character) = self.next() {
            match character {
                '\'' => break,
                '\\' => drop(self.next()),
                _ => self.push_literal(character, "~*$>"),
            }
        }
    }

    /// Adds a character to the current word, after a backslash if it is one of `expanded`.
    fn push_literal(&mut self, character: char, expanded: &str) {
        let word = self.word.get_or_insert_default();
        if expanded.contains(character) {
            word.push('\\');
        }
        word.push(character);
    }

    fn end_command(&mut self, end: usize) {
        self.arguments.extend(self.word.take());
        let arguments = std::mem::take(&mut self.arguments);
        if !arguments.is_empty() {
            let source = self.text[self.start..end].trim();
            self.commands.push(SimpleCommand { source, arguments });
        }
    }

    /// Begins a substitution or subshell.
    fn open(&mut self, opening: char) {
        self.outer.push(OuterCommand {
            opening,
            start: self.start,
            arguments: std::mem::take(&mut self.arguments),
            word: self.word.take(),
            is_quoted: std::mem::take(&mut self.is_quoted),
        });
        self.start = self.position;
    }

    /// Ends a substitution or subshell, and continues the command around it.
    fn close(&mut self) {
        self.end_command(self.position - 1);
        if let Some(outer) = self.outer.pop() {
            self.start = outer.start;
            self.arguments = outer.arguments;
            // The output of a substitution is part of a word.
            self.word = Some(outer.word.unwrap_or_default());
            self.is_quoted = outer.is_quoted;
        }
    }

    /// Reads the word after `<<`.
    fn read_document_end(&mut self) {
        let rest = self.text[self.position + 1..].trim_start_matches(['-', ' ', '\t']);
        let is_end = |character: char| character.is_whitespace() || ";&|<>()".contains(character);
        let word = rest.split(is_end).next().unwrap_or_default();
        self.document_ends.push(word.replace(['\'', '"', '\\'], ""));
        self.position = self.text.len() - rest.len() + word.len();
    }

    /// Skips the here-documents that begin at this line.
    fn skip_documents(&mut self) {
        for end in std::mem::take(&mut self.document_ends) {
            while self.position < self.text.len() {
                let rest = &self.text[self.position..];
                let line = rest.split_inclusive('\n').next().unwrap_or(rest);
                self.position += line.len();
                if line.trim_end_matches('\n').trim_start_matches('\t') == end {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandSplitter, dangerous_command};
    use nanobot_base::fuzz::{self, lossy_text};

    #[test]
    fn only_dangerous_commands_are_refused() {
        for command in [
            "rm -rf /",
            "sudo rm -rf /*",
            "rm -r -f ~",
            "cd /tmp; rm -rf $HOME/",
            "rm -rf \"$HOME\"",
            "rm -rf \"${HOME}\"/*",
            "cd ~ && rm -rf *",
            "cd b; cd; rm -rf ./*",
            "mkfs.ext4 /dev/sda1",
            "mkfs -t ext4 /dev/sda",
            "dd if=/dev/zero of=/dev/sda",
            "shutdown -h now",
            "sudo reboot",
            ":(){ :|:& };:",
            "rm --recursive /",
            "(rm -rf /)",
            "echo \"$(rm -rf /)\" `true`",
            "echo `rm -rf /`",
            "cat > a <<E\nrm -rf x\nE\nrm -rf /",
            "make 2>&1 | tee log; reboot",
            "echo it\\'s done; halt",
            ": > /dev/sda",
            ":>/dev/sda",
            "> /dev/nvme0n1",
            "cat disk.img >> \"/dev/sda1\"",
            "cat a >| /dev/sda",
            "make &> /dev/sda",
            "sh -c x 2>/dev/sda; ls",
            "cat a | sudo tee /dev/sda > /dev/null",
            "cp disk.img /dev/sda",
            "wipefs -a /dev/sda",
            "diff <(rm -rf /) a",
            "tee >(gzip) /dev/sda",
            "cp <(ls) /dev/sda",
            "a=($(rm -rf /))",
            "[[ -f a ]] && reboot",
            "if [[ $a > b ]]; then halt; fi; [[ x ]] ; halt",
            "echo $'it\\'s'; halt",
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
            "cd b && rm -rf *",
            "cd / && cd /srv/b && rm -rf *",
            "rm -rf '~' \"/*\" \\$HOME ~* ''",
            "seq 3 | dd of=/dev/stdout",
            "dd if=a of=/dev/shm/x",
            "mkfs.ext4 -q disk.img",
            "cat > notes.md <<E\nSteps:\nreboot the router\nE\n",
            "cat > notes.md <<-'E' && ls\n\treboot\n\tE\nls",
            "git commit -m \"fix: a;\nhalt when the queue is empty\"",
            "git commit -m \"$(cat <<'E'\nfix: \"a;\nhalt\nE\n)\"",
            "python3 -c \"a=1\nshutdown = 5\nprint(a)\"",
            "echo 'a\nhalt'; cat <<< a",
            "echo $(hostname) shutdown # ; halt",
            "case $1 in start) ls;; halt) ls;; reboot|halt) ls;; esac",
            "halt() { ls; }",
            "make &>halt >&2",
            "ls > /dev/null 2>&1",
            "echo x >/dev/stderr",
            "echo '> /dev/sda' \"> /dev/sda\" \\> /dev/sda",
            "exec 3<>/dev/tcp/127.0.0.1/80; echo > /dev/tcp/127.0.0.1/80",
            "cp /dev/sda disk.img",
            "cat /dev/sda > disk.img",
            "git log > out 2>err; cat <out",
            "a=(reboot halt); echo \"${a[@]}\"",
            "steps=(\n  halt # ; halt\n  reboot\n)\nls",
            "[[ $line =~ (shutdown|reboot) || $a == halt ]] && ls",
            "if [[ ! ( $a < b && halt ) ]]; then ls; fi",
            "echo $'it\\'s; halt' {1..3}",
            "diff <(sort a) <(sort b) > /dev/null",
        ] {
            assert_eq!(dangerous_command(command), None, "{command}");
        }
    }

    #[test]
    fn the_dangerous_part_is_named() {
        let actual = dangerous_command("cd b && { ls; }; sudo rm -rf / ; ls");
        assert_eq!(actual, Some(("sudo rm -rf /", "removes everything")));
    }

    #[test]
    fn fuzz_commands() {
        let seeds: [&[u8]; 2] = [
            b"a \"$(b <<-'E' `c` \\d)\" | e # f\n\tg\n\tE\n",
            b"case 'x' in (a|b) c &>d; e() { f 2>&1; };; esac <<<g",
        ];
        fuzz::check(&seeds, |input, _| {
            let text = lossy_text(input);
            for command in CommandSplitter::split(&text) {
                assert!(!command.arguments.is_empty());
            }
        });
    }
}
