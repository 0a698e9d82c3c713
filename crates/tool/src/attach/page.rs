//! Fetches a page from the public internet. See [`Http::public_only`] for the addresses that are refused.

use super::charset::{declared_encoding, is_html};
use super::content::{media_part, text_part};
use super::html;
use super::options::AttachOptions;
use super::origin::AttachmentOrigin;
use anyhow::Result;
use nanobot_base::error::{Exit, Stop, WithHint, exit_for, fail};
use nanobot_base::message::MessagePart;
use nanobot_net::http::{Http, HttpMethod, HttpTimeouts, Response};
use nanobot_os::input;
use std::time::Duration;

/// Maximum size of a response in bytes, after decompression.
const MAX_RESPONSE_BYTES: u64 = 20 << 20;

const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(120),
};

/// True if `name` is an HTTP address and not a file.
pub(super) fn is_http_url(name: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| {
        name.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    })
}

/// Fetches `url`: a page becomes its text, any other content is handled like a file.
///
/// # Errors
/// Status 66 if it does not exist, 69 if it cannot be reached, 77 if it must not be fetched.
pub(super) fn fetch(
    url: &str,
    options: &AttachOptions<'_>,
    on_notice: &mut dyn FnMut(&str),
) -> Result<MessagePart> {
    let Some(network) = options.network else {
        let cause = format!("`--offline` does not allow fetching `{url}`");
        return Err(fail(Exit::Unavailable, cause));
    };
    let http = Http::public_only(TIMEOUTS, network, options.env);
    let mut response = http
        .request(url, &[("accept".into(), ACCEPT_HEADER.into())], HttpMethod::Get)
        .map_err(|error| fetch_error(url, error))?;
    match response.status {
        200..300 => {}
        404 | 410 => return Err(fail(Exit::NoInput, format!("no such page: `{url}`"))),
        status => {
            let cause = format!("fetch `{url}`: the server responded with status {status}");
            return Err(fail(Exit::Unavailable, cause));
        }
    }
    let bytes = read_body(url, &mut response)?;
    // The fragment is not sent to the server.
    let url_without_fragment = url.split('#').next().unwrap_or_default();
    let name = if response.url.trim_end_matches('/') == url_without_fragment.trim_end_matches('/') {
        url.to_owned()
    } else {
        format!("{url} (at {})", response.url)
    };
    let origin = AttachmentOrigin::Page(&name);
    if let Some(part) = media_part(&bytes, origin, options, on_notice)? {
        return Ok(part);
    }
    let content_type = response.header("content-type").unwrap_or_default().to_owned();
    // UTF-8 is the default, and invalid UTF-8 is then noticed.
    let text = match declared_encoding(&content_type, &bytes)
        .filter(|encoding| *encoding != encoding_rs::UTF_8)
    {
        Some(encoding) => encoding.decode(&bytes).0.into_owned(),
        None => {
            let decoded = input::decode(bytes, &origin.to_string())?;
            decoded.notice.iter().for_each(|notice| on_notice(notice));
            decoded.text
        }
    };
    let text = if is_html(&content_type) { html::extract_text(&text) } else { text };
    text_part(&text, origin)
}

/// Preferred content types, for servers that offer several forms of a page.
const ACCEPT_HEADER: &str = "text/markdown, text/html;q=0.9, text/plain;q=0.9, */*;q=0.5";

fn read_body(url: &str, response: &mut Response) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let result = response.read_more(&mut bytes, MAX_RESPONSE_BYTES + 1, None);
    result.map_err(|error| fetch_error(url, error))?;
    if bytes.len() as u64 > MAX_RESPONSE_BYTES {
        let cause = format!("`{url}` is longer than {} MiB", MAX_RESPONSE_BYTES >> 20);
        return Err(fail(Exit::BadInput, cause));
    }
    Ok(bytes)
}

/// Adds the address to a failed request's error, and the exit status.
fn fetch_error(url: &str, error: anyhow::Error) -> anyhow::Error {
    if error.is::<Stop>() {
        return error;
    }
    let cause = format!("fetch `{url}`: {error:#}");
    match exit_for(&error) {
        Exit::Config => fail(Exit::Usage, cause),
        Exit::Refused => fail(Exit::Refused, cause)
            .with_hint("`curl -s URL | nanobot agent -a - -m …` to fetch it yourself"),
        _ => fail(Exit::Unavailable, cause),
    }
}

#[cfg(test)]
mod tests {
    use super::is_http_url;

    #[test]
    fn addresses_and_files() {
        for url in ["https://a.example", "HTTPS://a.example/b", "http://a"] {
            assert!(is_http_url(url), "{url}");
        }
        for file in ["", "https:", "a.txt", "./https://a", "ftp://a", "ééééé"] {
            assert!(!is_http_url(file), "{file}");
        }
    }
}
