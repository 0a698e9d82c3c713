//! Logins to remote MCP servers: the flow with a scripted authorization server and browser, renewal, and servers that cannot be
//! trusted.

use crate::listener::Listener;
use crate::requirements::require;
use crate::story::Story;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use url::{Url, form_urlencoded};

/// The way in which the servers misbehave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    NoPkce,
    NoMetadata,
    OtherIssuer,
    OtherResource,
    ShorterResource,
    NoResource,
    NoRegistration,
    Denied,
    OtherState,
    OtherSender,
    EndedLogin,
    MissingScope,
}

/// An MCP server and its authorization server, on one port.
#[derive(Default)]
struct ServerState {
    fault: Fault,
    port: u16,
    /// The number in the tokens that are valid.
    generation: u32,
    challenge: String,
    /// The name and the secret with which the client came to the token endpoint.
    credentials: String,
    /// The file of the client's public key for RS256, with which the signatures of assertions are verified.
    public_key: Option<PathBuf>,
    /// Requests as `METHOD PATH`, with their bodies.
    requests: Vec<(String, String)>,
    /// The bearer tokens that came to the MCP server.
    tokens: Vec<String>,
}

struct OAuthServer {
    state: Arc<Mutex<ServerState>>,
    listener: Listener,
}

struct HttpAnswer {
    status: u16,
    headers: Vec<String>,
    body: String,
}

fn answer(status: u16, body: &Value) -> HttpAnswer {
    let headers = vec!["content-type: application/json".to_owned()];
    HttpAnswer { status, headers, body: body.to_string() }
}

impl OAuthServer {
    fn start(fault: Fault) -> Self {
        let state = ServerState { fault, generation: 1, ..ServerState::default() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let listener = Listener::start(move |stream| serve(stream, &shared));
        state.lock().unwrap().port = listener.port;
        Self { state, listener }
    }

    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.listener.port)
    }

    fn count(&self, request: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.requests.iter().filter(|(head, _)| head == request).count()
    }
}

fn serve(mut stream: &TcpStream, state: &Mutex<ServerState>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let header = |name: &str| {
            let mut lines = head.lines();
            lines.find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let length: usize = header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        let mut parts = head.split(' ');
        let (method, target) = (parts.next().unwrap(), parts.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let token = header("authorization")
            .and_then(|value| value.strip_prefix("Bearer ").map(str::to_owned));
        let credentials = header("authorization").unwrap_or_default();
        let mut state = state.lock().unwrap();
        if path == "/token" {
            state.credentials = credentials;
        }
        state.requests.push((format!("{method} {path}"), body.clone()));
        let HttpAnswer { status, headers, body } =
            state.answer(method, path, query, &body, token.as_deref());
        drop(state);
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let text =
            format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

impl ServerState {
    fn answer(
        &mut self,
        method: &str,
        path: &str,
        query: &str,
        body: &str,
        token: Option<&str>,
    ) -> HttpAnswer {
        let base = format!("http://127.0.0.1:{}", self.port);
        let form = |name: &str, text: &str| {
            let mut fields = form_urlencoded::parse(text.as_bytes());
            fields
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
                .unwrap_or_default()
        };
        match (method, path) {
            ("POST", "/mcp") => self.mcp(&base, body, token),
            ("GET", "/meta") => {
                let resource = match self.fault {
                    Fault::OtherResource => json!("https://other.example/mcp"),
                    Fault::ShorterResource => json!(format!("{base}/mc")),
                    Fault::NoResource => Value::Null,
                    _ => json!(format!("{base}/mcp")),
                };
                answer(
                    200,
                    &json!({ "resource": resource, "authorization_servers": [format!("{base}/as")] }),
                )
            }
            ("GET", "/.well-known/oauth-authorization-server/as")
                if self.fault != Fault::NoMetadata =>
            {
                let issuer = match self.fault {
                    Fault::OtherIssuer => "https://other.example".to_owned(),
                    _ => format!("{base}/as"),
                };
                let methods =
                    if self.fault == Fault::NoPkce { json!(["plain"]) } else { json!(["S256"]) };
                let mut document = json!({
                    "issuer": issuer, "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
                    "registration_endpoint": format!("{base}/register"), "code_challenge_methods_supported": methods,
                    "authorization_response_iss_parameter_supported": true,
                });
                if self.fault == Fault::NoRegistration {
                    document.as_object_mut().unwrap().remove("registration_endpoint");
                }
                answer(200, &document)
            }
            ("POST", "/register") => {
                let request: Value = serde_json::from_str(body).unwrap();
                assert!(
                    request["redirect_uris"][0].as_str().unwrap().starts_with("http://127.0.0.1:")
                );
                answer(
                    201,
                    &json!({ "client_id": "client-1", "token_endpoint_auth_method": "none" }),
                )
            }
            ("GET", "/authorize") => {
                assert_eq!(form("resource", query), format!("{base}/mcp"));
                assert_eq!(form("scope", query), "notes");
                self.challenge = form("code_challenge", query);
                let state = match self.fault {
                    Fault::OtherState => "forged".to_owned(),
                    _ => form("state", query),
                };
                let sender = if self.fault == Fault::OtherSender {
                    "https://other.example"
                } else {
                    &format!("{base}/as")
                };
                let result =
                    if self.fault == Fault::Denied { "error=access_denied" } else { "code=code-1" };
                let location =
                    format!("{}?{result}&state={state}&iss={sender}", form("redirect_uri", query));
                HttpAnswer {
                    status: 302,
                    headers: vec![format!("location: {location}")],
                    body: String::new(),
                }
            }
            ("POST", "/token") => self.token(
                &form("grant_type", body),
                &form("refresh_token", body),
                &form("code_verifier", body),
                &form("client_assertion", body),
            ),
            _ => answer(404, &json!({})),
        }
    }

    fn token(
        &mut self,
        grant: &str,
        refresh_token: &str,
        verifier: &str,
        assertion: &str,
    ) -> HttpAnswer {
        match grant {
            "client_credentials" => {
                let claims = assertion.split('.').nth(1).unwrap_or_default();
                let claims = URL_SAFE_NO_PAD.decode(claims).unwrap();
                let claims: Value = serde_json::from_slice(&claims).unwrap_or_default();
                let issuer = format!("http://127.0.0.1:{}/as", self.port);
                let is_signed = claims["iss"] == "me"
                    && claims["aud"] == issuer
                    && (self.public_key.iter()).all(|key| is_signed_by(key, assertion));
                let pair = STANDARD.encode("me:client-secret-1");
                let is_known = is_signed || self.credentials == format!("Basic {pair}");
                if !is_known || self.fault == Fault::Denied {
                    let error =
                        json!({ "error": "invalid_client", "error_description": self.credentials });
                    return answer(401, &error);
                }
                self.generation += 1;
                let token = format!("access-secret-{}", self.generation);
                return answer(
                    200,
                    &json!({ "access_token": token, "token_type": "Bearer", "expires_in": 3600 }),
                );
            }
            "authorization_code" => {
                let digest = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
                assert_eq!(URL_SAFE_NO_PAD.encode(digest), self.challenge, "the proof of the code");
            }
            "refresh_token" => {
                let is_valid = refresh_token == format!("renewal-secret-{}", self.generation);
                if !is_valid || self.fault == Fault::EndedLogin {
                    return answer(
                        400,
                        &json!({ "error": "invalid_grant", "error_description": refresh_token }),
                    );
                }
                self.generation += 1;
            }
            other => panic!("{other}"),
        }
        let number = self.generation;
        answer(
            200,
            &json!({
                "access_token": format!("access-secret-{number}"), "token_type": "Bearer", "expires_in": 3600,
                "refresh_token": format!("renewal-secret-{number}"),
            }),
        )
    }

    fn mcp(&mut self, base: &str, body: &str, token: Option<&str>) -> HttpAnswer {
        self.tokens.extend(token.map(str::to_owned));
        if token != Some(format!("access-secret-{}", self.generation).as_str()) {
            let challenge = format!(
                "www-authenticate: Bearer resource_metadata=\"{base}/meta\", scope=\"notes\""
            );
            return HttpAnswer { status: 401, headers: vec![challenge], body: String::new() };
        }
        let request: Value = serde_json::from_str(body).unwrap();
        if self.fault == Fault::MissingScope && request["method"] == "tools/call" {
            let challenge =
                "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"notes write\"";
            return HttpAnswer {
                status: 403,
                headers: vec![challenge.to_owned()],
                body: String::new(),
            };
        }
        let result = match request["method"].as_str().unwrap() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "far", "version": "1" },
            }),
            "tools/list" => {
                json!({ "tools": [{ "name": "look", "description": "Looks", "inputSchema": { "type": "object" } }] })
            }
            "tools/call" => json!({ "content": [{ "type": "text", "text": "seen" }] }),
            _ => {
                return HttpAnswer { status: 202, headers: Vec::new(), body: String::new() };
            }
        };
        answer(200, &json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
    }
}

fn story(server: &OAuthServer) -> Story {
    Story::new().set(
        "tools",
        json!({ "mcpServers": { "far": { "url": format!("{}/mcp", server.base()) } } }),
    )
}

/// Gets `url` as a browser does, and follows the redirect. Returns the address that it was sent to.
fn browse(url: &str) -> String {
    let get = |url: &Url| {
        let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
        let mut stream = TcpStream::connect(address).unwrap();
        let target = format!("{}?{}", url.path(), url.query().unwrap_or_default());
        write!(stream, "GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        stream
    };
    let mut lines = BufReader::new(get(&Url::parse(url).unwrap())).lines();
    let location =
        lines.find_map(|line| line.unwrap().strip_prefix("location: ").map(str::to_owned));
    let location = location.unwrap();
    let mut page = String::new();
    // With `--paste`, the listener need not answer.
    let mut stream = get(&Url::parse(&location).unwrap());
    drop(stream.set_read_timeout(Some(std::time::Duration::from_millis(500))));
    drop(stream.read_to_string(&mut page));
    location
}

/// Starts a login, and returns it with the address that it shows.
fn start_login(
    story: &Story,
    flags: &[&str],
) -> (Child, String, BufReader<std::process::ChildStderr>) {
    let mut command = story.command([&["mcp", "login", "far"], flags].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut prompt = String::new();
    while !prompt.contains("http") || !prompt.ends_with("\n\n") {
        assert_ne!(lines.read_line(&mut prompt).unwrap(), 0, "{prompt}");
    }
    let address = prompt.split_whitespace().find(|word| word.starts_with("http")).unwrap();
    let address = address.to_owned();
    (child, address, lines)
}

/// Logs in, and returns the status and what was printed.
fn log_in(story: &Story) -> (i32, String) {
    let (child, address, mut lines) = start_login(story, &[]);
    browse(&address);
    let output = child.wait_with_output().unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    lines.read_to_string(&mut text).unwrap();
    (output.status.code().unwrap(), text)
}

fn login_path(story: &Story) -> std::path::PathBuf {
    story.home().join(".nanobot/auth/mcp-far.json")
}

fn stored(story: &Story) -> Value {
    serde_json::from_slice(&std::fs::read(login_path(story)).unwrap()).unwrap()
}

const CALL: [&str; 4] = ["tool", "run", "far", "look"];

#[test]
fn a_person_logs_in_once_and_runs_use_and_renew_the_tokens() {
    let server = OAuthServer::start(Fault::None);
    let story = story(&server);
    story.run(CALL).status(78).stderr_has("nanobot mcp login");
    assert_eq!(log_in(&story), (0, "logged in to `far`\n".to_owned()));
    let mode = std::fs::metadata(login_path(&story)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(stored(&story)["access_token"], "access-secret-1");
    story.run(["config", "get", "tools.mcpServers.far.auth"]).stdout("oauth\n");
    story.run(CALL).stdout("seen\n");
    // Before its end, it is renewed once.
    let mut login = stored(&story);
    login["expires_at"] = json!(1_767_323_000);
    std::fs::write(login_path(&story), login.to_string()).unwrap();
    story.run(CALL).stdout("seen\n");
    assert_eq!(stored(&story)["refresh_token"], "renewal-secret-2");
    assert_eq!(server.count("POST /token"), 2);
    // A refused token is renewed too.
    let mut login = stored(&story);
    login["access_token"] = json!("access-secret-old");
    std::fs::write(login_path(&story), login.to_string()).unwrap();
    story.run(CALL).stdout("seen\n");
    assert_eq!(stored(&story)["access_token"], "access-secret-3");
    // No tool sees them, and no log.
    let result = story.run([
        "tool",
        "run",
        "exec",
        r#"{"command": "echo access-secret-3; cat ~/.nanobot/auth/*"}"#,
    ]);
    let text = format!("{}{}", result.text(), result.error_text());
    assert!(!text.contains("renewal-secret"), "{text}");
    result.code();
    story.run(["mcp", "logout", "far"]).stdout("logged out of `far`\n");
    story.run(CALL).status(78).stderr_has("not logged in to `far`: `nanobot mcp login far`");
    story.run(["mcp", "logout", "far"]).status(66).stderr_has("there is no login to `far`");
}

#[test]
fn a_login_that_has_ended_names_the_way_back_and_no_token() {
    let server = OAuthServer::start(Fault::None);
    let story = story(&server);
    log_in(&story);
    server.state.lock().unwrap().fault = Fault::EndedLogin;
    server.state.lock().unwrap().generation = 9;
    let result =
        story.run(CALL).status(78).stderr_has("the login has ended: `nanobot mcp login far`");
    assert!(!result.error_text().contains("renewal-secret"));
}

#[test]
fn a_missing_scope_is_named_with_the_command_that_asks_for_it() {
    let server = OAuthServer::start(Fault::MissingScope);
    let story = story(&server);
    log_in(&story);
    story
        .run(CALL)
        .status(78)
        .stderr_has("the login lacks a scope: `nanobot mcp login far --scope 'notes write'`");
}

#[test]
fn a_token_goes_to_no_other_address() {
    let (server, other) = (OAuthServer::start(Fault::None), OAuthServer::start(Fault::None));
    let story = story(&server);
    log_in(&story);
    let story = story.set("tools.mcpServers.far.url", json!(format!("{}/mcp", other.base())));
    story.run(CALL).status(78).stderr_has("the login is for another address");
    assert!(other.state.lock().unwrap().tokens.is_empty());
}

#[test]
fn a_login_by_a_pasted_address() {
    let server = OAuthServer::start(Fault::None);
    let story = story(&server);
    let (mut child, address, _lines) = start_login(&story, &["--paste"]);
    let location = browse(&address);
    writeln!(child.stdin.take().unwrap(), "{location}").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    story.run(CALL).stdout("seen\n");
}

#[test]
fn refused_and_forged_redirects_store_nothing() {
    let check = |fault: Fault, cause: &str| {
        let server = OAuthServer::start(fault);
        let story = story(&server);
        let (status, text) = log_in(&story);
        assert_eq!(status, 77, "{fault:?}: {text}");
        assert!(text.contains(cause), "{fault:?}: {text}");
        assert!(!login_path(&story).exists());
        assert_eq!(server.count("POST /token"), 0, "{fault:?}");
    };
    check(Fault::Denied, "the login failed: access_denied");
    check(Fault::OtherState, "the redirect does not belong to it");
    check(Fault::OtherSender, "the redirect is from another authorization server");
}

#[test]
fn servers_whose_metadata_cannot_be_trusted_get_no_login() {
    let check = |fault: Fault, cause: &str| {
        let server = OAuthServer::start(fault);
        let story = story(&server);
        story.run(["mcp", "login", "far"]).status(78).stderr_has(cause);
        assert_eq!(server.count("POST /register"), 0, "{fault:?}");
    };
    check(Fault::NoPkce, "does not support PKCE");
    check(Fault::NoMetadata, "has no metadata, so it does not state PKCE");
    check(Fault::ShorterResource, "is about another resource");
    check(Fault::NoResource, "names no resource");
    check(Fault::OtherIssuer, "calls itself `https://other.example`");
    check(Fault::OtherResource, "is about another resource");
    check(
        Fault::NoRegistration,
        "registers no clients\n  try: `--client-id`, with a client that you register there\n",
    );
    let server = OAuthServer::start(Fault::None);
    let story = story(&server);
    story.run(["mcp", "login", "none"]).status(66).stderr_has("there is no MCP server `none`");
    story
        .run(["mcp", "login", "far", "--client-secret-env", "X"])
        .status(2)
        .stderr_has("needs `--client-id`");
}

/// True if openssl finds that the key signed the assertion by RS256.
fn is_signed_by(public_key: &Path, assertion: &str) -> bool {
    let (text, signature) = assertion.rsplit_once('.').unwrap();
    let header = URL_SAFE_NO_PAD.decode(text.split_once('.').unwrap().0);
    let header: Value = serde_json::from_slice(&header.unwrap()).unwrap();
    let [text_file, signature_file] =
        ["text", "signature"].map(|name| public_key.with_extension(name));
    std::fs::write(&text_file, text).unwrap();
    std::fs::write(&signature_file, URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-verify"]).arg(public_key);
    openssl.arg("-signature").args([signature_file, text_file]);
    header["alg"] == "RS256" && openssl.output().unwrap().status.success()
}

/// The command of a program that logs in.
const CLIENT_LOGIN: [&str; 6] =
    ["mcp", "login", "far", "--client-credentials", "--client-id", "me"];

#[test]
fn a_program_logs_in_without_a_person_and_gets_new_tokens_by_itself() {
    // PKCE protects the way through a browser, which is not taken.
    let server = OAuthServer::start(Fault::NoPkce);
    let story = story(&server).env("CLIENT_SECRET", "client-secret-1");
    let login = [&CLIENT_LOGIN[..], &["--client-secret-env", "CLIENT_SECRET"]].concat();
    story.run(&login).stdout("logged in to `far`\n");
    let mode = std::fs::metadata(login_path(&story)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(stored(&story)["access_token"], "access-secret-2");
    story.run(CALL).stdout("seen\n");
    // It asks for a new token when the old one is refused, and before its end.
    server.state.lock().unwrap().generation += 1;
    story.run(CALL).stdout("seen\n");
    assert_eq!(stored(&story)["access_token"], "access-secret-4");
    let mut ending = stored(&story);
    ending["expires_at"] = json!(1_767_323_000);
    std::fs::write(login_path(&story), ending.to_string()).unwrap();
    story.run(CALL).stdout("seen\n");
    assert_eq!(server.count("POST /token"), 3);
    assert_eq!(server.count("GET /authorize") + server.count("POST /register"), 0);
    let (_, form) = &server
        .state
        .lock()
        .unwrap()
        .requests
        .iter()
        .rfind(|(head, _)| head == "POST /token")
        .cloned()
        .unwrap();
    assert!(form.contains("scope=notes") && form.contains("resource=http"), "{form}");
}

#[test]
fn a_program_logs_in_with_a_key() {
    let server = OAuthServer::start(Fault::None);
    let kind = &ring::signature::ECDSA_P256_SHA256_FIXED_SIGNING;
    let random = ring::rand::SystemRandom::new();
    let document = ring::signature::EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
    let body = STANDARD.encode(document.as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    let story = story(&server).file("key.pem", &pem).file("other.pem", "no key");
    let login = |file: &str| story.run([&CLIENT_LOGIN[..], &["--client-key", file]].concat());
    login("other.pem").status(78).stderr_has("PKCS #8");
    login("key.pem").stdout("logged in to `far`\n");
    story.run(CALL).stdout("seen\n");
    server.state.lock().unwrap().generation += 1;
    story.run(CALL).stdout("seen\n");
    assert_eq!(server.count("POST /token"), 2);
}

#[test]
fn a_program_logs_in_with_an_rsa_key() {
    if !require("openssl") {
        return;
    }
    let server = OAuthServer::start(Fault::None);
    let story = story(&server);
    for name in ["key", "other"] {
        let make = format!(
            "openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {name}.pem && \
             openssl pkey -in {name}.pem -pubout -out {name}.pub"
        );
        let mut shell = story.program("sh");
        assert!(shell.args(["-c", &make]).status().unwrap().success());
    }
    server.state.lock().unwrap().public_key = Some(story.dir().join("key.pub"));
    let login = |file: &str| story.run([&CLIENT_LOGIN[..], &["--client-key", file]].concat());
    login("other.pem").status(77).stderr_has("rejected the request to issue a token");
    assert!(!login_path(&story).exists());
    login("key.pem").stdout("logged in to `far`\n");
    story.run(CALL).stdout("seen\n");
    server.state.lock().unwrap().generation += 1;
    story.run(CALL).stdout("seen\n");
    assert_eq!(server.count("POST /token"), 3);
}

#[test]
fn a_program_that_is_refused_stores_and_shows_nothing() {
    let server = OAuthServer::start(Fault::Denied);
    let story = story(&server).env("CLIENT_SECRET", "client-secret-1");
    let login = [&CLIENT_LOGIN[..], &["--client-secret-env", "CLIENT_SECRET"]].concat();
    let result = story.run(&login);
    assert_eq!(result.code(), 77);
    let stderr = result.error_text();
    assert!(!stderr.contains("client-secret-1"), "{stderr}");
    assert!(!stderr.contains(&STANDARD.encode("me:client-secret-1")), "{stderr}");
    assert!(!login_path(&story).exists());
    let usage = "`--client-credentials` needs `--client-secret-env` or `--client-key`";
    story.run(CLIENT_LOGIN).status(2).stderr_has(usage);
}
