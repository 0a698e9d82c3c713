//! Size limits for the features of a server. Larger items are left out and reported; everything within the limits can be pinned, cached and
//! shown in full. No I/O.

use super::protocol::{INSTRUCTIONS, ResourceInfo, ServerFeatures, ToolInfo};
use super::sanitize;
use std::collections::BTreeSet;

/// Maximum of bytes of one tool: name, description and schema.
const MAX_TOOL_BYTES: usize = 64 << 10;
/// Maximum of bytes of all tools of a server.
const MAX_ALL_TOOLS_BYTES: usize = 4 << 20;
/// Maximum of bytes of a resource or a prompt.
const MAX_OTHER_BYTES: usize = 8 << 10;
/// Maximum of bytes of a media type.
const MAX_MEDIA_TYPE_BYTES: usize = 200;
/// Maximum of characters of the name of an omitted tool in a message.
const MAX_NOTED_NAME_CHARS: usize = 40;
/// Maximum of characters of the protocol version.
const MAX_VERSION_CHARS: usize = 40;
/// Maximum of characters of the server's name and version.
const MAX_SERVER_CHARS: usize = 200;
/// Maximum of characters of the server's instructions.
const MAX_INSTRUCTIONS_CHARS: usize = 2000;

/// Cuts `features` to the limits, and keeps the first of several tools with the same name: a name has one pin. Returns messages about
/// omitted items.
pub(crate) fn apply_limits(mut features: ServerFeatures) -> (ServerFeatures, Vec<String>) {
    let mut remaining_bytes = MAX_ALL_TOOLS_BYTES;
    let mut names = BTreeSet::from([INSTRUCTIONS.to_owned()]);
    let (mut repeated, mut too_large) = (Vec::new(), Vec::new());
    let count = features.tools.len();
    features.tools.retain(|tool| {
        let size = tool_bytes(tool);
        if !names.insert(tool.name.clone()) {
            repeated.push(sanitize::single_line(&tool.name, MAX_NOTED_NAME_CHARS));
            return false;
        }
        let fits = size <= MAX_TOOL_BYTES && size <= remaining_bytes;
        if fits {
            remaining_bytes -= size;
        } else {
            too_large.push(sanitize::single_line(&tool.name, MAX_NOTED_NAME_CHARS));
        }
        fits
    });
    let mut notes = Vec::new();
    notes.extend(omission_note(&too_large, count, "they are too large"));
    notes.extend(omission_note(&repeated, count, "their names are listed twice"));
    let is_small = |resource: &ResourceInfo| {
        let ResourceInfo { uri, name, description, kind } = resource;
        uri.len() + name.len() + description.len() <= MAX_OTHER_BYTES
            && kind.as_ref().is_none_or(|kind| kind.len() <= MAX_MEDIA_TYPE_BYTES)
    };
    features.resources.retain(is_small);
    features.templates.retain(is_small);
    features.prompts.retain(|prompt| {
        let arguments = prompt.arguments.iter();
        let size: usize =
            arguments.map(|argument| argument.name.len() + argument.description.len()).sum();
        prompt.name.len() + prompt.description.len() + size <= MAX_OTHER_BYTES
    });
    features.protocol = sanitize::single_line(&features.protocol, MAX_VERSION_CHARS);
    features.server = sanitize::single_line(&features.server, MAX_SERVER_CHARS);
    features.instructions =
        features.instructions.map(|text| sanitize::truncate(&text, MAX_INSTRUCTIONS_CHARS));
    (features, notes)
}

/// The message about the omission of the tools `names` among `count`.
fn omission_note(names: &[String], count: usize, reason: &str) -> Option<String> {
    let list = names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join("`, `");
    let more = if names.len() > 3 { ", …" } else { "" };
    let number = names.len();
    (number > 0).then(|| {
        format!("{number} of its {count} tools are omitted because {reason}: `{list}`{more}")
    })
}

fn tool_bytes(tool: &ToolInfo) -> usize {
    let title = tool.title.as_ref().map_or(0, String::len);
    tool.name.len() + title + tool.description.len() + tool.schema.to_string().len()
}

#[cfg(test)]
mod tests {
    use super::{MAX_TOOL_BYTES, apply_limits};
    use crate::protocol::{ResourceInfo, ServerFeatures, ToolInfo};
    use serde_json::json;

    #[test]
    fn oversized_tools_are_omitted_and_reported() {
        let tool = |name: &str, size: usize| ToolInfo {
            name: name.into(),
            description: "x".repeat(size),
            schema: json!({}),
            ..ToolInfo::default()
        };
        let mut features = ServerFeatures {
            server: "s\u{1b}[31m".repeat(200),
            tools: vec![tool("a", 10), tool("b", MAX_TOOL_BYTES), tool("c", 10)],
            resources: vec![ResourceInfo { uri: "u".repeat(10_000), ..ResourceInfo::default() }],
            ..ServerFeatures::default()
        };
        let (small, notes) = apply_limits(features.clone());
        let names: Vec<&str> = small.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["a", "c"]);
        assert!(small.resources.is_empty() && small.server.chars().count() == 200);
        assert_eq!(notes, ["1 of its 3 tools are omitted because they are too large: `b`"]);
        features.tools = (0..1000).map(|n| tool(&format!("t{n}"), 60_000)).collect();
        let (small, notes) = apply_limits(features);
        assert_eq!(small.tools.len(), 69);
        assert!(notes[0].starts_with("931 of its 1000 tools"), "{notes:?}");
        let (same, notes) = apply_limits(small.clone());
        assert_eq!(same, small);
        assert_eq!(notes, [""; 0]);
    }

    #[test]
    fn the_first_tool_of_a_name_counts() {
        let tool = |name: &str, description: &str| ToolInfo {
            name: name.into(),
            description: description.into(),
            ..ToolInfo::default()
        };
        let features = ServerFeatures {
            tools: vec![tool("a", "first"), tool("b", ""), tool("a", "second")],
            ..ServerFeatures::default()
        };
        let (limited, notes) = apply_limits(features);
        assert_eq!(limited.tools, [tool("a", "first"), tool("b", "")]);
        assert_eq!(
            notes,
            ["1 of its 3 tools are omitted because their names are listed twice: `a`"]
        );
    }
}
