//! Keys: the order of encodings is the order of keys, and decoding returns the encoded key.

use crate::common::laws::hold;
use archipelago_index::{Encode, Key};
use proptest::prelude::*;

/// Generates either up to five of the bytes that matter for escaping (so many strings are prefixes of others), or up to
/// 199 arbitrary bytes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xFE), Just(0xFF), Just(b'a')], 0..6),
        proptest::collection::vec(any::<u8>(), 0..200),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[\\x00\\x01a\u{FF}\u{10FFFF}]{0,5}", "\\PC{0,60}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 10 } else { 2000 }, failure_persistence: None, ..Default::default() })]

    #[test]
    fn pairs((a, b) in ((bytes(), bytes()), (bytes(), bytes()))) {
        hold(&a, &b);
        // The first parts are equal, so the second parts decide.
        hold(&(a.0.clone(), a.1.clone()), &(a.0.clone(), b.1.clone()));
        let boxed = |pair: &(Vec<u8>, Vec<u8>)| (pair.0.clone().into_boxed_slice(), pair.1.clone());
        hold(&boxed(&a), &boxed(&b));
    }

    #[test]
    fn strings_before_numbers(a in (text(), any::<i64>()), b in (text(), any::<i64>())) {
        hold(&a, &b);
        hold(&(a.0.clone(), b.1), &a);
        hold(&(a.1, a.0.clone().into_boxed_str()), &(b.1, b.0.clone().into_boxed_str()));
    }

    #[test]
    fn triples(a in (any::<u8>(), text(), any::<i16>()), b in (any::<u8>(), text(), any::<i16>())) {
        hold(&a, &b);
        hold(&(b.0, a.1.clone(), a.2), &b);
    }

    #[test]
    fn quadruples(
        a in (bytes(), any::<char>(), text(), any::<bool>()),
        b in (bytes(), any::<char>(), text(), any::<bool>()),
    ) {
        hold(&a, &b);
        hold(&(a.0.clone(), a.1, b.2.clone(), b.3), &a);
    }

    #[test]
    fn fixed_widths(a in any::<(i8, u16, i32, u128)>(), b in any::<(i8, u16, i32, u128)>()) {
        hold(&a, &b);
        hold(&(a.0, a.1, a.2, b.3), &a);
        let more = |x: (i8, u16, i32, u128)| (x.3 as i128, x.2 as isize, x.1 as usize, [x.0 as u8, 0, 255]);
        hold(&more(a), &more(b));
        hold(&(a.2 as u32, a.3 as u64), &(b.2 as u32, b.3 as u64));
        hold(&(a.3 as i64, a.0), &(b.3 as i64, b.0));
    }

    #[test]
    fn nested(a in ((bytes(), bytes()), (any::<u8>(), bytes())), b in ((bytes(), bytes()), (any::<u8>(), bytes()))) {
        hold(&a, &b);
        hold(&((a.0.0.clone(), b.0.1.clone()), a.1.clone()), &a);
    }

    #[test]
    fn single_keys(a in any::<(i8, i16, i32, i64)>(), b in any::<(i8, i16, i32, i64)>(), (s, t) in (text(), text())) {
        hold(&a.0, &b.0);
        hold(&a.1, &b.1);
        hold(&a.2, &b.2);
        hold(&a.3, &b.3);
        hold(&(a.3 as isize), &(b.3 as isize));
        hold(&(a.0 as u8), &(b.0 as u8));
        hold(&(a.1 as u16), &(b.1 as u16));
        hold(&(a.2 as u32), &(b.2 as u32));
        hold(&(a.3 as u64), &(b.3 as u64));
        hold(&(a.3 as usize), &(b.3 as usize));
        hold(&(a.0 < 0), &(b.0 < 0));
        hold(&((a.3 as i128) << 60), &((b.3 as i128) << 60));
        hold(&((a.3 as u128) << 60), &((b.3 as u128) << 60));
        hold(&a.3.to_be_bytes(), &b.3.to_be_bytes());
        hold(&s, &t);
        hold(&s.clone().into_boxed_str(), &t.clone().into_boxed_str());
        hold(&s.clone().into_bytes(), &t.clone().into_bytes());
        hold(&s.into_bytes().into_boxed_slice(), &t.into_bytes().into_boxed_slice());
    }

    #[test]
    fn characters(a in any::<char>(), b in any::<char>()) {
        hold(&a, &b);
    }
}

#[test]
fn the_ends_of_integers() {
    macro_rules! ends {
        ($($t:ty)*) => { $(
            for (a, b) in [(<$t>::MIN, <$t>::MAX), (<$t>::MIN, 0), (0, 1), (<$t>::MAX - 1, <$t>::MAX)] {
                hold(&a, &b);
                hold(&(a, b), &(b, a));
            }
        )* };
    }
    ends!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);
}

#[test]
fn what_a_scan_shows_of_a_tuple_is_borrowed_where_it_can_be() {
    use std::borrow::Cow;
    type Tuple = (String, Vec<u8>, String);
    let shown = |key: &Tuple, look: &dyn Fn(<Tuple as Key>::Ref<'_>)| {
        // SAFETY: the bytes have just been made by `encode`.
        key.encode(|bytes| look(unsafe { Tuple::decode_ref(bytes) }));
    };
    shown(&("plain".into(), vec![0], "\0".into()), &|shown| {
        assert!(matches!(shown.0, Cow::Borrowed("plain")));
        assert!(matches!(shown.1, Cow::Owned(bytes) if bytes == [0]));
        assert!(matches!(shown.2, Cow::Borrowed("\0")));
    });
    // These strings are too long for the encoder's buffer on the stack.
    let long = ("x".repeat(500), vec![7; 500], "y".repeat(500));
    shown(&long, &|shown| assert_eq!((shown.0.len(), shown.1.len(), shown.2.len()), (500, 500, 500)));
}
