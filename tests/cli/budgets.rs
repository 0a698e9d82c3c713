//! Costs, budgets, and the end of runs that exceed them.

use crate::server::{Ending, Response, calls, fails, replies, says, sends};
use crate::story::Story;
use serde_json::{Value, json};
use std::process::Command;

/// Sets a price for the scripted model. One dollar per request of any length is 100,000 dollars per million of the ten
/// tokens that each answer has.
pub(crate) fn with_price(story: Story) -> Story {
    story.set("models", json!({ "scripted": { "price": { "input": 0, "output": 1e6 / 7.0 } } }))
}

fn read_ledger(story: &Story) -> Vec<Value> {
    let text =
        std::fs::read_to_string(story.home().join(".nanobot/usage.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_call_is_a_line_of_the_ledger() {
    let story = with_price(Story::new()).script([calls("list_dir", json!({})), says("x y z")]);
    let result = story.run(["agent", "-m", "hi", "-s", "a:b", "--json"]).json();
    assert_eq!(result["cost_usd"], 2.0);
    let lines = read_ledger(&story);
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert_eq!(line["session"], "a:b");
        assert_eq!(line["turn"], result["turn"]);
        assert_eq!(line["provider"], "custom");
        assert_eq!(line["model"], "scripted");
        assert_eq!(line["cause"], "turn");
        assert_eq!(line["outcome"], "ok");
        assert_eq!(line["usd"], 1.0);
        assert_eq!(line["output"], 7);
        assert!(line["input"].as_u64().unwrap() > 100);
        assert_eq!(line["day"], "2026-01-02");
    }
    assert_eq!(lines[1]["day_usd"], 2.0);
    assert_eq!(lines[1]["month_usd"], 2.0);
}

#[test]
fn a_limit_that_the_last_request_exceeds_is_named() {
    let story = with_price(Story::new()).script([says("One."), says("Two."), says("Three.")]);
    let result = story.run(["agent", "-m", "hi", "--max-total-tokens", "10"]).stdout("One.\n");
    result.stderr_has("nanobot: the last request exceeded `--max-total-tokens 10`: ");
    let result = story.run(["agent", "-m", "hi", "--max-cost", "0.5"]).stdout("Two.\n");
    result.stderr("nanobot: the last request exceeded `--max-cost 0.5`: $1.00 in all\n");
    // Within the limits nothing is said.
    story
        .run(["agent", "-m", "hi", "--max-cost", "1.5", "--max-total-tokens", "100000"])
        .stdout("Three.\n");
}

/// A story whose server has an address that does not look like one of this machine.
fn with_remote_server() -> Story {
    let story = Story::new();
    let base = format!("http://127.1:{}/v1", story.server().port);
    story.set("providers.custom.apiBase", json!(base))
}

#[test]
fn an_unknown_cost_is_null() {
    let story = with_remote_server().script([says("x"), says("y")]);
    let result = story.run(["agent", "-m", "hi", "--json"]);
    assert_eq!(result.json()["cost_usd"], Value::Null);
    result.stderr_has("unencrypted");
    assert_eq!(read_ledger(&story)[0]["usd"], Value::Null);
    story.run(["agent", "-m", "hi"]).stdout("y\n").stderr_has("unencrypted");
    // It is not shown as none anywhere.
    let unknown = "unknown (2 calls without a price)";
    story.run(["status"]).stdout_has(&format!("{unknown} today, {unknown} this month"));
    let spent = story.run(["status", "--json"]).json()["spent"].clone();
    let expect = json!({ "day_usd": null, "day_unpriced_calls": 2, "month_usd": null, "month_unpriced_calls": 2, "later_day": null });
    assert_eq!(spent, expect);
    story.run(["usage"]).stdout_has(&format!("cost {unknown}; set `models.NAME.price`"));
    assert_eq!(story.run(["usage", "--json"]).json_lines()[0]["usd"], Value::Null);
    let story = story.set("budget", json!({ "daily": 5 }));
    story.run(["usage"]).stdout_has(&format!("budget: today {unknown} of $5.00"));
}

#[test]
fn a_server_of_the_own_network_costs_nothing() {
    let story = Story::new().set("budget", json!({ "daily": 1 })).script([says("x")]);
    let result = story.run(["agent", "-m", "hi", "--json"]).json();
    assert_eq!(result["cost_usd"], 0.0);
    let price = |base: &str| {
        let story =
            Story::bare().config(&json!({ "providers": { "custom": { "apiBase": base } } }));
        story.run(["model", "show", "custom/m", "--json"]).json()["prices"].clone()
    };
    for base in [
        "http://192.168.1.7:8000/v1",
        "http://[::1]/v1",
        "http://box.local/v1",
        "https://100.64.0.1/v1",
    ] {
        assert_eq!(price(base)["value"][0]["output"], 0.0, "{base}");
    }
    assert_eq!(price("https://models.example/v1"), Value::Null);
    // The price of the config takes precedence.
    let story = with_price(Story::new()).script([says("x")]);
    let result = story.run(["agent", "-m", "hi", "--json"]).json();
    assert_eq!(result["cost_usd"], 1.0);
}

#[test]
fn a_limit_counts_the_highest_price_of_the_family_of_an_unlisted_model() {
    let story = with_remote_server()
        .set("agents.defaults.model", json!("claude-unheard-of-9"))
        .set("budget", json!({ "daily": 50 }))
        .script([calls("list_dir", json!({})), says("x")]);
    let result = story.run(["agent", "-m", "hi", "--json"]);
    assert!(result.json()["cost_usd"].as_f64().unwrap() > 0.0);
    let stderr = result.error_text();
    let phrase = "the price of `claude-unheard-of-9` is unknown; `budget` counts the highest of its family: $";
    assert_eq!(stderr.matches(phrase).count(), 1, "{stderr}");
}

#[test]
fn usage_missing_in_a_reply_is_estimated() {
    let answer = json!({ "choices": [{ "message": { "content": "four score and seven" }, "finish_reason": "stop" }] });
    let story = with_price(Story::new()).script([sends(Response::json(200, &answer))]);
    let result = story.run(["agent", "-m", "hi", "--json"]).json();
    assert_eq!(result["usage"]["estimated"], true);
    assert_eq!(result["usage"]["output"], 5);
    assert!(result["usage"]["input"].as_u64().unwrap() > 100);
    assert!(result["cost_usd"].as_f64().unwrap() > 0.5);
    assert_eq!(read_ledger(&story)[0]["estimated"], true);
}

#[test]
fn every_interrupted_answer_is_charged() {
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"four score and \"}}]}\n\n";
    let answer = Response::events([event]).ending(Ending::Disconnect);
    let story = with_price(Story::new()).script((0..4).map(|_| sends(answer.clone())));
    let result = story
        .run(["agent", "-m", "hi", "--json"])
        .status(69)
        .stderr_has("sent an incomplete response")
        .json();
    let lines = read_ledger(&story);
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0]["outcome"], "failed");
    assert!(lines[0]["usd"].as_f64().unwrap() > 0.0);
    // The result has the same sums.
    let sum = |key: &str| -> u64 { lines.iter().filter_map(|line| line[key].as_u64()).sum() };
    assert_eq!(result["usage"]["input"], sum("input"));
    assert_eq!(result["usage"]["output"], sum("output"));
    assert_eq!(result["usage"]["estimated"], true);
    let usd: f64 = lines.iter().filter_map(|line| line["usd"].as_f64()).sum();
    assert!((result["cost_usd"].as_f64().unwrap() - usd).abs() < 1e-6);
}

#[test]
fn a_cost_reported_by_a_router_is_used() {
    let check = |provider: &str, usage: Value, expect: f64| {
        let mut counted = json!({ "prompt_tokens": 10, "completion_tokens": 7 });
        let more = usage.as_object().unwrap().clone();
        counted.as_object_mut().unwrap().extend(more);
        let answer = json!({ "choices": [{ "message": { "content": "x" }, "finish_reason": "stop" }], "usage": counted });
        let story = with_price(Story::new());
        let base = format!("http://127.0.0.1:{}/v1", story.server().port);
        let story = story
            .set("providers.openrouter", json!({ "apiKey": "key-of-the-story", "apiBase": base }))
            .set("agents.defaults.provider", json!(provider))
            .script([sends(Response::json(200, &answer))]);
        let result = story.run(["agent", "-m", "hi", "--json"]).json();
        assert_eq!(result["cost_usd"], expect, "{provider} {usage}");
    };
    check("openrouter", json!({ "cost": 0.25 }), 0.25);
    let own_key =
        json!({ "cost": 0, "is_byok": true, "cost_details": { "upstream_inference_cost": 0.5 } });
    check("openrouter", own_key, 0.5);
    check("openrouter", json!({ "cost": -3 }), 1.0);
    // For other providers the meaning of the field is unknown.
    check("custom", json!({ "cost": 0.25 }), 1.0);
    // Reasoning tokens are charged, even if they only appear in the total.
    check("custom", json!({ "total_tokens": 24 }), 2.0);
}

#[test]
fn a_timed_out_request_is_charged_as_estimated() {
    let silent = || sends(Response::events([""; 0]).ending(Ending::Stall));
    let story =
        with_price(Story::new()).set("budget", json!({ "daily": 100_000 })).script([silent()]);
    story.run(["agent", "-m", "hi", "--timeout", "3"]).status(124).stderr_has("`--timeout`");
    let lines = read_ledger(&story);
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["outcome"], &lines[0]["estimated"]), (&json!("failed"), &json!(true)));
    // Each attempt of an interrupted answer is charged.
    let cut = || sends(Response::events(["data: {\"choices\":[]}\n\n"]).ending(Ending::Disconnect));
    let story = with_price(Story::new()).script([cut(), cut(), says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    assert_eq!(read_ledger(&story).len(), 3);
}

#[test]
fn the_ledger_day_never_goes_back() {
    let story = with_price(Story::new()).set("budget", json!({ "daily": 1 })).script([says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    let mut earlier = story.command(["agent", "-m", "hi"]);
    earlier.env("NANOBOT_TEST_TIME", "2026-01-01T23:00:00Z");
    let result = story.wait(earlier.stderr(std::process::Stdio::piped()).spawn().unwrap());
    result.status(4).stderr_has("budget.daily");
}

#[test]
fn a_run_stops_at_its_cost_limit_and_reports_its_result() {
    let halfway = json!({ "content": "Half of it.", "tool_calls": [
        { "id": "c", "type": "function", "function": { "name": "list_dir", "arguments": "{}" } }] });
    let story = with_price(Story::new()).script([replies(halfway.clone(), "tool_calls")]);
    story
        .run(["agent", "-m", "hi", "--max-cost", "1"])
        .status(4)
        .stdout("Half of it.\n")
        .stderr_has("budget of $1")
        .stderr_has("the printed answer is incomplete");
    story.server().script([replies(halfway, "tool_calls")]);
    let result = story
        .run(["agent", "-m", "hi", "--max-cost", "1", "--json"])
        .status(4)
        .stderr_has("budget of $1")
        .json();
    assert_eq!(result["partial"], true);
    assert_eq!(result["text"], "Half of it.");
    assert_eq!(result["error"]["cause"], "budget");
    // The interrupted turn can be resumed.
    story.server().script([says("All of it.")]);
    story.run(["agent", "--resume"]).stdout("All of it.\n");
}

#[test]
fn a_cost_limit_requires_a_price() {
    let story = with_remote_server();
    story
        .run(["agent", "-m", "hi", "--max-cost", "1"])
        .status(78)
        .stderr_has("the price of `scripted` is unknown");
    assert!(story.requests().is_empty());
    let story = story.set("budget", json!({ "daily": 5 }));
    story.run(["agent", "-m", "hi"]).status(78).stderr_has("`budget`");
    assert!(story.requests().is_empty());
    // Local models are free.
    let base = format!("http://127.0.0.1:{}/v1", story.server().port);
    let story = story
        .set("providers.ollama", json!({ "apiBase": base }))
        .set("agents.defaults.provider", json!("ollama"))
        .script([says("x")]);
    story.run(["agent", "-m", "hi", "--max-cost", "0.01"]).stdout("x\n");
}

#[test]
fn days_months_and_sessions_have_budgets() {
    for (name, session) in [("daily", "other"), ("monthly", "other"), ("perSession", "cli:direct")]
    {
        let story = with_price(Story::new())
            .set("budget", json!({ name: 2 }))
            .script([says("1"), says("2")]);
        story.run(["agent", "-m", "hi"]).stdout("1\n");
        story.run(["agent", "-m", "hi"]).stdout("2\n");
        story.run(["agent", "-m", "hi", "-s", session]).status(4).stderr_has(&format!(
            "try: `nanobot config set budget.{name} …` with a higher limit, or "
        ));
        assert_eq!(story.requests().len(), 2);
        if name == "perSession" {
            story.server().script([says("3")]);
            story.run(["agent", "-m", "hi", "-s", "new"]).stdout("3\n");
        } else {
            // Another day and another month.
            story.server().script([says("3")]);
            let later = story.command(["agent", "-m", "hi"]);
            story.wait(start_at(later, "2026-02-03T00:00:00Z")).stdout("3\n");
        }
    }
}

fn start_at(mut command: Command, time: &str) -> std::process::Child {
    command.env("NANOBOT_TEST_TIME", time);
    command.spawn().unwrap()
}

#[test]
fn a_recording_costs_nothing() {
    let story = with_price(Story::new()).set("budget", json!({ "daily": 1 })).script([says("x")]);
    story.run(["agent", "-m", "hi", "--record", "r"]).stdout("x\n");
    for _ in 0..3 {
        let result = story.run(["agent", "-m", "hi", "--replay", "r", "--json"]).json();
        assert_eq!(result["cost_usd"], 0.0);
    }
    assert_eq!(read_ledger(&story).len(), 1);
}

/// `processes` concurrent runs with a budget for `calls` more calls: exactly these are made.
fn check_exact_spending(processes: usize, calls: usize) {
    let story = with_price(Story::new()).set("budget", json!({ "daily": calls }));
    story.server().always(says("x"));
    let commands: Vec<Command> = (0..processes)
        .map(|number| story.command(["agent", "-m", "hi", "-s", &format!("s:{number}")]))
        .collect();
    let mut statuses: Vec<i32> = std::thread::scope(|scope| {
        let runs: Vec<_> = commands
            .into_iter()
            .map(|mut command| {
                scope.spawn(move || command.output().unwrap().status.code().unwrap())
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    statuses.sort_unstable();
    let mut expect = vec![0; calls];
    expect.extend(vec![4; processes - calls]);
    assert_eq!(statuses, expect);
    assert_eq!(story.requests().len(), calls);
    let lines = read_ledger(&story);
    assert_eq!(lines.len(), calls);
    assert_eq!(lines.last().unwrap()["day_usd"], calls as f64);
    let entries = std::fs::read_dir(story.home().join(".nanobot/usage.under-way")).unwrap();
    assert_eq!(entries.count(), 0);
}

#[test]
fn sixty_four_concurrent_runs_spend_exactly_the_budget() {
    check_exact_spending(64, 20);
}

#[test]
fn a_reservation_of_a_killed_run_is_released() {
    let story = with_price(Story::new()).set("budget", json!({ "daily": 1 })).script([
        sends(
            Response::events(["data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"])
                .ending(Ending::Stall),
        ),
        says("x"),
    ]);
    let mut child = story
        .command(["agent", "-m", "hi", "-s", "a"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let under_way = story.home().join(".nanobot/usage.under-way");
    let reserved = || std::fs::read_dir(&under_way).map_or(0, Iterator::count);
    story.server().wait_for_requests(1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(reserved(), 1);
    story.run(["agent", "-m", "hi", "-s", "b"]).stdout("x\n");
    assert_eq!(reserved(), 0);
}

#[test]
fn a_call_that_fails_costs_nothing_and_reserves_nothing() {
    let story = with_price(Story::new())
        .set("budget", json!({ "daily": 1 }))
        .script([fails(400, "no"), says("x")]);
    story.run(["agent", "-m", "hi"]).status(1).stderr_has("no");
    assert!(read_ledger(&story).is_empty());
    story.run(["agent", "-m", "hi"]).stdout("x\n");
}

#[test]
fn an_unwritable_ledger_stops_only_runs_with_a_budget() {
    let story = with_price(Story::new()).script([says("x")]);
    std::fs::create_dir(story.home().join(".nanobot/usage.jsonl")).unwrap();
    story.run(["agent", "-m", "hi"]).stdout("x\n").stderr_has("the cost was not recorded");
    let story = story.set("budget", json!({ "daily": 1 }));
    story.run(["agent", "-m", "hi"]).status(74).stderr_has("usage.jsonl");
    assert_eq!(story.requests().len(), 1);
}

#[test]
fn a_run_waiting_for_a_reservation_can_be_interrupted() {
    let stalls = || {
        let event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        sends(Response::events([event]).ending(Ending::Stall))
    };
    let story = with_price(Story::new()).set("budget", json!({ "daily": 1 })).script([stalls()]);
    let run = |session: &str| {
        let mut command = story.command(["agent", "-m", "hi", "-s", session]);
        let pipe = std::process::Stdio::piped;
        command.stdout(pipe()).stderr(pipe()).spawn().unwrap()
    };
    let mut first = run("a");
    story.server().wait_for_requests(1);
    let mut second = run("b");
    // A notice says that it waits; then it does.
    let mut line = String::new();
    let mut stderr = std::io::BufReader::new(second.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(line.contains("waiting for other runs"), "{line}");
    let pid = rustix::process::Pid::from_child(&second);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = second.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2));
    assert_eq!(story.requests().len(), 1);
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn costs_of_a_clock_that_was_ahead_do_not_lock_the_budget() {
    let story =
        with_price(Story::new()).set("budget.daily", json!(1.0)).script([says("1"), says("2")]);
    let mut command = story.command(["agent", "-m", "x"]);
    command.env("NANOBOT_TEST_TIME", "2027-05-01T12:00:00Z");
    story.wait(command.spawn().unwrap()).stdout("1\n");
    story
        .run(["agent", "-m", "x"])
        .stdout("2\n")
        .stderr_has("the clock was ahead: the last cost was recorded for 2027-05-01");
    story.run(["agent", "-m", "x"]).status(4).stderr_has("budget.daily");
    story
        .run(["status"])
        .stdout_has("some costs are dated up to 2027-05-01, since the clock was ahead");
}
