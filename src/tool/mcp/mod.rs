//! Offers the tools of MCP servers to the model. Each has the name and the schema that [`crate::mcp::tool_list`] made
//! for it, and the first call starts its server. Two tools of our own are added, for the resources and the prompts of
//! servers. All results are untrusted content, see [`result`].

use super::Tool;
use crate::mcp::tool_list::ToolList;
pub use call::Means;
use server_tool::ServerTool;
use std::sync::Arc;

mod call;
mod ours;
pub mod result;
mod server_tool;

/// Builds the tools for everything that the servers offer.
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
