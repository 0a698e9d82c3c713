//! Finds the authorization server of an MCP server: by the protected resource metadata (RFC 9728) that its refusal names, or
//! that is at a well-known address, and by the authorization server's own metadata (RFC 8414, OpenID Connect Discovery).
//!
//! The addresses come from servers, so they are checked: encrypted, or on this machine if the server itself is.

use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_net::http::{Http, HttpMethod};
use nanobot_net::web_url::is_loopback;
use serde_json::Value;
use url::Url;

/// Maximum size of a metadata document in bytes.
const MAX_DOCUMENT_BYTES: u64 = 256 << 10;

/// The authorization server of an MCP server, as its metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationServer {
    pub issuer: String,
    /// The endpoint where a person logs in; `None` if that is not supported.
    pub authorization_endpoint: Option<String>,
    /// True if it supports PKCE with S256.
    pub(crate) supports_pkce: bool,
    pub token_endpoint: String,
    pub registration_endpoint: Option<String>,
    /// The ways in which a client may authenticate at the token endpoint.
    pub(crate) token_auth_methods: Vec<String>,
    /// The resource that tokens are for.
    pub resource: String,
    /// The scopes to ask for, separated by blanks; `None` for the server's default.
    pub scope: Option<String>,
    /// True if the server's answers name the server (RFC 9207).
    pub(crate) names_itself: bool,
}

impl AuthorizationServer {
    /// The endpoint where a person logs in.
    ///
    /// # Errors
    /// Status 78 if there is none, or it does not support PKCE.
    pub(crate) fn browser_endpoint(&self) -> Result<&str> {
        let issuer = &self.issuer;
        match &self.authorization_endpoint {
            None => Err(unusable(&format!(
                "no person can log in at the authorization server `{issuer}`"
            ))),
            Some(_) if !self.supports_pkce => Err(unusable(&format!(
                "the authorization server `{issuer}` does not support PKCE with S256"
            ))),
            Some(endpoint) => Ok(endpoint),
        }
    }
}

/// Finds the authorization server of the MCP server at `server`.
///
/// # Errors
/// Status 69 if a document cannot be fetched, 78 if the server needs no login or its metadata cannot be used.
pub fn discover(http: &Http, server: &str) -> Result<AuthorizationServer> {
    let server = Url::parse(server).map_err(|error| unusable(&format!("`{server}`: {error}")))?;
    let challenge = read_challenge(http, &server)?;
    let metadata = resource_metadata(http, &server, challenge.metadata.as_deref())?;
    let resource = match &metadata {
        Some(metadata) => checked_resource(&server, metadata)?,
        None => canonical_resource(&server),
    };
    let named_issuer =
        metadata.as_ref().and_then(|metadata| metadata["authorization_servers"][0].as_str());
    // Servers of the first revision of the protocol are their own authorization servers.
    let issuer = match named_issuer {
        Some(issuer) => issuer.to_owned(),
        None => server.origin().ascii_serialization(),
    };
    let issuer_url = checked_url(&server, &issuer)?;
    let supported_scopes =
        metadata.as_ref().map(|metadata| texts(&metadata["scopes_supported"])).unwrap_or_default();
    let supported_scope = (!supported_scopes.is_empty()).then(|| supported_scopes.join(" "));
    let scope = challenge.scope.or(supported_scope);
    let metadata = server_metadata(http, &server, &issuer_url)?;
    let metadata = metadata.ok_or_else(|| {
        unusable(&format!(
            "the authorization server `{issuer}` has no metadata, so it does not state PKCE"
        ))
    })?;
    let stated_issuer = metadata["issuer"].as_str().unwrap_or_default();
    // A server that is its own authorization server, as in the first revision, may have an issuer with a path.
    let is_own = named_issuer.is_none()
        && checked_url(&server, stated_issuer).is_ok_and(|url| url.origin() == server.origin());
    let issuer = if is_own { stated_issuer.to_owned() } else { issuer };
    if stated_issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
        return Err(unusable(&format!(
            "the authorization server `{issuer}` calls itself `{stated_issuer}`"
        )));
    }
    let methods = texts(&metadata["code_challenge_methods_supported"]);
    let endpoint = |key: &str| -> Result<String> {
        let text = metadata[key].as_str().unwrap_or_default();
        checked_url(&server, text).map(String::from)
    };
    let optional_endpoint =
        |key: &str| metadata[key].is_string().then(|| endpoint(key)).transpose();
    Ok(AuthorizationServer {
        authorization_endpoint: optional_endpoint("authorization_endpoint")?,
        supports_pkce: methods.iter().any(|method| method == "S256"),
        token_endpoint: endpoint("token_endpoint")?,
        registration_endpoint: optional_endpoint("registration_endpoint")?,
        token_auth_methods: texts(&metadata["token_endpoint_auth_methods_supported"]),
        names_itself: metadata["authorization_response_iss_parameter_supported"] == true,
        issuer,
        resource,
        scope,
    })
}

/// The parts of the refusal of a request without a token that a login needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Challenge {
    /// The address of the resource metadata.
    metadata: Option<String>,
    scope: Option<String>,
}

/// Sends a request without a token, and reads the refusal.
fn read_challenge(http: &Http, server: &Url) -> Result<Challenge> {
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let headers = [("accept".to_owned(), "application/json, text/event-stream".to_owned())];
    let method = HttpMethod::Post("application/json", body);
    let response = http.request(server.as_str(), &headers, method)?;
    Ok(response.header("www-authenticate").map(parse_challenge).unwrap_or_default())
}

/// The scope that a request lacks, from the value of `WWW-Authenticate`; `None` if it lacks something else.
pub fn missing_scope(challenge: &str) -> Option<String> {
    let scope = parse_challenge(challenge).scope?;
    challenge.contains("insufficient_scope").then_some(scope)
}

/// Parses the value of `WWW-Authenticate`.
fn parse_challenge(value: &str) -> Challenge {
    let parameter = |name: &str| {
        let start = value.find(&format!("{name}="))? + name.len() + 1;
        let rest = &value[start..];
        let text = match rest.strip_prefix('"') {
            Some(rest) => rest.split_once('"').map(|(text, _)| text)?,
            None => rest.split([',', ' ']).next()?,
        };
        (!text.is_empty()).then(|| text.to_owned())
    };
    if value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer")) {
        Challenge { metadata: parameter("resource_metadata"), scope: parameter("scope") }
    } else {
        Challenge::default()
    }
}

/// The protected resource metadata: at the address that the refusal names, else at the well-known ones.
fn resource_metadata(http: &Http, server: &Url, named: Option<&str>) -> Result<Option<Value>> {
    if let Some(named) = named {
        let url = checked_url(server, named)?;
        let Some(metadata) = fetch(http, &url)? else {
            return Err(unusable(&format!("there is no resource metadata at `{url}`")));
        };
        return Ok(Some(metadata));
    }
    let path = server.path().trim_end_matches('/');
    for path in [
        format!("/.well-known/oauth-protected-resource{path}"),
        "/.well-known/oauth-protected-resource".into(),
    ] {
        let url = server.join(&path).map_err(|error| unusable(&error.to_string()))?;
        if let Some(metadata) = fetch(http, &url)? {
            return Ok(Some(metadata));
        }
    }
    Ok(None)
}

/// The resource of `metadata`. It must be the address of the server or one above it, whose path is a part of the server's path that ends at
/// a `/`.
fn checked_resource(server: &Url, metadata: &Value) -> Result<String> {
    let resource = metadata["resource"].as_str();
    let resource = resource.ok_or_else(|| unusable("its metadata names no resource"))?;
    let url = checked_url(server, resource)?;
    let rest = server.path().strip_prefix(url.path().trim_end_matches('/'));
    let is_same_or_above = url.origin() == server.origin()
        && url.query().is_none_or(|query| server.query() == Some(query))
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if is_same_or_above {
        Ok(resource.to_owned())
    } else {
        Err(unusable(&format!("its metadata is about another resource, `{resource}`")))
    }
}

/// The metadata of the authorization server with this issuer, at one of its well-known addresses.
fn server_metadata(http: &Http, server: &Url, issuer: &Url) -> Result<Option<Value>> {
    let path = issuer.path().trim_end_matches('/');
    let mut well_known_paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        well_known_paths.push(format!("{path}/.well-known/openid-configuration"));
    }
    for well_known_path in well_known_paths {
        let url = issuer.join(&well_known_path).map_err(|error| unusable(&error.to_string()))?;
        let url = checked_url(server, url.as_str())?;
        if let Some(metadata) = fetch(http, &url)? {
            return Ok(Some(metadata));
        }
    }
    Ok(None)
}

/// Fetches a JSON object; `None` if there is none at this address.
fn fetch(http: &Http, url: &Url) -> Result<Option<Value>> {
    let headers = [("accept".to_owned(), "application/json".to_owned())];
    let response =
        http.exchange_json(url.as_str(), &headers, HttpMethod::Get, MAX_DOCUMENT_BYTES)?;
    let is_document = response.status == 200 && response.body.is_object();
    Ok(is_document.then_some(response.body))
}

/// Parses an address from a server. It must be encrypted, or on this machine if the server is.
fn checked_url(server: &Url, text: &str) -> Result<Url> {
    let url = Url::parse(text).map_err(|_| unusable(&format!("`{text}` is not an address")))?;
    let is_local = |url: &Url| url.host_str().is_some_and(is_loopback);
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_local(&url) && is_local(server) => Ok(url),
        _ => Err(unusable(&format!("`{text}` is not encrypted"))),
    }
}

/// The resource of the server at `url` that names none: its address without query, fragment and slash at the end.
fn canonical_resource(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    url.set_query(None);
    url.as_str().trim_end_matches('/').to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn unusable(cause: &str) -> anyhow::Error {
    fail(Exit::Config, format!("its login cannot be used: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::{Challenge, checked_resource, checked_url, parse_challenge};
    use serde_json::json;
    use url::Url;

    #[test]
    fn challenges() {
        let check = |value: &str, metadata: Option<&str>, scope: Option<&str>| {
            let expect = Challenge {
                metadata: metadata.map(str::to_owned),
                scope: scope.map(str::to_owned),
            };
            assert_eq!(parse_challenge(value), expect, "{value}");
        };
        check(
            r#"Bearer error="invalid_token", resource_metadata="https://a/x", scope="read write""#,
            Some("https://a/x"),
            Some("read write"),
        );
        check(
            "bearer resource_metadata=https://a/x, scope=read",
            Some("https://a/x"),
            Some("read"),
        );
        check("Bearer", None, None);
        check(r#"Basic realm="x""#, None, None);
        check(r#"Bearer resource_metadata="unclosed"#, None, None);
    }

    #[test]
    fn addresses_are_encrypted_or_local() {
        let check = |server: &str, text: &str, expect: bool| {
            let server = Url::parse(server).unwrap();
            assert_eq!(checked_url(&server, text).is_ok(), expect, "{server} {text}");
        };
        check("https://a.example/mcp", "https://b.example", true);
        check("https://a.example/mcp", "http://b.example", false);
        check("https://a.example/mcp", "http://127.0.0.1:1", false);
        check("http://127.0.0.1:1/mcp", "http://127.0.0.1:2", true);
        check("https://a.example/mcp", "file:///etc/passwd", false);
        check("https://a.example/mcp", "", false);
    }

    #[test]
    fn metadata_is_about_the_server() {
        let check = |resource: &str, expect: bool| {
            let server = Url::parse("https://a.example/mcp/v1").unwrap();
            let actual = checked_resource(&server, &json!({ "resource": resource }));
            assert_eq!(actual.is_ok(), expect, "{resource}");
        };
        check("https://a.example/mcp/v1", true);
        check("https://a.example/", true);
        check("https://a.example/mcp", true);
        check("https://a.example/mcp/", true);
        check("https://a.example/mc", false);
        check("https://a.example/mcp/v", false);
        check("https://a.example/mcp/v1/x", false);
        check("https://a.example/mcp/v1?x", false);
        check("https://a.example/other", false);
        check("https://b.example/mcp/v1", false);
    }
}
