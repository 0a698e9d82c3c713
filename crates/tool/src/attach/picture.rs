//! Decoded pictures: PNG and JPEG, which are scaled down. No I/O.

use nanobot_os::input;
use std::fmt::Display;
use std::io::Cursor;
use std::ops::Range;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

const JPEG_QUALITY: u8 = 85;

/// The pixels of a picture.
pub(super) struct Picture {
    /// One byte for each channel of each pixel, row by row.
    pixels: Vec<u8>,
    width: usize,
    height: usize,
    /// Channels of a pixel: 1 or 3 for grey or RGB, and one more with transparency.
    channels: usize,
    /// Turn that is to be applied, as numbered by EXIF.
    orientation: usize,
}

impl Picture {
    /// Decodes a PNG, of an animation the first frame, or a JPEG.
    ///
    /// # Errors
    /// The file is neither, or damaged. The error is the rest of a sentence that begins with "is an image".
    pub(super) fn decode(file: &[u8]) -> Result<Self, String> {
        match input::image_type(file) {
            Some("image/png") => Self::decode_png(file),
            Some("image/jpeg") => Self::decode_jpeg(file),
            _ => Err("that is too large, and only PNG and JPEG are scaled down".into()),
        }
    }

    fn decode_png(file: &[u8]) -> Result<Self, String> {
        let mut decoder = png::Decoder::new(Cursor::new(file));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().map_err(damaged)?;
        let mut pixels = vec![0; reader.output_buffer_size().ok_or("with too many pixels")?];
        let frame = reader.next_frame(&mut pixels).map_err(damaged)?;
        pixels.truncate(frame.buffer_size());
        Ok(Self {
            pixels,
            width: frame.width as usize,
            height: frame.height as usize,
            channels: frame.color_type.samples(),
            orientation: reader.info().exif_metadata.as_deref().and_then(orientation).unwrap_or(1),
        })
    }

    fn decode_jpeg(file: &[u8]) -> Result<Self, String> {
        let options = DecoderOptions::default()
            .set_strict_mode(false)
            .set_max_width(usize::MAX)
            .set_max_height(usize::MAX);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
        decoder.decode_headers().map_err(damaged)?;
        let (color_space, channels) = match decoder.input_colorspace() {
            Some(ColorSpace::Luma) => (ColorSpace::Luma, 1),
            _ => (ColorSpace::RGB, 3),
        };
        decoder.set_options(options.jpeg_set_out_colorspace(color_space));
        let pixels = decoder.decode().map_err(damaged)?;
        let (width, height) = decoder.dimensions().unwrap_or_default();
        let orientation = decoder.exif().and_then(|exif| orientation(exif)).unwrap_or(1);
        Ok(Self { pixels, width, height, channels, orientation })
    }

    /// Scales the picture down to a longer side of at most `side` pixels, and turns it upright.
    pub(super) fn shrink(&self, side: usize) -> Self {
        let longer_side = self.width.max(self.height);
        let scale = |length: usize| {
            if longer_side > side {
                ((length * side + longer_side / 2) / longer_side).max(1)
            } else {
                length
            }
        };
        let (columns, rows) = (scale(self.width), scale(self.height));
        let (width, height) = if self.orientation < 5 { (columns, rows) } else { (rows, columns) };
        let mut pixels = Vec::with_capacity(columns * rows * self.channels);
        for y in 0..height {
            for x in 0..width {
                let (column, row) = match self.orientation {
                    2 => (columns - 1 - x, y),
                    3 => (columns - 1 - x, rows - 1 - y),
                    4 => (x, rows - 1 - y),
                    5 => (y, x),
                    6 => (y, rows - 1 - x),
                    7 => (columns - 1 - y, rows - 1 - x),
                    8 => (columns - 1 - y, x),
                    _ => (x, y),
                };
                self.push_average(
                    &mut pixels,
                    part(column, columns, self.width),
                    part(row, rows, self.height),
                );
            }
        }
        Self { pixels, width, height, channels: self.channels, orientation: 1 }
    }

    /// Appends the average of the pixels in a rectangle.
    fn push_average(&self, pixels: &mut Vec<u8>, columns: Range<usize>, rows: Range<usize>) {
        let mut sums = [0; 4];
        for row in rows.clone() {
            let start = row * self.width;
            let bytes =
                (start + columns.start) * self.channels..(start + columns.end) * self.channels;
            for pixel in self.pixels[bytes].chunks_exact(self.channels) {
                for (sum, byte) in sums.iter_mut().zip(pixel) {
                    *sum += usize::from(*byte);
                }
            }
        }
        let count = columns.len() * rows.len();
        pixels.extend(sums[..self.channels].iter().map(|sum| ((sum + count / 2) / count) as u8));
    }

    /// Encodes the picture as a JPEG, or as a PNG if it has transparency.
    ///
    /// # Errors
    /// A side is longer than a JPEG can be.
    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        let is_transparent = |pixel: &[u8]| pixel[self.channels - 1] < u8::MAX;
        let mut file = Vec::new();
        let has_transparency = self.channels.is_multiple_of(2)
            && self.pixels.chunks_exact(self.channels).any(is_transparent);
        if has_transparency || self.channels == 2 {
            let size = u32::try_from(self.width)
                .and_then(|width| Ok((width, u32::try_from(self.height)?)));
            let (width, height) = size.map_err(damaged)?;
            let mut encoder = png::Encoder::new(&mut file, width, height);
            encoder.set_color(match self.channels {
                2 => png::ColorType::GrayscaleAlpha,
                _ => png::ColorType::Rgba,
            });
            encoder.set_depth(png::BitDepth::Eight);
            let written = encoder.write_header().and_then(|mut writer| {
                writer.write_image_data(&self.pixels)?;
                writer.finish()
            });
            written.map_err(damaged)?;
        } else {
            let size = u16::try_from(self.width)
                .and_then(|width| Ok((width, u16::try_from(self.height)?)));
            let (width, height) = size.map_err(damaged)?;
            let color_type = match self.channels {
                1 => jpeg_encoder::ColorType::Luma,
                3 => jpeg_encoder::ColorType::Rgb,
                _ => jpeg_encoder::ColorType::Rgba,
            };
            let encoder = jpeg_encoder::Encoder::new(&mut file, JPEG_QUALITY);
            encoder.encode(&self.pixels, width, height, color_type).map_err(damaged)?;
        }
        Ok(file)
    }

    /// The width and the height in pixels, as text.
    pub(super) fn size(&self) -> String {
        format!("{}×{}", self.width, self.height)
    }
}

/// The pixels of `length` that become pixel `number` of `count`.
fn part(number: usize, count: usize, length: usize) -> Range<usize> {
    number * length / count..(number + 1) * length / count
}

/// The orientation of a picture by its EXIF data, a TIFF file whose first directory can have it as tag 0x112: two bytes of the
/// tag, two of the type, four of the count, then the value (<https://www.cipa.jp/std/documents/e/DC-008-2012_E.pdf>).
fn orientation(exif: &[u8]) -> Option<usize> {
    let is_little_endian = match exif.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let number = |start: usize, length: usize| {
        let mut bytes = exif.get(start..start.checked_add(length)?)?.to_vec();
        if is_little_endian {
            bytes.reverse();
        }
        Some(bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    let directory = number(4, 4)?;
    let mut entries = (0..number(directory, 2)?).map(|entry| directory + 2 + 12 * entry);
    let entry = entries.find(|entry| number(*entry, 2) == Some(0x112))?;
    number(entry + 8, 2)
}

/// The rest of a sentence that begins with "is an image".
pub(super) fn damaged(error: impl Display) -> String {
    format!("that cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    use super::{Picture, orientation};

    #[test]
    fn pictures_are_turned_as_exif_says() {
        // A picture of 3×2 pixels with one channel, and what a reader sees.
        let seen: [&[u8]; 8] = [
            &[1, 2, 3, 4, 5, 6],
            &[3, 2, 1, 6, 5, 4],
            &[6, 5, 4, 3, 2, 1],
            &[4, 5, 6, 1, 2, 3],
            &[1, 4, 2, 5, 3, 6],
            &[4, 1, 5, 2, 6, 3],
            &[6, 3, 5, 2, 4, 1],
            &[3, 6, 2, 5, 1, 4],
        ];
        for (number, expect) in (1..).zip(seen) {
            let picture = Picture {
                pixels: vec![1, 2, 3, 4, 5, 6],
                width: 3,
                height: 2,
                channels: 1,
                orientation: number,
            };
            let turned = picture.shrink(3);
            assert_eq!(turned.pixels, expect, "{number}");
            assert_eq!(turned.size(), if number < 5 { "3×2" } else { "2×3" });
        }
    }

    #[test]
    fn a_smaller_pixel_is_an_average() {
        let pixels = vec![10, 0, 20, 0, 30, 1, 40, 1, 50, 9];
        let picture = Picture { pixels, width: 5, height: 1, channels: 2, orientation: 1 };
        let small = picture.shrink(2);
        assert_eq!((small.pixels, small.width, small.height), (vec![15, 0, 40, 4], 2, 1));
    }

    #[test]
    fn the_orientation_is_in_the_first_directory() {
        let little = b"II*\0\x08\0\0\0\x02\0\0\x01\x03\0\x01\0\0\0\x07\0\0\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0";
        let big = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0";
        assert_eq!(orientation(little), Some(6));
        assert_eq!(orientation(big), Some(8));
        for length in 0..big.len() - 2 {
            assert_eq!(orientation(&big[..length]), None);
        }
        assert_eq!(orientation(b"MM\0*\xff\xff\xff\xff"), None);
    }
}
