//! The token budget of the tools of MCP servers. Tools are part of each request, so a server with long descriptions or many
//! tools makes every turn more expensive. Descriptions are shortened to fit; no tool is left out.

use nanobot_base::message::token_estimate;
use nanobot_mcp::sanitize;
use nanobot_mcp::tool_list::ToolView;
use serde_json::Value;

/// Lengths to which descriptions are shortened, in characters, one after the other until they fit.
const DESCRIPTION_LIMITS: [usize; 3] = [300, 100, 40];

/// Shortens the descriptions of `tools` until all fit in `budget_tokens`, and returns a notice if they did not.
pub(crate) fn apply_budget(tools: &mut [ToolView], budget_tokens: u64) -> Option<String> {
    let before = count_tokens(tools);
    let mut after = before;
    for limit in DESCRIPTION_LIMITS {
        if after <= budget_tokens {
            break;
        }
        for tool in &mut *tools {
            tool.description = sanitize::truncate(&tool.description, limit);
            shorten_descriptions(&mut tool.schema, limit);
        }
        after = count_tokens(tools);
    }
    let budget = "the budget of `tools.mcpBudgetTokens`";
    (before > budget_tokens).then(|| {
        let count = tools.len();
        let outcome = if after > budget_tokens { format!("still over {budget}") } else { format!("within {budget}") };
        format!(
            "{count} tools of MCP servers take {before} tokens of each request; with shortened descriptions {after}, {outcome}; \
             `enabledTools` of a server leaves tools out"
        )
    })
}

fn count_tokens(tools: &[ToolView]) -> u64 {
    let tool_tokens = |tool: &ToolView| {
        token_estimate::for_text(&tool.name)
            + token_estimate::for_text(&tool.description)
            + token_estimate::for_value(&tool.schema)
    };
    tools.iter().map(tool_tokens).sum()
}

/// Shortens all descriptions in a JSON Schema. A property that is called `description` is an object, and is kept.
fn shorten_descriptions(schema: &mut Value, limit: usize) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if name == "description" => {
                        *text = sanitize::truncate(text, limit);
                    }
                    value => shorten_descriptions(value, limit),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| shorten_descriptions(item, limit)),
        _ => {}
    }
}
