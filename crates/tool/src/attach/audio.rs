//! Recordings of sound: their format and their duration, as their first bytes and their headers have them. Nothing is decoded.
//!
//! Models take MP3 and WAV. Other formats are for services that transcribe, which also take these two.

/// The media types that models take (OpenAI, "Audio and speech"; Google, "OpenAI compatibility").
const MODEL_TYPES: &[&str] = &["audio/mpeg", "audio/wav"];

/// Transcribes a recording. The error has the cause and the hint.
pub type TranscribeRecording<'a> =
    dyn Fn(&SoundRecording<'_>) -> anyhow::Result<String> + Send + Sync + 'a;

/// A recording of sound.
#[derive(Clone, Copy, Debug)]
pub struct SoundRecording<'a> {
    /// `audio/mpeg`, `audio/wav`, `audio/ogg`, `audio/mp4` or `audio/flac`.
    pub media_type: &'static str,
    pub bytes: &'a [u8],
}

impl<'a> SoundRecording<'a> {
    /// The recording in `bytes`; `None` if they are something else.
    pub fn find(bytes: &'a [u8]) -> Option<Self> {
        let media_type = match bytes {
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => "audio/wav",
            [b'I', b'D', b'3', 2..=4, ..] => "audio/mpeg",
            [b'f', b'L', b'a', b'C', ..] => "audio/flac",
            [b'O', b'g', b'g', b'S', ..] if ogg_rate(bytes).is_some() => "audio/ogg",
            [_, _, _, _, b'f', b't', b'y', b'p', ..] if is_sound_of_mp4(bytes) => "audio/mp4",
            _ if Mp3Frame::parse(bytes).is_some() => "audio/mpeg",
            _ => return None,
        };
        Some(Self { media_type, bytes })
    }

    /// True if models that accept recordings take this format.
    pub(crate) fn is_for_models(&self) -> bool {
        MODEL_TYPES.contains(&self.media_type)
    }

    /// A file name with the extension of the format, by which services recognize it.
    pub fn file_name(&self) -> &'static str {
        match self.media_type {
            "audio/wav" => "recording.wav",
            "audio/ogg" => "recording.ogg",
            "audio/mp4" => "recording.m4a",
            "audio/flac" => "recording.flac",
            _ => "recording.mp3",
        }
    }

    /// The duration in seconds; `None` if the headers do not have it.
    pub fn seconds(&self) -> Option<u64> {
        match self.media_type {
            "audio/wav" => wav_seconds(self.bytes),
            "audio/ogg" => ogg_seconds(self.bytes),
            "audio/mp4" => mp4_seconds(self.bytes),
            "audio/mpeg" => mp3_seconds(self.bytes),
            _ => None,
        }
    }
}

/// The bytes of `N` bytes at `at`.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The position after `mark`.
fn find_after(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    let start = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some(start + mark.len())
}

/// The length of the samples divided by the bytes in a second (RIFF, "WAVE form"). A recorder that was stopped leaves a length that
/// exceeds the file.
fn wav_seconds(bytes: &[u8]) -> Option<u64> {
    let format = find_after(bytes, b"fmt ")? + 4;
    let bytes_per_second = u32::from_le_bytes(array_at(bytes, format + 8)?);
    let data = find_after(bytes, b"data")?;
    let stated_length = u32::from_le_bytes(array_at(bytes, data)?) as usize;
    let length = bytes.len().saturating_sub(data + 4).min(stated_length);
    (length as u64).checked_div(bytes_per_second.into())
}

/// The samples in a second: Opus counts 48,000 whatever it encodes (RFC 7845 §4).
fn ogg_rate(bytes: &[u8]) -> Option<u64> {
    let first_page = &bytes[..bytes.len().min(128)];
    if find_after(first_page, b"OpusHead").is_some() {
        return Some(48_000);
    }
    let vorbis = find_after(first_page, b"\x01vorbis")?;
    Some(u32::from_le_bytes(array_at(first_page, vorbis + 5)?).into())
}

/// The position of the last page in samples, divided by the samples in a second (RFC 3533 §6).
fn ogg_seconds(bytes: &[u8]) -> Option<u64> {
    let last_page = bytes.windows(4).rposition(|window| window == b"OggS")?;
    u64::from_le_bytes(array_at(bytes, last_page + 6)?).checked_div(ogg_rate(bytes)?)
}

/// True if the file has a track of sound and none of pictures (ISO 14496-12 §8.4.3).
fn is_sound_of_mp4(bytes: &[u8]) -> bool {
    find_after(bytes, b"soun").is_some() && find_after(bytes, b"vide").is_none()
}

/// The duration of the movie header (ISO 14496-12 §8.2.2), whose version 1 has wider fields.
fn mp4_seconds(bytes: &[u8]) -> Option<u64> {
    let header = find_after(bytes, b"mvhd")?;
    let is_wide = *bytes.get(header)? == 1;
    let (scale_at, duration_at) = if is_wide { (20, 24) } else { (12, 16) };
    let scale = u32::from_be_bytes(array_at(bytes, header + scale_at)?);
    let duration = if is_wide {
        u64::from_be_bytes(array_at(bytes, header + duration_at)?)
    } else {
        u32::from_be_bytes(array_at(bytes, header + duration_at)?).into()
    };
    duration.checked_div(scale.into())
}

/// The header of a frame of MPEG-1 or MPEG-2, layer III (ISO 11172-3 §2.4.1.3).
struct Mp3Frame {
    bytes_per_second: u64,
    samples_per_second: u64,
    samples: u64,
}

impl Mp3Frame {
    fn parse(bytes: &[u8]) -> Option<Self> {
        const MPEG_1_KILOBITS: [u64; 16] =
            [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0];
        const MPEG_2_KILOBITS: [u64; 16] =
            [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0];
        let [0xff, version_and_layer, rates, _] = array_at(bytes, 0)? else {
            return None;
        };
        let (kilobits, rate_divisor, samples) = match version_and_layer & 0xfe {
            0xfa => (MPEG_1_KILOBITS, 1, 1152),
            0xf2 => (MPEG_2_KILOBITS, 2, 576),
            // MPEG-2.5, which recorders of speech use.
            0xe2 => (MPEG_2_KILOBITS, 4, 576),
            _ => return None,
        };
        let rate = [44_100, 48_000, 32_000].get(usize::from(rates >> 2 & 3))?;
        let kilobits = kilobits[usize::from(rates >> 4)];
        (kilobits > 0).then_some(Self {
            bytes_per_second: kilobits * 1000 / 8,
            samples_per_second: rate / rate_divisor,
            samples,
        })
    }
}

/// The duration that the first frame states, if the bit rate varies; else that of a constant bit rate.
fn mp3_seconds(bytes: &[u8]) -> Option<u64> {
    // An ID3v2 tag states its length in four bytes of seven bits each.
    let tag_length = match bytes {
        [b'I', b'D', b'3', _, _, _, a, b, c, d, ..] => {
            let digits = [a, b, c, d].into_iter();
            10 + digits.fold(0, |length, digit| length << 7 | usize::from(digit & 0x7f))
        }
        _ => 0,
    };
    let frames = bytes.get(tag_length..)?;
    let frame = Mp3Frame::parse(frames)?;
    let head = &frames[..frames.len().min(64)];
    let stated = find_after(head, b"Xing").or_else(|| find_after(head, b"Info"));
    if let Some(stated) = stated
        && array_at(frames, stated)?.map(|byte: u8| byte & 1) == [0, 0, 0, 1]
    {
        let count = u64::from(u32::from_be_bytes(array_at(frames, stated + 4)?));
        return (count * frame.samples).checked_div(frame.samples_per_second);
    }
    (frames.len() as u64).checked_div(frame.bytes_per_second)
}

#[cfg(test)]
mod tests {
    use super::SoundRecording;

    /// `seconds` of silence as WAV, with one byte for each of 100 samples in a second.
    fn wav(seconds: usize) -> Vec<u8> {
        let length = u32::try_from(seconds * 100).unwrap();
        let mut bytes = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        bytes.extend(100_u32.to_le_bytes());
        bytes.extend(100_u32.to_le_bytes());
        bytes.extend(b"\x01\0\x08\0data");
        bytes.extend(length.to_le_bytes());
        bytes.extend(vec![0; seconds * 100]);
        bytes
    }

    fn check(bytes: &[u8], media_type: Option<&str>, seconds: Option<u64>) {
        let recording = SoundRecording::find(bytes);
        assert_eq!(recording.map(|recording| recording.media_type), media_type);
        assert_eq!(recording.and_then(|recording| recording.seconds()), seconds);
    }

    #[test]
    fn formats_and_durations_follow_from_the_headers() {
        check(&wav(3), Some("audio/wav"), Some(3));
        let opus = [&b"OggS\0\x02"[..], &[0; 20], b"\x01\x13OpusHead", &[0; 11]].concat();
        let last = [b"OggS\0\x04", &(5 * 48_000_u64).to_le_bytes()[..], &[0; 12]].concat();
        check(&[opus, last].concat(), Some("audio/ogg"), Some(5));
        let vorbis = [&b"OggS\0\x02"[..], &[0; 20], b"\x01\x1e\x01vorbis\0\0\0\0\x01"].concat();
        let vorbis = [&vorbis[..], &8_000_u32.to_le_bytes()].concat();
        let last = [b"OggS\0\x04", &16_000_u64.to_le_bytes()[..]].concat();
        check(&[vorbis, last].concat(), Some("audio/ogg"), Some(2));
        let mp4 = |rest: &[u8]| [b"\0\0\0\x10ftypM4A \0\0\0\0", rest].concat();
        let header =
            [&b"mvhd\0\0\0\0\0\0\0\0\0\0\0\0"[..], &[0, 0, 0, 10], &[0, 0, 0, 70]].concat();
        check(&mp4(&[&header[..], b"soun"].concat()), Some("audio/mp4"), Some(7));
        // 64 kbit/s, 32 kHz.
        let mp3 = [b"\xff\xfb\x58\x00", &[0; 15_996][..]].concat();
        check(&mp3, Some("audio/mpeg"), Some(2));
        let tag = b"ID3\x04\0\0\0\0\0\x02..";
        check(&[&tag[..], &mp3].concat(), Some("audio/mpeg"), Some(2));
        let xing = [b"\xff\xfb\x58\x00", &[0; 32][..], b"Xing\0\0\0\x01\0\0\x01\0"].concat();
        check(&xing, Some("audio/mpeg"), Some(256 * 1152 / 32_000));
        check(b"fLaC\0\0\0\x22", Some("audio/flac"), None);
    }

    #[test]
    fn other_content_and_torn_headers_are_no_surprise() {
        for bytes in [
            &b"words"[..],
            b"",
            // UTF-16 with its mark, JPEG, WebP, a film.
            b"\xff\xfeh\0i\0",
            b"\xff\xd8\xff\xe0",
            b"RIFF\x12\0\0\0WEBPVP8L",
            b"\0\0\0\x10ftypmp42\0\0\0\0vide soun",
            b"OggS\0\x02theora",
        ] {
            check(bytes, None, None);
        }
        check(b"RIFF\0\0\0\0WAVE", Some("audio/wav"), None);
        check(b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0data", Some("audio/wav"), None);
        check(b"ID3\x04\0\0\x7f\x7f\x7f\x7f", Some("audio/mpeg"), None);
        let endless = [&wav(1)[..40], &u32::MAX.to_le_bytes()[..], &[0; 250]].concat();
        check(&endless, Some("audio/wav"), Some(2));
    }

    #[test]
    fn fuzzed_headers_do_not_panic() {
        let seeds: &[&[u8]] =
            &[&wav(1), b"OggS\0\x02OpusHead", b"ID3\x04\0\0\0\0\0\0\xff\xfb\x58\0Xing"];
        nanobot_base::fuzz::check(seeds, |input, _| {
            SoundRecording::find(input).and_then(|recording| recording.seconds());
        });
    }
}
