//! The `generate_image` tool: writes a picture that a service or a command has made of a text. [`GenerateImage`] does the actual work,
//! since a tool knows neither providers nor budgets.

use super::files::Files;
use super::{Call, Tool, ToolError, ToolOutput};
use nanobot_base::error::hint_for;
use nanobot_base::message::{ToolSpec, Usage, without_blanks};
use nanobot_config::policy::tool_names::GENERATE_IMAGE;
use nanobot_os::durable_file::format_size;
use nanobot_os::input::image_type;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes a picture. The error has the cause and the hint.
pub type GenerateImage = dyn Fn(&ImageRequest<'_>) -> anyhow::Result<GeneratedImage> + Send + Sync;

/// A request for a picture.
#[derive(Clone, Copy, Debug)]
pub struct ImageRequest<'a> {
    pub prompt: &'a str,
    /// Such as `16:9`; `None` for the default of the config.
    pub aspect_ratio: Option<&'a str>,
}

/// A picture that was made.
#[derive(Debug)]
pub struct GeneratedImage {
    pub bytes: Vec<u8>,
    /// The cost in US dollars; `None` if it is unknown.
    pub usd: Option<f64>,
}

/// The `generate_image` tool.
pub struct ImageTool {
    spec: ToolSpec,
    files: Arc<Files>,
    generate: Box<GenerateImage>,
    /// The number of pictures that the turn may still make.
    remaining: AtomicU32,
}

impl ImageTool {
    /// Creates the tool of a turn that may make `max_images` pictures.
    pub fn new(files: Arc<Files>, max_images: u32, generate: Box<GenerateImage>) -> Self {
        let parameters = const {
            &without_blanks(
                br#"{ "type": "object", "required": ["prompt", "path"], "properties": {
            "prompt": { "type": "string", "description": "subject, style, composition, colors" },
            "path": { "type": "string", "description": "the file to write, such as fox.png" },
            "aspect_ratio": { "type": "string", "description": "such as 16:9" }
        } }"#,
            )
        };
        let description = "Generate a picture and write it to a file; `message` can send it";
        Self {
            spec: ToolSpec::new(GENERATE_IMAGE, description, parameters),
            files,
            generate,
            remaining: AtomicU32::new(max_images),
        }
    }
}

impl Tool for ImageTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let text = |key: &str| {
            let text = call.arguments[key].as_str().map(str::trim);
            text.filter(|text| !text.is_empty())
        };
        let prompt = text("prompt").ok_or("`prompt` is empty")?;
        let path = text("path").ok_or("`path` is empty")?;
        // A picture that cannot be written is not paid for.
        self.files.check_write(path)?;
        let take = |remaining: u32| remaining.checked_sub(1);
        if self.remaining.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
            return Err(
                "this turn has made `tools.imageGeneration.maxImagesPerTurn` pictures".into()
            );
        }
        let request = ImageRequest { prompt, aspect_ratio: text("aspect_ratio") };
        let GeneratedImage { bytes, usd } = (self.generate)(&request).map_err(|error| {
            let hint = hint_for(&error).map(|hint| format!("; {hint}")).unwrap_or_default();
            format!("no picture was made: {error:#}{hint}")
        })?;
        call.charges.push((Usage::default(), usd));
        let Some(media_type) = image_type(&bytes) else {
            return Err(format!("no picture was made: {} bytes are no image", bytes.len()).into());
        };
        let written = self.files.write(path, &bytes)?;
        let verb = if written.old_size.is_some() { "replaced" } else { "created" };
        let size = format_size(bytes.len() as u64);
        Ok(format!("{verb} {} ({media_type}, {size})", written.path.display()).into())
    }
}
