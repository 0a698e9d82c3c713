//! A tar archive: the format ustar of POSIX, with its extended headers for long paths, and those of GNU tar.

use super::unpacked::{
    MAX_ARCHIVE_BYTES, MAX_ENTRIES, Unpacked, UnpackedFile, not_a_file, too_large,
};
use flate2::read::GzDecoder;
use std::io::Read;

/// The size of a header, and of the blocks that contents are padded to.
const BLOCK_BYTES: usize = 512;
/// Maximum size of a tar archive in bytes: the files, and for each a header, its extension and padding.
const MAX_TAR_BYTES: u64 = MAX_ARCHIVE_BYTES + (MAX_ENTRIES * 4 * BLOCK_BYTES) as u64;
/// The first bytes of a file of gzip.
const GZIP_START: &[u8] = b"\x1f\x8b";

/// Unpacks a tar archive, which gzip may have compressed.
pub(super) fn unpack(archive: &[u8]) -> Result<Vec<UnpackedFile>, String> {
    let decompressed;
    let tar = if archive.starts_with(GZIP_START) {
        let mut bytes = Vec::new();
        let read = GzDecoder::new(archive).take(MAX_TAR_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|_| damaged())?;
        decompressed = bytes;
        decompressed.as_slice()
    } else {
        archive
    };
    if tar.len() as u64 > MAX_TAR_BYTES {
        return Err(too_large());
    }
    let mut unpacked = Unpacked::default();
    let mut rest = tar;
    let mut long_path: Option<String> = None;
    while let Some((header, contents)) = rest.split_at_checked(BLOCK_BYTES) {
        if header.iter().all(|byte| *byte == 0) {
            return Ok(unpacked.files);
        }
        check_sum(header)?;
        let size = octal(&header[124..136])?;
        let padded_size = size.checked_next_multiple_of(BLOCK_BYTES).ok_or_else(damaged)?;
        let bytes = contents.get(..size).ok_or_else(damaged)?;
        rest = contents.get(padded_size..).unwrap_or_default();
        unpacked.count_entry()?;
        let path = match long_path.take() {
            Some(path) => path,
            None => header_path(header)?,
        };
        match header[156] {
            // GNU tar writes NUL for a file in its oldest format.
            b'0' | 0 => unpacked.push(UnpackedFile {
                path,
                bytes: bytes.to_vec(),
                is_executable: octal(&header[100..108])? & 0o111 != 0,
            })?,
            b'5' => {}
            b'x' => long_path = extended_path(bytes)?,
            b'L' => long_path = Some(text(bytes)?),
            // A comment about all entries, such as the commit that git writes.
            b'g' => {}
            b'1' | b'2' => return Err(not_a_file(&path, "a link")),
            _ => return Err(not_a_file(&path, "neither a file nor a folder")),
        }
    }
    Err(damaged())
}

fn damaged() -> String {
    "it is neither a ZIP archive nor a tar archive, or damaged".to_owned()
}

/// Checks the sum of the bytes of a header, in which the field of the sum counts as blanks.
fn check_sum(header: &[u8]) -> Result<(), String> {
    let sum_field = 148..156;
    let byte_at = |(index, byte): (usize, &u8)| {
        usize::from(if sum_field.contains(&index) { b' ' } else { *byte })
    };
    let sum: usize = header.iter().enumerate().map(byte_at).sum();
    if octal(&header[sum_field.clone()])? == sum { Ok(()) } else { Err(damaged()) }
}

/// Parses a number in octal digits, which end with a NUL or a blank.
fn octal(field: &[u8]) -> Result<usize, String> {
    let text = std::str::from_utf8(field).map_err(|_| damaged())?;
    let digits = text.trim_matches([' ', '\0']);
    if digits.is_empty() { Ok(0) } else { usize::from_str_radix(digits, 8).map_err(|_| damaged()) }
}

/// The text up to the first NUL.
fn text(field: &[u8]) -> Result<String, String> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    let text = std::str::from_utf8(&field[..end]);
    text.map(str::to_owned).map_err(|_| "a path in it is not UTF-8".to_owned())
}

/// The path in a header: of POSIX, in two parts.
fn header_path(header: &[u8]) -> Result<String, String> {
    let name = text(&header[..100])?;
    let is_posix = &header[257..263] == b"ustar\0";
    let prefix = if is_posix { text(&header[345..500])? } else { String::new() };
    Ok(if prefix.is_empty() { name } else { format!("{prefix}/{name}") })
}

/// The path in an extended header: records `LENGTH KEY=VALUE` and a newline, where the length is that of the record in bytes.
fn extended_path(mut records: &[u8]) -> Result<Option<String>, String> {
    let mut path = None;
    while !records.is_empty() {
        let blank = records.iter().position(|byte| *byte == b' ').ok_or_else(damaged)?;
        let length = std::str::from_utf8(&records[..blank]).ok().and_then(|text| text.parse().ok());
        let length: usize = length.ok_or_else(damaged)?;
        let record = records.get(blank + 1..length).ok_or_else(damaged)?;
        let record = record.strip_suffix(b"\n").ok_or_else(damaged)?;
        if let Some(value) = record.strip_prefix(b"path=") {
            path = Some(text(value)?);
        }
        // The size of a file that is larger than the header can say, or sparse, is far beyond the limit.
        if record.starts_with(b"size=") || record.starts_with(b"GNU.sparse") {
            return Err(too_large());
        }
        records = &records[length..];
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, unpack};

    fn entry(path: &str, kind: u8, bytes: &[u8]) -> Vec<u8> {
        let mut header = vec![0; BLOCK_BYTES];
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
        header[148..156].copy_from_slice(b"        ");
        header[156] = kind;
        header[257..263].copy_from_slice(b"ustar\0");
        let sum: usize = header.iter().map(|byte| usize::from(*byte)).sum();
        header[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        header[154] = 0;
        header.extend_from_slice(bytes);
        header.resize(header.len().next_multiple_of(BLOCK_BYTES), 0);
        header
    }

    fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut archive = entries.concat();
        archive.resize(archive.len() + 2 * BLOCK_BYTES, 0);
        archive
    }

    #[test]
    fn files_are_unpacked_and_everything_else_is_refused() {
        let check = |entries: &[Vec<u8>], expect: Result<&str, &str>| {
            let names = unpack(&archive(entries)).map(|files| {
                let name =
                    |file: &super::UnpackedFile| format!("{}={}", file.path, file.bytes.len());
                files.iter().map(name).collect::<Vec<_>>().join(" ")
            });
            match (names, expect) {
                (Ok(names), Ok(expect)) => assert_eq!(names, expect),
                (Err(error), Err(expect)) => assert!(error.contains(expect), "{error}"),
                (result, expect) => panic!("{result:?}, expected {expect:?}"),
            }
        };
        check(&[], Ok(""));
        let file = entry("a/SKILL.md", b'0', b"text");
        check(&[entry("a/", b'5', b""), file.clone()], Ok("a/SKILL.md=4"));
        check(&[entry("pax", b'x', b"13 path=a/b\n"), file.clone()], Err("damaged"));
        check(&[entry("pax", b'x', b"12 path=a/b\n"), file.clone()], Ok("a/b=4"));
        check(&[entry("pax", b'g', b"52 comment=x\n"), file.clone()], Ok("a/SKILL.md=4"));
        check(&[entry("././@LongLink", b'L', b"long/name\0"), file.clone()], Ok("long/name=4"));
        check(&[entry("a", b'2', b"")], Err("`a` in it is a link"));
        check(&[entry("a", b'1', b"")], Err("`a` in it is a link"));
        check(&[entry("a", b'3', b"")], Err("neither a file nor a folder"));
        check(&[entry("pax", b'x', b"20 size=99999999999\n"), file], Err("larger than 1 MiB"));
        let half = vec![b'x'; 600 << 10];
        check(&[entry("a", b'0', &half), entry("b", b'0', &half)], Err("larger than 1 MiB"));
        let many: Vec<_> = (0..1_001).map(|number| entry(&number.to_string(), b'0', b"")).collect();
        check(&many, Err("more than 1000 files"));
    }

    #[test]
    fn damaged_archives_are_errors() {
        let whole = archive(&[entry("a", b'0', b"text")]);
        for bytes in [&b""[..], b"x", b"\x1f\x8b", &whole[..600], &whole[..BLOCK_BYTES]] {
            assert!(unpack(bytes).is_err(), "{} bytes", bytes.len());
        }
        let mut changed = whole;
        changed[0] = b'b';
        assert!(unpack(&changed).is_err());
    }
}
