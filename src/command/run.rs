//! `nanobot run`: runs a prompt file as a program.

use super::agent;
use crate::cli::run::RunArgs;
use crate::ops::context::{Context, report_error};
use crate::ops::named_prompts::{self, NamedPrompt};
use crate::ops::prompt_program::PromptProgram;
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::message::Origin;
use nanobot_base::message::user_text::{OthersContent, UserText};

/// Runs `nanobot run`.
pub fn run(ctx: &Context, arguments: &RunArgs) -> Exit {
    let RunArgs { file, turn, list: _, save, replace } = arguments;
    let stored = match (file.split_first(), save) {
        (Some((file, program_arguments)), None) => {
            return run_file(ctx, file, program_arguments, turn);
        }
        (_, Some(_)) if turn.worktree.is_some() => Err(named_prompts::no_field("--worktree")),
        (_, Some(name)) => saved_options(turn, file)
            .and_then(|options| named_prompts::save(ctx, name, &options, *replace)),
        (None, None) => print_list(ctx, turn.output.json),
    };
    match stored {
        Ok(()) => Exit::Answered,
        Err(error) => report_error(&error, ctx.terminal),
    }
}

/// The options of a prompt that is saved: those of `turn`, with the message that is the only one of `arguments`, if there are any.
fn saved_options(turn: &TurnOptions, arguments: &[String]) -> Result<TurnOptions> {
    let mut options = turn.clone();
    match arguments {
        [] => {}
        [message] if options.input.message.is_none() => options.input.set_typed_message(message),
        _ => {
            let cause = "`--save` takes one message";
            let hint = "the message in quotes, as the last argument";
            return Err(fail(Exit::Usage, cause).with_hint(hint));
        }
    }
    Ok(options)
}

/// Prints the user's prompts.
fn print_list(ctx: &Context, as_json: bool) -> Result<()> {
    let prompts = named_prompts::list(ctx)?;
    if as_json {
        return ctx.terminal.print_json_lines(&prompts);
    }
    if prompts.is_empty() {
        ctx.explain_empty("no prompt is saved");
    }
    let columns: [Column<'_, NamedPrompt>; 2] = [
        ("NAME", Side::Left, &|prompt| prompt.name.clone()),
        ("DESCRIPTION", Side::Left, &|prompt| prompt.description.clone()),
    ];
    ctx.terminal.print(&format_table(&prompts, &columns, ctx.terminal.stdout_width()))
}

fn run_file(ctx: &Context, file: &str, program_arguments: &[String], turn: &TurnOptions) -> Exit {
    let loaded = if named_prompts::is_name(file) {
        named_prompts::find(ctx, file).and_then(|path| PromptProgram::load(ctx, &path, Some(file)))
    } else {
        PromptProgram::load(ctx, &ctx.paths.expand(file), None)
    };
    let program = match loaded {
        Ok(program) => program,
        Err(error) => return report_error(&error, ctx.terminal),
    };
    if let [argument] = program_arguments
        && ["-h", "--help"].contains(&argument.as_str())
    {
        return match ctx.terminal.print(&program.help()) {
            Ok(()) => Exit::Answered,
            Err(error) => report_error(&error, ctx.terminal),
        };
    }
    match turn_options(ctx, &program, turn, program_arguments) {
        Ok(options) => agent::run_turn(ctx, options),
        Err(error) => report_error(&error, ctx.terminal),
    }
}

/// The options of the turn: the flags, narrowed by the front matter of the file.
fn turn_options(
    ctx: &Context,
    program: &PromptProgram,
    turn: &TurnOptions,
    program_arguments: &[String],
) -> Result<TurnOptions> {
    let mut options = turn.clone();
    let message = program.message(program_arguments)?;
    let message = if program.is_pinned() {
        UserText::typed(message)
    } else {
        let content = OthersContent::new(Origin::Project, "the text of a file");
        UserText::of_others(message, content)
    };
    let flag_message = options.input.message.take().filter(|text| text.as_str() != "-");
    if options.input.prompt_file.is_some() {
        return Err(fail(Exit::Usage, "`run` has a prompt file already")
            .with_hint("`--attach` for another file"));
    }
    options.input.message = Some(match flag_message {
        Some(mut flag_message) => {
            flag_message.push_paragraph(&message);
            flag_message
        }
        None => message,
    });
    program.apply(ctx, &mut options)?;
    Ok(options)
}
