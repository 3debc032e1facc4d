//! Tests that all tables of a database have the database's hash function.

use super::hash::Hash;
use super::hashing::Hashing;
use super::set::Set;
use super::table::{Keyed, Table};
use super::value::Value;
use super::walk::tests::change;
use super::zset::Zset;
use super::{Db, Random};
use crate::args::Args;
use crate::operation::{Call, Write};
use crate::reply::Reply;

fn write(db: &mut Db, words: &[&[u8]]) -> Reply {
    let args: Args = words.iter().collect();
    let command = crate::command::find(&args[0]).expect("it is in the registry");
    let call = Call { command, args, db: 0, now: 1_000, seed: 1, wishes: 0, rights: None, deadline: None };
    db.write(&Write::Call(call)).reply
}

fn line(db: &mut Db, line: &str) -> Reply {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    write(db, &words)
}

/// Checks a table, and returns 1.
fn has<E: Keyed>(table: &Table<E>, hashing: Hashing) -> usize {
    assert_eq!(table.hashing(), hashing);
    table.iter().for_each(|entry| assert_eq!(entry.hash(), hashing.of(entry.key())));
    1
}

/// Checks all tables of the databases. Returns how many values have a table: sets, hashes, hashes with times, sorted
/// sets.
fn checked(db: &Db) -> [usize; 4] {
    let mut met = [0; 4];
    for space in &db.spaces {
        has(&space.keys, db.hashing);
        for entry in space.keys.iter() {
            match &entry.value {
                Value::Set(Set::Table(table)) => met[0] += has(table, db.hashing),
                Value::Hash(hash) => match &**hash {
                    Hash::Table(table) => met[1] += has(table, db.hashing),
                    Hash::Many(many) => met[2] += has(many.table(), db.hashing) * has(many.times(), db.hashing),
                    _ => {}
                },
                Value::Zset(zset) => match &**zset {
                    Zset::Large { table, .. } => met[3] += has(table, db.hashing),
                    Zset::Packed(_) => {}
                },
                _ => {}
            }
        }
    }
    met
}

#[test]
fn all_tables_have_the_hash_function_of_their_database() {
    let (mut db, mut random, mut met) = (Db::hashed(Hashing::seeded(5)), Random(12), [0; 4]);
    for now in 0..20_000 {
        db.write(&change(&mut random, now));
        if now % 100 == 0 {
            checked(&db).iter().zip(&mut met).for_each(|(here, met)| *met += here);
        }
    }
    assert!(met.iter().all(|met| *met > 10), "{met:?} values with tables are too few");
}

#[test]
fn tables_of_made_values_have_the_hash_function_of_their_database() {
    let mut db = Db::hashed(Hashing::seeded(6));
    let long = "x".repeat(80);
    for made in [
        format!("SADD s a {long}"),
        format!("HSET h a {long}"),
        "COPY h dated".into(),
        "HPEXPIRE dated 5000 FIELDS 1 a".into(),
        format!("ZADD z 1 a 2 {long}"),
        format!("GEOADD g 13 38 a 14 38 {long}"),
        "SUNIONSTORE s2 s".into(),
        "SINTERSTORE s3 s s".into(),
        "SDIFFSTORE s4 s none".into(),
        "SMOVE s s5 a".into(),
        "ZUNIONSTORE z2 2 z s".into(),
        "ZINTERSTORE z3 2 z z".into(),
        "ZRANGESTORE z4 z 0 -1".into(),
        "GEOSEARCHSTORE g2 g FROMMEMBER a BYRADIUS 900 km".into(),
        "ZINCRBY z5 1 a".into(),
        format!("ZINCRBY z5 1 {long}"),
        "COPY z z6".into(),
        "RENAME z6 z7".into(),
    ] {
        assert!(!line(&mut db, &made).is_error(), "{made}");
    }
    for key in ["s", "h", "dated", "z"] {
        let Reply::Bulk(payload) = line(&mut db, &format!("DUMP {key}")) else { panic!("{key} is there") };
        let copy = format!("{key}'");
        assert_eq!(write(&mut db, &[b"RESTORE", copy.as_bytes(), b"0", &payload]), Reply::OK);
    }
    assert_eq!(checked(&db), [6, 2, 2, 9]);
    let mut file = Vec::new();
    crate::rdb::write(&db, &mut file).unwrap();
    let loaded = crate::rdb::read(&mut &*file, Hashing::seeded(7)).unwrap().db;
    assert_eq!((checked(&loaded), loaded.hashing), ([6, 2, 2, 9], Hashing::seeded(7)));
    line(&mut db, "FLUSHALL");
    line(&mut db, "SET a 1");
    assert_eq!(checked(&db), [0; 4]);
}

#[test]
fn only_databases_without_keys_get_a_seed() {
    let mut db = Db::default();
    line(&mut db, "SET a 1");
    let mut seeded = db.clone();
    seeded.write(&Write::Seed { seed: 5 });
    assert_eq!(line(&mut seeded, "GET a"), Reply::bulk("1"));
    assert_eq!(seeded.hashing, Hashing::default());
    line(&mut seeded, "FLUSHALL");
    seeded.write(&Write::Seed { seed: 5 });
    assert_eq!(seeded.hashing, Hashing::seeded(5));
    line(&mut seeded, "SET a 1");
    checked(&seeded);
}
