//! Patterns of `KEYS`: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a character that is to be taken literally.

/// Returns whether the text matches the pattern. Takes at most time in proportion to the product of both lengths.
pub fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // For the last `*` so far: the position in the pattern after the `*`, and the end of the text that the `*` matches.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        let next = if t < text.len() && p < pattern.len() { one(&pattern[p..], text[t]) } else { None };
        match (next, star) {
            (Some(taken), _) => (p, t) = (p + taken, t + 1),
            (None, Some((behind, end))) if end < text.len() => {
                star = Some((behind, end + 1));
                (p, t) = (behind, end + 1);
            }
            _ => return false,
        }
    }
}

/// Returns how many bytes of the pattern match `byte`. Returns `None` if the pattern does not match.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern[0] {
        b'?' => Some(1),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        b'[' => class(pattern, byte),
        other => (other == byte).then_some(1),
    }
}

fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(negated);
    let mut met = false;
    while let Some(&first) = pattern.get(at) {
        match first {
            b']' => break,
            b'\\' if at + 1 < pattern.len() => {
                at += 1;
                met |= pattern[at] == byte;
            }
            _ if at + 2 < pattern.len() && pattern[at + 1] == b'-' => {
                let (low, high) = (first.min(pattern[at + 2]), first.max(pattern[at + 2]));
                met |= (low..=high).contains(&byte);
                at += 2;
            }
            _ => met |= first == byte,
        }
        at += 1;
    }
    (met != negated).then_some((at + 1).min(pattern.len()))
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbcd", false),
            ("*a*b*c*", "xxaybzc", true),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hcllo", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("[abc", "b", true),
            ("a**", "a", true),
            ("", "a", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(!fits(b"a*a*a*a*a*a*a*a*a*a*a*b", &[b'a'; 10_000]));
    }
}
