//! The live status of a turn: takes events and returns lines. Some lines are permanent, such as that of a finished
//! call; the others form the status area at the bottom of the terminal. It reads no clock and prints nothing.

use super::lines::{self, LineFolder};
use super::plan::Plan;
use crate::report::meter::{draw_meter, format_percent};
use crate::report::short_text::{
    abbreviate_count, count_noun, describe_size, first_line, format_elapsed, format_running_time,
    group_thousands, identifying_arguments,
};
use console::Style;
use nanobot_base::event::{Event, ToolOutcome};
use nanobot_base::format::format_dollars;
use nanobot_base::message::{ToolCall, ToolResult, Usage, plain_text};
use nanobot_base::terminal_text::TerminalText;
use nanobot_config::policy::tool_names::ASK_USER;
use nanobot_os::terminal::{StyledLine, theme};
use nanobot_store::history::subagent_refs::SPAWN_TOOL;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The frames of the spinner, and the duration of each.
const SPINNER_FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// An answer is no longer shown as being printed after this time without new text.
const ANSWER_PAUSE: Duration = Duration::from_millis(1500);
/// Lines that `-v` shows of a result, or of a command's output while it runs.
const MAX_OUTPUT_LINES: usize = 10;
/// Columns of the meter in the status line, and of the narrowest window that shows it.
const METER_COLUMNS: usize = 10;
const MIN_METER_WINDOW_COLUMNS: usize = 60;
/// The beginnings of the lines, after the output, that say why this program ended a command.
const FAILURES: [&str; 2] = ["Interrupted because", "Timed out after"];
/// Lines that `-v` shows of a call's arguments.
const MAX_ARGUMENT_LINES: usize = 40;

/// The display settings at the time of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewSettings {
    /// Columns of the window.
    pub(super) width: usize,
    /// `-v`
    pub(super) is_detailed: bool,
    /// True if the answer is streamed to this terminal.
    pub(super) streams_answer: bool,
    pub(super) now: Instant,
}

/// The state of the turn.
#[derive(Debug)]
pub(super) struct LiveView {
    started: Instant,
    activity: Activity,
    calls: Vec<RunningCall>,
    /// The running sub-agents. Each has the id of the call that started it, which a later call may have, too: ids are
    /// unique within one reply.
    subagents: Vec<Subagent>,
    plan: Plan,
    usage: Usage,
    /// US dollars; `None` once the cost of a request is unknown.
    cost: Option<f64>,
    /// Tokens in the context after the last reply, and the context window, if known.
    context: u64,
    context_window: Option<u32>,
    requests: u32,
    tools: u32,
    reasoning: LineFolder,
}

/// The current activity of the model.
#[derive(Clone, Debug)]
enum Activity {
    Requesting,
    Thinking { since: Instant, chars: usize },
    Answering { last: Instant },
    Waiting { until: Instant, action: &'static str },
    Compacting { tokens: u64 },
}

/// A running tool.
#[derive(Debug)]
struct RunningCall {
    id: String,
    /// The name of the tool.
    name: String,
    short_arguments: String,
    arguments: Value,
    since: Instant,
    /// The last line of its output.
    last_line: String,
    /// The number of lines of its output that were shown, and that of those that were not.
    shown_lines: usize,
    hidden_lines: usize,
    /// Reduces its terminal output to lines.
    screen: TerminalText,
    output: LineFolder,
}

/// A running sub-agent.
#[derive(Debug)]
struct Subagent {
    /// The id of the call that started it.
    id: String,
    name: String,
    /// The arguments of that call.
    short_arguments: String,
    since: Instant,
    /// The last line of its progress.
    last_line: String,
}

impl RunningCall {
    /// The rows for complete lines of output, `rows`, as many as may be shown.
    fn limit_rows(&mut self, mut rows: Vec<StyledLine>) -> Vec<StyledLine> {
        let count = rows.len();
        rows.truncate(MAX_OUTPUT_LINES.saturating_sub(self.shown_lines));
        self.shown_lines += rows.len();
        self.hidden_lines += count - rows.len();
        rows
    }

    /// The rows for the end of the output: the last line, if it has no newline, and the number of lines that were not shown.
    fn last_output_rows(&mut self, width: usize) -> Vec<StyledLine> {
        let last_line = self.screen.flush();
        let mut rows = self.output.push(&last_line, width);
        rows.extend(self.output.rest());
        let mut rows = self.limit_rows(rows);
        if self.hidden_lines > 0 {
            let hidden = group_thousands(self.hidden_lines as u64);
            rows.push(lines::dim_row(&format!("… {hidden} more lines")));
        }
        rows
    }
}

impl LiveView {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started: now,
            activity: Activity::Requesting,
            calls: Vec::new(),
            subagents: Vec::new(),
            plan: Plan::default(),
            usage: Usage::default(),
            cost: Some(0.0),
            context: 0,
            context_window: None,
            requests: 0,
            tools: 0,
            reasoning: LineFolder::default(),
        }
    }

    /// Processes an event; returns the permanent lines.
    pub(super) fn handle(&mut self, event: &Event<'_>, settings: ViewSettings) -> Vec<StyledLine> {
        let mut rows = Vec::new();
        if !matches!(event, Event::Reasoning { .. } | Event::Notice(_)) {
            rows.extend(self.end_reasoning(settings));
        }
        match event {
            Event::User(user) if user.injected => {
                rows.extend(self.end_subagent(&user.id, settings.now));
            }
            Event::User(user) => {
                self.activity = Activity::Requesting;
                if user.is_steering() {
                    let text = plain_text(&user.parts);
                    rows.push(StyledLine::new("> ").shrinkable(first_line(&text)));
                }
            }
            Event::Reasoning { text, .. } => rows.extend(self.add_reasoning(text, settings)),
            Event::Text { .. } if settings.streams_answer => {
                self.activity = Activity::Answering { last: settings.now }
            }
            Event::Text { .. } => self.activity = Activity::Requesting,
            Event::Assistant { reply, .. } => {
                self.context = reply.usage.input.saturating_add(reply.usage.output);
                // A compaction lasts until its own event. If the reply has calls, their status follows.
                if !matches!(self.activity, Activity::Compacting { .. }) {
                    self.activity = Activity::Requesting;
                }
            }
            Event::ToolCall(call) => self.begin_call(call, settings.now),
            Event::ToolOutput { call_id, text } => {
                rows.extend(self.add_output(call_id, text, settings));
            }
            Event::ToolResult {
                result,
                outcome,
                command_failed,
                refused_part,
                diff,
                was_asked,
                duration,
                denial: _,
            } => {
                let status = CallStatus::new(*outcome, *command_failed);
                rows.extend(self.end_call(result, status, *diff, *was_asked, *duration, settings));
                rows.extend(refused_part.map(lines::dim_row));
            }
            Event::Retry { attempt, wait, cause } => {
                let text = format!("… attempt {}: {cause}", attempt + 1);
                rows.push(StyledLine::new("  ").shrinkable(text));
                self.wait("retrying", *wait, settings.now);
            }
            Event::Wait { wait, cause } => {
                if settings.is_detailed {
                    rows.push(StyledLine::new("  ").shrinkable(format!("… waiting: {cause}")));
                }
                if let Some(wait) = wait {
                    self.wait("requesting", *wait, settings.now);
                }
            }
            Event::CompactStart { tokens, .. } => {
                self.activity = Activity::Compacting { tokens: *tokens };
            }
            Event::CompactEnd { after, error, .. } => {
                if error.is_none() {
                    self.context = *after;
                }
                self.activity = Activity::Requesting;
            }
            Event::Usage { usage, cost, .. } => self.add_usage(*usage, *cost),
            Event::Fallback { .. } | Event::Notice(_) => {}
        }
        rows
    }

    pub(super) fn set_context_window(&mut self, tokens: u32) {
        self.context_window = Some(tokens);
    }

    /// Starts a wait during which nothing else happens.
    pub(super) fn wait(&mut self, action: &'static str, wait: Duration, now: Instant) {
        let until = now.checked_add(wait).unwrap_or(now);
        self.activity = Activity::Waiting { until, action };
    }

    fn add_usage(&mut self, usage: Usage, cost: Option<f64>) {
        self.usage += usage;
        self.cost = self.cost.zip(cost).map(|(sum, cost)| sum + cost);
        self.requests += 1;
    }

    fn add_reasoning(&mut self, text: &str, settings: ViewSettings) -> Vec<StyledLine> {
        let (since, chars) = match self.activity {
            Activity::Thinking { since, chars } => (since, chars),
            _ => (settings.now, 0),
        };
        self.activity = Activity::Thinking { since, chars: chars + text.chars().count() };
        if settings.is_detailed { self.reasoning.push(text, settings.width) } else { Vec::new() }
    }

    /// Ends the reasoning phase; returns a line with its duration.
    fn end_reasoning(&mut self, settings: ViewSettings) -> Vec<StyledLine> {
        let Activity::Thinking { since, chars } = self.activity else {
            return Vec::new();
        };
        self.activity = Activity::Requesting;
        let count = group_thousands(chars as u64);
        let time = format_running_time(settings.now.saturating_duration_since(since));
        let line = StyledLine::new("  ").dim(format!("thought for {time} ({count} characters)"));
        self.reasoning.rest().into_iter().chain([line]).collect()
    }

    fn begin_call(&mut self, call: &ToolCall, now: Instant) {
        self.tools += 1;
        self.activity = Activity::Requesting;
        self.calls.push(RunningCall {
            id: call.id.clone(),
            name: call.name.clone(),
            short_arguments: identifying_arguments(&call.name, &call.arguments),
            arguments: call.arguments.clone(),
            since: now,
            last_line: String::new(),
            shown_lines: 0,
            hidden_lines: 0,
            screen: TerminalText::new(1),
            output: LineFolder::default(),
        });
    }

    fn add_output(&mut self, id: &str, text: &str, settings: ViewSettings) -> Vec<StyledLine> {
        let progress = |subagent: &Subagent| {
            let rest = text.strip_prefix(&subagent.name)?.strip_prefix(": ")?;
            (subagent.id == id).then(|| rest.trim_end().to_owned())
        };
        for subagent in &mut self.subagents {
            if let Some(line) = progress(subagent) {
                subagent.last_line = line;
                // It is one short line, unlike the output of a command, which may print for hours.
                let rows = LineFolder::default().push(text, settings.width);
                return if settings.is_detailed { rows } else { Vec::new() };
            }
        }
        let Some(call) = self.calls.iter_mut().rev().find(|call| call.id == id) else {
            return Vec::new();
        };
        let text = call.screen.feed(text);
        let lines = text.lines().rev().map(str::trim);
        let current = call.screen.last_line();
        if let Some(line) = [current].into_iter().chain(lines).find(|line| !line.is_empty()) {
            line.clone_into(&mut call.last_line);
        }
        if !settings.is_detailed {
            return Vec::new();
        }
        let rows = call.output.push(&text, settings.width);
        call.limit_rows(rows)
    }

    /// Ends a call; returns its final line and the lines below it. If the user `was_asked` about it, the question has shown
    /// the diff.
    fn end_call(
        &mut self,
        result: &ToolResult,
        status: CallStatus,
        diff: Option<&str>,
        was_asked: bool,
        duration: Duration,
        settings: ViewSettings,
    ) -> Vec<StyledLine> {
        let at = self.calls.iter().rposition(|call| call.id == result.call_id);
        let mut call = at.map(|at| self.calls.remove(at));
        let text = plain_text(&result.parts);
        if let Some(call) = &call
            && call.name == SPAWN_TOOL
            && matches!(status, CallStatus::Done | CallStatus::CommandFailed)
            && let Some(name) = text.split('`').nth(1)
        {
            // The sub-agent continues under its own name, until its report arrives.
            self.subagents.push(Subagent {
                id: call.id.clone(),
                name: name.to_owned(),
                short_arguments: call.short_arguments.clone(),
                since: settings.now,
                last_line: String::new(),
            });
            return Vec::new();
        }
        if result.name == "todo" && status == CallStatus::Done {
            self.plan = Plan::parse(&text);
            return vec![call_row(CallStatus::Done, "todo", "", &[self.plan.describe()])];
        }
        let mut rows = Vec::new();
        if settings.is_detailed
            && let Some(call) = &mut call
        {
            rows.extend(call.last_output_rows(settings.width));
        }
        let is_output_shown = call.as_ref().is_some_and(|call| call.shown_lines > 0);
        let short_arguments = call.as_ref().map_or("", |call| call.short_arguments.as_str());
        let time = format_elapsed(duration);
        let failure = CommandFailure::parse(&text);
        let notes = match status {
            CallStatus::Done => {
                let size = diff.map_or_else(|| describe_size(&result.parts), lines::count_changes);
                vec![time, size]
            }
            CallStatus::CommandFailed => vec![failure.status.clone(), time],
            CallStatus::Failed | CallStatus::Interrupted => vec![time],
            CallStatus::Denied if result.name == ASK_USER => vec!["no answer".into()],
            CallStatus::Denied => vec!["denied".into()],
        };
        rows.push(call_row(status, &result.name, short_arguments, &notes));
        if settings.is_detailed
            && diff.is_none()
            && let Some(call) = &call
        {
            rows.extend(argument_rows(&call.arguments, short_arguments, settings.width));
        }
        match status {
            CallStatus::Done | CallStatus::CommandFailed => match diff {
                Some(_) if was_asked => {}
                Some(diff) => rows.extend(lines::diff_rows(diff, settings.is_detailed)),
                None if settings.is_detailed && !is_output_shown => {
                    rows.extend(lines::first_rows(&text, MAX_OUTPUT_LINES));
                }
                None if status == CallStatus::CommandFailed => {
                    rows.extend(failure.lines.iter().map(|line| lines::dim_row(line)));
                }
                None => {}
            },
            CallStatus::Failed => {
                let mut last_lines = text.lines().rev();
                let cause =
                    last_lines.find(|line| FAILURES.iter().any(|start| line.starts_with(start)));
                let shows_text = settings.is_detailed && !is_output_shown;
                let text_rows = if shows_text {
                    lines::first_rows(&text, MAX_OUTPUT_LINES)
                } else {
                    Vec::new()
                };
                let cause = match cause {
                    Some(cause) => Some(cause.to_owned()),
                    None => (!shows_text).then(|| first_line(&text)),
                };
                let cause_row = cause.map(|cause| lines::dim_row(&cause));
                let is_new =
                    |row: &StyledLine| text_rows.iter().all(|other| other.text() != row.text());
                let cause_row = cause_row.filter(is_new);
                rows.extend(text_rows.into_iter().chain(cause_row));
            }
            // The reason of a denial is reported once per kind, by the caller.
            CallStatus::Denied | CallStatus::Interrupted => {}
        }
        rows
    }

    /// Handles a sub-agent's report, which arrives as a message with this id.
    fn end_subagent(&mut self, id: &str, now: Instant) -> Option<StyledLine> {
        let name = id.rsplit('-').next()?;
        let at = self.subagents.iter().position(|subagent| subagent.name == name)?;
        let Subagent { short_arguments, since, last_line, .. } = self.subagents.remove(at);
        let time = format_elapsed(now.saturating_duration_since(since));
        let is_finished = last_line == "finished";
        let status = if is_finished { CallStatus::Done } else { CallStatus::Failed };
        Some(call_row(status, name, &short_arguments, &[time, last_line]))
    }

    /// Ends the calls that have no result yet, since the turn was interrupted; returns their last lines.
    pub(super) fn end_calls(&mut self, now: Instant) -> Vec<StyledLine> {
        self.subagents.clear();
        let row = |call: RunningCall| {
            let time = format_elapsed(now.saturating_duration_since(call.since));
            let notes = ["interrupted".to_owned(), time];
            call_row(CallStatus::Interrupted, &call.name, &call.short_arguments, &notes)
        };
        self.calls.drain(..).map(row).collect()
    }

    /// Returns the current status area.
    pub(super) fn status_rows(&self, now: Instant) -> Vec<StyledLine> {
        let elapsed_since = |start: Instant| now.saturating_duration_since(start);
        let frame = elapsed_since(self.started).as_millis() / FRAME_INTERVAL.as_millis();
        let spinner = SPINNER_FRAMES[frame as usize % SPINNER_FRAMES.len()];
        let running_row = |name: &str, short_arguments: &str, since: Instant, last_line: &str| {
            let row = StyledLine::new("  ")
                .styled(spinner, Style::new().fg(theme::accent()))
                .plain(format!(" {name} "))
                .shrinkable(short_arguments)
                .dim(format!("  {}", format_running_time(elapsed_since(since))));
            if last_line.is_empty() { row } else { row.dim(format!("  {last_line}")) }
        };
        let subagent_rows = self.subagents.iter().map(|subagent| {
            let Subagent { name, short_arguments, since, last_line, .. } = subagent;
            running_row(name, short_arguments, *since, last_line)
        });
        let call_rows = self.calls.iter().map(|call| {
            let RunningCall { name, short_arguments, since, last_line, .. } = call;
            running_row(name, short_arguments, *since, last_line)
        });
        let mut rows: Vec<StyledLine> =
            subagent_rows.chain(call_rows).chain(self.plan.rows()).collect();
        let activity = match &self.activity {
            Activity::Answering { last } if elapsed_since(*last) < ANSWER_PAUSE => return rows,
            Activity::Requesting | Activity::Answering { .. } => {
                format_running_time(elapsed_since(self.started))
            }
            Activity::Thinking { since, .. } => {
                format!("thinking… {}", format_running_time(elapsed_since(*since)))
            }
            Activity::Waiting { until, action } => {
                let left = until.saturating_duration_since(now);
                // Rounded up, so it shows 1 s until the wait is over.
                let left = Duration::from_secs(left.as_millis().div_ceil(1000) as u64);
                format!("{action} in {}", format_running_time(left))
            }
            Activity::Compacting { tokens } => {
                format!("compacting {} tokens…", group_thousands(*tokens))
            }
        };
        let mut row = StyledLine::new("  ")
            .styled(spinner, Style::new().fg(theme::accent()))
            .dim(format!(" {activity}"));
        if self.requests > 0 {
            let Usage { input, output, .. } = self.usage;
            row = row.dim(format!(
                " · {} in, {} out",
                abbreviate_count(input),
                abbreviate_count(output)
            ));
            if let Some(cost) = self.cost.filter(|cost| *cost > 0.0) {
                row = row.dim(format!(" · ${}", format_dollars(cost)));
            }
        }
        rows.push(row);
        rows
    }

    /// Returns the line at the end of the turn: context, tokens, cost and time.
    pub(super) fn status_line(&self, now: Instant, width: usize, is_detailed: bool) -> StyledLine {
        let Usage { input, cached, output, .. } = self.usage;
        let mut parts = Vec::new();
        let mut meter = String::new();
        let window = self.context_window.map(u64::from);
        if self.context > 0
            && let Some(window) = window
        {
            parts.push(format!("{} context", format_percent(self.context, window)));
            let share = self.context as f64 / window as f64;
            meter = format!("{} ", draw_meter(share, METER_COLUMNS));
        }
        let cached = match cached {
            0 => String::new(),
            cached => format!(" ({} cached)", abbreviate_count(cached)),
        };
        let (input, output) = (abbreviate_count(input), abbreviate_count(output));
        parts.push(format!("{input} in{cached}, {output} out"));
        let cost = self.cost.filter(|cost| *cost > 0.0);
        parts.extend(cost.map(|cost| format!("${}", format_dollars(cost))));
        parts.push(format_elapsed(now.saturating_duration_since(self.started)));
        if is_detailed {
            parts.push(count_noun(self.requests as usize, "request"));
            parts.push(count_noun(self.tools as usize, "tool call"));
        }
        let text = parts.join(" · ");
        // The meter says nothing that the text does not.
        let has_room = width >= MIN_METER_WINDOW_COLUMNS
            && meter.chars().count() + text.chars().count() <= width;
        StyledLine::default().dim(if has_room { meter + &text } else { text })
    }

    /// True if there was any request.
    pub(super) fn has_requests(&self) -> bool {
        self.requests > 0
    }
}

/// The end of a call, which decides the mark of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallStatus {
    Done,
    /// The call returned a result, but its command failed.
    CommandFailed,
    Failed,
    Denied,
    Interrupted,
}

impl CallStatus {
    fn new(outcome: ToolOutcome, command_failed: bool) -> Self {
        match outcome {
            ToolOutcome::Ok if command_failed => Self::CommandFailed,
            ToolOutcome::Ok => Self::Done,
            ToolOutcome::Failed | ToolOutcome::Skipped => Self::Failed,
            ToolOutcome::Denied => Self::Denied,
        }
    }

    fn mark(self) -> (&'static str, Style) {
        match self {
            Self::Done => ("✓", Style::new().green()),
            Self::CommandFailed | Self::Failed => ("✗", Style::new().red()),
            Self::Denied | Self::Interrupted => ("⊘", theme::attention()),
        }
    }
}

/// Formats the line of a call. A narrow window shows only the first one of the notes.
fn call_row(status: CallStatus, name: &str, short_arguments: &str, notes: &[String]) -> StyledLine {
    let (mark, style) = status.mark();
    let mut row = StyledLine::new("  ").styled(mark, style).plain(format!(" {name}"));
    if !short_arguments.is_empty() {
        row = row.plain(" ").shrinkable(short_arguments);
    }
    for (number, note) in notes.iter().filter(|note| !note.is_empty()).enumerate() {
        row = match number {
            0 => row.dim(format!("  {note}")),
            _ => row.optional(format!(", {note}")),
        };
    }
    row
}

/// The failure of a command, as its result describes it to the model.
struct CommandFailure<'t> {
    /// Its exit status, or the signal.
    status: String,
    /// The last line of its output, and the explanation of the failure.
    lines: Vec<&'t str>,
}

impl<'t> CommandFailure<'t> {
    fn parse(text: &'t str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().rev() {
            let status = match line.strip_prefix("Exit code: ") {
                Some(code) => Some(format!("exit {code}")),
                None => line.strip_prefix("Killed by ").map(str::to_owned),
            };
            if let Some(status) = status {
                let lines = [&lines[at.saturating_sub(1)..at], &lines[at + 1..]].concat();
                return Self { status, lines };
            }
        }
        Self { status: "failed".into(), lines: lines.last().copied().into_iter().collect() }
    }
}

/// Shows a call's arguments in full, unless the line already contains all of them.
fn argument_rows(arguments: &Value, short_arguments: &str, width: usize) -> Vec<StyledLine> {
    let Some(arguments) = arguments.as_object() else {
        return Vec::new();
    };
    if arguments.len() == 1 && arguments.values().all(|value| value == short_arguments) {
        return Vec::new();
    }
    let lines: Vec<String> = arguments
        .iter()
        .map(|(name, value)| match value.as_str() {
            Some(text) if text.contains('\n') => format!("{name}:\n{text}"),
            Some(text) => format!("{name}: {text}"),
            None => format!("{name}: {value}"),
        })
        .collect();
    let mut rows = LineFolder::default().push(&(lines.join("\n") + "\n"), width);
    if rows.len() > MAX_ARGUMENT_LINES {
        let hidden = group_thousands((rows.len() - MAX_ARGUMENT_LINES) as u64);
        rows.truncate(MAX_ARGUMENT_LINES);
        rows.push(lines::dim_row(&format!("… {hidden} more lines")));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::{LiveView, ViewSettings};
    use nanobot_base::event::{Event, ToolOutcome};
    use nanobot_base::message::{
        MessagePart, Reply, ResultSource, ToolCall, ToolResult, Usage, UserMessage,
    };
    use nanobot_os::terminal::StyledLine;
    use serde_json::{Value, json};
    use std::time::{Duration, Instant};

    /// A live view with a manually set clock.
    struct LiveViewFixture {
        live_view: LiveView,
        view: ViewSettings,
        printed: Vec<String>,
    }

    impl LiveViewFixture {
        fn new(detailed: bool) -> Self {
            let now = Instant::now();
            let view = ViewSettings { width: 60, is_detailed: detailed, streams_answer: true, now };
            Self { live_view: LiveView::new(now), view, printed: Vec::new() }
        }

        fn after(&mut self, millis: u64) -> &mut Self {
            self.view.now += Duration::from_millis(millis);
            self
        }

        fn emit(&mut self, event: Event<'_>) -> &mut Self {
            let rows = self.live_view.handle(&event, self.view);
            self.printed.extend(rows.iter().map(StyledLine::text));
            self
        }

        fn call(&mut self, id: &str, name: &str, arguments: Value) -> &mut Self {
            self.emit(Event::ToolCall(&ToolCall { id: id.into(), name: name.into(), arguments }))
        }

        fn result(&mut self, id: &str, name: &str, text: &str, outcome: ToolOutcome) -> &mut Self {
            self.end_call(id, name, text, outcome, None)
        }

        fn end_call(
            &mut self,
            id: &str,
            name: &str,
            text: &str,
            outcome: ToolOutcome,
            changes: Option<&str>,
        ) -> &mut Self {
            let result = ToolResult {
                call_id: id.into(),
                name: name.into(),
                parts: vec![MessagePart::Text(text.into())],
                failed: outcome != ToolOutcome::Ok,
                source: ResultSource::Unspecified,
            };
            self.emit(Event::ToolResult {
                denial: None,
                result: &result,
                outcome,
                command_failed: false,
                refused_part: None,
                diff: changes,
                was_asked: false,
                duration: Duration::from_millis(12),
            })
        }

        #[track_caller]
        fn assert_printed(&mut self, expect: &[&str]) -> &mut Self {
            let printed = std::mem::take(&mut self.printed);
            assert_eq!(printed, expect);
            self
        }

        /// Checks the status area, without the spinner's frames.
        #[track_caller]
        fn assert_status(&mut self, expect: &[&str]) -> &mut Self {
            let rows = self.live_view.status_rows(self.view.now);
            let bare = |row: &StyledLine| {
                let text = row.text();
                text.trim_start().chars().skip(2).collect::<String>()
            };
            let rows: Vec<String> = rows.iter().map(bare).collect();
            assert_eq!(rows, expect);
            self
        }
    }

    #[test]
    fn a_call_turns_into_its_result() {
        LiveViewFixture::new(false)
            .after(3200)
            .assert_status(&["3 s"])
            .call("1", "read_file", json!({ "path": "a.md" }))
            .call("2", "grep", json!({ "pattern": "x", "path": "src" }))
            .after(1500)
            .assert_status(&["read_file a.md  1 s", "grep x src  1 s", "4 s"])
            .result("1", "read_file", "one\ntwo\n", ToolOutcome::Ok)
            .assert_status(&["grep x src  1 s", "4 s"])
            .result("2", "grep", "no such place", ToolOutcome::Failed)
            .assert_printed(&[
                "  ✓ read_file a.md  12 ms, 2 lines, 8 B",
                "  ✗ grep x src  12 ms",
                "    no such place",
            ])
            .call("3", "write_file", json!({ "path": "b.md", "content": "x" }))
            .result("3", "write_file", "refused", ToolOutcome::Denied)
            .assert_printed(&["  ⊘ write_file b.md  denied"])
            .assert_status(&["4 s"]);
    }

    #[test]
    fn more_is_shown_to_those_who_want_it() {
        LiveViewFixture::new(true)
            .call("1", "read_file", json!({ "path": "a.md", "limit": 3 }))
            .result("1", "read_file", "one\ntwo\n", ToolOutcome::Ok)
            .assert_printed(&[
                "  ✓ read_file a.md  12 ms, 2 lines, 8 B",
                "    path: a.md",
                "    limit: 3",
                "    one",
                "    two",
            ])
            .call("2", "exec", json!({ "command": "make" }))
            .emit(Event::ToolOutput { call_id: "2", text: "cc a.c\ncc " })
            .assert_printed(&["    cc a.c"])
            .assert_status(&["exec make  0 s  cc", "0 s"])
            .emit(Event::ToolOutput { call_id: "2", text: "b.c" })
            .result("2", "exec", "cc a.c\ncc b.c", ToolOutcome::Ok)
            .assert_printed(&["    cc b.c", "  ✓ exec make  12 ms, 2 lines, 13 B"]);
    }

    #[test]
    fn a_call_that_fails_shows_its_cause_after_its_output() {
        let output: String = (1..=30).map(|line| format!("{line}\n")).collect();
        let result = format!("{output}Timed out after 60 s.");
        let expect_output: Vec<String> = (1..=10).map(|line| format!("    {line}")).collect();
        let mut fixture = LiveViewFixture::new(true);
        fixture
            .call("1", "exec", json!({ "command": "seq" }))
            .emit(Event::ToolOutput { call_id: "1", text: &output });
        assert_eq!(std::mem::take(&mut fixture.printed), expect_output);
        fixture.result("1", "exec", &result, ToolOutcome::Failed).assert_printed(&[
            "    … 20 more lines",
            "  ✗ exec seq  12 ms",
            "    Timed out after 60 s.",
        ]);
        fixture.call("2", "exec", json!({ "command": "seq" })).result(
            "2",
            "exec",
            &result,
            ToolOutcome::Failed,
        );
        let printed = std::mem::take(&mut fixture.printed);
        assert_eq!(printed[1..11], expect_output);
        assert_eq!(printed[11..], ["    … 21 more lines", "    Timed out after 60 s."]);
        fixture
            .call("3", "exec", json!({ "command": "x" }))
            .result("3", "exec", "Timed out after 60 s.", ToolOutcome::Failed)
            .assert_printed(&["  ✗ exec x  12 ms", "    Timed out after 60 s."]);
    }

    #[test]
    fn a_failed_command_tells_its_status_and_why() {
        let check = |text: &str, status: &str, lines: &[&str]| {
            let failure = super::CommandFailure::parse(text);
            assert_eq!((&*failure.status, &*failure.lines), (status, lines), "{text}");
        };
        check("Exit code: 3", "exit 3", &[]);
        check("a\nb\nExit code: 3\n(why)", "exit 3", &["b", "(why)"]);
        check("Killed by signal 9", "signal 9", &[]);
        check("odd", "failed", &["odd"]);
    }

    #[test]
    fn a_call_without_a_result_was_interrupted() {
        let mut fixture = LiveViewFixture::new(false);
        fixture.call("1", "exec", json!({ "command": "sleep 9" })).after(2000);
        let rows = fixture.live_view.end_calls(fixture.view.now);
        let rows: Vec<String> = rows.iter().map(StyledLine::text).collect();
        assert_eq!(rows, ["  ⊘ exec sleep 9  interrupted, 2.0 s"]);
        assert!(fixture.live_view.end_calls(fixture.view.now).is_empty());
    }

    #[test]
    fn changes_of_a_file_are_shown_and_folded() {
        let diff: String = (0..30).map(|line| format!("+{line}\n")).collect();
        let mut fixture = LiveViewFixture::new(false);
        fixture.call("1", "write_file", json!({ "path": "a", "content": "…" })).end_call(
            "1",
            "write_file",
            "created a",
            ToolOutcome::Ok,
            Some(&diff),
        );
        assert_eq!(fixture.printed.len(), 22);
        assert_eq!(fixture.printed[21], "    … 10 more lines; `-v` shows them");
        assert_eq!(fixture.printed[1], "    +0");
    }

    #[test]
    fn thinking_is_folded() {
        let piece = |text: &'static str| Event::Reasoning { message_id: "m", text };
        let mut fixture = LiveViewFixture::new(false);
        fixture
            .emit(piece("first this, "))
            .after(2000)
            .emit(piece("then that"))
            .assert_status(&["thinking… 2 s"])
            .assert_printed(&[])
            .emit(Event::Text { message_id: "m", text: "so" })
            .assert_printed(&["  thought for 2 s (21 characters)"])
            // While the answer is being printed, the status area is empty.
            .assert_status(&[])
            .after(2000)
            .assert_status(&["4 s"]);
        LiveViewFixture::new(true)
            .emit(piece("first this,\nthen that"))
            .assert_printed(&["    first this,"])
            .call("1", "todo", json!({}))
            .assert_printed(&["    then that", "  thought for 0 s (21 characters)"]);
    }

    #[test]
    fn waits_are_counted_down_and_money_is_counted_up() {
        let usage = Usage { input: 12_345, cached: 2000, output: 240, ..Usage::default() };
        let mut fixture = LiveViewFixture::new(false);
        fixture
            .emit(Event::Retry { attempt: 1, wait: Duration::from_secs(5), cause: "busy" })
            .assert_printed(&["  … attempt 2: busy"])
            .assert_status(&["retrying in 5 s"])
            .after(1200)
            .assert_status(&["retrying in 4 s"])
            .emit(Event::Usage { message_id: "m", usage, cost: Some(0.0123) })
            .assert_status(&["retrying in 4 s · 12.3k in, 240 out · $0.0123"])
            .emit(Event::CompactStart { tokens: 12_345, threshold: None })
            .assert_status(&["compacting 12,345 tokens… · 12.3k in, 240 out · $0.0123"]);
        let reply = Reply { usage, ..Reply::default() };
        fixture.live_view.set_context_window(50_000);
        fixture.emit(Event::Assistant { reply: &reply, is_final: true });
        let LiveViewFixture { live_view, view, .. } = fixture;
        let line = |width, is_detailed| live_view.status_line(view.now, width, is_detailed).text();
        assert_eq!(
            line(80, false),
            "━━╸─────── 26% context · 12.3k in (2.0k cached), 240 out · $0.0123 · 1.2 s"
        );
        assert_eq!(
            line(40, true),
            "26% context · 12.3k in (2.0k cached), 240 out · $0.0123 · 1.2 s · 1 request · 0 tool calls"
        );
    }

    #[test]
    fn a_sub_agent_goes_on_under_its_own_name() {
        let said = |text: &'static str| Event::ToolOutput { call_id: "1", text };
        let report =
            UserMessage { id: "turn-spawn1".into(), injected: true, ..UserMessage::default() };
        LiveViewFixture::new(false)
            .call("1", "spawn", json!({ "task": "look", "label": "look" }))
            .result(
                "1",
                "spawn",
                "started as `spawn1`; its report comes as a message",
                ToolOutcome::Ok,
            )
            .assert_printed(&[])
            .emit(said("spawn1: read_file(\"a\"): ok\n"))
            .after(2000)
            .assert_status(&["spawn1 look  2 s  read_file(\"a\"): ok", "2 s"])
            .emit(said("spawn1: finished\n"))
            .emit(Event::User(&report))
            .assert_printed(&["  ✓ spawn1 look  2.0 s, finished"])
            .assert_status(&["2 s"]);
    }

    #[test]
    fn a_call_may_have_the_id_of_the_one_that_started_a_sub_agent() {
        let output = |text: &'static str| Event::ToolOutput { call_id: "0", text };
        let report = |name: &str| UserMessage {
            id: format!("turn-{name}"),
            injected: true,
            ..UserMessage::default()
        };
        LiveViewFixture::new(false)
            .call("0", "spawn", json!({ "task": "look", "label": "look" }))
            .result("0", "spawn", "started as `spawn1`", ToolOutcome::Ok)
            .call("0", "spawn", json!({ "task": "find", "label": "find" }))
            .result("0", "spawn", "started as `spawn2`", ToolOutcome::Ok)
            .call("0", "exec", json!({ "command": "make" }))
            .emit(output("cc a.c\n"))
            .emit(output("spawn1: finished\n"))
            .assert_status(&[
                "spawn1 look  0 s  finished",
                "spawn2 find  0 s",
                "exec make  0 s  cc a.c",
                "0 s",
            ])
            .result("0", "exec", "cc a.c\n", ToolOutcome::Ok)
            .assert_printed(&["  ✓ exec make  12 ms, 7 B"])
            .emit(output("spawn2: failed\n"))
            .emit(Event::User(&report("spawn1")))
            .emit(Event::User(&report("spawn2")))
            .assert_printed(&["  ✓ spawn1 look  0 ms, finished", "  ✗ spawn2 find  0 ms, failed"]);
    }
}
