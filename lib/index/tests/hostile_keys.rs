//! Keys whose types are implemented wrongly, in safe code: borrowed forms with another encoding, encodings that change,
//! decoders that panic. Every key that a map returns was stored in it as a key, and the map stays consistent.

mod common;

use archipelago_check::drops::DropCounter;
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::{
    Art, Bytes, Encode, HydraList, Key, KeyAs, OrderedIndex, OrderedSession, Parts, Probe, by_parts,
};
use archipelago_tested as _;
use common::sized;
use std::borrow::Borrow;
use std::cell::Cell;
use std::cmp::Reverse;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A type whose encoding is not UTF-8.
struct Liar;

impl Encode for Liar {
    type Form = Bytes;

    fn encode<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&[0xFF, 0xFE, 0x80])
    }
}

/// A string that claims that it can be borrowed as an unrelated type.
#[derive(Clone, Debug, PartialEq)]
struct Name(String);

impl Borrow<Liar> for Name {
    fn borrow(&self) -> &Liar {
        unreachable!("maps borrow nothing")
    }
}

impl Encode for Name {
    type Form = Bytes;

    fn encode<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        self.0.encode(f)
    }
}

impl Key for Name {
    type Ref<'a> = &'a str;

    unsafe fn decode_ref<'a>(probe: Probe<'a, Self>) -> &'a str {
        // `String` omits this check; here it makes a failure of the test clear.
        str::from_utf8(probe).expect("only names are stored")
    }

    unsafe fn decode(probe: Probe<'_, Self>) -> Self {
        // SAFETY: the caller guarantees the same contract.
        Name(unsafe { Self::decode_ref(probe) }.to_owned())
    }
}

const COUNT: usize = sized(500, 60);

#[test]
fn borrowed_forms_that_lie_find_nothing() {
    let names: Vec<Name> = (0..COUNT).map(|n| Name(format!("{n:05}"))).collect();
    let (list, tree) = (HydraList::<Name, usize>::new(), Art::<Name, usize>::new());
    let (list, tree) = (list.pin(), tree.pin());
    for (n, name) in names.iter().enumerate() {
        assert_eq!((list.upsert(name, n), tree.insert(name.clone(), n)), (false, None));
    }
    let liar = &Liar;
    assert_eq!((list.get(liar), tree.get(liar)), (None, None));
    assert_eq!((list.replace(liar, 1), tree.replace(liar, 1)), (None, None));
    assert_eq!((list.update(liar, |n| *n), tree.update(liar, |n| *n)), (None, None));
    assert_eq!((list.remove(liar), tree.remove(liar), list.delete(liar)), (None, None, false));
    // As a bound, this key is above all names.
    assert_eq!((list.range::<Liar, _>(..liar).count(), tree.range::<Liar, _>(liar..).count()), (COUNT, 0));
    assert_eq!((list.scan(liar, 5, |_, _| ()), tree.scan_rev(liar, 5, |_, _| ())), (0, 5));
    assert!(list.iter().eq(tree.iter()) && list.len() == COUNT);
    assert_eq!(list.pop_last().map(|entry| entry.1), Some(COUNT - 1));
    assert_eq!(list.len(), COUNT - 1);
}

#[test]
fn arrays_are_asked_for_by_slices_of_any_length() {
    let list: HydraList<[u8; 4], usize> = (0..COUNT).map(|n| ((n as u32).to_be_bytes(), n)).collect();
    let tree: Art<[u8; 4], usize> = list.pin().iter().collect();
    let (session, leaves) = (list.pin(), tree.pin());
    let slices = [&b""[..], &[0], &[0, 0, 0], &[0, 0, 0, 7], &[0, 0, 0, 7, 0], &[9; 300]];
    for slice in slices {
        let expected = (slice.len() == 4).then_some(7);
        assert_eq!((session.get(slice), leaves.get(slice)), (expected, expected));
        assert_eq!(session.update(slice, |n| *n), expected);
        assert_eq!(leaves.replace(slice, 7), expected);
        let (from, to) = ((Bound::Included(slice), Bound::Unbounded), (Bound::Unbounded, Bound::Excluded(slice)));
        let (above, below) = (session.range::<[u8], _>(from).count(), session.range::<[u8], _>(to).count());
        assert_eq!(above + below, COUNT);
        assert_eq!(leaves.range::<[u8], _>(from).count(), above);
    }
    assert_eq!((session.remove(&[0, 0, 0, 7][..]), session.remove(&[0, 0, 7][..])), (Some(7), None));
    assert_eq!((leaves.remove(&[0, 0, 0, 7][..]), leaves.remove(&[0, 0, 7][..])), (Some(7), None));
    assert_eq!((list.len(), session.iter().count(), leaves.iter().count()), (COUNT - 1, COUNT - 1, COUNT - 1));
    list.check_invariants();
    tree.check_invariants();
}

/// This test is mainly for Miri: strings of all lengths are returned as UTF-8, including keys that are so long that
/// pages store them in boxes.
#[test]
fn strings_come_back_as_strings() {
    fn check(map: impl OrderedIndex<String, u32>, upsert: impl Fn(&str, u32)) {
        let key = |n: usize| "ä€\u{10FFFF}".repeat([0, 1, 7, 40][n % 4]) + &n.to_string();
        for n in 0..COUNT {
            upsert(&key(n), n as u32);
        }
        let mut seen = 0;
        map.pin().scan(&String::new(), usize::MAX, |name, value| {
            // `chars` relies on the string being UTF-8.
            assert!(name.chars().eq(key(*value as usize).chars()));
            seen += 1;
        });
        assert_eq!(seen, COUNT);
    }
    let list = std::sync::Arc::new(HydraList::<String, u32>::new());
    let names = list.clone();
    check(Shared(list), move |name, value| assert!(!names.pin().upsert(name, value)));
    let tree = std::sync::Arc::new(Art::<String, u32>::new());
    let names = tree.clone();
    check(Shared(tree), move |name, value| {
        assert_eq!(names.pin().get_or_insert_with(name.to_owned(), || value), value)
    });
}

/// A map that a test accesses by two handles.
struct Shared<I>(std::sync::Arc<I>);

impl<I: OrderedIndex<String, u32>> OrderedIndex<String, u32> for Shared<I> {
    type Session<'a>
        = I::Session<'a>
    where
        I: 'a;

    fn pin(&self) -> I::Session<'_> {
        self.0.pin()
    }
}

thread_local! {
    static PANICKING: Cell<bool> = const { Cell::new(false) };
}

/// A key whose decoding sometimes panics.
#[derive(Clone, Debug, PartialEq)]
struct Moody(String);

impl Encode for Moody {
    type Form = Bytes;

    fn encode<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        self.0.encode(f)
    }
}

impl Key for Moody {
    type Ref<'a> = ();

    unsafe fn decode_ref<'a>(_: Probe<'a, Self>) -> Self::Ref<'a> {}

    unsafe fn decode(probe: Probe<'_, Self>) -> Self {
        assert!(!PANICKING.get(), "as planned, in decode");
        // SAFETY: the caller guarantees the same contract.
        Moody(unsafe { String::decode(probe) })
    }
}

/// If the key of a popped entry cannot be decoded, the pop has still taken effect: the entry is removed, counted and
/// freed.
#[test]
fn decoders_that_panic_leave_the_count_right() {
    let counter = DropCounter::new();
    // Some keys are boxed.
    let key = |n: usize| Moody(format!("{n:03}{}", "x".repeat(n % 2 * 250)));
    let filled = || {
        let list = HydraList::new();
        list.pin().extend((0..20).map(|n| (key(n), counter.value(n as u64))));
        list
    };
    let panics = |f: &dyn Fn() -> bool| {
        PANICKING.set(true);
        let caught = catch_unwind(AssertUnwindSafe(f));
        PANICKING.set(false);
        assert!(caught.is_err());
    };
    let list = filled();
    panics(&|| list.pin().pop_last().is_some());
    panics(&|| list.pin().pop_first().is_some());
    assert_eq!((list.len(), list.pin().iter().count()), (18, 18));
    assert_eq!(list.pin().pop_last().map(|entry| entry.0), Some(key(18)));
    list.check_invariants();
    drop(list);
    let mut entries = filled().into_iter();
    PANICKING.set(true);
    assert!(catch_unwind(AssertUnwindSafe(|| entries.next())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| entries.next_back())).is_err());
    PANICKING.set(false);
    assert_eq!((entries.len(), entries.map(|entry| entry.0).collect::<Vec<_>>()), (18, (1..19).map(key).collect()));
    let tree = Art::new();
    (0..20).for_each(|n| _ = tree.pin().insert(key(n), counter.value(n as u64)));
    panics(&|| tree.pin().pop_last().is_some());
    panics(&|| tree.pin().pop_first().is_some());
    assert_eq!((tree.len(), tree.pin().iter().count()), (18, 18));
    tree.check_invariants();
    drop(tree);
    counter.assert_all_dropped();
}

thread_local! {
    /// The number of encodings that still succeed on this thread; the next one panics.
    static ENCODINGS: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A key that can be encoded only a limited number of times.
#[derive(Clone, Debug, PartialEq)]
struct Tired(u64);

impl KeyAs for Tired {
    type Key = u64;

    fn as_key(&self) -> u64 {
        ENCODINGS.set(ENCODINGS.get().checked_sub(1).expect("as planned, in as_key"));
        self.0
    }

    fn from_key(key: u64) -> Self {
        Tired(key)
    }
}

/// A value that was to be stored is dropped if its key cannot be encoded.
#[test]
fn encoders_that_panic_leak_no_value() {
    let counter = DropCounter::new();
    let (list, tree) = (HydraList::new(), Art::new());
    list.pin().insert(Tired(1), counter.value(1));
    tree.pin().insert(Tired(1), counter.value(1));
    let panics = |encodings: usize, work: &dyn Fn()| {
        ENCODINGS.set(encodings);
        let caught = catch_unwind(AssertUnwindSafe(work));
        ENCODINGS.set(usize::MAX);
        assert!(caught.is_err());
        assert_eq!(counter.alive(), 2, "one value in each map");
    };
    for key in [Tired(1), Tired(2)] {
        let value = || counter.value(2);
        panics(0, &|| _ = list.pin().replace(&key, value()));
        panics(0, &|| _ = tree.pin().replace(&key, value()));
        panics(0, &|| _ = list.pin().replace_ref(&key, value()).is_some());
        panics(0, &|| _ = list.pin().upsert(&key, value()));
        panics(0, &|| _ = list.pin().insert_if_absent(key.clone(), value()).is_ok());
        panics(0, &|| _ = tree.pin().insert_if_absent(key.clone(), value()).is_ok());
    }
    // The first encoding is for the look-up, and the second one for the insertion.
    panics(1, &|| _ = list.pin().get_or_insert_with(Tired(2), || counter.value(2)).tag());
    panics(1, &|| _ = tree.pin().get_or_insert_with(Tired(2), || counter.value(2)).tag());
    drop((list, tree));
    counter.assert_all_dropped();
}

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    /// The map that keys use while another map encodes or decodes them.
    static INNER: HydraList<Fickle, usize> = HydraList::new();
}

/// A composite key, implemented in safe code, whose representation differs from call to call. Some calls panic, and
/// some use a map.
#[derive(Clone, Debug)]
struct Fickle(String);

impl KeyAs for Fickle {
    type Key = (Option<String>, Reverse<Vec<u8>>, u16);

    fn as_key(&self) -> (Option<&str>, Reverse<&[u8]>, u16) {
        let call = CALLS.replace(CALLS.get() + 1);
        match call % 23 {
            5 | 11 if PANICKING.get() => panic!("as planned, in as_key"),
            7 => INNER.with(|map| _ = map.pin().upsert(&Fickle("€".into()), call)),
            _ => (),
        }
        let text = ["", "\0", "ä€", &self.0][call % 4];
        (Some(text).filter(|_| !call.is_multiple_of(5)), Reverse(self.0.as_bytes()), call as u16 % 700)
    }

    fn from_key((text, Reverse(bytes), number): Self::Key) -> Self {
        assert!(!PANICKING.get() || !number.is_multiple_of(50), "as planned, in from_key");
        // A `String` must be UTF-8.
        assert!(text.iter().flat_map(|text| text.chars()).all(|c| c.len_utf8() < 5));
        Fickle(format!("{}{}", text.unwrap_or_default(), bytes.len()))
    }
}

impl<'a> Borrow<dyn Parts<Fickle> + 'a> for Fickle {
    fn borrow(&self) -> &(dyn Parts<Fickle> + 'a) {
        unreachable!("maps borrow nothing")
    }
}

/// Uses maps with keys that break their contract. Strings that the maps return are valid UTF-8, the number of entries
/// is right, and every value is dropped.
#[test]
fn composites_that_change_break_no_map() {
    let counter = DropCounter::new();
    let key = |n: usize| Fickle("€".repeat(n % 90 * sized(1, 4)));
    let quietly = |work: &dyn Fn()| {
        PANICKING.set(true);
        let _ = catch_unwind(AssertUnwindSafe(work));
        PANICKING.set(false);
    };
    let list = HydraList::new();
    let tree = Art::new();
    for n in 0..sized(4 * COUNT, 24) {
        let (list, tree) = (list.pin(), tree.pin());
        quietly(&|| match n % 8 {
            0..4 => _ = (list.upsert(&key(n), counter.value(n as u64)), tree.upsert(&key(n), counter.value(n as u64))),
            4 => _ = (list.remove(&key(n)), tree.remove(&key(n))),
            5 => _ = (list.range(key(n)..key(n + 1)).count(), tree.range(key(n)..key(n + 1)).count()),
            6 => {
                _ = (
                    list.get(by_parts(&(None, Reverse(&b"x"[..]), 3))),
                    tree.get(by_parts(&(Some("x"), Reverse(&b""[..]), 3))),
                )
            }
            _ => _ = (list.pop_first(), tree.pop_last()),
        });
        quietly(&|| list.extend([(key(n), counter.value(0)), (key(n + 1), counter.value(1))]));
    }
    quietly(&|| list.pin().retain(|shown, _| shown.2 % 3 > 0));
    assert_eq!((list.len(), tree.len()), (list.pin().iter().count(), tree.pin().iter().count()));
    assert!(list.len() > sized(COUNT / 4, 5) && tree.len() > sized(COUNT / 4, 5), "{}, {}", list.len(), tree.len());
    list.check_invariants();
    tree.check_invariants();
    drop((list, tree));
    INNER.with(|map| map.check_invariants());
    counter.assert_all_dropped();
}
