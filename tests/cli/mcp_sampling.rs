//! Sampling: MCP servers that request replies of the model during their calls. `tests/servers/sampler.py` does what the
//! arguments of its tool say; the official SDK for Python is the well-behaved peer.

use crate::budgets::with_price;
use crate::requirements::{require, skip};
use crate::screen::Key;
use crate::server::{Ending, Request, Response, calls, calls_all, fails, says, sends};
use crate::story::{RunResult, Story};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A story whose server `s` has this `sampling`; `None` if Python is missing.
pub(crate) fn story_with(sampling: &str, arguments: &[&str]) -> Option<Story> {
    if !require("python3") {
        return None;
    }
    let story = Story::new();
    let fifo = story.dir().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
    assert_eq!(fifo.metadata().unwrap().mode() & 0o777, 0o600);
    let script = format!("{}/tests/servers/sampler.py", env!("CARGO_MANIFEST_DIR"));
    let server_arguments = [&[script.as_str(), fifo.to_str().unwrap()], arguments].concat();
    let server = json!({ "command": "python3", "args": server_arguments, "write": [fifo], "sampling": sampling });
    Some(story.set("tools.mcpServers.s", server))
}

/// The parameters of a request with this text.
fn params(text: &str) -> Value {
    let content = json!({ "type": "text", "text": text });
    json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": 50 })
}

pub(crate) fn ask(text: &str) -> Value {
    json!({ "ask": params(text) })
}

#[expect(clippy::needless_pass_by_value, reason = "steps read best as values")]
pub(crate) fn call_work(steps: Value) -> crate::server::Responder {
    calls("mcp_s_work", json!({ "steps": steps }))
}

fn run<'s>(story: &'s Story, flags: &[&str]) -> RunResult<'s> {
    story.run([&["agent", "-m", "do it"], flags].concat())
}

/// The answers that the server got, as its tool tells the model.
fn answers(request: &Request) -> Value {
    tool_result(request)["answers"].clone()
}

fn tool_result(request: &Request) -> Value {
    let text = request.last_content();
    let json = text.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(json.unwrap_or_else(|| panic!("no JSON in {text}"))).unwrap()
}

/// The error messages among the answers.
fn errors(request: &Request) -> Vec<String> {
    let all = answers(request);
    let messages = all.as_array().unwrap().iter();
    messages.filter_map(|it| it["message"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_server_gets_a_reply_and_nothing_of_the_conversation() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let image = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
    let request = json!({
        "systemPrompt": "Be short.", "maxTokens": 50, "temperature": 0.7, "includeContext": "allServers",
        "messages": [
            { "role": "user", "content": { "type": "text", "text": "first" } },
            { "role": "assistant", "content": { "type": "text", "text": "second" } },
            { "role": "user", "content": [{ "type": "text", "text": "third" },
                                          { "type": "image", "data": image, "mimeType": "image/png" }] },
        ],
    });
    let story = with_price(story)
        .workspace_file("memory/MEMORY.md", "The safe is behind the picture.")
        .script([call_work(json!([{ "ask": request }])), says("sampled words"), says("Done.")]);
    let result = run(&story, &["--json", "-s", "a:b"]).json();
    assert_eq!(result["text"], "Done.");
    // The cost is the turn's.
    assert_eq!(result["cost_usd"], 3.0);
    assert_eq!(result["usage"]["output"], 21);
    story.run(["usage", "--json"]).stdout_has("\"calls\":3");
    let requests = story.requests();
    let sampled = &requests[1];
    assert_eq!(requests.len(), 3);
    assert_eq!(sampled.body["max_tokens"], 50);
    assert_eq!(sampled.body["temperature"], 0.7);
    assert!(sampled.body.get("tools").is_none(), "{}", sampled.raw);
    for phrase in ["safe", "do it", "nanobot", "mcp_s_work", story.home().to_str().unwrap()] {
        assert!(!sampled.raw.contains(phrase), "{phrase:?} in {}", sampled.raw);
    }
    let roles: Vec<Value> = sampled.messages().iter().map(|it| it["role"].clone()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert!(sampled.messages()[0]["content"].as_str().unwrap().ends_with("\n\nBe short."));
    assert!(sampled.raw.contains(image));
    assert_eq!(
        tool_result(&requests[2]),
        json!({
            "capabilities": { "sampling": {} },
            "answers": [{ "role": "assistant", "content": { "type": "text", "text": "sampled words" },
                          "model": "scripted", "stopReason": "endTurn" }],
        })
    );
    // Nothing of it is in the session but the tool's result.
    let session = story.session("a_b.jsonl");
    assert!(
        !session
            .iter()
            .any(|line| line.to_string().contains("Be short.") && line["role"] != "assistant")
    );
    assert_eq!(session.iter().filter(|line| line["role"] == "user").count(), 1);
}

#[test]
fn servers_may_not_use_the_model_unless_the_config_says_so() {
    let Some(story) = story_with("off", &[]) else {
        return;
    };
    let story = story.script([call_work(json!([ask("hi")])), says("Done.")]);
    run(&story, &[]).stdout("Done.\n");
    let result = tool_result(&story.last_request());
    assert_eq!(result["capabilities"], json!({}));
    assert_eq!(result["answers"][0]["code"], -32601);
}

#[test]
fn a_request_that_needs_approval_is_refused_where_nobody_can_be_asked() {
    let Some(story) = story_with("ask", &[]) else {
        return;
    };
    let story = story.script([call_work(json!([ask("hi")])), says("Done.")]);
    run(&story, &[]).stdout("Done.\n");
    let requests = story.requests();
    assert_eq!(requests.len(), 2);
    let why = "its user has to approve each request to the model, and cannot be asked in this run";
    assert_eq!(errors(&requests[1]), [why]);
}

#[test]
fn the_user_is_not_asked_about_a_request_that_the_model_cannot_get() {
    let Some(story) = story_with("ask", &[]) else {
        return;
    };
    let image = json!({ "role": "user", "content": { "type": "image", "data": "aGk=" } });
    let request = json!({ "ask": { "messages": [image], "maxTokens": 1 } });
    let story = story.script([call_work(json!([request])), says("Done.")]);
    run(&story, &[]).stdout("Done.\n");
    assert_eq!(errors(&story.requests()[1]), ["an image has no known format"]);
}

#[test]
fn the_user_sees_what_a_server_requests_and_decides() {
    let Some(story) = story_with("ask", &[]) else {
        return;
    };
    let story = story.script([
        call_work(json!([ask("tell me \u{1b}[31mall"), ask("and more")])),
        says("sampled"),
        says("All is done."),
    ]);
    let mut screen = story.screen(30, 100).args(["repl"]);
    screen.until("lists").until_prompt("> ");
    screen.type_("do it").press(Key::Enter);
    screen.until("Allow the server s to use the model?");
    screen.until("messages: user: tell me").until("this [s]ession: the server s may use the model");
    assert!(!screen.text().contains("[a]lways"), "{}", screen.text());
    screen.until_prompt("  allow? ").type_("y").until("and more").until_prompt("  allow? ");
    screen.type_("n").until("All is done.");
    screen.exit_with_ctrl_d();
    let requests = story.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(answers(&requests[2])[0]["content"]["text"], "sampled");
    assert_eq!(errors(&requests[2]), ["the user declined"]);
}

#[test]
fn a_request_outside_of_a_call_is_refused() {
    let Some(story) = story_with("on", &["early"]) else {
        return;
    };
    let story = story.script([call_work(json!([])), says("Done.")]);
    run(&story, &[]).stdout("Done.\n");
    let requests = story.requests();
    assert_eq!(requests.len(), 2);
    let why = "the model answers only while a call of a tool is in progress";
    assert_eq!(errors(&requests[1]), [why]);
    // Neither is a call by hand part of a turn.
    let steps = json!({ "steps": [ask("hi")] }).to_string();
    story.run(["tool", "run", "s", "work", &steps]).stdout_has(why);
    let direct = story.run(["tool", "run", "mcp_s_work", &steps]);
    direct.stdout_has("the call is not part of a turn, so there is no model");
}

#[test]
fn a_thousand_requests_of_a_call_are_bounded() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let story = story.set("agents.defaults.maxToolResultChars", json!(200_000));
    story.server().always(Box::new(|request| {
        match request.messages().last().unwrap()["role"].as_str() {
            _ if request.body.get("tools").is_none() => says("sampled")(request),
            Some("tool") => says("Done.")(request),
            _ => calls("mcp_s_work", json!({ "steps": [ask("hi")], "times": 1000 }))(request),
        }
    }));
    run(&story, &[]).stdout("Done.\n");
    let requests = story.requests();
    assert_eq!(requests.len(), 18);
    let refused = errors(requests.last().unwrap());
    assert_eq!(refused.len(), 984);
    assert!(refused.iter().all(|why| why == "a call may make at most 16 requests"));
    // A server that does not wait for answers is cut off, or bounded in the same way.
    story.server().always(Box::new(|request| {
        match request.messages().last().unwrap()["role"].as_str() {
            _ if request.body.get("tools").is_none() => says("sampled")(request),
            Some("tool") => says("Done.")(request),
            _ => {
                calls("mcp_s_work", json!({ "steps": [{ "send": params("hi") }], "times": 1000 }))(
                    request,
                )
            }
        }
    }));
    run(&story, &["--new"]).stdout("Done.\n");
    assert!(story.requests().len() <= 18 + 18);
}

#[test]
fn parallel_calls_of_a_server_take_turns() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let call = |text: &str| ("mcp_s_work", json!({ "steps": [ask(text)] }));
    let story = story.script([
        calls_all([call("hi"), call("hi")]),
        says("sampled"),
        says("sampled"),
        says("Done."),
    ]);
    run(&story, &[]).stdout("Done.\n");
    let results = story.last_request().tool_results();
    let counts = results.iter().map(|result| result.matches("endTurn").count());
    assert_eq!(counts.collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn invalid_and_huge_requests_cost_nothing() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let huge = "x".repeat(100_001);
    let steps = json!([
        { "ask": {} },
        { "ask": { "messages": "hi", "maxTokens": 1 } },
        { "ask": { "messages": [{ "role": "system", "content": { "type": "text", "text": "obey" } }], "maxTokens": 1 } },
        { "ask": { "messages": [{ "role": "user", "content": { "type": "image", "data": "aGk=" } }], "maxTokens": 1 } },
        ask(&huge),
        { "ask": { "messages": params("hi")["messages"], "maxTokens": 9, "tools": [{ "name": "exec" }] } },
    ]);
    let story = story.script([call_work(steps), says("Done.")]);
    run(&story, &[]).stdout("Done.\n");
    let requests = story.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(
        errors(&requests[1]),
        [
            "there are no `messages`",
            "there are no `messages`",
            "the `role` of a message is neither `user` nor `assistant`",
            "an image has no known format",
            "a request may have at most 100000 characters",
            "tools are not supported",
        ]
    );
}

#[test]
fn the_limit_of_a_reply_is_the_lower_one() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let mut high = params("hi");
    high["maxTokens"] = json!(1_000_000);
    let story = story.set("agents.defaults.maxTokens", json!(300)).script([
        call_work(json!([{ "ask": high }])),
        crate::server::replies(json!({ "role": "assistant", "content": "cut" }), "length"),
        says("Done."),
    ]);
    run(&story, &[]).stdout("Done.\n");
    let requests = story.requests();
    assert_eq!(requests[1].body["max_tokens"], 300);
    assert_eq!(answers(&requests[2])[0]["stopReason"], "maxTokens");
}

#[test]
fn a_server_learns_that_the_model_failed_and_not_why() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let story = story.script([
        call_work(json!([ask("one"), ask("two")])),
        fails(400, "the account of the.user@example.org is odd"),
        says(" "),
        says("Done."),
    ]);
    run(&story, &[]).stdout("Done.\n");
    let last = story.last_request();
    assert_eq!(errors(&last), ["the model did not answer", "the model returned an empty reply"]);
    assert!(!last.raw.contains("the.user"), "{}", last.raw);
}

#[test]
fn the_budget_of_the_run_bounds_the_requests() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let story =
        with_price(story).script([call_work(json!([ask("one"), ask("two")])), says("sampled")]);
    let run_result = run(&story, &["--max-cost", "2"]);
    assert_eq!(run_result.code(), 4, "{}", run_result.text());
    run_result.stderr_has("stopped by the budget of $2");
    assert_eq!(story.requests().len(), 2);
    let session = story.session("cli_direct.jsonl");
    let result = session.iter().find(|line| line["role"] == "tool").unwrap().to_string();
    assert!(result.contains("the budget for the model is used up"), "{result}");
}

/// A model whose reply to the server never comes. It lets the server go on.
fn stalls(story: &Story) -> crate::server::Responder {
    let fifo = story.dir().join("fifo");
    Box::new(move |request| {
        // The server reads the pipe once its request is sent.
        std::fs::write(&fifo, "go on").unwrap();
        sends(Response::events::<&[u8]>([]).ending(Ending::Stall))(request)
    })
}

#[test]
fn a_call_ends_with_its_server_or_its_answer_and_not_with_the_model() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let send = json!({ "send": params("hi") });
    story.server().script([
        call_work(json!([send, "wait", "exit"])),
        stalls(&story),
        call_work(json!([send, "wait", "answer"])),
        stalls(&story),
        call_work(json!([send, "wait", "withdraw", ask("again")])),
        stalls(&story),
        says("sampled"),
        says("Done."),
    ]);
    let run_result = run(&story, &["--json"]);
    let result = run_result.json();
    assert_eq!(result["text"], "Done.", "{}", run_result.error_text());
    run_result.error_text();
    let requests = story.requests();
    assert_eq!(requests.len(), 8);
    let died = requests[2].last_content();
    assert!(
        died.contains("it exited with status 3") || died.contains("may have taken effect"),
        "{died}"
    );
    assert_eq!(answers(&requests[4]), json!([]));
    let withdrawn = answers(&requests[7]);
    assert_eq!(withdrawn[2]["content"]["text"], "sampled", "{withdrawn}");
    // A cancelled request counts too.
    assert!(result["usage"]["input"].as_u64() > Some(0));
}

#[test]
fn an_interrupt_and_the_timeout_of_the_run_end_a_request() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let send = json!({ "send": params("hi") });
    let steps = || json!([send, "wait", ask("never answered")]);
    story.server().script([call_work(steps()), stalls(&story)]);
    let child = story.command(["agent", "-m", "do it"]).spawn().unwrap();
    story.server().wait_for_requests(2);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(story.wait(child).signal(), Some(2));
    story.server().script([call_work(steps()), stalls(&story)]);
    let result = run(&story, &["--new", "--timeout", "2"]);
    assert_eq!(result.code(), 124);
    result.error_text();
    assert_eq!(story.requests().len(), 4);
}

#[test]
fn the_time_of_the_model_is_not_that_of_the_server() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let (sender, stream) = Response::streaming();
    let story = story.set("tools.mcpServers.s.toolTimeout", json!(1)).script([
        call_work(json!([ask("hi")])),
        Box::new(move |_| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                // The reply takes longer than the call may.
                std::thread::sleep(std::time::Duration::from_millis(1500));
                let delta = json!({ "choices": [{ "index": 0, "delta": { "content": "late" }, "finish_reason": "stop" }] });
                drop(sender.send(format!("data: {delta}\n\ndata: [DONE]\n\n").into_bytes()));
            });
            stream.clone()
        }),
        says("Done."),
    ]);
    run(&story, &[]).stdout("Done.\n");
    assert_eq!(answers(&story.last_request())[0]["content"]["text"], "late");
}

#[test]
fn a_sub_agent_lends_its_own_model_and_its_cost_counts() {
    let Some(story) = story_with("on", &[]) else {
        return;
    };
    let story = with_price(story);
    story.server().always(Box::new(|request| {
        let text = request.raw.as_str();
        match request.messages().last().unwrap()["role"].as_str() {
            _ if request.body.get("tools").is_none() => says("sampled")(request),
            _ if text.contains("Sub-agent `spawn1`") => says("Done.")(request),
            _ if text.contains("sub-agent of nanobot") && text.contains("sampled") => {
                says("It works.")(request)
            }
            _ if text.contains("sub-agent of nanobot") => call_work(json!([ask("hi")]))(request),
            Some("tool") => says("I wait.")(request),
            _ => calls("spawn", json!({ "task": "use the server" }))(request),
        }
    }));
    let run_result = run(&story, &["--json"]);
    let result = run_result.json();
    assert_eq!(result["text"], "Done.", "{}", run_result.error_text());
    run_result.error_text();
    let requests = story.requests();
    assert!(requests.iter().any(|request| request.body.get("tools").is_none()));
    assert_eq!(result["cost_usd"].as_f64().unwrap(), requests.len() as f64);
}

/// A server with the official SDK for Python, which requests a reply with an image and without one.
const SDK_SERVER: &str = r#"
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import SamplingMessage, TextContent

server = MCPServer("sdk")

@server.tool()
async def summarize(text: str, ctx: Context) -> str:
    """Summarizes a text."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=f"Summarize: {text}"))
    result = await ctx.session.create_message([message], max_tokens=40, system_prompt="You summarize.")
    return f"{result.model} says {result.content.text} ({result.stop_reason})"

server.run()
"#;

#[test]
fn the_official_sdk_gets_a_reply() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mcp");
    let python = folder.join("venv/bin/python");
    if !folder.join("versions").exists() || !python.exists() {
        return skip("`.ci/fetch` has not fetched the SDK");
    }
    let story = Story::new().file("server.py", SDK_SERVER);
    let base = std::fs::read_to_string(folder.join("venv/pyvenv.cfg")).unwrap();
    let base = base.lines().find_map(|line| line.strip_prefix("home = ")).unwrap();
    let server = json!({ "command": python, "args": [story.dir().join("server.py")], "sampling": "on",
                         "read": [folder, Path::new(base).parent().unwrap()], "startTimeout": 60 });
    let story =
        story.set("tools.mcpServers.s", server).set("tools.allow", json!(["mcp_s_*"])).script([
            calls("mcp_s_summarize", json!({ "text": "a long story" })),
            says("a story"),
            says("Done."),
        ]);
    let run_result = run(&story, &[]);
    assert_eq!(run_result.text(), "Done.\n", "{}", run_result.error_text());
    run_result.error_text();
    let requests = story.requests();
    assert_eq!(requests[1].last_content(), "Summarize: a long story");
    let result = requests[2].last_content();
    assert!(result.contains("scripted says a story (endTurn)"), "{result}");
}
