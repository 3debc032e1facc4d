//! Accounts: threads move money between pairs of accounts, and an auditor adds all of them up. A transfer locks the two
//! accounts that it changes, and commits both changes at once. The auditor reads a snapshot: it waits for no transfer, no
//! transfer waits for it, and the sum is always right.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use archipelago::sync::mvrlu::{Domain, Handle, Link};

#[derive(Clone, Copy)]
struct Account {
    balance: u64,
}

const ACCOUNTS: usize = 100;
const EACH: u64 = 1_000;
const TRANSFERS: usize = 50_000;

/// Moves `amount` if there is as much; whether there was.
fn transfer(handle: &mut Handle, from: Link<Account>, to: Link<Account>, amount: u64) -> bool {
    let transfer = handle.update(|tx| {
        let from = tx.lock(from)?;
        let enough = from.balance >= amount;
        if enough {
            from.balance -= amount;
            tx.lock(to)?.balance += amount;
        }
        Ok(enough)
    });
    transfer.expect("memory is not capped")
}

fn main() {
    let domain = Domain::new();
    let accounts: Vec<Link<Account>> = (0..ACCOUNTS).map(|_| domain.alloc(Account { balance: EACH })).collect();
    let done = AtomicBool::new(false);
    let (mut moved, mut audits) = (0, 0);
    thread::scope(|scope| {
        let transferring: Vec<_> = (1..=3)
            .map(|step| {
                let (mut handle, accounts) = (domain.register(), &accounts);
                scope.spawn(move || {
                    let pair = |n: usize| (accounts[n * step % ACCOUNTS], accounts[(n * 7 + step) % ACCOUNTS]);
                    let pairs = (0..TRANSFERS).map(pair).filter(|(from, to)| from != to);
                    pairs.filter(|(from, to)| transfer(&mut handle, *from, *to, 10)).count()
                })
            })
            .collect();
        let (mut handle, accounts, done) = (domain.register(), &accounts, &done);
        let auditing = scope.spawn(move || {
            let mut audits = 0;
            while !done.load(Ordering::Relaxed) {
                let snapshot = handle.read();
                let sum: u64 = accounts.iter().map(|account| snapshot.get(*account).balance).sum();
                assert_eq!(sum, ACCOUNTS as u64 * EACH);
                audits += 1;
            }
            audits
        });
        moved = transferring.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>();
        done.store(true, Ordering::Relaxed);
        audits = auditing.join().expect("every audit was right");
    });
    println!("{moved} transfers, {audits} audits beside them, none of them wrong");

    // An object is freed when its owner says so, and when no snapshot can see it any more.
    let closing = domain.register().update(|tx| {
        // SAFETY: nothing follows these links any more.
        accounts.iter().try_for_each(|account| unsafe { tx.retire(*account) })
    });
    closing.expect("memory is not capped");
}

#[test]
fn it_runs() {
    main();
}
