//! The check of HEARTBEAT.md: detects whether the file has tasks, and asks the model which of them to do now.

use crate::ops::context::Context;
use crate::ops::model;
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_agent::report::{ProgressDisplay, ProgressLevel, ReportFormat, Reporter, json};
use nanobot_agent::turn::ending::incomplete_answer_error;
use nanobot_base::error::{Exit, WithHint, fail, outside_turn};
use nanobot_base::format::format_dollars;
use nanobot_base::message::{
    FinishReason, Message, MessagePart, ToolSpec, Usage, UserMessage, plain_text,
};
use nanobot_config::settings::{FlagOverrides, Settings};
use nanobot_cron::job::Job;
use nanobot_cron::run_record::RunUsage;
use nanobot_model::ledger::CallPurpose;
use nanobot_model::provider::{Request, ToolChoice};
use nanobot_os::durable_file;
use nanobot_os::secret::random_hex;
use nanobot_store::session::Session;
use serde_json::json;

/// The file's name in the workspace.
pub(crate) const FILE_NAME: &str = "HEARTBEAT.md";
/// Tolerance in US dollars: a smaller rest of a budget is treated as zero, because sums of fractions are inexact.
const BUDGET_TOLERANCE_USD: f64 = 1e-9;
/// Bytes of the file that are read.
const MAX_FILE_BYTES: usize = 64 << 10;
/// Number of recent runs that are described to the model.
const MAX_RECENT_RUNS: usize = 5;
/// Characters of the task of one recent run.
const MAX_TASK_CHARS: usize = 1000;
const TOOL_NAME: &str = "heartbeat";

const SYSTEM_PROMPT: &str = "You check a list of recurring tasks at regular intervals and decide whether any of them is due now. Consider the current \
time, the schedule and instructions of each task, and the tasks of the last runs. Call the tool `heartbeat` once. Choose `skip` if \
nothing is due; that is the usual case. Otherwise choose `run` and describe in `tasks` what to do, completely, for an agent that \
cannot see the list.";

/// The result of a check.
pub(crate) struct HeartbeatCheck {
    /// The cost of the check itself.
    pub(crate) usage: RunUsage,
    pub(crate) decision: HeartbeatDecision,
}

/// The decision of a check.
pub(crate) enum HeartbeatDecision {
    /// No task is due.
    Skip,
    Run {
        tasks: String,
        /// The rest of the job's budget, in US dollars.
        max_cost: Option<f64>,
    },
    /// Tasks are due, but the check has used up the budget.
    OverBudget(anyhow::Error),
}

/// The model's reply, and its cost.
struct HeartbeatReply {
    /// The tasks to do now; `None` for none.
    tasks: Option<String>,
    model: String,
    usage: Usage,
    cost: Option<f64>,
}

/// Checks whether there are tasks to do now. Sends no request if the file has no tasks.
pub(crate) fn check(
    ctx: &Context,
    settings: &Settings,
    job: &Job,
    options: &TurnOptions,
) -> Result<HeartbeatCheck> {
    let Some(list) = read_tasks(settings)? else {
        return Ok(HeartbeatCheck {
            usage: RunUsage::default(),
            decision: HeartbeatDecision::Skip,
        });
    };
    let reply = ask_model(ctx, settings, job, options, &list)?;
    let decision = match reply.tasks {
        None => HeartbeatDecision::Skip,
        Some(tasks) => match remaining_budget(options.model.max_cost, reply.cost.unwrap_or(0.0)) {
            Ok(max_cost) => HeartbeatDecision::Run { tasks, max_cost },
            Err(error) => HeartbeatDecision::OverBudget(error),
        },
    };
    Ok(HeartbeatCheck {
        usage: RunUsage {
            session: job.session_key(),
            model: reply.model,
            iterations: 1,
            input_tokens: reply.usage.input,
            output_tokens: reply.usage.output,
            cost_usd: reply.cost,
            ..RunUsage::default()
        },
        decision,
    })
}

/// The remaining budget of a job after a check that cost `cost`, in US dollars.
fn remaining_budget(max_cost: Option<f64>, cost: f64) -> Result<Option<f64>> {
    match max_cost {
        Some(max_cost) if cost >= max_cost - BUDGET_TOLERANCE_USD => {
            Err(budget_exceeded_error(max_cost, cost))
        }
        max_cost => Ok(max_cost.map(|max_cost| max_cost - cost)),
    }
}

/// The error if the check alone used up the heartbeat's budget.
fn budget_exceeded_error(max_cost: f64, cost: f64) -> anyhow::Error {
    let cause = format!(
        "the check of HEARTBEAT.md used up the budget (${} of ${}), so no task was run",
        format_dollars(cost),
        format_dollars(max_cost)
    );
    let hint = "`nanobot cron heartbeat enable --max-cost …` with a higher limit";
    fail(Exit::Budget, cause).with_hint(hint)
}

/// The text of HEARTBEAT.md, if it has tasks.
pub(crate) fn read_tasks(settings: &Settings) -> Result<Option<String>> {
    let path = settings.workspace.join(FILE_NAME);
    let bytes = durable_file::read(&path)?.unwrap_or_default();
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    let end = text.floor_char_boundary(MAX_FILE_BYTES);
    text.truncate(end);
    Ok(has_tasks(&text).then_some(text))
}

/// True if `text` has tasks: lines that are not blank, headings, comments or done. If there is a heading `Active
/// Tasks`, only the lines below it are tasks; lines below `Completed` never are.
fn has_tasks(text: &str) -> bool {
    let text = without_comments(text);
    let is_active = |title: &str| title == "active tasks";
    let is_completed = |title: &str| ["completed", "done"].contains(&title);
    let lines = || text.lines().map(str::trim);
    let only_active = lines().filter_map(parse_heading).any(|(_, title)| is_active(&title));
    // True while the lines of the current section are tasks.
    let mut counts = !only_active;
    // Headings that are deeper than that of the section belong to it.
    let mut section_depth = 0;
    for line in lines() {
        if let Some((depth, title)) = parse_heading(line) {
            if is_active(&title) || is_completed(&title) {
                (counts, section_depth) = (is_active(&title), depth);
            } else if depth <= section_depth {
                (counts, section_depth) = (!only_active, 0);
            }
            continue;
        }
        let task = line.trim_start_matches(['-', '*', '+', ' ']);
        let is_ticked = task.starts_with("[x]") || task.starts_with("[X]");
        let is_empty = task.trim_start_matches("[ ]").trim().is_empty();
        if counts && !is_empty && !is_ticked {
            return true;
        }
    }
    false
}

/// The depth and the title of a Markdown heading, in lower case and without its colon.
fn parse_heading(line: &str) -> Option<(usize, String)> {
    let depth = line.bytes().take_while(|byte| *byte == b'#').count();
    let is_heading = (1..=6).contains(&depth) && line[depth..].starts_with([' ', '\t']);
    is_heading
        .then(|| (depth, line[depth..].trim().to_lowercase().trim_end_matches(':').to_owned()))
}

/// Removes `<!-- … -->` comments. An unclosed comment extends to the end.
fn without_comments(text: &str) -> String {
    let mut kept_text = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!--") {
        kept_text.push_str(before);
        rest = after.split_once("-->").map_or("", |(_, after)| after);
    }
    kept_text + rest
}

/// Asks the model which tasks of `list` to do now. The request costs at most the job's budget.
fn ask_model(
    ctx: &Context,
    settings: &Settings,
    job: &Job,
    options: &TurnOptions,
    list: &str,
) -> Result<HeartbeatReply> {
    let mut settings = settings.clone();
    if options.model.name.is_some() {
        settings = ctx.settings_with(FlagOverrides {
            model: options.model.name.clone(),
            ..FlagOverrides::default()
        })?;
    }
    let session = job.session_key();
    let turn = random_hex(5);
    let purpose = CallPurpose {
        session: session.clone(),
        turn: turn.clone(),
        job: Some(job.id.clone()),
        cause: "heartbeat",
        ..CallPurpose::default()
    };
    let envelope = json::EventEnvelope {
        session: session.clone(),
        turn: turn.clone(),
        clock: ctx.clock.clone(),
    };
    let level = if ctx.quiet { ProgressLevel::Quiet } else { ProgressLevel::Notices };
    let progress = ProgressDisplay::new(ctx.terminal, level);
    let mut reporter = Reporter::new(ctx.terminal, ReportFormat::Unprinted, progress, envelope);
    let history = Session::read(&ctx.session_store(&settings)?, &session, &mut |_| {})?;
    let now = ctx.clock.now_in(settings.timezone.as_deref());
    let last_runs = describe_last_runs(&history);
    let text = format!("Now: {now}\n\n{last_runs}\n\nThe list, {FILE_NAME}:\n\n{list}");
    let chosen = model::choose(ctx, options, &settings, &purpose, &mut reporter)?;
    let sampling = model::sampling(&settings.models[0], chosen.context_tokens);
    let messages = [Message::User(UserMessage {
        id: turn.clone(),
        parts: vec![MessagePart::Text(text)],
        ..UserMessage::default()
    })];
    let request = Request {
        system: SYSTEM_PROMPT,
        messages: &messages,
        tools: &[tool_spec()],
        tool_choice: ToolChoice::Required(TOOL_NAME),
        model: &chosen.model,
        sampling: &sampling,
        reply_id: &turn,
        schema: None,
    };
    let reply = chosen
        .provider
        .reply(&request, &mut |delta| reporter.emit(delta.into_event("")))
        .map_err(|error| outside_turn(error.into_failure(), "check HEARTBEAT.md"))?;
    // A complete reply without a call means that no task is due: such models answer in text.
    let call = reply.tool_calls.iter().find(|call| call.name == TOOL_NAME);
    if call.is_none()
        && !matches!(reply.finish_reason, FinishReason::Stop | FinishReason::ToolCalls)
    {
        let error = incomplete_answer_error(&reply.finish_reason);
        return Err(outside_turn(error, "check HEARTBEAT.md"));
    }
    let call_arguments = call.map(|call| call.arguments_object()).unwrap_or_default();
    let tasks = call_arguments["tasks"].as_str().unwrap_or_default().trim().to_owned();
    let is_run = call_arguments["action"].as_str().map(str::trim) == Some("run");
    Ok(HeartbeatReply {
        tasks: is_run.then(|| {
            if tasks.is_empty() {
                format!("Do the tasks of this list that are due now:\n\n{list}")
            } else {
                tasks
            }
        }),
        model: chosen.model.clone(),
        usage: reply.usage,
        cost: reply.cost,
    })
}

/// The times and tasks of the last runs. Their answers are left out: they may contain untrusted content, and tasks derived from it would be
/// treated as the user's own.
fn describe_last_runs(session: &Session) -> String {
    let runs = session.messages().iter().rev().filter_map(|message| match message {
        Message::User(user) if !user.injected => {
            // Older versions marked a message with only the user's own text by its id.
            let is_own = match &user.sources {
                Some(sources) => sources.others.is_none(),
                None => user.id.ends_with("-0"),
            };
            let text = plain_text(&user.parts);
            // The output of the job's condition follows the task.
            let task = match text.split_once("\n\n<stdin") {
                Some((task, _)) => task.trim(),
                None if is_own => text.trim(),
                None => "",
            };
            let time = user.runtime_facts.trim();
            let task: String = task.chars().take(MAX_TASK_CHARS).collect();
            (!task.is_empty()).then(|| format!("{time}\nIts task: {task}"))
        }
        _ => None,
    });
    let runs: Vec<String> = runs.take(MAX_RECENT_RUNS).collect();
    if runs.is_empty() {
        "There are no earlier runs.".to_owned()
    } else {
        format!("The last runs that had tasks, newest first:\n\n{}", runs.join("\n\n"))
    }
}

fn tool_spec() -> ToolSpec {
    ToolSpec {
        name: TOOL_NAME.into(),
        description: "Report whether any task on the list is due now.".into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "action": { "type": "string", "enum": ["skip", "run"], "description": "skip if nothing is due now" },
                "tasks": { "type": "string", "description": "With `run`: what to do now, in full" },
            },
            "required": ["action"],
        }).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::has_tasks;

    #[test]
    fn detects_tasks() {
        let check = |text: &str, expect: bool| assert_eq!(has_tasks(text), expect, "{text:?}");
        check("", false);
        check("\n \n", false);
        check("# Heartbeat\n\nThings to look at.\n\n## Active Tasks\n\n## Completed\n", false);
        check("## Active Tasks\n<!-- add tasks\n- like this -->\n", false);
        check("## Active Tasks\n<!-- never closed\n- x", false);
        check("## Active Tasks\n- look at the mail\n", true);
        check("## Active Tasks\n### Mornings\n- look\n", true);
        check("## Active Tasks\n- [x] done\n- [ ] \n-\n", false);
        check("## Active Tasks\n- [ ] open\n", true);
        check("## Active Tasks\n## Completed\n- old\n", false);
        check("## Completed\n- old\n## Active Tasks\n- new", true);
        check("## Active Tasks\n\n## Notes\nsome prose", false);
        check("- a list without headings", true);
        check("# Title\nprose is a task where nothing says what is", true);
        check("## Completed\n- old\n## More\n- new", true);
        check("#no heading", true);
    }
}
