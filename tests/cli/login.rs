//! Logins: the device flows, the stored tokens, and their renewal.

use crate::server::{Ending, Request, Responder, Response, calls, says, sends};
use crate::story::{Story, TIME, write};
use crate::wait::until;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nanobot_base::error::{Exit, exit_for, hint_for};
use nanobot_model::provider::login::{self, LoginEndpoints, RequestCredentials};
use nanobot_net::http::{Http, HttpTimeouts, Network};
use nanobot_os::clock::Clock;
use nanobot_os::env::Env;
use nanobot_os::file_lock::FileLock;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// One hour after the fixed time of stories, and the same as Unix seconds.
const IN_AN_HOUR: &str = "2026-01-02T04:04:05Z";
const IN_AN_HOUR_UNIX_SECS: i64 = 1_767_326_645;
const USER_CODE: &str = "ABCD-1234";
/// Environment variable with the directory from which a child process reads its login.
const AUTH_DIR: &str = "LOGIN_STORY_FOLDER";

/// A story that uses its own server as login server.
fn story(turns: impl IntoIterator<Item = Responder>) -> Story {
    with_own_login_server(Story::bare()).script(turns)
}

fn with_own_login_server(story: Story) -> Story {
    let base = base_url(&story);
    story.env("NANOBOT_TEST_LOGIN_BASE", &base)
}

fn base_url(story: &Story) -> String {
    format!("http://127.0.0.1:{}", story.server().port)
}

fn auth_dir(story: &Story) -> PathBuf {
    story.home().join(".nanobot/auth")
}

fn stored_login(story: &Story, name: &str) -> Value {
    let path = auth_dir(story).join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Stores a login whose token expires at `expires`.
fn write_login(story: &Story, name: &str, expires: &str) {
    let login = json!({ "token": "token-old-1", "expires": expires, "renewal": "renewal-old-1", "account": "acc-1" });
    let path = auth_dir(story).join(format!("{name}.json"));
    write(&path, login.to_string().as_bytes());
}

fn responds_json(status: u16, body: &Value) -> Responder {
    sends(Response::json(status, body))
}

fn jwt(claims: &Value) -> String {
    format!("head.{}.sign", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// OpenAI's response with tokens.
fn openai_tokens() -> Value {
    let claims =
        json!({ "https://api.openai.com/auth": { "chatgpt_account_id": "acc-of-the-story" } });
    json!({
        "id_token": jwt(&claims),
        "access_token": jwt(&json!({ "exp": IN_AN_HOUR_UNIX_SECS, "x": "token-of-the-story" })),
        "refresh_token": "renewal-of-the-story",
    })
}

/// Copilot's response with a token.
fn copilot_token(story_base: &str) -> Value {
    json!({ "token": "token-of-the-story", "expires_at": IN_AN_HOUR_UNIX_SECS, "refresh_in": 3300,
            "endpoints": { "api": format!("{story_base}/copilot/") } })
}

fn starts_codex_login() -> Responder {
    let body =
        json!({ "device_auth_id": "device-of-the-story", "user_code": USER_CODE, "interval": "5" });
    responds_json(200, &body)
}

fn starts_github_login(base: &str) -> Responder {
    let body = json!({ "device_code": "device-of-the-story", "user_code": USER_CODE, "interval": 5, "expires_in": 60,
                       "verification_uri": format!("{base}/login/device") });
    responds_json(200, &body)
}

fn responds_github_error(error: &str) -> Responder {
    responds_json(200, &json!({ "error": error }))
}

/// Logs in to GitHub Copilot, for stories about later steps.
pub(crate) fn log_in_to_copilot(story: Story) -> Story {
    let base = base_url(&story);
    let story = with_own_login_server(story).script([
        starts_github_login(&base),
        responds_json(200, &json!({ "access_token": "gho-of-the-story" })),
        responds_json(200, &copilot_token(&base)),
    ]);
    let result = story.run(["model", "provider", "login", "github-copilot"]);
    result.stdout("logged in to GitHub Copilot\n").stderr_has(USER_CODE);
    story
}

fn request_paths(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(|request| request.path.as_str()).collect()
}

/// Gets an access token as a run would.
fn get_access(folder: &Path, base: &str, name: &str) -> anyhow::Result<RequestCredentials> {
    let env: Env = [("NANOBOT_TEST_LOGIN_BASE", base)].into_iter().collect();
    let limit = Duration::from_secs(20);
    let timeouts = HttpTimeouts { connect: limit, first_byte: limit, idle: limit, total: limit };
    let http = Http::new(timeouts, false, &Network::default());
    let clock = Clock::Fixed(TIME.parse().unwrap());
    login::credentials(name, folder, &http, &clock, &LoginEndpoints::from_env(&env)?)
}

fn get_story_access(story: &Story, name: &str) -> anyhow::Result<RequestCredentials> {
    get_access(&auth_dir(story), &base_url(story), name)
}

#[test]
fn login_to_codex_stores_tokens() {
    let story = story([
        starts_codex_login(),
        responds_json(403, &json!({ "error": { "code": "deviceauth_authorization_pending" } })),
        responds_json(400, &json!({ "error": { "code": "slow_down" } })),
        responds_json(404, &Value::Null),
        responds_json(
            200,
            &json!({ "authorization_code": "code/of+the=story", "code_verifier": "verifier-of-the-story" }),
        ),
        responds_json(200, &openai_tokens()),
    ]);
    let result = story.run(["model", "provider", "login", "openai_codex"]);
    let expect = format!(
        "open {}/codex/device and enter {USER_CODE}\nwaiting for the login, 15 min at most\n",
        base_url(&story)
    );
    result.stdout("logged in to OpenAI Codex\n").stderr(&expect);

    let requests = story.requests();
    let poll = "/api/accounts/deviceauth/token";
    let usercode = "/api/accounts/deviceauth/usercode";
    let expect = [usercode, poll, poll, poll, poll, "/oauth/token"];
    assert_eq!(request_paths(&requests), expect);
    let client = "app_EMoamEEZ73f0CkXaXp7hrann";
    assert_eq!(requests[0].body, json!({ "client_id": client }));
    let device = json!({ "device_auth_id": "device-of-the-story", "user_code": USER_CODE });
    assert_eq!(requests[4].body, device);
    let callback = format!("{}/deviceauth/callback", base_url(&story));
    let callback = callback.replace(':', "%3A").replace('/', "%2F");
    assert_eq!(
        requests[5].raw,
        format!(
            "grant_type=authorization_code&code=code%2Fof%2Bthe%3Dstory&redirect_uri={callback}\
             &client_id={client}&code_verifier=verifier-of-the-story"
        )
    );

    let login = stored_login(&story, "openai-codex");
    assert_eq!(login["expires"], IN_AN_HOUR);
    assert_eq!(login["renewal"], "renewal-of-the-story");
    let access = get_story_access(&story, "openaiCodex").unwrap();
    assert_eq!(access.token.expose(), login["token"]);
    assert_eq!(access.base_url, None);
    let header = |name: &str| access.headers.iter().find(|(key, _)| key == name);
    assert_eq!(header("chatgpt-account-id").unwrap().1, "acc-of-the-story");
    assert!(!format!("{access:?}").contains(access.token.expose()));
}

#[test]
fn login_to_copilot_stores_tokens() {
    let story = Story::bare();
    let base = base_url(&story);
    let story = with_own_login_server(story).script([
        starts_github_login(&base),
        responds_github_error("authorization_pending"),
        responds_json(200, &json!({ "error": "slow_down", "interval": 10 })),
        // A transient server error does not end the login.
        responds_json(502, &Value::Null),
        responds_json(200, &json!({ "access_token": "gho-of-the-story" })),
        responds_json(200, &copilot_token(&base)),
    ]);
    let result = story.run(["--quiet", "model", "provider", "login", "githubCopilot"]);
    let expect = format!(
        "open {base}/login/device and enter {USER_CODE}\nwaiting for the login, 1 min at most\n"
    );
    result.stdout("logged in to GitHub Copilot\n").stderr(&expect);

    let requests = story.requests();
    let poll = "/login/oauth/access_token";
    let token = "/copilot_internal/v2/token";
    let expect = ["/login/device/code", poll, poll, poll, poll, token];
    assert_eq!(request_paths(&requests), expect);
    let client = "client_id=Iv1.b507a08c87ecfe98";
    assert_eq!(requests[0].raw, format!("{client}&scope=read%3Auser"));
    assert_eq!(requests[0].header("accept"), Some("application/json"));
    let grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code";
    let expect = format!("{client}&device_code=device-of-the-story&grant_type={grant}");
    assert_eq!(requests[1].raw, expect);
    let authorization = requests[5].header("authorization");
    assert_eq!(authorization, Some("token gho-of-the-story"));
    assert!(requests[5].header("editor-version").is_some());

    let access = get_story_access(&story, "github-copilot").unwrap();
    assert_eq!(access.token.expose(), "token-of-the-story");
    assert_eq!(access.base_url, Some(format!("{base}/copilot")));
    let names: Vec<&str> = access.headers.iter().map(|(name, _)| name.as_str()).collect();
    let expect = ["editor-version", "editor-plugin-version", "copilot-integration-id"];
    assert_eq!(names, expect);
}

#[test]
fn login_files_are_private_and_hidden_from_the_agent() {
    let story = log_in_to_copilot(Story::new());
    let folder = auth_dir(&story);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = folder.join("github-copilot.json");
    assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
    assert!(!story.home().join(".codex").exists());

    let path = file.to_str().unwrap();
    let home = story.home();
    let story = story.script([calls("read_file", json!({ "path": path })), says("no")]);
    let arguments = ["agent", "-m", "x", "--read", home.to_str().unwrap()];
    let run_result = story.run(arguments).stdout("no\n");
    run_result.stderr_has("not accessible to tools");
    let result = story.last_request().last_content();
    assert!(!result.contains("of-the-story"), "{result}");
}

/// The command that repairs the login whose file has this name.
fn login_command(file: &str) -> String {
    let provider = match file {
        "github-copilot" => "githubCopilot",
        _ => "openaiCodex",
    };
    format!("nanobot model provider login {provider}")
}

#[test]
fn a_failed_login_leaves_no_files() {
    let check = |turns: Vec<Responder>, name: &str, status: i32, message: &str| {
        let story = story(turns);
        let stderr = story.run(["model", "provider", "login", name]).status(status).error_text();
        assert!(stderr.contains(message), "{stderr}");
        assert!(stderr.contains(&format!("try: {}", login_command(name))), "{stderr}");
        assert!(!stderr.contains("of-the-story"), "{stderr}");
        assert!(!auth_dir(&story).join(format!("{name}.json")).exists());
    };
    let copilot = |turn: Responder| vec![starts_github_login("http://127.0.0.1:1"), turn];
    let name = "github-copilot";
    check(copilot(responds_github_error("access_denied")), name, 77, "was denied");
    check(
        copilot(responds_github_error("expired_token")),
        name,
        75,
        "the code expired before it was entered",
    );
    let echo = json!({ "error": "odd", "error_description": "what is device-of-the-story?" });
    check(copilot(responds_json(400, &echo)), name, 77, "log in: what is ***?");
    // Until the 60 seconds are over, every 5 seconds.
    let mut turns = vec![starts_github_login("http://127.0.0.1:1")];
    turns.extend((0..12).map(|_| responds_github_error("authorization_pending")));
    check(turns, name, 75, "the code expired before it was entered");
    // And after 5, 30 and 30 seconds, if the server asks for that.
    let slower = json!({ "error": "slow_down", "interval": 30 });
    let mut turns = copilot(responds_json(200, &slower));
    turns.extend((0..2).map(|_| responds_github_error("authorization_pending")));
    check(turns, name, 75, "the code expired before it was entered");

    let codex = |status, code: &str| {
        let refused = responds_json(status, &json!({ "error": { "code": code } }));
        vec![starts_codex_login(), refused]
    };
    let name = "openai-codex";
    check(codex(403, "access_denied"), name, 77, "was denied");
    check(codex(400, "expired_token"), name, 75, "the code expired before it was entered");
    check(codex(400, "odd"), name, 77, "rejected the request to log in: odd");
}

#[test]
fn an_account_without_copilot_gets_the_message_of_github() {
    let body = json!({ "error_details": { "message": "gho-of-the-story has no subscription" } });
    let story = story([
        starts_github_login("http://127.0.0.1:1"),
        responds_json(200, &json!({ "access_token": "gho-of-the-story" })),
        responds_json(403, &body),
    ]);
    let result = story.run(["model", "provider", "login", "github-copilot"]);
    result.status(77).stderr_has(
        "GitHub Copilot rejected the request to issue a token: *** has no subscription",
    );
}

#[test]
fn ctrl_c_ends_a_login() {
    let stalls = Response::json(200, &json!({})).ending(Ending::Stall);
    let story = story([starts_codex_login(), sends(stalls)]);
    let child = story.command(["model", "provider", "login", "openai-codex"]).spawn().unwrap();
    story.server().wait_for_requests(2);
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let result = story.wait(child);
    assert_eq!(result.signal(), Some(Signal::INT.as_raw()));
    result.stderr_has(USER_CODE);
    assert!(!auth_dir(&story).join("openai-codex.json").exists());
}

#[test]
fn status_shows_logins_and_logout_removes_them() {
    let story = log_in_to_copilot(Story::bare());
    let line = |name: &str| -> String {
        let text = story.run(["model", "provider", "list"]).text();
        let is = |line: &&str| line.split_whitespace().next() == Some(name);
        text.lines().find(is).unwrap().to_owned()
    };
    assert!(line("openaiCodex").contains("not logged in"));
    assert!(line("githubCopilot").contains(&format!("login, token until {IN_AN_HOUR}")));
    let lines = story.run(["model", "provider", "list", "--json"]).json_lines();
    let logins = lines.iter().filter(|line| line["kind"] == "login");
    let rows: Vec<Value> = logins
        .map(|line| json!([line["name"], line["usable"], line["key"], line["token_until"]]))
        .collect();
    let expect = [
        json!(["openaiCodex", false, null, null]),
        json!(["githubCopilot", true, "login", IN_AN_HOUR]),
    ];
    assert_eq!(rows, expect);
    let log_out = || story.run(["model", "provider", "logout", "github_copilot"]);
    log_out().stdout("logged out of GitHub Copilot\n");
    log_out().stdout("not logged in to GitHub Copilot\n");
    assert_eq!(std::fs::read_dir(auth_dir(&story)).unwrap().count(), 0);
    let error = get_story_access(&story, "github-copilot").unwrap_err();
    assert_eq!(exit_for(&error), Exit::Config);
    let hint = hint_for(&error);
    assert_eq!(hint, Some("nanobot model provider login githubCopilot"));
}

#[test]
fn unusable_login_files_are_reported() {
    let story = Story::bare();
    story
        .run(["model", "provider", "login", "anthropic"])
        .status(2)
        .stderr_has("one of openaiCodex, githubCopilot");
    let path = auth_dir(&story).join("openai-codex.json");
    write(&path, br#"{ "token": "token-of-the-story", "expires": 7 }"#);
    // It does not hide the other login.
    let result = story.run(["model", "provider", "list"]);
    let stderr = result.error_text();
    assert!(stderr.contains("try: nanobot model provider login openaiCodex"), "{stderr}");
    assert!(!stderr.contains("token-of-the-story"), "{stderr}");
    assert!(result.text().contains("openrouter"));
    let lines = story.run(["model", "provider", "list", "--json"]).json_lines();
    let line = lines.iter().find(|line| line["name"] == "openaiCodex");
    let line = line.unwrap();
    assert_eq!((&line["usable"], &line["key"]), (&json!(false), &Value::Null));
    assert!(line["problem"].as_str().unwrap().contains("openai-codex.json"));
    // Tokens are sent to the vendors and, in tests, to this machine.
    for base in ["http://example.org", "https://127.0.0.1", "nonsense"] {
        let story = Story::bare().env("NANOBOT_TEST_LOGIN_BASE", base);
        let result = story.run(["model", "provider", "login", "openai-codex"]);
        result.status(78).stderr_has("NANOBOT_TEST_LOGIN_BASE");
    }
}

#[test]
fn a_token_is_renewed_before_it_expires() {
    let renewed = json!({ "access_token": "token-new-1", "expires_in": 3600, "refresh_token": "renewal-new-1" });
    let story = Story::bare().script([responds_json(200, &renewed)]);
    let name = "openai-codex";
    write_login(&story, name, "2026-01-02T03:09:06Z");
    assert_eq!(get_story_access(&story, name).unwrap().token.expose(), "token-old-1");
    assert!(story.requests().is_empty());

    write_login(&story, name, "2026-01-02T03:09:05Z");
    let access = get_story_access(&story, name).unwrap();
    assert_eq!(access.token.expose(), "token-new-1");
    let requests = story.requests();
    assert_eq!(request_paths(&requests), ["/oauth/token"]);
    assert_eq!(requests[0].body["grant_type"], "refresh_token");
    assert_eq!(requests[0].body["refresh_token"], "renewal-old-1");
    let expect = json!({ "token": "token-new-1", "expires": IN_AN_HOUR, "renewal": "renewal-new-1", "account": "acc-1" });
    assert_eq!(stored_login(&story, name), expect);
}

#[test]
fn a_rejected_renewal_ends_the_login() {
    let check = |name: &str, status: u16, body: Value| {
        let story = Story::bare().script([responds_json(status, &body)]);
        write_login(&story, name, TIME);
        let error = get_story_access(&story, name).unwrap_err();
        assert_eq!(exit_for(&error), Exit::Refused, "{error:#}");
        assert_eq!(hint_for(&error), Some(login_command(name).as_str()));
        assert!(!format!("{error:#}").contains("-old-1"), "{error:#}");
    };
    let echo = json!({ "error": "invalid_grant", "error_description": "renewal-old-1 was used" });
    check("openai-codex", 400, echo);
    check("openai-codex", 401, json!({ "error": { "code": "refresh_token_reused" } }));
    check("github-copilot", 401, json!({ "message": "Bad credentials" }));
}

#[test]
fn a_failed_renewal_keeps_a_valid_token() {
    let fails = |status| responds_json(status, &Value::Null);
    let story = Story::bare().script([fails(503), fails(429), fails(503)]);
    write_login(&story, "openai-codex", "2026-01-02T03:05:00Z");
    for _ in 0..2 {
        let access = get_story_access(&story, "openai-codex").unwrap();
        assert_eq!(access.token.expose(), "token-old-1");
    }
    write_login(&story, "openai-codex", TIME);
    let error = get_story_access(&story, "openai-codex").unwrap_err();
    assert_eq!(exit_for(&error), Exit::Unavailable);
}

#[test]
fn concurrent_renewals_send_one_request() {
    let story = Story::bare();
    // A second request would exceed the script.
    let story = story.script([responds_json(
        200,
        &json!({ "access_token": "token-new-1", "expires_in": 3600 }),
    )]);
    write_login(&story, "openai-codex", TIME);
    let lock = auth_dir(&story).join("openai-codex.json.lock");
    let lock_guard =
        FileLock::acquire(&lock, "the test", None, Duration::ZERO, &mut |_| {}).unwrap();
    let start = || {
        let program = std::env::current_exe().unwrap();
        let one = ["--exact", "login::a_process_that_asks_for_access", "--ignored"];
        let mut command = Command::new(program);
        command.args(one).env(AUTH_DIR, auth_dir(&story));
        command.env("NANOBOT_TEST_LOGIN_BASE", base_url(&story));
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    // Each has read the old token before the lock is free.
    let start_reader = || {
        let reads = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        let login = auth_dir(&story).join("openai-codex.json");
        inotify::add_watch(&reads, &login, WatchFlags::CLOSE_NOWRITE).unwrap();
        let child = start();
        until("it has read the token", || {
            inotify::Reader::new(&reads, &mut [MaybeUninit::uninit(); 512]).next().is_ok()
        });
        child
    };
    let children: Vec<Child> = (0..3).map(|_| start_reader()).collect();
    assert!(story.requests().is_empty());
    drop(lock_guard);
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    assert_eq!(story.requests().len(), 1);
    assert_eq!(stored_login(&story, "openai-codex")["token"], "token-new-1");
}

#[test]
#[ignore = "a part of another test, which starts it in processes of their own"]
fn a_process_that_asks_for_access() {
    let Ok(folder) = std::env::var(AUTH_DIR) else {
        return;
    };
    let base = std::env::var("NANOBOT_TEST_LOGIN_BASE").unwrap();
    let access = get_access(folder.as_ref(), &base, "openai-codex").unwrap();
    assert_eq!(access.token.expose(), "token-new-1");
}
