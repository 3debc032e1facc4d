use archipelago_index::HydraList;
use std::collections::BTreeMap;
use std::time::Instant;
fn rng(s: &mut u64) -> u64 {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    s.wrapping_mul(0x2545F4914F6CDD1D)
}
fn model_u64() {
    let map: HydraList<u64, u64> = HydraList::new();
    let m = map.pin();
    let mut b = BTreeMap::new();
    let mut s = 42;
    for i in 0..2_000_000u64 {
        let r = rng(&mut s);
        let k = match r % 8 {
            0 => r % 50,
            1 => u64::MAX - r % 20,
            _ => (r >> 8) % 100_000 * 0x1_0000_0001,
        };
        let phase = (i / 200_000) % 2;
        match rng(&mut s) % 10 {
            0..=3 => assert_eq!(m.insert(k, i), b.insert(k, i)),
            4 => assert_eq!(m.get(&k), b.get(&k).copied()),
            5 => {
                let mut v = vec![];
                m.scan(&k, 20, |k, x| v.push((k, *x)));
                assert_eq!(v, b.range(k..).take(20).map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
            }
            6 if i % 8 == 0 => {
                let mut v = vec![];
                m.scan_rev(&k, 20, |k, x| v.push((k, *x)));
                assert_eq!(v, b.range(..=k).rev().take(20).map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
            }
            7 if i % 64 == 0 => assert_eq!(m.pop_first(), b.pop_first()),
            _ => {
                if phase == 1 || r % 3 == 0 {
                    assert_eq!(m.remove(&k), b.remove(&k))
                }
            }
        }
    }
    map.check_invariants();
    assert!(m.iter().eq(b.iter().map(|(k, v)| (*k, *v))));
    assert!(m.iter().rev().eq(b.iter().rev().map(|(k, v)| (*k, *v))));
    println!("u64 model ok {}", b.len());
    for k in b.keys() {
        assert!(m.remove(k).is_some());
    }
    map.sync();
    map.check_invariants();
    assert_eq!(map.len(), 0);
}
fn model_str() {
    let map: HydraList<Vec<u8>, u64> = HydraList::new();
    let m = map.pin();
    let mut b: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut s = 4242;
    for i in 0..1_000_000u64 {
        let r = rng(&mut s);
        let k: Vec<u8> = match r % 10 {
            0 => vec![0; (r >> 8) as usize % 30],
            1 => format!("gmail.com@{:x}", (r >> 8) % 3000).into_bytes(),
            2 => [vec![b'p'; (r >> 8) as usize % 400], vec![(r >> 40) as u8; (r >> 32) as usize % 3]].concat(),
            3 => [&b"common/prefix/of/some/length/"[..(r >> 32) as usize % 30], &((r >> 8) % 1000).to_be_bytes()[..]]
                .concat(),
            4 => vec![0xFF; (r >> 8) as usize % 20],
            _ => format!("user{:06}/{}", (r >> 8) % 20000, "x".repeat((r >> 50) as usize % 40)).into_bytes(),
        };
        let phase = (i / 100_000) % 2;
        match rng(&mut s) % 10 {
            0..=3 => assert_eq!(m.insert(k.clone(), i), b.insert(k, i)),
            4 => assert_eq!(m.get(&k), b.get(&k).copied()),
            5 => {
                let mut v = vec![];
                m.scan(&k, 20, |k, x| v.push((k.to_vec(), *x)));
                assert_eq!(v, b.range(k..).take(20).map(|(k, v)| (k.clone(), *v)).collect::<Vec<_>>());
            }
            6 if i % 8 == 0 => {
                let mut v = vec![];
                m.scan_rev(&k, 20, |k, x| v.push((k.to_vec(), *x)));
                assert_eq!(v, b.range(..=k).rev().take(20).map(|(k, v)| (k.clone(), *v)).collect::<Vec<_>>());
            }
            7 if i % 64 == 0 => assert_eq!(m.pop_first(), b.pop_first()),
            _ => {
                if phase == 1 || r % 3 == 0 {
                    assert_eq!(m.remove(&k), b.remove(&k))
                }
            }
        }
        if i % 100_000 == 99_999 {
            map.check_invariants();
        }
    }
    assert!(m.iter().eq(b.iter().map(|(k, v)| (k.clone(), *v))));
    assert!(m.iter().rev().eq(b.iter().rev().map(|(k, v)| (k.clone(), *v))));
    println!("bytes model ok {}", b.len());
    for k in b.keys() {
        assert!(m.remove(k).is_some());
    }
    map.sync();
    map.check_invariants();
    assert_eq!(map.len(), 0);
}
fn bench() {
    let n = 10_000_000u64;
    let map: HydraList<u64, u64> = HydraList::new();
    let m = map.pin();
    let keys: Vec<u64> = {
        let mut s = 7;
        (0..n).map(|_| rng(&mut s)).collect()
    };
    let t = Instant::now();
    for k in &keys {
        m.insert(*k, *k);
    }
    let d = t.elapsed();
    println!("load {:.2} Mops", n as f64 / d.as_secs_f64() / 1e6);
    map.sync();
    let mut s = 99;
    let q: Vec<u64> = (0..4_000_000).map(|_| keys[(rng(&mut s) % n) as usize]).collect();
    for _ in 0..2 {
        let t = Instant::now();
        let mut x = 0;
        for k in &q {
            x ^= m.get(k).unwrap();
        }
        println!("uniform get {:.2} Mops {x}", q.len() as f64 / t.elapsed().as_secs_f64() / 1e6);
    }
    let t = Instant::now();
    let mut x = 0;
    for c in q.chunks(32) {
        for v in m.get_many(c) {
            x ^= v.unwrap();
        }
    }
    println!("get_many {:.2} Mops {x}", q.len() as f64 / t.elapsed().as_secs_f64() / 1e6);
    for _ in 0..3 {
        let t = Instant::now();
        let mut x = 0;
        for k in &q[..1_000_000] {
            m.scan(k, (*k % 100) as usize + 1, |k, v| x ^= k ^ *v);
        }
        println!("scan {:.2} Mops {x}", 1e6 / t.elapsed().as_secs_f64() / 1e6);
    }
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    if a.len() > 1 {
        bench();
        return;
    }
    model_u64();
    model_str();
}
