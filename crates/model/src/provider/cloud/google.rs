//! The tokens of Google Cloud, for a key file of a service account, or for the login that `gcloud auth application-default login` keeps.
//! Other kinds of files, and machines that get tokens from their host, are left to `gcloud auth print-access-token`.

use super::{ExpiringSecret, cached_secret, forget, is_at_host};
use crate::provider::login::{RequestCredentials, expiry_time};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_net::auth::login_server::{LoginServer, RequestBody};
use nanobot_net::auth::signed_jwt;
use nanobot_net::http::Http;
use nanobot_net::web_url;
use nanobot_os::clock::Clock;
use nanobot_os::env::Env;
use nanobot_os::input;
use nanobot_os::secret::{self, Secret};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Maximum size of a file.
const MAX_FILE_BYTES: usize = 64 << 10;
/// The permission that a token has, as the vendor's clients ask for it.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The lifetime of a signed request for a token: the longest that the server accepts.
const REQUEST_LIFETIME_SECS: i64 = 3600;
/// The command that keeps a login in a file.
const LOGIN_COMMAND: &str = "gcloud auth application-default login";

/// The form of an address.
pub const BASE_URL_FORM: &str =
    "https://aiplatform.googleapis.com/v1/projects/PROJECT/locations/global";
/// The end of the address of Anthropic's models.
const ANTHROPIC_PATH: &str = "/publishers/anthropic";

/// The address for `model` at `base`, a location of a project: Anthropic's models have their own format, beneath a path of theirs.
pub(in crate::provider) fn base_url(base: &str, model: &str) -> String {
    let base = base.trim_end_matches('/');
    if model.contains("claude") && !base.ends_with(ANTHROPIC_PATH) {
        format!("{base}{ANTHROPIC_PATH}")
    } else {
        base.to_owned()
    }
}

/// True if `url` is at a host of Google's interfaces.
pub(in crate::provider) fn is_own_host(url: &str) -> bool {
    is_at_host(url, &["googleapis.com"])
}

/// The file of the credentials: that of a variable, or the one that `gcloud` writes.
pub(in crate::provider) fn default_file(env: &Env) -> PathBuf {
    let name = "application_default_credentials.json";
    env.path("GOOGLE_APPLICATION_CREDENTIALS").unwrap_or_else(|| {
        let own = || env.home().unwrap_or_default().join(".config/gcloud");
        env.path("CLOUDSDK_CONFIG").unwrap_or_else(own).join(name)
    })
}

/// The credentials of a request, for those in the file at `path`. `token_url` is the vendor's own server of tokens.
///
/// # Errors
/// Status 78 if the file has no credentials, 77 if the server refuses them, 69 and 75 if there is no token at the moment.
pub(in crate::provider) fn credentials(
    path: &Path,
    http: &Http,
    clock: &Clock,
    token_url: &str,
) -> Result<RequestCredentials> {
    let file = CredentialFile::read(path)?;
    let token = cached_secret(&path.display().to_string(), clock.timestamp(), || {
        file.request_token(http, clock, token_url)
    })?;
    let project = file.content["quota_project_id"].as_str();
    let headers = project.map(|project| ("x-goog-user-project".to_owned(), project.to_owned()));
    Ok(RequestCredentials { token, base_url: None, headers: headers.into_iter().collect() })
}

/// Forgets the token for the file at `path`, which a server has rejected.
pub(in crate::provider) fn forget_token(path: &Path) {
    forget(&path.display().to_string());
}

/// A file with credentials.
struct CredentialFile<'p> {
    path: &'p Path,
    content: Value,
}

impl<'p> CredentialFile<'p> {
    fn read(path: &'p Path) -> Result<Self> {
        let file_name = path.display().to_string();
        if !path.exists() {
            let cause = format!("there are no credentials of Google Cloud at `{file_name}`");
            return Err(fail(Exit::Config, cause).with_hint(LOGIN_COMMAND));
        }
        let bytes = input::read_file(path, &file_name, MAX_FILE_BYTES)
            .map_err(|error| fail(Exit::Config, format!("{error:#}")))?;
        let content = serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object);
        let content = content.ok_or_else(|| {
            fail(Exit::Config, format!("`{file_name}` is damaged: it is no JSON object"))
        })?;
        Ok(Self { path, content })
    }

    /// A required text of the file.
    fn text(&self, name: &str) -> Result<&str> {
        let text = self.content[name].as_str().filter(|text| !text.is_empty());
        text.ok_or_else(|| {
            fail(Exit::Config, format!("`{}` is damaged: it has no `{name}`", self.path.display()))
        })
    }

    /// Exchanges the credentials for a token.
    fn request_token(&self, http: &Http, clock: &Clock, token_url: &str) -> Result<ExpiringSecret> {
        let now = clock.timestamp();
        let server = |login_command: &str| LoginServer {
            http,
            clock,
            label: "Google",
            login_command: login_command.to_owned(),
        };
        let kind = self.text("type")?;
        let (server, url, form) = match kind {
            "service_account" => {
                let url = self.token_url(token_url)?;
                let claims = json!({
                    "iat": now.as_second(), "exp": now.as_second() + REQUEST_LIFETIME_SECS,
                    "iss": self.text("client_email")?, "aud": url, "scope": SCOPE,
                });
                let key = self.text("private_key")?;
                secret::register(&Secret::new(key));
                let key_id = self.content["private_key_id"].as_str();
                let assertion = signed_jwt::sign_rs256(&claims, key, key_id)
                    .with_context(|| format!("read the key in `{}`", self.path.display()))
                    .map_err(|error| fail(Exit::Config, format!("{error:#}")))?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned();
                let form = vec![("grant_type", grant), ("assertion", assertion)];
                (server("another key of the service account"), url, form)
            }
            "authorized_user" => {
                let mut form = vec![("grant_type", "refresh_token".to_owned())];
                for name in ["client_id", "client_secret", "refresh_token"] {
                    form.push((name, self.text(name)?.to_owned()));
                }
                (server(LOGIN_COMMAND), token_url, form)
            }
            other => {
                let path = self.path.display();
                let cause = format!(
                    "`{path}` has credentials of the kind `{other}`, not of a service account or a user"
                );
                let hint = "nanobot config set providers.vertex.apiKeyCommand \"gcloud auth print-access-token\"";
                return Err(fail(Exit::Config, cause).with_hint(hint));
            }
        };
        let fields: Vec<(&str, &str)> =
            form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let response = server.send(url, &[], RequestBody::Form(&fields))?;
        let is_about_time = response
            .optional_text("error_description")
            .is_some_and(|text| text.contains("timeframe"));
        let response = response.require_success("issue a token").map_err(|error| {
            if !is_about_time {
                return error;
            }
            fail(Exit::Refused, format!("{error:#}; this machine's clock says {now}"))
        })?;
        let expires_at = expiry_time(now, None, response.number("expires_in"));
        Ok(ExpiringSecret {
            secret: Secret::new(response.required_text("access_token")?),
            expires_at,
        })
    }

    /// The address in the file, to which a request is signed.
    fn token_url<'a>(&'a self, default: &'a str) -> Result<&'a str> {
        let url = self.content["token_uri"].as_str().unwrap_or(default);
        if url.starts_with("https://") || web_url::is_local_cleartext(url) {
            return Ok(url);
        }
        let cause = format!("the `token_uri` in `{}` is no https address", self.path.display());
        Err(fail(Exit::Config, cause))
    }
}
