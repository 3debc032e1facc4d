//! Random calls of the libraries `cmsgpack`, `struct` and `bit` in scripts, valid and invalid.

use archipelago_server::db::Random;

fn pick<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    all[random.below(all.len())]
}

fn some(random: &mut Random, most: usize, mut one: impl FnMut(&mut Random) -> String) -> String {
    let count = random.below(most + 1);
    (0..count).map(|_| one(random)).collect::<Vec<_>>().join(",")
}

/// Numbers at the limits of the encodings.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "31",
    "-32",
    "-33",
    "127",
    "128",
    "255",
    "256",
    "-128",
    "-129",
    "32768",
    "-32768",
    "-32769",
    "65535",
    "65536",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9007199254740992",
    "-9007199254740992",
    "-9223372036854775808",
    "1.5",
    "-0.5",
    "0.1",
    "3.4e38",
    "'7'",
];

/// Returns a random Lua value.
fn value(random: &mut Random, depth: usize) -> String {
    match random.below(if depth < 4 { 10 } else { 6 }) {
        0 => pick(random, &["nil", "true", "false", "1e300", "0/0", "1/0", "-1/0", "9223372036854775808"]).into(),
        1 | 2 => pick(random, NUMBERS).into(),
        3 => format!("string.rep('x', {})", pick(random, &["0", "31", "32", "255", "256", "65535", "65536"])),
        4 => format!("'\\{}\\{}'", random.below(256), random.below(256)),
        5 => (random.draw() as i64 >> random.below(63)).to_string(),
        6 => format!("{{a = {}}}", value(random, depth + 1)),
        7 => format!("{{[{}] = {}}}", pick(random, &["1", "2", "1.5", "-1", "true", "'k'"]), value(random, depth + 1)),
        _ => {
            let most = [3, 3, 16][random.below(3)];
            format!("{{{}}}", some(random, most, |random| value(random, depth + 1)))
        }
    }
}

/// Returns random bytes. Many of them begin a packed value.
fn bytes(random: &mut Random, most: usize) -> String {
    const BEGIN: [u8; 12] = [0x90, 0x91, 0x81, 0xa1, 0xc0, 0xc1, 0xc4, 0xcb, 0xcf, 0xd0, 0xd9, 0xdf];
    (0..random.below(most))
        .map(|_| format!("\\{}", if random.below(2) == 0 { random.draw() as u8 } else { BEGIN[random.below(12)] }))
        .collect()
}

fn format(random: &mut Random) -> String {
    const ITEMS: &[&str] = &[
        "b",
        "B",
        "h",
        "H",
        "l",
        "L",
        "T",
        "f",
        "d",
        "s",
        "x",
        "<",
        ">",
        " ",
        "i",
        "I",
        "i1",
        "i3",
        "i8",
        "i16",
        "I9",
        "i32",
        "i33",
        "!",
        "!1",
        "!2",
        "!8",
        "!3",
        "!0",
        "c",
        "c0",
        "c3",
        "c10",
        "i0",
        "y",
        "z",
        "@",
        "i99999999999",
    ];
    (0..random.below(6)).map(|_| pick(random, ITEMS)).collect()
}

fn argument(random: &mut Random) -> String {
    match random.below(3) {
        0 => pick(random, &["'abc'", "'x\\0y'", "string.rep('z', 12)", "nil", "{}", "true"]).into(),
        _ => pick(random, NUMBERS).into(),
    }
}

/// Lua code that shows results of any type. A table is shown by its length only.
const SHOWN: &str = "local o = {} for i = 1, 20 do o[i] = type(r[i]) .. (type(r[i]) == 'table' and #r[i] or tostring(r[i])) end return o";

/// Returns a random script.
pub fn script(random: &mut Random) -> String {
    let at = |random: &mut Random| pick(random, &["0", "1", "2", "3", "-1", "100", "nil", "'1'", "'x'"]).to_owned();
    match random.below(10) {
        0 | 1 => format!("return cmsgpack.pack({})", some(random, 3, |random| value(random, 0))),
        2 => format!("local r = {{cmsgpack.unpack(cmsgpack.pack({}))}} {SHOWN}", value(random, 0)),
        3 => format!("local r = {{pcall(cmsgpack.unpack, '{}')}} {SHOWN}", bytes(random, 12)),
        4 => format!("local r = {{cmsgpack.unpack_one('{}', {})}} {SHOWN}", bytes(random, 12), at(random)),
        5 => {
            let (limit, offset) = (at(random), at(random));
            format!("local r = {{cmsgpack.unpack_limit('{}', {limit}, {offset})}} {SHOWN}", bytes(random, 12))
        }
        6 => {
            let given: Vec<String> = (0..1 + random.below(5)).map(|_| argument(random)).collect();
            format!("return struct.pack('{}', {})", format(random), given.join(", "))
        }
        7 => format!(
            "local r = {{struct.unpack('{}', '{}', {})}} {SHOWN}",
            format(random),
            bytes(random, 20),
            at(random)
        ),
        8 => format!("return struct.size('{}')", format(random)),
        _ => {
            let name =
                pick(random, &["tobit", "bnot", "bswap", "band", "bor", "bxor", "lshift", "rshift", "rol", "tohex"]);
            format!("return bit.{name}({})", some(random, 3, argument))
        }
    }
}
