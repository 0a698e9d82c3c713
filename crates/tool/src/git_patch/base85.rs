//! The lines of bytes in a binary patch: a letter for the length, then five digits for each four bytes (git's `base85.c`).

use anyhow::{Context, Result, ensure};

const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
/// The number of bytes in a full line.
const LINE_BYTES: usize = 52;

/// The lines for `bytes`.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(LINE_BYTES) {
        let length = line.len() as u8;
        text.push(char::from(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 }));
        for group in line.chunks(4) {
            let mut word = [0; 4];
            word[..group.len()].copy_from_slice(group);
            let mut number = u32::from_be_bytes(word);
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = DIGITS[(number % 85) as usize];
                number /= 85;
            }
            text.extend(digits.map(char::from));
        }
        text.push('\n');
    }
    text
}

/// The bytes of a line, which has no newline.
///
/// # Errors
/// It is not such a line.
pub(super) fn decode_line(line: &[u8]) -> Result<Vec<u8>> {
    let (&letter, digits) = line.split_first().context("an empty line")?;
    let length = match letter {
        b'A'..=b'Z' => usize::from(letter - b'A') + 1,
        b'a'..=b'z' => usize::from(letter - b'a') + 27,
        _ => anyhow::bail!("an unknown length"),
    };
    ensure!(digits.len() == length.div_ceil(4) * 5, "a line of another length");
    let mut bytes = Vec::new();
    for group in digits.chunks(5) {
        let mut number: u64 = 0;
        for digit in group {
            let value = DIGITS
                .iter()
                .position(|base_digit| base_digit == digit)
                .context("another digit")?;
            number = number * 85 + value as u64;
        }
        bytes.extend(u32::try_from(number).context("a number that is too large")?.to_be_bytes());
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{decode_line, encode};

    #[test]
    fn lines_are_those_of_git() {
        // The deflated empty content, as git writes it.
        assert_eq!(encode(&[0x78, 1, 3, 0, 0, 0, 0, 1]), "HcmV?d00001\n");
        for length in 0..200_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            let text = encode(&bytes);
            let decoded = text.lines().flat_map(|line| decode_line(line.as_bytes()).unwrap());
            assert_eq!(decoded.collect::<Vec<u8>>(), bytes);
        }
    }

    #[test]
    fn other_lines_are_errors() {
        for line in ["", "A", "A0000", "A00000000000", "000000", "A0000 ", "D~~~~~", "A0000\"] "] {
            assert!(decode_line(line.as_bytes()).is_err(), "{line}");
        }
    }
}
