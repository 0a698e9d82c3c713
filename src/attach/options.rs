//! What decides how an attachment is read: the abilities of the model, and the limits of its provider.

use super::picture::ImageLimits;
use crate::sys::env::Env;

/// What the model takes besides text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    pub images: bool,
    /// PDFs as they are; where it does not, it gets their text.
    pub pdf: bool,
}

impl Default for Accepts {
    fn default() -> Self {
        Self {
            images: true,
            pdf: false,
        }
    }
}

/// On what terms something is attached.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    pub accepts: Accepts,
    pub images: ImageLimits,
    /// No page is fetched.
    pub offline: bool,
    pub env: &'a Env,
}
