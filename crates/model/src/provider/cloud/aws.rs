//! The keys of AWS: in variables, or of a profile, in its files or printed by its `credential_process`. Services that give keys to
//! machines and roles are not asked: the tools of AWS do that in such a process.

use super::aws_profiles::{AwsProfile, DEFAULT_PROFILE, Profiles};
use super::{ExpiringSecret, cached_secret, forget, host_of, is_at_host};
use anyhow::{Context, Result};
use jiff::Timestamp;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_net::auth::aws_signature::{self, AwsKeys, UnsignedRequest};
use nanobot_os::clock::Clock;
use nanobot_os::env::Env;
use nanobot_os::secret::{self, Secret};
use nanobot_sandbox::stored_secret;
use serde::Deserialize;

const KEY_ID_VARIABLE: &str = "AWS_ACCESS_KEY_ID";
const SECRET_VARIABLE: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN_VARIABLE: &str = "AWS_SESSION_TOKEN";
/// The variables of the region, in the order of their precedence.
const REGION_VARIABLES: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
const PROFILE_VARIABLE: &str = "AWS_PROFILE";
/// The values of a profile whose keys a service of AWS gives.
const ROLE_KEYS: [&str; 4] =
    ["sso_session", "sso_start_url", "role_arn", "web_identity_token_file"];

/// The place of the keys, and the region that they are used in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AwsSource {
    /// The profile of the config; `None` for the variables, and after them the profile that a variable names.
    pub profile: Option<String>,
    pub region: String,
}

/// The output of a `credential_process`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProcessOutput {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

impl ProcessOutput {
    /// The end of the keys; the end of time if they have none. `None` if it is no time.
    fn expires_at(&self) -> Option<Timestamp> {
        self.expiration.as_deref().map_or(Some(Timestamp::MAX), |text| text.parse().ok())
    }
}

impl AwsSource {
    /// The place of the keys, in a phrase.
    pub(in crate::provider) fn label(&self, env: &Env) -> String {
        if self.uses_variables(env) {
            format!("${KEY_ID_VARIABLE}")
        } else {
            format!("the AWS profile `{}`", self.profile_name(env))
        }
    }

    fn uses_variables(&self, env: &Env) -> bool {
        let is_set = |name| env.get(name).is_some();
        self.profile.is_none() && (is_set(KEY_ID_VARIABLE) || is_set(SECRET_VARIABLE))
    }

    fn profile_name<'a>(&'a self, env: &'a Env) -> &'a str {
        let named = self.profile.as_deref().or_else(|| env.get(PROFILE_VARIABLE));
        named.unwrap_or(DEFAULT_PROFILE)
    }

    /// The headers that sign a request with `keys`.
    ///
    /// # Errors
    /// The URL is not valid.
    pub(in crate::provider) fn sign(
        &self,
        keys: &AwsKeys,
        method: &str,
        url: &str,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Vec<(String, String)>> {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let (region, service) = (self.region.as_str(), service_of(url));
        let request = UnsignedRequest { method, url, body, region, service, time: &time };
        aws_signature::sign(&request, keys)
    }

    /// The options of curl with which it signs a request to `url`, with keys in variables.
    pub(in crate::provider) fn curl_options(&self, url: &str) -> String {
        let (region, service) = (&self.region, service_of(url));
        format!(
            "  --aws-sigv4 'aws:amz:{region}:{service}' \\\n  --user \"${KEY_ID_VARIABLE}:${SECRET_VARIABLE}\" \\\n  \
             -H \"x-amz-security-token: ${TOKEN_VARIABLE}\" \\\n"
        )
    }

    /// Finds the keys.
    ///
    /// # Errors
    /// Status 78 if there are none, or those of the profile have expired.
    pub(in crate::provider) fn resolve(&self, env: &Env, clock: &Clock) -> Result<AwsKeys> {
        let keys = if self.uses_variables(env) {
            variable_keys(env)?
        } else {
            let profiles = Profiles::read(env)?;
            let name = self.profile_name(env);
            let profile =
                profiles.find(name).ok_or_else(|| self.missing_error(name, env, &profiles))?;
            profile_keys(name, profile, env, clock)?
        };
        secret::register(&keys.secret_access_key);
        keys.session_token.iter().for_each(secret::register);
        Ok(keys)
    }

    /// Forgets the keys that a process has printed, so that it runs again.
    pub(in crate::provider) fn forget(&self, env: &Env) -> Result<()> {
        if !self.uses_variables(env)
            && let Some(command) = Profiles::read(env)?
                .find(self.profile_name(env))
                .and_then(|profile| profile.get("credential_process"))
        {
            forget(command);
        }
        Ok(())
    }

    /// The error about a profile that does not exist.
    fn missing_error(&self, name: &str, env: &Env, profiles: &Profiles) -> anyhow::Error {
        let file_names = &profiles.file_names;
        if self.profile.is_none() && env.get(PROFILE_VARIABLE).is_none() {
            let cause =
                format!("no AWS keys: neither variables nor a default profile in {file_names}");
            let hint = format!("set {KEY_ID_VARIABLE} and {SECRET_VARIABLE}, or `profile`");
            return fail(Exit::Config, cause).with_hint(hint);
        }
        let cause = format!("there is no AWS profile `{name}` in {file_names}");
        let names = profiles.names().collect::<Vec<_>>().join(", ");
        if names.is_empty() {
            fail(Exit::Config, cause)
        } else {
            fail(Exit::Config, cause).with_hint(format!("one of {names}"))
        }
    }
}

/// True if `url` is at a host of AWS.
pub(in crate::provider) fn is_own_host(url: &str) -> bool {
    is_at_host(url, &["amazonaws.com", "amazonaws.com.cn", "api.aws"])
}

/// The name under which AWS knows the service at `url`, as its clients have it.
fn service_of(url: &str) -> &'static str {
    let host = host_of(url).unwrap_or_default();
    let is_mantle = host.split('.').any(|label| label == "bedrock-mantle");
    if is_mantle { "bedrock-mantle" } else { "bedrock" }
}

/// The region of an address of AWS; else the one in the config, in a variable or of the profile.
pub(in crate::provider) fn region(
    base_url: Option<&str>,
    configured: Option<&str>,
    profile: Option<&str>,
    env: &Env,
) -> Result<Option<String>> {
    let is_service = |label: &&str| label.starts_with("bedrock-");
    let host = base_url.filter(|url| is_own_host(url)).and_then(host_of).unwrap_or_default();
    let in_host = host.split('.').skip_while(|label| !is_service(label)).nth(1);
    let region = in_host
        .or(configured)
        .or_else(|| REGION_VARIABLES.iter().find_map(|name| env.get(name)))
        .map(str::to_owned);
    if region.is_some() {
        return Ok(region);
    }
    let source = AwsSource { profile: profile.map(str::to_owned), region: String::new() };
    let profiles = Profiles::read(env)?;
    let profile = profiles.find(source.profile_name(env));
    Ok(profile.and_then(|profile| profile.get("region").cloned()))
}

/// The address for `model` in `region`. Anthropic's models have their own format at the newer of the two services, which streams it
/// as Anthropic does; the other one serves all models in OpenAI's format.
pub(in crate::provider) fn base_url(region: &str, model: &str) -> String {
    if model.contains("claude") {
        return format!("https://bedrock-mantle.{region}.api.aws/anthropic");
    }
    let end = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://bedrock-runtime.{region}.amazonaws.com{end}/openai/v1")
}

fn variable_keys(env: &Env) -> Result<AwsKeys> {
    let required = |name: &str, other: &str| {
        env.get(name).ok_or_else(|| fail(Exit::Config, format!("${other} is set without ${name}")))
    };
    Ok(AwsKeys {
        access_key_id: required(KEY_ID_VARIABLE, SECRET_VARIABLE)?.to_owned(),
        secret_access_key: Secret::new(required(SECRET_VARIABLE, KEY_ID_VARIABLE)?),
        session_token: env.get(TOKEN_VARIABLE).map(Secret::new),
    })
}

fn profile_keys(name: &str, profile: &AwsProfile, env: &Env, clock: &Clock) -> Result<AwsKeys> {
    let value = |key: &str| profile.get(key).filter(|value| !value.is_empty());
    match (value("aws_access_key_id"), value("aws_secret_access_key")) {
        (Some(id), Some(secret)) => Ok(AwsKeys {
            access_key_id: id.clone(),
            secret_access_key: Secret::new(secret),
            session_token: value("aws_session_token").map(Secret::new),
        }),
        (None, None) => {
            if let Some(command) = value("credential_process") {
                return process_keys(name, command, env, clock);
            }
            let role_key = ROLE_KEYS.into_iter().find(|key| profile.contains_key(*key));
            let reason = role_key.map(|key| format!(" (`{key}`)")).unwrap_or_default();
            let process = format!("aws configure export-credentials --profile {name}");
            let hint = format!("another profile with `credential_process = {process}`");
            let cause = format!("the AWS profile `{name}` has no keys of its own{reason}");
            Err(fail(Exit::Config, cause).with_hint(hint))
        }
        _ => Err(fail(Exit::Config, format!("the AWS profile `{name}` has half of a key"))),
    }
}

/// The keys that a command prints as JSON.
fn process_keys(name: &str, command: &str, env: &Env, clock: &Clock) -> Result<AwsKeys> {
    let now = clock.timestamp();
    let parse = |text: &Secret| {
        let output = serde_json::from_str::<ProcessOutput>(text.expose()).ok();
        let output = output.and_then(|output| Some((output.expires_at()?, output)));
        output.ok_or_else(|| {
            let cause = format!("the `credential_process` of `{name}` prints no keys in JSON");
            fail(Exit::Config, cause)
        })
    };
    let printed = cached_secret(command, now, || {
        let env: Vec<_> =
            env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let secret = stored_secret::command_output(command, &env)
            .with_context(|| format!("run the `credential_process` of `{name}`"))?;
        let (expires_at, _) = parse(&secret)?;
        if expires_at <= now {
            let cause = format!(
                "the keys of the AWS profile `{name}` ended at {expires_at}; this machine's clock says {now}"
            );
            return Err(fail(Exit::Config, cause));
        }
        Ok(ExpiringSecret { secret, expires_at })
    })?;
    let (_, output) = parse(&printed)?;
    Ok(AwsKeys {
        access_key_id: output.access_key_id,
        secret_access_key: Secret::new(output.secret_access_key),
        session_token: output.session_token.map(Secret::new),
    })
}

#[cfg(test)]
mod tests {
    use super::{AwsSource, base_url, region, service_of};
    use nanobot_os::clock::Clock;
    use nanobot_os::env::Env;

    #[test]
    fn the_region_is_that_of_the_address() {
        let check = |base: Option<&str>, configured: Option<&str>, expect: Option<&str>| {
            let env: Env = [("AWS_DEFAULT_REGION", "eu-north-1")].into_iter().collect();
            let found = region(base, configured, None, &env).unwrap();
            assert_eq!(found.as_deref(), expect, "{base:?}");
        };
        check(Some("https://bedrock-mantle.us-east-1.api.aws/anthropic"), None, Some("us-east-1"));
        check(
            Some("https://x.bedrock-runtime.eu-west-3.vpce.amazonaws.com"),
            Some("us-east-1"),
            Some("eu-west-3"),
        );
        check(Some("http://127.0.0.1:80"), Some("us-east-1"), Some("us-east-1"));
        check(Some("https://bedrock-runtime.evil.example"), None, Some("eu-north-1"));
        check(None, None, Some("eu-north-1"));
    }

    #[test]
    fn the_service_is_that_of_the_address() {
        assert_eq!(service_of(&base_url("r", "anthropic.claude-haiku-4-5")), "bedrock-mantle");
        assert_eq!(service_of(&base_url("cn-north-1", "openai.gpt-oss-120b-1:0")), "bedrock");
        assert_eq!(service_of("https://h/bedrock-mantle"), "bedrock");
    }

    #[test]
    fn keys_are_in_variables_or_of_a_profile() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        std::fs::create_dir(folder.path().join(".aws")).unwrap();
        let text = "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n[half]\naws_access_key_id = h\n\
                    [sso]\nsso_session = x\n[work]\naws_access_key_id = w\naws_secret_access_key = ws\naws_session_token = wt\n";
        std::fs::write(folder.path().join(".aws/credentials"), text).unwrap();
        let check = |profile: Option<&str>, variables: &[(&str, &str)], expect: &str| {
            let env: Env = [("HOME", home)].iter().chain(variables).copied().collect();
            let source = AwsSource { profile: profile.map(str::to_owned), region: "r".to_owned() };
            let found = match source.resolve(&env, &Clock::from_env(&env).unwrap()) {
                Ok(keys) => format!(
                    "{} {} {}",
                    keys.access_key_id,
                    keys.secret_access_key.expose(),
                    keys.session_token.as_ref().map_or("-", |token| token.expose())
                ),
                Err(error) => format!("{error:#}"),
            };
            assert!(found.contains(expect), "{found}");
        };
        let variables = [("AWS_ACCESS_KEY_ID", "v"), ("AWS_SECRET_ACCESS_KEY", "vs")];
        check(None, &variables, "v vs -");
        check(Some("work"), &variables, "w ws wt");
        check(None, &[("AWS_PROFILE", "work")], "w ws wt");
        check(None, &[], "d ds -");
        check(None, &variables[..1], "$AWS_ACCESS_KEY_ID is set without $AWS_SECRET_ACCESS_KEY");
        check(Some("half"), &[], "`half` has half of a key");
        check(Some("sso"), &[], "`sso` has no keys of its own (`sso_session`)");
        check(Some("none"), &[], "there is no AWS profile `none` in `");
    }
}
