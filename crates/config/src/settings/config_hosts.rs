//! Collects the hosts named in the config. An address in the config is an explicit permission to reach its host.

use super::config::Config;
use super::secrets::is_secret;
use serde_json::Value;
use std::collections::BTreeSet;
use url::Url;

/// Returns the hosts of all addresses in `config`, except addresses that are secret.
pub(super) fn collect_hosts(config: &Config) -> BTreeSet<String> {
    let mut hosts = BTreeSet::new();
    collect_into(config.value(), &mut Vec::new(), &mut hosts);
    hosts
}

fn collect_into<'v>(value: &'v Value, path: &mut Vec<&'v str>, hosts: &mut BTreeSet<String>) {
    match value {
        // A text without a colon has no scheme.
        Value::String(text) if text.contains(':') && !is_secret(path) => {
            let url = Url::parse(text.trim()).ok();
            let url = url.filter(|url| ["http", "https"].contains(&url.scheme()));
            hosts.extend(url.and_then(|url| url.host_str().map(str::to_owned)));
        }
        Value::Object(members) => {
            for (name, member) in members {
                path.push(name);
                collect_into(member, path, hosts);
                path.pop();
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_into(item, path, hosts)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::collect_hosts;
    use crate::settings::Config;
    use std::path::Path;

    #[test]
    fn hosts_are_collected_from_urls() {
        let text = r#"{"providers": {"a": {"apiBase": "https://One.example/v1", "apiKey": "https://no.example", "proxy": "http://no.example"}},
            "tools": {"web": {"search": {"baseUrl": "http://two.example:8888"}}}, "own": ["ftp://no.example", "three.example"]}"#;
        let config = Config::parse(Path::new("c.json"), text).unwrap();
        let hosts: Vec<String> = collect_hosts(&config).into_iter().collect();
        assert_eq!(hosts, ["one.example", "two.example"]);
    }
}
