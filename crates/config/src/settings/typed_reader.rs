//! Typed reads from the layered config.

use super::key_node::KeyNode;
use super::key_spelling::format_path;
use super::keys::ConfigKey;
use super::layers::LayeredConfig;
use super::secret_form::secret_from;
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_os::secret::LazySecret;
use serde_json::Value;

/// Typed access to the layers. A key without a value yields its default.
pub(super) struct TypedReader<'a>(pub(super) &'a LayeredConfig<'a>);

impl TypedReader<'_> {
    /// Reads the value of `key`, from a flag if it is given.
    pub(super) fn get(
        &self,
        key: &'static ConfigKey,
        flag: Option<(&'static str, Value)>,
    ) -> Result<Value> {
        if let Some((flag, value)) = flag {
            return key.kind.accept(&value).ok_or_else(|| {
                let cause = format!(
                    "`{flag}` is {}, expected {}",
                    key.kind.describe_value(&value),
                    key.kind.describe()
                );
                fail(Exit::Usage, cause)
            });
        }
        let value = self.0.read_key(key)?;
        Ok(value.unwrap_or_else(|| key.default_value()))
    }

    /// Reads the value at a path with a name that the user chose.
    pub(super) fn get_at(&self, names: &[&str]) -> Result<Value> {
        let default = || {
            let key = KeyNode::at(names).and_then(KeyNode::key);
            key.expect("callers name only keys of the table").default_value()
        };
        Ok(self.0.read(names)?.unwrap_or_else(default))
    }

    /// Reads text. Blank text means the default, because unfilled forms leave it blank.
    pub(super) fn text(&self, key: &'static ConfigKey) -> Result<String> {
        let default = || key.default_value().as_str().unwrap_or_default().to_owned();
        Ok(self.optional_text(key, None)?.unwrap_or_else(default))
    }

    /// Reads text that has no default. Blank text means that it is absent.
    pub(super) fn optional_text(
        &self,
        key: &'static ConfigKey,
        flag: Option<(&'static str, Value)>,
    ) -> Result<Option<String>> {
        Ok(self.get(key, flag)?.as_str().and_then(not_blank))
    }

    /// Reads a secret; a blank one means that it is absent.
    pub(super) fn secret(&self, key: &'static ConfigKey) -> Result<Option<LazySecret>> {
        Ok(secret_from(self.0.env(), key.path, &self.get(key, None)?))
    }

    /// Reads the secret at a path with a name that the user chose.
    pub(super) fn secret_at(&self, names: &[&str]) -> Result<Option<LazySecret>> {
        let value = self.0.read(names)?;
        let key = format_path(names);
        Ok(value.and_then(|value| secret_from(self.0.env(), &key, &value)))
    }

    /// Reads the secrets in the object at a path with a name that the user chose.
    pub(super) fn secrets_at(&self, names: &[&str]) -> Result<Vec<(String, LazySecret)>> {
        let Some(Value::Object(members)) = self.0.read(names)? else {
            return Ok(Vec::new());
        };
        Ok(self.0.secrets_in(&format_path(names), &members))
    }

    pub(super) fn whole_number(
        &self,
        key: &'static ConfigKey,
        flag: Option<(&'static str, Value)>,
    ) -> Result<u32> {
        let number = self.get(key, flag)?.as_u64();
        Ok(number
            .and_then(|number| u32::try_from(number).ok())
            .expect("the table says that it is a number of at most ten million"))
    }

    pub(super) fn count(&self, key: &'static ConfigKey) -> Result<usize> {
        Ok(self.whole_number(key, None)? as usize)
    }

    pub(super) fn boolean(&self, key: &'static ConfigKey) -> Result<bool> {
        Ok(self.get(key, None)? == Value::Bool(true))
    }

    pub(super) fn text_list(&self, key: &'static ConfigKey) -> Result<Vec<String>> {
        let list = self.get(key, None)?;
        let items = list.as_array().into_iter().flatten();
        Ok(items.filter_map(Value::as_str).map(str::to_owned).collect())
    }
}

/// Trims `text`; `None` if nothing is left.
pub(super) fn not_blank(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
