//! Cron expressions.

/// Five fields: minute, hour, day of the month, month, day of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
}

impl Expression {
    /// Read an expression.
    ///
    /// # Errors
    /// In words: what is wrong, and how it would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.into() })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}
