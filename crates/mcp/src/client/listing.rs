//! Requests everything that a server offers, page by page, within limits, and only for the capabilities it declares.

use super::connection::Connection;
use super::connection_state::one_line;
use super::decode;
use super::reply::{RequestError, Wait};
use crate::protocol::ServerFeatures;
use serde_json::{Value, json};

/// Maximum of tools; more than any model can be shown, and than any honest server has.
const MAX_TOOLS: usize = 1000;
const MAX_OTHER_ENTRIES: usize = 200;
/// Maximum of pages read of each list: some servers return one entry per page, and hostile ones the same page forever.
const MAX_PAGES: usize = 100;
/// Maximum of bytes kept of a list, as JSON text: all of it is in memory, and in the cache on disk.
const MAX_LIST_BYTES: usize = 4 << 20;

/// Requests everything that the server offers.
///
/// # Errors
/// The server does not list its tools. Errors of the other lists are ignored.
pub(super) fn fetch_features(
    connection: &Connection,
    wait: &mut Wait<'_>,
) -> Result<ServerFeatures, RequestError> {
    let info = connection.info();
    let server = format!("{} {}", info.server_info.name, info.server_info.version);
    let mut features = ServerFeatures {
        protocol: one_line(&info.protocol_version),
        server: one_line(&server),
        instructions: info.instructions.clone(),
        ..ServerFeatures::default()
    };
    let capabilities = &info.capabilities;
    let mut list = ListReader { connection, wait };
    if capabilities.tools.is_some() {
        let tools = list.read("tools/list", "tools", MAX_TOOLS, &decode::tool)?;
        (features.tools, features.left_out) = tools;
    }
    if capabilities.resources.is_some() {
        let parse = |value: &Value| decode::resource(value, "uri");
        features.resources =
            list.try_read("resources/list", "resources", MAX_OTHER_ENTRIES, &parse)?;
        let method = "resources/templates/list";
        let key = "resourceTemplates";
        let parse = |value: &Value| decode::resource(value, "uriTemplate");
        features.templates = list.try_read(method, key, MAX_OTHER_ENTRIES, &parse)?;
    }
    if capabilities.prompts.is_some() {
        features.prompts =
            list.try_read("prompts/list", "prompts", MAX_OTHER_ENTRIES, &decode::prompt)?;
    }
    Ok(features)
}

/// Reads lists of a server.
struct ListReader<'a, 'w> {
    connection: &'a Connection,
    wait: &'a mut Wait<'w>,
}

impl ListReader<'_, '_> {
    /// Does the same as [`Self::read`], but ignores that the server refuses the list.
    fn try_read<T>(
        &mut self,
        method: &str,
        key: &str,
        max_entries: usize,
        parse: &dyn Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, RequestError> {
        match self.read(method, key, max_entries, parse) {
            Ok((entries, _)) => Ok(entries),
            Err(RequestError::Refused(error)) => {
                let message = one_line(&error.message);
                log::debug!(target: "mcp", "list request failed: {message}");
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the entries of the list at `key`, at most `max_entries`, and the number of entries that were left out.
    fn read<T>(
        &mut self,
        method: &str,
        key: &str,
        max_entries: usize,
        parse: &dyn Fn(&Value) -> Option<T>,
    ) -> Result<(Vec<T>, usize), RequestError> {
        let mut entries = Vec::new();
        let mut left_out = 0;
        let mut size = 0;
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = match &cursor {
                Some(cursor) => json!({ "cursor": cursor }),
                None => json!({}),
            };
            let result = self.connection.request(method, params, self.wait)?;
            let page = result.get(key).and_then(Value::as_array);
            for entry in page.into_iter().flatten() {
                let entry_size = entry.to_string().len();
                match parse(entry) {
                    Some(entry)
                        if entries.len() < max_entries && size + entry_size <= MAX_LIST_BYTES =>
                    {
                        size += entry_size;
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
}
