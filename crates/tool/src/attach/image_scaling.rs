//! Prepares images for providers, in a process of its own. An image within the limits is sent unchanged, byte for byte; a
//! larger one is scaled down.

use super::origin::AttachmentOrigin;
use super::picture::{Picture, damaged};
use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::error::{Exit, fail};
use nanobot_base::message::Image;
use nanobot_os::durable_file::format_size;
use nanobot_os::input;
use nanobot_sandbox::process::isolated_parser::{self, IsolatedParser, ParserError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A provider's limits for images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageLimits {
    /// Bytes of the file, before base64 encoding.
    pub max_bytes: usize,
    /// Pixels of the longer side.
    pub max_side: u32,
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self { max_bytes: 5 << 20, max_side: 8000 }
    }
}

/// Longer side, in pixels, of a reduced image: models use no more detail.
const TARGET_SIDE_PIXELS: u32 = 1568;
/// Longer side, in pixels, below which an image is no longer legible.
const MIN_SIDE_PIXELS: u32 = 64;
/// Maximum pixels to decode: the largest cameras produce this many, and a small file can claim any number.
const MAX_PIXELS: u64 = 100_000_000;

/// The parser of images, in a process of its own.
pub struct ImageParser;

impl IsolatedParser for ImageParser {
    const NAME: &'static str = "image";
    const TIMEOUT: Duration = Duration::from_secs(60);
    const MEMORY_MIB: u64 = 2048;
    type Parameters = ImageLimits;
    type Output = Result<FittedImage, String>;

    fn parse(limits: ImageLimits, document: &[u8]) -> Self::Output {
        fit(document, limits)
    }
}

/// An image that is within the limits.
#[derive(Debug, Serialize, Deserialize)]
pub enum FittedImage {
    /// The image is unchanged.
    Unchanged,
    ScaledDown {
        /// The file in base64.
        file: String,
        /// The width and the height in pixels before and after, as `WIDTH×HEIGHT`.
        old_size: String,
        new_size: String,
    },
}

/// Fits the image to `limits`.
///
/// # Errors
/// Status 65 for a damaged image, and for one whose claimed size is implausible.
pub(super) fn fit_image(
    bytes: &[u8],
    media_type: &'static str,
    origin: AttachmentOrigin<'_>,
    limits: ImageLimits,
    on_notice: &mut dyn FnMut(&str),
) -> Result<Image> {
    let unusable = |cause: String| fail(Exit::BadInput, format!("{origin} is an image {cause}"));
    let image =
        |media_type, bytes| Image { media_type, bytes, name: origin.name().into(), source: None };
    let fitted_image = match isolated_parser::parse::<ImageParser>(limits, bytes) {
        Ok(result) => result.map_err(unusable)?,
        Err(ParserError::Stopped(stop)) => return Err(stop.into()),
        Err(error) => return Err(unusable(format!("that cannot be read: {error}"))),
    };
    let FittedImage::ScaledDown { file, old_size, new_size } = fitted_image else {
        return Ok(image(media_type, bytes.to_vec()));
    };
    let scaled_bytes = STANDARD.decode(file).map_err(|error| unusable(damaged(error)))?;
    on_notice(&format!(
        "{origin} was scaled down from {old_size} pixels ({}) to {new_size} ({})",
        format_size(bytes.len() as u64),
        format_size(scaled_bytes.len() as u64)
    ));
    Ok(image(input::image_type(&scaled_bytes).unwrap_or(media_type), scaled_bytes))
}

/// Fits an image to `limits`. It is only decoded if it does not fit already.
///
/// # Errors
/// The image cannot be used. The error is the rest of a sentence that begins with "is an image".
fn fit(bytes: &[u8], limits: ImageLimits) -> Result<FittedImage, String> {
    let size = imagesize::blob_size(bytes).map_err(damaged)?;
    let (width, height) = (size.width as u64, size.height as u64);
    let longer_side = width.max(height);
    if bytes.len() <= limits.max_bytes && longer_side <= limits.max_side.into() {
        return Ok(FittedImage::Unchanged);
    }
    if width.saturating_mul(height) > MAX_PIXELS {
        let millions = MAX_PIXELS / 1_000_000;
        return Err(format!("of {width}×{height} pixels, above the limit of {millions} million"));
    }
    let picture = Picture::decode(bytes)?;
    let longer_side = u32::try_from(longer_side).unwrap_or(u32::MAX);
    let mut target_side = longer_side.min(TARGET_SIDE_PIXELS).min(limits.max_side);
    loop {
        let scaled = picture.shrink(target_side as usize);
        let file = scaled.encode()?;
        if file.len() <= limits.max_bytes {
            return Ok(FittedImage::ScaledDown {
                file: STANDARD.encode(file),
                old_size: format!("{width}×{height}"),
                new_size: scaled.size(),
            });
        }
        target_side /= 2;
        if target_side < MIN_SIDE_PIXELS {
            let limit = format_size(limits.max_bytes as u64);
            return Err(format!("that cannot be scaled down below {limit}"));
        }
    }
}
