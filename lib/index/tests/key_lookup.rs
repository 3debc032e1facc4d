//! Look-ups of composite keys by borrowed parts: they find the same entries as look-ups by the key, and allocate
//! nothing. Scans of reversed keys allocate nothing per entry.

#![forbid(unsafe_code)]

use archipelago_check::hostile::{Counting, alone, beside};
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::{Art, HydraList, Key, KeyAs, Parts, by_parts, key};
use archipelago_tested as _;
use std::cmp::Reverse;
use std::net::IpAddr;
use std::ops::Bound::{Excluded, Included, Unbounded};

#[global_allocator]
static HEAP: Counting = Counting::new();

key! {
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Account {
        country: String,
        number: u64,
    }

    #[derive(Clone, Debug, PartialEq)]
    struct Name(String);
}

fn account(n: u64) -> Account {
    Account { country: ["Bern", "Genf", "", "\0", "Zürich\0"][n as usize % 5].to_owned(), number: n / 5 }
}

const COUNT: u64 = if cfg!(miri) { 40 } else { 2_000 };

#[test]
fn structs_are_found_by_their_parts() {
    let _others = beside();
    let list: HydraList<Account, u64> = (0..COUNT).map(|n| (account(n), n)).collect();
    let tree: Art<Account, u64> = (0..COUNT).map(|n| (account(n), n)).collect();
    let (list, tree) = (list.pin(), tree.pin());
    for n in 0..COUNT {
        let Account { country, number } = account(n);
        let parts = (country.as_str(), number);
        assert_eq!((list.get(by_parts(&parts)), tree.get(by_parts(&parts))), (Some(n), Some(n)));
        // These parts differ little from the key, but are not in the map.
        let parts = (country.as_str(), number + COUNT);
        assert_eq!((list.get(by_parts(&parts)), tree.get(by_parts(&parts))), (None, None));
    }
    let genf = (Included(by_parts::<Account>(&("Genf", 3))), Excluded(by_parts::<Account>(&("Genf", 7))));
    let expected: Vec<u64> = (3..7).map(|number| 5 * number + 1).collect();
    assert!(list.range::<dyn Parts<Account>, _>(genf).map(|entry| entry.1).eq(expected.clone()));
    assert!(tree.range::<dyn Parts<Account>, _>(genf).map(|entry| entry.1).eq(expected));
    let below = |parts| list.range::<dyn Parts<_>, _>((Unbounded, Excluded(parts))).count() as u64;
    assert_eq!(below(by_parts(&("\0", 0))), COUNT / 5);
    assert_eq!(list.scan(by_parts(&("Zürich\0", 0)), 5, |(country, _), _| assert_eq!(country, "Zürich\0")), 5);
    assert_eq!(list.update(by_parts(&("Bern", 0)), |old| old + 1), Some(0));
    assert_eq!((list.remove(by_parts(&("Bern", 0))), tree.remove(by_parts(&("Bern", 0)))), (Some(1), Some(0)));
    assert_eq!((list.get(&account(0)), tree.get(&account(0))), (None, None));
}

#[test]
fn all_kinds_of_composites_are() {
    let _others = beside();
    let key = (Some("a".to_owned()), vec![0, 1], [7_u8; 16], (1_u8, Name("n".to_owned())));
    let map = HydraList::from([(key.clone(), 1)]);
    let map = map.pin();
    assert_eq!(map.get(by_parts(&(Some("a"), &[0, 1][..], &[7; 16], (1, "n")))), Some(1));
    assert_eq!(map.get(by_parts(&(None, &[0, 1][..], &[7; 16], (1, "n")))), None);
    // The map can be searched by the key itself, too.
    assert_eq!(map.get(&key), Some(1));
    let words = Art::from([((1_u32, 2_u32), 1)]);
    assert_eq!(words.pin().get(by_parts(&(1, 2))), Some(1));
    let names = HydraList::from([(Name("n".to_owned()), 1)]);
    assert_eq!(names.pin().get(by_parts(&"n")), Some(1));
    let generic = HydraList::from([((Generic("x".to_owned()), 3_u16), 1)]);
    assert_eq!(generic.pin().get(by_parts(&("x", 3))), Some(1));
}

/// A type that the macro cannot declare, such as a generic one, is made a key by hand.
#[derive(Clone)]
struct Generic<T>(T);

impl<T: archipelago_index::KeyPart> KeyAs for Generic<T> {
    type Key = T;

    fn as_key(&self) -> T::Borrowed<'_> {
        self.0.lend()
    }

    fn from_key(key: T) -> Self {
        Self(key)
    }
}

#[test]
fn look_ups_by_parts_allocate_nothing() {
    let list: HydraList<(String, u64), u64> = (0..COUNT).map(|n| (("x".repeat(50), n), n)).collect();
    let tree: Art<(String, u64), u64> = list.pin().iter().collect();
    list.sync();
    let _alone = alone();
    let (list, tree) = (list.pin(), tree.pin());
    let country = "x".repeat(50);
    let look = || {
        for n in 0..COUNT {
            let parts = (&*country, n);
            assert_eq!((list.get(by_parts(&parts)), tree.get(by_parts(&parts))), (Some(n), Some(n)));
        }
    };
    look();
    HEAP.allocates_nothing(look);
}

/// Keys in reverse order are shown without a copy of their encodings, whatever follows them and however many they are.
/// (A scan may allocate a buffer, and renew it where it comes to another page.)
#[test]
fn scans_of_reversed_keys_allocate_nothing_per_entry() {
    let _others = beside();
    fn check<K: Key>(key: impl Fn(u64) -> K) {
        let list: HydraList<K, u64> = (0..COUNT).map(|n| (key(n), n)).collect();
        let tree: Art<K, u64> = list.pin().iter().collect();
        list.sync();
        let (list, tree) = (list.pin(), tree.pin());
        let mut seen = 0;
        let allocations = HEAP.allocations_here(|| {
            list.scan(&key(COUNT - 1), usize::MAX, |_, _| seen += 1);
            tree.scan(&key(COUNT - 1), usize::MAX, |_, _| seen += 1);
        });
        assert_eq!(seen, 2 * COUNT);
        assert!(allocations <= COUNT / 4, "{allocations} allocations for {seen} entries");
    }
    check(|n| (Reverse(n), n));
    check(|n| Reverse((n, Some(n as u16), u128::from(n))));
    check(|n| Reverse([(n, IpAddr::from([7; 4]))]));
    check(|n| [Reverse((n >> 8) as u8), Reverse(n as u8), Reverse(0)]);
    check(|n| (Reverse(n), Reverse(Reverse(i64::MIN)), [n as u8; 16]));
}
