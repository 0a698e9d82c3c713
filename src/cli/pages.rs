//! Adds the rows of the page table to the help of the commands. The man pages are made from the same rows.

use super::page_table::{HelpPage, page};
use super::topics::{HelpTopic, TOPICS};
use clap::{Arg, Command};
use std::fmt::Write;

/// Length of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelpLength {
    /// `-h`: what fits a screen.
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

/// Commands that the short help leaves out.
const RARE_COMMANDS: [&str; 4] = ["acp", "completions", "metrics", "uninstall"];

/// A single list of flags, without the global ones, and a pointer to the long help.
fn to_short_help(command: Command, path: &str) -> Command {
    let command = command.mut_args(|arg| {
        let is_shared = GLOBAL_FLAGS.split(' ').any(|flag| arg.get_id() == flag);
        let arg = if arg.is_positional() { arg } else { arg.help_heading(None::<&'static str>) };
        if is_shared { arg.hide_short_help(true) } else { arg }
    });
    match path {
        // Without empty lines and rare commands: a screen has 24 lines.
        "" => command
            .mut_subcommands(|sub| {
                if RARE_COMMANDS.contains(&sub.get_name()) { sub.hide(true) } else { sub }
            })
            .help_template(
                "{about}\n{usage-heading} {usage}\n{subcommands}\n\
             All flags and examples: nanobot COMMAND --help; topics: nanobot help TOPIC",
            ),
        path => command
            .after_help(format!("All flags, examples and exit statuses: nanobot {path} --help")),
    }
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
    match page.statuses {
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
