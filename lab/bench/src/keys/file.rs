//! Keys from a file or from standard input: one per line, any bytes.
//!
//! A line ends at `\n`, which is not part of the key. Every other byte is part of the key, including a `\r` before the
//! `\n`. An empty line is the empty key.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

use crate::failure::Failure;

/// Returns the distinct lines in the order of the file, and how many lines repeated an earlier one. `known` lists the
/// other kinds of keys, for the message of a failure.
///
/// # Errors
/// If the file cannot be read or has no line.
pub fn read(path: &Path, known: &str) -> Result<(Vec<Vec<u8>>, usize), Failure> {
    let (mut text, is_stdin) = (Vec::new(), path == Path::new("-"));
    if is_stdin {
        std::io::stdin()
            .read_to_end(&mut text)
            .map_err(|error| Failure::new(format!("cannot read keys from standard input: {error}")))?;
    } else {
        text = std::fs::read(path).map_err(|error| {
            Failure::new(format!(
                "cannot read keys from {}: {error} (--keys takes {known}, a file, or -)",
                path.display()
            ))
        })?;
    }
    if text.is_empty() {
        let source = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        return Err(Failure::new(format!("no keys: {source} is empty (one key per line is expected)")));
    }
    Ok(lines(&text))
}

fn lines(text: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut seen = HashSet::new();
    let mut keys = Vec::new();
    let mut duplicates = 0;
    for line in text.split(|byte| *byte == b'\n') {
        if seen.insert(line) {
            keys.push(line.to_vec());
        } else {
            duplicates += 1;
        }
    }
    (keys, duplicates)
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn lines_are_keys_byte_for_byte() {
        let (keys, duplicates) = lines(b"b\r\n\xff\x00\n\na");
        assert_eq!(keys, [b"b\r".to_vec(), b"\xff\x00".to_vec(), b"".to_vec(), b"a".to_vec()]);
        assert_eq!(duplicates, 0);
    }

    #[test]
    fn repeated_lines_are_counted_and_used_once() {
        let (keys, duplicates) = lines(b"x\ny\nx\nx\n");
        assert_eq!(keys, [b"x".to_vec(), b"y".to_vec()]);
        assert_eq!(duplicates, 2);
    }
}
