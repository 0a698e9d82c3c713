//! Models of clouds, whose credentials are not a key: tokens that a command prints, and keys that sign requests,
//! and files that are exchanged for tokens.

use crate::formats::Format;
use crate::server::{Request, Responder, Response, calls, fails, says, sends};
use crate::story::{Story, TIME, write};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use ring::{digest, hmac};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A story of one provider, at the story's server. The vendor's types omit the temperature of older models of Anthropic.
fn cloud_story(provider: &str, model: &str, path: &str, settings: Value) -> Story {
    let story = Story::bare();
    let base = format!("http://127.0.0.1:{}{path}", story.server().port);
    let mut config = json!({ "agents": { "defaults": { "model": model, "provider": provider } } });
    config["providers"][provider] = settings;
    config["providers"][provider]["apiBase"] = json!(base);
    story.config(&config).allow_extra_keys(&["temperature"])
}

/// The value of a header of each request, in order.
fn header_values(story: &Story, name: &str) -> Vec<String> {
    let requests = story.requests();
    requests.iter().map(|request| request.header(name).unwrap_or("none").to_owned()).collect()
}

/// A command that prints another token each time, and counts its runs.
const COUNTING_COMMAND: &str = "echo run >> ~/runs; echo eyJ-token-$(wc -l < ~/runs)";

#[test]
fn azure_gets_a_token_of_entra_in_another_header_than_a_key() {
    let check = |path: &str, settings: Value, header: &str, value: &str| {
        let story = cloud_story("azureOpenai", "gpt-of-mine", path, settings).script([says("x")]);
        story.run(["agent", "-m", "hi"]).stdout("x\n");
        let request = story.last_request();
        let names = ["authorization", "api-key", "x-api-key"];
        let sent = names.into_iter().filter_map(|name| Some((name, request.header(name)?)));
        assert_eq!(sent.collect::<Vec<_>>(), [(header, value)], "{path}");
        request
    };
    let key = || json!({ "apiKey": "key-of-the-resource" });
    let token = || json!({ "apiKeyCommand": "echo eyJ-token-of-entra" });
    let chat = Format::Chat.path();
    assert_eq!(
        check("", key(), "api-key", "key-of-the-resource").path,
        format!("/openai/v1{chat}")
    );
    check("/openai/v1", token(), "authorization", "Bearer eyJ-token-of-entra");
    // Foundry serves Anthropic's models in their own format.
    let path = "/anthropic/v1/messages";
    assert_eq!(check("/anthropic", key(), "x-api-key", "key-of-the-resource").path, path);
    assert_eq!(
        check("/anthropic/", token(), "authorization", "Bearer eyJ-token-of-entra").path,
        path
    );
}

#[test]
fn a_command_runs_again_when_the_server_rejects_its_token() {
    let settings = json!({ "apiKeyCommand": COUNTING_COMMAND });
    let story = cloud_story("azureOpenai", "gpt-of-mine", "", settings).script([
        calls("list_dir", json!({})),
        fails(401, "the access token has expired: eyJ-token-1"),
        says("x"),
    ]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    let expect = [1, 1, 2].map(|number| format!("Bearer eyJ-token-{number}"));
    assert_eq!(header_values(&story, "authorization"), expect);
    // A new token that is rejected too is not followed by another one.
    story.server().script([fails(401, "wrong tenant"), fails(401, "wrong tenant")]);
    story.run(["agent", "-m", "hi"]).status(77).stderr_has(
        "wrong tenant (status 401); the key is from `providers.azure_openai.apiKeyCommand`",
    );
    assert_eq!(story.requests().len(), 5);
}

#[test]
fn a_command_without_another_token_ends_the_run() {
    let check = |command: &str, status: i32, message: &str| {
        let settings = json!({ "apiKeyCommand": command });
        let story = cloud_story("azureOpenai", "gpt-of-mine", "", settings)
            .script([fails(401, "the token has expired")]);
        story.run(["agent", "-m", "hi"]).status(status).stderr_has(message);
        assert_eq!(story.requests().len(), 1, "{command}");
    };
    check("echo eyJ-token-of-entra", 77, "the token has expired (status 401)");
    check(
        "echo run >> ~/runs; test $(wc -l < ~/runs) = 1 && echo eyJ-token",
        78,
        "the command failed: exit status: 1",
    );
}

const KEY_ID: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const REGION: &str = "us-east-1";
/// The message of AWS about a wrong signature.
const SIGNATURE_MISMATCH: &str = "The request signature we calculated does not match the signature you provided. Check your AWS \
     Secret Access Key and signing method. Consult the service documentation for details.";

fn hmac_of(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

/// The problem of a server in `region` with the signature of `request`, computed from what has arrived there.
fn signature_problem(request: &Request, secret: &str, region: &str) -> Option<String> {
    let header = |name: &str| request.header(name).unwrap_or_default();
    let field = |name: &str| {
        let rest = header("authorization").split_once(name)?.1.strip_prefix('=')?;
        rest.split(',').next()
    };
    let (Some(credential), Some(names), Some(signature)) =
        (field("Credential"), field("SignedHeaders"), field("Signature"))
    else {
        return Some("Missing Authentication Token".into());
    };
    let scope: Vec<&str> = credential.split('/').skip(1).collect();
    if scope[1] != region {
        return Some(format!("Credential should be scoped to a valid region, not '{}'.", scope[1]));
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let mut parameters: Vec<&str> = query.split('&').collect();
    parameters.sort_unstable();
    let values: String =
        names.split(';').map(|name| format!("{name}:{}\n", header(name))).collect();
    let canonical = format!(
        "{}\n{path}\n{}\n{values}\n{names}\n{}",
        request.method,
        parameters.join("&"),
        sha256(&request.raw)
    );
    let scope_text = scope.join("/");
    let text =
        format!("AWS4-HMAC-SHA256\n{}\n{scope_text}\n{}", header("x-amz-date"), sha256(&canonical));
    let key =
        scope.iter().fold(format!("AWS4{secret}").into_bytes(), |key, part| hmac_of(&key, part));
    (hex(&hmac_of(&key, &text)) != signature).then(|| SIGNATURE_MISMATCH.into())
}

/// Answers as `responder` if the request is signed with the key of the story for `region`, else as AWS does.
fn signed_for(region: &'static str, responder: Responder) -> Responder {
    Box::new(move |request| match signature_problem(request, SECRET, region) {
        None => responder(request),
        Some(problem) => Response::json(403, &json!({ "message": problem })),
    })
}

fn signed(responder: Responder) -> Responder {
    signed_for(REGION, responder)
}

/// A story of Bedrock with one of its two formats.
fn bedrock_story(model: &str) -> Story {
    let path = if model.contains("claude") { "/anthropic" } else { "/openai/v1" };
    cloud_story("bedrock", model, path, json!({ "region": REGION }))
}

fn with_variables(story: Story) -> Story {
    story.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", SECRET)
}

fn with_profiles(story: Story, credentials: &str) -> Story {
    write(&story.home().join(".aws/credentials"), credentials.as_bytes());
    story
}

fn keys_of_profile(name: &str) -> String {
    format!("[{name}]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n")
}

const MODELS: [&str; 2] = ["anthropic.claude-haiku-4-5", "openai.gpt-oss-120b-1:0"];

/// The signature is one that botocore 1.44.8 has computed.
#[test]
fn the_servers_check_accepts_the_vendors_client() {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let request = Request {
        method: "POST".into(),
        path: "/openai/v1/chat/completions".into(),
        headers: vec![
            header("host", "bedrock-runtime.eu-central-1.amazonaws.com"),
            header("x-amz-content-sha256", &sha256("{}")),
            header("x-amz-date", "20260102T030405Z"),
            header("x-amz-security-token", "session+token/of=it"),
            header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260102/eu-central-1/bedrock/aws4_request, \
                 SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, \
                 Signature=7865b93550f35b842d3a99c7e77d36759ca2568a7eca9ccfa0c39158da96ab66",
            ),
        ],
        raw: "{}".into(),
        body: json!({}),
        connection: 0,
    };
    assert_eq!(signature_problem(&request, SECRET, "eu-central-1"), None);
    let changed = Request { raw: "{ }".into(), ..request };
    assert!(signature_problem(&changed, SECRET, "eu-central-1").is_some());
}

#[test]
fn bedrock_gets_signed_requests_in_both_formats() {
    for model in MODELS {
        for flags in [&[][..], &["--no-stream"]] {
            let story = with_variables(bedrock_story(model)).env("AWS_SESSION_TOKEN", "session-1");
            let story = story.file("a.txt", "alpha").script([
                signed(calls("read_file", json!({ "path": "a.txt" }))),
                signed(says("It says alpha.")),
            ]);
            let arguments = [&["agent", "-m", "read a.txt"], flags].concat();
            story.run(arguments).stdout("It says alpha.\n");
            assert!(story.last_request().raw.contains("alpha"));
            assert_eq!(header_values(&story, "x-amz-security-token"), ["session-1"; 2]);
            for request in story.requests() {
                let sent = format!("{:?} {}", request.headers, request.raw);
                assert!(!sent.contains(SECRET), "{model}");
                assert_eq!((request.header("x-api-key"), request.header("api-key")), (None, None));
            }
        }
    }
}

#[test]
fn the_list_of_models_is_signed_too() {
    let list = json!({ "data": [{ "id": "anthropic.claude-haiku-4-5" }], "has_more": false });
    let story = with_variables(bedrock_story(MODELS[0]))
        .script([signed(sends(Response::json(200, &list)))]);
    let text = story.run(["model", "list", "--remote"]).text();
    assert!(text.contains("anthropic.claude-haiku-4-5"), "{text}");
    assert!(story.last_request().path.ends_with("?limit=1000"));
}

#[test]
fn keys_of_aws_are_those_of_a_profile_or_a_process() {
    let check = |text: &str, settings: &[(&str, &str)], variables: &[(&str, &str)]| {
        let mut story = with_profiles(bedrock_story(MODELS[0]), text);
        for (name, value) in settings {
            story = story.set(&format!("providers.bedrock.{name}"), json!(value));
        }
        for (name, value) in variables {
            story = story.env(name, value);
        }
        let story = story.script([signed(calls("list_dir", json!({}))), signed(says("x"))]);
        story.run(["agent", "-m", "hi"]).stdout("x\n");
        story
    };
    check(&keys_of_profile("default"), &[], &[]);
    check(&keys_of_profile("work"), &[], &[("AWS_PROFILE", "work")]);
    // A profile of the config precedes the variables.
    let others = [("AWS_ACCESS_KEY_ID", "other"), ("AWS_SECRET_ACCESS_KEY", "other")];
    check(&keys_of_profile("work"), &[("profile", "work")], &others);
    let printed = json!({ "Version": 1, "AccessKeyId": KEY_ID, "SecretAccessKey": SECRET,
                          "SessionToken": "session-1", "Expiration": "2026-01-02T04:04:05Z" });
    let printed = serde_json::to_string_pretty(&printed).unwrap().replace('\n', " ");
    let process = format!("[default]\ncredential_process = echo run >> ~/runs; echo '{printed}'\n");
    let story = check(&process, &[], &[]);
    assert_eq!(header_values(&story, "x-amz-security-token"), ["session-1"; 2]);
    // One run for both requests.
    assert_eq!(std::fs::read_to_string(story.home().join("runs")).unwrap(), "run\n");
}

#[test]
fn keys_of_aws_that_cannot_be_used_are_reported_before_a_request() {
    let check = |text: &str, variables: &[(&str, &str)], expect: &str| {
        let mut story = with_profiles(bedrock_story(MODELS[0]), text);
        for (name, value) in variables {
            story = story.env(name, value);
        }
        story.run(["agent", "-m", "hi"]).status(78).stderr_has(expect);
        assert!(story.run(["status", "check"]).status(78).text().contains(expect), "{expect}");
        assert!(story.requests().is_empty());
    };
    check(
        "",
        &[],
        "no AWS keys: neither variables nor a default profile in `$HOME/.aws/credentials`",
    );
    check("[default\nx = y\n", &[], "line 1 of `$HOME/.aws/credentials` is neither");
    check("\u{0}\u{7f}", &[], "line 1 of `$HOME/.aws/credentials` is neither");
    check(
        &keys_of_profile("home"),
        &[("AWS_PROFILE", "work")],
        "there is no AWS profile `work` in `$HOME/.aws/credentials` and `$HOME/.aws/config`",
    );
    check("", &[("AWS_ACCESS_KEY_ID", KEY_ID)], "is set without $AWS_SECRET_ACCESS_KEY");
    check("[default]\nsso_session = x\n", &[], "has no keys of its own (`sso_session`)");
    check("[default]\naws_access_key_id = x\n", &[], "has half of a key");
    check("[default]\ncredential_process = exit 3\n", &[], "the command failed: exit status: 3");
    check("[default]\ncredential_process = echo junk\n", &[], "prints no keys in JSON");
    let ended = json!({ "AccessKeyId": KEY_ID, "SecretAccessKey": SECRET, "Expiration": "2026-01-02T03:00:00Z" });
    check(
        &format!("[default]\ncredential_process = echo '{ended}'\n"),
        &[],
        "ended at 2026-01-02T03:00:00Z; this machine's clock says 2026-01-02T03:04:05Z",
    );
}

#[test]
fn what_aws_refuses_is_reported_with_the_source_of_the_keys() {
    let check = |responder: Responder, status: i32, expect: &[&str]| {
        let story = with_variables(bedrock_story(MODELS[1])).script([responder]);
        let stderr = story.run(["agent", "-m", "hi"]).status(status).error_text();
        for text in expect {
            assert!(stderr.contains(text), "{stderr}");
        }
    };
    let message = |text: &str| json!({ "message": text });
    let expired = "The security token included in the request is expired";
    check(
        sends(Response::json(403, &message(expired)).header("x-amzn-requestid", "request-4711")),
        77,
        &[expired, "request request-4711", "the key is from $AWS_ACCESS_KEY_ID"],
    );
    check(
        signed_for("eu-central-1", says("x")),
        77,
        &["Credential should be scoped to a valid region, not 'us-east-1'."],
    );
    let late = "Signature expired: 20260102T030405Z is now earlier than 20260102T042405Z";
    check(
        sends(Response::json(403, &message(late)).header("date", "Fri, 02 Jan 2026 04:29:05 GMT")),
        77,
        &[
            late,
            "the server's clock says 2026-01-02T04:29:05Z, and this machine's 2026-01-02T03:04:05Z",
        ],
    );
    // A server that is a little off is no cause.
    let story = with_variables(bedrock_story(MODELS[1])).script([sends(
        Response::json(403, &message("no")).header("date", "Fri, 02 Jan 2026 03:05:05 GMT"),
    )]);
    let stderr = story.run(["agent", "-m", "hi"]).status(77).error_text();
    assert!(!stderr.contains("clock"), "{stderr}");
}

#[test]
fn a_throttled_request_is_sent_again_with_a_signature_of_its_own() {
    for model in MODELS {
        let throttled = json!({ "message": "Too many requests, please wait before trying again." });
        let story = with_variables(bedrock_story(model))
            .script([sends(Response::json(429, &throttled)), signed(says("x"))]);
        story.run(["agent", "-m", "hi"]).stdout("x\n");
        assert_eq!(story.requests().len(), 2);
    }
}

#[test]
fn a_process_runs_again_when_aws_rejects_its_keys() {
    let story = bedrock_story(MODELS[0]);
    let script = format!(
        "echo run >> ~/runs; n=$(wc -l < ~/runs); test $n = 1 && s=old || s={SECRET}; \
         echo \"{{\\\"AccessKeyId\\\": \\\"{KEY_ID}\\\", \\\"SecretAccessKey\\\": \\\"$s\\\"}}\""
    );
    let text = format!("[default]\ncredential_process = {script}\n");
    let story = with_profiles(story, &text).script([signed(says("y")), signed(says("x"))]);
    // The first answer is of the request with the old key, which the server refuses.
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    assert_eq!(std::fs::read_to_string(story.home().join("runs")).unwrap(), "run\nrun\n");
}

#[test]
fn a_bearer_token_of_bedrock_precedes_other_keys() {
    let story = with_variables(bedrock_story(MODELS[1]))
        .env("AWS_BEARER_TOKEN_BEDROCK", "bearer-of-the-story")
        .script([says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    assert_eq!(header_values(&story, "authorization"), ["Bearer bearer-of-the-story"]);
    assert_eq!(header_values(&story, "x-amz-date"), ["none"]);
}

#[test]
fn the_address_of_bedrock_follows_from_the_region_and_the_model() {
    let check = |story: Story, model: &str, expect: &[&str]| {
        let run = story.run(["agent", "--dry-run=curl", "--model", model, "-m", "hi"]);
        let command = run.text();
        for text in expect {
            assert!(command.contains(text), "{command}");
        }
    };
    check(
        Story::bare().env("AWS_REGION", "eu-central-1"),
        "bedrock/anthropic.claude-haiku-4-5",
        &[
            "https://bedrock-mantle.eu-central-1.api.aws/anthropic/v1/messages",
            "--aws-sigv4 'aws:amz:eu-central-1:bedrock-mantle'",
        ],
    );
    let story = with_profiles(Story::bare(), "[default]\nregion = us-west-2\n");
    check(
        story,
        "bedrock/openai.gpt-oss-120b-1:0",
        &[
            "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1/chat/completions",
            "--aws-sigv4 'aws:amz:us-west-2:bedrock'",
        ],
    );
    Story::bare()
        .run(["agent", "--model", "bedrock/openai.gpt-oss-120b-1:0", "-m", "hi"])
        .status(78)
        .stderr_has("no AWS region for provider `bedrock`");
    for (provider, expect) in [
        ("bedrock", "warning: no AWS region for provider `bedrock`"),
        ("vertex", "warning: no base URL for provider `vertex`"),
    ] {
        Story::bare()
            .config(&json!({ "agents": { "defaults": { "provider": provider } } }))
            .run(["config", "check"])
            .stdout_has(expect);
    }
}

#[test]
fn other_servers_get_no_signature_unless_the_config_says_so() {
    let story = with_variables(cloud_story("bedrock", MODELS[1], "/openai/v1", json!({})))
        .env("AWS_REGION", REGION)
        .env("AWS_SESSION_TOKEN", "session-1")
        .script([says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    assert_eq!(header_values(&story, "authorization"), ["none"]);
    assert!(!format!("{:?}", story.last_request().headers).contains("session-1"));
}

#[test]
fn files_of_clouds_are_read_only_by_whoever_configures_them() {
    let story = Story::new();
    write(&story.home().join(".aws/credentials"), b"[damaged");
    write(&story.home().join(".aws/config"), b"[damaged");
    let story = story.env("AWS_REGION", REGION).env("AWS_PROFILE", "none").script([says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    let lines = story.run(["model", "provider", "list", "--json"]).json_lines();
    let row = lines.iter().find(|line| line["name"] == "bedrock").unwrap();
    assert_eq!((&row["usable"], &row["key"]), (&json!(false), &Value::Null));
    let story = Story::bare()
        .config(&json!({ "providers": { "bedrock": { "region": REGION, "profile": "work" } } }));
    let row = story.run(["model", "provider", "show", "bedrock", "--json"]).json();
    assert_eq!((&row["usable"], &row["key"]), (&json!(true), &json!("aws")));
    assert_eq!(row["key_place"], "the AWS profile work");
}

/// The key of the service account of the story.
const RSA_KEY: &str = include_str!("../../crates/net/src/auth/signed_jwt_key.pem");
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const GEMINI: &str = "google/gemini-3.8-flash";
const CLAUDE: &str = "claude-haiku-4-5@20251001";

/// A story of Vertex with the credentials `file`, in which `SERVER` stands for the story's server.
fn vertex_story(model: &str, file: &str) -> Story {
    let settings = json!({ "apiKeyFile": "~/google.json" });
    let path = "/v1/projects/p/locations/global";
    let story = cloud_story("vertex", model, path, settings);
    let server = format!("http://127.0.0.1:{}", story.server().port);
    write(&story.home().join("google.json"), file.replace("SERVER", &server).as_bytes());
    story.env("NANOBOT_TEST_LOGIN_BASE", &server)
}

fn service_account() -> String {
    json!({ "type": "service_account", "client_email": "me@p.iam.gserviceaccount.com", "private_key_id": "key-1",
            "private_key": RSA_KEY, "token_uri": "SERVER/token" })
    .to_string()
}

fn user_login() -> String {
    json!({ "type": "authorized_user", "client_id": "client-1", "client_secret": "secret-of-the-client",
            "refresh_token": "refresh-of-the-story", "quota_project_id": "billed" })
    .to_string()
}

/// The fields of a form.
fn form(request: &Request) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(request.raw.as_bytes()).into_owned().collect()
}

/// The problem of Google's server with the signed request for a token.
fn assertion_problem(request: &Request) -> Option<&'static str> {
    let form = form(request);
    if form.get("grant_type").map(String::as_str)
        != Some("urn:ietf:params:oauth:grant-type:jwt-bearer")
    {
        return Some("unsupported_grant_type");
    }
    let assertion = &form["assertion"];
    let (text, signature) = assertion.rsplit_once('.').unwrap();
    let (header, claims) = text.split_once('.').unwrap();
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
    let parse = |part: &str| serde_json::from_slice::<Value>(&decode(part)).unwrap();
    let pem: String = RSA_KEY.lines().filter(|line| !line.starts_with('-')).collect();
    let pair = RsaKeyPair::from_pkcs8(&STANDARD.decode(pem).unwrap()).unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref());
    if key.verify(text.as_bytes(), &decode(signature)).is_err() {
        return Some("Invalid JWT Signature.");
    }
    let now = TIME.parse::<Timestamp>().unwrap().as_second();
    let aud = format!("http://{}/token", request.header("host").unwrap());
    let expect = json!({ "iat": now, "exp": now + 3600, "iss": "me@p.iam.gserviceaccount.com", "aud": aud, "scope": SCOPE });
    let is_right = parse(claims) == expect
        && parse(header) == json!({ "alg": "RS256", "typ": "JWT", "kid": "key-1" });
    (!is_right).then_some("Invalid JWT")
}

/// Answers a signed request with a token.
fn gives_token(token: &'static str) -> Responder {
    Box::new(move |request| match assertion_problem(request) {
        None => Response::json(
            200,
            &json!({ "access_token": token, "expires_in": 3599, "token_type": "Bearer" }),
        ),
        Some(problem) => {
            Response::json(400, &json!({ "error": "invalid_grant", "error_description": problem }))
        }
    })
}

#[test]
fn vertex_serves_gemini_and_claude_for_a_token_of_a_service_account() {
    let location = "/v1/projects/p/locations/global";
    let check = |model: &str, flags: &[&str], path: &str| {
        let story = vertex_story(model, &service_account()).file("a.txt", "alpha").script([
            gives_token("ya29.first"),
            calls("read_file", json!({ "path": "a.txt" })),
            says("It says alpha."),
        ]);
        let arguments = [&["agent", "-m", "read a.txt"], flags].concat();
        story.run(arguments).stdout("It says alpha.\n");
        // One token for both requests.
        let expect = ["none", "Bearer ya29.first", "Bearer ya29.first"];
        assert_eq!(header_values(&story, "authorization"), expect);
        assert_eq!(header_values(&story, "x-api-key"), ["none"; 3]);
        let request = story.last_request();
        assert_eq!(request.path, format!("{location}{path}"));
        assert!(request.raw.contains("alpha"));
        request
    };
    let chat = check(GEMINI, &[], "/endpoints/openapi/chat/completions");
    assert_eq!(chat.body["model"], GEMINI);
    let claude = "/publishers/anthropic/models/claude-haiku-4-5@20251001";
    for (flags, method) in [(&[][..], "streamRawPredict"), (&["--no-stream"], "rawPredict")] {
        let request = check(CLAUDE, flags, &format!("{claude}:{method}"));
        assert_eq!(request.body["anthropic_version"], "vertex-2023-10-16");
        assert_eq!(request.body["model"], Value::Null);
        assert_eq!(request.header("anthropic-version"), None);
    }
}

#[test]
fn vertex_takes_the_login_of_a_user() {
    let token = json!({ "access_token": "ya29.first", "expires_in": 3599 });
    let story =
        vertex_story(GEMINI, &user_login()).script([sends(Response::json(200, &token)), says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    let requests = story.requests();
    assert_eq!(requests[0].path, "/token");
    let expect = [
        ("client_id", "client-1"),
        ("client_secret", "secret-of-the-client"),
        ("grant_type", "refresh_token"),
        ("refresh_token", "refresh-of-the-story"),
    ];
    let sent = form(&requests[0]);
    let sent: Vec<_> = sent.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(sent, expect);
    assert_eq!(requests[1].header("x-goog-user-project"), Some("billed"));
}

#[test]
fn the_file_of_gcloud_is_for_googles_servers_alone() {
    let settings =
        || json!({ "apiBase": "https://aiplatform.googleapis.com/v1/projects/p/locations/l" });
    let show = |story: Story| {
        let story = story.config(&json!({ "providers": { "vertex": settings() } }));
        let row = story.run(["model", "provider", "show", "vertex", "--json"]).json();
        assert_eq!((&row["usable"], &row["key"]), (&json!(true), &json!("google")));
        let home = story.home();
        row["key_place"].as_str().unwrap().replace(home.to_str().unwrap(), "$HOME")
    };
    assert_eq!(show(Story::bare()), "$HOME/.config/gcloud/application_default_credentials.json");
    let directory = Story::bare().env("CLOUDSDK_CONFIG", "/nowhere");
    assert_eq!(show(directory), "/nowhere/application_default_credentials.json");
    let named = Story::bare().env("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/mine.json");
    assert_eq!(show(named), "/nowhere/mine.json");
    // Another server gets no token.
    let story = cloud_story("vertex", GEMINI, "/v1", json!({})).script([says("x")]);
    let path = story.home().join(".config/gcloud/application_default_credentials.json");
    write(&path, user_login().as_bytes());
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    assert_eq!(header_values(&story, "authorization"), ["none"]);
}

#[test]
fn a_token_that_vertex_rejects_is_replaced_once() {
    let story = vertex_story(GEMINI, &service_account()).script([
        gives_token("ya29.first"),
        fails(401, "Request had invalid authentication credentials."),
        gives_token("ya29.second"),
        says("x"),
    ]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    let expect = ["none", "Bearer ya29.first", "none", "Bearer ya29.second"];
    assert_eq!(header_values(&story, "authorization"), expect);
    // A token of a command is sent as it is.
    let story = cloud_story(
        "vertex",
        CLAUDE,
        "/v1/projects/p/locations/l",
        json!({ "apiKeyCommand": "echo ya29.mine" }),
    )
    .script([says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    assert_eq!(header_values(&story, "authorization"), ["Bearer ya29.mine"]);
}

#[test]
fn credentials_of_google_that_cannot_be_used_are_reported_before_a_request() {
    let check = |file: &str, expect: &str| {
        let story = vertex_story(GEMINI, file);
        let run = story.run(["agent", "-m", "hi"]).status(78).stderr_has(expect);
        assert!(!run.error_text().contains("MIIEv"), "the key is in the message");
        assert!(story.run(["status", "check"]).status(78).text().contains(expect), "{expect}");
        assert!(story.requests().is_empty());
    };
    let changed_account = |name: &str, value: Value| {
        let mut file: Value = serde_json::from_str(&service_account()).unwrap();
        file[name] = value;
        file.to_string()
    };
    check("{\"type\": ", "`$HOME/google.json` is damaged: it is no JSON object");
    check("{}", "is damaged: it has no `type`");
    check(&changed_account("client_email", Value::Null), "is damaged: it has no `client_email`");
    check(
        &changed_account("private_key", json!("MIIEv")),
        "the private key is not in the form PKCS #8",
    );
    check(
        &changed_account("private_key", json!(RSA_KEY.replace('Q', "*"))),
        "the private key is damaged",
    );
    check(&changed_account("token_uri", json!("http://example.org/token")), "is no https address");
    check(&changed_account("type", json!("external_account")), "of the kind `external_account`");
    let story = vertex_story(GEMINI, "").set("providers.vertex.apiKeyFile", json!("~/none.json"));
    story
        .run(["agent", "-m", "hi"])
        .status(78)
        .stderr_has("there are no credentials of Google Cloud at `$HOME/none.json`");
    Story::bare()
        .config(&json!({ "agents": { "defaults": { "provider": "vertex" } } }))
        .run(["agent", "-m", "hi"])
        .status(78)
        .stderr_has("/v1/projects/PROJECT/locations/global");
}

#[test]
fn what_googles_server_of_tokens_says_is_reported_without_secrets() {
    let check = |file: &str, responder: Responder, flags: &[&str], status: i32, expect: &[&str]| {
        let story = vertex_story(GEMINI, file).script([responder]);
        let arguments = [&["agent", "-m", "hi"], flags].concat();
        let stderr = story.run(arguments).status(status).error_text();
        for text in expect {
            assert!(stderr.contains(text), "{stderr}");
        }
        assert_eq!(story.requests().len(), 1);
        let sent = form(&story.last_request());
        for name in ["assertion", "refresh_token", "client_secret"] {
            assert!(sent.get(name).is_none_or(|secret| !stderr.contains(secret)), "{stderr}");
        }
    };
    let refuses = |text: &str| {
        let body = json!({ "error": "invalid_grant", "error_description": text });
        sends(Response::json(400, &body))
    };
    let rejected = "Google rejected the request to issue a token";
    check(
        &user_login(),
        refuses("Bad Request: refresh-of-the-story secret-of-the-client"),
        &[],
        77,
        &[rejected, "gcloud auth application-default login"],
    );
    check(
        &service_account(),
        refuses("Invalid JWT: Token must be a short-lived token and in a reasonable timeframe."),
        &[],
        77,
        &[rejected, "this machine's clock says 2026-01-02T03:04:05Z"],
    );
    let echoes: Responder = Box::new(|request| {
        let text = format!("Account deleted: {}", form(request)["assertion"]);
        Response::json(401, &json!({ "error": "invalid_client", "error_description": text }))
    });
    check(&service_account(), echoes, &[], 77, &["Account deleted: ***"]);
    check(&service_account(), sends(Response::text(503, "text/plain", "")), &[], 69, &[rejected]);
    check(&service_account(), sends(Response::json(200, &json!({}))), &[], 69, &["`access_token`"]);
}

#[test]
fn credentials_that_cannot_be_obtained_use_the_fallback() {
    let with_fallback = |story: Story, first: usize| {
        let base = format!("http://127.0.0.1:{}/v1", story.server().port);
        let story = story
            .set("providers.custom", json!({ "apiBase": base, "apiKey": "k" }))
            .set(
                "agents.defaults.fallbackModels",
                json!([{ "model": "other", "provider": "custom" }]),
            )
            .script([says("x")]);
        story.run(["agent", "-m", "hi"]).stdout("x\n").stderr_has("to `other`");
        assert_eq!(story.requests().len(), first + 1);
    };
    for responder in [
        sends(Response::text(503, "text/plain", "")),
        sends(Response::text(429, "text/plain", "")),
        sends(Response::text(200, "text/html", "<p>")),
        sends(Response::json(400, &json!({ "error": "invalid_grant" }))),
    ] {
        with_fallback(vertex_story(GEMINI, &user_login()).script([responder]), 1);
    }
    with_fallback(
        vertex_story(GEMINI, &service_account())
            .set("providers.vertex.apiKeyFile", json!("~/no.json")),
        0,
    );
    let settings = json!({ "apiKeyCommand": "false" });
    with_fallback(cloud_story("azureOpenai", "gpt-of-mine", "", settings), 0);
    let profile = "[default]\ncredential_process = false\n";
    with_fallback(with_profiles(bedrock_story("gpt-of-mine"), profile), 0);
}

#[test]
fn no_token_is_fetched_offline() {
    let file = json!({ "type": "service_account", "client_email": "me@p", "private_key": RSA_KEY,
                       "token_uri": "https://oauth2.googleapis.com/token" });
    let story = vertex_story(GEMINI, &file.to_string());
    story.run(["agent", "--offline", "-m", "hi"]).status(69).stderr_has("offline");
    assert!(story.requests().is_empty());
}
