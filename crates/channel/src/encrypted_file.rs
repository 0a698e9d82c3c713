//! Attachments that a service encrypts with AES, with a key that comes with the message: AES-128 in ECB mode (WeChat) or
//! AES-256 in CBC mode (WeCom).

use super::RemoteFile;
use super::service_client::ServiceClient;
use aes::cipher::{BlockCipherDecrypt, KeyInit};
use aes::{Aes128, Aes256, Block};
use anyhow::Result;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use nanobot_base::error::{Exit, fail};
use nanobot_net::content_digest::{from_hex, to_hex};
use std::io::Write;

const BLOCK_BYTES: usize = 16;
/// Maximum padding in bytes: WeCom pads to blocks of 32.
const MAX_PADDING_BYTES: usize = 32;
/// Base64 with or without padding, and with stray bits at its end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The id of an attachment, which holds its key and its address. A key is 16 or 32 bytes in Base64, or the hexadecimal digits
/// of 16 bytes, plain or in Base64; `None` for any other text.
pub(super) fn to_id(key: &str, url: &str) -> Option<String> {
    let is_hex = |text: &[u8]| text.len() == 32 && text.iter().all(u8::is_ascii_hexdigit);
    let hex = if is_hex(key.as_bytes()) {
        key.to_owned()
    } else {
        let bytes = BASE64.decode(key).ok()?;
        if is_hex(&bytes) {
            String::from_utf8(bytes).ok()?
        } else if matches!(bytes.len(), 16 | 32) {
            to_hex(&bytes)
        } else {
            return None;
        }
    };
    Some(format!("{hex} {url}"))
}

/// Implements [`super::Channel::fetch`] for an id that [`to_id`] made.
pub(super) fn fetch(
    client: &ServiceClient,
    file: &RemoteFile,
    writer: &mut dyn Write,
    limit_bytes: u64,
) -> Result<bool> {
    let (key, url) = file.id.split_once(' ').unwrap_or_default();
    let mut content = Vec::new();
    let limit = limit_bytes.saturating_add(MAX_PADDING_BYTES as u64);
    if !client.download_own("the service", url, &mut content, limit)? {
        return Ok(false);
    }
    if from_hex(key).and_then(|key| decrypt(&key, &mut content)).is_none() {
        return Err(fail(Exit::BadInput, "the attachment cannot be decrypted"));
    }
    writer.write_all(&content)?;
    Ok(content.len() as u64 <= limit_bytes)
}

/// Decrypts `content` in place, and removes its padding. `None` if the key does not fit.
fn decrypt(key: &[u8], content: &mut Vec<u8>) -> Option<()> {
    if key.len() == 32 {
        return decrypt_cbc(key, &key[..BLOCK_BYTES], content);
    }
    let cipher = Aes128::new_from_slice(key).ok()?;
    for chunk in content.chunks_exact_mut(BLOCK_BYTES) {
        let mut block = Block::try_from(&*chunk).ok()?;
        cipher.decrypt_block(&mut block);
        chunk.copy_from_slice(&block);
    }
    remove_padding(content)
}

/// Decrypts `content` in place with a key of 256 bits in CBC mode, and removes its padding. `None` if the key does not fit.
pub(super) fn decrypt_cbc(
    key: &[u8],
    initialization_vector: &[u8],
    content: &mut Vec<u8>,
) -> Option<()> {
    let cipher = Aes256::new_from_slice(key).ok()?;
    let mut previous = initialization_vector.to_vec();
    for chunk in content.chunks_exact_mut(BLOCK_BYTES) {
        let mut block = Block::try_from(&*chunk).ok()?;
        cipher.decrypt_block(&mut block);
        let encrypted = chunk.to_vec();
        for ((byte, decrypted), previous_byte) in chunk.iter_mut().zip(block).zip(&previous) {
            *byte = decrypted ^ previous_byte;
        }
        previous = encrypted;
    }
    remove_padding(content)
}

/// Removes the padding of whole blocks. `None` if there is none.
fn remove_padding(content: &mut Vec<u8>) -> Option<()> {
    let padding = usize::from(*content.last()?);
    let length = content.len().checked_sub(padding)?;
    let is_padding = content.len().is_multiple_of(BLOCK_BYTES)
        && (1..=MAX_PADDING_BYTES).contains(&padding)
        && content[length..].iter().all(|byte| usize::from(*byte) == padding);
    content.truncate(length);
    is_padding.then_some(())
}

#[cfg(test)]
mod tests {
    use super::{decrypt, to_id};

    fn bytes(hex: &str) -> Vec<u8> {
        let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(pair).collect()
    }

    /// The expected values are of `openssl enc`.
    #[test]
    fn files_are_decrypted() {
        let check = |key: &str, content: &str, expect: Option<&str>| {
            let mut content = bytes(content);
            let decrypted = decrypt(&bytes(key), &mut content);
            let text = decrypted.map(|()| String::from_utf8(content).unwrap());
            assert_eq!(text.as_deref(), expect);
        };
        let key = "000102030405060708090a0b0c0d0e0f";
        let longer = format!("{key}101112131415161718191a1b1c1d1e1f");
        check(key, ECB, Some("the report"));
        check(&longer, CBC, Some("the report"));
        check(&longer, ECB, None);
        check("00", ECB, None);
        check(key, "00", None);
    }

    #[test]
    fn keys_have_several_forms() {
        let hex = "30313233343536373839616263646566";
        let expect = Some(format!("{hex} u"));
        assert_eq!(to_id(hex, "u"), expect);
        assert_eq!(to_id("MDEyMzQ1Njc4OWFiY2RlZg==", "u"), expect);
        assert_eq!(to_id("MDEyMzQ1Njc4OWFiY2RlZg", "u"), expect);
        assert_eq!(to_id("MzAzMTMyMzMzNDM1MzYzNzM4Mzk2MTYyNjM2NDY1NjY=", "u"), expect);
        assert_eq!(to_id("", "u"), None);
        assert_eq!(to_id("no key", "u"), None);
    }

    const ECB: &str = "d8268c6eb0d0302e2b6fc6fb05326d6e";
    const CBC: &str = "3a5e79b8d12fd46caaa89c2f9ff5ff6d6067e8068fb5129934c208c91ba794d4";
}
