//! Typed reads from the layered config.

use super::keys::{self, KeyNode};
use super::layers::LayeredConfig;
use crate::error::{Exit, fail};
use anyhow::Result;
use serde_json::Value;

/// Typed access to the layers. A key without a value yields its default.
pub(super) struct TypedReader<'a>(pub(super) &'a LayeredConfig<'a>);

impl TypedReader<'_> {
    pub(super) fn get(&self, path: &str, flag: Option<(&'static str, Value)>) -> Result<Value> {
        let names: Vec<&str> = path.split('.').collect();
        if let Some((flag, value)) = flag {
            let key = key_at(&names);
            return key.kind.accept(&value).ok_or_else(|| {
                let cause = format!(
                    "`{flag}` is {}, expected {}",
                    key.kind.describe_value(&value),
                    key.kind.describe()
                );
                fail(Exit::Usage, cause)
            });
        }
        self.get_at(&names)
    }

    pub(super) fn get_at(&self, names: &[&str]) -> Result<Value> {
        Ok(match self.0.read(names)? {
            Some(value) => value,
            None => key_at(names).default_value(),
        })
    }

    pub(super) fn text(&self, path: &str) -> Result<String> {
        Ok(self
            .get(path, None)?
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Reads text; blank text counts as absent, because unfilled forms leave it blank.
    pub(super) fn optional_text(
        &self,
        path: &str,
        flag: Option<(&'static str, Value)>,
    ) -> Result<Option<String>> {
        Ok(self.get(path, flag)?.as_str().and_then(not_blank))
    }

    pub(super) fn whole_number(
        &self,
        path: &str,
        flag: Option<(&'static str, Value)>,
    ) -> Result<u32> {
        let number = self.get(path, flag)?.as_u64();
        Ok(number
            .and_then(|number| u32::try_from(number).ok())
            .expect("the table says that it is a number of at most ten million"))
    }

    pub(super) fn count(&self, path: &str) -> Result<usize> {
        Ok(self.whole_number(path, None)? as usize)
    }

    pub(super) fn boolean(&self, path: &str) -> Result<bool> {
        Ok(self.get(path, None)? == Value::Bool(true))
    }

    pub(super) fn text_list(&self, path: &str) -> Result<Vec<String>> {
        let list = self.get(path, None)?;
        let items = list.as_array().into_iter().flatten();
        Ok(items.filter_map(Value::as_str).map(str::to_owned).collect())
    }
}

/// Returns the table row of a key that a run reads.
fn key_at(names: &[&str]) -> &'static keys::ConfigKey {
    KeyNode::at(names)
        .and_then(KeyNode::key)
        .expect("only keys of the table are asked for")
}

/// Trims `text`; `None` if nothing is left.
pub(super) fn not_blank(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
