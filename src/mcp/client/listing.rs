//! Requests everything that a server offers, page by page, within limits, and only for the capabilities it declares.

use super::said;
use super::watch::one_line;
use crate::mcp::offer::Offer;
use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
    ListToolsRequest, PaginatedRequestParams,
};
use rmcp::service::{Peer, ServiceError};
use serde::Serialize;
use serde_json::Value;

/// Maximum of tools; more than any model can be shown, and than any honest server has.
const TOOLS: usize = 1000;
const OTHERS: usize = 200;
/// Maximum of pages read of each list: some servers return one entry per page, and hostile ones the same page forever.
const PAGES: usize = 100;
/// Maximum of bytes kept of a list, as JSON text: it is held in memory and on disk.
const SIZE: usize = 4 << 20;

/// Requests everything that the server offers.
///
/// # Errors
/// The server does not list its tools. Errors of the other lists are ignored.
pub(super) async fn offer(peer: &Peer<RoleClient>) -> Result<Offer, ServiceError> {
    let info = peer.peer_info().ok_or(ServiceError::TransportClosed)?;
    let server = info.server_info.as_ref();
    let server = server.map(|server| format!("{} {}", server.name, server.version));
    let mut offer = Offer {
        protocol: one_line(info.protocol_version.as_str()),
        server: one_line(&server.unwrap_or_default()),
        instructions: info.instructions.clone(),
        ..Offer::default()
    };
    let can = &info.capabilities;
    if can.tools.is_some() {
        let ask = |page| ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
        let tools = list(peer, &ask, "tools", TOOLS, &said::tool).await?;
        (offer.tools, offer.left_out) = tools;
    }
    if can.resources.is_some() {
        let ask =
            |page| ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(page));
        let read = |value: &Value| said::resource(value, "uri");
        offer.resources = lenient(list(peer, &ask, "resources", OTHERS, &read).await)?;
        let ask = |page| {
            ClientRequest::ListResourceTemplatesRequest(ListResourceTemplatesRequest::with_param(
                page,
            ))
        };
        let read = |value: &Value| said::resource(value, "uriTemplate");
        offer.templates = lenient(list(peer, &ask, "resourceTemplates", OTHERS, &read).await)?;
    }
    if can.prompts.is_some() {
        let ask = |page| ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(page));
        offer.prompts = lenient(list(peer, &ask, "prompts", OTHERS, &said::prompt).await)?;
    }
    Ok(offer)
}

/// Ignores all errors of a list except for the end of the connection.
fn lenient<T>(listed: Result<(Vec<T>, usize), ServiceError>) -> Result<Vec<T>, ServiceError> {
    match listed {
        Ok((entries, _)) => Ok(entries),
        Err(error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_))) => Err(error),
        Err(error) => {
            log::debug!(target: "mcp", "list request failed: {}", one_line(&error.to_string()));
            Ok(Vec::new())
        }
    }
}

/// Returns the entries of the list at `key`, at most `max_entries`, and the number of entries that were left out.
async fn list<T: Serialize>(
    peer: &Peer<RoleClient>,
    ask: &(dyn Fn(PaginatedRequestParams) -> ClientRequest + Send + Sync),
    key: &str,
    most: usize,
    read: &(dyn Fn(&Value) -> Option<T> + Send + Sync),
) -> Result<(Vec<T>, usize), ServiceError> {
    let (mut entries, mut left_out, mut size) = (Vec::new(), 0, 0);
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor.clone());
        let result = said::to_value(peer.send_request(ask(page)).await?);
        for entry in result
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let weight = entry.to_string().len();
            match read(entry) {
                Some(entry) if entries.len() < most && size + weight <= SIZE => {
                    size += weight;
                    entries.push(entry);
                }
                _ => left_out += 1,
            }
        }
        let next = result.get("nextCursor").and_then(Value::as_str);
        let next = next.map(str::to_owned);
        // The same cursor would return the same page again.
        if next.is_none() || next == cursor || entries.len() >= most {
            break;
        }
        cursor = next;
    }
    Ok((entries, left_out))
}
