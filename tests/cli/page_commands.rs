//! The commands that pages show. Each indented line of a page is run as it stands there, in a shell of a story, in the order of
//! the page. A line without a row in the story fails it, and so does a row without a line.

use crate::screen::{Key, Screen};
use crate::server::Responder;
use crate::story::{NANOBOT, Story};

/// An indented line of a page.
#[derive(Debug)]
struct ShownCommand {
    line: String,
    /// The output that the page shows below it, if any.
    output: String,
}

/// The commands of `text`. In a block in which `$ ` begins the commands, the other lines are output.
fn shown_commands(text: &str) -> Vec<ShownCommand> {
    let mut commands: Vec<ShownCommand> = Vec::new();
    let mut has_prompts = false;
    for line in text.lines() {
        let Some(line) = line.strip_prefix("    ") else {
            has_prompts = false;
            continue;
        };
        // A line ends within a command after `\`, and within quotes.
        if let Some(last) = commands.last_mut().filter(|last| goes_on(&last.line)) {
            last.line.push('\n');
            last.line.push_str(line);
            continue;
        }
        if line.starts_with("# ") {
            continue;
        }
        let command = line.strip_prefix("$ ");
        has_prompts |= command.is_some();
        match (command, commands.last_mut()) {
            (None, Some(last)) if has_prompts => last.output += &format!("{line}\n"),
            _ => commands.push(ShownCommand {
                line: command.unwrap_or(line).to_owned(),
                output: String::new(),
            }),
        }
    }
    commands
}

/// True if a shell reads another line before it runs `command`.
fn goes_on(command: &str) -> bool {
    command.ends_with('\\') || !command.matches('\'').count().is_multiple_of(2)
}

/// The commands of `text`, each on one line.
pub(crate) fn command_lines(text: &str) -> Vec<String> {
    let commands = shown_commands(text).into_iter();
    commands.map(|command| command.line.replace("\\\n", "").replace('\n', " ")).collect()
}

/// True if a page shows commands.
pub(crate) fn shows_commands(text: &str) -> bool {
    !shown_commands(text).is_empty()
}

/// The way a line is run, and what is expected of it.
pub(crate) struct CommandRow {
    /// A part of the line. A line belongs to the first row whose text it contains.
    text: &'static str,
    replies: Vec<Responder>,
    run: CommandRun,
}

enum CommandRun {
    /// In a shell; this is a part of its output. If it is empty, so is standard output.
    Prints(&'static str),
    /// In a shell on a terminal, with this user.
    Types(fn(&mut Screen<'_>)),
    /// Not by this story, but by that test or file.
    Elsewhere(&'static str),
}

/// A command that asks no model.
pub(crate) fn prints(text: &'static str, output: &'static str) -> CommandRow {
    answers(text, [], output)
}

/// A command that the model answers with `replies`.
pub(crate) fn answers(
    text: &'static str,
    replies: impl IntoIterator<Item = Responder>,
    output: &'static str,
) -> CommandRow {
    CommandRow { text, replies: replies.into_iter().collect(), run: CommandRun::Prints(output) }
}

/// A command that needs a terminal.
pub(crate) fn types(text: &'static str, user: fn(&mut Screen<'_>)) -> CommandRow {
    CommandRow { text, replies: Vec::new(), run: CommandRun::Types(user) }
}

/// A command that the test `MODULE::NAME`, or the file at this path, runs instead.
pub(crate) fn elsewhere(text: &'static str, page: &'static str) -> CommandRow {
    CommandRow { text, replies: Vec::new(), run: CommandRun::Elsewhere(page) }
}

/// A user who leaves a conversation at its first prompt.
pub(crate) fn leave(screen: &mut Screen<'_>) {
    screen.until_prompt("> ").press(Key::Ctrl('d'));
}

/// Runs all commands of the page `text`. `replaced` are parts of lines that a story may not touch or wait for, with what takes
/// their place. Returns what was printed.
#[track_caller]
pub(crate) fn run_page(
    story: &Story,
    text: &str,
    replaced: &[(&str, &str)],
    mut rows: Vec<CommandRow>,
) -> String {
    let mut unused: Vec<&str> = rows.iter().map(|row| row.text).collect();
    let mut all_output = String::new();
    for ShownCommand { line, output } in shown_commands(text) {
        let row = rows.iter_mut().find(|row| line.contains(row.text));
        let row = row.unwrap_or_else(|| panic!("no story runs this line: {line}"));
        unused.retain(|text| *text != row.text);
        story.server().script(std::mem::take(&mut row.replies));
        let line = replaced.iter().fold(line, |line, (from, to)| line.replace(from, to));
        match row.run {
            CommandRun::Prints(expect) => {
                let (stdout, stderr) = run_line(story, &line, &[]);
                let all = format!("{stdout}{stderr}");
                assert!(all.contains(expect), "{line}\n{all}");
                assert!(!expect.is_empty() || stdout.is_empty(), "{line}\n{all}");
                if !output.is_empty() {
                    assert_eq!(with_shown_ids(&stdout, &output), output, "{line}");
                }
                all_output += &all;
            }
            CommandRun::Types(user) => run_on_terminal(story, &line, user),
            CommandRun::Elsewhere(page) => assert_exists(page),
        }
        assert_eq!(story.server().unused_replies(), 0, "{line}");
    }
    assert_eq!(unused, [""; 0], "rows for no line of the page");
    all_output
}

/// `text` with its ids replaced by the id that the page shows.
fn with_shown_ids(text: &str, page_text: &str) -> String {
    let id = regex::Regex::new(r"\b[0-9a-f]{8}\b").unwrap();
    let page_id = id.find(page_text).map_or("", |id_match| id_match.as_str());
    id.replace_all(text, page_id).into_owned()
}

/// The story's PATH, with a directory that has our program, and may have others.
fn path_with_nanobot(story: &Story) -> String {
    let programs = story.home().join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    if !programs.join("nanobot").exists() {
        std::os::unix::fs::symlink(NANOBOT, programs.join("nanobot")).unwrap();
    }
    format!("{}:{}", programs.display(), story.path())
}

/// Runs `line` in a shell, with our program in its PATH. Returns its standard output and standard error.
#[track_caller]
pub(crate) fn run_line(story: &Story, line: &str, variables: &[(&str, &str)]) -> (String, String) {
    let mut shell = story.program("/bin/sh");
    shell.args(["-c", line]).env("PATH", path_with_nanobot(story));
    shell.envs(variables.iter().copied());
    let result = story.wait(shell.spawn().unwrap());
    let (stdout, stderr) = (result.text(), result.error_text());
    assert_eq!(result.code(), 0, "{line}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

#[track_caller]
fn run_on_terminal(story: &Story, line: &str, user: fn(&mut Screen<'_>)) {
    let mut screen = story
        .screen(24, 80)
        .env("PATH", &path_with_nanobot(story))
        .program("/bin/sh", ["-c", line]);
    user(&mut screen);
    let screen_text = screen.text_with_scrollback();
    assert_eq!(screen.code(), 0, "{line}\n{screen_text}");
    screen.assert_restored();
}

/// Asserts that the test or the file is there.
#[track_caller]
fn assert_exists(page: &str) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some((module, name)) = page.split_once("::") else {
        return assert!(root.join(page).exists(), "{page}");
    };
    let source = std::fs::read_to_string(root.join(format!("tests/cli/{module}.rs"))).unwrap();
    assert!(source.contains(&format!("fn {name}(")), "{page}");
}

#[test]
fn commands_and_their_output_are_told_apart() {
    let text = "Words.\n\n    one\n    two\n\nMore.\n\n    $ three\n    its output\n    $ four\n\n    five\n";
    let commands: Vec<(String, String)> =
        shown_commands(text).into_iter().map(|command| (command.line, command.output)).collect();
    let expect = [("one", ""), ("two", ""), ("three", "its output\n"), ("four", ""), ("five", "")];
    let expect = expect.map(|(line, output)| (line.to_owned(), output.to_owned()));
    assert_eq!(commands, expect);
}
