//! Selects the provider, address and model of a run. The rules are those of the Python program: a config made for it
//! gives the same result. Our additions apply last: keys from environment variables and credentials.

use super::config::{KeyLabel, KeySource, ProviderConfig};
use super::model_info::{self, ModelInfo, Prices};
use super::provider_info::{
    ApiFormat, CredentialKind, PrefixStripping, ProviderInfo, ProviderKind,
};
use super::table::{PROVIDERS, USERS_OWN, find_provider, normalize_name};
use crate::provider::cloud::aws::{self, AwsSource};
use crate::provider::cloud::google;
use crate::provider::quirks::{Quirks, ThinkingStyle, is_reasoning_model};
use anyhow::Result;
use nanobot_base::error::{Exit, UserAction, WithHint, fail, fail_with_parts};
use nanobot_net::http;
use nanobot_net::web_url;
use nanobot_os::env::{CREDENTIALS_DIRECTORY, Env};
use nanobot_os::secret::{LazySecret, Secret};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The input of [`select_provider`].
pub struct SelectInput<'a> {
    /// A provider's name, or `auto`.
    pub provider: &'a str,
    /// The model as requested.
    pub model: &'a str,
    /// True if the model was specified and is not our default.
    pub is_model_explicit: bool,
    /// The configs of the providers, by their names as written.
    pub configs: &'a BTreeMap<String, ProviderConfig>,
    pub env: &'a Env,
}

/// The selected provider, and everything needed to send requests to it.
#[derive(Debug)]
pub struct SelectedProvider {
    pub provider: String,
    /// The table entry whose rules apply. It is the entry of a gateway if the config of another vendor leads to one.
    pub entry: &'static ProviderInfo,
    /// The model's name as sent to the server.
    pub model: String,
    /// The base URL without a trailing slash.
    pub base_url: String,
    pub key: Option<KeySource>,
    pub key_label: KeyLabel,
    /// True if the address comes from the config.
    pub is_base_configured: bool,
    pub key_header: &'static str,
    pub headers: Vec<(String, LazySecret)>,
    /// Extra fields of every request body.
    pub body: Map<String, Value>,
    pub query: Vec<(String, String)>,
    /// The wire format. Never [`ApiFormat::OpenAi`], which is resolved by then.
    pub format: ApiFormat,
    pub quirks: Quirks,
    pub model_info: Option<&'static ModelInfo>,
    /// `None` if the prices are unknown.
    pub prices: Option<Prices>,
}

/// Selects a provider as the Python program does: by name; else by the model's prefix, by a keyword in its name, or the
/// first provider with a key. A model that belongs to a vendor whose key is in a variable is not sent to another vendor.
///
/// # Errors
/// Status 78 if no provider is usable, with hints.
pub fn select_provider(input: &SelectInput<'_>) -> Result<SelectedProvider> {
    if normalize_name(input.provider) != "auto" {
        return resolve_provider(input, input.provider);
    }
    let model = RequestedModel::parse(input.model);
    let name = provider_by_prefix(input, &model)
        .or_else(|| provider_by_config(input, &model))
        .or_else(|| provider_by_variable(input, &model));
    match name {
        Some(name) => resolve_provider(input, name),
        None => Err(no_provider_error(input)),
    }
}

/// The name of the model as requested, by which a provider is selected.
struct RequestedModel {
    /// The whole name in lower case.
    lower: String,
    /// The part before the first slash, as [`normalize_name`] returns it.
    prefix: Option<String>,
}

impl RequestedModel {
    fn parse(model: &str) -> Self {
        let lower = model.to_lowercase();
        let prefix = lower.split_once('/').map(|(prefix, _)| normalize_name(prefix));
        Self { lower, prefix }
    }

    /// True if the prefix is the name of `provider`.
    fn has_prefix_of(&self, provider: &ProviderInfo) -> bool {
        self.prefix.as_deref() == Some(normalize_name(provider.name).as_str())
    }

    /// True if the prefix is the name of any provider of the table. A local server is not selected for such a model.
    fn has_vendor_prefix(&self) -> bool {
        self.prefix.as_deref().is_some_and(|prefix| find_provider(prefix).is_some())
    }

    /// True if a keyword of `provider` selects it for this model.
    fn matches_keywords_of(&self, provider: &ProviderInfo) -> bool {
        !(provider.is_local() && self.has_vendor_prefix())
            && provider.keywords.iter().any(|keyword| matches_keyword(keyword, &self.lower))
    }
}

/// The provider that the prefix of the model names.
fn provider_by_prefix<'a>(input: &SelectInput<'a>, model: &RequestedModel) -> Option<&'a str> {
    let prefix = model.prefix.as_deref()?;
    // A provider that is named and needs no key needs no config either.
    let is_open = |provider: &&ProviderInfo| {
        is_usable(input, provider)
            || (provider.is_keyless() && !provider.base_url.is_empty())
            || provider.credentials == CredentialKind::Aws
    };
    let mut open_providers = PROVIDERS.iter().filter(is_open);
    if let Some(provider) = open_providers.find(|provider| model.has_prefix_of(provider)) {
        return Some(provider.name);
    }
    // A provider defined by the user. Its models are never sent to another provider, which would bill another
    // account.
    let is_users_own =
        |name: &&String| normalize_name(name) == prefix && find_provider(name).is_none();
    input.configs.keys().find(is_users_own).map(String::as_str)
}

/// The provider for the model among those whose configs are usable: one with a keyword in the model's name, else a local server,
/// else the first one. A model of another vendor whose key is in a variable goes to that vendor.
fn provider_by_config<'a>(input: &SelectInput<'a>, model: &RequestedModel) -> Option<&'a str> {
    let usable = || PROVIDERS.iter().filter(move |provider| is_usable(input, provider));
    let by_keyword = usable().find(|provider| model.matches_keywords_of(provider));
    // A local server with a configured address accepts any model that no other provider claims. Old releases require a
    // key for vLLM: with a key, it is considered in its usual position, as they do.
    let is_keyed_vllm =
        |provider: &ProviderInfo| provider.name == "vllm" && has_key(input, provider);
    let is_configured_local = |provider: &&ProviderInfo| {
        provider.is_local()
            && has_base_url(input, provider)
            && !is_keyed_vllm(provider)
            && !model.has_vendor_prefix()
    };
    let is_metered = |provider: &&ProviderInfo| provider.kind != ProviderKind::Login;
    let provider = by_keyword
        .or_else(|| PROVIDERS.iter().find(is_configured_local))
        .or_else(|| usable().find(is_metered));
    let Some(provider) = provider else {
        return first_of_users_own(input);
    };
    if provider.takes_foreign_models(model.prefix.is_some()) {
        return Some(provider.name);
    }
    // The prefix decides about the vendor. A keyword does so only if none has selected `provider`.
    let mut vendors = PROVIDERS.iter().filter(|vendor| has_external_key(input, vendor));
    let named = vendors.clone().find(|vendor| model.has_prefix_of(vendor));
    let vendor = named.or_else(|| {
        vendors.find(|vendor| by_keyword.is_none() && model.matches_keywords_of(vendor))
    });
    Some(vendor.unwrap_or(provider).name)
}

/// The first provider that the user has defined with an address and a key.
fn first_of_users_own<'a>(input: &SelectInput<'a>) -> Option<&'a str> {
    let is_complete = |(name, config): &(&String, &ProviderConfig)| {
        find_provider(name).is_none() && config.base_url.is_some() && config.key.is_some()
    };
    input.configs.iter().find(is_complete).map(|(name, _)| name.as_str())
}

/// The provider for the model among those whose keys are in variables: the model's own, else the first one.
fn provider_by_variable(input: &SelectInput<'_>, model: &RequestedModel) -> Option<&'static str> {
    let with_key = || PROVIDERS.iter().filter(move |provider| has_external_key(input, provider));
    let is_own = |provider: &&ProviderInfo| {
        model.has_prefix_of(provider) || model.matches_keywords_of(provider)
    };
    // Many users have a Hugging Face token for downloads only.
    let is_for_inference = |provider: &&ProviderInfo| provider.name != "huggingface";
    let provider = with_key().find(is_own).or_else(|| with_key().find(is_for_inference));
    provider.map(|provider| provider.name)
}

/// True if a keyword of the table occurs in a model's name, which is in lower case.
fn matches_keyword(keyword: &str, model: &str) -> bool {
    let model = model.replace('-', "_");
    match keyword.strip_prefix('^') {
        Some(start) => model.split('/').any(|part| part.starts_with(start)),
        None => model.contains(keyword),
    }
}

fn find_config<'a>(input: &'a SelectInput<'_>, name: &str) -> Option<&'a ProviderConfig> {
    let has_name = |(key, _): &(&String, _)| normalize_name(key) == normalize_name(name);
    input.configs.iter().find(has_name).map(|(_, config)| config)
}

fn has_base_url(input: &SelectInput<'_>, provider: &ProviderInfo) -> bool {
    find_config(input, provider.name).is_some_and(|config| config.base_url.is_some())
}

/// True if the config says where a cloud's own tools keep credentials for `provider`, or where they are valid.
fn has_cloud_config(config: &ProviderConfig, provider: &ProviderInfo) -> bool {
    provider.credentials == CredentialKind::Aws
        && (config.region.is_some() || config.profile.is_some())
}

fn has_key(input: &SelectInput<'_>, provider: &ProviderInfo) -> bool {
    find_config(input, provider.name).is_some_and(|config| config.key.is_some())
}

/// True if the key of `provider`, whose address the table has, is in a variable or a credential.
fn has_external_key(input: &SelectInput<'_>, provider: &ProviderInfo) -> bool {
    !provider.base_url.is_empty() && external_key(input.env, provider).is_some()
}

/// True if the config of `provider` has what its kind needs.
fn is_usable(input: &SelectInput<'_>, provider: &ProviderInfo) -> bool {
    match provider.kind {
        ProviderKind::Login => true,
        ProviderKind::Unsupported => false,
        ProviderKind::Local | ProviderKind::Direct => {
            let config = find_config(input, provider.name);
            has_key(input, provider)
                || has_base_url(input, provider)
                || config.is_some_and(|config| has_cloud_config(config, provider))
        }
        ProviderKind::Standard | ProviderKind::Gateway => has_key(input, provider),
    }
}

/// A key for `provider` that is not in the config: a service manager credential or an environment variable.
fn external_key(env: &Env, provider: &ProviderInfo) -> Option<ResolvedKey> {
    provider.key_variables.iter().find_map(|variable| {
        let credential = env.path(CREDENTIALS_DIRECTORY).map(|folder| folder.join(variable));
        if let Some(path) = credential.filter(|path| path.is_file()) {
            return Some(ResolvedKey {
                key: KeySource::File(path),
                kind: "credential",
                label: KeyLabel::Phrase(format!("the credential `{variable}`")),
            });
        }
        Some(ResolvedKey {
            key: KeySource::Secret(LazySecret::new(env.get(variable)?.trim())),
            kind: "variable",
            label: KeyLabel::Variable(variable),
        })
    })
}

/// A key and its source.
struct ResolvedKey {
    key: KeySource,
    /// The kind of source, in one word.
    kind: &'static str,
    label: KeyLabel,
}

/// Finds the key of the provider `name`, which follows the rules of `provider` and has the address `base_url`.
fn resolve_key(
    name: &str,
    config: &ProviderConfig,
    provider: &'static ProviderInfo,
    base_url: &str,
    env: &Env,
) -> Result<Option<ResolvedKey>> {
    if provider.kind == ProviderKind::Login {
        return Ok(Some(ResolvedKey {
            key: KeySource::Login(provider.name),
            kind: "login",
            label: KeyLabel::Phrase(format!("`nanobot model provider login {}`", provider.name)),
        }));
    }
    // The file of a key is that of the credentials from which a token is made. Other servers than Google's get tokens only if
    // the config names it.
    let is_google = provider.credentials == CredentialKind::Google;
    let google_file = match &config.key {
        Some(KeySource::File(path)) if is_google => Some(path.clone()),
        None if is_google && google::is_own_host(base_url) => Some(google::default_file(env)),
        _ => None,
    };
    if let Some(path) = google_file {
        let label = KeyLabel::Phrase(format!("`{}`", path.display()));
        return Ok(Some(ResolvedKey { key: KeySource::Google(path), kind: "google", label }));
    }
    if let Some(key) = &config.key {
        let (kind, phrase) = match key {
            KeySource::Secret(_) => ("config", format!("`providers.{name}.apiKey`")),
            KeySource::File(path) => ("file", format!("`{}`", path.display())),
            KeySource::Command(_) => ("command", format!("`providers.{name}.apiKeyCommand`")),
            KeySource::Login(name) => ("login", format!("`nanobot model provider login {name}`")),
            KeySource::Aws(source) => ("aws", source.label(env)),
            KeySource::Google(path) => ("google", format!("`{}`", path.display())),
        };
        let key = key.clone();
        return Ok(Some(ResolvedKey { key, kind, label: KeyLabel::Phrase(phrase) }));
    }
    // A vendor's environment variable is sent only to that vendor's own host.
    if !provider.base_url.is_empty() && url_host(base_url) != url_host(provider.base_url) {
        return Ok(None);
    }
    match external_key(env, provider) {
        None if provider.credentials == CredentialKind::Aws => aws_key(name, config, base_url, env),
        key => Ok(key),
    }
}

/// The keys of AWS for `base_url`. Another server than AWS gets signatures only if the config says so.
fn aws_key(
    name: &str,
    config: &ProviderConfig,
    base_url: &str,
    env: &Env,
) -> Result<Option<ResolvedKey>> {
    let (region, profile) = (config.region.as_deref(), config.profile.as_deref());
    if region.is_none() && profile.is_none() && !aws::is_own_host(base_url) {
        return Ok(None);
    }
    let region = aws::region(Some(base_url), region, profile, env)?;
    let region = region.ok_or_else(|| missing_region_error(name))?;
    let source = AwsSource { profile: config.profile.clone(), region };
    let label = KeyLabel::Phrase(source.label(env));
    Ok(Some(ResolvedKey { key: KeySource::Aws(source), kind: "aws", label }))
}

fn missing_region_error(name: &str) -> anyhow::Error {
    let hint = format!("nanobot config set providers.{name}.region us-east-1");
    fail(Exit::Config, format!("no AWS region for provider `{name}`")).with_hint(hint)
}

/// The status of a provider, usable or not.
#[derive(Debug)]
pub struct ProviderStatus {
    /// The table entry of that name.
    pub entry: Option<&'static ProviderInfo>,
    /// Empty if it must still be configured.
    pub base_url: String,
    /// The source of its key: the kind in one word, and a phrase.
    pub key: Option<(&'static str, String)>,
    /// True if nothing is missing, as far as is known without a request. A local server is usable if its address or a key is configured.
    pub is_usable: bool,
}

/// The status of the provider `name`, given the configs of all providers.
pub fn provider_status(
    name: &str,
    configs: &BTreeMap<String, ProviderConfig>,
    env: &Env,
) -> ProviderStatus {
    let input = SelectInput { provider: name, model: "", is_model_explicit: false, configs, env };
    let config = find_config(&input, name).cloned().unwrap_or_default();
    let entry = find_provider(name);
    let provider = rules(entry, &config);
    let default_url = provider.base_url;
    let mut base_url = config.base_url.clone().unwrap_or_else(|| default_url.to_owned());
    if base_url.is_empty() && has_cloud_config(&config, provider) {
        // A file that cannot be read is reported by the run that needs it.
        base_url = resolve_base_url(name, &config, provider, provider.default_model, env)
            .unwrap_or_default();
    }
    let key = resolve_key(name, &config, provider, &base_url, env).unwrap_or_default();
    let is_usable = match provider.kind {
        ProviderKind::Unsupported => false,
        ProviderKind::Local | ProviderKind::Direct => {
            !base_url.is_empty() && (config.base_url.is_some() || key.is_some())
        }
        ProviderKind::Standard | ProviderKind::Gateway | ProviderKind::Login => {
            key.is_some() || url_host(&base_url) != url_host(default_url)
        }
    };
    ProviderStatus {
        entry,
        base_url,
        key: key.map(|ResolvedKey { kind, label, .. }| (kind, label.to_string())),
        is_usable,
    }
}

fn resolve_provider(input: &SelectInput<'_>, name: &str) -> Result<SelectedProvider> {
    let config = find_config(input, name).cloned().unwrap_or_default();
    let entry = find_provider(name);
    if let Some(provider) = entry.filter(|provider| provider.kind == ProviderKind::Unsupported) {
        return Err(fail(
            Exit::Config,
            format!("{} is not supported by this release", provider.label),
        )
        .with_hint("`nanobot model list` to see supported providers"));
    }
    let provider = rules(entry, &config);
    let model = match entry {
        Some(provider) if !input.is_model_explicit => provider.default_model,
        _ => input.model,
    };
    let model = wire_model_name(model, name, provider);
    let base_url = resolve_base_url(name, &config, provider, &model, input.env)?;
    let (key, key_label) = match resolve_key(name, &config, provider, &base_url, input.env)? {
        Some(ResolvedKey { key, label, .. }) => (Some(key), label),
        None if needs_key(provider, &base_url) => return Err(missing_key_error(name, provider)),
        None => (None, KeyLabel::Phrase("none".into())),
    };
    let format = resolve_format(name, config.api_type.as_deref(), provider, &base_url, &model)?;
    let model_info = model_info::find_model(&model);
    let mut quirks = resolve_quirks(name, &config, provider, &model, format)?;
    quirks.no_images = model_info.is_some_and(|model_info| !model_info.accepts_images());
    // A server of the user's own network is not charged by the token, whatever its name in the config.
    let prices = if web_url::is_private_server(&base_url) {
        Some(Prices::flat(model_info::FREE))
    } else {
        model_info::find_prices(provider, &model)
    };
    Ok(SelectedProvider {
        provider: name.to_owned(),
        entry: provider,
        base_url: normalize_base_url(&base_url, provider, format),
        model,
        key,
        key_label,
        is_base_configured: config.base_url.is_some(),
        key_header: provider.key_header,
        headers: config.headers,
        body: config.body,
        query: config.query,
        format,
        quirks,
        model_info,
        prices,
    })
}

/// The base URL of the provider `name`, from the config or the table, or that of a cloud for `model`.
fn resolve_base_url(
    name: &str,
    config: &ProviderConfig,
    provider: &ProviderInfo,
    model: &str,
    env: &Env,
) -> Result<String> {
    // The default address of `custom` is a local server, which is used only if the config has a key for it.
    let has_default = provider.kind != ProviderKind::Direct || config.key.is_some();
    let default_url = if has_default { provider.base_url } else { "" };
    let base_url = config.base_url.as_deref().unwrap_or(default_url);
    if !base_url.is_empty() {
        return Ok(match provider.credentials {
            CredentialKind::Google => google::base_url(base_url, model),
            CredentialKind::KeyOnly | CredentialKind::Aws => base_url.to_owned(),
        });
    }
    if provider.credentials == CredentialKind::Aws {
        let (region, profile) = (config.region.as_deref(), config.profile.as_deref());
        let region = aws::region(None, region, profile, env)?;
        return region
            .map(|region| aws::base_url(&region, model))
            .ok_or_else(|| missing_region_error(name));
    }
    let cause = if provider.name.is_empty() && config.base_url.is_none() {
        format!("there is no provider `{name}`")
    } else {
        format!("no base URL for provider `{name}`")
    };
    let address = match provider.credentials {
        CredentialKind::Google => google::BASE_URL_FORM,
        CredentialKind::KeyOnly | CredentialKind::Aws => "https://…",
    };
    let hint = format!("nanobot config set providers.{name}.apiBase {address}");
    Err(fail(Exit::Config, cause).with_hint(hint))
}

/// True if the vendor requires a key. Servers at other addresses may not.
fn needs_key(provider: &ProviderInfo, base_url: &str) -> bool {
    matches!(provider.kind, ProviderKind::Standard | ProviderKind::Gateway)
        && url_host(base_url) == url_host(provider.base_url)
}

fn missing_key_error(name: &str, provider: &ProviderInfo) -> anyhow::Error {
    let variable = provider.key_variables.first().unwrap_or(&"its API key variable");
    fail(Exit::Config, format!("no API key for provider `{name}`"))
        .with_hint(format!("`nanobot onboard`, or set {variable}"))
}

/// The quirks of `model` at this provider.
fn resolve_quirks(
    name: &str,
    config: &ProviderConfig,
    provider: &ProviderInfo,
    model: &str,
    format: ApiFormat,
) -> Result<Quirks> {
    let is_anthropic = format == ApiFormat::Anthropic;
    let mut quirks = provider.quirks.with_model(model, is_anthropic);
    if let Some(style) = &config.thinking_style {
        quirks.thinking = parse_thinking_style(name, style)?;
    }
    // Gateways pass cache marks on. Other servers may not.
    let passes_on = provider.kind == ProviderKind::Gateway;
    quirks.cache_marks = quirks.cache_marks.filter(|_| is_anthropic || passes_on);
    Ok(quirks)
}

/// The rules for a provider with the config `config`. If its key or its address is a gateway's, the rules of the gateway apply,
/// whatever the name in the config.
fn rules(entry: Option<&'static ProviderInfo>, config: &ProviderConfig) -> &'static ProviderInfo {
    entry.map_or(&USERS_OWN, |entry| detect_gateway(config, entry).unwrap_or(entry))
}

/// The gateway that the config of another vendor leads to, judging by its key or address.
fn detect_gateway(
    config: &ProviderConfig,
    provider: &ProviderInfo,
) -> Option<&'static ProviderInfo> {
    if provider.kind != ProviderKind::Standard {
        return None;
    }
    let key = match &config.key {
        Some(KeySource::Secret(key)) => key.text().map(Secret::expose).unwrap_or_default(),
        _ => "",
    };
    let base_url = config.base_url.as_deref().unwrap_or_default();
    PROVIDERS.iter().filter(|gateway| gateway.kind == ProviderKind::Gateway).find(|gateway| {
        let by_key = !gateway.key_prefix.is_empty() && key.starts_with(gateway.key_prefix);
        by_key && base_url.is_empty()
            || (!gateway.url_keyword.is_empty() && base_url.contains(gateway.url_keyword))
    })
}

/// Normalizes the base URL: removes path parts that the format adds, and adds the provider's fixed suffix.
fn normalize_base_url(base: &str, provider: &ProviderInfo, format: ApiFormat) -> String {
    let base = base.trim_end_matches('/');
    let strip = |base: &str, suffix: &str| base.strip_suffix(suffix).unwrap_or(base).to_owned();
    let base = match format {
        ApiFormat::Anthropic => strip(&strip(base, "/messages"), "/v1"),
        ApiFormat::Responses => strip(base, "/responses"),
        ApiFormat::Chat | ApiFormat::OpenAi => strip(base, "/chat/completions"),
    };
    if format == ApiFormat::Anthropic || base.ends_with(provider.url_suffix) {
        return base;
    }
    base + provider.url_suffix
}

/// The wire format. The config may name it as this program or the Python program does.
fn resolve_format(
    name: &str,
    configured: Option<&str>,
    provider: &ProviderInfo,
    base: &str,
    model: &str,
) -> Result<ApiFormat> {
    // Clouds serve Anthropic's models beneath a path of their own.
    let is_anthropic =
        !provider.url_suffix.is_empty() && base.trim_end_matches('/').ends_with("/anthropic");
    let format = match configured.map(normalize_name).as_deref() {
        None | Some("" | "auto") if is_anthropic => ApiFormat::Anthropic,
        None | Some("" | "auto") => provider.format,
        Some("chat" | "openai" | "openaichat" | "chatcompletions" | "openaicompletions") => {
            ApiFormat::Chat
        }
        Some("responses" | "openairesponses") => ApiFormat::Responses,
        Some("anthropic" | "anthropicmessages" | "messages") => ApiFormat::Anthropic,
        Some(_) => {
            let written = configured.unwrap_or_default();
            let cause = format!(
                "`providers.{name}.apiType` is `{written}`, expected auto, chat_completions, responses or anthropic"
            );
            return Err(fail(Exit::Config, cause));
        }
    };
    Ok(match format {
        ApiFormat::OpenAi
            if is_reasoning_model(model)
                && url_host(base) == url_host("https://api.openai.com") =>
        {
            ApiFormat::Responses
        }
        ApiFormat::OpenAi => ApiFormat::Chat,
        format => format,
    })
}

fn parse_thinking_style(name: &str, style: &str) -> Result<ThinkingStyle> {
    Ok(match style {
        "thinking_type" => ThinkingStyle::Type,
        "enable_thinking" => ThinkingStyle::Enable,
        "reasoning_split" => ThinkingStyle::Split,
        "reasoning_effort" => ThinkingStyle::Effort,
        "none" => ThinkingStyle::Unsupported,
        other => {
            let cause = format!(
                "`providers.{name}.thinkingStyle` is `{other}`, expected thinking_type, enable_thinking, reasoning_split, \
                 reasoning_effort or none"
            );
            return Err(fail(Exit::Config, cause));
        }
    })
}

/// The host of an address, with its port.
fn url_host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

/// Removes a model prefix that only names its provider. Gateways require the prefixes of other vendors.
fn wire_model_name(model: &str, name: &str, provider: &ProviderInfo) -> String {
    let Some((prefix, rest)) = model.split_once('/') else {
        return model.to_owned();
    };
    let is_prefix = |own: &&str| normalize_name(own) == normalize_name(prefix);
    let is_own = is_prefix(&name)
        || !provider.name.is_empty() && is_prefix(&provider.name)
        || provider.model_prefixes.iter().any(is_prefix);
    // The gateway's own models carry its name as a prefix.
    let is_gateway_model = provider.name == "openrouter" && !rest.contains('/');
    match provider.strip {
        PrefixStripping::All => model.rsplit('/').next().unwrap_or(model).to_owned(),
        PrefixStripping::Own if is_own && !is_gateway_model => rest.to_owned(),
        PrefixStripping::Own | PrefixStripping::None => model.to_owned(),
    }
}

/// The error if no provider is usable: lists the next steps and names a local server that is running. Such a server is
/// never used without being configured.
fn no_provider_error(input: &SelectInput<'_>) -> anyhow::Error {
    let servers = [("ollama", 11434), ("lmStudio", 1234), ("llamaCpp", 8080), ("vllm", 8000)];
    let running = servers.iter().find(|(_, port)| http::is_listening(*port));
    let unsupported = input.configs.iter().find_map(|(name, config)| {
        let provider =
            find_provider(name).filter(|provider| provider.kind == ProviderKind::Unsupported)?;
        config.key.is_some().then_some(provider.label)
    });
    let cause = match unsupported {
        Some(label) => {
            format!("the only API key is for {label}, which is not supported by this release")
        }
        None => "no provider is configured".into(),
    };
    let hint = match running {
        Some((name, port)) => {
            format!("`nanobot onboard --provider {name}` (a server listens on port {port}); or ")
        }
        None => "`nanobot onboard`, or set OPENROUTER_API_KEY, ANTHROPIC_API_KEY or OPENAI_API_KEY, or try the demo: ".to_owned(),
    };
    fail_with_parts(Exit::Config, cause, [hint.into(), UserAction::PlayDemo.into()])
}

#[cfg(test)]
mod tests {
    use super::{SelectInput, select_provider};
    use crate::provider::registry::{
        ApiFormat, KeySource, PROVIDERS, ProviderConfig, ProviderKind,
    };
    use nanobot_base::error::{Exit, exit_for};
    use nanobot_os::env::Env;
    use nanobot_os::secret::LazySecret;
    use std::collections::BTreeMap;

    fn select_with(
        blocks: &[(&str, &str, &str)],
        env: &[(&str, &str)],
        provider: &str,
        model: &str,
    ) -> Result<String, Exit> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let blocks: BTreeMap<String, ProviderConfig> = blocks
            .iter()
            .map(|(name, key, base)| {
                let block = ProviderConfig {
                    key: some(key).map(|key| KeySource::Secret(LazySecret::new(key))),
                    base_url: some(base),
                    ..ProviderConfig::default()
                };
                ((*name).to_owned(), block)
            })
            .collect();
        let env: Env = env.iter().copied().collect();
        let input = SelectInput {
            provider,
            model,
            is_model_explicit: !model.is_empty(),
            configs: &blocks,
            env: &env,
        };
        let choice = select_provider(&input).map_err(|error| exit_for(&error))?;
        let key = match &choice.key {
            Some(KeySource::Secret(key)) => key.identity(),
            Some(_) => "?",
            None => "-",
        };
        assert_ne!(choice.format, ApiFormat::OpenAi);
        Ok(format!("{} {} {} {key}", choice.provider, choice.model, choice.base_url))
    }

    // Skipped by rustfmt, to keep one row per line.
    #[rustfmt::skip]
    /// A config of the Python program, with each of its providers in turn: the configured model, the model as sent, and
    /// the address. The expected values are those that nanobot 0.1.4 sends (observed), or 0.3 for later providers.
    const PYTHON: &[(&str, &str, &str, &str)] = &[
        ("custom", "my-model", "my-model", "http://localhost:8000/v1"),
        ("openrouter", "anthropic/claude-opus-4-5", "anthropic/claude-opus-4-5", "https://openrouter.ai/api/v1"),
        ("aihubmix", "anthropic/claude-3", "claude-3", "https://aihubmix.com/v1"),
        ("siliconflow", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "https://api.siliconflow.cn/v1"),
        ("volcengine", "doubao-pro", "doubao-pro", "https://ark.cn-beijing.volces.com/api/v3"),
        ("anthropic", "anthropic/claude-opus-4-5", "claude-opus-4-5", "https://api.anthropic.com"),
        ("anthropic", "claude-opus-4-5", "claude-opus-4-5", "https://api.anthropic.com"),
        ("openai", "gpt-4o", "gpt-4o", "https://api.openai.com/v1"),
        ("openai", "openai/gpt-4o", "gpt-4o", "https://api.openai.com/v1"),
        ("deepseek", "deepseek/deepseek-chat", "deepseek-chat", "https://api.deepseek.com"),
        ("deepseek", "deepseek-chat", "deepseek-chat", "https://api.deepseek.com"),
        ("gemini", "gemini/gemini-2.5-pro", "gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("zhipu", "glm-4.7", "glm-4.7", "https://api.z.ai/api/paas/v4"),
        ("zhipu", "zai/glm-4.7", "glm-4.7", "https://api.z.ai/api/paas/v4"),
        ("dashscope", "qwen-max", "qwen-max", "https://dashscope.aliyuncs.com/compatible-mode/v1"),
        ("moonshot", "moonshot/kimi-k2.5", "kimi-k2.5", "https://api.moonshot.ai/v1"),
        ("minimax", "MiniMax-M2.1", "MiniMax-M2.1", "https://api.minimax.io/v1"),
        ("groq", "groq/llama3", "llama3", "https://api.groq.com/openai/v1"),
        ("orcarouter", "openai/gpt-4o", "openai/gpt-4o", "https://api.orcarouter.ai/v1"),
        ("opencode", "opencode/glm-5", "glm-5", "https://opencode.ai/zen/v1"),
        ("opencodeGo", "opencode-go/glm-5", "glm-5", "https://opencode.ai/zen/go/v1"),
        ("huggingface", "openai/gpt-oss-120b", "openai/gpt-oss-120b", "https://router.huggingface.co/v1"),
        ("skywork", "skywork-ai/skyclaw", "skywork-ai/skyclaw", "https://api.apifree.ai/agent/v1"),
        ("novita", "deepseek/deepseek-v3", "deepseek/deepseek-v3", "https://api.novita.ai/openai"),
        ("volcengineCodingPlan", "volcengine-plan/glm-5", "glm-5", "https://ark.cn-beijing.volces.com/api/coding/v3"),
        ("byteplus", "byteplus/seed-2", "seed-2", "https://ark.ap-southeast.bytepluses.com/api/v3"),
        ("byteplusCodingPlan", "byteplus-plan/glm-5", "glm-5", "https://ark.ap-southeast.bytepluses.com/api/coding/v3"),
        ("modelscope", "modelscope/Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "https://api-inference.modelscope.cn/v1"),
        ("kimiCoding", "kimi-coding/k2", "k2", "https://api.kimi.com/coding"),
        ("minimaxAnthropic", "minimax_anthropic/MiniMax-M2", "MiniMax-M2", "https://api.minimax.io/anthropic"),
        ("mistral", "mistral-large-latest", "mistral-large-latest", "https://api.mistral.ai/v1"),
        ("stepfun", "step-3", "step-3", "https://api.stepfun.com/v1"),
        ("xiaomiMimo", "mimo-v2", "mimo-v2", "https://api.xiaomimimo.com/v1"),
        ("longcat", "LongCat-Flash", "LongCat-Flash", "https://api.longcat.chat/openai/v1"),
        ("antLing", "ling-1t", "ling-1t", "https://api.ant-ling.com/v1"),
        ("nvidia", "nvidia/nemotron-3", "nvidia/nemotron-3", "https://integrate.api.nvidia.com/v1"),
        ("qianfan", "ernie-4.5", "ernie-4.5", "https://qianfan.baidubce.com/v2"),
    ];

    #[test]
    fn python_configs_select_the_same_provider() {
        for (name, model, sent_model, base) in PYTHON {
            let expect = Ok(format!("{name} {sent_model} {base} k"));
            // A config with a block for every provider, of which one has a key.
            let mut blocks: Vec<(&str, &str, &str)> = PROVIDERS
                .iter()
                .filter(|entry| entry.kind != ProviderKind::Local)
                .map(|entry| (entry.name, "", ""))
                .collect();
            blocks.retain(|(other, ..)| other != name);
            blocks.push((name, "k", ""));
            assert_eq!(select_with(&blocks, &[], "auto", model), expect, "{model} by itself");
            assert_eq!(select_with(&blocks, &[], name, model), expect, "{model} by name");
        }
    }

    #[test]
    fn providers_are_selected() {
        let check = |blocks: &[(&str, &str, &str)],
                     env: &[(&str, &str)],
                     provider: &str,
                     model: &str,
                     expect: &str| {
            assert_eq!(
                select_with(blocks, env, provider, model).unwrap(),
                expect,
                "{blocks:?} {env:?} {provider} {model}"
            );
        };
        let openai = "https://api.openai.com/v1";
        let openrouter = "https://openrouter.ai/api/v1";
        check(
            &[("openrouter", "k", "")],
            &[],
            "auto",
            "openrouter/auto",
            &format!("openrouter openrouter/auto {openrouter} k"),
        );
        check(
            &[("openrouter", "k", "")],
            &[],
            "auto",
            "openrouter/a/b",
            &format!("openrouter a/b {openrouter} k"),
        );
        check(
            &[("openrouter", "r", ""), ("openai", "o", "")],
            &[],
            "auto",
            "gpt-9",
            &format!("openai gpt-9 {openai} o"),
        );
        // Surprising results of the Python program are reproduced.
        check(
            &[("custom", "k", "http://h/v1/"), ("openrouter", "r", "")],
            &[],
            "auto",
            "foo",
            "custom foo http://h/v1 k",
        );
        let china = "https://dashscope.aliyuncs.com/compatible-mode/v1";
        check(
            &[("siliconflow", "s", ""), ("dashscope", "d", "")],
            &[],
            "auto",
            "qwen/qwen3",
            &format!("dashscope qwen/qwen3 {china} d"),
        );
        // A keyword within another word does not count.
        check(
            &[("volcengine", "v", ""), ("openai", "o", "")],
            &[],
            "openai",
            "spark-1",
            &format!("openai spark-1 {openai} o"),
        );
        check(
            &[("volcengine", "v", ""), ("custom", "c", "http://h/v1")],
            &[],
            "auto",
            "spark-1",
            "custom spark-1 http://h/v1 c",
        );
        // A key or an address that identifies a gateway.
        check(
            &[("openai", "sk-or-1", "")],
            &[],
            "auto",
            "anthropic/c",
            &format!("openai anthropic/c {openrouter} sk-or-1"),
        );
        check(
            &[("openai", "k", "https://aihubmix.com/v1")],
            &[],
            "auto",
            "openai/x",
            "openai x https://aihubmix.com/v1 k",
        );
        // Local servers.
        check(
            &[("lm_studio", "", "http://localhost:9/v1")],
            &[],
            "lm-studio",
            "m",
            "lm-studio m http://localhost:9/v1 -",
        );
        check(&[], &[], "ollama", "qwen", "ollama qwen http://localhost:11434/v1 -");
        check(
            &[("ollama", "", "http://localhost:11434"), ("openrouter", "k", "")],
            &[],
            "auto",
            "llama3.2",
            "ollama llama3.2 http://localhost:11434 -",
        );
        check(
            &[("ollama", "", "http://localhost:11434"), ("openrouter", "k", "")],
            &[],
            "auto",
            "nvidia/nemotron",
            &format!("openrouter nvidia/nemotron {openrouter} k"),
        );
        // Providers defined by the user.
        check(&[("mine", "k", "http://h/v1")], &[], "auto", "mine/m", "mine m http://h/v1 k");
        check(
            &[("mine", "k", "http://h/v1"), ("openai", "o", "")],
            &[],
            "auto",
            "mine/gpt-4",
            "mine gpt-4 http://h/v1 k",
        );
        check(
            &[("mine", "k", "http://h/v1/chat/completions")],
            &[],
            "mine",
            "m",
            "mine m http://h/v1 k",
        );
        // Environment variables, if no block is usable.
        check(
            &[],
            &[("OPENAI_API_KEY", "e")],
            "auto",
            "",
            &format!("openai gpt-6-luna {openai} e"),
        );
        check(
            &[],
            &[("OPENAI_API_KEY", "e"), ("OPENROUTER_API_KEY", "r")],
            "auto",
            "",
            &format!("openrouter openrouter/auto {openrouter} r"),
        );
        check(
            &[],
            &[("OPENAI_API_KEY", "e"), ("OPENROUTER_API_KEY", "r")],
            "auto",
            "gpt-9",
            &format!("openai gpt-9 {openai} e"),
        );
        // A model goes to its own vendor, also if only the variable has its key.
        let deepseek = "deepseek deepseek-chat https://api.deepseek.com d";
        let claude = "anthropic claude-opus-4-5 https://api.anthropic.com a";
        let variables = [("DEEPSEEK_API_KEY", "d"), ("ANTHROPIC_API_KEY", "a")];
        for model in ["deepseek/deepseek-chat", "deepseek-chat"] {
            check(&[("openai", "o", "")], &variables, "auto", model, deepseek);
        }
        for model in ["anthropic/claude-opus-4-5", "claude-opus-4-5"] {
            check(&[("openai", "o", "")], &variables, "auto", model, claude);
        }
        check(&[("openrouter", "r", "")], &variables, "auto", "claude-opus-4-5", claude);
        let routed = format!("openrouter openai/gpt-9 {openrouter} r");
        let variable = [("OPENROUTER_API_KEY", "r")];
        check(&[("openai", "o", "")], &variable, "auto", "openrouter/openai/gpt-9", &routed);
        // A gateway, a local server and a vendor that serves models of others are asked for what they serve.
        let routed = format!("openrouter deepseek/deepseek-chat {openrouter} r");
        check(&[("openrouter", "r", "")], &variables, "auto", "deepseek/deepseek-chat", &routed);
        check(
            &[("ollama", "", "http://h/v1")],
            &variables,
            "auto",
            "deepseek-r1",
            "ollama deepseek-r1 http://h/v1 -",
        );
        check(
            &[("groq", "g", "")],
            &[("OPENAI_API_KEY", "e")],
            "auto",
            "openai/gpt-oss-120b",
            "groq openai/gpt-oss-120b https://api.groq.com/openai/v1 g",
        );
        // A provider that the user names is asked.
        check(
            &[("openai", "o", "")],
            &variables,
            "openai",
            "claude-opus-4-5",
            &format!("openai claude-opus-4-5 {openai} o"),
        );
        // A vendor's environment variable is never sent to another host.
        check(
            &[("openai", "", "http://h/v1")],
            &[("OPENAI_API_KEY", "e")],
            "openai",
            "m",
            "openai m http://h/v1 -",
        );
        check(
            &[("openai", "", "https://api.openai.com/v1/")],
            &[("OPENAI_API_KEY", "e")],
            "openai",
            "m",
            &format!("openai m {openai} e"),
        );
        // Addresses in the forms that users write.
        check(
            &[("anthropic", "k", "http://h/v1")],
            &[],
            "anthropic",
            "m",
            "anthropic m http://h k",
        );
        check(
            &[("azureOpenai", "k", "https://x.openai.azure.com")],
            &[],
            "azure_openai",
            "m",
            "azure_openai m https://x.openai.azure.com/openai/v1 k",
        );
    }

    #[test]
    fn unusable_providers_are_rejected() {
        let check = |blocks: &[(&str, &str, &str)], provider: &str| {
            assert_eq!(
                select_with(blocks, &[], provider, "m").unwrap_err(),
                Exit::Config,
                "{blocks:?} {provider}"
            );
        };
        check(&[], "auto");
        check(&[], "openai");
        check(&[], "nobody");
        check(&[], "azure_openai");
        check(&[("assemblyai", "k", "")], "auto");
        check(&[("xaiGrok", "k", "")], "xai_grok");
    }

    #[test]
    fn the_table_is_sound() {
        for entry in PROVIDERS.iter().filter(|entry| entry.kind != ProviderKind::Unsupported) {
            assert!(
                !entry.base_url.ends_with('/')
                    && !entry.label.is_empty()
                    && !entry.default_model.is_empty(),
                "{entry:?}"
            );
            let keyless = matches!(
                entry.kind,
                ProviderKind::Local | ProviderKind::Direct | ProviderKind::Login
            );
            assert!(keyless || !entry.key_variables.is_empty(), "{entry:?}");
        }
    }
}
