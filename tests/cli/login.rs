//! Logins: the device flows, the stored tokens, and their renewal.

use crate::server::{Answer, Asked, Ending, Turn, calls, says, sends};
use crate::story::{Story, TIME, write};
use crate::wait::until;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nanobot::error::{Exit, exit_of, hint_of};
use nanobot::provider::login::{self, Access, Endpoints};
use nanobot::sys::clock::Clock;
use nanobot::sys::env::Env;
use nanobot::sys::http::{Http, Timeouts};
use nanobot::sys::store::Lock;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// One hour after the fixed time of stories, and the same as Unix seconds.
const LATER: &str = "2026-01-02T04:04:05Z";
const LATER_UNIX: i64 = 1_767_326_645;
const USER_CODE: &str = "ABCD-1234";
/// Environment variable with the directory from which a child process reads its login.
const FOLDER: &str = "LOGIN_STORY_FOLDER";

/// A story that uses its own server as login server.
fn story(turns: impl IntoIterator<Item = Turn>) -> Story {
    to_itself(Story::bare()).script(turns)
}

fn to_itself(story: Story) -> Story {
    let base = base(&story);
    story.env("NANOBOT_TEST_LOGIN_BASE", &base)
}

fn base(story: &Story) -> String {
    format!("http://127.0.0.1:{}", story.server().port)
}

fn folder(story: &Story) -> PathBuf {
    story.home().join(".nanobot/auth")
}

fn kept(story: &Story, name: &str) -> Value {
    let path = folder(story).join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Stores a login whose token expires at `expires`.
fn keep(story: &Story, name: &str, expires: &str) {
    let login = json!({ "token": "token-old-1", "expires": expires, "renewal": "renewal-old-1", "account": "acc-1" });
    let path = folder(story).join(format!("{name}.json"));
    write(&path, login.to_string().as_bytes());
}

fn answers(status: u16, body: &Value) -> Turn {
    sends(Answer::json(status, body))
}

fn jwt(claims: &Value) -> String {
    format!("head.{}.sign", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// OpenAI's response with tokens.
fn tokens() -> Value {
    let account =
        json!({ "https://api.openai.com/auth": { "chatgpt_account_id": "acc-of-the-story" } });
    json!({
        "id_token": jwt(&account),
        "access_token": jwt(&json!({ "exp": LATER_UNIX, "x": "token-of-the-story" })),
        "refresh_token": "renewal-of-the-story",
    })
}

/// Copilot's response with a token.
fn copilot(story_base: &str) -> Value {
    json!({ "token": "token-of-the-story", "expires_at": LATER_UNIX, "refresh_in": 3300,
            "endpoints": { "api": format!("{story_base}/copilot/") } })
}

fn codex_begins() -> Turn {
    let body =
        json!({ "device_auth_id": "device-of-the-story", "user_code": USER_CODE, "interval": "5" });
    answers(200, &body)
}

fn github_begins(base: &str) -> Turn {
    let body = json!({ "device_code": "device-of-the-story", "user_code": USER_CODE, "interval": 5, "expires_in": 60,
                       "verification_uri": format!("{base}/login/device") });
    answers(200, &body)
}

fn github_says(error: &str) -> Turn {
    answers(200, &json!({ "error": error }))
}

/// Logs in to GitHub Copilot, for stories about later steps.
pub(crate) fn logged_in(story: Story) -> Story {
    let base = base(&story);
    let story = to_itself(story).script([
        github_begins(&base),
        answers(200, &json!({ "access_token": "gho-of-the-story" })),
        answers(200, &copilot(&base)),
    ]);
    let ran = story.run(["provider", "login", "github-copilot"]);
    ran.stdout("logged in to GitHub Copilot\n")
        .stderr_has(USER_CODE);
    story
}

fn paths(asked: &[Asked]) -> Vec<&str> {
    asked.iter().map(|asked| asked.path.as_str()).collect()
}

/// Gets an access token as a run would.
fn access(folder: &Path, base: &str, name: &str) -> anyhow::Result<Access> {
    let env: Env = [("NANOBOT_TEST_LOGIN_BASE", base)].into_iter().collect();
    let limit = Duration::from_secs(20);
    let timeouts = Timeouts {
        connect: limit,
        first_byte: limit,
        idle: limit,
        total: limit,
    };
    let http = Http::new(timeouts, false, &env);
    let clock = Clock::Fixed(TIME.parse().unwrap());
    login::access(name, folder, &http, &clock, &Endpoints::from_env(&env)?)
}

fn access_of(story: &Story, name: &str) -> anyhow::Result<Access> {
    access(&folder(story), &base(story), name)
}

#[test]
fn a_login_to_codex() {
    let story = story([
        codex_begins(),
        answers(
            403,
            &json!({ "error": { "code": "deviceauth_authorization_pending" } }),
        ),
        answers(400, &json!({ "error": { "code": "slow_down" } })),
        answers(404, &Value::Null),
        answers(
            200,
            &json!({ "authorization_code": "code/of+the=story", "code_verifier": "verifier-of-the-story" }),
        ),
        answers(200, &tokens()),
    ]);
    let ran = story.run(["provider", "login", "openai_codex"]);
    let expect = format!(
        "open {}/codex/device and enter {USER_CODE}\nwaiting for the login, 15 min at most\n",
        base(&story)
    );
    ran.stdout("logged in to OpenAI Codex\n").stderr(&expect);

    let asked = story.asked();
    let poll = "/api/accounts/deviceauth/token";
    let usercode = "/api/accounts/deviceauth/usercode";
    let expect = [usercode, poll, poll, poll, poll, "/oauth/token"];
    assert_eq!(paths(&asked), expect);
    let client = "app_EMoamEEZ73f0CkXaXp7hrann";
    assert_eq!(asked[0].body, json!({ "client_id": client }));
    let device = json!({ "device_auth_id": "device-of-the-story", "user_code": USER_CODE });
    assert_eq!(asked[4].body, device);
    let callback = format!("{}/deviceauth/callback", base(&story));
    let callback = callback.replace(':', "%3A").replace('/', "%2F");
    assert_eq!(
        asked[5].raw,
        format!(
            "grant_type=authorization_code&code=code%2Fof%2Bthe%3Dstory&redirect_uri={callback}\
             &client_id={client}&code_verifier=verifier-of-the-story"
        )
    );

    let kept = kept(&story, "openai-codex");
    assert_eq!(kept["expires"], LATER);
    assert_eq!(kept["renewal"], "renewal-of-the-story");
    let access = access_of(&story, "openaiCodex").unwrap();
    assert_eq!(access.token.expose(), kept["token"]);
    assert_eq!(access.base, None);
    let header = |name: &str| access.headers.iter().find(|(key, _)| key == name);
    assert_eq!(header("chatgpt-account-id").unwrap().1, "acc-of-the-story");
    assert!(!format!("{access:?}").contains(access.token.expose()));
}

#[test]
fn a_login_to_copilot() {
    let story = Story::bare();
    let base = base(&story);
    let story = to_itself(story).script([
        github_begins(&base),
        github_says("authorization_pending"),
        answers(200, &json!({ "error": "slow_down", "interval": 10 })),
        // A transient server error does not end the login.
        answers(502, &Value::Null),
        answers(200, &json!({ "access_token": "gho-of-the-story" })),
        answers(200, &copilot(&base)),
    ]);
    let ran = story.run(["--quiet", "provider", "login", "githubCopilot"]);
    let expect = format!(
        "open {base}/login/device and enter {USER_CODE}\nwaiting for the login, 1 min at most\n"
    );
    ran.stdout("logged in to GitHub Copilot\n").stderr(&expect);

    let asked = story.asked();
    let poll = "/login/oauth/access_token";
    let token = "/copilot_internal/v2/token";
    let expect = ["/login/device/code", poll, poll, poll, poll, token];
    assert_eq!(paths(&asked), expect);
    let client = "client_id=Iv1.b507a08c87ecfe98";
    assert_eq!(asked[0].raw, format!("{client}&scope=read%3Auser"));
    assert_eq!(asked[0].header("accept"), Some("application/json"));
    let grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code";
    let expect = format!("{client}&device_code=device-of-the-story&grant_type={grant}");
    assert_eq!(asked[1].raw, expect);
    let authorization = asked[5].header("authorization");
    assert_eq!(authorization, Some("token gho-of-the-story"));
    assert!(asked[5].header("editor-version").is_some());

    let access = access_of(&story, "github-copilot").unwrap();
    assert_eq!(access.token.expose(), "token-of-the-story");
    assert_eq!(access.base, Some(format!("{base}/copilot")));
    let names: Vec<&str> = access
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let expect = [
        "editor-version",
        "editor-plugin-version",
        "copilot-integration-id",
    ];
    assert_eq!(names, expect);
}

#[test]
fn a_login_is_its_owners_alone_and_no_agents() {
    let story = logged_in(Story::new());
    let folder = folder(&story);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = folder.join("github-copilot.json");
    assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
    assert!(!story.home().join(".codex").exists());

    let path = file.to_str().unwrap();
    let home = story.home();
    let story = story.script([calls("read_file", json!({ "path": path })), says("no")]);
    let arguments = ["agent", "-m", "x", "--read", home.to_str().unwrap()];
    let ran = story.run(arguments).stdout("no\n");
    ran.stderr_has("not accessible to tools");
    let result = story.asked().last().unwrap().last();
    assert!(!result.contains("of-the-story"), "{result}");
}

#[test]
fn a_login_that_fails_leaves_nothing() {
    let check = |turns: Vec<Turn>, name: &str, status: i32, words: &str| {
        let story = story(turns);
        let ran = story.run(["provider", "login", name]).status(status);
        let told = ran.error_text();
        assert!(told.contains(words), "{told}");
        assert!(
            told.contains(&format!("try: nanobot provider login {name}")),
            "{told}"
        );
        assert!(!told.contains("of-the-story"), "{told}");
        assert!(!folder(&story).join(format!("{name}.json")).exists());
    };
    let copilot = |turn: Turn| vec![github_begins("http://127.0.0.1:1"), turn];
    let name = "github-copilot";
    check(
        copilot(github_says("access_denied")),
        name,
        77,
        "was denied",
    );
    check(copilot(github_says("expired_token")), name, 75, "ran out");
    let echo = json!({ "error": "odd", "error_description": "what is device-of-the-story?" });
    check(
        copilot(answers(400, &echo)),
        name,
        77,
        "log in: what is ***?",
    );
    // Until the 60 seconds are over, every 5 seconds.
    let mut turns = vec![github_begins("http://127.0.0.1:1")];
    turns.extend((0..12).map(|_| github_says("authorization_pending")));
    check(turns, name, 75, "ran out");
    // And after 5, 30 and 30 seconds, if the server asks for that.
    let slower = json!({ "error": "slow_down", "interval": 30 });
    let mut turns = copilot(answers(200, &slower));
    turns.extend((0..2).map(|_| github_says("authorization_pending")));
    check(turns, name, 75, "ran out");

    let codex = |status, code: &str| {
        let refused = answers(status, &json!({ "error": { "code": code } }));
        vec![codex_begins(), refused]
    };
    let name = "openai-codex";
    check(codex(403, "access_denied"), name, 77, "was denied");
    check(codex(400, "expired_token"), name, 75, "ran out");
    check(
        codex(400, "odd"),
        name,
        77,
        "rejected the request to log in: odd",
    );
}

#[test]
fn who_has_no_copilot_is_told_so_in_githubs_words() {
    let words = json!({ "error_details": { "message": "gho-of-the-story has no subscription" } });
    let story = story([
        github_begins("http://127.0.0.1:1"),
        answers(200, &json!({ "access_token": "gho-of-the-story" })),
        answers(403, &words),
    ]);
    let ran = story.run(["provider", "login", "github-copilot"]);
    ran.status(77).stderr_has(
        "GitHub Copilot rejected the request to issue a token: *** has no subscription",
    );
}

#[test]
fn ctrl_c_ends_a_login() {
    let stalls = Answer::json(200, &json!({})).ending(Ending::Stall);
    let story = story([codex_begins(), sends(stalls)]);
    let child = story
        .command(["provider", "login", "openai-codex"])
        .spawn()
        .unwrap();
    story.server().until_asked(2);
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = story.wait(child);
    assert_eq!(ran.signal(), Some(Signal::INT.as_raw()));
    ran.stderr_has(USER_CODE);
    assert!(!folder(&story).join("openai-codex.json").exists());
}

#[test]
fn who_is_logged_in_and_out() {
    let story = logged_in(Story::bare());
    let line = |name: &str| -> String {
        let text = story.run(["provider", "list"]).text();
        let is = |line: &&str| line.split_whitespace().next() == Some(name);
        text.lines().find(is).unwrap().to_owned()
    };
    assert!(line("openaiCodex").contains("not logged in"));
    assert!(line("githubCopilot").contains(&format!("login, token until {LATER}")));
    let lines = story.run(["provider", "list", "--json"]).lines();
    let logins = lines.iter().filter(|line| line["kind"] == "login");
    let told: Vec<Value> = logins
        .map(|line| {
            json!([
                line["name"],
                line["usable"],
                line["key"],
                line["token_until"]
            ])
        })
        .collect();
    let expect = [
        json!(["openaiCodex", false, null, null]),
        json!(["githubCopilot", true, "login", LATER]),
    ];
    assert_eq!(told, expect);
    let log_out = || story.run(["provider", "logout", "github_copilot"]);
    log_out().stdout("logged out of GitHub Copilot\n");
    log_out().stdout("not logged in to GitHub Copilot\n");
    assert_eq!(std::fs::read_dir(folder(&story)).unwrap().count(), 0);
    let error = access_of(&story, "github-copilot").unwrap_err();
    assert_eq!(exit_of(&error), Exit::Config);
    let hint = hint_of(&error);
    assert_eq!(hint, Some("nanobot provider login github-copilot"));
}

#[test]
fn what_cannot_be_used_is_told() {
    let story = Story::bare();
    story
        .run(["provider", "login", "anthropic"])
        .status(2)
        .stderr_has("one of openai-codex, github-copilot");
    let path = folder(&story).join("openai-codex.json");
    write(&path, br#"{ "token": "token-of-the-story", "expires": 7 }"#);
    // It does not hide the other login.
    let ran = story.run(["provider", "list"]);
    let told = ran.error_text();
    assert!(
        told.contains("try: nanobot provider login openai-codex"),
        "{told}"
    );
    assert!(!told.contains("token-of-the-story"), "{told}");
    assert!(ran.text().contains("openrouter"));
    let lines = story.run(["provider", "list", "--json"]).lines();
    let line = lines.iter().find(|line| line["name"] == "openaiCodex");
    let line = line.unwrap();
    assert_eq!(
        (&line["usable"], &line["key"]),
        (&json!(false), &Value::Null)
    );
    assert!(
        line["problem"]
            .as_str()
            .unwrap()
            .contains("openai-codex.json")
    );
    // Tokens are sent to the vendors and, in tests, to this machine.
    for base in ["http://example.org", "https://127.0.0.1", "nonsense"] {
        let story = Story::bare().env("NANOBOT_TEST_LOGIN_BASE", base);
        let ran = story.run(["provider", "login", "openai-codex"]);
        ran.status(78).stderr_has("NANOBOT_TEST_LOGIN_BASE");
    }
}

#[test]
fn a_token_is_renewed_before_it_ends() {
    let renewed = json!({ "access_token": "token-new-1", "expires_in": 3600, "refresh_token": "renewal-new-1" });
    let story = Story::bare().script([answers(200, &renewed)]);
    let name = "openai-codex";
    keep(&story, name, "2026-01-02T03:09:06Z");
    assert_eq!(
        access_of(&story, name).unwrap().token.expose(),
        "token-old-1"
    );
    assert!(story.asked().is_empty());

    keep(&story, name, "2026-01-02T03:09:05Z");
    let access = access_of(&story, name).unwrap();
    assert_eq!(access.token.expose(), "token-new-1");
    let asked = story.asked();
    assert_eq!(paths(&asked), ["/oauth/token"]);
    assert_eq!(asked[0].body["grant_type"], "refresh_token");
    assert_eq!(asked[0].body["refresh_token"], "renewal-old-1");
    let expect = json!({ "token": "token-new-1", "expires": LATER, "renewal": "renewal-new-1", "account": "acc-1" });
    assert_eq!(kept(&story, name), expect);
}

#[test]
fn a_renewal_that_is_refused_ends_the_login() {
    let check = |name: &str, status: u16, body: Value| {
        let story = Story::bare().script([answers(status, &body)]);
        keep(&story, name, TIME);
        let error = access_of(&story, name).unwrap_err();
        assert_eq!(exit_of(&error), Exit::Refused, "{error:#}");
        let hint = format!("nanobot provider login {name}");
        assert_eq!(hint_of(&error), Some(hint.as_str()));
        assert!(!format!("{error:#}").contains("-old-1"), "{error:#}");
    };
    let echo = json!({ "error": "invalid_grant", "error_description": "renewal-old-1 was used" });
    check("openai-codex", 400, echo);
    check(
        "openai-codex",
        401,
        json!({ "error": { "code": "refresh_token_reused" } }),
    );
    check(
        "github-copilot",
        401,
        json!({ "message": "Bad credentials" }),
    );
}

#[test]
fn a_server_that_is_down_costs_no_token_that_is_still_good() {
    let down = || answers(503, &Value::Null);
    let story = Story::bare().script([down(), down()]);
    keep(&story, "openai-codex", "2026-01-02T03:05:00Z");
    let access = access_of(&story, "openai-codex").unwrap();
    assert_eq!(access.token.expose(), "token-old-1");
    keep(&story, "openai-codex", TIME);
    let error = access_of(&story, "openai-codex").unwrap_err();
    assert_eq!(exit_of(&error), Exit::Unavailable);
}

#[test]
fn processes_that_renew_at_once_ask_once() {
    let story = Story::bare();
    // A second request would exceed the script.
    let story = story.script([answers(
        200,
        &json!({ "access_token": "token-new-1", "expires_in": 3600 }),
    )]);
    keep(&story, "openai-codex", TIME);
    let lock = folder(&story).join("openai-codex.json.lock");
    let held = Lock::take(&lock, "the test", "now", Duration::ZERO, &mut |_| {}).unwrap();
    let start = || {
        let program = std::env::current_exe().unwrap();
        let one = [
            "--exact",
            "login::a_process_that_asks_for_access",
            "--ignored",
        ];
        let mut command = Command::new(program);
        command.args(one).env(FOLDER, folder(&story));
        command.env("NANOBOT_TEST_LOGIN_BASE", base(&story));
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let mut children: Vec<Child> = (0..3).map(|_| start()).collect();
    // By now all of them have read the old token and wait for the lock.
    for child in &mut children {
        until("it waits for the lock", || {
            assert_eq!(child.try_wait().unwrap(), None, "it ended");
            has_open(child, &lock)
        });
    }
    assert!(story.asked().is_empty());
    drop(held);
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    assert_eq!(story.asked().len(), 1);
    assert_eq!(kept(&story, "openai-codex")["token"], "token-new-1");
}

fn has_open(child: &Child, path: &Path) -> bool {
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id()));
    open.unwrap()
        .flatten()
        .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| target == path))
}

#[test]
#[ignore = "a part of another test, which starts it in processes of their own"]
fn a_process_that_asks_for_access() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let base = std::env::var("NANOBOT_TEST_LOGIN_BASE").unwrap();
    let access = access(folder.as_ref(), &base, "openai-codex").unwrap();
    assert_eq!(access.token.expose(), "token-new-1");
}
