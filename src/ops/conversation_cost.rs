//! The cost of a conversation since `/new`, from the ledger.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_agent::report::short_text::{count_noun, group_thousands};
use nanobot_config::settings::Settings;
use nanobot_model::ledger::{CostSum, Ledger};
use nanobot_store::session;
use std::collections::HashSet;

/// Describes the requests, the tokens and the cost of the conversation in the session `key`, in one line.
///
/// # Errors
/// There is no such session, or the ledger cannot be read.
pub(crate) fn describe(ctx: &Context, settings: &Settings, key: &str) -> Result<String> {
    let conversation_turns = session::read_conversation_turns(&ctx.session_store(settings)?, key)?;
    let mut turns = HashSet::new();
    let mut cost = CostSum::default();
    let mut tokens = [0_u64; 3];
    Ledger::new(&ctx.paths.root, &ctx.clock).for_each_entry(&mut |entry| {
        if let Some(entry) = entry.filter(|entry| conversation_turns.contains(&*entry.turn)) {
            turns.insert(entry.turn.to_string());
            cost.add_entry(&entry);
            for (sum, count) in tokens.iter_mut().zip([entry.input, entry.cached, entry.output]) {
                *sum = sum.saturating_add(count);
            }
        }
    })?;
    let requests = count_noun(usize::try_from(cost.calls)?, "request");
    let [input, cached, output] = tokens.map(group_thousands);
    let turn_count = count_noun(turns.len(), "turn");
    Ok(format!(
        "{cost}, {requests} in {turn_count}, {input} tokens in ({cached} cached), {output} out"
    ))
}
