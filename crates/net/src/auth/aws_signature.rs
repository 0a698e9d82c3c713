//! Signatures of requests to AWS: version 4, as "Create a signed AWS API request" of AWS describes it. No I/O.

use crate::content_digest::{sha256_hex, to_hex};
use ::http::Uri;
use anyhow::{Context, Result};
use nanobot_os::secret::Secret;
use ring::hmac;

/// The algorithm, which is part of what is signed.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The credentials that sign a request. The secret key itself is never sent.
#[derive(Clone, Debug)]
pub struct AwsKeys {
    pub access_key_id: String,
    pub secret_access_key: Secret,
    /// Sent with each request, for credentials that expire.
    pub session_token: Option<Secret>,
}

/// A request to be signed.
#[derive(Clone, Copy, Debug)]
pub struct UnsignedRequest<'a> {
    pub method: &'a str,
    pub url: &'a str,
    pub body: &'a [u8],
    pub region: &'a str,
    /// The name under which AWS knows the service.
    pub service: &'a str,
    /// The time in UTC, as `20260102T030405Z`. The server refuses one that differs from its own by some minutes.
    pub time: &'a str,
}

/// Signs `request`: returns the headers to add to it. Only these and the host are signed, since proxies may change others.
///
/// # Errors
/// The URL is not valid.
pub fn sign(request: &UnsignedRequest<'_>, keys: &AwsKeys) -> Result<Vec<(String, String)>> {
    let UnsignedRequest { method, region, service, time, .. } = request;
    let uri: Uri = request.url.parse().with_context(|| format!("sign {}", request.url))?;
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let body_digest = sha256_hex(request.body);
    // In the order of their names.
    let mut headers =
        vec![("host", host), ("x-amz-content-sha256", body_digest.as_str()), ("x-amz-date", *time)];
    headers.extend(keys.session_token.iter().map(|token| ("x-amz-security-token", token.expose())));
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let (path, query) = (canonical_path(uri.path()), canonical_query(uri.query()));
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body_digest}");
    let date = time.split('T').next().unwrap_or_default();
    let scope = format!("{date}/{region}/{service}/aws4_request");
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", sha256_hex(canonical.as_bytes()));
    let mut key = format!("AWS4{}", keys.secret_access_key.expose()).into_bytes();
    for part in [date, *region, *service, "aws4_request"] {
        key = hmac_of(&key, part).as_ref().to_vec();
    }
    let signature = to_hex(hmac_of(&key, &text).as_ref());
    let id = &keys.access_key_id;
    let authorization = format!(
        "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
    );
    headers[0] = ("authorization", &authorization);
    Ok(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

fn hmac_of(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// The path as it is signed: encoded once more than it is sent.
fn canonical_path(path: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
}

/// The query as it is signed: its parameters in order.
fn canonical_query(query: Option<&str>) -> String {
    let parameters = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
    let mut parameters: Vec<(&str, &str)> =
        parameters.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
    parameters.sort_unstable();
    let parameters = parameters.iter().map(|(name, value)| format!("{name}={value}"));
    parameters.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::{AwsKeys, UnsignedRequest, sign};
    use nanobot_os::secret::Secret;

    /// The expected signatures were computed with botocore 1.44.8.
    #[test]
    fn signatures_are_those_of_the_vendors_client() {
        let check = |method, url, body: &str, place: &str, token: Option<&str>, expect: &str| {
            let (region, service) = place.split_once('/').unwrap();
            let (body, time) = (body.as_bytes(), "20260102T030405Z");
            let keys = AwsKeys {
                access_key_id: "AKIDEXAMPLE".into(),
                secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
                session_token: token.map(Secret::new),
            };
            let request = UnsignedRequest { method, url, body, region, service, time };
            let headers = sign(&request, &keys).unwrap();
            let find = |name: &str| {
                let header = headers.iter().find(|(other, _)| other == name);
                header.map(|(_, value)| value.as_str())
            };
            let names = "host;x-amz-content-sha256;x-amz-date";
            let more = if token.is_some() { ";x-amz-security-token" } else { "" };
            let expect = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260102/{place}/aws4_request, SignedHeaders={names}{more}, \
                 Signature={expect}"
            );
            assert_eq!(find("authorization"), Some(expect.as_str()));
            assert_eq!(find("x-amz-date"), Some(time));
            assert_eq!(find("x-amz-security-token"), token);
            assert_eq!(find("host"), None);
            assert!(headers.iter().all(|(_, value)| !value.contains("wJalr")));
        };
        check(
            "POST",
            "https://bedrock-mantle.us-east-1.api.aws/anthropic/v1/messages",
            r#"{"model":"m"}"#,
            "us-east-1/bedrock-mantle",
            None,
            "986fa69528296466e6e4549261264fd247ef6d1fee65c4ae04573ac1733bded9",
        );
        check(
            "POST",
            "https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1/chat/completions",
            "{}",
            "eu-central-1/bedrock",
            Some("session+token/of=it"),
            "7865b93550f35b842d3a99c7e77d36759ca2568a7eca9ccfa0c39158da96ab66",
        );
        check(
            "GET",
            "http://127.0.0.1:8080/anthropic/v1/models?limit=1000&after_id=b%2Fc",
            "",
            "us-west-2/bedrock",
            None,
            "828307bd97b0b2bc547fbdc315369ab181ecee040e185e1f11f3b6fc10fad2a7",
        );
        check(
            "POST",
            "https://h.example/a%20b/model/us.anthropic.claude-x:0/invoke",
            "x",
            "us-east-1/bedrock",
            None,
            "64716c09021de349a208a2d01674086a6a0811ffb5ada54c425f0069e0351cdf",
        );
    }
}
