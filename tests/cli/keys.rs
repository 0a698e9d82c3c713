//! API keys: their sources, error messages for invalid ones, and that they are sent nowhere else.

use crate::server::{Ending, Response, calls, fails, replies, says, sends};
use crate::story::{Story, write};
use serde_json::{Value, json};
use std::path::Path;

/// A story whose provider has no key in the config.
fn story_without_key() -> Story {
    let story = Story::new();
    let base = format!("http://127.0.0.1:{}/v1", story.server().port);
    story.set("providers.custom", json!({ "apiBase": base }))
}

fn authorization_header(story: &Story) -> String {
    let requests = story.requests();
    let header = requests.last().unwrap().header("authorization");
    header.unwrap_or("none").to_owned()
}

#[test]
fn a_key_comes_from_a_file_or_a_command() {
    let story = story_without_key();
    write(&story.home().join("keys/mine"), b"  key-in-a-file\nand more\n");
    let story = story.set("providers.custom.apiKeyFile", json!("~/keys/mine")).script([says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    assert_eq!(authorization_header(&story), "Bearer key-in-a-file");
    // The command runs once per run, and its stderr is not part of the key.
    let story = story_without_key()
        .set(
            "providers.custom.apiKeyCommand",
            json!("echo run >> count; echo hm >&2; echo key-of-a-command"),
        )
        .script([calls("list_dir", json!({})), says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    assert_eq!(authorization_header(&story), "Bearer key-of-a-command");
    // A literal key in the config has precedence.
    let story = story.set("providers.custom.apiKey", json!("key-as-text")).script([says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    assert_eq!(authorization_header(&story), "Bearer key-as-text");
}

#[test]
fn a_file_or_command_without_a_key_is_reported() {
    let check = |key: &str, value: &str, message: &str| {
        let story = story_without_key().set(&format!("providers.custom.{key}"), json!(value));
        story.run(["agent", "-m", "hi"]).status(78).stderr_has(message);
        assert!(story.requests().is_empty());
    };
    check("apiKeyFile", "/nowhere/at/all", "read the key from `/nowhere/at/all`");
    check("apiKeyFile", "/dev/null", "is empty");
    check("apiKeyCommand", "exit 3", "the command failed: exit status: 3");
    check("apiKeyCommand", "true", "the command printed nothing");
    check("apiKeyCommand", "no-such-program-at-all", "the command failed: exit status: 127");
}

#[test]
fn a_key_comes_from_the_service_manager() {
    let story = Story::new();
    let base = format!("http://127.0.0.1:{}/v1", story.server().port);
    // A credential or a variable is only sent to the vendor's own host, so this provider has none.
    let story = story
        .set("providers.azureOpenai", json!({ "apiBase": base }))
        .set("agents.defaults.provider", json!("azureOpenai"));
    let folder = story.home().join("credentials");
    write(&folder.join("AZURE_OPENAI_API_KEY"), b"key-of-the-manager\n");
    let story = story
        .env("CREDENTIALS_DIRECTORY", folder.to_str().unwrap())
        .script([says("x"), fails(401, "no")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    assert_eq!(story.requests()[0].header("api-key"), Some("key-of-the-manager"));
    story
        .run(["agent", "-m", "hi"])
        .status(77)
        .stderr_has("the key is from the credential `AZURE_OPENAI_API_KEY`");
}

#[test]
fn a_rejected_key_is_reported_with_its_source() {
    let check = |key: &str, value: Value, origin: &str| {
        let story = story_without_key();
        write(&story.home().join("key"), b"key-in-a-file");
        let story = story
            .set(&format!("providers.custom.{key}"), value)
            .env("MY_KEY", "key-in-a-variable")
            .script([fails(
                401,
                "wrong key: key-in-a-file key-in-a-variable key-as-text key-of-a-command",
            )]);
        let stderr = story.run(["agent", "-m", "hi"]).status(77).error_text();
        assert!(stderr.contains(&format!("the key is from {origin}")), "{stderr}");
    };
    check("apiKey", json!("key-as-text"), "`providers.custom.apiKey`");
    check("apiKey", json!("${MY_KEY}"), "`providers.custom.apiKey`");
    check("apiKeyFile", json!("~/key"), "`");
    check("apiKeyCommand", json!("echo key-of-a-command"), "`providers.custom.apiKeyCommand`");
}

/// The secrets that no scenario may print, with the way in which the run gets them; none for those in every run. A key in a
/// file or account that a run does not use is unknown to it: keeping commands from reading such files is up to the sandbox.
const CANARIES: [(&str, &str); 9] = [
    ("", "canary-key-in-the-config"),
    ("", "canary-key-in-a-variable"),
    ("", "canary-key-in-a-header"),
    ("", "canary-password-of-a-proxy"),
    ("", "canary-token-of-a-channel"),
    ("file", "canary-key-in-a-file"),
    ("command", "canary-key-of-a-command"),
    ("login", "canary-token-of-a-login"),
    ("login", "canary-renewal-of-a-login"),
];

/// A story that contains all canaries and authenticates with the one named by `source`.
fn story_with_canaries(source: &str) -> Story {
    let story = story_without_key();
    let login = json!({ "token": "canary-token-of-a-login", "expires": "2027-01-01T00:00:00Z",
                        "renewal": "canary-renewal-of-a-login", "account": "a" });
    match source {
        "file" => write(&story.home().join("secret/key"), b"canary-key-in-a-file"),
        "login" => {
            let path = story.home().join(".nanobot/auth/openai-codex.json");
            write(&path, login.to_string().as_bytes());
        }
        _ => {}
    }
    let server = format!("http://127.0.0.1:{}", story.server().port);
    let (key, value) = match source {
        "text" => ("apiKey", "canary-key-in-the-config"),
        "variable" => ("apiKey", "${CANARY_API_KEY}"),
        "file" => ("apiKeyFile", "~/secret/key"),
        _ => ("apiKeyCommand", "echo canary-key-of-a-command"),
    };
    let story = story
        .set(&format!("providers.custom.{key}"), json!(value))
        .set("providers.custom.extraHeaders", json!({ "X-Team": "canary-key-in-a-header" }))
        .set("providers.groq", json!({ "apiKey": "canary-key-in-the-config", "proxy": "http://u:canary-password-of-a-proxy@h:1" }))
        .set("providers.openaiCodex", json!({ "apiBase": server }))
        .set("channels", json!({ "telegram": { "token": "canary-token-of-a-channel" } }))
        .env("CANARY_API_KEY", "canary-key-in-a-variable");
    match source {
        "login" => story.set("agents.defaults.provider", json!("openaiCodex")),
        _ => story,
    }
}

/// The name and text of every file beneath `folder`, except those into which secrets were written: names that end like one
/// of `sources`.
pub(crate) fn read_files(folder: &Path, sources: &[&str]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = path.display().to_string();
        if path.is_dir() {
            files.extend(read_files(&path, sources));
        } else if !sources.iter().any(|end| name.ends_with(end)) {
            files.push((name, String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into()));
        }
    }
    files
}

#[test]
fn a_secret_is_sent_only_in_its_own_header() {
    let half = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
    let tool = |command: &str| calls("exec", json!({ "command": command }));
    let reads = |path: &str| calls("read_file", json!({ "path": path }));
    type Scenario<'a> = (&'a str, Vec<crate::server::Responder>, Vec<&'a str>);
    let mut scenarios = 0;
    for source in ["text", "variable", "file", "command", "login"] {
        let canaries = CANARIES
            .into_iter()
            .filter(|(key_source, _)| key_source.is_empty() || *key_source == source);
        let canaries: Vec<&str> = canaries.map(|(_, canary)| canary).collect();
        let all = canaries.join(" ");
        let leak_all = || fails(500, &all);
        let in_stream =
            format!("data: {{\"error\": {{\"message\": \"{all}\", \"code\": 400}}}}\n\n");
        let list: Vec<Scenario<'_>> = vec![
            ("plain", vec![says("x")], vec![]),
            ("json", vec![says("x")], vec!["--json"]),
            (
                "events",
                vec![
                    tool("env; cat ~/.nanobot/config.json ~/secret/key ~/.nanobot/auth/*"),
                    says("x"),
                ],
                vec!["--output-format", "stream-json", "--read", "/"],
            ),
            (
                "recorded",
                vec![tool("cat ~/.nanobot/config.json; cat /proc/$PPID/environ"), says("x")],
                vec!["--record", "tape", "-v"],
            ),
            (
                "read",
                vec![reads("../home/.nanobot/config.json"), reads("../home/secret/key"), says("x")],
                vec!["--read", "/"],
            ),
            ("curl", vec![], vec!["--dry-run=curl"]),
            ("dry", vec![], vec!["--dry-run"]),
            ("401", vec![fails(401, &all)], vec!["-v"]),
            ("400", vec![fails(400, &all)], vec!["--json"]),
            ("500", vec![leak_all(), leak_all(), leak_all(), leak_all()], vec!["-v"]),
            (
                "429",
                vec![sends(
                    Response::json(429, &json!({ "error": all })).header("retry-after", "999"),
                )],
                vec![],
            ),
            (
                "page",
                vec![sends(Response::text(
                    403,
                    "text/html",
                    &format!("<html><title>{all}</title></html>"),
                ))],
                vec![],
            ),
            (
                "moved",
                vec![sends(
                    Response::text(302, "text/plain", &all)
                        .header("location", "http://127.0.0.1:1/"),
                )],
                vec![],
            ),
            ("broken", vec![sends(Response::events([in_stream.as_str()]))], vec!["--json"]),
            ("cut", vec![sends(Response::events([half]).ending(Ending::Disconnect))], vec!["-v"]),
            ("refused", vec![replies(json!({ "content": "" }), "content_filter")], vec![]),
        ];
        for (name, script, arguments) in list {
            scenarios += 1;
            let (asks, log) = (!script.is_empty(), format!("{source} {name}"));
            let story = story_with_canaries(source).script(script);
            let log_file = story.dir().join("log");
            let story = story.env("NANOBOT_LOG", log_file.to_str().unwrap());
            let mut command = story.command(["agent", "-m", "hi"]);
            let output = command.args(arguments).output().unwrap();
            let mut outputs = vec![
                ("stdout".to_owned(), String::from_utf8_lossy(&output.stdout).into_owned()),
                ("stderr".to_owned(), String::from_utf8_lossy(&output.stderr).into_owned()),
            ];
            let sources = ["config.json", "secret/key", "auth/openai-codex.json"];
            outputs.extend(read_files(story.home().parent().unwrap(), &sources));
            for request in story.requests() {
                outputs.push(("a request's body".into(), request.raw.clone()));
                outputs.push(("a request's path".into(), request.path.clone()));
                for (header, value) in &request.headers {
                    let own = matches!(header.as_str(), "authorization" | "x-team");
                    if !own {
                        outputs.push((format!("a request's {header}"), value.clone()));
                    }
                }
            }
            assert_eq!(asks, !story.requests().is_empty(), "{log}: {output:?}");
            for (name, text) in outputs {
                for canary in &canaries {
                    assert!(!text.contains(canary), "{log}: {canary} in {name}:\n{text}");
                }
            }
        }
    }
    assert!(scenarios >= 40, "{scenarios}");
}
