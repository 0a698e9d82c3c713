//! Offers the tools of MCP servers to the model. Each has the name and the schema that [`nanobot_mcp::tool_list`] made
//! for it, and the first call starts its server. Further tools are added: for the resources and the prompts of servers,
//! and to search their tools if these are too many for each request. All results are untrusted content, see [`result`].

use super::Tool;
pub use call::{ChargedSampler, McpToolContext};
use find_tools::FindTools;
use nanobot_mcp::tool_list::ToolList;
use server_tool::ServerTool;
use std::sync::Arc;

mod call;
mod find_tools;
mod guarded_call;
mod resources_and_prompts;
pub mod result;
mod server_tool;

/// Builds the tools for everything that the servers offer.
pub fn build_tools(context: &McpToolContext, tool_list: &ToolList) -> Vec<Arc<dyn Tool>> {
    let context = Arc::new(context.clone());
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    for view in &tool_list.tools {
        tools.push(Arc::new(ServerTool::new(&context, view, tool_list.is_searched)));
    }
    if tool_list.is_searched {
        tools.push(Arc::new(FindTools::new(&tool_list.tools)));
    }
    if !tool_list.resources.is_empty() {
        tools.push(Arc::new(resources_and_prompts::resource_tool(&context, &tool_list.resources)));
    }
    if !tool_list.prompts.is_empty() {
        tools.push(Arc::new(resources_and_prompts::prompt_tool(&context, &tool_list.prompts)));
    }
    tools
}
