//! `nanobot run`: a prompt file as a program.

use crate::options::turn::TurnOptions;
use clap::Args;

/// Run a prompt file as a program
///
/// FILE is a message with optional front matter: `description`, `inputs`, `model`, `tools`, `schema`, `max-cost` and others. It is
/// sent alone, as with `--bare`. With the first line `#!/usr/bin/env -S nanobot run` it is a program itself. Its arguments take the
/// place of `$1` to `$9` and `$ARGUMENTS` in the message, or of `$name` for each name that `inputs` lists; `\$1` is text. Standard input follows it as in `agent`, and standard output is the answer. Front matter can
/// only narrow what the config and the flags allow, unless `nanobot trust FILE` has pinned the file. NAME, a word without `/` and
/// `.`, is a prompt of ~/.nanobot/prompts. `nanobot help programs` has the format.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "nanobot run [OPTIONS] <FILE|NAME> [ARGUMENT]...",
    mut_arg("message", |arg| arg.hide_short_help(true)),
    mut_arg("new", |arg| arg.hide_short_help(true)),
    mut_arg("resume", |arg| arg.hide_short_help(true)),
    mut_arg("session", |arg| arg.hide_short_help(true)),
    mut_arg("schema", |arg| arg.hide_short_help(true)),
    mut_arg("replay", |arg| arg.hide_short_help(true)),
    mut_arg("until", |arg| arg.hide_short_help(true))
)]
pub struct RunArgs {
    /// The prompt file, and its arguments: in the order of its `inputs`, NAME=VALUE or --NAME VALUE
    ///
    /// All arguments after FILE are for the file, flags included.
    #[arg(value_name = "FILE|NAME", required_unless_present_any = ["list", "save"], num_args = 1.., trailing_var_arg = true)]
    pub file: Vec<String>,
    /// List the prompts of ~/.nanobot/prompts
    #[arg(long, conflicts_with_all = ["file", "save", "message"])]
    pub list: bool,
    /// Keep the message and the flags of this command line as the prompt NAME, and run nothing
    ///
    /// In ~/.nanobot/prompts, as a prompt file. `$1`, `$2` and `$ARGUMENTS` in the message stand for the arguments of a later run, which
    /// must give them; `\$5` is text. The message may be the last argument in place of `-m`.
    #[arg(long, value_name = "NAME")]
    pub save: Option<String>,
    /// Replace a prompt that `--save` has kept before
    #[arg(long, requires = "save", hide_short_help = true)]
    pub replace: bool,
    #[command(flatten)]
    pub turn: TurnOptions,
}
