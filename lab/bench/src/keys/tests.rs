//! Tests of key sets: keys are distinct and reproducible, and the keys of a file are its lines, byte for byte.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use super::*;

/// A file that is deleted when the test is over.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, text: &[u8]) -> Temporary {
        let path = std::env::temp_dir().join(format!("archipelago-keys-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        Temporary(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

const WORDS: [KeyKind; 3] = [KeyKind::Int, KeyKind::Clustered, KeyKind::Sequential];

fn all<K: Clone>(keys: &KeySet<K>) -> Vec<K> {
    [&keys.loaded[..], &keys.fresh].concat()
}

fn distinct<K: BenchKey + core::hash::Hash>(keys: &KeySet<K>) -> bool {
    all(keys).into_iter().collect::<HashSet<K>>().len() == keys.loaded.len() + keys.fresh.len()
}

#[test]
fn synthetic_keys_are_distinct_and_as_many_as_asked_for() {
    for kind in &WORDS {
        let keys = words(kind, 3000, 500, 7);
        assert_eq!((keys.loaded.len(), keys.fresh.len(), keys.duplicates), (3000, 500, 0));
        assert!(distinct(&keys), "{kind:?}");
    }
    // There are so many keys that names and numbers occur repeatedly.
    let keys = emails(20_000, 100, 7);
    assert_eq!((keys.loaded.len(), keys.fresh.len(), keys.duplicates), (20_000, 100, 0));
    assert!(distinct(&keys));
}

#[test]
fn the_seed_decides() {
    for kind in &WORDS {
        let once = all(&words(kind, 1000, 10, 7));
        assert_eq!(once, all(&words(kind, 1000, 10, 7)), "{kind:?}");
        assert_eq!(once == all(&words(kind, 1000, 10, 8)), *kind == KeyKind::Sequential, "{kind:?}");
    }
    assert_eq!(all(&emails(1000, 10, 7)), all(&emails(1000, 10, 7)));
    assert_ne!(all(&emails(1000, 10, 7)), all(&emails(1000, 10, 8)));
}

#[test]
fn only_sequential_keys_are_loaded_in_order() {
    assert!(words(&KeyKind::Sequential, 100, 5, 1).loaded.into_iter().eq(0..100));
    assert!(words(&KeyKind::Sequential, 100, 5, 1).fresh.into_iter().eq(100..105));
    for kind in [KeyKind::Int, KeyKind::Clustered] {
        assert!(!words(&kind, 100, 5, 1).loaded.is_sorted(), "{kind:?}");
    }
    assert!(!emails(100, 5, 1).loaded.is_sorted());
}

#[test]
fn clustered_keys_are_runs_far_apart() {
    let mut keys = all(&words(&KeyKind::Clustered, 9_000, 1_000, 1));
    keys.sort_unstable();
    let runs: Vec<&[u64]> = keys.chunk_by(|one, other| one + 1 == *other).collect();
    assert_eq!(runs.len(), 1000);
    assert!(runs.iter().all(|run| run.len() == 10));
    assert!(runs.windows(2).all(|pair| pair[1][0] - pair[0][0] == 1 << 34));
}

#[test]
fn addresses_fit_in_the_nodes_of_a_btree() {
    let mut rng = SmallRng::seed_from_u64(1);
    let longest = (0..200_000).map(|_| Vec::<u8>::unseen(&mut rng).len()).max();
    assert_eq!(longest, Some(crate::rivals::btree::LONGEST));
}

#[test]
fn addresses_begin_with_their_domain() {
    let keys = emails(2000, 0, 1).loaded;
    for key in &keys {
        let text = str::from_utf8(key).unwrap();
        let (domain, name) = text.split_once('@').unwrap();
        assert!(domain.contains('.') && !name.is_empty() && !name.contains('@'), "{text}");
    }
    let at_the_largest = keys.iter().filter(|key| key.starts_with(b"gmail.com@")).count();
    assert!((500..700).contains(&at_the_largest), "{at_the_largest} of 2000, should be 30 %");
}

#[test]
fn what_is_no_kind_is_a_file() {
    for name in KeyKind::NAMES.split(", ") {
        assert_eq!(KeyKind::parse(name).name(), name);
        assert_eq!(KeyKind::parse(name).is_bytes(), name == "email");
    }
    let file = KeyKind::parse("words.txt");
    assert_eq!((&*file.name(), file.is_bytes()), ("words.txt", true));
    assert_eq!((&*KeyKind::parse("-").name(), KeyKind::parse("-").is_bytes()), ("stdin", true));
}

#[test]
fn files_give_their_distinct_lines_whatever_the_bytes() {
    let file = Temporary::new("bytes", b"one\ntwo\n\xff\x00\r\n\none\ntwo\none\nlast");
    let keys = from_file(file.path(), None, 0, 1).unwrap();
    assert_eq!(keys.duplicates, 3);
    let mut found = keys.loaded;
    found.sort();
    assert_eq!(found, [&b""[..], b"last", b"one", b"two", b"\xff\x00\r"]);
    assert!(keys.fresh.is_empty());
}

#[test]
fn a_fifth_of_a_file_is_held_back_at_most() {
    let text: Vec<u8> = (0..100).flat_map(|n| format!("key{n}\n").into_bytes()).collect();
    let file = Temporary::new("fifth", &text);
    let sizes = |count, fresh| {
        let keys = from_file(file.path(), count, fresh, 1).unwrap();
        assert!(distinct(&keys));
        (keys.loaded.len(), keys.fresh.len())
    };
    assert_eq!(sizes(None, 7), (93, 7));
    assert_eq!(sizes(None, 1000), (80, 20));
    assert_eq!(sizes(Some(10), 1000), (10, 20));
    assert_eq!(sizes(Some(93), 7), (93, 7));
    let loaded = |seed| from_file(file.path(), None, 0, seed).unwrap().loaded;
    assert_eq!(loaded(1), loaded(1));
    assert_ne!(loaded(1), loaded(2));
    let sentence = from_file(file.path(), Some(94), 7, 1).map(drop).unwrap_err().to_string();
    assert_eq!(sentence, "--count 94 is more than the file has: 100 distinct keys, 7 of them held back for inserts");
}

#[test]
fn files_that_cannot_be_read_say_what_to_do() {
    let empty = Temporary::new("empty", b"");
    let sentence = from_file(empty.path(), None, 0, 1).map(drop).unwrap_err().to_string();
    assert!(sentence.contains(empty.path()) && sentence.contains("one key per line is expected"), "{sentence}");
    let missing = format!("{}-is-missing", empty.path());
    let sentence = from_file(&missing, None, 0, 1).map(drop).unwrap_err().to_string();
    assert!(sentence.contains(&missing) && sentence.contains(KeyKind::NAMES), "{sentence}");
    assert!(!sentence.contains('\n'), "one sentence: {sentence}");
    let folder = std::env::temp_dir();
    assert!(from_file(folder.to_str().unwrap(), None, 0, 1).is_err());
}

/// Peers that know byte strings only must see the keys in the same order, and scans must return the keys that were
/// inserted.
fn raw_form_keeps_order<K: BenchKey>(mut keys: Vec<K>) {
    keys.sort_unstable();
    keys.dedup();
    assert!(keys.windows(2).all(|pair| pair[0].raw().as_ref() < pair[1].raw().as_ref()));
    for key in &keys {
        assert_eq!(K::from_shown(key.shown()), *key);
        key.with_raw(|raw| {
            assert_eq!(raw, key.raw().as_ref());
            assert_eq!(K::from_shown(K::shown_of_raw(raw)), *key);
        });
    }
}

#[test]
fn raw_keys_are_the_keys() {
    raw_form_keeps_order([words(&KeyKind::Int, 300, 0, 1).loaded, vec![0, 255, 256, u64::MAX]].concat());
    raw_form_keeps_order([emails(300, 0, 1).loaded, vec![vec![], vec![0], vec![0, 0], vec![255]]].concat());
}
