//! The tools of MCP servers as tools of ours: each goes by the name and the schema that [`crate::mcp::tool_list`] made for it,
//! and its server is started by the first call. Besides them there are two of our own, for what servers have to read and
//! for their prompts. What comes back is a stranger's word, see [`result`].

use super::Tool;
use crate::mcp::tool_list::ToolList;
pub use call::Means;
use server_tool::ServerTool;
use std::sync::Arc;

mod call;
mod ours;
pub mod result;
mod server_tool;

/// The tools for all that is offered.
pub fn tools(means: &Means, offers: &ToolList) -> Vec<Box<dyn Tool>> {
    let means = Arc::new(means.clone());
    let mut tools: Vec<Box<dyn Tool>> = Vec::new();
    for shown in &offers.tools {
        tools.push(Box::new(ServerTool::new(&means, shown)));
    }
    if !offers.resources.is_empty() {
        tools.push(Box::new(ours::resources(&means, &offers.resources)));
    }
    if !offers.prompts.is_empty() {
        tools.push(Box::new(ours::prompts(&means, &offers.prompts)));
    }
    tools
}
