//! Generates the config's JSON Schema from the table of keys.

use super::key_node::KeyNode;
use super::keys::KeySupport;
use super::own_keys::KeyHome;
use serde_json::{Map, Value, json};

/// Returns the schema, draft 2020-12. Unknown keys are allowed, as they are when a config is read. Numbers and booleans in quotes, which
/// are also read, are not: an editor marks them.
pub fn schema() -> Value {
    let mut schema = Map::new();
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!("nanobot's config: config.json and nanobot.json"));
    schema.extend(node_schema(KeyNode::root()));
    Value::Object(schema)
}

fn node_schema(node: KeyNode) -> Map<String, Value> {
    if let Some(key) = node.key() {
        let mut schema = key.kind.schema();
        let doc = match key.support {
            KeySupport::Used | KeySupport::UsedAndWritten => key.doc.to_owned(),
            KeySupport::Later => format!("{} (not used by this release)", key.doc),
            KeySupport::Ignored => format!("{} (ignored)", key.doc),
        };
        schema.insert("description".into(), Value::String(doc));
        schema.insert("default".into(), key.default_value());
        if KeyHome::find(&key.path.split('.').collect::<Vec<_>>()) == KeyHome::Own {
            schema.insert("$comment".into(), json!("belongs in nanobot.json"));
        }
        return schema;
    }
    let mut properties = Map::new();
    let mut schema = Map::new();
    schema.insert("type".into(), json!(["object", "null"]));
    for name in node.names() {
        let child = node_schema(node.child(name).expect("a node has the children that it names"));
        if name == "*" {
            schema.insert("additionalProperties".into(), Value::Object(child));
        } else {
            properties.insert(name.to_owned(), Value::Object(child));
        }
    }
    if !properties.is_empty() {
        schema.insert("properties".into(), Value::Object(properties));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::schema;
    use serde_json::json;

    #[test]
    fn keys_become_properties() {
        let schema = schema();
        let check = |pointer: &str, expect: serde_json::Value| {
            assert_eq!(schema.pointer(pointer), Some(&expect), "{pointer}");
        };
        let tokens = "/properties/agents/properties/defaults/properties/maxTokens";
        check(&format!("{tokens}/default"), json!(8192));
        check(&format!("{tokens}/maximum"), json!(10_000_000));
        check(
            "/properties/providers/additionalProperties/properties/apiKey/anyOf/0/type",
            json!(["string", "null"]),
        );
        check("/properties/session/properties/sync/enum", json!(["turn", "none", null]));
        check("/properties/session/properties/sync/$comment", json!("belongs in nanobot.json"));
    }
}
