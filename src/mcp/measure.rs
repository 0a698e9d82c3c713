//! Size limits for what a server offers. Larger items are left out and reported; everything within the limits can be
//! pinned, cached and shown in full. Pure.

use super::offer::{Offer, Offered, Resource};
use super::words;

/// Maximum of bytes of one tool: name, description and schema.
const TOOL: usize = 64 << 10;
/// Maximum of bytes of all tools of a server.
const TOOLS: usize = 4 << 20;
/// Maximum of bytes of a resource or a prompt.
const OTHER: usize = 8 << 10;
/// Maximum of characters of the server's instructions.
const WORDS: usize = 200;

/// Cuts `features` to the limits, and returns messages about what was left out.
pub fn kept(mut offer: Offer) -> (Offer, Vec<String>) {
    let mut notes = Vec::new();
    let mut left = TOOLS;
    let mut large = Vec::new();
    let count = offer.tools.len();
    offer.tools.retain(|tool| {
        let size = size(tool);
        let fits = size <= TOOL && size <= left;
        match fits {
            true => left -= size,
            false => large.push(words::line(&tool.name, 40)),
        }
        fits
    });
    if !large.is_empty() {
        let more = if large.len() > 3 { ", …" } else { "" };
        let some = large[..large.len().min(3)].join("`, `");
        let number = large.len();
        notes.push(format!(
            "{number} of its {count} tools are omitted because they are too large: `{some}`{more}"
        ));
    }
    let is_small = |it: &Resource| {
        it.uri.len() + it.name.len() + it.description.len() <= OTHER
            && it.kind.as_ref().is_none_or(|kind| kind.len() <= 200)
    };
    offer.resources.retain(is_small);
    offer.templates.retain(is_small);
    offer.prompts.retain(|prompt| {
        let arguments = prompt.arguments.iter();
        let size: usize = arguments
            .map(|it| it.name.len() + it.description.len())
            .sum();
        prompt.name.len() + prompt.description.len() + size <= OTHER
    });
    offer.protocol = words::line(&offer.protocol, 40);
    offer.server = words::line(&offer.server, WORDS);
    // The instructions are shown to people only, and never become part of a prompt.
    offer.instructions = offer
        .instructions
        .map(|text| words::short(&text, 10 * WORDS));
    (offer, notes)
}

fn size(tool: &Offered) -> usize {
    let title = tool.title.as_ref().map_or(0, String::len);
    tool.name.len() + title + tool.description.len() + tool.schema.to_string().len()
}

#[cfg(test)]
mod tests {
    use super::{TOOL, kept};
    use crate::mcp::offer::{Offer, Offered, Resource};
    use serde_json::json;

    #[test]
    fn what_is_too_large_is_left_out_and_told() {
        let tool = |name: &str, size: usize| Offered {
            name: name.into(),
            description: "x".repeat(size),
            schema: json!({}),
            ..Offered::default()
        };
        let mut offer = Offer {
            server: "s\u{1b}[31m".repeat(200),
            tools: vec![tool("a", 10), tool("b", TOOL), tool("c", 10)],
            resources: vec![Resource {
                uri: "u".repeat(10_000),
                ..Resource::default()
            }],
            ..Offer::default()
        };
        let (small, notes) = kept(offer.clone());
        let names: Vec<&str> = small.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["a", "c"]);
        assert!(small.resources.is_empty() && small.server.chars().count() == 200);
        assert_eq!(
            notes,
            ["1 of its 3 tools are omitted because they are too large: `b`"]
        );
        offer.tools = (0..1000).map(|n| tool(&format!("t{n}"), 60_000)).collect();
        let (small, notes) = kept(offer);
        assert_eq!(small.tools.len(), 69);
        assert!(notes[0].starts_with("931 of its 1000 tools"), "{notes:?}");
        let (same, notes) = kept(small.clone());
        assert_eq!(same, small);
        assert_eq!(notes, [""; 0]);
    }
}
