//! Options for reading an attachment: the abilities of the model and the limits of its provider.

use super::audio::TranscribeRecording;
use super::image_scaling::ImageLimits;
use nanobot_net::http::Network;
use nanobot_os::env::Env;

/// The content types that a model accepts in addition to text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedInputs {
    pub images: bool,
    /// True if PDFs are sent unchanged; otherwise their text is sent.
    pub pdf: bool,
    /// True if recordings of some formats are sent unchanged; otherwise they are transcribed.
    pub audio: bool,
}

impl Default for AcceptedInputs {
    fn default() -> Self {
        Self { images: true, pdf: false, audio: false }
    }
}

/// The conditions under which an attachment is read.
#[derive(Clone, Copy)]
pub struct AttachOptions<'a> {
    pub accepts: AcceptedInputs,
    pub image_limits: ImageLimits,
    /// The network from which pages are fetched; `None` if no page may be fetched.
    pub network: Option<&'a Network>,
    /// Transcribes recordings; `None` if they are of no use.
    pub transcribe: Option<&'a TranscribeRecording<'a>>,
    pub env: &'a Env,
}
