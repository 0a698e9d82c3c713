//! Requests everything that a server offers, page by page, within limits, and only for the capabilities it declares.

use super::connection_state::one_line;
use super::decode;
use crate::mcp::protocol::ServerFeatures;
use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
    ListToolsRequest, PaginatedRequestParams,
};
use rmcp::service::{Peer, ServiceError};
use serde::Serialize;
use serde_json::Value;

/// Maximum of tools; more than any model can be shown, and than any honest server has.
const MAX_TOOLS: usize = 1000;
const MAX_OTHER_ENTRIES: usize = 200;
/// Maximum of pages read of each list: some servers return one entry per page, and hostile ones the same page forever.
const MAX_PAGES: usize = 100;
/// Maximum of bytes kept of a list, as JSON text: it is held in memory and on disk.
const MAX_LIST_BYTES: usize = 4 << 20;

/// Requests everything that the server offers.
///
/// # Errors
/// The server does not list its tools. Errors of the other lists are ignored.
pub(super) async fn fetch_features(
    peer: &Peer<RoleClient>,
) -> Result<ServerFeatures, ServiceError> {
    let info = peer.peer_info().ok_or(ServiceError::TransportClosed)?;
    let server = info.server_info.as_ref();
    let server = server.map(|server| format!("{} {}", server.name, server.version));
    let mut offer = ServerFeatures {
        protocol: one_line(info.protocol_version.as_str()),
        server: one_line(&server.unwrap_or_default()),
        instructions: info.instructions.clone(),
        ..ServerFeatures::default()
    };
    let can = &info.capabilities;
    if can.tools.is_some() {
        let ask = |page| ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
        let tools = fetch_list(peer, &ask, "tools", MAX_TOOLS, &decode::tool).await?;
        (offer.tools, offer.left_out) = tools;
    }
    if can.resources.is_some() {
        let ask =
            |page| ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(page));
        let read = |value: &Value| decode::resource(value, "uri");
        offer.resources = ignore_list_errors(
            fetch_list(peer, &ask, "resources", MAX_OTHER_ENTRIES, &read).await,
        )?;
        let ask = |page| {
            ClientRequest::ListResourceTemplatesRequest(ListResourceTemplatesRequest::with_param(
                page,
            ))
        };
        let read = |value: &Value| decode::resource(value, "uriTemplate");
        offer.templates = ignore_list_errors(
            fetch_list(peer, &ask, "resourceTemplates", MAX_OTHER_ENTRIES, &read).await,
        )?;
    }
    if can.prompts.is_some() {
        let ask = |page| ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(page));
        offer.prompts = ignore_list_errors(
            fetch_list(peer, &ask, "prompts", MAX_OTHER_ENTRIES, &decode::prompt).await,
        )?;
    }
    Ok(offer)
}

/// Ignores all errors of a list except for the end of the connection.
fn ignore_list_errors<T>(
    result: Result<(Vec<T>, usize), ServiceError>,
) -> Result<Vec<T>, ServiceError> {
    match result {
        Ok((entries, _)) => Ok(entries),
        Err(error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_))) => Err(error),
        Err(error) => {
            log::debug!(target: "mcp", "list request failed: {}", one_line(&error.to_string()));
            Ok(Vec::new())
        }
    }
}

/// Returns the entries of the list at `key`, at most `max_entries`, and the number of entries that were left out.
async fn fetch_list<T: Serialize>(
    peer: &Peer<RoleClient>,
    to_request: &(dyn Fn(PaginatedRequestParams) -> ClientRequest + Send + Sync),
    key: &str,
    max_entries: usize,
    parse: &(dyn Fn(&Value) -> Option<T> + Send + Sync),
) -> Result<(Vec<T>, usize), ServiceError> {
    let (mut entries, mut left_out, mut size) = (Vec::new(), 0, 0);
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor.clone());
        let result = decode::to_value(peer.send_request(to_request(page)).await?);
        for entry in result
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let weight = entry.to_string().len();
            match parse(entry) {
                Some(entry) if entries.len() < max_entries && size + weight <= MAX_LIST_BYTES => {
                    size += weight;
                    entries.push(entry);
                }
                _ => left_out += 1,
            }
        }
        let next = result.get("nextCursor").and_then(Value::as_str);
        let next = next.map(str::to_owned);
        // The same cursor would return the same page again.
        if next.is_none() || next == cursor || entries.len() >= max_entries {
            break;
        }
        cursor = next;
    }
    Ok((entries, left_out))
}
