//! Every key type: alone, as a part of other keys, and in maps.

use crate::common::laws::{Raw, hold_anywhere, hold_between, hold_in_maps};
use crate::common::sized;
use archipelago_index::{Encode, Form, FormKind, Key, KeyAs, key};
use core::fmt::Debug;
use core::num::NonZero;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::cmp::{Ordering, Reverse};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// Returns numbers that are close to one another, close to powers of two, close to the ends, or arbitrary.
fn number() -> impl Strategy<Value = u128> {
    prop_oneof![
        0_u128..4,
        any::<u128>(),
        (0_u32..128, 0_u128..3).prop_map(|(bit, near)| (1_u128 << bit).wrapping_add(near).wrapping_sub(1)),
        (0_u128..4).prop_map(|near| u128::MAX - near),
    ]
}

/// Returns byte strings. Most are short and consist of the bytes that matter for escaping, so many are prefixes of
/// others. Some are long.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0xFE), Just(0xFF), Just(b'a')], 0..6),
        1 => proptest::collection::vec(any::<u8>(), 0..300),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[\\x00\\x01a\u{FF}\u{10FFFF}]{0,5}", 1 => "\\PC{0,90}"]
}

/// A float, ordered by `total_cmp`.
#[derive(Clone, Copy, Debug)]
struct Total<F>(F);

macro_rules! total {
    ($($f:ty)*) => { $(
        impl KeyAs for Total<$f> {
            type Key = $f;
            fn as_key(&self) -> $f {
                self.0
            }
            fn from_key(key: $f) -> Self {
                Self(key)
            }
        }
        impl Ord for Total<$f> {
            fn cmp(&self, other: &Self) -> Ordering {
                self.0.total_cmp(&other.0)
            }
        }
        impl PartialOrd for Total<$f> {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
        impl PartialEq for Total<$f> {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }
        impl Eq for Total<$f> {}
    )* };
}
total!(f32 f64);

key! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct UserId(u64);

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    /// A string.
    pub struct Email(String);

    /// The discriminants are not in order, have gaps, and include the least and the greatest `i32`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Kind {
        Late = 1_000,
        /// Negative.
        Early = -5,
        Zero = 0,
        One,
        First = i32::MIN as isize,
        Last = i32::MAX as isize,
    }

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Account {
        /// In a struct, fields are compared in order.
        pub country: Email,
        kind: Option<Kind>,
        number: Reverse<UserId>,
    }

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Single {
        only: Vec<u8>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Place(i16, pub i16, Kind);
}

fn kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(vec![Kind::Late, Kind::Early, Kind::Zero, Kind::One, Kind::First, Kind::Last])
}

/// Returns `count` samples of a strategy, which differ in every run. (Proptest's own runner, which also shrinks
/// failures, would take minutes to compile for this many types.)
fn samples<T: Debug>(strategy: impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let mut runner = TestRunner::new(ProptestConfig::default());
    (0..count).map(|_| strategy.new_tree(&mut runner).expect("a value").current()).collect()
}

fn every_law<K: Key + Encode<Form: Raw> + Ord + Debug>(
    extremes: &[K],
    strategy: impl Strategy<Value = K>,
    law: fn(&K, &K),
) {
    for (a, b) in extremes.iter().flat_map(|a| extremes.iter().map(move |b| (a, b))) {
        law(a, b);
    }
    let drawn = samples(strategy, sized(500, 12));
    for (a, b) in drawn.iter().zip(&drawn[1..]) {
        law(a, b);
    }
    hold_in_maps(&[extremes, &drawn].concat());
}

macro_rules! laws {
    ($law:ident; $($name:ident: $t:ty, [$($extreme:expr),*], $strategy:expr;)*) => { $(
        #[test]
        fn $name() {
            every_law::<$t>(&[$($extreme),*], $strategy, $law);
        }
    )* };
}

macro_rules! integers {
    ($($name:ident $non_zero:ident: $t:ident;)*) => { laws! { hold_between; $(
        $name: $t, [$t::MIN, $t::MIN + 1, 0, 1, $t::MAX - 1, $t::MAX], number().prop_map(|n| n as $t);
        $non_zero: NonZero<$t>, [NonZero::<$t>::MIN, NonZero::<$t>::MAX],
            number().prop_map(|n| NonZero::new(n as $t).unwrap_or(NonZero::<$t>::MAX));
    )* } };
}

integers! {
    bytes_of_8_bits non_zero_u8: u8;
    numbers_of_16_bits non_zero_u16: u16;
    numbers_of_32_bits non_zero_u32: u32;
    numbers_of_64_bits non_zero_u64: u64;
    numbers_of_128_bits non_zero_u128: u128;
    numbers_of_the_machine non_zero_usize: usize;
    signed_8_bits non_zero_i8: i8;
    signed_16_bits non_zero_i16: i16;
    signed_32_bits non_zero_i32: i32;
    signed_64_bits non_zero_i64: i64;
    signed_128_bits non_zero_i128: i128;
    signed_numbers_of_the_machine non_zero_isize: isize;
}

/// Samples of floats: positive and negative zeros, the smallest and the largest numbers, NaNs, and their neighbours.
macro_rules! floats {
    ($($name:ident: $f:ident of $bits:ty;)*) => { laws! { hold_between; $(
        $name: Total<$f>,
            [Total(0.0), Total(-0.0), Total($f::MIN), Total($f::MAX), Total($f::INFINITY), Total($f::NEG_INFINITY),
                Total($f::NAN), Total(-$f::NAN), Total($f::from_bits(1)), Total(-$f::from_bits(1)),
                Total($f::from_bits(<$bits>::MAX)), Total(1.5), Total(-1.5)],
            number().prop_map(|n| Total($f::from_bits(n as $bits)));
    )* } };
}

floats! {
    floats_of_32_bits: f32 of u32;
    floats_of_64_bits: f64 of u64;
}

laws! {
    hold_between;
    truths: bool, [false, true], any::<bool>();
    characters: char, ['\0', 'a', '\u{D7FF}', '\u{E000}', char::MAX], any::<char>();
    addresses_v4: Ipv4Addr, [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST], any::<Ipv4Addr>();
    addresses_v6: Ipv6Addr, [Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(u128::MAX)], any::<Ipv6Addr>();
    addresses: IpAddr, [Ipv4Addr::BROADCAST.into(), Ipv6Addr::UNSPECIFIED.into()], any::<IpAddr>();
    durations: Duration, [Duration::ZERO, Duration::MAX, Duration::from_nanos(1), Duration::from_secs(1)],
        (number(), number()).prop_map(|(s, n)| Duration::new((s as u64) >> 1, n as u32));
    uuids: [u8; 16], [[0; 16], [0xFF; 16]], number().prop_map(u128::to_be_bytes);
    no_bytes: [u8; 0], [[]], Just([]);
}

laws! {
    hold_anywhere;
    strings: String, ["".into(), "\0".into(), "\0\0".into(), "\u{10FFFF}".into(), "x".repeat(5_000)], text();
    boxed_strings: Box<str>, ["".into()], text().prop_map(String::into_boxed_str);
    shared_strings: Arc<str>, ["".into()], text().prop_map(Arc::from);
    byte_vectors: Vec<u8>, [vec![], vec![0], vec![0, 0xFF], vec![0, 0], vec![0xFF; 9], vec![7; 70_000]], bytes();
    boxed_bytes: Box<[u8]>, [Box::from([])], bytes().prop_map(Vec::into_boxed_slice);
    shared_bytes: Arc<[u8]>, [Arc::from([])], bytes().prop_map(Arc::from);

    arrays_of_strings: [String; 3], [Default::default()], proptest::array::uniform3(text());
    arrays_of_pairs: [(u8, Vec<u8>); 2], [[(0, vec![]), (0, vec![])]], proptest::array::uniform2((any::<u8>(), bytes()));
    words: u64, [0, 1, u64::MAX], any::<u64>();
    options: Option<u32>, [None, Some(0), Some(u32::MAX)], proptest::option::of(number().prop_map(|n| n as u32));
    options_of_strings: Option<String>, [None, Some("".into())], proptest::option::of(text());
    options_of_options: Option<Option<u16>>, [None, Some(None), Some(Some(0)), Some(Some(u16::MAX))],
        proptest::option::of(proptest::option::of(any::<u16>()));
    options_of_words: Option<u64>, [None, Some(0), Some(u64::MAX)], proptest::option::of(any::<u64>());
    reversed: Reverse<i16>, [Reverse(i16::MIN), Reverse(0), Reverse(i16::MAX)], any::<i16>().prop_map(Reverse);
    reversed_strings: Reverse<String>, [Reverse("".into()), Reverse("\0".into())], text().prop_map(Reverse);

    pairs: (Vec<u8>, Vec<u8>), [(vec![], vec![]), (vec![0], vec![]), (vec![], vec![0])], (bytes(), bytes());
    pairs_that_are_words: (i32, u32), [(i32::MIN, u32::MAX), (0, 0)], any::<(i32, u32)>();
    four_that_are_a_word: (u8, Option<i16>, bool, u16), [(0, None, false, 0)], any::<(u8, Option<i16>, bool, u16)>();
    fives: (String, u8, Vec<u8>, bool, i64), [], (text(), any::<u8>(), bytes(), any::<bool>(), any::<i64>());
    sixes: (u8, u16, u32, u64, u128, String), [], (any::<(u8, u16, u32, u64, u128)>(), text())
        .prop_map(|((a, b, c, d, e), f)| (a, b, c, d, e, f));
    sevens: (u8, u8, u8, u8, u8, u8, u8), [([0; 7]).into()], any::<[u8; 7]>().prop_map(Into::into);
    eights: (u8, i8, u8, i8, u8, i8, u8, bool), [], any::<(u8, i8, u8, i8, u8, i8, u8, bool)>();
    eights_of_any_width: (Vec<u8>, u8, String, i8, Vec<u8>, char, String, u16), [],
        ((bytes(), any::<u8>(), text(), any::<i8>()), (bytes(), any::<char>(), text(), any::<u16>()))
            .prop_map(|((a, b, c, d), (e, f, g, h))| (a, b, c, d, e, f, g, h));

    new_words: UserId, [UserId(0), UserId(u64::MAX)], any::<u64>().prop_map(UserId);
    new_strings: Email, [Email("".into())], text().prop_map(Email);
    discriminants: Kind, [Kind::First, Kind::Last, Kind::Zero, Kind::Early], kind();
    structs: Account, [], (text(), proptest::option::of(kind()), any::<u64>()).prop_map(|(country, kind, number)| {
        Account { country: Email(country), kind, number: Reverse(UserId(number)) }
    });
    single_fields: Single, [Single { only: vec![] }], bytes().prop_map(|only| Single { only });
    tuple_structs: Place, [], (any::<i16>(), any::<i16>(), kind()).prop_map(|(x, y, kind)| Place(x, y, kind));
}

#[cfg(unix)]
mod system {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    fn os() -> impl Strategy<Value = OsString> {
        let bytes = prop_oneof![Just(0_u8), Just(0xFF), Just(b'a'), Just(b'.'), Just(b'/'), Just(b'-')];
        proptest::collection::vec(bytes, 0..9).prop_map(OsString::from_vec)
    }

    laws! {
        hold_anywhere;
        system_strings: OsString, ["".into()], os();
        paths: PathBuf, ["".into(), "/".into(), ".".into(), "..".into(), "/..".into(), "a//b/".into(), "a.b".into()],
            os().prop_map(PathBuf::from);
    }

    #[test]
    fn paths_are_found_by_equal_paths() {
        let map = archipelago_index::HydraList::new();
        let map = map.pin();
        map.insert(PathBuf::from("/etc//hosts/"), 1);
        map.insert(PathBuf::from("/etc.d"), 2);
        assert_eq!(map.get(std::path::Path::new("/etc/./hosts")), Some(1));
        assert!(map.iter().map(|entry| entry.0).eq(["/etc/hosts", "/etc.d"].map(PathBuf::from)));
    }
}

/// A key whose parts together always have at most eight bytes is encoded as one word, and the maps use their layouts
/// for words. Arrays are the exception.
#[test]
fn small_keys_are_words() {
    fn is<K: Key>(form: FormKind) {
        assert_eq!(<K::Form as Form>::KIND, form, "{}", std::any::type_name::<K>());
    }
    is::<UserId>(FormKind::Word);
    is::<Kind>(FormKind::Word);
    is::<Place>(FormKind::Word);
    is::<(u32, i32)>(FormKind::Word);
    is::<(u8, (u16, (i32, bool)))>(FormKind::Word);
    is::<(u64,)>(FormKind::Word);
    is::<Option<u32>>(FormKind::Word);
    is::<Option<Option<(Kind, u16)>>>(FormKind::Word);
    is::<Reverse<f64>>(FormKind::Word);
    is::<(Ipv4Addr, u16)>(FormKind::Word);
    is::<Option<u64>>(FormKind::Bytes);
    is::<(u64, bool)>(FormKind::Bytes);
    is::<[u8; 4]>(FormKind::Bytes);
    is::<Reverse<String>>(FormKind::Bytes);
    // The word of a `UserId` is that of the `u64` in it. The word of a pair consists of the words of its fields, the
    // first one in the high bits.
    assert_eq!(UserId(7).encode(|word| word), 7);
    assert_eq!((1_u32, 2_u32).encode(|word| word), 1 << 32 | 2);
}
