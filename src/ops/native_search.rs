//! The search of the model's provider, for the tool `web_search`: a request of its own to the model of the turn, within its budget and in the
//! ledger. It holds the query alone, so that nothing else of the conversation can be in the queries that the provider composes.

use crate::ops::context::Context;
use crate::ops::model::{self, Endpoint, ModelHandle};
use nanobot_base::message::{Message, MessagePart, Usage, UserMessage};
use nanobot_config::settings::Settings;
use nanobot_model::ledger::CallPurpose;
use nanobot_model::provider::budget::RunBudget;
use nanobot_model::provider::native_search::{
    FoundPages, INSTRUCTIONS, NativeSearch, NativeSearchFormat, find_native_search,
};
use nanobot_model::provider::{Delta, Provider, Request, Sampling, ToolChoice};
use nanobot_os::secret::random_hex;
use nanobot_tool::web::engine::{NATIVE, SearchResult};
use nanobot_tool::web_search::{ProviderSearch, SearchAnswer};
use std::sync::{Arc, OnceLock};

/// Maximum tokens of a reply, with the reasoning before it.
const MAX_REPLY_TOKENS: u32 = 8_192;

/// The search of a turn.
pub(crate) struct TurnSearch {
    ctx: Context,
    settings: Settings,
    offline: bool,
    /// Set when the turn begins.
    turn: OnceLock<ChargedTurn>,
}

/// The turn that pays for searches.
struct ChargedTurn {
    budget: Arc<RunBudget>,
    purpose: CallPurpose,
    /// True if a flag limits the cost.
    has_cost_limit: bool,
}

impl TurnSearch {
    /// Creates the search of a turn, if the config names it.
    pub(crate) fn new(ctx: &Context, settings: &Settings, offline: bool) -> Option<Arc<Self>> {
        is_configured(settings).then(|| {
            Arc::new(Self {
                ctx: ctx.clone(),
                settings: settings.clone(),
                offline,
                turn: OnceLock::new(),
            })
        })
    }

    /// Sets the turn that pays, when it begins.
    pub(crate) fn set_turn(
        &self,
        model: &ModelHandle,
        purpose: &CallPurpose,
        has_cost_limit: bool,
    ) {
        self.turn.get_or_init(|| ChargedTurn {
            budget: Arc::clone(&model.budget),
            purpose: CallPurpose { cause: "search", ..purpose.clone() },
            has_cost_limit,
        });
    }

    /// The provider of the model, with the format of its search in place of that of the conversation.
    fn endpoint(&self, has_cost_limit: bool) -> Result<Endpoint, String> {
        let to_text = |error: anyhow::Error| format!("{error:#}");
        let (ctx, settings) = (&self.ctx, &self.settings);
        let model_settings = &settings.models[0];
        let endpoint = model::resolve_endpoint(ctx, settings, model_settings, self.offline, false)
            .map_err(to_text)?;
        let search = native_search(&endpoint)?;
        let is_limited = has_cost_limit || model::has_budget(settings);
        let mut endpoint =
            model::require_price(endpoint, is_limited.then_some(has_cost_limit), &mut |_| {})
                .map_err(to_text)?;
        let Endpoint { choice, http_provider } = &mut endpoint;
        let base = http_provider.address.current();
        if let Some(base) = base.trim_end_matches('/').strip_suffix(search.base_suffix) {
            http_provider.address.set_current(base.to_owned());
        }
        let format = NativeSearchFormat::new(search, &choice.model, choice.prices.clone());
        http_provider.format = Box::new(format);
        http_provider.stream = false;
        Ok(endpoint)
    }
}

/// True if the config names the search of the provider.
fn is_configured(settings: &Settings) -> bool {
    let web = &settings.web;
    let mut names = web.search_engine.iter().chain(&web.search_fallback);
    names.any(|name| name == NATIVE)
}

/// The search that the provider at `endpoint` has.
fn native_search(endpoint: &Endpoint) -> Result<&'static NativeSearch, String> {
    find_native_search(endpoint.choice.entry.name).ok_or_else(|| {
        format!("the provider `{}` has no search of its own", endpoint.choice.provider)
    })
}

/// The problem with the search of the provider, if the provider is known to have none.
pub(crate) fn native_problem(ctx: &Context, settings: &Settings) -> Option<String> {
    let endpoint = model::resolve_endpoint(ctx, settings, &settings.models[0], true, false).ok()?;
    native_search(&endpoint).err()
}

impl ProviderSearch for TurnSearch {
    fn search(
        &self,
        query: &str,
        charges: &mut Vec<(Usage, Option<f64>)>,
    ) -> Result<SearchAnswer, String> {
        let turn = self.turn.get().ok_or("the call is not part of a turn, so there is no model")?;
        let endpoint = self.endpoint(turn.has_cost_limit)?;
        let (ctx, model) = (&self.ctx, endpoint.choice.model.clone());
        let attempt = model::single_attempt(
            ctx,
            &self.settings,
            endpoint,
            &turn.purpose,
            &turn.budget,
            false,
        );
        let provider = model::with_retries(ctx, attempt, false);
        let parts = vec![MessagePart::Text(query.to_owned())];
        let message = Message::User(UserMessage { parts, ..UserMessage::default() });
        let request = Request {
            system: INSTRUCTIONS,
            messages: &[message],
            tools: &[],
            tool_choice: ToolChoice::Auto,
            model: &model,
            sampling: &Sampling { max_tokens: MAX_REPLY_TOKENS, ..Sampling::default() },
            reply_id: &format!("search-{}", random_hex(4)),
            schema: None,
        };
        let reply = provider.reply(&request, &mut |delta| {
            match delta {
                Delta::Charged { usage, cost } => charges.push((usage, cost)),
                Delta::Notice(text) => log::warn!(target: "model", "{text}"),
                _ => {}
            }
            Ok(())
        });
        let reply = reply.map_err(|error| error.to_string())?;
        charges.push((reply.usage, reply.cost));
        let answer = FoundPages::from_reply(&reply).ok_or("the reply holds no pages")?;
        let results = answer
            .pages
            .iter()
            .filter_map(|page| SearchResult::new(&page.title, &page.url, &page.excerpt));
        Ok(SearchAnswer { summary: answer.summary, results: results.collect() })
    }
}
