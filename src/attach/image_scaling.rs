//! Prepares images for providers. An image within the limits is sent unchanged, byte for byte; a larger one is scaled
//! down.

use super::origin::AttachmentOrigin;
use crate::error::{Exit, fail};
use crate::message::Image;
use crate::sys::durable_file::format_size;
use anyhow::Result;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{DynamicImage, ImageDecoder, ImageReader, ImageResult, Limits};
use std::io::Cursor;

/// A provider's limits for images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
/// Maximum memory for decoding, in bytes.
const MAX_DECODE_BYTES: u64 = 512 << 20;
const JPEG_QUALITY: u8 = 85;

/// Fits the image to `limits`. It is only decoded if it does not fit already.
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
    let damaged = |error: &dyn std::fmt::Display| {
        let cause = format!("{origin} is an image that cannot be read: {error}");
        fail(Exit::BadInput, cause)
    };
    let image =
        |media_type, bytes| Image { media_type, bytes, name: origin.name().into(), source: None };
    let size = imagesize::blob_size(bytes).map_err(|error| damaged(&error))?;
    let (width, height) = (size.width as u64, size.height as u64);
    let longer = width.max(height);
    if bytes.len() <= limits.max_bytes && longer <= limits.max_side.into() {
        return Ok(image(media_type, bytes.to_vec()));
    }
    if width.saturating_mul(height) > MAX_PIXELS {
        let millions = MAX_PIXELS / 1_000_000;
        let cause = format!(
            "{origin} is an image of {width}×{height} pixels, above the limit of {millions} million"
        );
        return Err(fail(Exit::BadInput, cause));
    }
    let decoded = decode(bytes).map_err(|error| damaged(&error))?;
    let longer = u32::try_from(longer).unwrap_or(u32::MAX);
    let mut side = longer.min(TARGET_SIDE_PIXELS).min(limits.max_side);
    loop {
        let (small_type, small, pixels) =
            shrink(&decoded, side).map_err(|error| damaged(&error))?;
        if small.len() <= limits.max_bytes {
            let first = match media_type {
                "image/gif" | "image/webp" => "; only the first frame of an animation is sent",
                _ => "",
            };
            on_notice(&format!(
                "{origin} was scaled down from {width}×{height} pixels ({}) to {pixels} ({}){first}",
                format_size(bytes.len() as u64),
                format_size(small.len() as u64)
            ));
            return Ok(image(small_type, small));
        }
        side /= 2;
        if side < MIN_SIDE_PIXELS {
            let limit = format_size(limits.max_bytes as u64);
            let cause = format!("{origin} is an image that cannot be scaled down below {limit}");
            return Err(fail(Exit::BadInput, cause));
        }
    }
}

/// Decodes the picture and applies its EXIF orientation.
fn decode(bytes: &[u8]) -> ImageResult<DynamicImage> {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODE_BYTES);
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder()?;
    limits.reserve(decoder.total_bytes())?;
    let orientation = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// Scales `image` to a longer side of `side` pixels; returns media type, file, and its size in words. The result is a
/// JPEG, unless the image has transparency.
fn shrink(image: &DynamicImage, side: u32) -> ImageResult<(&'static str, Vec<u8>, String)> {
    let (width, height) = (image.width(), image.height());
    // If only the byte size is too large, `thumbnail` would blur the image without need.
    let small = if width.max(height) > side {
        image.thumbnail(side, side).to_rgba8()
    } else {
        image.to_rgba8()
    };
    let pixels = format!("{}×{}", small.width(), small.height());
    let clear = small.pixels().any(|pixel| pixel.0[3] < u8::MAX);
    let small = DynamicImage::from(small);
    let mut file = Vec::new();
    if clear {
        small.write_with_encoder(PngEncoder::new(&mut file))?;
        return Ok(("image/png", file, pixels));
    }
    let small = small.to_rgb8();
    small.write_with_encoder(JpegEncoder::new_with_quality(&mut file, JPEG_QUALITY))?;
    Ok(("image/jpeg", file, pixels))
}
