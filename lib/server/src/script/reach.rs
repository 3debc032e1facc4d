//! Decides what a text can change. Most texts use the functions of libraries by name and no library as a value, so they
//! cannot change a library.

/// The tables to which scripts can write, in addition to their own.
pub const LIBRARIES: [&str; 8] = ["string", "table", "math", "cjson", "cmsgpack", "struct", "bit", "redis"];

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the text after a word of at least one letter, digit or underscore.
fn behind_word(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(|byte| !is_word(*byte)).unwrap_or(text.len());
    (end > 0).then(|| &text[end..])
}

/// Returns whether the text after a library's name calls or reads a field of the library and cannot assign to the
/// field.
fn is_use(behind: &[u8]) -> bool {
    let field = behind.trim_ascii_start().strip_prefix(b".").map(<[u8]>::trim_ascii_start);
    let Some(behind) = field.and_then(behind_word) else { return false };
    match behind.trim_ascii_start().first() {
        None => true,
        Some(byte) => is_word(*byte) || b"({'\")".contains(byte),
    }
}

/// Returns whether a text may change the table of a library. Examines words only, also those in strings and comments.
/// The result may be `true` for a text that changes nothing, but is never `false` for a text that changes a library.
pub fn may_change_libraries(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(start) = rest.iter().position(|byte| is_word(*byte)) {
        rest = &rest[start..];
        let behind = behind_word(rest).expect("a word begins here");
        let word = &rest[..rest.len() - behind.len()];
        if matches!(word, b"_G" | b"loadstring")
            || (LIBRARIES.iter().any(|name| name.as_bytes() == word) && !is_use(behind))
        {
            return true;
        }
        rest = behind;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_as_a_value_or_assigned_to_is_noticed() {
        for text in [
            "return redis.call('GET', KEYS[1])",
            "local call = redis.call\nreturn call('GET', KEYS[1])",
            "local t = {} t[1] = tonumber(redis . call ('GET', 'a')) return t",
            "redis.register_function{function_name='f'}",
            "return cjson.encode({strings = 1}) .. string.format('%d', math.floor(1.5))",
        ] {
            assert!(!may_change_libraries(text.as_bytes()), "{text}");
        }
        for text in [
            "redis.x = 1",
            "redis . call\n=\n1",
            "redis.call--[[a comment]]=1",
            "local a a, redis.call = 1, 2",
            "redis.call, a = 1, 2",
            "local s = string s.x = 1",
            "string['x'] = 1",
            "string[ [[x]] ] = 1",
            "rawset(redis, 'x', 1)",
            "for _, t in pairs({math}) do t.x = 1 end",
            "setmetatable(bit, {})",
            "loadstring(ARGV[1])()",
            "_G.x = 1",
            "return math",
            "(cjson).x = 1",
        ] {
            assert!(may_change_libraries(text.as_bytes()), "{text}");
        }
    }
}
