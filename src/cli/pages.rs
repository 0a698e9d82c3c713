//! Adds the rows of the page table to the help of the commands. The man pages are made from the same rows.

use super::page_table::{HelpPage, page};
use super::topics::{HelpTopic, TOPICS};
use clap::{Arg, Command};
use std::fmt::Write;

/// Length of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelpLength {
    /// `-h`: as much as fits on a screen.
    Short,
    /// `--help`: everything.
    Long,
}

/// Adds the rows to `command` and its subcommands. Builds the whole command tree, which is slow: for help only.
pub fn add_pages(mut command: Command, length: HelpLength, statuses: &str) -> Command {
    command.build();
    add_pages_below(command, &mut Vec::new(), length, statuses)
}

fn add_pages_below(
    command: Command,
    path_words: &mut Vec<String>,
    length: HelpLength,
    statuses: &str,
) -> Command {
    let path = path_words.join(" ");
    let subcommands: Vec<String> =
        command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect();
    let mut command = match length {
        HelpLength::Short => to_short_help(command, &path),
        HelpLength::Long => to_long_help(command, page(&path), statuses),
    };
    for name in subcommands {
        path_words.push(name.clone());
        command = command.mut_subcommand(name, |subcommand| {
            add_pages_below(subcommand, path_words, length, statuses)
        });
        path_words.pop();
    }
    command
}

/// The commands that the short help describes, in groups; of the others it has the names.
const COMMAND_GROUPS: [(&str, &[&str]); 4] = [
    ("ask", &["agent", "repl", "run"]),
    ("keep", &["session", "memory", "skill", "apply", "undo", "trust"]),
    ("run alone", &["cron", "channel", "serve", "status", "usage"]),
    ("set up", &["onboard", "config", "model", "mcp", "policy"]),
];

/// A single list of flags, without the global ones, and a pointer to the long help.
fn to_short_help(command: Command, path: &str) -> Command {
    let command = command.mut_args(|arg| {
        let is_shared = GLOBAL_FLAGS.split(' ').any(|flag| arg.get_id() == flag);
        let arg = if arg.is_positional() { arg } else { arg.help_heading(None::<&'static str>) };
        if is_shared { arg.hide_short_help(true) } else { arg }
    });
    match path {
        // Without empty lines: a screen has 24.
        "" => {
            let template = format!(
                "{{about}}\n{{usage-heading}} {{usage}}\n{}\nTopics (nanobot help TOPIC): {}\n\
                 Also: {}. All flags: nanobot COMMAND --help",
                grouped_commands(&command),
                topic_names(),
                other_commands(&command)
            );
            command.help_template(template)
        }
        path => command
            .after_help(format!("All flags, examples and exit statuses: nanobot {path} --help")),
    }
}

/// The lines of the commands; the first of a group begins with the group's name.
fn grouped_commands(command: &Command) -> String {
    let mut lines = Vec::new();
    for (group, names) in COMMAND_GROUPS {
        for (index, name) in names.iter().enumerate() {
            let command = command.find_subcommand(name).expect("a group has commands that exist");
            let summary = command.get_about().map(ToString::to_string).unwrap_or_default();
            let group = if index == 0 { group } else { "" };
            lines.push(format!("{group:<9}  {name:<8}  {summary}"));
        }
    }
    lines.join("\n")
}

/// The names of the commands that are in no group.
fn other_commands(command: &Command) -> String {
    let is_grouped = |name: &str| COMMAND_GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others = command.get_subcommands().filter(|command| !command.is_hide_set());
    let names = others.map(Command::get_name).filter(|name| !is_grouped(name));
    names.collect::<Vec<_>>().join(", ")
}

/// The names of the topics, on as many lines as they need.
fn topic_names() -> String {
    let names: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
    let (first, second) = names.split_at(names.len() / 2);
    format!("{}\n  {}", first.join(" "), second.join(" "))
}

fn to_long_help(mut command: Command, page: Option<&HelpPage>, statuses: &str) -> Command {
    let Some(page) = page else {
        return command;
    };
    let mut text = String::new();
    if page.command.is_empty() {
        let version = "Print version; with `--verbose`, the build and the sandbox too";
        command = command.mut_arg("version", |arg| arg.help(version));
        text.push_str("Topics (nanobot help TOPIC):\n");
        for HelpTopic { name, summary, .. } in TOPICS {
            writeln!(text, "  {name:<11}  {summary}").expect("writing to a string cannot fail");
        }
        text.push('\n');
    }
    if !page.examples.is_empty() {
        text.push_str("Examples:\n");
        for (command_line, effect) in page.examples {
            writeln!(text, "  {command_line}\n      {effect}")
                .expect("writing to a string cannot fail");
        }
        text.push('\n');
    }
    match page.exit_statuses().as_slice() {
        [] => text.push_str(statuses),
        page_statuses => {
            let page_statuses: Vec<String> = page_statuses
                .iter()
                .map(|(number, meaning)| format!("{number} {meaning}"))
                .collect();
            text.push_str(&format!("Exit status: {}", page_statuses.join("; ")));
        }
    }
    command.after_long_help(text)
}

/// Flags of every command, shown only in the long help.
const GLOBAL_FLAGS: &str = "config workspace color plain quiet help version";

/// True if `arg` is a flag of every command.
pub fn is_global(arg: &Arg) -> bool {
    GLOBAL_FLAGS.split(' ').any(|flag| arg.get_id() == flag)
}
