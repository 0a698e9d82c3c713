//! The command tree of clap, with or without the help texts.

use crate::cli::Cli;
use crate::cli::pages::{self, HelpLength};
use crate::ops::slash_commands;
use clap::CommandFactory;
use nanobot_base::error::Exit;
use std::fmt::Write;

/// The command tree without the texts of help. Parsing and completions use it.
pub fn command_tree() -> clap::Command {
    Cli::command()
}

/// The command tree with all help texts. Building it takes longer than a turn takes to start.
pub fn command_tree_with_help(length: HelpLength) -> clap::Command {
    pages::add_pages(command_tree(), length, &statuses()).mut_subcommand("repl", |repl| {
        let help = repl.get_long_about().map(ToString::to_string).unwrap_or_default();
        repl.long_about(format!("{help}\n\nCommands:\n{}", slash_commands::help_table()))
    })
}

/// The table of exit statuses, for help and the man page.
fn statuses() -> String {
    let mut table = String::from("Exit status:\n");
    for exit in Exit::ALL {
        writeln!(table, "  {:>3}  {}", exit.code(), exit.meaning())
            .expect("writing to a string cannot fail");
    }
    table.truncate(table.trim_end().len());
    table
}
